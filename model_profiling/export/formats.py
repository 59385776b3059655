"""The model in a number format: half precision, integers of 8 bits, or weights of 4 bits; and the real inputs
from which 8-bit integers take their ranges."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from model_profiling.core.errors import ExportError, InputError
from model_profiling.core.formatting import did_you_mean
from model_profiling.core.number_formats import GROUP_STEP, NumberFormat
from model_profiling.export.catalogue import CACHE, CHANNELS_LAST
from model_profiling.export.records import Applied
from model_profiling.export.tracing import (
    OTHER_REWRITES,
    Eager,
    Traced,
    ask,
    cast_to,
    export_graph,
    has_channels_last,
    map_tensors,
    module_of,
    operator_name,
    place_named_in,
    place_of,
    to_dtype,
    writes,
)
from model_profiling.models.catalog import NamedModel, load_attribute
from model_profiling.models.options import blaming, loading_fix
from model_profiling.models.registry import FormatNotForModel
from model_profiling.statistics.parity import compare_arrays

if TYPE_CHECKING:
    import torch
    from executorch.export import QuantizationRecipe
    from torch.export import ExportedProgram
    from torchao.quantization.pt2e.quantizer import Quantizer

    from model_profiling.models.base import ExampleInputs


def trace(
    name: str,
    eager: Eager,
    wanted: NumberFormat,
    calibration: Iterable[ExampleInputs] | None,
    keep: Sequence[str] = (),
    *,
    rewrites: Collection[str] = (),
) -> Traced:
    """Export in the number format `wanted`; the modules named in `keep` stay in float32."""
    return trace_methods(name, {"forward": eager}, wanted, calibration, keep, rewrites=rewrites)["forward"]


def trace_methods(
    name: str,
    methods: Mapping[str, Eager],
    wanted: NumberFormat,
    calibration: Iterable[ExampleInputs] | None,
    keep: Sequence[str] = (),
    *,
    rewrites: Collection[str] = (),
) -> dict[str, Traced]:
    """Export each method in the number format `wanted`, with these `rewrites`. They share one module, or, if
    a format is made from the graph of each, at least its buffers. Calibration inputs are those of the first
    method."""
    import torch

    if CHANNELS_LAST in rewrites:
        methods = {method: _in_channels_last(given) for method, given in methods.items()}
        if not any(map(has_channels_last, chain.from_iterable(each.inputs() for each in methods.values()))):
            rewrites = [each for each in rewrites if each != CHANNELS_LAST]
    traced: dict[str, Traced] = {}
    for method, given in methods.items():
        first = next(iter(traced.values())).eager.module if traced else None
        if first is None or wanted.kind not in ("fp32", "fp16", "int4"):
            inputs = calibration if first is None else None
            eager = _in_format(name, given, wanted, inputs, keep, rewrites=rewrites)
        else:
            kind = torch.float16 if wanted.kind == "fp16" else torch.float32
            args, kwargs = map_tensors(to_dtype(kind), (given.args, dict(given.kwargs)))
            eager = replace(given, module=first, args=args, kwargs=kwargs)
        if first is not None and eager.module is not first:
            _share_buffers(eager.module, first)
        from_graph = wanted.quantized and wanted.kind != "int4"
        traced[method] = export_rewritten(name, eager, () if from_graph else rewrites)
    return traced


def _in_channels_last(eager: Eager) -> Eager:
    import torch

    def changed(leaf: torch.Tensor) -> torch.Tensor:
        if leaf.dim() != 4 or not leaf.is_floating_point():
            return leaf
        last = leaf.to(memory_format=torch.channels_last)
        return leaf if last.is_contiguous() else last  # of one channel the order is the same

    args, kwargs = map_tensors(changed, (eager.args, dict(eager.kwargs)))
    return replace(eager, args=args, kwargs=kwargs)


def export_rewritten(name: str, eager: Eager, chosen: Collection[str]) -> Traced:
    """Export the graph with the `chosen` rewrites of the catalogue."""
    in_place = getattr(eager.module, "cache_in_place", None) if CACHE in chosen else None
    with in_place() if in_place else nullcontext():
        program = export_graph(name, eager)
    if not chosen:
        return Traced(program, eager, eager.rewrites)
    from model_profiling.export.rewritten import rewrite_graph

    attention = [
        node for node in program.graph.nodes if in_place and operator_name(node) == _CUSTOM_ATTENTION
    ]
    places = [Applied(CACHE, _CUSTOM_ATTENTION, module_of(node)[0], place_of(node)) for node in attention]
    if CHANNELS_LAST in chosen:
        places += [
            Applied(CHANNELS_LAST, "input", "", "") for leaf in eager.inputs() if has_channels_last(leaf)
        ]
    with blaming(f"the graph of '{name}' cannot be rewritten", "leave --optimize out", ExportError):
        module, applied = rewrite_graph(program, chosen)
    applied = (*places, *applied)
    if not applied:
        return Traced(program, eager, eager.rewrites)
    return Traced(export_graph(name, replace(eager, module=module)), eager, applied)


_CUSTOM_ATTENTION = "llama.custom_sdpa.default"


def _share_buffers(module: torch.nn.Module, owner: torch.nn.Module) -> None:
    held = dict(owner.named_buffers())
    for path, _ in list(module.named_buffers()):
        if path in held:
            parent, _, own = path.rpartition(".")
            setattr(module.get_submodule(parent), own, held[path])


def _in_format(
    name: str,
    eager: Eager,
    wanted: NumberFormat,
    calibration: Iterable[ExampleInputs] | None,
    keep: Sequence[str],
    *,
    rewrites: Collection[str] = (),
) -> Eager:
    import torch

    keep = _kept_paths(name, eager.module, keep)
    if wanted.kind == "fp16":
        eager = cast_to(eager, torch.float16)
        _keep_float32(eager.module, keep)
        fix = "make that line use the dtype of its inputs, or export fp32"
        with blaming(f"'{name}' does not run in fp16", fix, ExportError):
            eager.run()
    elif wanted.kind == "int4":
        eager = _with_4_bit_weights(name, eager, wanted, keep)
    elif wanted.quantized:
        eager = _quantized(name, eager, wanted, calibration, keep, rewrites=rewrites)
    return eager


def _kept_paths(name: str, module: torch.nn.Module, keep: Sequence[str]) -> list[str]:
    """The modules that `keep` names, by path or by class."""
    kinds = {path: type(part).__name__ for path, part in module.named_modules() if path}
    found: list[str] = []
    for word in keep:
        paths = [word] if word in kinds else [path for path, kind in kinds.items() if kind == word]
        if not paths:
            fix = did_you_mean(word, (*kinds, *kinds.values())) or f"it has {', '.join([*kinds][:6])}"
            raise InputError(f"'{name}' has no module '{word}' to keep", fix)
        found += paths
    return list(dict.fromkeys(found))


def _is_kept(path: str, keep: Sequence[str]) -> bool:
    return any(path == kept or path.startswith(f"{kept}.") for kept in keep)


def _keep_float32(module: torch.nn.Module, keep: Sequence[str]) -> None:
    """Let these modules compute in float32 in a model of float16: inputs and outputs are converted."""
    import torch

    def enter(_: object, args: object, kwargs: object) -> object:
        return map_tensors(to_dtype(torch.float32), (args, kwargs))

    def leave(_: object, __: object, result: object) -> object:
        return map_tensors(to_dtype(torch.float16), result)

    for path in keep:
        part = module.get_submodule(path).to(torch.float32)
        part.register_forward_pre_hook(enter, with_kwargs=True)
        part.register_forward_hook(leave)


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
        _, made = load_attribute(wanted.text)
        with blaming(f"{wanted.text} failed", loading_fix):
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
    *,
    rewrites: Collection[str],
) -> Eager:
    """8-bit integers by a quantizer; ranges come from the calibration inputs unless they are dynamic."""
    from executorch.backends.transforms.duplicate_dynamic_quant_chain import DuplicateDynamicQuantChainPass
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

    traced, prepared = observed(name, eager, wanted, calibration, keep, rewrites=rewrites)
    program = traced.program
    with _not_quantized(name, program):
        converted = convert_pt2e(prepared)
        if wanted.kind == "int8-dynamic" and any(map(writes, program.graph.nodes)):
            # A cache cuts layers into several delegates. XNNPACK's partitioner then fails on a quantized
            # input that layers share ("dependency cycles"); ExecuTorch's export_llm duplicates it, too.
            DuplicateDynamicQuantChainPass()(converted)
    if not any(
        "quantize" in operator_name(node) for node in converted.graph.nodes if node.op == "call_function"
    ):
        raise FormatNotForModel(f"'{name}' has no operator that {wanted.text} quantizes", "choose fp16")
    return Eager(converted, eager.args, eager.kwargs, eager.dynamic_shapes, traced.rewrites)


def observed(
    name: str,
    eager: Eager,
    wanted: NumberFormat,
    calibration: Iterable[ExampleInputs] | None,
    keep: Sequence[str],
    *,
    rewrites: Collection[str] = (),
) -> tuple[Traced, torch.fx.GraphModule]:
    """The exported graph, and the same with observers that have seen the calibration inputs. It computes in
    float32 still."""
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

    quantizer = _quantizer(wanted, keep)
    traced = export_rewritten(name, eager, rewrites)
    exported = traced.program.module()
    if traced.rewrites:
        _check_rewritten(name, eager, exported)
    with _not_quantized(name, traced.program):
        _leave_integers(exported)
        prepared = prepare_pt2e(exported, quantizer)
        _calibrate(name, prepared, eager, calibration)
    return traced, prepared


def _check_rewritten(name: str, eager: Eager, rewritten: torch.nn.Module) -> None:
    """Outputs of the program are later compared with PyTorch's in its own format, which is made from this
    graph: that it computes what the model computes is seen only here."""
    for index, (wanted, made) in enumerate(
        zip(eager.run(), replace(eager, module=rewritten).run(), strict=True)
    ):
        dtype = str(wanted.dtype).removeprefix("torch.")
        if compare_arrays(wanted.numpy(), made.numpy(), dtype, relative=1e-4).verdict == "mismatch":
            raise ExportError(
                f"output {index} of the rewritten graph of '{name}' is not that of the model",
                OTHER_REWRITES,
            )


def _not_quantized(name: str, program: ExportedProgram) -> AbstractContextManager[None]:
    return blaming(
        f"'{name}' cannot be quantized",
        "export fp16, or exclude that operator from quantization; --debug shows where it stopped",
        ExportError,
        lambda problem: place_named_in(str(problem), program),
    )


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
            prepared(*map_tensors(torch.clone, eager.args), **eager.kwargs)
            return
        fix = "yield tuples shaped like the example inputs"
        for number, batch in enumerate(calibration):
            with blaming(f"calibration of '{name}' failed at batch {number}", fix):
                prepared(*batch, **eager.kwargs)


_BATCHES = "yield tuples shaped like the example inputs, at least one"


def calibration_batches(
    named: NamedModel, source: str | Iterable[ExampleInputs] | None, example: ExampleInputs
) -> list[ExampleInputs] | None:
    """The inputs for ranges and for the comparison with PyTorch; None if there are only example inputs."""
    batches = (
        ask(named.name, "get_calibration_inputs", named.model.get_calibration_inputs)
        if source is None
        else _batches_of(source, example)
        if isinstance(source, str)
        else source
    )
    if batches is None:
        return None
    with blaming(f"calibration of '{named.name}' failed", _BATCHES):
        found = [tuple(batch) if isinstance(batch, (tuple, list)) else (batch,) for batch in batches]
    if not found:
        raise InputError(f"the calibration of '{named.name}' yields no inputs", _BATCHES)
    return found


def _batches_of(source: str, example: ExampleInputs) -> Iterable[ExampleInputs]:
    if source.endswith(".npz"):
        return _batches_in_file(Path(source), example)
    _, made = load_attribute(source)
    with blaming(f"{source} failed", loading_fix):
        batches = cast("Callable[[], object]", made)() if callable(made) else made
    if not isinstance(batches, Iterable):
        raise InputError(
            f"{source} is a {type(batches).__name__}, not an iterator of inputs",
            "give a function that yields tuples of input tensors",
        )
    return cast("Iterable[ExampleInputs]", batches)


def _batches_in_file(path: Path, example: ExampleInputs) -> list[ExampleInputs]:
    """Inputs from an .npz: an array for each input, in their order; the first dimension counts inferences."""
    import numpy as np
    import torch

    try:
        with np.load(path, allow_pickle=False) as held:
            arrays = [torch.from_numpy(held[name]) for name in held.files]
    except (OSError, ValueError, TypeError, zipfile.BadZipFile) as problem:
        raise InputError(
            f"{path} cannot be read as .npz: {problem}", "write it with numpy.savez"
        ) from problem
    wanted = [leaf for leaf in example if isinstance(leaf, torch.Tensor)]
    sizes = [array[0].numel() for array in arrays if len(array)]
    if (
        len(wanted) != len(example)
        or len(arrays) != len(example)
        or sizes != [leaf.numel() for leaf in wanted]
    ):
        shapes = ", ".join(f"Nx{'x'.join(map(str, leaf.shape))}" for leaf in wanted)
        raise InputError(f"the arrays in {path} do not fit the model's inputs", f"give arrays of {shapes}")
    return [
        tuple(part.reshape(leaf.shape).to(leaf.dtype) for part, leaf in zip(parts, wanted, strict=True))
        for parts in zip(*arrays, strict=False)
    ]
