"""The pieces reports are written with: cells, numbers, sentences of verdicts."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_profiling.report.comparison_text import comparison_junit, comparison_markdown
from model_profiling.report.markdown_text import change, code, ms, percent, size, table

from model_profiling.analysis.kernels import sme_verdict
from model_profiling.analysis.pairing import CategoryPair
from model_profiling.report.comparison import Comparison, SeriesComparison, SideFacts
from model_profiling.report.data import (
    EvidenceReport,
    ExperimentReport,
    KernelReport,
    PairReport,
    ParityReport,
    ReportData,
    Series,
)
from model_profiling.report.markdown import render_markdown
from model_profiling.report.verdict import shift_text, verdict
from model_profiling.statistics.latency import summarize
from model_profiling.statistics.parity import Parity, compare_arrays
from model_profiling.statistics.speedup import Speedup, Verdict, compare_rounds

BASE, OTHER = Series("off", 1), Series("on", 1)
EMPTY = ReportData(
    title="t",
    run_dir="d",
    model="m",
    platform="mac",
    cpu="M4",
    has_sme2=True,
    timings_are_latency=True,
    experiments=(),
    pairs=(),
    evidence=(),
    findings=(),
    quality=(),
    remarks=(),
    facts=(),
    reproduce=("sme2prof report d",),
)


@given(st.lists(st.text(), min_size=2, max_size=2))
def test_no_text_breaks_out_of_its_cell(row: list[str]) -> None:
    line = table(("a", "b"), [row]).split("\n", 2)[2]
    assert "\n" not in line and "\r" not in line
    assert len(re.findall(r"(?<!\\)\|", line)) == 3


@given(st.text(alphabet="`a ", min_size=1))
def test_code_holds_any_backticks(text: str) -> None:
    shown = code(text)
    fence = re.match(r"`+", shown)
    assert fence is not None
    inside = shown[len(fence.group()) : -len(fence.group())]
    assert text in (inside, inside[1:-1]) or fence.group() not in text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0.0, "0.0000"),
        (0.01234, "0.0123"),
        (1.23456, "1.235"),
        (12.3456, "12.35"),
        (1234.56, "1234.6"),
    ],
)
def test_milliseconds_keep_the_figures_that_count(value: float | None, shown: str) -> None:
    assert ms(value) == shown


def test_numbers_for_people() -> None:
    assert (percent(0.1234), percent(None)) == ("12.3%", "-")
    assert (change(2.0), change(0.8), change(1.0), change(None)) == ("-50.0%", "+25.0%", "+0.0%", "-")
    assert (size(2_500_000), size(1500), size(None)) == ("2.5 MB", "1.5 kB", "-")


def test_the_shift_of_the_bottleneck_is_said() -> None:
    conv = CategoryPair("Convolution", 7.0, 1.0, 0.70, 0.25, None)
    moving = CategoryPair("Data Movement", 2.0, 2.0, 0.20, 0.50, None)
    assert shift_text(conv, moving) == (
        "The bottleneck moved from Convolution (70.0% of the time before) to Data Movement "
        "(20.0% before, 50.0% after)."
    )
    assert shift_text(conv, conv) == ("Convolution takes most of the time before (70.0%) and after (25.0%).")


def found(factor: float, rounds: int = 8) -> Speedup:
    """What the statistics say about rounds that differ by `factor`, with a little noise."""
    before = [[4.0 + 0.01 * ((place * 3 + run) % 4) for run in range(5)] for place in range(rounds)]
    after = [[value / factor for value in one] for one in before]
    return compare_rounds(before, after)


def opening(speedup: Speedup, **changes: object) -> str:
    pair = PairReport("SME2 on vs off", BASE, OTHER, speedup, False, None)
    return " ".join(verdict(replace(EMPTY, pairs=(pair,), **changes)))  # type: ignore[arg-type]


def test_a_speedup_is_told_with_interval_and_times() -> None:
    text = opening(found(2.0))
    assert "SME2 on vs off: m is faster, speedup 2.00x (95% interval 2.00 to 2.00)" in text
    assert "4.015 ms before, 2.007 ms after, 8 rounds" in text
    assert "is slower, speedup 0.50x" in opening(found(0.5))
    assert "no significant change for m" in opening(found(1.0))


def test_what_is_not_comparable_gives_its_reason_and_no_number() -> None:
    nothing = compare_rounds([[1.0]], [[1.0]], not_comparable="this CPU has no SME2")
    text = opening(nothing, has_sme2=False)
    assert "not comparable, because this CPU has no SME2." in text
    assert "measure on a CPU that has it" in text and not re.search(r"\d ms|\dx", text)


def test_without_evidence_nothing_is_claimed_about_sme2() -> None:
    text = opening(found(2.0))
    assert "There is no kernel evidence: nothing here shows whether SME2 ran." in text
    assert "SME2 ran:" not in text
    assert "nothing is claimed about SME2" in render_markdown(EMPTY)


def test_an_emulated_record_is_never_told_with_time() -> None:
    text = render_markdown(
        replace(
            EMPTY,
            platform="emulated",
            timings_are_latency=False,
            pairs=(PairReport("p", BASE, OTHER, found(2.0), False, None),),
        )
    )
    assert "emulated" in text and not re.search(r"\bms\b", text) and "2.00x" not in text


def series(speedup: Speedup) -> SeriesComparison:
    return SeriesComparison(BASE, BASE, speedup, False, (), (), (), True)


def test_a_regression_needs_size_and_certainty() -> None:
    slow = series(found(1 / 1.10))
    assert slow.slowdown == pytest.approx(0.10, abs=1e-6)
    assert slow.regressed(0.05) and not slow.regressed(0.15)
    doubtful = series(replace(found(1 / 1.10), verdict=Verdict.NO_CHANGE, low=0.8, high=1.05))
    assert not doubtful.regressed(0.05)
    assert doubtful.worst_slowdown == pytest.approx(0.25)
    assert doubtful.could_hide(0.05) and not doubtful.could_hide(0.3)
    unknown = series(compare_rounds([[1.0]], [[1.0]], not_comparable="why"))
    assert not unknown.comparable and not unknown.regressed(0) and not unknown.could_hide(0)


def compared(*found: SeriesComparison, limit: float | None = 0.05) -> Comparison:
    side = SideFacts("a", "run directory", "m", "", "linux", "", "", "", True)
    return Comparison(side, replace(side, name="b"), found, (), (), limit)


def test_runs_made_at_different_times_are_not_said_to_have_run_side_by_side() -> None:
    beside = comparison_markdown(compared(series(found(2.0))))
    assert "side by side" in beside
    apart = comparison_markdown(compared(replace(series(found(2.0)), interleaved=False)))
    assert "side by side" not in apart and "at different times" in apart


def test_junit_says_the_interval_and_the_reason_once() -> None:
    for factor in (1.0, 0.5):
        text = comparison_junit(compared(series(found(factor))))
        assert len(re.findall(r"\d\.\d{3}x", text)) == 1
    few = comparison_junit(compared(series(found(2.0, rounds=2))))
    assert few.count("cannot show how much") == 1 and "2.000x, without a verdict" in few


def test_a_cpu_without_sme2_has_nothing_to_switch_on() -> None:
    rung = ExperimentReport(
        series=OTHER,
        sme2=True,
        disabled=("dotprod",),
        runner="builtin",
        rounds=8,
        end_to_end=summarize([1.0, 1.1, 1.0]),
        traced=None,
        tracer_cost=None,
        load_ms=None,
        first_inference_ms=None,
        peak_memory_bytes=None,
        dumps=None,
        problem="",
    )
    kernels = KernelReport(OTHER, True, (), sme_verdict((), traced=True), "")
    here = EvidenceReport("this run", False, (kernels,), ())
    data = replace(EMPTY, has_sme2=False, experiments=(rung,), evidence=(here, replace(here, emulated=True)))
    text = render_markdown(data)
    assert "| on | 1 | absent (without dotprod) |" in text
    assert "| on | 1 | absent | " in text  # kernels of this run
    assert "| on | 1 | on | " in text  # the emulated CPU has SME2
    assert "absent" not in render_markdown(replace(data, has_sme2=True))


def test_parity_shows_the_relative_difference_too() -> None:
    output = compare_arrays(np.array([4.0, 1.0]), np.array([4.0, 1.00005]), "float32")
    report = ParityReport(BASE, OTHER, Parity((output,), "within tolerance"), "")
    text = render_markdown(replace(EMPTY, evidence=(EvidenceReport("this run", False, (), (report,)),)))
    assert "| relative |" in text and "| 5e-05 | 5e-05 |" in text
