"""`sme2prof bundle`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from model_profiling.cli import frame
from model_profiling.cli.progress import shown_progress
from model_profiling.core import files
from model_profiling.core.formatting import plural
from model_profiling.workflow.bundle import Bundle, write_bundle
from model_profiling.workflow.scrubbed_copy import ShareOptions

if TYPE_CHECKING:
    from model_profiling.report.scrubbing import Replaced


# What `report --share` and `bundle` have in common: options, and how they tell what was taken out.


def scrub_options(function: frame.Function) -> frame.Function:
    """`--rename` and `--keep`."""
    rename = click.option(
        "--rename", metavar="NAME", help="Call the model NAME in the copy [default: its name stays]."
    )
    keep = click.option(
        "--keep", multiple=True, metavar="WORD", help="Not private, though it looks so; repeatable."
    )
    return rename(keep(function))


def say_replaced(replaced: Sequence[Replaced]) -> None:
    """What was taken out, with the originals: the person at this terminal is the one to check it."""
    from model_profiling.report.scrubbing import left_out_lines

    rows = [(found.placeholder, found.kind, found.original) for found in replaced if found.placeholder]
    if rows:
        frame.table(("placeholder", "kind", "replaced"), rows)
    for line in left_out_lines(replaced):
        frame.say(f"left out: {line}")
    if not replaced:
        frame.say("nothing had to be replaced")


@frame.command(
    "bundle",
    example="""sme2prof bundle out_toy_cnn/runs/xnnpack_fp16/linux
    sme2prof bundle out_toy_cnn/runs/xnnpack_fp16/linux --out for_the_issue.zip --rename some_model""",
    facts=True,
)
@click.argument("run_dir", metavar="RUN_DIR", type=frame.PATH)
@click.option("--out", type=frame.FILE, help="File to write [default: MODEL_PLATFORM_bundle.zip].")
@click.option("--with-program", is_flag=True, help="Pack the .pte too, with the model's weights.")
@scrub_options
def command(*, run_dir: Path, out: Path | None, with_program: bool, as_json: bool, **scrubbing: Any) -> None:
    """Pack the run in RUN_DIR for a bug report, and show what is in it and what was taken out.

    Paths, names of people and machines, serials and source text are replaced in every file, the same thing by
    the same placeholder; what is written is checked. Unpacked, it is a run directory with the same figures.
    """
    with shown_progress() as progress:
        progress.stage("packing")
        options = ShareOptions(**scrubbing)
        bundle = write_bundle(run_dir, out, options=options, with_program=with_program, progress=progress)
    if not as_json:
        _say(bundle)
        return
    frame.facts(
        {
            "schema_version": 1,
            "bundle": str(bundle.path),
            "files": list(map(asdict, bundle.files)),
            "left_out": [{"file": name, "why": why} for name, why in bundle.left_out],
            "replaced": list(map(asdict, bundle.replaced)),
        }
    )


def _say(bundle: Bundle) -> None:
    kinds: dict[tuple[str, str], list[int]] = {}
    for found in bundle.files:
        ending = Path(found.name).suffix
        # One line for each file at the top, one for each kind of those below.
        name = found.name if "/" not in found.name else f"*/*{ending}"
        kinds.setdefault((name, found.what), []).append(found.bytes)
    rows = [(str(len(sizes)), f"{sum(sizes):,}", name, what) for (name, what), sizes in kinds.items()]
    frame.table(("files", "bytes", "name", "holds"), rows)
    for name, why in bundle.left_out:
        frame.say(f"left out: {name} ({why})")
    say_replaced(bundle.replaced)
    size = "" if files.is_stream(bundle.path) else f", {bundle.path.stat().st_size:,} bytes"
    frame.say_wrote(bundle.path, f": {plural(len(bundle.files), 'file')}{size}")
