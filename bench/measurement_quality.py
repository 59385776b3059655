"""Whether the kit's answers are right whatever else the machine does.

Pairs of programs of known work (1 to 60 times as much, 0.3 to 300 ms) are measured as `profile` does it,
beside 0, 1, 2, 4 and 10 busy processes, each in a session of its own. Trials are drawn from these launches.
The truth of a pair is what the launches of the quiet machine say together, by the same measure. Asked of each
pair and number of neighbours:

  right      how often the interval contains the truth, or it is refused       at least 95%
  error      how far the median latency is from the quiet one, one thread       below 3%, below 2 ms 5%
  found      how often 1% more work is found (one thread, at most 2 neighbours) at least 90%, within 20 s
  false      how often equal programs are told apart                            at most 5%

  python bench/measurement_quality.py --keep pool.json        40 minutes of measuring
  python bench/measurement_quality.py --from pool.json        judges it again
  python bench/measurement_quality.py --memory                neighbours that also stream through memory
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from quality.launches import BUDGET_S, CLOCK_NS, Launch, keep, measure, read, timed
from quality.neighbours import leave, working
from quality.programs import PAIRS, exported

from model_profiling.core.errors import ProfilingError
from model_profiling.runs.times import compare_timed, shared_launches
from model_profiling.statistics.measure import EXACT_ROUNDS
from model_profiling.statistics.speedup import FIRST_LOOK, Speedup, precise_enough
from model_profiling.targets.host import HostTarget

NEIGHBOURS = (0, 1, 2, 4, 10)
THREADED = ("conv_100 against conv_101",)
"""Pairs that are also measured with two threads."""
LEAST = 10
RIGHT, FALSE, FOUND = 0.95, 0.05, 0.90
SHORT_MS = 2.0
HEAD = (
    "pair", "threads", "neighbours", "launches", "measured", "truth", "right", "found or false", "errors", "",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", nargs="+", choices=PAIRS, default=list(PAIRS))
    parser.add_argument("--neighbours", type=int, nargs="+", default=list(NEIGHBOURS))
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="of measuring for each pair and condition"
    )
    parser.add_argument("--memory", action="store_true", help="neighbours stream through memory, too")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--programs", type=Path, help="make the programs here, and use those that are there")
    parser.add_argument("--keep", type=Path, help="write the measurements here, after every condition")
    parser.add_argument("--from", dest="source", type=Path, help="judge what was kept earlier")
    asked = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    try:
        pools = read(asked.source) if asked.source else measured(asked)
    except ProfilingError as problem:
        sys.exit(f"measurement_quality: {problem}")
    facts = HostTarget().facts()
    print(
        f"{facts.cpu or facts.machine}, {facts.cores} cores, {date.today():%d %B %Y}, {asked.trials} trials\n"
    )
    rows = [judge(name, pools, asked.trials) for name in pools]
    for cells in (HEAD, ("---",) * len(HEAD), *rows):
        print(f"| {' | '.join(cells)} |")
    return 1 if any("FAIL" in cells[-1] for cells in rows) else 0


def measured(asked: argparse.Namespace) -> dict[str, list[Launch]]:
    pools: dict[str, list[Launch]] = {}
    target = HostTarget()
    target.prepare()
    with tempfile.TemporaryDirectory() as scratch:
        wanted = {program for title in asked.pairs for program in PAIRS[title]}
        programs = exported(asked.programs or Path(scratch), wanted)
        for count in asked.neighbours:
            with working(count, memory=asked.memory):
                for title in asked.pairs:
                    files = [programs[each] for each in PAIRS[title]]
                    for threads in (1, 2) if title in THREADED else (1,):
                        taken = measure(
                            target, files, Path(scratch), threads=threads, seconds=asked.seconds, least=LEAST
                        )
                        pools[f"{title}|{threads}|{count}"] = taken
                        print(f"{title}, {threads}, {count}: {len(taken)}", file=sys.stderr, flush=True)
            if asked.keep:
                keep(asked.keep, pools)
    return pools


def judge(name: str, pools: dict[str, list[Launch]], trials: int) -> tuple[str, ...]:
    title, *numbers = name.split("|")
    threads, count = map(int, numbers)
    pool, quiet = pools[name], pools.get(f"{title}|{threads}|0", pools[name])
    draw = random.Random(f"{title} {threads} {count}")
    answers = [ask(draw.sample(list(pool), len(pool)), threads) for _ in range(trials)]
    truths = {measure: truth(quiet, threads, measure) for measure in ("wall time", "cpu time")}
    given = [(found, seconds) for found, seconds in answers if found.low is not None]
    right = [
        (answer.low or 0) <= (truths[_quiet_measure(answer)].ratio or 0) <= (answer.high or 0)
        for answer, _ in given
    ]
    good = sum(right) + len(answers) - len(given)
    problems = ["right"] if good < RIGHT * len(answers) else []
    errors = [error(pool, quiet, side, threads) for side in (0, 1)]
    if threads == 1:
        problems += [
            f"error {off:+.1%}" for off, ms in errors if abs(off) > (0.05 if ms < SHORT_MS else 0.03)
        ]
    claims = [not (found.low or 0) <= 1 <= (found.high or 9) for found, _ in given]
    seconds = float(np.mean([taken for _, taken in answers]))
    more, said = PAIRS[title].more_work, ""
    if more is not None and more <= 0.02 and given:
        share = sum(claims) / len(answers)
        said = f"{share:.0%} {'false' if more == 0 else 'found'} in {seconds:.1f} s"
        if (more == 0 and share > FALSE) or (more and count <= 2 and threads == 1 and share < FOUND):
            problems.append("found" if more else "false")
    measures = sorted({found.measured or "" for found, _ in given}) or ["refused"]
    return (
        title,
        str(threads),
        str(count),
        str(len(pool)),
        ", ".join(measures),
        f"{truths['cpu time' if measures == ['cpu time'] else 'wall time'].ratio or 0:.4g}x",
        f"{good / len(answers):.0%}",
        said,
        ", ".join(f"{off:+.1%} of {ms:.3g} ms" for off, ms in errors),
        f"FAIL: {', '.join(problems)}" if problems else "pass",
    )


def ask(launches: Sequence[Launch], threads: int) -> tuple[Speedup, float]:
    """One trial: until the interval is narrow enough or the time is spent, as `profile` measures."""
    taken: list[Launch] = []
    spent = 0.0
    for launch in launches:
        taken.append(launch)
        spent += launch.seconds
        before, after = (timed(taken, side, threads) for side in (0, 1))
        if before.rule.measure == "wall time, interrupted" and len(taken) >= 2:
            break
        sides = shared_launches(before.launches, after.launches)
        narrow = len(taken) >= FIRST_LOOK and precise_enough(*sides, resolution=CLOCK_NS / 1e6)
        if narrow or (len(taken) >= EXACT_ROUNDS and spent >= BUDGET_S):
            break
    return compare_timed(before, after, same_run=True, practical_threshold=0.0), spent


def truth(quiet: Sequence[Launch], threads: int, measure: str) -> Speedup:
    rule = timed(quiet, 0, threads).rule
    wanted = type(rule)(measure, rule.speed)  # type: ignore[arg-type]
    return compare_timed(*(timed(quiet, side, threads, wanted) for side in (0, 1)), same_run=True)


def _quiet_measure(answer: Speedup) -> str:
    return "cpu time" if answer.measured == "cpu time" else "wall time"


def error(pool: Sequence[Launch], quiet: Sequence[Launch], side: int, threads: int) -> tuple[float, float]:
    """How far the median is from the quiet one, and the quiet one."""
    ours, theirs = (
        float(
            np.median(
                np.concatenate([latencies for latencies in timed(each, side, threads).rounds if latencies])
            )
        )
        for each in (pool, quiet)
    )
    return ours / theirs - 1, theirs


if __name__ == "__main__":
    sys.exit(main())
