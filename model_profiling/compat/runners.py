"""Lets configs of the earlier kit run unchanged: puts files where they expect executor_runners of ExecuTorch,
and the kit's own runner measures in their place.

example:
  bash model_profiling/scripts/build_runners.sh
"""

from __future__ import annotations

import argparse
import platform
import sys
from pathlib import Path

from model_profiling.compat import ArgumentParser
from model_profiling.config.reading import RECORD, build_record
from model_profiling.core import files
from model_profiling.core.stdio import checked_output
from model_profiling.runner.__main__ import run_program, say, tell
from model_profiling.runner.features import is_arm

PRESETS = tuple(
    system + sme2 + log
    for system in ("mac-arm64", "linux-arm64", "android-arm64-v9a")
    for sme2 in ("", "-sme2-off")
    for log in ("", "-xnnlog")
)
_PROGRAM = """\
#!/bin/sh
# {preset}. Written by build_runners.sh.
echo "error: this file stands for the kit's own runner in a config; run sme2prof profile MODEL.pte" >&2
exit 2
"""
_WRITTEN = """\
Nothing was built: the kit's own runner, which switches SME2 at run time, measures for a config that names one
of these files."""


@checked_output
def main(argv: list[str] | None = None) -> int:
    parser = ArgumentParser(
        prog="build_runners.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--executorch", type=Path, default=Path("executorch"), help="where they are put")
    folder: Path = parser.parse_args(argv).executorch
    return run_program(lambda: _write_programs(folder), "stopped; run the same command again to continue")


def _write_programs(folder: Path) -> int:
    """For all machines: a config may have been written for another than this one."""
    for preset in PRESETS:
        program = folder / "cmake-out" / preset / "executor_runner"
        if program.exists() and build_record(program).get("runner") != "builtin":
            continue  # built by the user
        files.write_text(program, _PROGRAM.format(preset=preset))
        program.chmod(0o755)
        traced = preset.endswith("-xnnlog")
        record = {"schema_version": 1, "preset": preset, "xnnlog": traced, "runner": "builtin"}
        files.write_json(program.with_name(RECORD), record)
        tell(f"{program}: the kit's runner")
    say(_WRITTEN)
    if not is_arm(platform.machine()):
        say(f"This machine ({platform.machine()}) is not Arm: they are emulated, and no time is measured.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
