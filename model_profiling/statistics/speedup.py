"""Speedups that hold: a ratio of latencies measured in interleaved rounds, its interval, and a verdict.

A round runs one process of each experiment, in random order. Iterations inside a process share whatever
that process was dealt (memory layout, core, moment), so they are not independent measurements; rounds are.
Every round therefore counts as one: the log of the ratio of its two processes' lower quartiles. Other work
on the machine only ever adds time, so a process's lower quartile is less its victim than the median is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from model_profiling.core.errors import InputError
from model_profiling.statistics.verdict import (
    CONFIDENCE,
    EXACT_ROUNDS,
    FEWEST_ROUNDS,
    PRACTICAL_THRESHOLD,
    Correction,
    Floats,
    Interval,
    Speedup,
    Verdict,
    alpha_spent,
    answer,
    bootstrap_interval,
    can_reach,
    clock_error,
    correct_each,
    few_interval,
    is_look,
    level,
    measured,
    no_answer,
    signed_rank_interval,
    signed_rank_p,
    student_p,
    welch,
)

__all__ = [
    "CONFIDENCE",
    "EXACT_ROUNDS",
    "FEWEST_ROUNDS",
    "PRACTICAL_THRESHOLD",
    "Rounds",
    "Speedup",
    "Verdict",
    "compare_many",
    "compare_rounds",
    "compare_separate",
    "median_interval",
    "paired_typical",
    "precise_enough",
    "round_typical",
]

Rounds = Sequence[Sequence[float]]
"""One sequence of iteration latencies per round; an empty one marks a round that failed."""

# Runs made at different times differ by what the machine was doing then, which no round can show.
_SEPARATE_RUNS_ALLOWANCE = 0.03


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
        return no_answer(not_comparable, confidence)
    typical = paired_typical(baseline, candidate)
    if len(typical) == 0:
        return no_answer("no round finished in both experiments", confidence)
    if (typical == 0).any():
        return no_answer("shorter than the clock can tell", confidence, len(typical))
    logs = _log_ratios(typical)
    medians = _medians(baseline, candidate)
    # The median of the rounds: half of them may be thrown far by contention without moving it.
    found = measured(float(np.median(logs)), medians, confidence, len(logs))
    if len(logs) < FEWEST_ROUNDS:
        return found
    p_value = signed_rank_p(logs) if can_reach(len(logs), level(confidence)) else student_p(logs)
    interval, stretch = _interval(logs, confidence), clock_error(medians, resolution)
    return answer(found, interval, alpha_spent(p_value), practical_threshold, stretch)


def compare_separate(
    baseline: Rounds,
    candidate: Rounds,
    *,
    confidence: float = CONFIDENCE,
    practical_threshold: float = PRACTICAL_THRESHOLD,
    resolution: float = 0.0,
    not_comparable: str | None = None,
) -> Speedup:
    """Compare experiments that were not interleaved, such as yesterday's run and today's: each side is
    resampled by itself and the interval is stretched by 3%."""
    if not_comparable:
        return no_answer(not_comparable, confidence)
    ours, theirs = round_typical(baseline), round_typical(candidate)
    if not len(ours) or not len(theirs):
        return no_answer("no round finished in one of the two runs", confidence)
    if (ours == 0).any() or (theirs == 0).any():
        return no_answer("shorter than the clock can tell", confidence, min(len(ours), len(theirs)))
    before, after = np.log(ours), np.log(theirs)
    medians = _medians(baseline, candidate)
    rounds = min(len(before), len(after))
    found = measured(float(np.median(before[:, None] - after[None, :])), medians, confidence, rounds)
    if rounds < FEWEST_ROUNDS:
        return found
    low, high, p_value = welch(before, after, confidence)
    interval = low, high, "separate runs, Welch and bootstrap, plus 3%"
    stretch = math.log1p(_SEPARATE_RUNS_ALLOWANCE) + clock_error(medians, resolution)
    return answer(found, interval, p_value, practical_threshold, stretch)


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
    if not is_look(len(typical), max(minimum_rounds, EXACT_ROUNDS)) or (typical == 0).any():
        return False
    if not can_reach(len(typical), level(confidence)):
        return False
    low, high, _ = _interval(_log_ratios(typical), confidence)
    return high - low <= 2 * math.log1p(target_relative_half_width)


def compare_many(
    pairs: Mapping[str, tuple[Rounds, Rounds]],
    *,
    correction: Correction = "benjamini-hochberg",
    resolution: float = 0.0,
    interleaved: bool = True,
) -> dict[str, Speedup]:
    """Compare every operator or category at once, with the verdicts corrected for how many were asked.

    Holm keeps the chance of any false verdict below 5% (few questions: categories); Benjamini-Hochberg
    keeps the share of false verdicts below 5% (many questions: operators). The rank test is too coarse to
    be corrected (eight rounds cannot give less than 0.8%), so the correction works on Student's test, and
    on Welch's where the rounds were not `interleaved`.
    """
    compare = partial(compare_rounds if interleaved else compare_separate, resolution=resolution)

    def p_value(found: Speedup, baseline: Rounds, candidate: Rounds) -> float:
        if interleaved:
            return student_p(_log_ratios(paired_typical(baseline, candidate)))
        assert found.p_value is not None  # Welch's, which can be corrected as it is
        return found.p_value

    return correct_each(pairs, compare, p_value, correction)


def median_interval(rounds: Rounds, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Where the median of an inference lies, by how far whole rounds differ; None with too few to say."""
    medians = _checked(np.array([np.median(latencies) for latencies in rounds if len(latencies)], np.float64))
    if len(medians) < FEWEST_ROUNDS or (medians == 0).any():
        return None
    low, high, _ = _interval(np.log(medians), confidence)
    whole = float(np.median(np.concatenate([latencies for latencies in rounds if len(latencies)])))
    return min(math.exp(low), whole), max(math.exp(high), whole)


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


def _medians(baseline: Rounds, candidate: Rounds) -> tuple[float, float]:
    """Of all iterations: what people compare, shown beside the ratio that decides."""
    return float(np.median(np.concatenate(baseline))), float(np.median(np.concatenate(candidate)))


def _interval(logs: Floats, confidence: float) -> Interval:
    """The interval of the centre of the rounds' log ratios, made to hold for few rounds and wild noise."""
    if not can_reach(len(logs), level(confidence)):
        return few_interval(logs, confidence, "round")
    rank_low, rank_high = signed_rank_interval(logs, level(confidence))
    boot_low, boot_high = bootstrap_interval(logs, level(confidence))
    method = "signed-rank and bootstrap over rounds, the wider"
    return min(rank_low, boot_low), max(rank_high, boot_high), method
