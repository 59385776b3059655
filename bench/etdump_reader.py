"""Our ETDump reader against ExecuTorch's Inspector: time, memory, and growth up to 10,000 runs.

    python bench/etdump_reader.py [--runs 1000] [--longest 10000] [--pte FILE] [--json FILE]

Both read the same dump of MobileNetV3-small, each in fresh processes. The claim is about reading: the time
from the path to the finished table (Inspector: its constructor; ours: `read_etdump`), imports not counted.
Both work in one thread, so the promise is judged by processor time (Inspector's includes the schema compiler
it starts), which neighbours on the machine do not stretch; the time by the clock, and that of the whole
process with interpreter start and imports, are printed beside it. Memory is the peak of the
whole process. Exits with 1 when a promise is not kept.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from model_profiling.core import files, process
from model_profiling.targets import Job, TargetChoice, open_target

ROOT = Path(__file__).resolve().parents[1]

AT_LEAST_FASTER = 100
AT_MOST_MEMORY = 0.25
AT_MOST_GROWTH = 1.5

INSPECTOR = """
import json, os, resource, sys, time, warnings
warnings.simplefilter("ignore")
from executorch.devtools import Inspector
from executorch.devtools.inspector import TimeScale
began, worked = time.perf_counter(), sum(os.times()[:4])
inspector = Inspector(etdump_path=sys.argv[1], source_time_scale=TimeScale.NS, target_time_scale=TimeScale.NS)
seconds, cpu = time.perf_counter() - began, sum(os.times()[:4]) - worked
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
times = [each for block in inspector.event_blocks for event in block.events for each in event.perf_data.raw]
total = int(sum(map(int, times)))
print(json.dumps({"seconds": seconds, "cpu": cpu, "peak": peak, "events": len(times), "total_ns": total}))
"""

OURS = """
import json, os, resource, sys, time
from model_profiling.etdump import read_etdump
began, worked = time.perf_counter(), sum(os.times()[:4])
table = read_etdump(sys.argv[1])
seconds, cpu = time.perf_counter() - began, sum(os.times()[:4]) - worked
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
total = int(table.duration_ns.sum())
print(json.dumps({"seconds": seconds, "cpu": cpu, "peak": peak, "events": len(table), "total_ns": total}))
"""


def make_program(folder: Path) -> Path:
    done = process.run(
        [
            sys.executable,
            "-m",
            "model_profiling",
            "export",
            "mobilenet_v3_small",
            "--dtype",
            "fp16",
            "--outdir",
            folder,
        ],
        timeout=900,
        cwd=ROOT,
    )
    found = sorted(folder.rglob("*.pte"))
    if not found:
        sys.exit(done.tail(20))
    return found[0]


def make_dump(pte: Path, runs: int, folder: Path) -> Path:
    target = open_target(TargetChoice("host"))
    target.prepare()
    job = Job(pte, runs=runs, warmup=2, etdump=True, timeout_s=1800)
    dump = target.execute(job, folder, f"runs_{runs}").etdump
    if dump is None:
        sys.exit("the runner wrote no dump")
    return dump


def measure(code: str, dump: Path) -> dict[str, float]:
    """Read `dump` in a process of its own; its report, and the time of the whole process."""
    began = time.perf_counter()
    done = process.run([sys.executable, "-c", code, dump], timeout=1800)
    wall = time.perf_counter() - began
    if not done.ok:
        sys.exit(done.tail(20))
    report: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    # Linux counts in kilobytes, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return {**report, "process_seconds": wall, "peak_mb": report["peak"] * unit / 2**20}


def middle(code: str, dump: Path, times: int = 5) -> dict[str, float]:
    """The middle one of several measurements, by processor time."""
    reports = sorted((measure(code, dump) for _ in range(times)), key=lambda report: report["cpu"])
    return reports[len(reports) // 2]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000, help="runs in the dump both read")
    parser.add_argument(
        "--longest", type=int, default=10_000, help="runs in the longest dump that ours reads"
    )
    parser.add_argument("--pte", type=Path, help="an exported MobileNetV3-small; made when not given")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pte = options.pte or make_program(folder)
        dump = make_dump(pte, options.runs, folder)
        inspector = measure(INSPECTOR, dump)
        ours = middle(OURS, dump)
        size = dump.stat().st_size
        steps = sorted({options.runs, options.longest // 4, options.longest // 2, options.longest})
        growth = []
        for runs in steps:
            longer = make_dump(pte, runs, folder)
            growth.append((runs, middle(OURS, longer, times=3)))
            longer.unlink()

    same = (inspector["events"], inspector["total_ns"]) == (ours["events"], ours["total_ns"])
    faster = inspector["cpu"] / ours["cpu"]
    memory = ours["peak_mb"] / inspector["peak_mb"]
    per_run = [report["cpu"] / runs for runs, report in growth]
    slowdown = per_run[-1] / statistics.median(per_run[:-1])

    print(f"dump: {options.runs} runs of {pte.name}, {size / 1e6:.1f} MB, {ours['events']:.0f} events")
    print(f"{'':14}{'processor':>10}{'clock':>10}{'process':>10}{'peak':>10}")
    for label, report in (("Inspector", inspector), ("read_etdump", ours)):
        cpu, clock, whole = report["cpu"], report["seconds"], report["process_seconds"]
        print(f"{label:14}{cpu:8.3f} s{clock:8.3f} s{whole:8.2f} s{report['peak_mb']:7.0f} MB")
    print(f"reading {faster:.0f} times faster (promised: {AT_LEAST_FASTER})")
    print(f"by the clock {inspector['seconds'] / ours['seconds']:.0f} times faster")
    print(f"whole process {inspector['process_seconds'] / ours['process_seconds']:.0f} times faster")
    print(f"peak memory {memory:.1%} of Inspector's (promised: {AT_MOST_MEMORY:.0%})")
    print(f"same events and same total time: {same}")
    for (runs, report), each in zip(growth, per_run, strict=True):
        cpu, peak = report["cpu"], report["peak_mb"]
        print(f"{runs:7} runs: {cpu:.3f} s, {1e6 * each:.0f} us per run, {peak:.0f} MB")
    print(f"time per run at {steps[-1]} runs: {slowdown:.2f} of shorter dumps' (promised: {AT_MOST_GROWTH})")
    if options.json:
        files.write_json(
            options.json,
            {
                "schema_version": 1,
                "inspector": inspector,
                "ours": ours,
                "times_faster": faster,
                "memory_share": memory,
                "growth": [{"runs": runs, **report} for runs, report in growth],
            },
        )
    kept = same and faster >= AT_LEAST_FASTER and memory <= AT_MOST_MEMORY and slowdown <= AT_MOST_GROWTH
    print("promises kept" if kept else "PROMISES NOT KEPT")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
