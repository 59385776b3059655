"""Runs a program as ExecuTorch's executor_runner would, with the kit's own runner: the programs that
`build_runners.sh` writes call `python -m model_profiling.compat.stand_in PRESET --model_path=...`."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from model_profiling.compat import ArgumentParser
from model_profiling.core.errors import InputError
from model_profiling.core.formatting import printable
from model_profiling.core.stdio import checked_output
from model_profiling.runner.__main__ import run_program
from model_profiling.runner.machine import TargetChoice
from model_profiling.runner.result import RunnerResult
from model_profiling.targets import Job, open_target


@checked_output
def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    return run_program(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    preset, traced = options.preset, options.preset.endswith("-xnnlog")
    if preset.startswith("android"):
        raise InputError(
            f"{preset} runs on a phone only", "name it in a config, and run that with android_pipeline.py"
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
    with tempfile.TemporaryDirectory(prefix="sme2prof-stand-in-") as folder:
        outcome = target.execute(job, Path(folder), "process")
        if options.etdump_path is not None and outcome.etdump is not None:
            shutil.copyfile(outcome.etdump, options.etdump_path)
    lines = _lines(outcome.result, traced=traced, are_latencies=target.timings_are_latency)
    sys.stdout.write(printable("\n".join(lines)) + "\n")
    return 0


def _lines(result: RunnerResult, *, traced: bool, are_latencies: bool) -> list[str]:
    times = [ns / 1e6 for ns in result.iterations_ns]
    if traced:
        kernels = [f"kernel {name}: {calls} calls" for name, calls in result.kernels.items()]
        return [*kernels, f"Model executed successfully {len(times)} time(s); kernels were counted: no times"]
    if not are_latencies:
        return [f"Model executed successfully {len(times)} time(s) under emulation: no times"]
    lines = [f"Iteration {number} of {len(times)}: {ms:f} ms" for number, ms in enumerate(times, 1)]
    return [*lines, f"Model executed successfully {len(times)} time(s) in {sum(times):f} ms."]


def _parser() -> argparse.ArgumentParser:
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
