"""Put the kit's runner where configs of the earlier kit expect ExecuTorch's executor_runner.

example:
  bash model_profiling/scripts/build_runners.sh
"""

from __future__ import annotations

import argparse
import platform
import shlex
import sys
from pathlib import Path

from model_profiling.compat import ArgumentParser
from model_profiling.config.reading import RECORD, build_record
from model_profiling.config.settings import BUILTIN
from model_profiling.core import files
from model_profiling.core.stdio import checked_output
from model_profiling.runner.__main__ import run_program, say, tell
from model_profiling.runner.features import is_arm

PRESETS = tuple(
    platform + sme2 + log
    for platform in ("mac-arm64", "linux-arm64", "android-arm64-v9a")
    for sme2 in ("", "-sme2-off")
    for log in ("", "-xnnlog")
)
_KIT = Path(__file__).resolve().parents[2]
_PROGRAM = """\
#!/bin/sh
# {preset}: the kit's own runner, with the flags of ExecuTorch's executor_runner. Written by build_runners.sh.
PYTHONPATH={kit}${{PYTHONPATH:+:$PYTHONPATH}} exec {python} -m model_profiling.compat.stand_in {preset} "$@"
"""
_WRITTEN = """\
Nothing was built: each is a small program over the kit's own runner, which switches SME2 at run time. A
config that names one of them uses the kit's runner. To build ExecuTorch's own: --from-source in a clone."""


@checked_output
def main(argv: list[str] | None = None) -> int:
    parser = ArgumentParser(
        prog="build_runners.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = "the folder in which they are put (default: %(default)s)"
    parser.add_argument("--executorch", type=Path, default=Path("executorch"), help=what)
    folder: Path = parser.parse_args(argv).executorch
    return run_program(lambda: _write_programs(folder))


def _write_programs(folder: Path) -> int:
    """For all machines: a config may have been written for another than this one."""
    for preset in PRESETS:
        program = folder / "cmake-out" / preset / "executor_runner"
        if program.exists() and build_record(program).get("runner") != BUILTIN:
            continue  # built from source
        words = {"kit": shlex.quote(str(_KIT)), "python": shlex.quote(sys.executable), "preset": preset}
        files.write_text(program, _PROGRAM.format(**words))
        program.chmod(0o755)
        traced = preset.endswith("-xnnlog")
        record = {"schema_version": 1, "preset": preset, "xnnlog": traced, "runner": BUILTIN}
        files.write_json(program.with_name(RECORD), record)
        tell(f"{program}: the kit's runner")
    say(_WRITTEN)
    if not is_arm(platform.machine()):
        say(f"This machine ({platform.machine()}) is not Arm: they are emulated, and no time is measured.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
