"""Intervals, tests and corrections for few, wild measurements: what `speedup` rests its verdicts on.

Everything works on one number per round, on the log scale; zero means no difference.
"""

from __future__ import annotations

import bisect
import functools
import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# The tails of few rounds lie far out; with many rounds fewer are needed, and each costs more.
_RESAMPLES = 2000
# A fixed seed: the same measurements must give the same interval whenever they are analysed.
_SEED = 20240229


def reaches(count: int, confidence: float) -> bool:
    """Whether `count` rounds that all agree are rare enough by chance for this confidence: 6 for 95%."""
    return 2 * 0.5**count <= 1 - confidence


def signed_rank_interval(logs: Floats, confidence: float, cap: int | None = None) -> tuple[float, float]:
    """The signed-rank test turned round: every shift it would not refuse. Exact for any symmetric noise.

    Without a difference the two experiments of a round may swap names, which makes the noise symmetric.
    """
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
    """How rarely rounds without a difference lean this far to one side; a round of exactly zero counts for
    the other side.
    """
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
