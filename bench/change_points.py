"""How often a history without a change shows one, and how soon a change is found, on made-up histories.

Somebody looks after every run, as `sme2prof history` tells it. Two parts:

  figures     false alarms in histories of 100 runs with 1% noise, of several kinds; how many 3% steps are
              found within five runs; how often the place and the size that are told hold the true ones
  calibrate   the limits in model_profiling/statistics/change_points.py, simulated anew

  python bench/change_points.py                          the figures, about five minutes on one core
  python bench/change_points.py calibrate --histories 400000
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from model_profiling.statistics.change_points import (
    FALSE_ALARM_EACH_LOOK,
    FEWEST_RUNS,
    LONGEST_LOOK,
    ChangePoints,
    false_alarms,
    find_changes,
    holds,
    limit,
    scan,
)

Floats = npt.NDArray[np.float64]
Noise = Callable[[np.random.Generator, tuple[int, int]], Floats]

RUNS = 100
WITHIN = 5
ALLOWED, WANTED = 0.05, 0.95
STEP_AT = 50


def independent(shape_of: Callable[[np.random.Generator, tuple[int, int]], Floats]) -> Noise:
    """Scaled so that its middle half is as wide as that of normal noise of 1%."""
    spread = np.quantile(np.abs(shape_of(np.random.default_rng(0), (1, 100_000))), 0.5) / 0.6745
    return lambda n, size: 0.01 * shape_of(n, size) / spread


def resembling(alike: float) -> Noise:
    """Each run resembles the one before."""

    def drawn(n: np.random.Generator, size: tuple[int, int]) -> Floats:
        fresh = n.normal(size=size)
        for run in range(1, size[1]):
            fresh[:, run] = alike * fresh[:, run - 1] + np.sqrt(1 - alike**2) * fresh[:, run]
        return 0.01 * fresh

    return drawn


def normal(n: np.random.Generator, size: tuple[int, int]) -> Floats:
    return 0.01 * n.normal(size=size)


def _thrown(share: float) -> Noise:
    return lambda n, size: normal(n, size) + 0.2 * (n.random(size) < share)


NOISES: dict[str, Noise] = {
    "normal": normal,
    "heavy tails (t, 3 degrees)": independent(lambda n, size: n.standard_t(3, size)),
    "heavier tails (t, 2 degrees)": independent(lambda n, size: n.standard_t(2, size)),
    "one side only (exponential)": independent(lambda n, size: n.exponential(size=size) - 0.7),
    "two values": independent(lambda n, size: n.choice([-1.0, 1.0], size) + 0.1 * n.normal(size=size)),
    "one run in 20 is 20% slower": _thrown(0.05),
    "one run in 10 is 20% slower": _thrown(0.1),
    "neighbours alike by 0.2": resembling(0.2),
    "neighbours alike by 0.4": resembling(0.4),
    "neighbours alike by 0.6": resembling(0.6),
    "drift, 1% over 100 runs": lambda n, size: normal(n, size) + np.linspace(0, 0.01, size[1]),
    "drift, 3% over 100 runs": lambda n, size: normal(n, size) + np.linspace(0, 0.03, size[1]),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="?", choices=["figures", "calibrate"], default="figures")
    parser.add_argument("--histories", type=int, default=4000, help="for each figure (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    noise = np.random.default_rng(asked.seed)
    if asked.part == "calibrate":
        return calibrate(noise, asked.histories)
    return print_figures(noise, asked.histories)


def alarms(logs: Floats, first_look: int = FEWEST_RUNS) -> npt.NDArray[np.int64]:
    """After which run each history first gives an alarm, looked at after every one; -1 where it never does.

    The same looks as `find_changes` takes, of all histories at once.
    """
    found = np.full(len(logs), -1)
    for runs in range(max(first_look, FEWEST_RUNS), logs.shape[1] + 1):
        quiet = np.flatnonzero(found < 0)
        recent = logs[quiet, max(0, runs - LONGEST_LOOK) : runs]
        seen = scan(recent)
        beyond = seen.largest / limit(runs)
        for place in np.flatnonzero(beyond > 1):
            if holds(recent[place], int(seen.split[place]), float(seen.noise[place]), float(beyond[place])):
                found[quiet[place]] = runs
    return found


def print_figures(noise: np.random.Generator, histories: int) -> int:
    print(f"\nFalse alarms: histories of {RUNS} runs without a step that show one, {histories} of each kind;")
    print(f"at most {false_alarms(RUNS):.1%} are promised for normal noise\n")
    print("| 1% noise from run to run | show a change |\n|---|---|")
    shares = {}
    for kind, drawn in NOISES.items():
        count = histories if kind == "normal" else histories // 2
        shares[kind] = float(np.mean(alarms(drawn(noise, (count, RUNS))) > 0))
        print(f"| {kind} | {shares[kind]:.1%} |", flush=True)
    long = float(np.mean(alarms(normal(noise, (histories // 8, 3 * RUNS))) > 0))
    print(f"| normal, {3 * RUNS} runs ({false_alarms(3 * RUNS):.1%} promised) | {long:.1%} |")
    found = print_found(noise, histories)
    print_told(noise, histories // 8)
    print(
        f"\nfalse alarms {shares['normal']:.1%} (allowed: {ALLOWED:.0%}); 3% steps after run {STEP_AT} "
        f"found within {WITHIN} runs {found:.1%} (wanted: {WANTED:.0%})"
    )
    return 0 if shares["normal"] <= ALLOWED and found >= WANTED else 1


def print_found(noise: np.random.Generator, histories: int) -> float:
    """How soon steps are found; the share that "within five runs" is about."""
    print(f"\nSteps found by somebody who looks after every run, {histories // 2} histories of each kind\n")
    print(
        "| step | noise | runs before it | within 5 runs | within 10 | within 20 |\n|---|---|---|---|---|---|"
    )
    asked = [
        (0.03, "normal", 15),
        (0.03, "normal", 20),
        (0.03, "normal", 30),
        (0.03, "normal", STEP_AT),
        (0.03, "normal", 80),
        (-0.03, "normal", STEP_AT),
        (0.05, "normal", 20),
        (0.02, "normal", STEP_AT),
        (0.01, "normal", STEP_AT),
        (0.03, "heavy tails (t, 3 degrees)", STEP_AT),
        (0.03, "one run in 20 is 20% slower", STEP_AT),
        (0.03, "neighbours alike by 0.4", STEP_AT),
    ]
    share = 0.0
    for step, kind, before in asked:
        logs = NOISES[kind](noise, (histories // 2, before + 20))
        logs[:, before:] += np.log1p(step)
        first = alarms(logs, before + 1)
        within = [float(np.mean((first > 0) & (first <= before + more))) for more in (5, 10, 20)]
        if (step, kind, before) == (0.03, "normal", STEP_AT):
            share = within[0]
        shown = " | ".join(f"{each:.1%}" for each in within)
        print(f"| {step:+.0%} | {kind} | {before} | {shown} |", flush=True)
    return share


def print_told(noise: np.random.Generator, histories: int) -> None:
    """Whole histories as `find_changes` tells them: how many changes, whether place and size are right."""
    print(f"\nWhat is told of histories of {RUNS} runs with normal noise, {histories} of each kind\n")
    print("| steps after run | told as many | too many | place exact | place within | size within |")
    print("|---|---|---|---|---|---|")
    kinds: list[dict[int, float]] = [
        {STEP_AT: 0.03},
        {STEP_AT: 0.02},
        {30: 0.03, 65: -0.03},
        {25: 0.03, 50: 0.03, 75: -0.04},
        {50: 0.05, 56: -0.05},
    ]
    for steps in kinds:
        logs = normal(noise, (histories, RUNS))
        for first, step in steps.items():
            logs[:, first:] += np.log1p(step)
        told = find_changes([(np.exp(row).tolist(), None) for row in logs])
        exact, place, size = (np.mean(each) for each in zip(*_right(told, steps), strict=True))
        many = np.array([len(found.changes) for found in told])
        name = ", ".join(f"{first}: {step:+.0%}" for first, step in steps.items())
        print(
            f"| {name} | {np.mean(many == len(steps)):.1%} | {np.mean(many > len(steps)):.1%} "
            f"| {exact:.1%} | {place:.1%} | {size:.1%} |",
            flush=True,
        )


def _right(told: list[ChangePoints], steps: dict[int, float]) -> list[tuple[bool, bool, bool]]:
    """Of each change told in histories with as many as there are: its place, its range, its size."""
    return [
        (change.first == first, change.earliest <= first <= change.latest, change.low <= step <= change.high)
        for found in told
        if len(found.changes) == len(steps)
        for change, (first, step) in zip(found.changes, steps.items(), strict=True)
    ]


def calibrate(noise: np.random.Generator, histories: int) -> int:
    """Limits that each look is the first to exceed equally often, and a smooth curve through them."""
    batch = 20_000
    rows = [0.01 * noise.normal(size=(batch, LONGEST_LOOK)) for _ in range(max(1, histories // batch))]
    quiet = [np.ones(batch, dtype=bool) for _ in rows]
    counts = np.arange(FEWEST_RUNS, LONGEST_LOOK + 1)
    limits = []
    for runs in counts:
        seen = [scan(logs[:, :runs]).largest for logs in rows]
        left = np.concatenate([found[still] for found, still in zip(seen, quiet, strict=True)])
        limits.append(float(np.quantile(left, 1 - FALSE_ALARM_EACH_LOOK)))
        quiet = [still & (found <= limits[-1]) for found, still in zip(seen, quiet, strict=True)]
    powers = np.stack([(1 / counts) ** power for power in range(5)], axis=1)
    factors, *_ = np.linalg.lstsq(powers, np.array(limits), rcond=None)
    print(f"_LIMIT = ({', '.join(f'{factor:.4g}' for factor in factors)})")
    for runs, raw, smooth in zip(counts, limits, powers @ factors, strict=True):
        if runs % 10 == 0 or runs < 20:
            print(f"{runs:4} runs: simulated {raw:.3f}, smooth {smooth:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
