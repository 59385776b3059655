"""`sme2prof validate`."""

from __future__ import annotations

from pathlib import Path

import click

from model_profiling.cli import frame
from model_profiling.cli.progress import shown_progress
from model_profiling.validation.validate import validate


@frame.command("validate", example="sme2prof validate out_toy_cnn/runs/xnnpack_fp16/linux", facts=True)
@click.argument("run_dir", type=frame.PATH)
def command(run_dir: Path, as_json: bool) -> int:
    """Check that RUN_DIR holds what it promises and that it makes sense, each line with its cure.

    Dumps are read, added up and counted, statistics computed again, experiments checked to be of one
    program, outputs compared. Exits with 1 when something does not hold.
    """
    with shown_progress() as progress:
        validation = validate(run_dir, progress=progress)
    if as_json:
        frame.facts(validation.as_dict())
    else:
        frame.say(validation.as_text())
    return 0 if validation.ok else 1
