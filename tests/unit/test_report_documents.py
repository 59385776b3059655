"""What reports, comparisons and their first sentences say, from records alone."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from said import says, says_together

from model_profiling.analysis.evidence import PlaceEvidence, SeriesEvidence
from model_profiling.analysis.kernels import sme_verdict
from model_profiling.analysis.pairing import CategoryPair
from model_profiling.config.series import Pair, Series
from model_profiling.report.breakdown import shift_text
from model_profiling.report.comparison import Comparison, SeriesComparison, SideFacts
from model_profiling.report.comparison_document import comparison_document, comparison_junit
from model_profiling.report.data import PairReport, ReportData, report_data
from model_profiling.report.document import render_markdown
from model_profiling.report.run_report import run_document
from model_profiling.report.verdict import RunAnswers, answers
from model_profiling.runs import Latency, Manifest, Metrics, Result, Run, Times
from model_profiling.runs.figures import interruption_warnings
from model_profiling.runs.manifest import Machine, TargetFacts
from model_profiling.runs.records import PairParity, PairSpeedup
from model_profiling.statistics.measure import Measure, summarize
from model_profiling.statistics.parity import Parity, compare_arrays, together
from model_profiling.statistics.speedup import Speedup, compare_rounds
from model_profiling.targets import MachineFacts

BASE, OTHER = Series("off", 1), Series("on", 1)
PAIR = Pair("SME2 on vs off", BASE, OTHER)
MANIFEST = Manifest(
    model="m.pte",
    target=TargetFacts("host", "mac", Times.HARDWARE),
    machine=Machine(MachineFacts(cpu="M4", features=("sme2",))),
    results=(Result(experiment="on", threads=1, sme2="on"), Result(experiment="off", threads=1, sme2="off")),
)
NO_SME2 = replace(MANIFEST, machine=Machine(MachineFacts(cpu="N1")))


def report(manifest: Manifest | None = MANIFEST, *pairs: PairReport, **parts: object) -> ReportData:
    """A report of a run without dumps, its parts put in by hand."""
    run = Run(Path("d"), manifest, metrics=Metrics())
    data = replace(report_data(run, None, "t"), experiments=(), pairs=pairs, evidence=())
    return replace(data, **parts)  # type: ignore[arg-type]


def page(data: ReportData) -> str:
    return render_markdown(run_document(data))


def found(factor: float, rounds: int = 8) -> Speedup:
    """What the statistics say about rounds that differ by `factor`, with a little noise."""
    before = [[4.0 + 0.01 * ((place * 3 + run) % 4) for run in range(5)] for place in range(rounds)]
    after = [[value / factor for value in one] for one in before]
    return compare_rounds(before, after)


def answered(speedup: Speedup, manifest: Manifest = MANIFEST, pair: Pair = PAIR) -> RunAnswers:
    return answers(report(manifest, PairReport(pair, speedup, False, None)))


def opening(speedup: Speedup, manifest: Manifest = MANIFEST) -> str:
    return " ".join(answered(speedup, manifest).sentences)


def test_a_speedup_is_told_with_interval_and_times_and_the_shift_it_makes() -> None:
    text = answered(found(2.0)).what_sme2_changes
    says(text, "2.00x", "4.015 ms without SME2", "2.007 ms with", "95%", "1.99", "2.01")
    assert "slower" not in text.lower()
    says(answered(found(0.5)).what_sme2_changes, "slower", "0.50x", "4.015 ms without SME2", "8.030 ms with")
    says(answered(found(1.0)).what_sme2_changes, "no significant change", "1.00x", "4.015 ms")
    conv = CategoryPair("Convolution", 7.0, 1.0, 0.70, 0.25, None, None)
    moving = CategoryPair("Data Movement", 2.0, 2.0, 0.20, 0.50, None, None)
    sides = "SME2 off", "SME2 on"
    says(shift_text(conv, moving, sides), "moves", "Convolution", "70.0%", "Data Movement", "20.0%", "50.0%")
    stayed = shift_text(conv, conv, sides)
    says(stayed, "Convolution", "70.0%", "25.0%")
    assert "moved" not in stayed


def test_the_pair_of_sme2_speaks_first_and_of_sme2_alone() -> None:
    """A pair whose sides differ in threads too, or in neither's switch, is only compared."""
    for baseline, candidate in ((Series("off", 1), Series("on", 2)), (Series("on", 1), Series("on", 2))):
        results = (*MANIFEST.results, Result(experiment="on", threads=2, sme2="on"))
        pair = Pair("threads", baseline, candidate)
        told = answered(found(2.0), replace(MANIFEST, results=results), pair)
        assert "2.00x" not in told.what_sme2_changes and "not tested" in told.what_sme2_changes
        (note,) = [note for note in told.notes if "2.00x" in note]
        says(note, "threads", "faster", "95%", "4.015", "2.007 ms")
    threads = PairReport(Pair("threads", OTHER, Series("on", 2)), found(1.5), False, None)
    told = answers(report(MANIFEST, threads, PairReport(PAIR, found(2.0), False, None)))
    says(told.what_sme2_changes, "2.00x")
    (note,) = [note for note in told.notes if "1.50x" in note]
    says(note, "threads", "faster", "4.015", "2.677 ms")
    assert "2.00x" not in note
    kernels = SeriesEvidence(OTHER, True, (), sme_verdict((), traced=True), counted=True)
    evidence = (PlaceEvidence("this run", False, (kernels,), ()),)
    told = answers(report(MANIFEST, PairReport(PAIR, found(1.0), False, None), evidence=evidence))
    says(told.what_sme2_changes, "1.00x", "no SME or SME2 kernel")


def test_what_failed_or_was_interrupted_comes_before_any_advice() -> None:
    crashed = replace(MANIFEST.results[1], state="failed", problem="it crashed", fix="look at its log")
    manifest = replace(MANIFEST, results=(MANIFEST.results[0], crashed))
    told = answers(report_data(Run(Path("d"), manifest, metrics=Metrics()), None))
    says(told.where_time_goes, "not known", "latency")
    says_together(told.what_next, "Repair off", "failed", crashed.fix)
    told = answers(report(replace(MANIFEST, state="interrupted")))
    says(told.what_next, "interrupted", "again")


def test_what_is_not_comparable_gives_its_reason_and_no_number() -> None:
    nothing = compare_rounds([[1.0]], [[1.0]], not_comparable="this CPU has no SME2")
    text = opening(nothing, NO_SME2)
    says_together(text, "not comparable", nothing.reason)
    says_together(text, "not tested", "N1", "no SME2")
    says(text, "sme2prof profile m.pte")
    assert not re.search(r"\d ms|\dx", text)
    few = found(2.0, rounds=2)
    metrics = Metrics(comparisons=(PairSpeedup(PAIR.label, BASE, OTHER, few, with_tracer=False),))
    told = answers(report_data(Run(Path("d"), replace(MANIFEST, pairs=(PAIR,)), metrics=metrics), None))
    assert few.reason in f"{told.what_sme2_changes} {' '.join(told.notes)}"
    says(" ".join(told.sentences), PAIR.label)


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        ("wall time", "1.000 ms for one inference"),
        ("cpu time", "1.000 ms of CPU time for one inference"),
        ("wall time, interrupted", "1.000 ms, including time that other programs took"),
    ],
)
def test_a_latency_that_is_not_wall_time_is_called_what_it_is(measured: Measure, said: str) -> None:
    whole = summarize([1.0, 1.1, 0.9])
    known = Latency(experiment="on", threads=1, end_to_end_ms=whole, measured=measured)
    metrics = Metrics(times=Times.HARDWARE, latencies=(known,))
    told = answers(report_data(Run(Path("d"), MANIFEST, metrics=metrics), None))
    says(" ".join(told.sentences), said, "on, 1 thread")
    assert ("by CPU time" in replace(found(2.0), measured=measured).in_short) == (measured == "cpu time")


def test_a_latency_in_doubt_says_so_in_the_same_sentence() -> None:
    whole = summarize([1.0, 1.1, 0.9])
    known = Latency(experiment="on", threads=1, end_to_end_ms=whole, measured="wall time, interrupted")
    busy = tuple(interruption_warnings(known.series, "wall time, interrupted", 0.66, 0.0))
    metrics = Metrics(times=Times.HARDWARE, latencies=(known,), stability=busy)
    told = answers(report_data(Run(Path("d"), MANIFEST, metrics=metrics), None))
    first, _, _ = told.where_time_goes.partition(". ")
    says(first, "About 1.000 ms for one inference", "other programs took 66% of the CPU", "measure with 1")
    assert (told.facts()["trusted"], told.facts()["doubt"]) == (False, told.doubt) and told.doubt in first
    assert MANIFEST.machine.before is not None
    elsewhere = replace(MANIFEST, machine=Machine(replace(MANIFEST.machine.before, machine="x86_64")))
    there = answers(report_data(Run(Path("d"), elsewhere, metrics=metrics), None))
    first = there.where_time_goes.partition(". ")[0]
    says(first, "not Arm", "about 1.000 ms", "other programs took 66% of the CPU")
    calm = replace(known, measured="cpu time")
    told = answers(report_data(Run(Path("d"), MANIFEST, metrics=replace(metrics, latencies=(calm,))), None))
    assert told.facts()["trusted"] is True and told.where_time_goes.startswith("1.000 ms of CPU time")


def test_parity_shows_differences_by_the_outputs_own_scale() -> None:
    output = compare_arrays(np.array([4.0, 1.0]), np.array([4.0, 1.00005]), "float32")
    found = PairParity("p", BASE, OTHER, Parity((output,), "within tolerance"))
    text = page(report(evidence=(PlaceEvidence("this run", False, (), (found,)),)))
    assert "| relative | RMS |" in text and "| 5e-05 | 1.3e-05 | 1.2e-05 |" in text
    says_together(text, "0.0001", "0.0004 RMS")
    other = compare_arrays(np.array([[4.0, 1.0]]), np.array([[1.0, 4.0]]), "float32")
    found = PairParity("p", BASE, OTHER, together((other,)))
    text = page(report(evidence=(PlaceEvidence("this run", False, (), (found,)),)))
    says(text, "mismatch")
    says_together(text, str(OTHER), str(BASE), "differ", "top-1")


def series(speedup: Speedup) -> SeriesComparison:
    return SeriesComparison(BASE, BASE, speedup, False, None, (), "rounds")


def compared(*found: SeriesComparison, limit: float | None = 0.05) -> Comparison:
    side = SideFacts("a", "m", "", "linux", "", "", "", Times.HARDWARE)
    return Comparison(side, replace(side, name="b"), found, (), (), limit)


def test_how_runs_were_made_and_judged_is_said_once() -> None:
    beside = render_markdown(comparison_document(compared(series(found(2.0)))))
    assert "side by side" in beside
    apart = render_markdown(comparison_document(compared(replace(series(found(2.0)), way="apart"))))
    assert "side by side" not in apart and "at different times" in apart
    for factor in (1.0, 0.5):
        text = comparison_junit(compared(series(found(factor))))
        assert len(re.findall(r"\d\.\d{3}x", text)) == 1
    few = comparison_junit(compared(series(found(2.0, rounds=2))))
    assert few.count("cannot show how much") == 1 and "2.000x, without a verdict" in few
