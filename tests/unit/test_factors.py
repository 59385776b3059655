"""Amdahl's law, the factors it is used with, and the published cases that the document works out."""

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_profiling.analysis.coverage import speedup_of

DOCUMENT = Path(__file__).resolve().parents[2] / "bench" / "figures" / "headroom.md"
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


def share_for(speedup: float, factor: float) -> float | None:
    """The share of the time that must get `factor` times faster to make the whole `speedup` times faster."""
    share = (1 - 1 / speedup) / (1 - 1 / factor)
    return share if share <= 1 else None


def test_the_published_cases_are_worked_out_right() -> None:
    rows = re.findall(
        r"^\| SqueezeSAM (\w+), (\d+) to (\d+) ms \| ([\d.]+)x \|(.+)\|$", DOCUMENT.read_text(), re.MULTILINE
    )
    assert [row[:3] for row in rows] == [("fp16", "1163", "298"), ("int8", "556", "304")]
    for _, before, after, ratio, cells in rows:
        speedup = int(before) / int(after)
        assert f"{speedup:.2f}" == ratio
        for factor, cell in zip((3, 5, 10, 15, FREE), cells.split("|"), strict=True):
            share = share_for(speedup, factor)
            assert cell.strip() == ("none" if share is None else f"{100 * share:.1f}%")
            if share is not None:
                assert speedup_of([(share, factor)]) == pytest.approx(speedup)
    speedup = 1163 / 298
    assert share_for(speedup, speedup * 0.999) is None
    assert share_for(speedup, speedup) == pytest.approx(1)
    assert f"{speedup:.1f} times" in DOCUMENT.read_text()
