"""A ratio with its interval, the verdict that follows from it, and the rule for stopping early.

Shared by `speedup` (independent unit: a round of whole processes) and `lockstep` (a launch of turns).
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from model_profiling.core.formatting import plural
from model_profiling.statistics.measure import MARKS, Measure

# Intervals, tests and corrections on one log ratio per round; zero means no difference.

Floats = npt.NDArray[np.float64]

# Enough for the far tails that few rounds need. With more rounds fewer would do, and each costs more.
_RESAMPLES = 2000
# A fixed seed: the same measurements must give the same interval whenever they are analysed.
_SEED = 20240229


def can_reach(count: int, confidence: float) -> bool:
    """Whether `count` rounds that all agree are rare enough by chance for this confidence: 6 for 95%."""
    return 2 * 0.5**count <= 1 - confidence


def signed_rank_interval(logs: Floats, confidence: float, cap: int | None = None) -> tuple[float, float]:
    """The shifts that the signed-rank test would not reject. Exact, as swapping names is symmetric."""
    count = len(logs)
    cap = _cap(count, cap)
    tail = _score_tail(count, cap)
    total = len(tail) - 1
    refused = int(np.searchsorted(tail, (1 - confidence) / 2, side="right")) - 1
    first, second = np.triu_indices(count)
    # Between two neighbouring pair means the order of the distances, and so the score, does not change.
    steps = np.sort((logs[first] + logs[second]) / 2)

    def lean(place: int) -> float:
        """Score of the upper side when the shift lies just above `steps[place]`."""
        above = steps[place + 1] if place + 1 < len(steps) else steps[place] + 1
        return _lean(logs - (steps[place] + above) / 2, cap)[1]

    places = range(len(steps))
    low = bisect.bisect_left(places, True, key=lambda place: lean(place) < total - refused)
    high = bisect.bisect_left(places, True, key=lambda place: lean(place) <= refused)
    return float(steps[min(low, len(steps) - 1)]), float(steps[min(high, len(steps) - 1)])


def signed_rank_p(logs: Floats, cap: int | None = None) -> float:
    """Two-sided p-value of the capped signed-rank test; a zero counts for both sides, which is cautious."""
    cap = _cap(len(logs), cap)
    below, above = _lean(logs, cap)
    tail = _score_tail(len(logs), cap)
    return min(1.0, 2 * tail[min(below, above, len(tail) - 1)])


def _cap(count: int, cap: int | None) -> int:
    """Cap ranks at a third of the rounds: contention throws rounds far, so only their side counts."""
    return cap if cap is not None else max(2, count // 3)


def _lean(logs: Floats, cap: int) -> tuple[int, int]:
    """Scores of the rounds at or below zero, and at or above it: ranks by distance, capped."""
    scores = np.empty(len(logs), dtype=np.int64)
    scores[np.argsort(np.abs(logs), kind="stable")] = np.minimum(np.arange(1, len(logs) + 1), cap)
    return int(scores[logs <= 0].sum()), int(scores[logs >= 0].sum())


@functools.cache
def _score_tail(count: int, cap: int) -> tuple[float, ...]:
    """P(T <= t) for every score t of one side, when each round falls on either side by chance."""
    scores = [min(rank, cap) for rank in range(1, count + 1)]
    ways = np.zeros(sum(scores) + 1)
    ways[0] = 1.0
    for score in scores:
        ways[score:] += ways[:-score]
        ways /= 2
    return tuple(float(tail) for tail in np.cumsum(ways))


def bootstrap_interval(logs: Floats, confidence: float) -> tuple[float, float]:
    """Bootstrap over rounds. Iterations are not resampled: the rounds' figures already contain their spread.

    The plain percentile interval is too narrow for few rounds, so its percentiles are moved outwards by as
    much as Student's distribution is wider than the normal one.
    """
    from scipy.special import ndtr, stdtrit

    count = len(logs)
    reach = stdtrit(count - 1, (1 + confidence) / 2) * math.sqrt(count / (count - 1))
    outside = float(ndtr(-reach))
    centres = _resampled_medians(logs, np.random.default_rng(_SEED))
    low, high = np.quantile(centres, [outside, 1 - outside])
    return float(low), float(high)


def _resampled_medians(values: Floats, generator: np.random.Generator) -> Floats:
    drawn = generator.integers(0, len(values), (_RESAMPLES, len(values)))
    medians: Floats = np.median(values[drawn], axis=1)
    return medians


def student_interval(logs: Floats, confidence: float) -> tuple[float, float]:
    from scipy.special import stdtrit

    mean, spread = float(logs.mean()), float(logs.std(ddof=1))
    reach = float(stdtrit(len(logs) - 1, (1 + confidence) / 2)) * spread / math.sqrt(len(logs))
    return mean - reach, mean + reach


def student_p(logs: Floats) -> float:
    """Student's test of the mean; heavy tails only make it more cautious."""
    from scipy.special import stdtr

    spread = float(logs.std(ddof=1)) / math.sqrt(len(logs))
    mean = abs(float(logs.mean()))
    if spread == 0:
        return 0.0 if mean > 0 else 1.0
    return float(2 * stdtr(len(logs) - 1, -mean / spread))


def welch(before: Floats, after: Floats, confidence: float) -> tuple[float, float, float]:
    """Interval and p-value of `before - after` for unpaired measurements: the wider of Welch's interval and a
    bootstrap of the two medians."""
    from scipy.special import stdtr, stdtrit

    shares = np.array([before.var(ddof=1) / len(before), after.var(ddof=1) / len(after)])
    error = math.sqrt(float(shares.sum()))
    shift = float(before.mean() - after.mean())
    if error == 0:
        return shift, shift, (1.0 if shift == 0 else 0.0)
    freedom = float(shares.sum() ** 2 / (shares**2 / [len(before) - 1, len(after) - 1]).sum())
    reach = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    generator = np.random.default_rng(_SEED)
    shifts = _resampled_medians(before, generator) - _resampled_medians(after, generator)
    outside = (1 - confidence) / 2
    low, high = np.quantile(shifts, [outside, 1 - outside])
    p_value = float(2 * stdtr(freedom, -abs(shift) / error))
    return min(float(low), shift - reach), max(float(high), shift + reach), p_value


def holm(raw: Floats) -> Floats:
    """Holm's correction: keeps the chance of any false finding below the level."""
    order = np.argsort(raw, kind="stable")
    steps = np.maximum.accumulate(raw[order] * np.arange(len(raw), 0, -1))
    return np.minimum(1.0, steps)[np.argsort(order)]


def benjamini_hochberg(raw: Floats) -> Floats:
    """Benjamini and Hochberg's correction: keeps the expected share of false findings below the level."""
    order = np.argsort(raw, kind="stable")
    steps = raw[order] * len(raw) / np.arange(1, len(raw) + 1)
    return np.minimum(1.0, np.minimum.accumulate(steps[::-1])[::-1])[np.argsort(order)]


Interval = tuple[float, float, str]
"""Low and high on the log scale, and the method's name."""
Side = TypeVar("Side")
"""Measurements of one side of a comparison: rounds or launches."""
Unit = Literal["round", "launch"]
Correction = Literal["holm", "benjamini-hochberg"]

CONFIDENCE = 0.95
PRACTICAL_THRESHOLD = 0.01
EXACT_ROUNDS = 6
"""From six rounds or launches on, an exact rank test can reach 5%."""
FEWEST_ROUNDS = 3
"""With fewer there is a ratio but no verdict: too few to show how much processes differ by themselves."""

# Measuring stops once the interval is narrow, which happens a little more often where the noise happens to
# look small. In simulations without a difference (bench/figures/measuring.md), judging at 0.7 of
# the allowed error keeps false verdicts below it.
_SPENT = 0.7
# With three to five rounds, one experiment may by chance come first in every round, and warming up or
# throttling then looks like a difference; with as few launches, one program may get the better memory layout
# each time. The interval is stretched by this much on both sides.
_FEW_ROUNDS_ALLOWANCE = 0.10


class Verdict(str, Enum):
    """Outcome of a comparison, for the candidate."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_CHANGE = "no significant change"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True)
class Speedup:
    """How many times faster the candidate is than the baseline (below 1: slower), with its uncertainty."""

    verdict: Verdict
    reason: str
    ratio: float | None
    low: float | None
    high: float | None
    p_value: float | None
    confidence: float
    rounds: int
    """Number of independent measurements: rounds, or launches in lockstep."""
    baseline_median: float | None
    candidate_median: float | None
    naive_ratio: float | None
    """Ratio of the medians of all iterations, as if each were independent; for contrast, never decides."""
    method: str
    unit: Unit = "round"
    measured: Measure | None = None
    """Of both sides; None where operators or other parts of an inference are compared."""

    @property
    def mark(self) -> str:
        """What follows the times of its sides."""
        return MARKS.get(self.measured, "") if self.measured else ""

    @property
    def half_width(self) -> float | None:
        """Half the interval relative to the ratio: 0.01 means plus or minus 1%."""
        if self.low is None or self.high is None:
            return None
        return math.sqrt(self.high / self.low) - 1

    @property
    def in_short(self) -> str:
        """`faster, 2.02x (2.02 to 2.03)`."""
        if self.ratio is None:
            return self.verdict.value
        if self.low is None or self.high is None:
            return f"about {self.ratio:.2f}x, no verdict"
        by = " by CPU time" if self.measured == "cpu time" else ""
        return f"{self.verdict.value}, {self.ratio:.2f}x ({self.low:.2f} to {self.high:.2f}){by}"

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "verdict": self.verdict.value, "half_width": self.half_width}


def no_answer(why: str, confidence: float, rounds: int = 0, unit: Unit = "round") -> Speedup:
    none, verdict = None, Verdict.NOT_COMPARABLE
    return Speedup(verdict, why, none, none, none, none, confidence, rounds, none, none, none, "none", unit)


def measured(
    shift: float, medians: tuple[float, float], confidence: float, rounds: int, unit: Unit = "round"
) -> Speedup:
    """A ratio without a verdict, for too few rounds."""
    few = f"{plural(rounds, unit)} cannot show how much processes differ by chance"
    return replace(
        no_answer(f"{few}; measure at least {EXACT_ROUNDS}", confidence, rounds, unit),
        ratio=math.exp(shift),
        baseline_median=medians[0],
        candidate_median=medians[1],
        naive_ratio=medians[0] / medians[1],
    )


def answer(found: Speedup, interval: Interval, p_value: float, threshold: float, stretch: float) -> Speedup:
    """Add the verdict that follows from the interval, after stretching it by `stretch` on both sides."""
    low, high, method = math.exp(interval[0] - stretch), math.exp(interval[1] + stretch), interval[2]
    assert found.ratio is not None
    verdict, reason = _judge(found.ratio, low, high, threshold)
    return replace(found, verdict=verdict, reason=reason, low=low, high=high, p_value=p_value, method=method)


def _judge(ratio: float, low: float, high: float, threshold: float) -> tuple[Verdict, str]:
    change = f"{ratio:.3f}x [{low:.3f}, {high:.3f}]"
    if low <= 1 <= high:
        unseen = max(high - 1, 1 / low - 1)
        if unseen <= threshold:
            return Verdict.NO_CHANGE, f"{change}: the same within {threshold:.1%}"
        return Verdict.NO_CHANGE, f"{change}: noise could hide a difference of up to {unseen:.1%}"
    if max(ratio, 1 / ratio) - 1 < threshold:
        return Verdict.NO_CHANGE, f"{change}: measurable, but below the {threshold:.1%} threshold"
    return (Verdict.FASTER if ratio > 1 else Verdict.SLOWER), change


def correct_each(
    pairs: Mapping[str, tuple[Side, Side]],
    compare: Callable[[Side, Side], Speedup],
    p_value: Callable[[Speedup, Side, Side], float],
    correction: Correction,
) -> dict[str, Speedup]:
    """Compare every pair and correct p-values (of a test fine enough for that) for the number of pairs."""
    alone = {name: compare(*sides) for name, sides in pairs.items()}
    raw = {name: p_value(found, *pairs[name]) for name, found in alone.items() if found.p_value is not None}
    if not raw:
        return alone
    adjusted = (holm if correction == "holm" else benjamini_hochberg)(np.array(list(raw.values())))
    return alone | {name: _corrected(alone[name], float(p)) for name, p in zip(raw, adjusted, strict=True)}


def _corrected(found: Speedup, adjusted: float) -> Speedup:
    p_value = max(adjusted, found.p_value or 0.0)
    if found.verdict not in (Verdict.FASTER, Verdict.SLOWER) or p_value <= 1 - found.confidence:
        return replace(found, p_value=p_value)
    why = f"{found.reason}: may be chance, given the number of comparisons (p {p_value:.2g})"
    return replace(found, p_value=p_value, verdict=Verdict.NO_CHANGE, reason=why)


def clock_error(medians: tuple[float, float], resolution: float) -> float:
    """The most that rounding to the clock's step can change the log of a ratio."""
    return resolution / 2 / medians[0] + resolution / 2 / medians[1]


def level(confidence: float, share: float = _SPENT) -> float:
    """Confidence to compute intervals at, so that `confidence` still holds after stopping early."""
    return 1 - share * (1 - confidence)


def alpha_spent(p_value: float, share: float = _SPENT) -> float:
    """A p-value corrected for stopping early, as `level` corrects a confidence."""
    return min(1.0, p_value / share)


def few_interval(logs: Floats, confidence: float, unit: str) -> Interval:
    """Interval of three to five rounds or launches: too few for ranks and for small differences."""
    low, high = student_interval(logs, max(confidence, 0.99))
    stretch = math.log1p(_FEW_ROUNDS_ALLOWANCE)
    return low - stretch, high + stretch, f"Student plus 10%, only {plural(len(logs), unit)}"


def is_look(rounds: int, look: int) -> bool:
    """Whether to check the width after this many rounds: first at `look`, then each time a quarter later."""
    while look < rounds:
        look = math.ceil(1.25 * look)
    return look == rounds
