"""Real dumps for the tests of the analysis: programs run on this machine by the kit's own runner."""

from __future__ import annotations

import functools
from pathlib import Path

from model_profiling.runner.machine import TargetKind
from model_profiling.targets import Job, Target, TargetChoice, open_target


@functools.cache
def target(kind: TargetKind) -> Target:
    opened = open_target(TargetChoice(kind))
    opened.prepare()
    return opened


def record(pte: Path, folder: Path, stem: str, *, on: TargetKind = "host", **options: object) -> Path:
    """Run `pte` with the event tracer and return its dump."""
    job = Job(model=pte, etdump=True, **options)
    etdump = target(on).execute(job, folder, stem).etdump
    assert etdump is not None
    return etdump
