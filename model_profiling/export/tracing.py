"""From a model to an exported graph in the wanted dtype: tracing, half precision, int8 quantization."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from model_profiling.core.errors import ExportError, InputError
from model_profiling.models.base import EagerModelBase
from model_profiling.models.options import blaming, place_in_user_code
from model_profiling.program.etrecord import called, source_line

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

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


def _dtypes(node: torch.fx.Node) -> list[str]:
    value = node.meta.get("val")
    tensors = value if isinstance(value, (tuple, list)) else (value,)
    return [str(each.dtype).removeprefix("torch.") for each in tensors if hasattr(each, "dtype")]


Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class Eager:
    """The model in PyTorch, with the inputs of one inference."""

    module: torch.nn.Module
    args: ExampleInputs
    kwargs: Mapping[str, object]
    dynamic_shapes: DynamicShapes | None

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
        import torch

        return [leaf for leaf in self.leaves() if isinstance(leaf, torch.Tensor)]

    def leaves(self) -> list[object]:
        """All outputs of a first inference, flattened; what it writes into inputs and buffers is undone."""
        import torch

        args, kwargs = _map_tensors(torch.clone, (self.args, dict(self.kwargs)))
        state = [(buffer, buffer.clone()) for buffer in self.module.buffers()]
        with torch.no_grad():
            outputs = _map_tensors(torch.clone, flatten(self.module(*args, **kwargs)))
            for buffer, before in state:
                buffer.copy_(before)
        return outputs


@dataclass(frozen=True, slots=True)
class Traced:
    """An exported graph, and the PyTorch module that computes the same in the same dtype."""

    program: ExportedProgram
    eager: Eager


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
        eager = _cast(eager, torch.float32)
    with blaming(f"'{name}' fails on its example inputs", "give inputs that forward() accepts"):
        leaves = eager.leaves()
    strange = [
        leaf
        for leaf in leaves
        if leaf is not None and not isinstance(leaf, torch.Tensor | bool | int | float)
    ]
    if strange or not any(isinstance(leaf, torch.Tensor) for leaf in leaves):
        what = f"a {type(strange[0]).__name__}" if strange else "no tensor"
        raise InputError(
            f"forward() of '{name}' returns {what}, which cannot be exported",
            "return tensors, or tuples, lists and dicts of tensors",
        )
    return eager


def trace(name: str, eager: Eager, dtype: str, calibration: Iterable[ExampleInputs] | None) -> Traced:
    import torch

    if dtype == "fp16":
        eager = _cast(eager, torch.float16)
        fix = "make that line use the dtype of its inputs, or export fp32"
        with blaming(f"'{name}' does not run in fp16", fix, ExportError):
            eager.run()
    elif dtype == "int8":
        eager = _quantized(name, eager, calibration)
    return Traced(_export(name, eager), eager)


def ask(name: str, method: str, call: Callable[[], Outcome]) -> Outcome:
    with blaming(f"{method}() of '{name}' failed", "correct the model's class"):
        return call()


def _export(name: str, eager: Eager) -> ExportedProgram:
    import torch

    def cure(problem: BaseException) -> str:
        from torch._dynamo.exc import UserError
        from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

        if isinstance(problem, UserError | GuardOnDataDependentSymNode):
            said = "rewrite that line without control flow on values (torch.where, torch.cond)"
            return f"{said}, or give fixed shapes"
        return "write that line with PyTorch operators on tensors; --debug shows where it stopped"

    with blaming(f"torch.export cannot trace '{name}'", cure, ExportError), torch.no_grad():
        return torch.export.export(
            eager.module, eager.args, dict(eager.kwargs), dynamic_shapes=eager.dynamic_shapes
        )


def _map_tensors(change: Callable[[torch.Tensor], torch.Tensor], tree: Outcome) -> Outcome:
    import torch
    from torch.utils._pytree import tree_map_only

    mapped: Outcome = tree_map_only(torch.Tensor, change, tree)
    return mapped


def _cast(eager: Eager, dtype: torch.dtype) -> Eager:
    import copy

    def change(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    args, kwargs = _map_tensors(change, (eager.args, dict(eager.kwargs)))
    return Eager(copy.deepcopy(eager.module).to(dtype), args, kwargs, eager.dynamic_shapes)


def _quantized(name: str, eager: Eager, calibration: Iterable[ExampleInputs] | None) -> Eager:
    """Static symmetric int8, per output channel, with ranges observed on the calibration inputs."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    program = _export(name, eager)
    exported = program.module()
    with blaming(
        f"'{name}' cannot be quantized",
        "export fp16, or exclude that operator from quantization; --debug shows where it stopped",
        ExportError,
        lambda problem: place_named_in(str(problem), program),
    ):
        prepared = prepare_pt2e(exported, quantizer)
        _calibrate(name, prepared, eager, calibration)
        return Eager(convert_pt2e(prepared), eager.args, eager.kwargs, eager.dynamic_shapes)


def _calibrate(
    name: str, prepared: torch.nn.Module, eager: Eager, calibration: Iterable[ExampleInputs] | None
) -> None:
    import torch

    batches = 0
    with torch.no_grad():
        if calibration is None:
            prepared(*_map_tensors(torch.clone, eager.args), **eager.kwargs)
            return
        waiting = iter(calibration)
        fix = "yield tuples shaped like the example inputs"
        while True:
            with blaming(f"calibration of '{name}' failed at batch {batches}", fix):
                batch = next(waiting, None)
                if batch is None:
                    break
                prepared(*(batch if isinstance(batch, (tuple, list)) else (batch,)), **eager.kwargs)
            batches += 1
    if batches == 0:
        raise InputError(
            f"the calibration of '{name}' yields no inputs", "yield at least one tuple of inputs"
        )
