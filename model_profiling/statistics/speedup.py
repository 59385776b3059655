"""Speedups from interleaved rounds: a ratio of latencies, its interval, and a verdict.

A round runs one process of each experiment, in random order. Iterations inside a process share its memory
layout, core and moment, so they are not independent; rounds are. Each round therefore counts once: as the log
of the ratio of its two processes' lower quartiles. Other work on the machine only ever adds time, so the
lower quartile suffers less from it than the median.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from model_profiling.core.errors import InputError
from model_profiling.statistics import verdict
from model_profiling.statistics.measure import unequal_error
from model_profiling.statistics.verdict import EXACT_ROUNDS, Correction, Floats, Interval, Speedup, Verdict

__all__ = ["EXACT_ROUNDS", "Speedup", "Verdict"]

Rounds = Sequence[Sequence[float]]
"""Iteration latencies of each round; empty for a round that failed."""

# Runs made at different times also differ by what the machine was doing then, which rounds cannot show.
_SEPARATE_RUNS_ALLOWANCE = 0.03


def compare_rounds(
    baseline: Rounds,
    candidate: Rounds,
    *,
    confidence: float = verdict.CONFIDENCE,
    practical_threshold: float = verdict.PRACTICAL_THRESHOLD,
    resolution: float = 0.0,
    disturbances: Sequence[float] = (),
    not_comparable: str | None = None,
) -> Speedup:
    """Compare experiments measured in the same rounds: `baseline[i]` and `candidate[i]` ran side by side.

    The interval is the wider of a bootstrap over rounds and the exact signed-rank interval; the verdict
    follows from it alone. `resolution` is the clock's step in the latencies' unit and widens the interval
    (operators inside a delegate are timed in whole microseconds). `not_comparable` says why the latencies
    must not be compared (emulated times, different models); the result then has no ratio. `disturbances` says
    by what share other programs can have raised each side's times.
    """
    if not_comparable:
        return verdict.no_answer(not_comparable, confidence)
    typical = paired_typical(baseline, candidate)
    if len(typical) == 0:
        return verdict.no_answer("no round was completed by both experiments", confidence)
    if (typical == 0).any():
        return verdict.no_answer("shorter than the clock can measure", confidence, len(typical))
    logs = _log_ratios(typical)
    medians = _medians(baseline, candidate)
    # Contention may throw up to half of the rounds far without moving the median.
    found = verdict.measured(float(np.median(logs)), medians, confidence, len(logs))
    if len(logs) < verdict.FEWEST_ROUNDS:
        return found
    p_value = (
        verdict.signed_rank_p(logs)
        if verdict.can_reach(len(logs), verdict.level(confidence))
        else verdict.student_p(logs)
    )
    assert found.ratio is not None
    interval = _interval(logs, confidence)
    stretch = verdict.clock_error(medians, resolution) + unequal_error(found.ratio, disturbances)
    return verdict.answer(found, interval, verdict.alpha_spent(p_value), practical_threshold, stretch)


def compare_separate(
    baseline: Rounds,
    candidate: Rounds,
    *,
    confidence: float = verdict.CONFIDENCE,
    practical_threshold: float = verdict.PRACTICAL_THRESHOLD,
    resolution: float = 0.0,
    disturbances: Sequence[float] = (),
    not_comparable: str | None = None,
) -> Speedup:
    """Compare experiments that were not interleaved, such as yesterday's run and today's: each side is
    resampled separately and the interval is stretched by 3%."""
    if not_comparable:
        return verdict.no_answer(not_comparable, confidence)
    ours, theirs = round_typical(baseline), round_typical(candidate)
    if not len(ours) or not len(theirs):
        return verdict.no_answer("one of the two runs completed no round", confidence)
    if (ours == 0).any() or (theirs == 0).any():
        return verdict.no_answer(
            "shorter than the clock can measure", confidence, min(len(ours), len(theirs))
        )
    before, after = np.log(ours), np.log(theirs)
    medians = _medians(baseline, candidate)
    rounds = min(len(before), len(after))
    found = verdict.measured(float(np.median(before[:, None] - after[None, :])), medians, confidence, rounds)
    if rounds < verdict.FEWEST_ROUNDS:
        return found
    low, high, p_value = verdict.welch(before, after, confidence)
    interval = low, high, "separate runs, Welch and bootstrap, plus 3%"
    assert found.ratio is not None
    stretch = math.log1p(_SEPARATE_RUNS_ALLOWANCE) + verdict.clock_error(medians, resolution)
    stretch += unequal_error(found.ratio, disturbances)
    return verdict.answer(found, interval, p_value, practical_threshold, stretch)


def precise_enough(
    baseline: Rounds,
    candidate: Rounds,
    target_relative_half_width: float,
    minimum_rounds: int = EXACT_ROUNDS,
    *,
    confidence: float = verdict.CONFIDENCE,
) -> bool:
    """Whether measuring may stop because the interval is narrow.

    Only the width counts, never the verdict: stopping as soon as the answer pleases makes repeated looks find
    differences that do not exist. Looks are spaced out (after 6, 8, 10, 13, 17, ... rounds); in between the
    answer is False.
    """
    typical = paired_typical(baseline, candidate)
    if not verdict.is_look(len(typical), max(minimum_rounds, EXACT_ROUNDS)) or (typical == 0).any():
        return False
    if not verdict.can_reach(len(typical), verdict.level(confidence)):
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
    """Compare every operator or category, with verdicts corrected for the number of comparisons.

    Holm keeps the chance of any false verdict below 5% (few comparisons: categories); Benjamini-Hochberg
    keeps the share of false verdicts below 5% (many: operators). The rank test is too coarse to correct
    (eight rounds cannot give less than 0.8%), so the correction uses Student's test, or Welch's where the
    rounds were not `interleaved`.
    """
    compare = partial(compare_rounds if interleaved else compare_separate, resolution=resolution)

    def p_value(found: Speedup, baseline: Rounds, candidate: Rounds) -> float:
        if interleaved:
            return verdict.student_p(_log_ratios(paired_typical(baseline, candidate)))
        assert found.p_value is not None  # Welch's, which is fine enough to correct
        return found.p_value

    return verdict.correct_each(pairs, compare, p_value, correction)


def median_interval(rounds: Rounds, confidence: float = verdict.CONFIDENCE) -> tuple[float, float] | None:
    """Interval of the median inference, from how much whole rounds differ; None with too few rounds."""
    medians = _checked(np.array([np.median(latencies) for latencies in rounds if len(latencies)], np.float64))
    if len(medians) < verdict.FEWEST_ROUNDS or (medians == 0).any():
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
    """Log of baseline over candidate for each round: above zero where the candidate is faster."""
    logs: Floats = np.log(typical[:, 0] / typical[:, 1])
    return logs


def _checked(latencies: Floats) -> Floats:
    if not (np.isfinite(latencies).all() and (latencies >= 0).all()):
        raise InputError("a latency is negative or not a number", "leave out rounds that failed")
    return latencies


def _medians(baseline: Rounds, candidate: Rounds) -> tuple[float, float]:
    """Medians of all iterations: people compare these, so they are shown; the ratio decides."""
    return float(np.median(np.concatenate(baseline))), float(np.median(np.concatenate(candidate)))


def _interval(logs: Floats, confidence: float) -> Interval:
    """Interval of the centre of the log ratios; robust for few rounds and heavy noise."""
    if not verdict.can_reach(len(logs), verdict.level(confidence)):
        return verdict.few_interval(logs, confidence, "round")
    rank_low, rank_high = verdict.signed_rank_interval(logs, verdict.level(confidence))
    boot_low, boot_high = verdict.bootstrap_interval(logs, verdict.level(confidence))
    method = "signed-rank and bootstrap over rounds, the wider"
    return min(rank_low, boot_low), max(rank_high, boot_high), method
