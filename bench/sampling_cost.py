"""What does looking at threads cost, and how often is the wrong operator seen?

Every round runs one program in a process of each kind, in turn: traced, and traced while threads are looked
at 1,000 and 10,000 times a second. The lower quartile of a process's executions stands for it. Then one
process keeps both samples and boundaries: a sample is wrong if its own time does not lie within the operator
that it names. Sample times and boundaries are of clocks with different zeros; the shift is the one that fits
most samples. Last, two sampled processes are divided into parts and compared.

    python bench/sampling_cost.py FILE.pte [--threads 1] [--rounds 12] [--seconds 2]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from model_profiling.analysis.matching import FEWEST
from model_profiling.core.errors import ProfilingError
from model_profiling.etdump import read_boundaries
from model_profiling.runner.samples import Samples
from model_profiling.targets import Job
from model_profiling.targets.host import HostTarget
from model_profiling.targets.job import SEEN

RATES = (None, 1_000, 10_000)


def wilson_interval(count: int, total: int) -> tuple[float, float]:
    """95% interval of a share when `count` of `total` independent samples show it."""
    share, square = count / total, 1.959964**2
    centre = (share + square / (2 * total)) / (1 + square / total)
    reach = share * (1 - share) / total + square / (4 * total**2)
    half = math.sqrt(square * reach) / (1 + square / total)
    return centre - half, centre + half


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pte", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each process")
    asked = parser.parse_args()
    target = HostTarget()
    try:
        target.prepare()
        with tempfile.TemporaryDirectory() as scratch:
            measure(target, asked, Path(scratch))
    except ProfilingError as problem:
        sys.exit(f"sampling_cost: {problem}")
    return 0


def measure(target: HostTarget, asked: argparse.Namespace, into: Path) -> None:
    trial = Job(asked.pte, threads=asked.threads, warmup=3, runs=10, etdump=True)
    latency_s = float(np.median(target.execute(trial, into, "trial").result.iterations_ns)) / 1e9
    job = replace(trial, runs=max(10, round(asked.seconds / latency_s)))
    print(f"{asked.pte.name}, {asked.threads} threads, {1e3 * latency_s:.3f} ms, {job.runs} executions each")
    taken: dict[int | None, list[float]] = {rate: [] for rate in RATES}
    for number in range(asked.rounds):
        for rate in RATES[number % 3 :] + RATES[: number % 3]:
            outcome = target.execute(replace(job, sample_hz=rate), into, "x")
            taken[rate].append(float(np.quantile(outcome.result.iterations_ns, 0.25)))
    for rate in RATES[1:]:
        ratios = sorted(with_it / without for with_it, without in zip(taken[rate], taken[None], strict=True))
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        middle = statistics.median(ratios)
        print(f"{rate} Hz: {middle:.4f} of the time without (middle half of rounds {low:.4f} to {high:.4f})")
    for rate in (1_000, 10_000):
        wrong, seen = wrong_operators(target, replace(job, sample_hz=rate), into)
        print(f"{rate} Hz: {100 * wrong:.2f}% of {seen} samples named an operator they do not lie in")
    compare_splits(target, replace(job, sample_hz=1_000), into)


def wrong_operators(target: HostTarget, job: Job, into: Path) -> tuple[float, int]:
    outcome = target.execute(job, into, "y")
    if outcome.boundaries is None or outcome.samples is None:
        sys.exit(f"sampling_cost: {outcome.result.boundaries_unavailable}")
    calls = len(outcome.samples.operators_of_calls)
    raw = json.loads((into / f"y{SEEN}").read_text())
    columns = {name: np.array(raw[name], np.int64) for name in ("time_ns", "execution", "call", "operator")}
    inside = columns["operator"] >= 0
    time, execution, call, operator = (column[inside] for column in columns.values())
    exact = read_boundaries(outcome.boundaries)
    at = exact.first[(execution - 1) * calls + call] + operator
    shift = most_common_point(time - exact.times_ns[at + 1], time - exact.times_ns[at])
    moved = time - shift
    right = (exact.times_ns[at] <= moved) & (moved <= exact.times_ns[at + 1])
    return float(1 - right.mean()), len(right)


def most_common_point(low: np.ndarray, high: np.ndarray) -> int:
    """The number that lies in most of the intervals."""
    edges = np.concatenate([low, high + 1])
    steps = np.concatenate([np.ones(len(low), np.int64), -np.ones(len(high), np.int64)])
    order = np.argsort(edges, kind="stable")
    return int(edges[order][np.argmax(np.cumsum(steps[order]))])


def compare_splits(target: HostTarget, job: Job, into: Path) -> None:
    """How far two runs divide operators differently, against what their intervals allow."""
    first, second = (target.execute(job, into, "z").samples for _ in range(2))
    assert first is not None and second is not None
    outside = total = 0
    largest = 0.0
    one, other = shares(first), shares(second)
    for place in one.keys() & other.keys():
        counts, again = one[place], other[place]
        if min(counts.total(), again.total()) < FEWEST:
            continue
        for function in counts.keys() | again.keys():
            share, twin = counts[function] / counts.total(), again[function] / again.total()
            low, high = wilson_interval(counts[function], counts.total())
            low_twin, high_twin = wilson_interval(again[function], again.total())
            total += 1
            outside += low > high_twin or low_twin > high
            largest = max(largest, abs(share - twin))
    print(
        f"two runs at 1000 Hz: {total} shares of functions in operators, the largest difference "
        f"{100 * largest:.1f} points, {outside} with intervals that do not meet"
    )


def shares(samples: Samples) -> dict[tuple[int, int], Counter[tuple[str, int | None]]]:
    found: dict[tuple[int, int], Counter[tuple[str, int | None]]] = {}
    for call, operator, _, number, count in samples.seen:
        function = samples.functions[number]
        if operator >= 0:
            found.setdefault((call, operator), Counter())[function.name, function.start] += count
    return found


if __name__ == "__main__":
    sys.exit(main())
