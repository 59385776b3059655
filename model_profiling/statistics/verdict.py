"""What a comparison says: a ratio with its interval, the verdict that follows, and when to stop looking.

Shared by the two ways of measuring: `speedup` (rounds of whole processes) and `lockstep` (launches of turns).
What is independent differs, a round there and a launch here; how sure a verdict must be does not.
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

# Intervals, tests and corrections for few, wild measurements: what `speedup` rests its verdicts on.
# Everything works on one number per round, on the log scale; zero means no difference.

Floats = npt.NDArray[np.float64]

# The tails of few rounds lie far out; with many rounds fewer are needed, and each costs more.
_RESAMPLES = 2000
# A fixed seed: the same measurements must give the same interval whenever they are analysed.
_SEED = 20240229


def can_reach(count: int, confidence: float) -> bool:
    """Whether `count` rounds that all agree are rare enough by chance for this confidence: 6 for 95%."""
    return 2 * 0.5**count <= 1 - confidence


def signed_rank_interval(logs: Floats, confidence: float, cap: int | None = None) -> tuple[float, float]:
    """The signed-rank test turned round: every shift it would not refuse. Exact, as swapping names is
    symmetric."""
    count = len(logs)
    cap = _cap(count, cap)
    tail = _score_tail(count, cap)
    total = len(tail) - 1
    refused = int(np.searchsorted(tail, (1 - confidence) / 2, side="right")) - 1
    first, second = np.triu_indices(count)
    # Between two neighbouring means of pairs the order of the distances, and so the score, stays the same.
    steps = np.sort((logs[first] + logs[second]) / 2)

    def lean(place: int) -> float:
        """The score on the upper side when the shift lies just above `steps[place]`."""
        above = steps[place + 1] if place + 1 < len(steps) else steps[place] + 1
        return _lean(logs - (steps[place] + above) / 2, cap)[1]

    places = range(len(steps))
    low = bisect.bisect_left(places, True, key=lambda place: lean(place) < total - refused)
    high = bisect.bisect_left(places, True, key=lambda place: lean(place) <= refused)
    return float(steps[min(low, len(steps) - 1)]), float(steps[min(high, len(steps) - 1)])


def signed_rank_p(logs: Floats, cap: int | None = None) -> float:
    """How rarely rounds without a difference lean this far to one side; zero counts for the other side."""
    cap = _cap(len(logs), cap)
    below, above = _lean(logs, cap)
    tail = _score_tail(len(logs), cap)
    return min(1.0, 2 * tail[min(below, above, len(tail) - 1)])


def _cap(count: int, cap: int | None) -> int:
    """A third: the far rounds count by their side only, because contention throws them at random."""
    return cap if cap is not None else max(2, count // 3)


def _lean(logs: Floats, cap: int) -> tuple[int, int]:
    """The scores of the rounds not above zero and of those not below it: ranks by distance, capped."""
    scores = np.empty(len(logs), dtype=np.int64)
    scores[np.argsort(np.abs(logs), kind="stable")] = np.minimum(np.arange(1, len(logs) + 1), cap)
    return int(scores[logs <= 0].sum()), int(scores[logs >= 0].sum())


@functools.cache
def _score_tail(count: int, cap: int) -> tuple[float, ...]:
    """P(T <= t) for every value t of one side's score when each round falls on either side by chance."""
    scores = [min(rank, cap) for rank in range(1, count + 1)]
    ways = np.zeros(sum(scores) + 1)
    ways[0] = 1.0
    for score in scores:
        ways[score:] += ways[:-score]
        ways /= 2
    return tuple(float(tail) for tail in np.cumsum(ways))


def bootstrap_interval(logs: Floats, confidence: float) -> tuple[float, float]:
    """Resampled rounds; iterations are not resampled again, their spread is already in the rounds' figures.

    The plain percentile interval is too narrow for few rounds; its percentiles are moved outwards by as
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
    """The classic interval of the mean."""
    from scipy.special import stdtrit

    mean, spread = float(logs.mean()), float(logs.std(ddof=1))
    reach = float(stdtrit(len(logs) - 1, (1 + confidence) / 2)) * spread / math.sqrt(len(logs))
    return mean - reach, mean + reach


def student_p(logs: Floats) -> float:
    """The classic test of the mean; heavy tails only make it more cautious."""
    from scipy.special import stdtr

    spread = float(logs.std(ddof=1)) / math.sqrt(len(logs))
    mean = abs(float(logs.mean()))
    if spread == 0:
        return 0.0 if mean > 0 else 1.0
    return float(2 * stdtr(len(logs) - 1, -mean / spread))


def welch(before: Floats, after: Floats, confidence: float) -> tuple[float, float, float]:
    """Interval and p-value of `before - after` for measurements that cannot be paired: the wider of Welch's
    and a bootstrap of the two medians."""
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
    """P-values that keep the chance of any false finding below the level, by Holm's steps."""
    order = np.argsort(raw, kind="stable")
    steps = np.maximum.accumulate(raw[order] * np.arange(len(raw), 0, -1))
    return np.minimum(1.0, steps)[np.argsort(order)]


def benjamini_hochberg(raw: Floats) -> Floats:
    """P-values that keep the expected share of false findings below the level."""
    order = np.argsort(raw, kind="stable")
    steps = raw[order] * len(raw) / np.arange(1, len(raw) + 1)
    return np.minimum(1.0, np.minimum.accumulate(steps[::-1])[::-1])[np.argsort(order)]


Interval = tuple[float, float, str]
"""Low and high on the log scale, and how they were found."""
Side = TypeVar("Side")
"""What was measured of one side of a comparison: rounds or launches."""
Unit = Literal["round", "launch"]
Correction = Literal["holm", "benjamini-hochberg"]

CONFIDENCE = 0.95
PRACTICAL_THRESHOLD = 0.01
EXACT_ROUNDS = 6
"""From six rounds or launches on, an exact rank test can reach 5%."""
FEWEST_ROUNDS = 3
"""Below this there is a ratio but no verdict: nothing shows how much processes differ by themselves."""

# Measuring may stop early once the interval is narrow, and stops a little more often where the noise happens
# to look small. Simulated without any difference (see docs/measuring.md), judging at seven tenths of the
# allowed error keeps false verdicts under it.
_SPENT = 0.7
# With three to five rounds, chance alone may give one experiment the first place in every round; warming up
# or throttling then looks like a difference. In as many launches, one program may each time be dealt the
# better memory layout. The interval is stretched by this much on both sides.
_FEW_ROUNDS_ALLOWANCE = 0.10


class Verdict(str, Enum):
    """What a comparison says about the candidate."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_CHANGE = "no significant change"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True)
class Speedup:
    """How many times faster the candidate is than the baseline (below 1: slower), and how sure that is."""

    verdict: Verdict
    reason: str
    ratio: float | None
    low: float | None
    high: float | None
    p_value: float | None
    confidence: float
    rounds: int
    """How many independent measurements it rests on: rounds, or launches in lockstep."""
    baseline_median: float | None
    candidate_median: float | None
    naive_ratio: float | None
    """The medians of all iterations divided, as if each were independent; for contrast, never decided on."""
    method: str
    unit: Unit = "round"

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
            return f"about {self.ratio:.2f}x, without a verdict"
        return f"{self.verdict.value}, {self.ratio:.2f}x ({self.low:.2f} to {self.high:.2f})"

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "verdict": self.verdict.value, "half_width": self.half_width}


def no_answer(why: str, confidence: float, rounds: int = 0, unit: Unit = "round") -> Speedup:
    none, verdict = None, Verdict.NOT_COMPARABLE
    return Speedup(verdict, why, none, none, none, none, confidence, rounds, none, none, none, "none", unit)


def measured(
    shift: float, medians: tuple[float, float], confidence: float, rounds: int, unit: Unit = "round"
) -> Speedup:
    """The ratio without a verdict, which is all there is to say about too few rounds."""
    few = f"{plural(rounds, unit)} cannot show how much processes differ by themselves"
    return replace(
        no_answer(f"{few}; measure at least {EXACT_ROUNDS}", confidence, rounds, unit),
        ratio=math.exp(shift),
        baseline_median=medians[0],
        candidate_median=medians[1],
        naive_ratio=medians[0] / medians[1],
    )


def answer(found: Speedup, interval: Interval, p_value: float, threshold: float, stretch: float) -> Speedup:
    """The verdict that follows from the interval, which is stretched by so much on both sides."""
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
        return Verdict.NO_CHANGE, f"{change}: a difference up to {unseen:.1%} could hide in the noise"
    if max(ratio, 1 / ratio) - 1 < threshold:
        return Verdict.NO_CHANGE, f"{change}: measurable, but below the {threshold:.1%} that matters"
    return (Verdict.FASTER if ratio > 1 else Verdict.SLOWER), change


def correct_each(
    pairs: Mapping[str, tuple[Side, Side]],
    compare: Callable[[Side, Side], Speedup],
    p_value: Callable[[Speedup, Side, Side], float],
    correction: Correction,
) -> dict[str, Speedup]:
    """Every pair's answer, its p-value (of a test fine enough for it) corrected for how many were asked."""
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
    why = f"{found.reason}: not beyond chance among as many comparisons (p {p_value:.2g})"
    return replace(found, p_value=p_value, verdict=Verdict.NO_CHANGE, reason=why)


def clock_error(medians: tuple[float, float], resolution: float) -> float:
    """What rounding to the clock's step can do to the log of a ratio."""
    return resolution / 2 / medians[0] + resolution / 2 / medians[1]


def level(confidence: float, share: float = _SPENT) -> float:
    """The confidence intervals are made at, so that stopping early still leaves the one that is claimed."""
    return 1 - share * (1 - confidence)


def alpha_spent(p_value: float, share: float = _SPENT) -> float:
    """The same for a p-value."""
    return min(1.0, p_value / share)


def few_interval(logs: Floats, confidence: float, unit: str) -> Interval:
    """The interval of three to five rounds or launches: too few for ranks, and for fine differences."""
    low, high = student_interval(logs, max(confidence, 0.99))
    stretch = math.log1p(_FEW_ROUNDS_ALLOWANCE)
    return low - stretch, high + stretch, f"Student plus 10%, only {plural(len(logs), unit)}"


def is_look(rounds: int, look: int) -> bool:
    """Whether the width may be looked at after so many: first at `look`, then each time a quarter later."""
    while look < rounds:
        look = math.ceil(1.25 * look)
    return look == rounds
