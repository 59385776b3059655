"""What ten times as much in a run directory costs: ten times the series, dumps, events in each dump, or runs.

    python bench/growth.py [--series 10] [--runs 10] [--times 3] [--only series] [--json FILE]

The directories are made of a recorded run (`grown_runs.py`), so nothing is measured and any machine will do.
Each command runs in a fresh process, first on the small directory, so that importing is over, then on the one
that is timed. The promise is judged by processor time, which neighbours on the machine do not stretch, the
least of several; memory is the peak of the process. Exits with 1 when a promise is not kept.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from grown_runs import base_run, with_dumps, with_events, with_runs, with_series

from model_profiling.config import names
from model_profiling.core import files, process

ROOT = Path(__file__).resolve().parents[1]
TIMES_MORE = 10
AT_MOST = 12.0
AT_MOST_MB = 1000

COMMAND = """
import contextlib, io, json, os, pathlib, resource, sys
from model_profiling.cli.main import main

def peak():
    status = pathlib.Path("/proc/self/status")  # getrusage also counts what the parent had when it forked
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

warm, timed = json.loads(sys.argv[1])
with contextlib.redirect_stdout(io.StringIO()):
    main(warm)
    began = sum(os.times()[:4])
    code = main(timed)
print(json.dumps({
    "cpu": sum(os.times()[:4]) - began, "code": code, "peak": peak(),
}))
"""


@dataclass(frozen=True, slots=True)
class Growth:
    """What a command costs on a directory and on one with ten times as much of something."""

    what: str
    command: str
    cpu: float
    cpu_grown: float
    peak_mb: float
    peak_mb_grown: float

    @property
    def ratio(self) -> float:
        return self.cpu_grown / self.cpu

    @property
    def kept(self) -> bool:
        return self.ratio <= AT_MOST and self.peak_mb_grown <= AT_MOST_MB


Words = Callable[[Path], list[str]]
OF_A_RUN: dict[str, Words] = {
    "run --analysis-only": lambda place: ["run", str(place / names.CONFIG), "--analysis-only", "--quiet"],
    "analyze": lambda place: ["analyze", "--quiet", str(place)],
    "report": lambda place: ["report", str(place)],
    "validate": lambda place: ["validate", str(place)],
    "compare": lambda place: ["compare", str(place), str(place), "--json"],
}
OF_RUNS: dict[str, Words] = {"view": lambda place: ["view", str(place), "--no-browser"]}


def cost(words: Words, warm: Path, place: Path, times: int) -> tuple[float, float]:
    """Seconds of processor time, the least of several, and the peak of memory in MB."""
    asked = json.dumps([words(warm), words(place)])
    found = []
    for _ in range(times):
        done = process.run([sys.executable, "-c", COMMAND, asked], timeout=3600, cwd=ROOT)
        told = json.loads(done.stdout.strip().splitlines()[-1]) if done.ok else {"code": 2}
        if told["code"]:
            sys.exit(f"{asked}: {done.tail(20)}")
        found.append(told)
    return min(each["cpu"] for each in found), max(each["peak"] for each in found) / 2**20


def grown(what: str, commands: dict[str, Words], place: Path, more: Path, times: int) -> Iterator[Growth]:
    for command, words in commands.items():
        before, after = (cost(words, place, each, times) for each in (place, more))
        found = Growth(what, command, before[0], after[0], before[1], after[1])
        print(
            f"{what:24}{command:22}{found.cpu:8.2f} s{found.cpu_grown:8.2f} s{found.ratio:7.1f} times"
            f"{found.peak_mb:7.0f} MB{found.peak_mb_grown:7.0f} MB{'' if found.kept else '  NOT KEPT'}",
            flush=True,
        )
        yield found


def measure(folder: Path, series: int, runs: int, times: int, only: str | None) -> Iterator[Growth]:
    base = base_run(folder / "base", series)
    if only in (None, "series"):
        more = with_series(base, folder / "series", TIMES_MORE)
        yield from grown(f"{series} series", OF_A_RUN, base, more, times)
        shutil.rmtree(more)
    if only in (None, "dumps"):
        more = with_dumps(base, folder / "dumps", TIMES_MORE)
        yield from grown(f"dumps of {series} series", OF_A_RUN, base, more, times)
        shutil.rmtree(more)
    if only in (None, "events"):
        more = with_events(base, folder / "events", TIMES_MORE)
        commands = {name: words for name, words in OF_A_RUN.items() if name != "run --analysis-only"}
        yield from grown(f"events of {series} series", commands, base, more, times)
        shutil.rmtree(more)
    if only in (None, "runs"):
        few = with_runs(base, folder / "few_runs", runs)
        many = with_runs(base, folder / "many_runs", runs * TIMES_MORE)
        yield from grown(f"{runs} runs", OF_RUNS, few, many, times)
        shutil.rmtree(many)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--series", type=int, default=10, help="series of the small directory")
    parser.add_argument("--runs", type=int, default=10, help="runs of the small folder")
    parser.add_argument("--times", type=int, default=3, help="how often each command is run")
    parser.add_argument("--only", choices=("series", "dumps", "events", "runs"), help="what grows; all of it")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    heads = f"{'CPU':>10}{'of 10x':>10}{'ratio':>13}{'peak':>10}{'of 10x':>10}"
    print(f"{'what there is of':24}{'command':22}{heads}")
    with tempfile.TemporaryDirectory() as name:
        found = list(measure(Path(name), options.series, options.runs, options.times, options.only))
    if options.json:
        files.write_json(options.json, {"schema_version": 1, "grown": [asdict(each) for each in found]})
    print(f"promised: {TIMES_MORE} times as much takes at most {AT_MOST:g} times as long, {AT_MOST_MB} MB")
    kept = all(each.kept for each in found)
    print("promises kept" if kept else "PROMISES NOT KEPT")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
