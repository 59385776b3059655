"""The whole export: from a model to a checked `.pte` with its companion files, written all or none."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import platform
import random
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.core.errors import ExportError, InputError, SetupError, WrongTypeError
from model_profiling.core.files import StrPath, as_path, make_folder, no_empty_folder, replacing, sha256
from model_profiling.core.hints import install_extra
from model_profiling.core.number_formats import FORMATS_HELP, NumberFormat, parse_format
from model_profiling.core.progress import Progress, Silent
from model_profiling.export import tracing
from model_profiling.export.accuracy import check_outputs, quietly, run_program
from model_profiling.export.calibration import calibration_batches
from model_profiling.export.outside import Refusals, with_instructions
from model_profiling.export.overflow import Search
from model_profiling.export.records import BACKENDS, EXAMPLE_INPUTS, Accuracy, Coverage, ExportResult
from model_profiling.export.tracing import module_of, operator_name, place_named_in, quoted_line
from model_profiling.models.catalog import (
    FactoryModel,
    NamedModel,
    absolute_reference,
    given_model,
    load_model,
)
from model_profiling.models.options import blaming, passed_through
from model_profiling.models.registry import choose, discover
from model_profiling.program import read_program

if TYPE_CHECKING:
    import torch
    from executorch.devtools.etrecord import ETRecord
    from executorch.exir import ExecutorchBackendConfig, ExecutorchProgramManager
    from torch.export import ExportedProgram

    from model_profiling.models.base import ExampleInputs, Inputs, Model


SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Lowered:
    """The program, its debug record, and which operators the backend took."""

    program: ExecutorchProgramManager
    etrecord: ETRecord
    coverage: Coverage
    written_inputs: int
    """How many inputs the model writes into; the program returns them before its outputs."""


_MARKS = ("quantized_decomposed.", "torchao.")
"""Quantizing and dequantizing, as the two ways to quantize write them."""


def lower(name: str, traced: ExportedProgram, backend: str) -> Lowered:
    """Lower to `backend`; the ETRecord links the program's debug handles to the model's source."""
    from executorch.exir import to_edge_transform_and_lower
    from executorch.exir.lowered_backend_module import get_lowered_backend_modules

    partitioner = None
    if backend == "xnnpack":
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

        partitioner = XnnpackPartitioner()
    refusals = Refusals(partitioner, traced)
    with (
        refusals.listening(),
        blaming(
            f"ExecuTorch cannot lower '{name}' to {backend}",
            _cure,
            ExportError,
            lambda problem: _place(problem, traced),
        ),
    ):
        chosen = [partitioner] if partitioner else []
        edge = to_edge_transform_and_lower(traced, partitioner=chosen, generate_etrecord=True)
        lowered = edge.exported_program()
        parts = get_lowered_backend_modules(lowered.graph_module)
        inside = [node for part in parts for node in _operators(part.original_module.graph_module)]
        # Before to_executorch(), which rewrites this graph's operators into their out= variants.
        left = [(node, refusals.account_of(node)) for node in _operators(lowered.graph_module)]
        written_inputs = len(lowered.graph_signature.user_inputs_to_mutate)
        program = edge.to_executorch(_with_initial_state(lowered))
    written = read_program(program.buffer)
    outside = with_instructions(left, program.debug_handle_map["forward"], written.methods[0])
    coverage = Coverage(
        # Inside a delegate, a quantize or dequantize step only marks the dtype and costs nothing.
        delegated=sum(not operator_name(node).startswith(_MARKS) for node in inside),
        partitions=len(parts),
        undelegated=tuple(map(refusals.with_replacement, outside)),
        inserted_transposes=sum(
            node.kind == "StaticTranspose" and node.inserted
            for method in written.methods
            for delegate in method.delegates
            for node in delegate.nodes
        ),
    )
    return Lowered(program, program.get_etrecord(), coverage, written_inputs)


def _place(problem: BaseException, traced: ExportedProgram) -> str:
    """The model's line with the operator that the error names, in the trace or in its decomposition."""
    if found := place_named_in(str(problem), traced):
        return found
    with contextlib.suppress(Exception):  # decomposing may be what failed
        return place_named_in(str(problem), traced.run_decompositions())
    return ""


_IN_BUFFERS = f"keep what one call leaves for the next in buffers (register_buffer); {tracing.STATIC_CACHE}"
_CURES = {
    "complex": "compute with real and imaginary parts separately: ExecuTorch has no complex numbers",
    "quantized_decomposed": "export fp16, or exclude that line from quantization",
    "Missing out variants": (
        "register an out= variant of that operator with PyTorch, and its kernel with ExecuTorch"
    ),
    "is mutated in the forward method": _IN_BUFFERS,
    "expected compiled_fn to be GraphModule": _IN_BUFFERS,
    "Core ATen": "replace that operator: ExecuTorch takes only operators of Core ATen",
}
"""What to do, by a part of what ExecuTorch says."""


def _cure(problem: BaseException) -> str:
    said = str(problem)
    for part, cure in _CURES.items():
        if part in said:
            return cure
    if passed_through(problem, "/executorch/backends/"):
        return "--backend portable may still work; --debug shows where it stopped"
    return "--debug shows where it stopped"


def _with_initial_state(lowered: ExportedProgram) -> ExecutorchBackendConfig:
    """Keep the initial values of buffers the model writes into; by default they start as garbage."""
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    signature = lowered.graph_signature
    written = set(signature.buffers_to_mutate.values())
    names = [name for name, buffer in signature.inputs_to_buffers.items() if buffer in written]
    return ExecutorchBackendConfig(passes=[InitializedMutableBufferPass(names)] if names else [])


def _operators(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """The nodes that compute: neither tuple access nor the call of a delegate."""
    idle = ("getitem", "executorch_call_delegate", "alloc")
    nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
    return [node for node in nodes if operator_name(node) not in idle]


def graph_json(model: str, program: ExportedProgram) -> dict[str, object]:
    """One entry per node, in execution order."""
    return {
        "schema_version": SCHEMA_VERSION,
        "model": model,
        "nodes": [_node(node) for node in program.graph.nodes if node.op != "output"],
        "outputs": [str(spec.arg.name) for spec in program.graph_signature.output_specs],
    }


def _node(node: torch.fx.Node) -> dict[str, object]:
    module_path, module_class = module_of(node)
    return {
        "name": node.name,
        "operator": operator_name(node) if node.op == "call_function" else node.op,
        "inputs": [source.name for source in node.all_input_nodes],
        "outputs": _tensors(node.meta.get("val")),
        "module_path": module_path,
        "module_class": module_class,
        "source": quoted_line(node),
        "debug_handle": node.meta.get("debug_handle"),
    }


def _tensors(value: object) -> list[dict[str, object]]:
    if isinstance(value, (tuple, list)):
        return [entry for part in value for entry in _tensors(part)]
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return []
    shape = [int(size) if isinstance(size, int) else str(size) for size in value.shape]
    return [{"shape": shape, "dtype": str(value.dtype).removeprefix("torch.")}]


_LARGEST_SEED = 2**32 - 1
"""Numpy's limit; torch takes more."""


@contextlib.contextmanager
def _seeded(seed: int, model: str | NamedModel) -> Iterator[None]:
    """Seed all generators from which a factory may draw weights and inputs. Afterwards the caller's random
    numbers and the mode of the caller's module (training or evaluation) are as they were."""
    import numpy as np
    import torch

    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()
    modes = []
    if isinstance(model, NamedModel) and isinstance(model.model, FactoryModel):
        modes = [(part, part.training) for part in model.model.get_eager_model().modules()]
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        torch.set_rng_state(kept[2])


def export_model(
    model: Model | NamedModel,
    inputs: Inputs | None = None,
    *,
    dtype: str = "fp32",
    backend: str = "xnnpack",
    outdir: StrPath | None = None,
    save_graph: bool = False,
    name: str | None = None,
    calibration: str | Iterable[ExampleInputs] | None = None,
    keep: Sequence[str] = (),
    seed: int = 0,
    progress: Progress | None = None,
    verbose: bool = False,
) -> ExportResult:
    """Export `model` and check the program against PyTorch; also called `model_profiling.export`.

    `model` is a `torch.nn.Module` with its `inputs` (a tensor, a tuple of positional inputs or a dict of
    keyword inputs), a name that `sme2prof models` lists, or `file.py:factory`. A module is exported in
    evaluation mode and left as it was; its files are named after its class, or `name`.

        export(module, torch.rand(1, 3, 224, 224), dtype="fp16").pte

    Writes `<name>_<backend>_<format>.pte`, its `.etrecord` and `.json` summary into `outdir` (by default
    `out_<name>/artifacts`). The same model and seed give the same `.pte`, byte for byte.

    `dtype` is fp32, fp16, int8, int8-dynamic, int4, int4:GROUP or `file.py:quantizer`, `backend` xnnpack or
    portable. `calibration` gives real inputs, for the ranges of int8 and to compare with PyTorch:
    `file.py:function`, `file.npz`, or an iterable of tuples of tensors. Modules in `keep` stay in float32.
    A model that cannot be lowered is an `ExportError` with the operator and line that prevent it.
    """
    began = time.monotonic()
    progress = progress or Silent()
    if not isinstance(dtype, str):
        raise WrongTypeError(f"dtype is of type {type(dtype).__name__}", f"choose from {FORMATS_HELP}")
    wanted = parse_format(dtype)
    _check_options(wanted, backend, name, calibration)
    given = given_model(model, inputs, name)
    if isinstance(given, str) and (chosen := choose(given)):
        discover()[chosen.model].check_dtype(dtype)
    made_with = versions()
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _LARGEST_SEED:
        wrong = InputError if type(seed) is int else WrongTypeError
        raise wrong(f"the seed {seed} is out of range", f"give a whole number from 0 to {_LARGEST_SEED}")
    folder = None if outdir is None else as_path(outdir)
    if folder is not None:
        _check_writable(folder)
    with _seeded(seed, given):
        progress.stage(f"loading {given if isinstance(given, str) else given.name}")
        with quietly(not verbose):
            named = load_model(given, name) if isinstance(given, str) else given
            eager = tracing.eager_model(named.name, named.model)
        folder = folder or Path(f"out_{named.name}") / "artifacts"
        _check_writable(folder)
        # In fp32 nothing is observed or compared on the model's own inputs; those given are still checked.
        batches = (
            calibration_batches(named, calibration, eager.args)
            if wanted.kind != "fp32" or calibration is not None
            else None
        )
        progress.stage(f"tracing {named.name} as {dtype}")
        with quietly(not verbose):
            traced = tracing.trace(named.name, eager, wanted, batches, keep)
        pte = folder / f"{named.name}_{backend}_{wanted.word(kept=bool(keep))}.pte"
        progress.stage(f"lowering {pte.stem}")
        with quietly(not verbose):
            lowered = lower(named.name, traced.program, backend)

        etrecord, summary = Path(f"{pte}.etrecord"), Path(f"{pte}.json")
        graph = folder / f"{pte.stem}.graph.json" if save_graph else None
        with no_empty_folder(folder), contextlib.ExitStack() as files:
            # Entered first, so renamed last: a .pte exists only if its companions do.
            pte_part = files.enter_context(replacing(pte))
            pte_part.write_bytes(lowered.program.buffer)
            progress.stage(f"checking {pte.stem} against PyTorch")
            accuracy = check_outputs(
                pte_part,
                traced,
                search=Search(named.name, eager, wanted, keep, partial(_lower_and_run, named.name, backend)),
                written_inputs=lowered.written_inputs,
                batches=batches or (),
            )
            etrecord_part = files.enter_context(replacing(etrecord))
            with (
                quietly(not verbose),
                blaming(
                    f"ExecuTorch cannot write the ETRecord of '{named.name}'",
                    "replace that operator in the model",
                    ExportError,
                    lambda problem: tracing.place_named_in(str(problem), traced.program),
                ),
            ):
                lowered.etrecord.save(str(etrecord_part))
            result = ExportResult(
                model=named.name,
                source=absolute_reference(given)
                if isinstance(given, str) and named.source == "reference"
                else named.source,
                dtype=dtype,
                backend=backend,
                seed=seed,
                pte=pte,
                etrecord=etrecord,
                graph=graph,
                summary=summary,
                sha256=sha256(pte_part),
                size_bytes=pte_part.stat().st_size,
                inputs=tuple(describe_tensor(leaf) for leaf in traced.eager.inputs()),
                outputs=tuple(describe_tensor(leaf) for leaf in traced.eager.run()),
                coverage=lowered.coverage,
                accuracy=accuracy,
                seconds=round(time.monotonic() - began, 3),
                versions=made_with,
                calibration=_calibration(wanted, calibration, batches),
                keep=tuple(keep),
                warnings=(
                    *(named.entry.remarks(dtype, backend) if named.entry else ()),
                    *accuracy_warnings(wanted, accuracy, calibrated=batches is not None),
                ),
            )
            if graph is not None:
                edge = lowered.etrecord.edge_dialect_program
                program = edge["forward"] if isinstance(edge, dict) else edge
                _write_part(files, graph, graph_json(named.name, program))
            _write_part(files, summary, result.as_dict())
    if accuracy.problem:
        raise ExportError(
            accuracy.problem, (f"{accuracy.fix}; the program and this verdict are kept as {pte}")
        )
    return result


def _lower_and_run(name: str, backend: str, traced: tracing.Traced) -> list[torch.Tensor]:
    with quietly():
        lowered = lower(name, traced.program, backend)
    with tempfile.TemporaryDirectory(prefix="sme2prof-") as folder:
        pte = Path(folder) / "again.pte"
        pte.write_bytes(lowered.program.buffer)
        return run_program(name, pte, traced.eager)[lowered.written_inputs :]


def describe_tensor(leaf: object) -> str:
    """`1x3x224x224 float32`; a plain number is shown as itself."""
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    if shape is None or dtype is None:
        return repr(leaf)
    return f"{'x'.join(str(size) for size in shape) or 'scalar'} {str(dtype).removeprefix('torch.')}"


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("executorch", "torch", "torchao"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError as problem:
            raise SetupError(
                f"exporting needs the Python package '{package}', which is not installed",
                install_extra("executorch"),
            ) from problem
    return found


def _check_options(wanted: NumberFormat, backend: str, name: str | None, calibration: object) -> None:
    if backend not in BACKENDS:
        wrong = InputError if isinstance(backend, str) else WrongTypeError
        raise wrong(f"there is no backend '{backend}'", f"choose from {', '.join(BACKENDS)}")
    if wanted.quantized and backend == "portable":
        raise InputError(
            f"the portable backend does not run {wanted.text}",
            "use --backend xnnpack, or --dtype fp32 or fp16",
        )
    if name is not None and not re.fullmatch(r"[A-Za-z_]\w*", str(name)):
        raise InputError(f"'{name}' is not a valid model name", "use letters, digits and underscores")
    if not isinstance(calibration, Iterable | None):
        raise WrongTypeError(
            f"calibration is of type {type(calibration).__name__}",
            "give file.py:function, file.npz, or an iterable of tuples of tensors",
        )


def _check_writable(outdir: Path) -> None:
    """Check before the long part that a file can be written there."""
    with no_empty_folder(outdir):
        probe = make_folder(outdir) / ".writable"
        with replacing(probe) as part:
            part.write_bytes(b"\0" * 4096)
        probe.unlink(missing_ok=True)


def _calibration(
    wanted: NumberFormat,
    source: str | Iterable[ExampleInputs] | None,
    batches: Iterable[ExampleInputs] | None,
) -> str:
    if not wanted.has_ranges:
        return ""
    if batches is None:
        return EXAMPLE_INPUTS
    if source is None:
        return "the model's own calibration inputs"
    return source if isinstance(source, str) else "inputs given by the caller"


def accuracy_warnings(wanted: NumberFormat, accuracy: Accuracy, *, calibrated: bool) -> Iterable[str]:
    lowering, precision = accuracy.lowering, accuracy.precision
    if accuracy.problem or lowering is None or precision is None:
        return  # the problem itself is reported
    if precision.vanished:
        yield (
            "PyTorch's own outputs are almost zero on the example inputs (at most "
            f"{precision.largest:.2g}), so the program's outputs cannot be checked: use trained weights, "
            "or other inputs"
        )
    if not lowering.ok:
        far = f"outputs differ from PyTorch in {wanted.text} by {lowering.distance}"
        yield f"{far}: compare with --backend portable"
    if not precision.ok:
        yield (
            f"outputs in {wanted.text} differ from float32 by {precision.distance}: check the model's"
            " accuracy on real data"
            + (", and give real inputs with --calibrate" if wanted.has_ranges and not calibrated else "")
        )


def _write_part(files: contextlib.ExitStack, path: Path, content: dict[str, object]) -> None:
    part = files.enter_context(replacing(path))
    part.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
