"""Puts the kit's own runner where configs of the earlier kit expect ExecuTorch's executor_runner."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from model_profiling.core import files
from model_profiling.core.errors import ProfilingError
from model_profiling.core.records import JsonObject, read_json_object
from model_profiling.runner.source_build.presets import RunnerPreset

RECORD = "runner_build.json"
"""Beside every runner: how it was built, or that it is the kit's own."""
_KIT = Path(__file__).resolve().parents[3]
_SCRIPT = """\
#!/bin/sh
# {preset}: the kit's own runner, with the flags of ExecuTorch's executor_runner. Written by build_runners.sh.
PYTHONPATH={kit}${{PYTHONPATH:+:$PYTHONPATH}} exec {python} -m model_profiling.targets.stand_in {preset} "$@"
"""


def write_stand_ins(checkout: Path, presets: Sequence[RunnerPreset]) -> list[Path]:
    """Write a small program for each of `presets` into `checkout`; leave runners that were built there."""
    written = []
    for preset in presets:
        program = checkout / "cmake-out" / preset.name / "executor_runner"
        record = program.with_name(RECORD)
        if program.exists() and not is_stand_in(program):
            continue
        files.make_folder(program.parent)
        words = {"kit": shlex.quote(str(_KIT)), "python": shlex.quote(sys.executable), "preset": preset.name}
        files.write_text(program, _SCRIPT.format(**words))
        program.chmod(0o755)
        files.write_json(
            record, {"schema_version": 1, "preset": preset.name, "xnnlog": preset.xnnlog, "runner": "builtin"}
        )
        written.append(program)
    return written


def is_stand_in(program: Path) -> bool:
    """Whether `program` is the kit's own runner under another name."""
    return build_record(program).get("runner") == "builtin"


def build_record(program: Path) -> JsonObject:
    """Return what is known about the build of `program`; nothing if there is no record of it."""
    try:
        return read_json_object(program.with_name(RECORD), "")
    except ProfilingError:
        return {}
