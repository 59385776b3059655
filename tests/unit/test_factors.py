"""Amdahl's law, and the curve of threads."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_profiling.analysis.coverage import speedup_of
from model_profiling.analysis.series_views import thread_curve

FREE = float("inf")


def test_amdahl_by_hand() -> None:
    assert speedup_of([]) == 1 and speedup_of([(0.5, 2)]) == pytest.approx(1 / 0.75)
    assert speedup_of([(0.6, 3), (0.3, 15)]) == pytest.approx(1 / (0.1 + 0.2 + 0.02))
    assert speedup_of([(0.8, FREE)]) == pytest.approx(5)
    assert speedup_of([(0.5, 0.5)]) == pytest.approx(1 / 1.5), "slower operators make the whole slower"
    assert speedup_of([(1.0, FREE)]) == math.inf


parts_of = st.lists(st.floats(0, 1), max_size=4)
shares = parts_of.map(lambda parts: [part / max(sum(parts), 1) for part in parts])
bounds = st.tuples(st.floats(0.1, 50), st.floats(0.1, 50)).map(sorted)


@given(shares, st.lists(bounds, min_size=4, max_size=4))
def test_low_high_and_ceiling_stand_in_that_order(parts: list[float], factors: list[list[float]]) -> None:
    low, high = (speedup_of(zip(parts, (each[side] for each in factors), strict=False)) for side in (0, 1))
    ceiling = speedup_of([(sum(parts), FREE)])
    nearly = 1 + 1e-9
    assert 0 < low <= high * nearly and high <= ceiling * nearly


def test_the_fewest_threads_that_are_as_fast_are_named() -> None:
    measured = [(1, 8.0, None), (2, 4.4, None), (4, 3.0, None), (8, 2.95, None)]
    curve = thread_curve("on", measured, has_sme2=False)
    assert curve is not None and curve.recommended == 4 and not curve.sme2_shared
    assert [point.efficiency for point in curve.points] == pytest.approx([1, 0.909, 0.667, 0.339], abs=1e-3)
    shared = thread_curve("on", measured, has_sme2=True)
    assert shared is not None and shared.sme2_shared
    assert thread_curve("on", measured[:1], has_sme2=True) is None
