"""From a model to an exported graph in the wanted number format: tracing, half precision, quantization."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from model_profiling.core.errors import ExportError, InputError
from model_profiling.models.base import EagerModelBase
from model_profiling.models.options import blaming, loading_fix, place_in_user_code
from model_profiling.program.etrecord import called, source_line

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from model_profiling.export.records import Applied
    from model_profiling.models.base import DynamicShapes, ExampleInputs


class _Quoted(Exception):
    """Carries a node's recorded stack, so that the user's line is found as for a failure."""


def operator_name(node: torch.fx.Node) -> str:
    """`aten.convolution.default`, whichever dialect wraps it; a Python function has its own name."""
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
    """The torch function that the model called and that the node is part of: `hardsigmoid`."""
    recorded = node.meta.get("torch_fn")
    return called(str(recorded[1])) if recorded else ""


def source_of(node: torch.fx.Node) -> tuple[str, str]:
    """`model.py:12` and that line's text; empty if the trace did not keep it."""
    file, line, code = source_line(node.stack_trace or "")
    name = file.replace("\\", "/").rpartition("/")[2]
    return (f"{name}:{line}" if name and line else ""), code


def place_of(node: torch.fx.Node) -> str:
    """`model.py:12: the line`; empty if the trace did not keep it."""
    return ": ".join(filter(None, source_of(node)))


def quoted_line(node: torch.fx.Node) -> str:
    """`model.py:12 in forward: the line`, as in failures; empty if the trace did not keep it."""
    return place_in_user_code(_Quoted(node.stack_trace)) if node.stack_trace else ""


def place_named_in(message: str, program: ExportedProgram) -> str:
    """Where the model calls the operator in a message: `aten.linalg_svd`, or `aten._linalg_svd` as a part."""
    for node in program.graph.nodes:
        if node.op == "call_function" and (schema := getattr(node.target, "_schema", None)):
            space, _, name = schema.name.partition("::")
            named = rf"\b{re.escape(space)}(\.|::)_*{re.escape(name.strip('_'))}(?![A-Za-z0-9_])"
            if re.search(named, message) and (source := quoted_line(node)):
                return source
    return ""


def dtypes_of(node: torch.fx.Node) -> tuple[str, str]:
    """The dtypes of the node's inputs and outputs in torch's words: `float16`, `float32`."""
    read = dict.fromkeys(name for source in node.all_input_nodes for name in _dtypes(source))
    return ", ".join(read), ", ".join(dict.fromkeys(_dtypes(node)))


def made_tensors(node: torch.fx.Node) -> bool:
    """Whether the node gives tensors, not sizes that vary or checks of them."""
    return bool(only_tensors(flatten(node.meta.get("val"))))


def _dtypes(node: torch.fx.Node) -> list[str]:
    value = node.meta.get("val")
    tensors = value if isinstance(value, (tuple, list)) else (value,)
    return [str(each.dtype).removeprefix("torch.") for each in tensors if hasattr(each, "dtype")]


Outcome = TypeVar("Outcome")
CONVOLUTIONS_IN_FP32 = "XNNPACK fails at some quantized convolutions: try --keep Conv2d=fp32"
OTHER_REWRITES = "choose other rewrites (`sme2prof optimize`), or leave --optimize out"
STATIC_CACHE = (
    "for a transformers model with a cache, wrap it in TorchExportableModuleWithStaticCache of "
    "transformers.integrations.executorch"
)


@dataclass(frozen=True, slots=True)
class Eager:
    """The model in PyTorch, with the inputs of one inference."""

    module: torch.nn.Module
    args: ExampleInputs
    kwargs: Mapping[str, object]
    dynamic_shapes: DynamicShapes | None
    rewrites: tuple[Applied, ...] = ()
    """What was rewritten in the module already, because its number format was made from the graph."""

    def tensors(self) -> Iterator[torch.Tensor]:
        """Everything with a dtype: parameters, buffers and inputs."""
        import torch

        yield from self.module.parameters()
        yield from self.module.buffers()
        yield from (leaf for leaf in self.inputs() if isinstance(leaf, torch.Tensor))

    def inputs(self) -> list[object]:
        """The inputs in the program's order."""
        return flatten((self.args, dict(self.kwargs)))

    def run(self) -> list[torch.Tensor]:
        """The output tensors of a first inference, flattened."""
        return only_tensors(self.leaves())

    def leaves(self) -> list[object]:
        """All outputs of a first inference, flattened; what it writes into inputs and buffers is undone."""
        return run_in_turn([self])


def run_in_turn(calls: Sequence[Eager]) -> list[object]:
    """All outputs of the first inferences, flattened. Each call finds in the buffers what those before it
    wrote; at the end this is undone."""
    import torch

    state = [(buffer, buffer.clone()) for each in calls for buffer in each.module.buffers()]
    outputs: list[object] = []
    with torch.no_grad():
        for each in calls:
            args, kwargs = map_tensors(torch.clone, (each.args, dict(each.kwargs)))
            outputs += map_tensors(torch.clone, flatten(each.module(*args, **kwargs)))
        for buffer, before in state:
            buffer.copy_(before)
    return outputs


def only_tensors(leaves: Iterable[object]) -> list[torch.Tensor]:
    import torch

    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


@dataclass(frozen=True, slots=True)
class Traced:
    """An exported graph, and the PyTorch module that computes the same in the same dtype."""

    program: ExportedProgram
    eager: Eager
    rewrites: tuple[Applied, ...] = ()


def flatten(tree: object) -> list[object]:
    from torch.utils._pytree import tree_leaves

    leaves: list[object] = tree_leaves(tree)
    return leaves


def eager_model(name: str, model: EagerModelBase) -> Eager:
    """Make the module and its example inputs in evaluation mode, and check that it runs."""
    import torch

    module = ask(name, "get_eager_model", model.get_eager_model)
    args = ask(name, "get_example_inputs", model.get_example_inputs)
    kwargs = ask(name, "get_example_kwarg_inputs", model.get_example_kwarg_inputs) or {}
    shapes = ask(name, "get_dynamic_shapes", model.get_dynamic_shapes)
    if not isinstance(module, torch.nn.Module):
        raise InputError(
            f"get_eager_model of '{name}' returned {type(module).__name__}", "return a torch.nn.Module"
        )
    if type(module).forward is torch.nn.Module.forward and "forward" not in vars(module):
        raise InputError(
            f"{type(module).__name__} of '{name}' has no forward()",
            "define forward() in it, or return a module that has one",
        )
    if not isinstance(args, tuple):
        raise InputError(
            f"get_example_inputs of '{name}' returned {type(args).__name__}", "return a tuple of tensors"
        )
    eager = Eager(module.eval(), args, kwargs, shapes)
    elsewhere = {str(tensor.device) for tensor in eager.tensors()} - {"cpu"}
    if elsewhere:
        raise InputError(
            f"'{name}' has tensors on {min(elsewhere)}", "move the module and its inputs to the CPU: .cpu()"
        )
    if any(t.is_floating_point() and t.dtype != torch.float32 for t in eager.tensors()):
        eager = cast_to(eager, torch.float32)
    refused = partial(loading_fix, other="give inputs that forward() accepts")
    with blaming(f"'{name}' fails on its example inputs", refused):
        leaves = eager.leaves()
    strange = [
        leaf
        for leaf in leaves
        if leaf is not None and not isinstance(leaf, torch.Tensor | bool | int | float)
    ]
    if strange or not any(isinstance(leaf, torch.Tensor) for leaf in leaves):
        kind = type(strange[0]).__name__ if strange else ""
        fix = "return tensors, or tuples, lists and dicts of tensors"
        raise InputError(
            f"forward() of '{name}' returns {f'a {kind}' if kind else 'no tensor'}, which cannot be exported",
            f"{fix}; {STATIC_CACHE}" if kind.endswith("Cache") else fix,
        )
    return eager


def methods_of(name: str, model: EagerModelBase, eager: Eager) -> dict[str, Eager]:
    """The program's methods: calls of one module with different inputs."""
    methods = ask(name, "get_methods", model.get_methods)
    if not methods:
        return {"forward": eager}
    return {
        method: replace(eager, args=call.inputs, kwargs={}, dynamic_shapes=call.dynamic_shapes)
        for method, call in methods.items()
    }


def ask(name: str, method: str, call: Callable[[], Outcome]) -> Outcome:
    with blaming(f"{method}() of '{name}' failed", partial(loading_fix, other="correct the model's class")):
        return call()


def export_graph(name: str, eager: Eager) -> ExportedProgram:
    import torch

    def cure(problem: BaseException) -> str:
        from torch._dynamo.exc import UserError
        from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

        if isinstance(problem, UserError | GuardOnDataDependentSymNode):
            said = "rewrite that line without control flow on values (torch.where, torch.cond)"
            return f"{said}, or give fixed shapes"
        return "write that line with PyTorch operators on tensors; --debug shows where it stopped"

    def export(module: torch.nn.Module, *, strict: bool = False) -> ExportedProgram:
        inputs, shapes = (eager.args, dict(eager.kwargs)), eager.dynamic_shapes
        return torch.export.export(module, *inputs, dynamic_shapes=shapes, strict=strict)

    with blaming(f"torch.export cannot trace '{name}'", cure, ExportError), torch.no_grad():
        program = export(eager.module)
        if _takes_buffers_for_constants(program):
            program = export(eager.module, strict=True)
        return export(_with_own_weights(program)) if any(_shared(program.graph)) else program


_WITH_BIAS = ("aten.conv1d.", "aten.conv2d.", "aten.linear.")


def _shared(graph: torch.fx.Graph) -> Iterator[tuple[torch.fx.Node, torch.fx.Node]]:
    """Calls with weights or a bias that an earlier call has, and that lowering would change twice: it makes
    a Conv1d's weights two-dimensional, and in int8 it quantizes a bias by the range of each call's input."""
    seen: set[object] = set()
    for node in graph.nodes:
        if node.op == "call_function" and operator_name(node).startswith(_WITH_BIAS):
            first = 1 if operator_name(node).startswith("aten.conv1d.") else 2
            held = [each for each in node.args[first:3] if each is not None]
            yield from ((node, each) for each in held if each in seen)
            seen.update(held)


def _with_own_weights(program: ExportedProgram) -> torch.nn.Module:
    """The model with a copy of shared weights and biases for each call."""
    module = program.module()
    for number, (node, held) in enumerate(list(_shared(module.graph))):
        name = f"own_{number}"
        module.register_buffer(name, operator.attrgetter(held.target)(module).detach().clone())
        with module.graph.inserting_before(node):
            own = module.graph.get_attr(name)
        own.meta = dict(held.meta)
        node.replace_input_with(held, own)
    module.recompile()
    return module


def _takes_buffers_for_constants(program: ExportedProgram) -> bool:
    """Whether the trace has a buffer twice: a plain object of the model, such as a cache, holds it too. Such
    a trace cannot be lowered; tracing the Python code itself (strict) recognizes the buffer."""
    signature = program.graph_signature
    held = {**program.state_dict, **program.constants}
    buffers = {held[name].data_ptr() for name in signature.buffers if name in held}
    return any(held[name].data_ptr() in buffers for name in signature.lifted_tensor_constants)


def map_tensors(change: Callable[[torch.Tensor], torch.Tensor], tree: Outcome) -> Outcome:
    import torch
    from torch.utils._pytree import tree_map_only

    mapped: Outcome = tree_map_only(torch.Tensor, change, tree)
    return mapped


def to_dtype(dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    return change


def like(inputs: ExampleInputs, example: ExampleInputs) -> ExampleInputs:
    """Return `inputs` in the number types of `example`, and with channels last where it has them so."""
    import torch

    def changed(a: object, b: object) -> object:
        if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
            return a
        last = has_channels_last(b)
        return a.to(b.dtype, memory_format=torch.channels_last if last else torch.preserve_format)

    return tuple(changed(a, b) for a, b in zip(inputs, example, strict=True))


def has_channels_last(leaf: Any) -> bool:
    return getattr(leaf, "ndim", 0) == 4 and not leaf.is_contiguous()


def writes(node: torch.fx.Node) -> bool:
    """Whether it is a call that writes into a tensor."""
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and bool(schema.is_mutable)


def cast_to(eager: Eager, dtype: torch.dtype) -> Eager:
    import copy

    args, kwargs = map_tensors(to_dtype(dtype), (eager.args, dict(eager.kwargs)))
    return Eager(copy.deepcopy(eager.module).to(dtype), args, kwargs, eager.dynamic_shapes)
