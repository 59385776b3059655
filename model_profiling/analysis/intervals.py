"""Intervals, tests and corrections for few, wild measurements: what `speedup` rests its verdicts on.

Everything works on one number per round, on the log scale; zero means no difference.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_RESAMPLES = (
    2000  # the tails of few rounds lie far out; with many rounds fewer are needed, and each costs more
)
# A fixed seed: the same measurements must give the same interval whenever they are analysed.
_SEED = 20240229


def _walsh(values: Floats) -> Floats:
    """The means of all pairs, each value with itself included."""
    first, second = np.triu_indices(values.shape[-1])
    averages: Floats = (values[..., first] + values[..., second]) / 2
    return averages


def centre(logs: Floats) -> float:
    """Hodges and Lehmann's estimate: nearly as sharp as the mean, and a spoilt round hardly moves it."""
    return float(np.median(_walsh(logs)))


@functools.cache
def _rank_sum_tail(count: int) -> tuple[float, ...]:
    """P(T <= t) for every value t of the signed-rank sum of `count` rounds without a difference."""
    ways = np.zeros(count * (count + 1) // 2 + 1)
    ways[0] = 1.0
    for rank in range(1, count + 1):
        shifted = np.zeros_like(ways)
        shifted[rank:] = ways[: len(ways) - rank]
        ways = (ways + shifted) / 2
    return tuple(float(tail) for tail in np.cumsum(ways))


def reaches(count: int, confidence: float) -> bool:
    """Whether `count` rounds that all agree are rare enough by chance for this confidence: 6 for 95%."""
    return 2 * 0.5**count <= 1 - confidence


def signed_rank_interval(logs: Floats, confidence: float) -> tuple[float, float]:
    """Wilcoxon's test turned round: every shift it would not refuse. Exact for any symmetric noise.

    Without a difference the two experiments of a round may swap names, which makes the noise symmetric.
    """
    averages = np.sort(_walsh(logs))
    tail = np.array(_rank_sum_tail(len(logs)))
    skipped = int(np.searchsorted(tail, (1 - confidence) / 2, side="right"))
    return float(averages[skipped - 1]), float(averages[-skipped])


def signed_rank_p(logs: Floats) -> float:
    """How rarely rounds without a difference lean this far to one side; ties count half."""
    averages = _walsh(logs)
    above = float(np.count_nonzero(averages > 0) + np.count_nonzero(averages == 0) / 2)
    smaller = math.floor(min(above, len(averages) - above))
    return min(1.0, 2 * _rank_sum_tail(len(logs))[smaller])


def bootstrap_interval(logs: Floats, confidence: float) -> tuple[float, float]:
    """Resampled rounds; iterations are not resampled again, their spread is already in the rounds' medians.

    The plain percentile interval is too narrow for few rounds; its percentiles are moved outwards by as
    much as Student's distribution is wider than the normal one.
    """
    from scipy.special import ndtr, stdtrit

    count = len(logs)
    centres = _resampled_centres(logs)
    reach = stdtrit(count - 1, (1 + confidence) / 2) * math.sqrt(count / (count - 1))
    outside = float(ndtr(-reach))
    low, high = np.quantile(centres, [outside, 1 - outside])
    return float(low), float(high)


def _resampled_centres(logs: Floats) -> Floats:
    """`centre` of every resample, all at once: a resample only changes how often each pair's mean counts."""
    count = len(logs)
    first, second = np.triu_indices(count)
    order = np.argsort(_walsh(logs), kind="stable")
    averages, first, second = _walsh(logs)[order], first[order], second[order]
    generator = np.random.default_rng(_SEED)
    centres = []
    for batch in _batches(max(400, min(_RESAMPLES, 40_000 // count)), len(averages)):
        drawn = generator.multinomial(count, np.full(count, 1 / count), batch).astype(np.int32)
        ours, theirs = np.take(drawn, first, axis=1), np.take(drawn, second, axis=1)
        weights = np.where(first == second, ours * (ours + 1) // 2, ours * theirs)
        below = np.cumsum(weights, axis=1, dtype=np.int32)
        half = len(averages) / 2
        lower, upper = np.argmax(below >= half, axis=1), np.argmax(below > half, axis=1)
        centres.append((averages[lower] + averages[upper]) / 2)
    return np.concatenate(centres)


def _batches(total: int, width: int) -> list[int]:
    """Split `total` resamples so that one batch of `width` columns stays within some megabytes."""
    size = max(1, min(total, 500_000 // width))
    return [size] * (total // size) + ([total % size] if total % size else [])


def student_interval(logs: Floats, confidence: float) -> tuple[float, float]:
    """The classic interval of the mean."""
    from scipy.special import stdtrit

    reach = (
        float(stdtrit(len(logs) - 1, (1 + confidence) / 2)) * float(logs.std(ddof=1)) / math.sqrt(len(logs))
    )
    return float(logs.mean()) - reach, float(logs.mean()) + reach


def student_p(logs: Floats) -> float:
    """The classic test of the mean; heavy tails only make it more cautious."""
    from scipy.special import stdtr

    spread = float(logs.std(ddof=1)) / math.sqrt(len(logs))
    mean = abs(float(logs.mean()))
    if spread == 0:
        return 0.0 if mean > 0 else 1.0
    return float(2 * stdtr(len(logs) - 1, -mean / spread))


def welch(before: Floats, after: Floats, confidence: float) -> tuple[float, float, float]:
    """Interval and p-value of `before - after` for measurements that cannot be paired; the wider of Welch's
    interval and a bootstrap of the two medians.
    """
    from scipy.special import stdtr, stdtrit

    shares = np.array([before.var(ddof=1) / len(before), after.var(ddof=1) / len(after)])
    error = math.sqrt(float(shares.sum()))
    shift = float(before.mean() - after.mean())
    if error == 0:
        return shift, shift, (1.0 if shift == 0 else 0.0)
    freedom = float(shares.sum() ** 2 / (shares**2 / [len(before) - 1, len(after) - 1]).sum())
    reach = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    generator = np.random.default_rng(_SEED)
    ours = before[generator.integers(0, len(before), (_RESAMPLES, len(before)))]
    theirs = after[generator.integers(0, len(after), (_RESAMPLES, len(after)))]
    outside = (1 - confidence) / 2
    low, high = np.quantile(np.median(ours, axis=1) - np.median(theirs, axis=1), [outside, 1 - outside])
    return (
        min(float(low), shift - reach),
        max(float(high), shift + reach),
        float(2 * stdtr(freedom, -abs(shift) / error)),
    )


def holm(raw: Floats) -> Floats:
    """P-values that keep the chance of any false finding below the level, by Holm's steps."""
    order = np.argsort(raw, kind="stable")
    steps = np.maximum.accumulate(raw[order] * np.arange(len(raw), 0, -1))
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(1.0, steps)
    return adjusted


def benjamini_hochberg(raw: Floats) -> Floats:
    """P-values that keep the expected share of false findings below the level."""
    order = np.argsort(raw, kind="stable")
    steps = raw[order] * len(raw) / np.arange(1, len(raw) + 1)
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(1.0, np.minimum.accumulate(steps[::-1])[::-1])
    return adjusted
