"""`sme2prof models`, `onboard` and `export`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

import click

from model_profiling.cli import frame
from model_profiling.core.formatting import counts, plural
from model_profiling.core.number_formats import FORMATS, FORMATS_HELP
from model_profiling.core.stdio import shown_progress
from model_profiling.export import ExportResult, export_model
from model_profiling.export.records import BACKENDS
from model_profiling.models import list_models
from model_profiling.models.options import MARK
from model_profiling.models.registry import ModelEntry


@frame.command("models", example="sme2prof models\nsme2prof models --json", facts=True)
def models_command(as_json: bool) -> None:
    """List the models that you can name: the kit's own, and ExecuTorch's examples.

    Options follow the name: NAME@size=512. For any other PyTorch model, name its factory: file.py:factory or
    package.module:factory. To list your own model folders too, set SME2PROF_MODELS to the folder that holds
    them.
    """
    entries = list_models()
    if as_json:
        frame.facts({"schema_version": 1, "models": [asdict(entry) for entry in entries]})
        return
    width = max(len(entry.name) for entry in entries)
    entries.sort(key=lambda entry: list(_TITLES).index(entry.source))
    for source, group in groupby(entries, lambda entry: entry.source):
        frame.say(_TITLES[source])
        for entry in group:
            lines = [line for text in _described(entry) for line in textwrap.wrap(text, max(40, 96 - width))]
            for name, line in zip_longest([entry.name], lines, fillvalue=""):
                frame.say(f"  {name.ljust(width)}  {line}")


_TITLES = {"kit": "The kit's own:", "yours": "Your own:", "executorch": "ExecuTorch's examples:"}


def _described(entry: ModelEntry) -> Iterator[str]:
    """Paragraphs: what it is, its inputs and options as written after its name, and what does not work. Equal
    shapes are counted: a model may have many caches of one shape."""
    if entry.description:
        yield entry.description
    counts = [(shape, len(list(group))) for shape, group in groupby(entry.inputs or ())]
    inputs = "; ".join(f"{count} of {shape}" if count > 1 else shape for shape, count in counts)
    options = ",".join(option.shown for option in entry.options)
    yield f"inputs {inputs or 'known once loaded'}" + (f"; options {MARK}{options}" if options else "")
    for dtype in (dtype for dtype in FORMATS if dtype not in entry.dtypes):
        yield f"no {dtype}: {entry.not_supported.get(dtype, 'not registered for it')}"


@frame.command(
    "onboard",
    example="""sme2prof onboard my_model
    sme2prof onboard my_model --dir ~/models""",
    facts=True,
)
@click.argument("name")
@click.option(
    "--dir",
    "place",
    type=frame.FOLDER,
    show_default="the kit's models in a clone, else this folder",
    help="Where to make the folder.",
)
def onboard_command(name: str, place: Path | None, as_json: bool) -> int:
    """Make a folder for a new model NAME: two methods to fill in, registered and with a test.

    Nothing is overwritten. `sme2prof profile NAME --dtype all` then exports the model in every dtype it is
    registered for, compares it with PyTorch, and runs it.
    """
    from model_profiling.workflow.onboard import make_model_folder

    made = make_model_folder(name, place)
    if as_json:
        frame.facts({"schema_version": 1, **asdict(made)})
        return 0
    frame.say(f"made {made.folder}: {', '.join(made.files)}")
    frame.say("\n  ".join(("next, after you replaced the marked parts (Replace:):", *made.next)))
    return 0


@frame.command(
    "export",
    example="""sme2prof export mobilenet_v3_small --dtype fp16
    sme2prof export my_model.py:make --dtype int8 --calibrate my_data.py:batches
    sme2prof export my_model.py:make --dtype fp16 --keep head=fp32""",
    facts=True,
)
@click.argument("model")
@click.option("--dtype", default="fp32", show_default=True, help=f"Number format: {FORMATS_HELP}.")
@frame.keep_option
@frame.calibrate_option
@frame.optimize_option
@click.option(
    "--backend", type=click.Choice(BACKENDS), default="xnnpack", show_default=True, help="What runs it."
)
@click.option(
    "--outdir",
    type=frame.FOLDER,
    show_default="out_MODEL/artifacts",
    help="Folder for the files themselves (that of `profile` gets artifacts/ and runs/).",
)
@click.option("--name", show_default="the model's name", help="Name for the files.")
@click.option("--seed", default=0, show_default=True, help="Seed for weights and example inputs.")
@click.option(
    "--by-layer",
    is_flag=True,
    help="Also compare each layer with fp32; export and time it with the worst in fp32. Takes a few exports.",
)
@click.option("--save-graph", is_flag=True, help="Also write the operators as graph.json.")
def export_command(
    *,
    model: str,
    as_json: bool,
    **settings: Any,  # parameters of export_model, typed by click
) -> int:
    """Export MODEL to a .pte program, run it once, and compare it with PyTorch.

    MODEL is a name from `sme2prof models`, file.py:factory or package.module:factory for any nn.Module, or
    the folder of a transformers language model (config.json; its weights, or random ones), with options as
    in FOLDER@layers=2.

    Exits with 1 if the program's outputs differ from PyTorch's in the same dtype by more than rounding. To
    export and measure in one step, use `sme2prof profile`.
    """
    with shown_progress():
        result = export_model(model, **settings, verbose=frame.debugging())
        kept = None
        if settings["by_layer"]:
            from model_profiling.workflow.compare_programs import compare_kept

            kept = compare_kept(model, result, settings)
    if as_json:
        speedup = {"kept_speedup": asdict(kept.series[0].end_to_end)} if kept else {}
        frame.facts(result.as_dict() | {"folder": str(result.pte.parent)} | speedup)
    else:
        print_result(result)
        if kept:
            from model_profiling.report.breakdown import speedup_text
            from model_profiling.report.comparison import about_arm

            faster = speedup_text(kept.series[0].end_to_end, " as fast on this machine")
            frame.say(f"  layers     Kept so, the program is {faster}{about_arm(kept)}.")
    for warning in result.warnings:
        frame.warn(warning)
    return 0 if result.accuracy.ok else 1


def print_result(result: ExportResult) -> None:
    coverage, accuracy = result.coverage, result.accuracy
    frame.say(f"{result.pte}  ({result.size_bytes / 1e6:.1f} MB, {result.seconds:.0f} s)")
    if result.rewrites:
        frame.say(f"  rewritten  {counts(result.rewritten)}")
    if len(result.methods) < 2:
        frame.say(f"  inputs     {'; '.join(result.inputs)}")
    for method in result.methods if len(result.methods) > 1 else ():
        inputs = ", ".join(f"{name} {shape}" for name, shape in method.inputs.items())
        delegated = f"{method.delegated} of {method.operators} operators delegated"
        parts = plural(method.partitions, "partition")
        frame.say(f"  method     {method.name}: {inputs}; {delegated} in {parts}")
    frame.say(
        f"  delegated  {coverage.delegated} of {coverage.operators} operators in"
        f" {plural(coverage.partitions, 'partition')};"
        f" {coverage.inserted_transposes} layout transposes inserted"
    )
    for group in coverage.outside:
        frame.say("\n             ".join([f"  outside    {group.text}", *group.details]))
    references = {f"PyTorch in {result.dtype}": accuracy.lowering}
    if result.dtype != "fp32":
        references["PyTorch in float32"] = accuracy.precision
    for reference, parity in references.items():
        if parity is not None:
            verdict = "not judged" if parity.ok and parity.vanished else parity.verdict
            frame.say(
                f"  outputs    {verdict} against {reference}:"
                f" {parity.max_rel:.2g} of their range"
                f" (accepted {parity.tolerance:g}){f'; {parity.remarks}' if parity.remarks else ''}"
            )
    if accuracy.layers is not None and accuracy.layers.layers:
        from model_profiling.report.costs import noise_sentences

        for sentence in noise_sentences(accuracy.layers):
            frame.say(f"  layers     {sentence}")
