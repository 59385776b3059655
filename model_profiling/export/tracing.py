"""From a model to an exported graph in the wanted number format: tracing, half precision, quantization."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from model_profiling.core.errors import ExportError, InputError
from model_profiling.core.formatting import did_you_mean
from model_profiling.core.number_formats import GROUP_STEP, NumberFormat
from model_profiling.models.base import EagerModelBase
from model_profiling.models.catalog import load_attribute
from model_profiling.models.options import blaming, place_in_user_code
from model_profiling.models.registry import FormatNotForModel
from model_profiling.program.etrecord import called, source_line

if TYPE_CHECKING:
    import torch
    from executorch.export import QuantizationRecipe
    from torch.export import ExportedProgram
    from torchao.quantization.pt2e.quantizer import Quantizer

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
        kind = type(strange[0]).__name__ if strange else ""
        fix = "return tensors, or tuples, lists and dicts of tensors"
        raise InputError(
            f"forward() of '{name}' returns {f'a {kind}' if kind else 'no tensor'}, which cannot be exported",
            f"{fix}; {STATIC_CACHE}" if kind.endswith("Cache") else fix,
        )
    return eager


def trace(
    name: str,
    eager: Eager,
    wanted: NumberFormat,
    calibration: Iterable[ExampleInputs] | None,
    keep: Sequence[str] = (),
) -> Traced:
    """Export in the number format `wanted`; the modules named in `keep` stay in float32."""
    import torch

    _check_kept(name, eager.module, keep)
    if wanted.kind == "fp16":
        eager = _cast(eager, torch.float16)
        _keep_float32(eager.module, keep)
        fix = "make that line use the dtype of its inputs, or export fp32"
        with blaming(f"'{name}' does not run in fp16", fix, ExportError):
            eager.run()
    elif wanted.kind == "int4":
        eager = _with_4_bit_weights(name, eager, wanted, keep)
    elif wanted.quantized:
        eager = _quantized(name, eager, wanted, calibration, keep)
    return Traced(export_graph(name, eager), eager)


def _check_kept(name: str, module: torch.nn.Module, keep: Sequence[str]) -> None:
    known = [path for path, _ in module.named_modules() if path]
    for path in keep:
        if path not in known:
            fix = did_you_mean(path, known) or f"it has {', '.join(known[:6])}"
            raise InputError(f"'{name}' has no module '{path}' to keep", fix)


def _is_kept(path: str, keep: Sequence[str]) -> bool:
    return any(path == kept or path.startswith(f"{kept}.") for kept in keep)


def _keep_float32(module: torch.nn.Module, keep: Sequence[str]) -> None:
    """Let these modules compute in float32 in a model of float16: inputs and outputs are converted."""
    import torch

    def enter(_: object, args: object, kwargs: object) -> object:
        return _map_tensors(_to(torch.float32), (args, kwargs))

    def leave(_: object, __: object, result: object) -> object:
        return _map_tensors(_to(torch.float16), result)

    for path in keep:
        part = module.get_submodule(path).to(torch.float32)
        part.register_forward_pre_hook(enter, with_kwargs=True)
        part.register_forward_hook(leave)


def ask(name: str, method: str, call: Callable[[], Outcome]) -> Outcome:
    with blaming(f"{method}() of '{name}' failed", "correct the model's class"):
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

    with blaming(f"torch.export cannot trace '{name}'", cure, ExportError), torch.no_grad():
        program = torch.export.export(
            eager.module, eager.args, dict(eager.kwargs), dynamic_shapes=eager.dynamic_shapes
        )
        if not _takes_buffers_for_constants(program):
            return program
        return torch.export.export(
            eager.module, eager.args, dict(eager.kwargs), dynamic_shapes=eager.dynamic_shapes, strict=True
        )


def _takes_buffers_for_constants(program: ExportedProgram) -> bool:
    """Whether the trace has a buffer twice: a plain object of the model, such as a cache, holds it too. Such
    a trace cannot be lowered; tracing the Python code itself (strict) recognizes the buffer."""
    signature = program.graph_signature
    held = {**program.state_dict, **program.constants}
    buffers = {held[name].data_ptr() for name in signature.buffers if name in held}
    return any(held[name].data_ptr() in buffers for name in signature.lifted_tensor_constants)


def _map_tensors(change: Callable[[torch.Tensor], torch.Tensor], tree: Outcome) -> Outcome:
    import torch
    from torch.utils._pytree import tree_map_only

    mapped: Outcome = tree_map_only(torch.Tensor, change, tree)
    return mapped


def _to(dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    return change


def like(inputs: ExampleInputs, example: ExampleInputs) -> ExampleInputs:
    """Return `inputs` in the number types of `example`."""
    import torch

    pairs = zip(inputs, example, strict=True)
    return tuple(
        a.to(b.dtype) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a for a, b in pairs
    )


def _cast(eager: Eager, dtype: torch.dtype) -> Eager:
    import copy

    args, kwargs = _map_tensors(_to(dtype), (eager.args, dict(eager.kwargs)))
    return Eager(copy.deepcopy(eager.module).to(dtype), args, kwargs, eager.dynamic_shapes)


def _with_4_bit_weights(name: str, eager: Eager, wanted: NumberFormat, keep: Sequence[str]) -> Eager:
    """4-bit weights of linear layers; their inputs are quantized to 8 bits when the program runs."""
    import copy

    from torch.nn import Linear, Module
    from torchao.quantization import quantize_
    from torchao.utils import unwrap_tensor_subclass

    linear = {
        path: part
        for path, part in eager.module.named_modules()
        if isinstance(part, Linear) and not _is_kept(path, keep)
    }
    # Without groups, ExecuTorch makes each row one group.
    step = wanted.group or GROUP_STEP
    chosen = {path for path, part in linear.items() if part.in_features % step == 0}
    if not chosen:
        what = f"of a multiple of {step} inputs" if linear else "to quantize"
        problem = f"'{name}' has no linear layer {what}: {wanted.text} changes nothing"
        raise FormatNotForModel(problem, "choose int8")

    def is_chosen(_: Module, path: str) -> bool:
        return path in chosen

    module = copy.deepcopy(eager.module)
    with blaming(
        f"'{name}' cannot be quantized to {wanted.text}", "choose int8 or int8-dynamic", ExportError
    ):
        quantize_(module, _recipe(wanted).ao_quantization_configs[0].ao_base_config, is_chosen)
        unwrap_tensor_subclass(module)
    return Eager(module, eager.args, eager.kwargs, eager.dynamic_shapes)


def _recipe(wanted: NumberFormat) -> QuantizationRecipe:
    """How ExecuTorch itself quantizes for XNNPACK."""
    from executorch.backends.xnnpack.recipes.xnnpack_recipe_provider import XNNPACKRecipeProvider
    from executorch.backends.xnnpack.recipes.xnnpack_recipe_types import XNNPackRecipeType as Type

    kind = {
        "int8": Type.PT2E_INT8_STATIC_PER_CHANNEL,
        "int8-dynamic": Type.PT2E_INT8_DYNAMIC_PER_CHANNEL,
        "int4": Type.TORCHAO_INT8_DYNAMIC_ACT_INT4_WEIGHT_PER_CHANNEL,
    }[wanted.kind]
    options = {}
    if wanted.group:
        kind, options = Type.TORCHAO_INT8_DYNAMIC_ACT_INT4_WEIGHT_PER_TENSOR, {"group_size": wanted.group}
    recipe = XNNPACKRecipeProvider().create_recipe(kind, **options)
    if recipe is None or recipe.quantization_recipe is None:
        raise ExportError(f"this ExecuTorch has no recipe for {wanted.text}", "choose another number format")
    return recipe.quantization_recipe


def _quantizer(wanted: NumberFormat, keep: Sequence[str]) -> Quantizer:
    quantizer: Any  # the user's own may be anything
    if wanted.kind == "own":
        _, _, made = load_attribute(wanted.text)
        with blaming(f"{wanted.text} failed", "make it work when called without arguments"):
            quantizer = made() if callable(made) else made
    else:
        quantizer = (_recipe(wanted).quantizers or [None])[0]
    if not hasattr(quantizer, "annotate"):
        raise InputError(
            f"{wanted.text} gives a {type(quantizer).__name__}",
            "return a torchao Quantizer, such as XNNPACKQuantizer",
        )
    if keep:
        if not hasattr(quantizer, "set_filter_function"):
            raise InputError(
                f"--keep cannot change {wanted.text}", "leave these modules out in the quantizer itself"
            )
        quantizer.set_filter_function(lambda node: not _is_kept(module_of(node)[0], keep))
    return quantizer


def _quantized(
    name: str,
    eager: Eager,
    wanted: NumberFormat,
    calibration: Iterable[ExampleInputs] | None,
    keep: Sequence[str],
) -> Eager:
    """8-bit integers by a quantizer; ranges come from the calibration inputs unless they are dynamic."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = _quantizer(wanted, keep)
    program = export_graph(name, eager)
    exported = program.module()
    with blaming(
        f"'{name}' cannot be quantized",
        "export fp16, or exclude that operator from quantization; --debug shows where it stopped",
        ExportError,
        lambda problem: place_named_in(str(problem), program),
    ):
        _leave_integers(exported)
        prepared = prepare_pt2e(exported, quantizer)
        _calibrate(name, prepared, eager, calibration)
        converted = convert_pt2e(prepared)
    if not any(
        "quantize" in operator_name(node) for node in converted.graph.nodes if node.op == "call_function"
    ):
        raise FormatNotForModel(f"'{name}' has no operator that {wanted.text} quantizes", "choose fp16")
    return Eager(converted, eager.args, eager.kwargs, eager.dynamic_shapes)


def _leave_integers(exported: Any) -> None:
    """Name sums and products of integers so that XNNPACK's quantizer does not know them: it would make their
    constants floating point, and an index or a mask with them."""
    import torch

    aten = torch.ops.aten
    unknown = {aten.add.Tensor: aten.add.Scalar, aten.mul.Tensor: aten.mul.Scalar}
    for node in exported.graph.nodes:
        value = node.meta.get("val")
        if node.target in unknown and isinstance(value, torch.Tensor) and not value.is_floating_point():
            constant = not isinstance(node.args[1], torch.fx.Node)
            node.target = unknown[node.target] if constant else node.target
    exported.recompile()


def _calibrate(
    name: str, prepared: torch.nn.Module, eager: Eager, calibration: Iterable[ExampleInputs] | None
) -> None:
    import torch

    with torch.no_grad():
        if calibration is None:
            prepared(*_map_tensors(torch.clone, eager.args), **eager.kwargs)
            return
        fix = "yield tuples shaped like the example inputs"
        for number, batch in enumerate(calibration):
            with blaming(f"calibration of '{name}' failed at batch {number}", fix):
                prepared(*batch, **eager.kwargs)
