"""Amdahl's law, and the factors it is used with."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_profiling.analysis.coverage import speedup_of

FREE = float("inf")


def test_amdahl_by_hand() -> None:
    assert speedup_of([]) == 1
    assert speedup_of([(0.5, 2)]) == pytest.approx(1 / 0.75)
    assert speedup_of([(0.6, 3), (0.3, 15)]) == pytest.approx(1 / (0.1 + 0.2 + 0.02))
    assert speedup_of([(0.8, FREE)]) == pytest.approx(5)
    assert speedup_of([(0.5, 0.5)]) == pytest.approx(1 / 1.5), "slower operators make the whole slower"
    assert speedup_of([(1.0, FREE)]) == math.inf


shares = st.lists(st.floats(0, 1), max_size=4).map(
    lambda parts: [part / max(sum(parts), 1) for part in parts]
)
bounds = st.tuples(st.floats(0.1, 50), st.floats(0.1, 50)).map(sorted)


@given(shares, st.lists(bounds, min_size=4, max_size=4))
def test_low_high_and_ceiling_stand_in_that_order(parts: list[float], factors: list[list[float]]) -> None:
    low, high = (speedup_of(zip(parts, (each[side] for each in factors), strict=False)) for side in (0, 1))
    ceiling = speedup_of([(sum(parts), FREE)])
    nearly = 1 + 1e-9
    assert 0 < low <= high * nearly and high <= ceiling * nearly
