"""What a node of a traced graph is and where in the model it comes from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from model_profiling.models.blame import place_in_user_code
from model_profiling.program.etrecord import source_line

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


class _Quoted(Exception):
    """Carries a node's recorded stack so that the user's line is found the same way as in a failure."""


def operator_name(node: torch.fx.Node) -> str:
    """`aten.convolution.default`, whichever dialect wraps it; a Python function goes by its own name."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return str(getattr(node.target, "__name__", node.target))
    return f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"


def module_of(node: torch.fx.Node) -> tuple[str, str]:
    """Dotted path and class of the innermost module the node was traced in; empty for the model itself."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, cls = stack[-1] if stack else ("", "")
    path = str(path).removeprefix("L['self'].").removeprefix("L['self']").lstrip(".")
    return path, cls if isinstance(cls, str) else f"{cls.__module__}.{cls.__qualname__}"


def call_of(node: torch.fx.Node) -> str:
    """The function of torch that the model called and that the node is a part of: `hardsigmoid`."""
    recorded = node.meta.get("torch_fn")
    return str(recorded[1]).rpartition(".")[2].strip("_") if recorded else ""


def source_of(node: torch.fx.Node) -> tuple[str, str]:
    """`model.py:12` and that line's text; empty where the trace did not keep it."""
    file, line, code = source_line(node.stack_trace or "")
    name = file.replace("\\", "/").rpartition("/")[2]
    return (f"{name}:{line}" if name and line else ""), code


def quoted_line(node: torch.fx.Node) -> str:
    """`model.py:12 in forward: the line`, as failures name it; empty where the trace did not keep it."""
    return place_in_user_code(_Quoted(node.stack_trace)) if node.stack_trace else ""


def reached_by_inputs(program: ExportedProgram) -> set[torch.fx.Node]:
    """The nodes whose values may change from call to call: by inputs, by what the model keeps, by chance."""
    signature = program.graph_signature
    kept = set(signature.buffers_to_mutate.values())
    changing = set(signature.user_inputs) | {
        name for name, buffer in signature.inputs_to_buffers.items() if buffer in kept
    }
    return _reached(program, changing)


def _reached(program: ExportedProgram, changing: set[str]) -> set[torch.fx.Node]:
    """What the inputs named in `changing` reach; of a delegate only those outputs that they do."""
    reached: set[torch.fx.Node] = set()
    fixed: dict[torch.fx.Node, set[int]] = {}
    for node in program.graph.nodes:
        source = next(iter(node.all_input_nodes), None)
        if source in fixed and operator_name(node) == "getitem":
            if node.args[1] not in fixed[source]:
                reached.add(node)
        elif node.name in changing or _draws(node) or not reached.isdisjoint(node.all_input_nodes):
            reached.add(node)
            if operator_name(node) == "executorch_call_delegate":
                fixed[node] = _fixed_outputs(program, node, reached)
    return reached


def _fixed_outputs(program: ExportedProgram, call: torch.fx.Node, reached: set[torch.fx.Node]) -> set[int]:
    """Which outputs of a delegate's call depend on none of the arguments that change."""
    module, *given = call.args
    inside = getattr(getattr(program.graph_module, str(module), None), "original_module", None)
    if inside is None or len(inside.graph_signature.user_inputs) != len(given):
        return set()
    names = zip(inside.graph_signature.user_inputs, given, strict=True)
    changed = _reached(inside, {str(name) for name, argument in names if argument in reached})
    (made,) = (node.args[0] for node in inside.graph.nodes if node.op == "output")
    return {index for index, output in enumerate(made) if output not in changed}


def _draws(node: torch.fx.Node) -> bool:
    """Whether it draws random numbers."""
    operator = getattr(node.target, "_op", node.target)
    return any(str(tag).endswith("nondeterministic_seeded") for tag in getattr(operator, "tags", ()))


def place_named_in(message: str, program: ExportedProgram) -> str:
    """Where the model calls the operator that a library's message names: `aten.linalg_svd`, `aten::item`.

    Lowering takes calls apart: `aten._linalg_svd` is a part of `aten.linalg_svd`."""
    for node in program.graph.nodes:
        if node.op == "call_function" and (schema := getattr(node.target, "_schema", None)):
            space, _, name = schema.name.partition("::")
            named = rf"\b{re.escape(space)}(\.|::)_*{re.escape(name.strip('_'))}(?![A-Za-z0-9_])"
            if re.search(named, message) and (source := quoted_line(node)):
                return source
    return ""


def dtypes_of(node: torch.fx.Node) -> tuple[str, str]:
    """What the node reads and what it makes, as torch names it: `float16`, `float32`."""
    read = dict.fromkeys(name for source in node.all_input_nodes for name in _dtypes(source))
    return ", ".join(read), ", ".join(dict.fromkeys(_dtypes(node)))


def _dtypes(node: torch.fx.Node) -> list[str]:
    value = node.meta.get("val")
    tensors = value if isinstance(value, (tuple, list)) else (value,)
    return [str(each.dtype).removeprefix("torch.") for each in tensors if hasattr(each, "dtype")]
