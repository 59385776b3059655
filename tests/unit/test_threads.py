"""The curve of threads, and the number to use."""

from __future__ import annotations

import pytest

from model_profiling.analysis.costs import thread_curve


def test_the_fewest_threads_that_are_as_fast_are_named() -> None:
    measured = [(1, 8.0, None), (2, 4.4, None), (4, 3.0, None), (8, 2.95, None)]
    curve = thread_curve("on", measured, has_sme2=False)
    assert curve is not None and curve.recommended == 4 and not curve.sme2_shared
    assert [point.efficiency for point in curve.points] == pytest.approx([1, 0.909, 0.667, 0.339], abs=1e-3)
    shared = thread_curve("on", measured, has_sme2=True)
    assert shared is not None and shared.sme2_shared
    assert thread_curve("on", measured[:1], has_sme2=True) is None
