"""How often a verdict on programs that take turns is wrong, and what it finds, on made-up machines.

What is put in is known exactly here, which no real machine offers; `measurement_quality.py` asks the same of
real ones. Four parts, each printed as a table:

  summaries   bias and spread of a launch's ratio for each way to sum up a turn
  intervals   false verdicts of each kind of interval over launches, as it is and with early stopping
  verdicts    the kit's verdicts: false ones without a difference, found ones with 1, 2, 3 and 5% more work
  operators   the same for 20 operators at once, timed in whole microseconds as delegates do

  python bench/lockstep_simulation.py                    all of it, about 20 minutes on one core
  python bench/lockstep_simulation.py summaries --trials 50
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from made_up_turns import CLOCK_STEP, NOISES, Floats, made_up, made_up_operator

from model_profiling.statistics.intervals import level, signed_rank_interval, student_interval
from model_profiling.statistics.measure import EXACT_ROUNDS
from model_profiling.statistics.speedup import (
    FIRST_LOOK,
    PRECISION,
    Launches,
    Verdict,
    compare_launches,
    compare_many,
    is_look,
    precise_enough,
)

FALSE_ALLOWED = 0.05
CONFIDENCE = 0.95
MORE_WORK = (0.01, 0.02, 0.03, 0.05)
THRESHOLD = 0.003
Limits = tuple[float, float]

SUMMARIES: dict[str, Callable[[Floats], Floats]] = {
    "fastest": lambda turns: turns.min(-1),
    "fastest eighth": lambda turns: np.sort(turns, -1)[..., (turns.shape[-1] - 1) // 8],
    "lower quartile": lambda turns: np.percentile(turns, 25, axis=-1),
    "median": lambda turns: np.median(turns, -1),
    "mean": lambda turns: turns.mean(-1),
}

# What a launch may say of a program against itself: logs of ratios.
LAUNCHES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "normal, 0.6%": lambda n, count: 0.006 * n.normal(size=count),
    "heavy tails": lambda n, count: 0.003 * n.standard_t(2, count),
    "normal, 0.9%": lambda n, count: 0.009 * n.normal(size=count),
    "two values, 0.6% to each side": lambda n, count: (
        0.006 * n.choice([-1, 1], count) + 0.0005 * n.normal(size=count)
    ),
    "two values, 0.9% to each side": lambda n, count: (
        0.009 * n.choice([-1, 1], count) + 0.0007 * n.normal(size=count)
    ),
    "three values, 1.2% apart": lambda n, count: (
        0.012 * n.choice([-1, 0, 1], count) + 0.0005 * n.normal(size=count)
    ),
    "one in five thrown far": lambda n, count: (
        0.002 * n.normal(size=count) + 0.04 * (n.random(count) < 0.2) * n.normal(size=count)
    ),
}

# Launches at most, cycles in each, inferences in a turn (8 if not said), precision to stop at (None: all).
SETTINGS: dict[str, tuple[int, int, int, float | None]] = {
    "6 launches of 15 cycles": (6, 15, 8, None),
    "12 launches of 15": (12, 15, 8, None),
    "12 launches of 25, turns of 4": (12, 25, 4, None),
    "12 launches of 5, turns of 1": (12, 5, 1, None),
    "to 0.5%, at most 24 of 15": (24, 15, 8, PRECISION),
    "to 0.5%, at most 48 of 15": (48, 15, 8, PRECISION),
    "to 1%, at most 24 of 15": (24, 15, 8, 0.01),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "part", nargs="?", choices=["summaries", "intervals", "verdicts", "operators"], help="default: all"
    )
    parser.add_argument("--trials", type=int, default=300, help="for each figure (default: %(default)s)")
    parser.add_argument("--noise", choices=NOISES, action="append", help="default: all")
    parser.add_argument(
        "--setting", choices=SETTINGS, action="append", help="of the verdicts; default: all", metavar="NAME"
    )
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    kinds = asked.noise or list(NOISES)
    noise = np.random.default_rng(asked.seed)
    if asked.part in (None, "summaries"):
        print_summaries(noise, kinds, asked.trials)
    if asked.part in (None, "intervals"):
        print_intervals(noise, asked.trials)
    failed = 0
    if asked.part in (None, "verdicts"):
        failed = print_verdicts(noise, kinds, asked.setting or list(SETTINGS), asked.trials)
    if asked.part in (None, "operators"):
        failed |= print_operators(noise, kinds, asked.trials // 3)
    return failed


def print_summaries(noise: np.random.Generator, kinds: Sequence[str], trials: int) -> None:
    """Without layouts: what the choice of a summary alone does. The truth is 3.00%."""
    for turn in (4, 32):
        print(
            f"\n3% more work as launches of 50 cycles see it, turns of {turn}: mean and spread in percent\n"
        )
        print(f"| | {' | '.join(SUMMARIES)} |\n|---|{'---|' * len(SUMMARIES)}")
        for kind in kinds:
            sides = made_up(noise, kind, launches=trials, cycles=50, turn=turn, slower=0.03, layout=0)
            ours, theirs = (side[..., 1:] for side in sides)
            seen = [np.expm1(np.median(np.log(f(theirs) / f(ours)), axis=1)) for f in SUMMARIES.values()]
            print(f"| {kind} | {' | '.join(f'{100 * s.mean():.2f} +- {100 * s.std():.2f}' for s in seen)} |")


def student(logs: Floats) -> Limits:
    return student_interval(logs, level(CONFIDENCE))


def ranks(logs: Floats) -> Limits:
    return signed_rank_interval(logs, level(CONFIDENCE))


def wider(logs: Floats) -> Limits:
    (low, high), (rank_low, rank_high) = student(logs), ranks(logs)
    return min(low, rank_low), max(high, rank_high)


def print_intervals(noise: np.random.Generator, trials: int) -> None:
    intervals = {"Student": student, "signed-rank": ranks, "the wider": wider}
    trials *= 5
    most = 24
    print(
        f"\nFalse verdicts of intervals over launches, {trials} trials: 6 launches / stopping early at 0.5%\n"
    )
    print(f"| launches are | {' | '.join(intervals)} |\n|---|{'---|' * len(intervals)}")
    for kind, draw in LAUNCHES.items():
        drawn = [draw(noise, most) for _ in range(trials)]
        row = []
        for interval in intervals.values():
            fixed = np.mean([_excludes_one(interval(logs[:EXACT_ROUNDS])) for logs in drawn])
            early = np.mean([_excludes_one(_stopped(interval, logs)) for logs in drawn])
            row.append(f"{fixed:.1%} / {early:.1%}")
        print(f"| {kind} | {' | '.join(row)} |", flush=True)


def _stopped(interval: Callable[[Floats], Limits], logs: Floats) -> Limits:
    for count in _looks(len(logs)):
        low, high = interval(logs[:count])
        if high - low <= 2 * math.log1p(PRECISION):
            break
    return low, high


def _excludes_one(limits: Limits) -> bool:
    return limits[0] > 0 or limits[1] < 0


def _looks(most: int) -> list[int]:
    """When the width is looked at, the end included."""
    return [count for count in range(FIRST_LOOK, most) if is_look(count, FIRST_LOOK)] + [most]


def print_verdicts(
    noise: np.random.Generator, kinds: Sequence[str], settings: Sequence[str], trials: int
) -> int:
    """Every noise by itself, then each setting over all of them."""
    print(
        f"\nVerdicts, {trials} trials (found: {trials // 3}); the practical threshold is 0 for false ones and"
    )
    print(f"{THRESHOLD:.1%} for found ones; two layouts are 2% apart\n")
    works = " | ".join(f"{work:.0%} found" for work in MORE_WORK)
    head = f"| setting | noise | launches | false | false, two layouts | {works} |"
    print(f"{head}\n|---|---|---|---|---|{'---|' * len(MORE_WORK)}")
    means, falses = [], []
    for name in settings:
        setting = SETTINGS[name]
        rows = []
        for kind in kinds:
            false, used = _judged(noise, kind, setting, trials, threshold=0.0)
            layouts, _ = _judged(noise, kind, setting, trials, threshold=0.0, few_layouts=True)
            found = [
                _judged(noise, kind, setting, trials // 3, threshold=THRESHOLD, slower=work)[0]
                for work in MORE_WORK
            ]
            rows.append([used, false, layouts, *found])
            print(_row(name, kind, rows[-1]), flush=True)
        falses.append(np.array(rows)[:, 1:3])
        means.append(_row(name, "all", np.mean(rows, axis=0).tolist()))
    print("\n".join(["", *means]))
    worst, pooled = max(map(np.max, falses)), max(map(np.mean, falses))
    return _too_many(pooled, worst, trials)


def _too_many(pooled: float, worst: float, trials: int) -> int:
    """The answer to the whole: 1 where false verdicts are more than allowed."""
    # The largest of many shares is lucky or unlucky by itself: one in 1,000 may lie this far above a true 5%.
    luck = 3.1 * math.sqrt(FALSE_ALLOWED * (1 - FALSE_ALLOWED) / trials)
    print(
        f"\nfalse verdicts: {pooled:.1%} in the worst setting over all noises, {worst:.1%} in the worst noise"
    )
    allowed = f"{FALSE_ALLOWED:.0%} over all noises, {FALSE_ALLOWED + luck:.1%} in one (5% and luck)"
    print(f"allowed: {allowed}")
    return 0 if pooled <= FALSE_ALLOWED and worst <= FALSE_ALLOWED + luck else 1


def _row(name: str, kind: str, figures: list[float]) -> str:
    used, false, layouts, *found = figures
    powers = " | ".join(f"{share:.0%}" for share in found)
    return f"| {name} | {kind} | {used:.1f} | {false:.1%} | {layouts:.1%} | {powers} |"


def _judged(
    noise: np.random.Generator,
    kind: str,
    setting: tuple[int, int, int, float | None],
    trials: int,
    *,
    threshold: float,
    slower: float = 0.0,
    few_layouts: bool = False,
) -> tuple[float, float]:
    """The share of trials judged slower (or, without a difference, judged at all) and the launches used."""
    most, cycles, turn, precision = setting
    wanted = (Verdict.SLOWER,) if slower else (Verdict.FASTER, Verdict.SLOWER)
    judged = used = 0
    for _ in range(trials):
        sides = made_up(
            noise, kind, launches=most, cycles=cycles, turn=turn, slower=slower, few_layouts=few_layouts
        )
        ours, theirs = (side.tolist() for side in sides)
        stop = most
        if precision is not None:
            looks = (n for n in _looks(most) if precise_enough(ours[:n], theirs[:n], precision))
            stop = next(looks, most)
        found = compare_launches(ours[:stop], theirs[:stop], practical_threshold=threshold)
        judged += found.verdict in wanted
        used += stop
    return judged / trials, used / trials


OPERATORS = 20
CHANGED = 5
MORE_IN_SOME = 0.20


def print_operators(noise: np.random.Generator, kinds: Sequence[str], trials: int) -> int:
    """Six launches of eight cycles. How often there is any false verdict without a difference; then a quarter
    of the operators has 20% more work: which share of what is found is false, and which share is found.
    """
    print(
        f"\n{OPERATORS} operators of 5 to 2,000 microseconds, {trials} trials; practical threshold 0,\n"
        f"and 1% where {CHANGED} of them have {MORE_IN_SOME:.0%} more work\n"
    )
    print("| noise | false | false, two layouts | share false | found |")
    print("|---|---|---|---|---|")
    rows = []
    for kind in kinds:
        falses = [
            np.mean([_any_false(noise, kind, few_layouts) for _ in range(trials)])
            for few_layouts in (False, True)
        ]
        wrong, found = np.mean([_some_changed(noise, kind) for _ in range(trials)], axis=0)
        rows.append([*falses, wrong, found])
        print(f"| {kind} | {' | '.join(f'{share:.1%}' for share in rows[-1])} |", flush=True)
    shares = np.array(rows)[:, :3]
    print(f"| all | {' | '.join(f'{share:.1%}' for share in np.mean(rows, axis=0))} |")
    return _too_many(float(shares.mean(axis=0).max()), float(shares.max()), trials)


def _operators(
    noise: np.random.Generator, kind: str, changed: int = 0, few_layouts: bool = False
) -> dict[str, tuple[Launches, Launches]]:
    return {
        str(number): made_up_operator(
            noise,
            kind,
            launches=EXACT_ROUNDS,
            cycles=8,
            slower=MORE_IN_SOME if number < changed else 0.0,
            few_layouts=few_layouts,
        )
        for number in range(OPERATORS)
    }


def _any_false(noise: np.random.Generator, kind: str, few_layouts: bool) -> bool:
    pairs = _operators(noise, kind, few_layouts=few_layouts)
    found = compare_many(pairs, "lockstep", practical_threshold=0, resolution=CLOCK_STEP)
    return any(one.verdict in (Verdict.FASTER, Verdict.SLOWER) for one in found.values())


def _some_changed(noise: np.random.Generator, kind: str) -> tuple[float, float]:
    answers = compare_many(_operators(noise, kind, CHANGED), "lockstep", resolution=CLOCK_STEP).values()
    judged = [one.verdict in (Verdict.FASTER, Verdict.SLOWER) for one in answers]
    found = sum(one.verdict is Verdict.SLOWER for one in list(answers)[:CHANGED])
    return (sum(judged) - found) / max(1, sum(judged)), found / CHANGED


if __name__ == "__main__":
    sys.exit(main())
