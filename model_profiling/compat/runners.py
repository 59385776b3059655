"""Puts the kit's runner where configs of the earlier kit expect ExecuTorch's executor_runner: small programs
that take its flags and call `python -m model_profiling.compat.runners PRESET --model_path=...`.

example:
  bash model_profiling/scripts/build_runners.sh
"""

from __future__ import annotations

import argparse
import platform
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from model_profiling.compat import ArgumentParser
from model_profiling.config.reading import RECORD, build_record
from model_profiling.core import files
from model_profiling.core.errors import InputError
from model_profiling.core.formatting import printable
from model_profiling.core.stdio import checked_output
from model_profiling.runner.__main__ import run_program, say, tell
from model_profiling.runner.features import is_arm
from model_profiling.runner.machine import TargetChoice
from model_profiling.targets import Job, Outcome, open_target

PRESETS = tuple(
    system + sme2 + log
    for system in ("mac-arm64", "linux-arm64", "android-arm64-v9a")
    for sme2 in ("", "-sme2-off")
    for log in ("", "-xnnlog")
)
_KIT = Path(__file__).resolve().parents[2]
_PROGRAM = """\
#!/bin/sh
# {preset}: the kit's own runner, with the flags of ExecuTorch's executor_runner. Written by build_runners.sh.
PYTHONPATH={kit}${{PYTHONPATH:+:$PYTHONPATH}} exec {python} -m model_profiling.compat.runners {preset} "$@"
"""
_WRITTEN = """\
Nothing was built: each is a small program over the kit's own runner, which switches SME2 at run time. A
config that names one of them uses the kit's runner."""


@checked_output
def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    if words and words[0] in PRESETS:
        options = _runner_parser().parse_args(words)
        return run_program(lambda: _run(options))
    parser = ArgumentParser(
        prog="build_runners.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--executorch", type=Path, default=Path("executorch"), help="where they are put")
    folder: Path = parser.parse_args(words).executorch
    return run_program(lambda: _write_programs(folder), "stopped; run the same command again to continue")


def _write_programs(folder: Path) -> int:
    """For all machines: a config may have been written for another than this one."""
    for preset in PRESETS:
        program = folder / "cmake-out" / preset / "executor_runner"
        if program.exists() and build_record(program).get("runner") != "builtin":
            continue  # built by the user
        words = {"kit": shlex.quote(str(_KIT)), "python": shlex.quote(sys.executable), "preset": preset}
        files.write_text(program, _PROGRAM.format(**words))
        program.chmod(0o755)
        traced = preset.endswith("-xnnlog")
        record = {"schema_version": 1, "preset": preset, "xnnlog": traced, "runner": "builtin"}
        files.write_json(program.with_name(RECORD), record)
        tell(f"{program}: the kit's runner")
    say(_WRITTEN)
    if not is_arm(platform.machine()):
        say(f"This machine ({platform.machine()}) is not Arm: they are emulated, and no time is measured.")
    return 0


def _run(options: argparse.Namespace) -> int:
    preset, traced = options.preset, options.preset.endswith("-xnnlog")
    if preset.startswith("android"):
        raise InputError(
            f"{preset} runs on a phone only",
            "name it in a config, and run that with android_pipeline.py",
        )
    if not options.model_path.is_file():
        raise InputError(f"there is no program {options.model_path}", "correct --model_path")
    target = open_target(TargetChoice())
    target.prepare()
    job = Job(
        model=options.model_path.resolve(),
        method=options.method_name,
        threads=max(options.cpu_threads, 1),
        warmup=0,
        runs=options.num_executions,
        disable=("sme2",) if "-sme2-off" in preset else (),
        inputs=tuple(Path(path).resolve() for path in options.inputs.split(",") if path),
        fill="ones",  # as executor_runner fills inputs
        etdump=options.etdump_path is not None,
        kernels=traced,
    )
    with tempfile.TemporaryDirectory(prefix="sme2prof-runner-") as folder:
        outcome = target.execute(job, Path(folder), "process")
        if options.etdump_path is not None and outcome.etdump is not None:
            shutil.copyfile(outcome.etdump, options.etdump_path)
    sys.stdout.write(printable("\n".join(_lines(outcome, traced))) + "\n")
    return 0


def _lines(outcome: Outcome, traced: bool) -> list[str]:
    times = [ns / 1e6 for ns in outcome.result.iterations_ns]
    if traced:
        kernels = [f"kernel {name}: {calls} calls" for name, calls in outcome.kernels.items()]
        return [*kernels, f"Model executed successfully {len(times)} time(s); kernels were counted: no times"]
    if not outcome.timings_are_latency:
        return [f"Model executed successfully {len(times)} time(s) under emulation: no times"]
    lines = [f"Iteration {number} of {len(times)}: {ms:f} ms" for number, ms in enumerate(times, 1)]
    return [*lines, f"Model executed successfully {len(times)} time(s) in {sum(times):f} ms."]


def _runner_parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(prog="executor_runner", description="The kit's runner as ExecuTorch's own.")
    parser.add_argument("preset", help=argparse.SUPPRESS)
    parser.add_argument("--model_path", type=Path, default=Path("model.pte"), help="default: %(default)s")
    parser.add_argument("--method_name", default="forward", help="default: %(default)s")
    parser.add_argument("--num_executions", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--cpu_threads", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--inputs", default="", help="files with raw tensors, separated by commas")
    parser.add_argument("--etdump_path", type=Path, help="where to write the ETDump")
    parser.add_argument("--print_output", default="none", choices=("none",), help="outputs are not printed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
