"""Numbers and words for people, and rounding that adds up."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_profiling.core.formatting import (
    change,
    milliseconds,
    percent,
    plural,
    rounded_parts,
    size,
    span,
    span_of,
    speedup,
    with_threads,
)


def test_words_in_the_plural_and_small_sizes() -> None:
    words = ("round", "launch", "series")
    assert [plural(2, word) for word in words] == ["2 rounds", "2 launches", "2 series"]
    assert [size(count) for count in (1, 12, 1500, 2.5e6)] == ["1 byte", "12 bytes", "1.5 kB", "2.5 MB"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0.0, "0.0000"),
        (0.000004, "0.000004"),
        (0.005126, "0.00513"),
        (0.01234, "0.0123"),
        (1.23456, "1.235"),
        (12.3456, "12.35"),
        (1234.56, "1234.6"),
    ],
)
def test_milliseconds_keep_the_figures_that_count(value: float | None, shown: str) -> None:
    assert milliseconds(value) == shown


def test_a_span_whose_ends_look_alike_is_one_figure() -> None:
    assert (span("1.2x", "3.4x"), span("1.2x", "1.2x")) == ("1.2x to 3.4x", "1.2x")
    assert span_of([2.04, 3.0, 1.0], ".1f") == "1.0 to 3.0"
    assert span_of([2.04, 2.01], ".1f") == "2.0"


def test_numbers_for_people() -> None:
    assert (percent(0.1234), percent(None)) == ("12.3%", "-")
    assert (change(2.0), change(0.8), change(1.0), change(None)) == ("-50.0%", "+25.0%", "+0.0%", "-")
    assert (speedup(1.984), speedup(None)) == ("1.98x", "-")
    assert (size(2_500_000), size(1500), size(None)) == ("2.5 MB", "1.5 kB", "-")
    assert (plural(1, "round"), plural(0, "round")) == ("1 round", "0 rounds")
    assert (with_threads("on", 2), with_threads("on", None)) == ("on, 2 threads", "on")


parts_of_time = st.lists(st.integers(0, 10**9) | st.integers(-(10**6), 10**6), min_size=1, max_size=30)


@given(parts_of_time, st.integers(0, 4))
def test_rounded_parts_add_up_and_none_moves_by_more_than_its_last_digit(nanoseconds, decimals):
    parts, whole = [value / 1e6 for value in nanoseconds], sum(nanoseconds) / 1e6
    shown = rounded_parts(parts, whole, decimals)
    last_digits = [round(value * 10**decimals) for value in shown]
    assert sum(last_digits) == Decimal(f"{whole:.{decimals}f}") * 10**decimals, "as the whole is printed"
    for part, value in zip(parts, shown, strict=True):
        assert abs(value - part) < 10**-decimals * (1 + 1e-9)
        assert value >= 0 or part < 0, "what took no time takes none on the page"


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=30), st.integers(0, 4))
def test_parts_that_need_no_rounding_stay_as_they_are(units: list[int], decimals: int) -> None:
    parts = [value / 10**decimals for value in units]
    assert rounded_parts(parts, sum(units) / 10**decimals, decimals) == parts


def test_rounding_nothing_gives_nothing() -> None:
    assert rounded_parts([], 1.0, 2) == []
