"""Series and pairs: who is compared with whom, and how that is called."""

from __future__ import annotations

import pytest

from model_profiling.run import Series
from model_profiling.run.series import Switch, default_label, make_pair, natural_pairs, switch_in_name


def pairs_of(*names: str, threads: tuple[int | None, ...] = (1,)) -> list[tuple[str, str]]:
    """Baseline and candidate of the pairs among experiments whose names say whether SME2 is on."""
    series = [Series(name, count) for name in names for count in threads]
    found = natural_pairs((each, switch_in_name(each.experiment)) for each in series)
    return [(str(pair.baseline), str(pair.candidate)) for pair in found]


def test_off_is_paired_with_on_at_each_number_of_threads() -> None:
    assert pairs_of("x_sme2_on", "x_sme2_off", threads=(1, 4)) == [
        ("x_sme2_off, 1 thread", "x_sme2_on, 1 thread"),
        ("x_sme2_off, 4 threads", "x_sme2_on, 4 threads"),
    ]
    assert pairs_of("x_sme2_on", "x_sme2_off", threads=(None,)) == [("x_sme2_off", "x_sme2_on")]


def test_two_couples_are_two_pairs_not_four() -> None:
    assert pairs_of("a_sme2_on", "a_sme2_off", "b_sme2_on", "b_sme2_off", threads=(None,)) == [
        ("a_sme2_off", "a_sme2_on"),
        ("b_sme2_off", "b_sme2_on"),
    ]


def test_names_that_differ_in_more_are_a_pair_only_when_nothing_else_is_there() -> None:
    switches: list[tuple[Series, Switch | None]] = [(Series("fast"), "on"), (Series("slow"), "off")]
    (pair,) = natural_pairs(switches)
    assert (pair.baseline, pair.candidate) == (Series("slow"), Series("fast"))
    assert natural_pairs([*switches, (Series("third"), None)]) == ()
    assert natural_pairs([(Series("fast", 1), "on"), (Series("slow", 2), "off")]) == ()


def test_without_a_switch_there_is_nothing_to_pair() -> None:
    assert pairs_of("one", "two") == pairs_of("a_sme2_on", "b_sme2_on") == pairs_of() == []


@pytest.mark.parametrize(
    ("text", "switch"),
    [
        ("mac_sme2_on", "on"),
        ("SME2-On", "on"),
        ("cmake-out/mac-arm64-sme2-off/executor_runner", "off"),
        ("no_sme2", "off"),
        ("without-sme2_on", "off"),
        ("mac_sme2", None),
        ("on", None),
    ],
)
def test_what_a_name_says_about_sme2(text: str, switch: Switch | None) -> None:
    assert switch_in_name(text) == switch


def test_a_label_puts_what_is_looked_at_first() -> None:
    off, on = Series("off", 1), Series("on", 1)
    assert default_label(off, on) == make_pair(off, on).label == "on vs off, 1 thread"
    assert default_label(off, Series("on", 4)) == "on, 4 threads vs off, 1 thread"
    assert default_label(Series("off"), Series("on")) == "on vs off"
    assert make_pair(off, on, "what SME2 buys").label == "what SME2 buys"
