"""Speedups that hold: a ratio of latencies measured in interleaved rounds, its interval, and a verdict.

A round runs one process of each experiment, in random order. Iterations inside a process share whatever
that process was dealt (memory layout, core, moment), so they are not independent measurements; rounds are.
Every round therefore counts as one: the log of the ratio of its two processes' lower quartiles. Other work
on the machine only ever adds time, so a process's lower quartile is less its victim than the median is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Literal

import numpy as np

from model_profiling.errors import InputError
from model_profiling.statistics.intervals import (
    Floats,
    benjamini_hochberg,
    bootstrap_interval,
    holm,
    reaches,
    signed_rank_interval,
    signed_rank_p,
    student_interval,
    student_p,
    welch,
)
from model_profiling.wording import plural

Rounds = Sequence[Sequence[float]]
"""One sequence of iteration latencies per round; an empty one marks a round that failed."""

_Interval = tuple[float, float, str]
"""Low and high on the log scale, and how they were found."""

CONFIDENCE = 0.95
PRACTICAL_THRESHOLD = 0.01
EXACT_ROUNDS = 6
"""From six rounds on, an exact rank test can reach 5%; with fewer, no arrangement of signs is rare enough."""

FEWEST_ROUNDS = 3
"""Below this there is a ratio but no verdict: nothing shows how much processes differ by themselves."""

# Measuring may stop early once the interval is narrow, and stops a little more often where the noise happens
# to look small. Simulated without any difference (see docs/measuring.md), judging at seven tenths of the
# allowed error keeps false verdicts under it.
_SPENT = 0.7
# With three to five rounds, chance alone may give one experiment the first place in every round; warming up
# or throttling then looks like a difference. The interval is stretched by this much on both sides.
_FEW_ROUNDS_ALLOWANCE = 0.10
# Runs made at different times differ by what the machine was doing then, which no round can show.
_SEPARATE_RUNS_ALLOWANCE = 0.03


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
    baseline_median: float | None
    candidate_median: float | None
    naive_ratio: float | None
    """The medians of all iterations divided, as if each were independent; for contrast, never decided on."""
    method: str

    @property
    def half_width(self) -> float | None:
        """Half the interval relative to the ratio: 0.01 means plus or minus 1%."""
        if self.low is None or self.high is None:
            return None
        return math.sqrt(self.high / self.low) - 1

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "verdict": self.verdict.value, "half_width": self.half_width}


def compare_rounds(
    baseline: Rounds,
    candidate: Rounds,
    *,
    confidence: float = CONFIDENCE,
    practical_threshold: float = PRACTICAL_THRESHOLD,
    resolution: float = 0.0,
    not_comparable: str | None = None,
) -> Speedup:
    """Compare experiments measured in the same rounds: `baseline[i]` and `candidate[i]` ran side by side.

    The interval is the wider of a bootstrap over rounds and the exact signed-rank interval, so the verdict
    follows from it alone. `resolution` is the clock's step in the latencies' unit (operators inside a
    delegate are timed in whole microseconds) and widens it. `not_comparable` says why the latencies must
    not be compared at all (emulated times, different models); the ratio is then left out.
    """
    if not_comparable:
        return _no_answer(not_comparable, confidence)
    typical = paired_typical(baseline, candidate)
    if len(typical) == 0:
        return _no_answer("no round finished in both experiments", confidence)
    if (typical == 0).any():
        return _no_answer("shorter than the clock can tell", confidence, len(typical))
    logs = _log_ratios(typical)
    medians = _medians(baseline, candidate)
    # The median of the rounds: half of them may be thrown far by contention without moving it.
    measured = _measured(float(np.median(logs)), medians, confidence, len(logs))
    if len(logs) < FEWEST_ROUNDS:
        return measured
    p_value = signed_rank_p(logs) if reaches(len(logs), _level(confidence)) else student_p(logs)
    interval, p_value = _interval(logs, confidence), min(1.0, p_value / _SPENT)
    return _answer(measured, interval, p_value, practical_threshold, _blur(medians, resolution))


def compare_separate(
    baseline: Rounds,
    candidate: Rounds,
    *,
    confidence: float = CONFIDENCE,
    practical_threshold: float = PRACTICAL_THRESHOLD,
    resolution: float = 0.0,
    not_comparable: str | None = None,
) -> Speedup:
    """Compare experiments that were not interleaved, such as yesterday's run and today's.

    Rounds cannot be paired, so each side is resampled by itself and the interval is stretched by 3%.
    `resolution` is as for `compare_rounds`.
    """
    if not_comparable:
        return _no_answer(not_comparable, confidence)
    ours, theirs = round_typical(baseline), round_typical(candidate)
    if not len(ours) or not len(theirs):
        return _no_answer("no round finished in one of the two runs", confidence)
    if (ours == 0).any() or (theirs == 0).any():
        return _no_answer("shorter than the clock can tell", confidence, min(len(ours), len(theirs)))
    before, after = np.log(ours), np.log(theirs)
    medians = _medians(baseline, candidate)
    rounds = min(len(before), len(after))
    measured = _measured(float(np.median(before[:, None] - after[None, :])), medians, confidence, rounds)
    if rounds < FEWEST_ROUNDS:
        return measured
    low, high, p_value = welch(before, after, confidence)
    interval = low, high, "separate runs, Welch and bootstrap, plus 3%"
    stretch = math.log1p(_SEPARATE_RUNS_ALLOWANCE) + _blur(medians, resolution)
    return _answer(measured, interval, p_value, practical_threshold, stretch)


def precise_enough(
    baseline: Rounds,
    candidate: Rounds,
    target_relative_half_width: float,
    minimum_rounds: int = EXACT_ROUNDS,
    *,
    confidence: float = CONFIDENCE,
) -> bool:
    """Whether measuring may stop: the interval is narrow, whatever it says.

    Only the width is looked at, never the verdict: stopping as soon as the answer pleases is what makes
    repeated looks find differences that are not there. Looks are spaced out (after 6, 8, 10, 13, 17 rounds
    and so on); in between the answer is no.
    """
    typical = paired_typical(baseline, candidate)
    if not _is_look(len(typical), max(minimum_rounds, EXACT_ROUNDS)) or (typical == 0).any():
        return False
    if not reaches(len(typical), _level(confidence)):
        return False
    logs = _log_ratios(typical)
    widest = 2 * math.log1p(target_relative_half_width)
    low, high = signed_rank_interval(logs, _level(confidence))
    if high - low > widest:
        return False  # the bootstrap only widens it, and costs more
    low, high, _ = _interval(logs, confidence)
    return high - low <= widest


def compare_many(
    pairs: Mapping[str, tuple[Rounds, Rounds]],
    *,
    correction: Literal["holm", "benjamini-hochberg"] = "benjamini-hochberg",
    confidence: float = CONFIDENCE,
    practical_threshold: float = PRACTICAL_THRESHOLD,
    resolution: float = 0.0,
    not_comparable: str | None = None,
    interleaved: bool = True,
) -> dict[str, Speedup]:
    """Compare every operator or category at once, with the verdicts corrected for how many were asked.

    Holm keeps the chance of any false verdict below 5% (few questions: categories); Benjamini-Hochberg
    keeps the share of false verdicts below 5% (many questions: operators). The rank test is too coarse to
    be corrected (eight rounds cannot give less than 0.8%), so the correction works on Student's test, and
    on Welch's where the rounds were not `interleaved`.
    """
    compare = compare_rounds if interleaved else compare_separate
    alone = {
        name: compare(
            *rounds,
            confidence=confidence,
            practical_threshold=practical_threshold,
            resolution=resolution,
            not_comparable=not_comparable,
        )
        for name, rounds in pairs.items()
    }
    answered = [name for name, found in alone.items() if found.p_value is not None]
    if not answered:
        return alone
    raw = [
        student_p(_log_ratios(paired_typical(*pairs[name]))) if interleaved else alone[name].p_value
        for name in answered
    ]
    adjusted = (holm if correction == "holm" else benjamini_hochberg)(np.array(raw, dtype=np.float64))
    return alone | {
        name: _corrected(alone[name], float(p)) for name, p in zip(answered, adjusted, strict=True)
    }


def round_typical(rounds: Rounds) -> Floats:
    """The lower quartile of every round that finished."""
    return _checked(np.array([_typical(latencies) for latencies in rounds if len(latencies)], np.float64))


def paired_typical(baseline: Rounds, candidate: Rounds) -> Floats:
    """The two lower quartiles of every round that finished in both experiments, one row per round."""
    rows = [
        (_typical(ours), _typical(theirs))
        for ours, theirs in zip(baseline, candidate, strict=False)
        if len(ours) and len(theirs)
    ]
    return _checked(np.array(rows, dtype=np.float64).reshape(-1, 2))


def _typical(iterations: Sequence[float]) -> float:
    return float(np.percentile(iterations, 25))


def _log_ratios(typical: Floats) -> Floats:
    """What each round says: the log of baseline over candidate, above zero where the candidate is faster."""
    logs: Floats = np.log(typical[:, 0] / typical[:, 1])
    return logs


def _checked(latencies: Floats) -> Floats:
    if not (np.isfinite(latencies).all() and (latencies >= 0).all()):
        raise InputError("a latency is negative or not a number", "leave out rounds that failed")
    return latencies


def _no_answer(why: str, confidence: float, rounds: int = 0) -> Speedup:
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
    )


def _medians(baseline: Rounds, candidate: Rounds) -> tuple[float, float]:
    """Of all iterations: what people compare, shown beside the ratio that decides."""
    return float(np.median(np.concatenate(baseline))), float(np.median(np.concatenate(candidate)))


def _measured(shift: float, medians: tuple[float, float], confidence: float, rounds: int) -> Speedup:
    """The ratio without a verdict, which is all there is to say about too few rounds."""
    few = f"{plural(rounds, 'round')} cannot show how much processes differ by themselves"
    return replace(
        _no_answer(f"{few}; measure at least {EXACT_ROUNDS}", confidence, rounds),
        ratio=math.exp(shift),
        baseline_median=medians[0],
        candidate_median=medians[1],
        naive_ratio=medians[0] / medians[1],
    )


def _answer(
    measured: Speedup, interval: _Interval, p_value: float, threshold: float, stretch: float
) -> Speedup:
    """The verdict that follows from the interval, which is stretched by so much on both sides."""
    low, high, method = math.exp(interval[0] - stretch), math.exp(interval[1] + stretch), interval[2]
    assert measured.ratio is not None
    verdict, reason = _judge(measured.ratio, low, high, threshold)
    return replace(
        measured, verdict=verdict, reason=reason, low=low, high=high, p_value=p_value, method=method
    )


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


def _corrected(found: Speedup, adjusted: float) -> Speedup:
    p_value = max(adjusted, found.p_value or 0.0)
    if found.verdict not in (Verdict.FASTER, Verdict.SLOWER) or p_value <= 1 - found.confidence:
        return replace(found, p_value=p_value)
    why = f"{found.reason}: not beyond chance among as many comparisons (p {p_value:.2g})"
    return replace(found, p_value=p_value, verdict=Verdict.NO_CHANGE, reason=why)


def _blur(medians: tuple[float, float], resolution: float) -> float:
    """What rounding to the clock's step can do to the log of a ratio."""
    return resolution / 2 / medians[0] + resolution / 2 / medians[1]


def _level(confidence: float) -> float:
    return 1 - _SPENT * (1 - confidence)


def _is_look(rounds: int, look: int) -> bool:
    while look < rounds:
        look = math.ceil(1.25 * look)
    return look == rounds


def _interval(logs: Floats, confidence: float) -> _Interval:
    """The interval of the centre of the rounds' log ratios, made to hold for few rounds and wild noise."""
    count = len(logs)
    if not reaches(count, _level(confidence)):
        low, high = student_interval(logs, max(confidence, 0.99))
        stretch = math.log1p(_FEW_ROUNDS_ALLOWANCE)
        return low - stretch, high + stretch, f"Student plus 10%, only {count} rounds"
    rank_low, rank_high = signed_rank_interval(logs, _level(confidence))
    boot_low, boot_high = bootstrap_interval(logs, _level(confidence))
    method = "signed-rank and bootstrap over rounds, the wider"
    return min(rank_low, boot_low), max(rank_high, boot_high), method
