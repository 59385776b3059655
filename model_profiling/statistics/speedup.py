"""How many times as fast: a ratio of latencies, its interval, and the verdict that follows from it.

The independent unit is a *launch* of programs that take turns, or a *round* of whole processes. Inferences of
one process share its memory layout, core and moment, so a launch or round counts once, however many it has.
A launch starts every program once; then, in cycles, each takes one turn of a few inferences, in random order:
a disturbance hits both turns of a cycle and hardly changes their ratio. A round is a launch of one turn.

Three choices, the best of those tried in `bench/lockstep_simulation.py` (bench/figures/measuring.md):
- A turn's time is the edge of its fastest eighth (the fastest of up to eight inferences). Other work only
  adds time; where it hits most inferences, quartile, median and mean spread several times as far. The single
  fastest of a long turn would be an outlier.
- A launch's figure is the median over its cycles: half of them may be thrown far.
- The interval is the wider of Student's and the exact signed-rank interval over launches. Student's alone is
  wrong too often where launches fall into few groups; ranks alone are wrong more often than the wider.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Literal, TypedDict

import numpy as np

from model_profiling.core.errors import InputError
from model_profiling.core.formatting import plural
from model_profiling.statistics import intervals
from model_profiling.statistics.intervals import SPENT, Floats, can_reach, centre, level, student_p
from model_profiling.statistics.measure import EXACT_ROUNDS, MARKS, Measure, Rounds, Turns, unequal_error

if TYPE_CHECKING:
    from typing_extensions import Unpack

Launches = Sequence[Turns]
"""One experiment's launches, empty where failed. Turn `i` of launch `j` is the same cycle everywhere; it is
empty if none of its inferences counts."""
Way = Literal["lockstep", "rounds", "apart"]
"""Programs took turns; their processes alternated; or they were measured at different times."""
Unit = Literal["round", "launch"]

CONFIDENCE = 0.95
PRACTICAL_THRESHOLD = 0.01
PRECISION = 0.005
"""Narrow enough to stop: plus or minus half a percent."""
FIRST_LOOK = 7
"""Fewest launches before stopping early: six fall on one side by chance in 3% of all cases."""
FEWEST_ROUNDS = 3
"""With fewer there is a ratio but no verdict: too few to show how much processes differ by themselves."""
# With three to five launches, one program may by chance get the better memory layout each time, or come first
# in every round. The interval is stretched by this much on both sides.
_FEW_ALLOWANCE = 0.10
# Where programs lie in memory and when their turn comes changes a ratio by less than this; launches do not
# show it (`bench/lockstep_bias.py`). The interval is stretched by this much on both sides.
_TURNS_ALLOWANCE = 0.003
# Runs made at different times also differ by what the machine was doing then, which rounds cannot show.
_SEPARATE_RUNS_ALLOWANCE = 0.03


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
    """Student's, or Welch's: ranks are too coarse for the many comparisons it is corrected for."""
    confidence: float
    rounds: int
    """Number of independent measurements: rounds, or launches in lockstep."""
    baseline_median: float | None
    candidate_median: float | None
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


class Terms(TypedDict, total=False):
    """How two sides are compared. `resolution` is the clock's step in the latencies' unit and widens the
    interval. `disturbances` says by what share other programs can have raised each side's times.
    `not_comparable` says why latencies must not be compared (emulated times, different models)."""

    confidence: float
    practical_threshold: float
    resolution: float
    disturbances: Sequence[float]
    not_comparable: str | None


def compare_launches(
    baseline: Launches, candidate: Launches, *, unit: Unit = "launch", **terms: Unpack[Terms]
) -> Speedup:
    """Compare experiments that took turns in the same launches; `rounds` of the result counts launches.

    A launch that failed on either side, or has less than half the usual cycles, is left out.
    """
    if why := terms.get("not_comparable"):
        return no_answer(why, terms, 0, unit)
    _check(baseline, candidate)
    cycles = paired_cycles(baseline, candidate)
    if not cycles:
        lacking = "launch completed a cycle of" if unit == "launch" else "round was completed by"
        return no_answer(f"no {lacking} both experiments", terms, 0, unit)
    if any((launch == 0).any() for launch in cycles):
        return no_answer("shorter than the clock can measure", terms, len(cycles), unit)
    logs = _log_ratios(cycles)
    ratio = _without_verdict(centre(logs), _medians(baseline, candidate), len(logs), unit, terms)
    if len(logs) < FEWEST_ROUNDS:
        return ratio
    low, high, method = _interval(logs, terms, unit)
    wider = math.log1p(_TURNS_ALLOWANCE)
    return _answer(ratio, (low - wider, high + wider, method), min(1.0, student_p(logs) / SPENT), terms)


def compare_rounds(baseline: Rounds, candidate: Rounds, **terms: Unpack[Terms]) -> Speedup:
    """Compare experiments measured in the same rounds: `baseline[i]` and `candidate[i]` ran side by side."""
    return compare_launches(as_launches(baseline), as_launches(candidate), unit="round", **terms)


def compare_separate(baseline: Launches, candidate: Launches, **terms: Unpack[Terms]) -> Speedup:
    """Compare experiments that were not interleaved, such as yesterday's run and today's: by Welch's test,
    with an interval that is 3% wider on both sides."""
    if why := terms.get("not_comparable"):
        return no_answer(why, terms)
    _check(baseline, candidate)
    times = (
        [[time for turn in launch for time in turn] for launch in side] for side in (baseline, candidate)
    )
    ours, theirs = (np.array([_typical(launch) for launch in side if launch]) for side in times)
    rounds = min(len(ours), len(theirs))
    if not rounds:
        return no_answer("one of the two runs completed no round", terms)
    if (ours == 0).any() or (theirs == 0).any():
        return no_answer("shorter than the clock can measure", terms, rounds)
    before, after = np.log(ours), np.log(theirs)
    medians = _medians(baseline, candidate)
    ratio = _without_verdict(float(before.mean() - after.mean()), medians, rounds, "round", terms)
    if rounds < FEWEST_ROUNDS:
        return ratio
    low, high, p_value = intervals.welch(before, after, terms.get("confidence", CONFIDENCE))
    wider = math.log1p(_SEPARATE_RUNS_ALLOWANCE)
    return _answer(ratio, (low - wider, high + wider, "separate runs, Welch plus 3%"), p_value, terms)


def compare(baseline: Launches, candidate: Launches, way: Way, **terms: Unpack[Terms]) -> Speedup:
    """Compare experiments as they were measured; a round is a launch of one turn."""
    if way == "apart":
        return compare_separate(baseline, candidate, **terms)
    return compare_launches(baseline, candidate, unit="launch" if way == "lockstep" else "round", **terms)


def compare_many(
    pairs: Mapping[str, tuple[Launches, Launches]], way: Way, **terms: Unpack[Terms]
) -> dict[str, Speedup]:
    """Compare every operator or category. Benjamini and Hochberg's correction keeps the share of false
    verdicts below 5%."""
    alone = {name: compare(*sides, way, **terms) for name, sides in pairs.items()}
    raw = {name: found.p_value for name, found in alone.items() if found.p_value is not None}
    adjusted = intervals.benjamini_hochberg(np.array(list(raw.values())))
    return alone | {name: _corrected(alone[name], float(p)) for name, p in zip(raw, adjusted, strict=True)}


def precise_enough(
    baseline: Launches,
    candidate: Launches,
    half_width: float = PRECISION,
    fewest: int = FIRST_LOOK,
    **terms: Unpack[Terms],
) -> bool:
    """Whether measuring may stop because the interval is narrow.

    Only the width counts, never the verdict: stopping as soon as the answer pleases makes repeated looks find
    differences that do not exist. Looks are spaced out (after 7, 9, 12, 15, 19, ... launches); in between the
    answer is False.
    """
    cycles = paired_cycles(baseline, candidate)
    if not is_look(len(cycles), max(fewest, FIRST_LOOK)) or not can_reach(len(cycles), _level(terms)):
        return False
    if any((launch == 0).any() for launch in cycles):
        return False
    low, high, _ = _interval(_log_ratios(cycles), terms, "launch")
    clock = _clock_error(_medians(baseline, candidate), terms.get("resolution", 0.0))
    return high - low + 2 * clock <= 2 * math.log1p(half_width)


def median_interval(rounds: Rounds) -> tuple[float, float] | None:
    """Interval of the median inference, from how much whole rounds differ; None with too few rounds."""
    whole = [latencies for latencies in rounds if len(latencies)]
    _check(as_launches(whole))
    medians = np.array([np.median(latencies) for latencies in whole], np.float64)
    if len(medians) < FEWEST_ROUNDS or (medians == 0).any():
        return None
    low, high, _ = _interval(np.log(medians), Terms(), "round")
    centre = float(np.median(np.concatenate(whole)))
    return min(math.exp(low), centre), max(math.exp(high), centre)


def as_launches(rounds: Rounds) -> Launches:
    return [[latencies] for latencies in rounds]


def paired_cycles(baseline: Launches, candidate: Launches) -> list[Floats]:
    """For every launch that counts, one row per cycle that both finished: the two turns' typical times."""
    launches = []
    for ours, theirs in zip(baseline, candidate, strict=False):
        # Turns are cut to the shorter one: the fastest of more is faster by chance.
        turns = ((our, their, min(len(our), len(their))) for our, their in zip(ours, theirs, strict=False))
        rows = [(_typical(our[:shared]), _typical(their[:shared])) for our, their, shared in turns if shared]
        if rows:
            launches.append(np.array(rows, dtype=np.float64))
    usual = float(np.median([len(cycles) for cycles in launches])) if launches else 0.0
    return [cycles for cycles in launches if len(cycles) >= usual / 2]


def _typical(inferences: Sequence[float]) -> float:
    """Edge of the fastest eighth: the fastest of up to eight, the second of sixteen."""
    return sorted(inferences)[(len(inferences) - 1) // 8]


def _log_ratios(cycles: Sequence[Floats]) -> Floats:
    """For each launch, the median over its cycles of the log of baseline over candidate."""
    return np.array([np.median(np.log(launch[:, 0] / launch[:, 1])) for launch in cycles], dtype=np.float64)


def _medians(baseline: Launches, candidate: Launches) -> tuple[float, float]:
    """Medians of all counted inferences: people compare these, so they are shown; the ratio decides."""
    ours, theirs = (
        np.concatenate([turn for launch in side for turn in launch]) for side in (baseline, candidate)
    )
    return float(np.median(ours)), float(np.median(theirs))


def _check(*sides: Launches) -> None:
    for side in sides:
        values = np.concatenate([[], *(turn for launch in side for turn in launch)])
        if not (np.isfinite(values).all() and (values >= 0).all()):
            raise InputError("a latency is negative or not a number", "leave out launches that failed")


# Verdicts.


def no_answer(why: str, terms: Terms | None = None, rounds: int = 0, unit: Unit = "round") -> Speedup:
    none, confidence = None, (terms or Terms()).get("confidence", CONFIDENCE)
    verdict = Verdict.NOT_COMPARABLE
    return Speedup(verdict, why, none, none, none, none, confidence, rounds, none, none, "none", unit)


def _without_verdict(
    shift: float, medians: tuple[float, float], rounds: int, unit: Unit, terms: Terms
) -> Speedup:
    few = f"{plural(rounds, unit)} cannot show how much processes differ by chance"
    return replace(
        no_answer(f"{few}; measure at least {EXACT_ROUNDS}", terms, rounds, unit),
        ratio=math.exp(shift),
        baseline_median=medians[0],
        candidate_median=medians[1],
    )


Interval = tuple[float, float, str]
"""Low and high on the log scale, and the method's name."""


def _answer(speedup: Speedup, interval: Interval, p_value: float, terms: Terms) -> Speedup:
    """Add the verdict that follows from the interval, after adding what the clock and other programs can have
    done to it."""
    ratio, before, after = speedup.ratio, speedup.baseline_median, speedup.candidate_median
    assert ratio is not None
    assert before is not None
    assert after is not None
    stretch = _clock_error((before, after), terms.get("resolution", 0.0))
    stretch += unequal_error(ratio, terms.get("disturbances", ()))
    low, high, method = math.exp(interval[0] - stretch), math.exp(interval[1] + stretch), interval[2]
    verdict, reason = _judge(ratio, low, high, terms.get("practical_threshold", PRACTICAL_THRESHOLD))
    return replace(
        speedup, verdict=verdict, reason=reason, low=low, high=high, p_value=p_value, method=method
    )


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


def _corrected(speedup: Speedup, adjusted: float) -> Speedup:
    if speedup.verdict not in (Verdict.FASTER, Verdict.SLOWER) or adjusted <= 1 - speedup.confidence:
        return replace(speedup, p_value=adjusted)
    why = f"{speedup.reason}: may be chance, given the number of comparisons (p {adjusted:.2g})"
    return replace(speedup, p_value=adjusted, verdict=Verdict.NO_CHANGE, reason=why)


def _clock_error(medians: tuple[float, float], resolution: float) -> float:
    """The most that rounding to the clock's step can change the log of a ratio."""
    return resolution / 2 / medians[0] + resolution / 2 / medians[1] if resolution else 0.0


def is_look(launches: int, look: int) -> bool:
    """Whether to check the width after this many: first at `look`, then each time a quarter later."""
    while look < launches:
        look = math.ceil(1.25 * look)
    return look == launches


def _level(terms: Terms) -> float:
    return level(terms.get("confidence", CONFIDENCE))


def _interval(logs: Floats, terms: Terms, unit: Unit) -> Interval:
    if not can_reach(len(logs), _level(terms)):  # too few for ranks and for small differences
        low, high = intervals.student_interval(logs, max(terms.get("confidence", CONFIDENCE), 0.99))
        wider = math.log1p(_FEW_ALLOWANCE)
        return low - wider, high + wider, f"Student plus 10%, only {plural(len(logs), unit)}"
    rank_low, rank_high = intervals.signed_rank_interval(logs, _level(terms))
    if unit == "round":  # nothing says whether others disturbed it, and one thrown far would widen Student's
        return rank_low, rank_high, "signed-rank over rounds"
    low, high = intervals.student_interval(logs, _level(terms))
    return min(rank_low, low), max(rank_high, high), "signed-rank and Student over launches, the wider"
