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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.core.errors import ExportError, InputError, SetupError, WrongTypeError
from model_profiling.core.files import StrPath, as_path, make_folder, replacing, sha256
from model_profiling.core.hints import install_extra
from model_profiling.core.number_formats import FORMATS_HELP, NumberFormat, parse_format
from model_profiling.core.stdio import current_progress
from model_profiling.export import tracing
from model_profiling.export.accuracy import check_outputs, quietly, run_program
from model_profiling.export.catalogue import CHANNELS_LAST, IMAGES_CHANGED
from model_profiling.export.formats import calibration_batches, trace_methods
from model_profiling.export.lowering import Lowered, lower
from model_profiling.export.overflow import Search
from model_profiling.export.records import BACKENDS, EXAMPLE_INPUTS, Accuracy, ExportedMethod, ExportResult
from model_profiling.export.rewrites import Optimize, chosen_rewrites
from model_profiling.export.tracing import module_of, operator_name, quoted_line
from model_profiling.models.catalog import FactoryModel, NamedModel, given_model, load_model
from model_profiling.models.options import blaming
from model_profiling.models.registry import choose, discover

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from model_profiling.models.base import ExampleInputs, Inputs, Model


SCHEMA_VERSION = 1


def graph_json(
    model: str, found: ExportedProgram | Mapping[str, ExportedProgram] | None
) -> dict[str, object]:
    """One entry per node, in execution order, method by method."""
    programs = found if isinstance(found, Mapping) else {"forward": found} if found else {}
    return {
        "schema_version": SCHEMA_VERSION,
        "model": model,
        "nodes": [
            _node(method, node)
            for method, program in programs.items()
            for node in program.graph.nodes
            if node.op != "output"
        ],
        "outputs": [
            str(spec.arg.name)
            for program in programs.values()
            for spec in program.graph_signature.output_specs
        ],
    }


def _node(method: str, node: torch.fx.Node) -> dict[str, object]:
    module_path, module_class = module_of(node)
    return {
        "method": method,
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
    optimize: Optimize = False,
    by_layer: bool = False,
    seed: int = 0,
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
    `file.py:function`, `file.npz`, or an iterable of tuples of tensors. `keep` names modules that stay in
    float32, by path (`head.0`) or class (`LayerNorm`). `optimize` rewrites the graph first, by the
    `optimization.json` that you name (or its folder), with rewrites by name, or, with True, by what
    `sme2prof optimize` wrote for this model or else by structure; the files are called `...-optimized`.
    `by_layer` also says what the format adds to each layer's results, and what keeping the worst in float32
    brings. A model that cannot be lowered is an `ExportError` with the operator and line that prevent it.
    """
    began = time.monotonic()
    if not isinstance(dtype, str):
        raise WrongTypeError(f"dtype is of type {type(dtype).__name__}", f"choose from {FORMATS_HELP}")
    wanted = parse_format(dtype)
    _check_options(wanted, backend, name, calibration, seed)
    given = given_model(model, inputs, name)
    if isinstance(given, str) and (chosen := choose(given)):
        discover()[chosen.model].check_dtype(dtype)
    made_with = versions()
    folder = None if outdir is None else as_path(outdir)
    if folder is not None:
        _check_writable(folder)
    with _seeded(seed, given):
        current_progress().stage(f"loading {given if isinstance(given, str) else given.name}")
        with quietly(not verbose):
            named = load_model(given, name) if isinstance(given, str) else given
            eager = tracing.eager_model(named.name, named.model)
            methods = tracing.methods_of(named.name, named.model, eager)
        folder = folder or Path(f"out_{named.name}") / "artifacts"
        _check_writable(folder)
        word = wanted.word(kept=bool(keep), optimized=bool(optimize))
        pte = folder / f"{named.name}_{backend}_{word}.pte"
        rewrites = chosen_rewrites(optimize, named.name, named.source, pte, dtype) if optimize else None
        # In fp32 nothing is observed or compared on the model's own inputs; those given are still checked.
        batches = (
            calibration_batches(named, calibration, eager.args)
            if wanted.kind != "fp32" or calibration is not None
            else None
        )
        current_progress().stage(f"tracing {named.name} as {dtype}")
        with quietly(not verbose):
            traced = trace_methods(named.name, methods, wanted, batches, keep, rewrites=rewrites or ())
        first = next(iter(traced.values()))
        applied = tuple(place for method in traced.values() for place in method.rewrites)
        current_progress().stage(f"lowering {pte.stem}")
        with quietly(not verbose):
            lowered = lower(
                named.name,
                {method: each.program for method, each in traced.items()},
                backend,
                tracing.ask(named.name, "get_constant_methods", named.model.get_constant_methods),
            )

        etrecord, summary = Path(f"{pte}.etrecord"), Path(f"{pte}.json")
        graph = folder / f"{pte.stem}.graph.json" if save_graph else None
        with contextlib.ExitStack() as files:
            # Entered first, so renamed last: a .pte exists only if its companions do.
            pte_part = files.enter_context(replacing(pte))
            pte_part.write_bytes(lowered.program.buffer)
            current_progress().stage(f"checking {pte.stem} against PyTorch")
            accuracy = check_outputs(
                pte_part,
                traced,
                methods,
                search=Search(
                    named.name,
                    eager,
                    wanted,
                    keep,
                    partial(_lower_and_run, named.name, backend),
                    rewrites or (),
                ),
                written_inputs=lowered.written_inputs,
                batches=batches or (),
                by_layer=by_layer,
            )
            etrecord_part = files.enter_context(replacing(etrecord))
            with (
                quietly(not verbose),
                blaming(
                    f"ExecuTorch cannot write the ETRecord of '{named.name}'",
                    "replace that operator in the model",
                    ExportError,
                    lambda problem: tracing.place_named_in(str(problem), first.program),
                ),
            ):
                lowered.etrecord.save(str(etrecord_part))
            result = ExportResult(
                model=named.name,
                source=named.source,
                dtype=dtype,
                backend=backend,
                seed=seed,
                pte=pte,
                etrecord=etrecord,
                graph=graph,
                summary=summary,
                sha256=sha256(pte_part),
                size_bytes=pte_part.stat().st_size,
                inputs=tuple(described_inputs(first.eager)),
                outputs=tuple(map(describe_tensor, first.eager.run())),
                methods=_methods(traced, lowered),
                coverage=lowered.coverage,
                accuracy=accuracy,
                seconds=round(time.monotonic() - began, 3),
                versions=made_with,
                calibration=_calibration(wanted, calibration, batches),
                keep=tuple(keep),
                rewrites=applied,
                warnings=(
                    *((_NOTHING_REWRITTEN,) if rewrites is not None and not applied else ()),
                    *((IMAGES_CHANGED,) if any(place.rewrite == CHANNELS_LAST for place in applied) else ()),
                    *accuracy_warnings(wanted, accuracy, calibrated=batches is not None),
                ),
            )
            if graph is not None:
                _write_part(files, graph, graph_json(named.name, lowered.etrecord.edge_dialect_program))
            _write_part(files, summary, result.as_dict())
    if accuracy.problem:
        raise ExportError(accuracy.problem, f"{accuracy.fix}; the program and this verdict are kept as {pte}")
    return result


_NOTHING_REWRITTEN = "nothing was rewritten: the program is the same as without --optimize"


def _lower_and_run(name: str, backend: str, traced: tracing.Traced) -> list[torch.Tensor]:
    with quietly():
        lowered = lower(name, {"forward": traced.program}, backend)
    with tempfile.TemporaryDirectory(prefix="sme2prof-") as folder:
        pte = Path(folder) / "again.pte"
        pte.write_bytes(lowered.program.buffer)
        made = run_program(name, pte, {"forward": traced.eager})["forward"]
        return made[lowered.written_inputs["forward"] :]


def _methods(traced: Mapping[str, tracing.Traced], lowered: Lowered) -> tuple[ExportedMethod, ...]:
    return tuple(
        ExportedMethod(
            method,
            dict(zip(each.program.graph_signature.user_inputs, described_inputs(each.eager), strict=True)),
            delegated=lowered.by_method[method].delegated,
            operators=lowered.by_method[method].operators,
            partitions=lowered.by_method[method].partitions,
        )
        for method, each in traced.items()
    )


def described_inputs(eager: tracing.Eager) -> list[str]:
    return [describe_tensor(leaf) for leaf in eager.inputs()]


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


def _check_options(
    wanted: NumberFormat, backend: str, name: str | None, calibration: object, seed: int
) -> None:
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
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _LARGEST_SEED:
        wrong = InputError if type(seed) is int else WrongTypeError
        raise wrong(f"the seed {seed} is out of range", f"give a whole number from 0 to {_LARGEST_SEED}")


def _check_writable(outdir: Path) -> None:
    """Check before the long part that a file can be written there."""
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
    vanished = precision.vanished or lowering.vanished
    if vanished:
        yield (
            "PyTorch's own outputs are almost zero on the example inputs (at most "
            f"{precision.largest:.2g}), so the program's outputs cannot be checked: use trained weights, "
            "or other inputs"
        )
    if not lowering.ok:
        far = f"outputs differ from PyTorch in {wanted.text} by {lowering.distance}"
        yield f"{far}{accuracy.where}: {accuracy.fix or 'compare with --backend portable'}"
    if not precision.ok and not accuracy.where and not vanished:
        yield (
            f"outputs in {wanted.text} differ from float32 by {precision.distance}: check the model's"
            " accuracy on real data"
            + (", and give real inputs with --calibrate" if wanted.has_ranges and not calibrated else "")
        )


def _write_part(files: contextlib.ExitStack, path: Path, content: dict[str, object]) -> None:
    part = files.enter_context(replacing(path))
    part.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
