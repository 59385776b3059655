"""What a node of a traced graph is and where in the model it comes from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from model_profiling.models.blame import place_in_user_code
from model_profiling.program.etrecord import called, source_line

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
    return called(str(recorded[1])) if recorded else ""


def source_of(node: torch.fx.Node) -> tuple[str, str]:
    """`model.py:12` and that line's text; empty where the trace did not keep it."""
    file, line, code = source_line(node.stack_trace or "")
    name = file.replace("\\", "/").rpartition("/")[2]
    return (f"{name}:{line}" if name and line else ""), code


def quoted_line(node: torch.fx.Node) -> str:
    """`model.py:12 in forward: the line`, as failures name it; empty where the trace did not keep it."""
    return place_in_user_code(_Quoted(node.stack_trace)) if node.stack_trace else ""


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
