"""`sme2prof export`."""

from __future__ import annotations

from typing import Any

import click

from model_profiling.cli import frame
from model_profiling.cli.progress import shown_progress
from model_profiling.core.formatting import plural
from model_profiling.export import ExportResult, export_model
from model_profiling.export.lowering import BACKENDS
from model_profiling.models.registry import DTYPES
from model_profiling.program.graph_file import described


@frame.command(
    "export",
    example="""sme2prof export mobilenet_v3_small --dtype fp16
    sme2prof export my_model.py:make --dtype int8 --calibration my_data.py:batches""",
    facts=True,
)
@click.argument("model")
@click.option("--dtype", type=click.Choice(DTYPES), default="fp32", show_default=True, help="Number format.")
@click.option(
    "--backend", type=click.Choice(BACKENDS), default="xnnpack", show_default=True, help="Where it runs."
)
@click.option("--outdir", type=frame.FOLDER, help="Folder to write to [default: out_MODEL/artifacts].")
@click.option("--name", help="Name for the files, instead of the model's own.")
@click.option(
    "--calibration", metavar="REF", help="file.py:function that yields inputs to calibrate int8 on."
)
@click.option("--seed", default=0, show_default=True, help="Seed for weights and example inputs.")
@click.option("--save-graph", is_flag=True, help="Also write the operators as graph.json.")
def export_command(
    *,
    model: str,
    as_json: bool,
    **asked: Any,  # parameters of export_model, typed by click
) -> int:
    """Export MODEL to a .pte program, run it once, and compare it with PyTorch.

    MODEL is a name from `sme2prof models`, or file.py:factory or package.module:factory for any nn.Module.
    Exits with 1 when the program's outputs differ from PyTorch's in the same dtype by more than rounding.
    """
    frame.warn_of_skipped_models(model)
    with shown_progress() as progress:
        result = export_model(model, **asked, progress=progress, verbose=frame.debugging())
    if as_json:
        frame.facts(result.as_dict() | {"folder": str(result.pte.parent)})
    else:
        print_result(result)
    for warning in result.warnings:
        frame.warn(warning)
    return 0 if result.accuracy.ok else 1


def print_result(result: ExportResult) -> None:
    coverage, accuracy = result.coverage, result.accuracy
    frame.say(f"{result.pte}  ({result.size_bytes / 1e6:.1f} MB, {result.seconds:.0f} s)")
    frame.say(f"  inputs     {'; '.join(result.inputs)}")
    frame.say(
        f"  delegated  {coverage.delegated} of {coverage.operators} operators in"
        f" {plural(coverage.partitions, 'partition')};"
        f" {coverage.inserted_transposes} layout transposes inserted"
    )
    for text, details in described(coverage.outside):
        frame.say(f"  outside    {text}")
        for line in details:
            frame.say(f"             {line}")
    compared = [(accuracy.lowering, f"PyTorch in {result.dtype}"), (accuracy.precision, "PyTorch in float32")]
    for found, against in compared if result.dtype != "fp32" else compared[:1]:
        if found is not None:
            verdict, _, more = found.text.partition("; ")
            frame.say(
                f"  outputs    {verdict} against {against}: {found.max_rel:.2g} of their range"
                f" (accepted {found.tolerance:g}), cosine {found.cosine:.6f}{f'; {more}' if more else ''}"
            )
