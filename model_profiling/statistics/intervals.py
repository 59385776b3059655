"""Intervals, tests and corrections on one log ratio per launch or round; zero means no difference."""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SPENT = 0.63
"""Measuring stops once the interval is narrow, which happens a little more often where the noise happens to
look small. An interval may use this share of the allowed error, so that stopping early stays below the whole
(`bench/lockstep_simulation.py`); about the least that six launches can reach."""


def level(confidence: float) -> float:
    """Confidence to compute intervals at, so that `confidence` still holds after stopping early."""
    return 1 - SPENT * (1 - confidence)


def can_reach(count: int, confidence: float) -> bool:
    """Whether `count` launches that all agree are rare enough by chance for this confidence: 6 for 95%."""
    return 2 * 0.5**count <= 1 - confidence


def pair_means(logs: Floats) -> Floats:
    first, second = np.triu_indices(len(logs))
    return (logs[first] + logs[second]) / 2


def centre(logs: Floats) -> float:
    """Hodges-Lehmann estimate: the median of all pair means, robust and hardly noisier than the mean."""
    return float(np.median(pair_means(logs)))


def signed_rank_interval(logs: Floats, confidence: float) -> tuple[float, float]:
    """The shifts that the signed-rank test would not reject: all but the outermost pair means."""
    refused = int(np.searchsorted(_rank_tail(len(logs)), (1 - confidence) / 2, side="right"))
    steps = np.sort(pair_means(logs))
    return float(steps[refused - 1]), float(steps[-refused])


@functools.cache
def _rank_tail(count: int) -> tuple[float, ...]:
    """P(T <= t) for every sum of ranks t of one side, when each launch falls on either side by chance."""
    ways = np.zeros(count * (count + 1) // 2 + 1)
    ways[0] = 1.0
    for rank in range(1, count + 1):
        ways[rank:] += ways[:-rank]
        ways /= 2
    return tuple(np.cumsum(ways).tolist())


# Student's distribution for whole degrees of freedom (Abramowitz and Stegun, 26.7). To import scipy for it
# takes longer than a report.


def student_within(reach: float, freedom: int) -> float:
    """The probability between `-reach` and `reach`."""
    angle = math.atan(reach / math.sqrt(freedom))
    term = total = math.sin(angle) * math.cos(angle) ** (freedom % 2) if freedom > 1 else 0.0
    for step in range(2 + freedom % 2, freedom - 1, 2):
        term *= (step - 1) / step * math.cos(angle) ** 2
        total += term
    return 2 / math.pi * (angle + total) if freedom % 2 else total


@functools.cache
def student_reach(freedom: int, confidence: float) -> float:
    """Where that probability is `confidence`, by Newton's steps, which come from below."""
    density = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    density /= math.sqrt(freedom * math.pi)
    before, reach = 0.0, 1.0
    while reach - before > 1e-15 * reach:
        slope = 2 * density * (1 + reach**2 / freedom) ** (-(freedom + 1) / 2)
        before, reach = reach, reach + (confidence - student_within(reach, freedom)) / slope
    return reach


def student_interval(logs: Floats, confidence: float) -> tuple[float, float]:
    mean, spread = float(logs.mean()), float(logs.std(ddof=1))
    reach = student_reach(len(logs) - 1, confidence) * spread / math.sqrt(len(logs))
    return mean - reach, mean + reach


def student_p(logs: Floats) -> float:
    """Student's test of the mean; heavy tails only make it more cautious."""
    spread = float(logs.std(ddof=1)) / math.sqrt(len(logs))
    mean = abs(float(logs.mean()))
    if spread == 0:
        return 0.0 if mean > 0 else 1.0
    return max(0.0, 1 - student_within(mean / spread, len(logs) - 1))


def welch(before: Floats, after: Floats, confidence: float) -> tuple[float, float, float]:
    """Interval and p-value of the mean of `before` minus that of `after`, which are not paired."""
    from scipy.special import stdtr, stdtrit

    shares = np.array([before.var(ddof=1) / len(before), after.var(ddof=1) / len(after)])
    error = math.sqrt(float(shares.sum()))
    shift = float(before.mean() - after.mean())
    if error == 0:
        return shift, shift, (1.0 if shift == 0 else 0.0)
    freedom = float(shares.sum() ** 2 / (shares**2 / [len(before) - 1, len(after) - 1]).sum())
    reach = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    return shift - reach, shift + reach, float(2 * stdtr(freedom, -abs(shift) / error))


def benjamini_hochberg(raw: Floats) -> Floats:
    """Benjamini and Hochberg's correction: keeps the expected share of false findings below the level."""
    order = np.argsort(raw, kind="stable")
    steps = raw[order] * len(raw) / np.arange(1, len(raw) + 1)
    return np.minimum(1.0, np.minimum.accumulate(steps[::-1])[::-1])[np.argsort(order)]
