"""What a comparison says: a ratio with its interval, the verdict that follows, and when to stop looking.

Shared by the two ways of measuring: `speedup` (rounds of whole processes) and `lockstep` (launches of turns).
What is independent differs, a round there and a launch here; how sure a verdict must be does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Literal, TypeVar

import numpy as np

from model_profiling.statistics.intervals import Floats, benjamini_hochberg, holm, student_interval
from model_profiling.wording import plural

Interval = tuple[float, float, str]
"""Low and high on the log scale, and how they were found."""

Side = TypeVar("Side")
"""What was measured of one side of a comparison: rounds or launches."""

Unit = Literal["round", "launch"]
"""What a comparison counts as one measurement."""

Correction = Literal["holm", "benjamini-hochberg"]

CONFIDENCE = 0.95
PRACTICAL_THRESHOLD = 0.01
EXACT_ROUNDS = 6
"""From six rounds or launches on, an exact rank test can reach 5%; with fewer, no arrangement of signs is
rare enough.
"""

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
    return Speedup(
        verdict=Verdict.NOT_COMPARABLE,
        reason=why,
        ratio=None,
        low=None,
        high=None,
        p_value=None,
        confidence=confidence,
        rounds=rounds,
        baseline_median=None,
        candidate_median=None,
        naive_ratio=None,
        method="none",
        unit=unit,
    )


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
    """Every pair's answer, its p-value corrected for how many were asked at once. `p_value` gives that of a
    test fine enough to be corrected."""
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


def blur(medians: tuple[float, float], resolution: float) -> float:
    """What rounding to the clock's step can do to the log of a ratio."""
    return resolution / 2 / medians[0] + resolution / 2 / medians[1]


def level(confidence: float, share: float = _SPENT) -> float:
    """The confidence intervals are made at, so that stopping early still leaves the one that is claimed."""
    return 1 - share * (1 - confidence)


def spent(p_value: float, share: float = _SPENT) -> float:
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
