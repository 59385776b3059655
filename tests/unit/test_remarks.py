"""Warnings: one line per kind, whom it concerns, the most important first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from model_profiling.run.remarks import Diagnostic, Weight, name_series, warning_lines
from model_profiling.run.series import Series
from model_profiling.statistics.latency import (
    Conditions,
    StabilityWarning,
    latency_warnings,
    machine_warnings,
)

ON1, ON2, OFF1, OFF2 = (Series(name, count) for name in ("on", "off") for count in (1, 2))


def texts(*remarks: Diagnostic) -> list[str]:
    return [line.text for line in warning_lines(remarks)]


def test_one_kind_is_one_line_however_many_it_concerns() -> None:
    spread = [
        Diagnostic(series, "spread", f"latencies spread by {share}%", "stop other work")
        for series, share in ((ON1, 71), (ON2, 12), (OFF1, 89))
    ]
    (line,) = warning_lines(spread)
    assert line.text == "on, 1 and 2 threads; off, 1 thread: latencies spread by 12 to 89%; stop other work"
    assert (line.kind, line.series) == ("spread", (ON1, ON2, OFF1))


def test_every_figure_of_a_sentence_becomes_a_range() -> None:
    groups = [
        Diagnostic(ON1, "bimodal", "two groups, around 3.726 and 8.2 (73% in the slower)"),
        Diagnostic(OFF1, "bimodal", "two groups, around 3.719 and 8.2 (53% in the slower)"),
    ]
    assert texts(*groups) == [
        "on and off, 1 thread: two groups, around 3.719 to 3.726 and 8.2 (53 to 73% in the slower)"
    ]


def test_what_differs_in_words_is_said_apart_on_the_same_line() -> None:
    drift = [
        Diagnostic(ON1, "drift", "became 3% slower", "let it cool down"),
        Diagnostic(OFF1, "drift", "became 4% faster", "let it cool down"),
    ]
    assert texts(*drift) == [
        "on, 1 thread: became 3% slower; off, 1 thread: became 4% faster; let it cool down"
    ]


def test_numbers_that_are_no_measurement_are_never_made_a_range() -> None:
    failed = [
        Diagnostic(ON1, "failed", "exit code 10", "look"),
        Diagnostic(OFF1, "failed", "exit code 11", "look"),
    ]
    assert texts(*failed) == ["on, 1 thread: exit code 10; off, 1 thread: exit code 11; look"]
    missing = [
        Diagnostic(None, "missing_dump", f"the dump a_t{number}.etdump is missing") for number in range(7)
    ]
    (text,) = texts(*missing)
    assert text.count("is missing") == 4 and text.endswith("and 3 more")


def test_each_failure_keeps_its_own_fix() -> None:
    failed = [
        Diagnostic(ON1, "failed", "no file", "make it"),
        Diagnostic(OFF1, "failed", "no room", "free some"),
    ]
    assert texts(*failed) == ["on, 1 thread: no file; make it; off, 1 thread: no room; free some"]


def test_the_most_important_stands_first_whatever_the_order_they_arose_in() -> None:
    codes = ("note", "spread", "governor", "misfit", "not_tested", "failed", "outputs")
    lines = warning_lines(Diagnostic(None, code, code) for code in codes)
    assert [line.kind for line in lines] == [
        *("outputs", "failed", "not_tested", "misfit", "governor", "spread", "note")
    ]
    assert [line.weight for line in lines] == sorted(line.weight for line in lines)


def test_every_doubt_of_stability_has_its_weight() -> None:
    bad = Conditions(2, "powersave", 9.0, 30.0, 60.0, True)
    ramp = [[10.0 + turn, *(1.0 + turn,) * 3] for turn in range(4)]
    found: tuple[StabilityWarning, ...] = (*machine_warnings(bad, threads=4), *latency_warnings(ramp))
    assert len(found) > 6
    weights = {Diagnostic(None, one.code, one.seen, one.advice).weight for one in found}
    assert weights == {Weight.UNSTABLE}


@pytest.mark.parametrize(
    ("series", "named"),
    [
        ((ON1,), "on, 1 thread"),
        ((ON1, OFF1, ON2, OFF2), "on and off, 1 and 2 threads"),
        ((ON1, OFF2, replace(OFF2, experiment="third")), "on, 1 thread; off and third, 2 threads"),
        ((Series("on", 4), ON1, ON2), "on, 1, 2 and 4 threads"),
        ((Series("bare"), Series("other")), "bare and other"),
        ((), ""),
    ],
)
def test_series_are_named_together(series: tuple[Series, ...], named: str) -> None:
    assert name_series(series) == named


def test_a_line_names_as_many_as_a_person_reads() -> None:
    many = [Series(f"e{number}", 1) for number in range(1000)]
    assert name_series(many) == f"{', '.join(f'e{n}' for n in range(12))} and 988 more, 1 thread"
    assert name_series(many[:13]).endswith("e11 and e12, 1 thread")
