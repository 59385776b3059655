"""What does it cost to take operators' boundaries from the backend's clock calls?

Launches of one program twice, both traced, one of them keeping boundaries: they take turns, so that whatever
the machine does meets both. A third, traced without boundaries like the first, shows what the method itself
finds between two that are the same.

    python bench/boundaries_cost.py FILE.pte... [--launches 12] [--seconds 2] [--threads 1]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from quality.launches import CLOCK_NS

from model_profiling.core.errors import ProfilingError
from model_profiling.etdump import read_boundaries
from model_profiling.statistics.measure import Turns, plan_turns
from model_profiling.statistics.speedup import compare_launches
from model_profiling.targets import Job
from model_profiling.targets.host import HostTarget
from model_profiling.targets.job import LockstepJob

WITHOUT = ("--boundaries=",)
"""The last word counts: no file is named, so nothing is asked for."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pte", type=Path, nargs="+")
    parser.add_argument("--launches", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=2.0, help="measured time of each launch")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    target = HostTarget()
    try:
        target.prepare()
        print("| program | operators | traced, ms | boundaries add | two without, alike |")
        print("|---|---|---|---|---|")
        for program in asked.pte:
            with tempfile.TemporaryDirectory() as scratch:
                print(measure(target, program, asked, Path(scratch)), flush=True)
    except ProfilingError as problem:
        sys.exit(f"boundaries_cost: {problem}")
    return 0


def measure(target: HostTarget, program: Path, asked: argparse.Namespace, scratch: Path) -> str:
    kept = Job(program, threads=asked.threads, warmup=3, etdump=True)
    plain = replace(kept, extra_args=WITHOUT)
    jobs = (plain, kept, plain)
    trial = target.execute_lockstep(LockstepJob(jobs, cycles=5), scratch, "launch")
    boundaries = trial.outcomes[1].boundaries
    if boundaries is None:
        sys.exit(f"boundaries_cost: {trial.results[1].boundaries_unavailable}")
    if trial.outcomes[0].boundaries is not None:
        sys.exit("boundaries_cost: boundaries were kept where they should not be")
    operators = int(read_boundaries(boundaries).operators.sum()) // len(trial.results[1].iterations_ns)
    latency = float(np.median(trial.results[0].iterations_ns))
    plan = plan_turns(latency, CLOCK_NS, len(jobs), asked.seconds)
    draw = random.Random(asked.seed)
    places: list[list[Turns]] = [[] for _ in jobs]
    for _ in range(asked.launches):
        launch = LockstepJob(
            jobs, cycles=plan.cycles, turn_length=plan.turn_length, order_seed=draw.getrandbits(32)
        )
        turns = target.execute_lockstep(launch, scratch, "launch").turns
        own: list[list[tuple[int, ...]]] = [[] for _ in jobs]
        for child, times in zip(turns.child, turns.iterations_ns, strict=True):
            own[child].append(times[1:])
        for place, taken in zip(places, own, strict=True):
            place.append(taken)
    adds, alike = (longer(places[0], places[other]) for other in (1, 2))
    return f"| {program.stem} | {operators} | {latency / 1e6:.3f} | {adds} | {alike} |"


def longer(first: list[Turns], other: list[Turns]) -> str:
    """How much longer the second takes, with its interval."""
    found = compare_launches(first, other, resolution=CLOCK_NS)
    if found.ratio is None or found.low is None or found.high is None:
        return "not known"
    return f"{1 / found.ratio - 1:+.2%} [{1 / found.high - 1:+.2%}, {1 / found.low - 1:+.2%}]"


if __name__ == "__main__":
    sys.exit(main())
