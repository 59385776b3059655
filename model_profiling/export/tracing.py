"""From a model to an exported graph in the wanted dtype: tracing, half precision, int8 quantization."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from model_profiling.errors import ExportError, InputError
from model_profiling.models.base import EagerModelBase
from model_profiling.models.blame import place_in_user_code

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from model_profiling.models.base import DynamicShapes, ExampleInputs

Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class Eager:
    """The model as PyTorch sees it, with the inputs of one inference."""

    module: torch.nn.Module
    args: ExampleInputs
    kwargs: Mapping[str, object]
    dynamic_shapes: DynamicShapes | None

    def inputs(self) -> list[object]:
        """The inputs in the order the program takes them."""
        return flatten((self.args, dict(self.kwargs)))

    def run(self) -> list[torch.Tensor]:
        """The flattened output tensors; inputs are copied first, a model may write into them."""
        import torch

        args, kwargs = _map_tensors(torch.clone, (self.args, dict(self.kwargs)))
        with torch.no_grad():
            outputs = self.module(*args, **kwargs)
        return [leaf for leaf in flatten(outputs) if isinstance(leaf, torch.Tensor)]


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
    """Make the module and its example inputs, in evaluation mode, and see that it runs at all."""
    module = _ask(name, "get_eager_model", model.get_eager_model).eval()
    args = _ask(name, "get_example_inputs", model.get_example_inputs)
    kwargs = _ask(name, "get_example_kwarg_inputs", model.get_example_kwarg_inputs) or {}
    shapes = _ask(name, "get_dynamic_shapes", model.get_dynamic_shapes)
    if not isinstance(args, tuple):
        raise InputError(
            f"get_example_inputs of '{name}' returned {type(args).__name__}", "return a tuple of tensors"
        )
    eager = Eager(module, args, kwargs, shapes)
    try:
        eager.run()
    except Exception as problem:
        raise InputError(
            _located(f"'{name}' fails on its own example inputs", problem),
            "make forward() accept what get_example_inputs() returns",
        ) from problem
    return eager


def trace(name: str, eager: Eager, dtype: str, calibration: Iterable[ExampleInputs] | None) -> Traced:
    """Export the model as fp32, fp16 or int8."""
    if dtype == "fp16":
        eager = _half(eager)
        try:
            eager.run()
        except Exception as problem:
            raise ExportError(
                _located(f"'{name}' does not run in fp16", problem),
                "let that line follow the dtype of its inputs, or export fp32",
            ) from problem
    elif dtype == "int8":
        eager = _quantized(name, eager, calibration)
    return Traced(_export(name, eager), eager)


def _ask(name: str, method: str, call: Callable[[], Outcome]) -> Outcome:
    try:
        return call()
    except Exception as problem:
        raise InputError(
            _located(f"{method}() of '{name}' failed", problem), "correct the model's class"
        ) from problem


def _located(what: str, problem: Exception) -> str:
    where = place_in_user_code(problem)
    said = next((line.strip() for line in str(problem).splitlines() if line.strip()), "")
    return f"{what}: {type(problem).__name__}: {said}" + (f" at {where}" if where else "")


def _export(name: str, eager: Eager) -> ExportedProgram:
    import torch

    try:
        with torch.no_grad():
            return torch.export.export(
                eager.module, eager.args, dict(eager.kwargs), dynamic_shapes=eager.dynamic_shapes
            )
    except Exception as problem:
        raise ExportError(
            _located(f"torch.export cannot trace '{name}'", problem),
            "rewrite that line without control flow on tensor values (torch.where, torch.cond), "
            "or give fixed shapes",
        ) from problem


def _map_tensors(change: Callable[[torch.Tensor], torch.Tensor], tree: Outcome) -> Outcome:
    import torch
    from torch.utils._pytree import tree_map_only

    mapped: Outcome = tree_map_only(torch.Tensor, change, tree)
    return mapped


def _half(eager: Eager) -> Eager:
    import copy

    def narrow(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.half() if tensor.is_floating_point() else tensor

    args, kwargs = _map_tensors(narrow, (eager.args, dict(eager.kwargs)))
    return Eager(copy.deepcopy(eager.module).half(), args, kwargs, eager.dynamic_shapes)


def _quantized(name: str, eager: Eager, calibration: Iterable[ExampleInputs] | None) -> Eager:
    """Static symmetric int8, per output channel, with ranges observed on the calibration inputs."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(_export(name, eager).module(), quantizer)
    _calibrate(name, prepared, eager, calibration)
    converted = convert_pt2e(prepared)
    return Eager(converted, eager.args, eager.kwargs, eager.dynamic_shapes)


def _calibrate(
    name: str, prepared: torch.nn.Module, eager: Eager, calibration: Iterable[ExampleInputs] | None
) -> None:
    import torch

    batches = 0
    with torch.no_grad():
        if calibration is None:
            prepared(*_map_tensors(torch.clone, eager.args), **eager.kwargs)
            return
        try:
            for batch in calibration:
                prepared(*(batch if isinstance(batch, tuple) else (batch,)), **eager.kwargs)
                batches += 1
        except Exception as problem:
            raise InputError(
                _located(f"calibration of '{name}' failed at batch {batches}", problem),
                "yield tuples shaped like the example inputs",
            ) from problem
    if batches == 0:
        raise InputError(
            f"the calibration of '{name}' yields no inputs", "yield at least one tuple of inputs"
        )
