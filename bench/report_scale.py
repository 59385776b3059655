"""What a report costs where a run directory holds ten times as many runs: time, memory, size of the page.

    python bench/report_scale.py [--pte FILE] [--runs 1000] [--longest 10000] [--json FILE]

Two run directories are measured here, both with one program against itself: one with `--runs` inferences of
each side with the tracer and as many without it, one with `--longest`. A launch has at most a
hundred turns, so dumps stay short and the journal grows. Then `sme2prof report` makes the report of each in
fresh processes, from the dumps to report.md, its pictures and report.html. The promise is judged by processor
time, which neighbours on the machine do not stretch; the time by the clock stands beside it. Memory is the
peak of the whole process. Exits with 1 when a promise is not kept.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from pathlib import Path

from model_profiling.config.reading import parse_config
from model_profiling.core import files, process
from model_profiling.runs import Run
from model_profiling.workflow.measure import run_config

ROOT = Path(__file__).resolve().parents[1]
SMALL = ROOT / "tests" / "data" / "runs" / "programs" / "small_cnn_xnnpack_fp16.pte"

AT_MOST_SLOWER = 3.0
AT_MOST_MB = 1000
AT_MOST_PAGE = 2.5e6

LAUNCH = 100 * 7
"""Inferences of one launch that count, at most."""
FEWEST_LAUNCHES = 6

REPORT = """
import json, os, resource, sys, time
from model_profiling.cli.main import main
began, worked = time.perf_counter(), sum(os.times()[:4])
code = main(["report", sys.argv[1]])
seconds, cpu = time.perf_counter() - began, sum(os.times()[:4]) - worked
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": seconds, "cpu": cpu, "peak": peak, "code": code}))
"""


def make_run(pte: Path, runs: int, folder: Path) -> Path:
    """Measure about as many inferences of each side."""
    rounds = max(FEWEST_LAUNCHES, math.ceil(runs / LAUNCH))
    raw: dict[str, object] = {
        "model": str(pte.resolve()),
        "output_root": str(folder),
        "target": {"name": "host"},
        "experiments": [
            {"name": name, "runs": math.ceil(runs / rounds), "warmup": 1, "threads": [1]}
            for name in ("first", "second")
        ],
        "schedule": {"rounds": rounds, "precision": 1e-6, "budget_s": 3600, "seed": 1},
        "analysis": {
            "compare_pairs": [
                {
                    "baseline": {"experiment": "first", "threads": 1},
                    "candidate": {"experiment": "second", "threads": 1},
                    "label": "the same twice",
                }
            ]
        },
    }
    outcome = run_config(parse_config(raw, folder=folder.parent))
    if outcome.failed:
        sys.exit(outcome.failed[0].problem or "a run failed")
    return outcome.run_dir


def measure(run_dir: Path) -> dict[str, float]:
    """Make the report of `run_dir` in a process of its own; its figures, and that process' time."""
    began = time.perf_counter()
    done = process.run([sys.executable, "-c", REPORT, run_dir], timeout=1800, cwd=ROOT)
    wall = time.perf_counter() - began
    report: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1]) if done.ok else {"code": 1}
    if report["code"]:
        sys.exit(done.tail(20))
    # Linux counts in kilobytes, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    page = (run_dir / "report.html").stat().st_size
    return {**report, "process_seconds": wall, "peak_mb": report["peak"] * unit / 2**20, "page": page}


def middle(run_dir: Path, times: int) -> dict[str, float]:
    """The middle one of several measurements, by processor time."""
    reports = sorted((measure(run_dir) for _ in range(times)), key=lambda report: report["cpu"])
    return reports[len(reports) // 2]


def counts(run_dir: Path) -> tuple[int, int]:
    """How many traced inferences and how many without the tracer each side has."""
    metrics = Run.open(run_dir).metrics
    latency = metrics.latencies[0] if metrics else None
    if latency is None or latency.traced_ms is None or latency.end_to_end_ms is None:
        sys.exit(f"{run_dir} has no latencies")
    return latency.traced_ms.count, latency.end_to_end_ms.count


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pte", type=Path, default=SMALL, help="a program; a small network when not given")
    parser.add_argument("--runs", type=int, default=1000, help="runs in the shorter directory")
    parser.add_argument("--longest", type=int, default=10_000, help="runs in the longer one")
    parser.add_argument("--times", type=int, default=3, help="how often each report is made")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as name:
        for runs in (options.runs, options.longest):
            run_dir = make_run(options.pte, runs, Path(name) / f"runs_{runs}")
            found.append((*counts(run_dir), middle(run_dir, options.times)))

    print(f"reports of {options.pte.name}, runs of each of two sides")
    print(f"{'traced':>8}{'untraced':>10}{'processor':>11}{'clock':>9}{'process':>9}{'peak':>9}{'page':>9}")
    for traced, untraced, report in found:
        cpu, clock, whole = report["cpu"], report["seconds"], report["process_seconds"]
        peak, page = report["peak_mb"], report["page"] / 1e6
        print(f"{traced:8}{untraced:10}{cpu:9.2f} s{clock:7.2f} s{whole:7.2f} s{peak:6.0f} MB{page:6.2f} MB")
    (*_, short), (*_, long) = found
    slower, memory = long["cpu"] / short["cpu"], long["peak_mb"] / short["peak_mb"]
    print(f"{slower:.2f} times the processor time (promised: at most {AT_MOST_SLOWER:g})")
    print(f"{memory:.2f} times the memory, {long['peak_mb']:.0f} MB (promised: at most {AT_MOST_MB} MB)")
    print(f"the page has {long['page'] / 1e6:.2f} MB (promised: at most {AT_MOST_PAGE / 1e6:g})")
    if options.json:
        files.write_json(
            options.json,
            {
                "schema_version": 1,
                "reports": [
                    {"traced": traced, "untraced": other, **report} for traced, other, report in found
                ],
                "times_slower": slower,
                "memory_ratio": memory,
            },
        )
    kept = slower <= AT_MOST_SLOWER and long["peak_mb"] <= AT_MOST_MB and long["page"] <= AT_MOST_PAGE
    print("promises kept" if kept else "PROMISES NOT KEPT")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
