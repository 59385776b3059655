"""Does taking turns favour one place over another? One program against itself must come out even.

Launches of one program, twice in each, with 1 and with 2 threads: both as they are, both with SME2 switched
off, and one of each (on a CPU without SME2 that is the same program too; with SME2 it is none of this bench's
business and left out). And four copies in a launch, each against the first: a place among many. The kinds of
launch alternate, so that all meet the same moments.

What lockstep says of each pair, interval and all, must lie within 0.3% of even.

  python bench/lockstep_bias.py                  60 launches of each kind, about six minutes
  python bench/lockstep_bias.py --each           prints what every single launch says, too
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from quality.launches import CLOCK_NS, take
from quality.neighbours import leave, working
from quality.programs import Program, exported

from model_profiling.core.errors import ProfilingError
from model_profiling.core.formatting import plural
from model_profiling.statistics.measure import Turns, plan_turns
from model_profiling.statistics.speedup import compare_launches
from model_profiling.targets import Job
from model_profiling.targets.host import HostTarget
from model_profiling.targets.job import LockstepJob

ALLOWED = 0.003
OFF = ("sme2",)
COPIES = 4


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of launch, and the turns that each place had in each launch made."""

    title: str
    jobs: tuple[Job, ...]
    places: list[list[Turns]] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--launches", type=int, default=60, help="of each kind (default: %(default)s)")
    parser.add_argument(
        "--neighbours", type=int, default=0, help="busy neighbours meanwhile, as in the other"
    )
    parser.add_argument("--programs", type=Path, help="make the program here, and use the one that is there")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", action="store_true", help="print what each launch says")
    asked = parser.parse_args()
    if asked.launches < 6:
        parser.error("--launches: six are the least that say how sure they are")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            stack = Program("conv", 100)
            program = exported(asked.programs or Path(scratch), {stack})[stack]
            target = HostTarget()
            target.prepare()
            every = kinds(program, target)
            with working(asked.neighbours):
                launch_all(target, every, asked, Path(scratch))
        return report(every, asked)
    except ProfilingError as problem:
        sys.exit(f"lockstep_bias: {problem}")


def kinds(program: Path, target: HostTarget) -> list[Kind]:
    made = []
    for threads in (1, 2):
        plain = Job(program, threads=threads, warmup=3)
        off = replace(plain, disable=OFF)
        words = plural(threads, "thread")
        made.append(Kind(f"{words}, as it is", (plain, plain)))
        made.append(Kind(f"{words}, SME2 off", (off, off)))
        if not target.facts().has_sme2:
            made.append(Kind(f"{words}, as it is and SME2 off", (plain, off)))
    made.append(Kind(f"1 thread, {COPIES} copies", (Job(program, warmup=3),) * COPIES))
    return made


def launch_all(target: HostTarget, every: Sequence[Kind], asked: argparse.Namespace, scratch: Path) -> None:
    draw = random.Random(asked.seed)
    trial = target.execute_lockstep(LockstepJob(every[0].jobs, cycles=2), scratch, "launch")
    latency = float(np.median(trial.results[0].iterations_ns))
    plan = plan_turns(latency, CLOCK_NS, 2, 30.0)
    for number in range(asked.launches):
        for kind in draw.sample(every, len(every)):
            launch = take(target, kind.jobs, plan, draw.getrandbits(32), scratch)
            kind.places.append([side.counted("wall time") for side in launch.sides])
        if number % 10 == 9:
            print(f"{number + 1} of {asked.launches} launches of each kind", file=sys.stderr, flush=True)


def report(every: Sequence[Kind], asked: argparse.Namespace) -> int:
    lines = ["| launches of | place | takes longer by | one launch | |", "|---|---|---|---|---|"]
    even = True
    for kind in every:
        first = [launch[0] for launch in kind.places]
        for place in range(1, len(kind.jobs)):
            other = [launch[place] for launch in kind.places]
            alone = [one(ours, theirs) for ours, theirs in zip(first, other, strict=True)]
            found = compare_launches(first, other, resolution=CLOCK_NS / 1e6)
            assert found.ratio is not None and found.low is not None and found.high is not None
            low, high = 1 / found.high - 1, 1 / found.low - 1
            good = max(-low, high) <= ALLOWED
            even = even and good
            cells = (
                kind.title,
                f"{place + 1} against 1",
                f"{1 / found.ratio - 1:+.3%} [{low:+.3%}, {high:+.3%}]",
                f"± {np.std(alone, ddof=1):.2%}, {min(alone):+.2%} to {max(alone):+.2%}",
                "pass" if good else "FAIL",
            )
            lines.append(f"| {' | '.join(cells)} |")
            if asked.each:
                said = "  ".join(f"{value:+.2%}" for value in alone)
                print(f"{kind.title}, {place + 1} against 1: {said}", file=sys.stderr)
    lines += [
        "",
        f"{asked.launches} launches of each kind; every interval must lie within {ALLOWED:.1%} of even.",
    ]
    print("\n".join(lines))
    return 0 if even else 1


def one(ours: Turns, theirs: Turns) -> float:
    """How much longer the second took in one launch."""
    return 1 / (compare_launches([ours], [theirs]).ratio or float("nan")) - 1


if __name__ == "__main__":
    sys.exit(main())
