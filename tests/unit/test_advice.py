"""Each finding appears where its cause is, with its numbers, and not where it is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from strategies import Block, Dump, ProfileEvent

from model_profiling.analysis.findings import Finding
from model_profiling.analysis.pairing import pair_series
from model_profiling.analysis.roofline import Roofline, roof_gaps, seen_roofline
from model_profiling.analysis.run import advise
from model_profiling.analysis.series import SeriesAnalysis, series_of
from model_profiling.analysis.sources import OperatorSource
from model_profiling.analysis.summary import DumpAnalysis, analyse_dump
from model_profiling.etdump import read_etdump
from model_profiling.run import Series, Times, opened

Call = tuple[str, list[tuple[str, int]]]


def dump_of(
    calls: list[Call],
    *,
    experiment: str = "made",
    threads: int | None = None,
    times: Times = Times.HARDWARE,
    round: int = 0,
    sme2: bool | None = None,
) -> DumpAnalysis:
    """A dump of one run: calls with their operators, each (name, microseconds), 1 us around each call."""
    clock, events = 0, []
    for number, (kind, operators) in enumerate(calls):
        start = clock
        clock += 500
        for name, spent in operators:
            named = (None, name) if kind == "DELEGATE_CALL" else (name, None)
            events.append(ProfileEvent(named[0], 0, number, -1, named[1], None, clock, clock + spent * 1000))
            clock += spent * 1000
        clock += 500
        events.append(ProfileEvent(kind, 0, number, -1, None, None, start, clock))
    events.append(ProfileEvent("Method::execute", -1, 0, -1, None, None, 0, clock))
    content = Dump((Block("Execute", -1, (), tuple(events)),), True, False).to_bytes()
    dump = opened.Dump(Path("made.etdump"), Series(experiment, threads), times, round, sme2=sme2)
    return analyse_dump(read_etdump(content), dump)


def with_sources(dump: DumpAnalysis, **sources: OperatorSource) -> DumpAnalysis:
    """Replace what is known about operators, by the first word of their names."""
    return replace(
        dump,
        operators=tuple(
            replace(one, source=sources.get(one.name.split()[0], one.source)) for one in dump.operators
        ),
    )


def found(dump: DumpAnalysis, **options: object) -> dict[str, Finding]:
    return {finding.id: finding for finding in advise([series_of([dump])], **options)}  # type: ignore[arg-type]


CONV = ("Convolution (NHWC, F16) IGEMM #1", 1000)


def test_a_model_that_only_computes_gets_no_advice() -> None:
    assert found(dump_of([("DELEGATE_CALL", [CONV])])) == {}


def test_data_movement_is_named_with_its_share_and_bound() -> None:
    dump = dump_of([("DELEGATE_CALL", [CONV, ("Transpose (ND, X16) #1", 700), ("Copy (NC, X16) #1", 299)])])
    finding = found(dump)["data-movement"]
    assert finding.max_gain_pct == pytest.approx(49.95, abs=0.01) and finding.severity == "high"
    assert finding.evidence["by_kind_ms"] == {"transpose": 0.7, "copy": 0.299}


def test_inserted_transposes_say_where_they_stand() -> None:
    dump = dump_of([("DELEGATE_CALL", [CONV, ("Transpose (ND, X16) #1", 100), ("Sigmoid (NC) #1", 50)])])
    finding = found(
        with_sources(
            dump,
            Transpose=OperatorSource(origin="lowering"),
            Convolution=OperatorSource(origin="model", node_kind="Conv2d"),
        )
    )["inserted-transposes"]
    assert finding.evidence["count"] == 1
    assert finding.max_gain_pct == pytest.approx(100 * 100 / 1151, abs=0.01)
    where = finding.evidence["where"]
    assert isinstance(where, list) and where[0]["between"] == ["call 0, position 0", "the call's output"]
    assert "inserted-transposes" not in found(dump)


def test_fragmentation_counts_the_calls_and_what_lies_between() -> None:
    part = ("DELEGATE_CALL", [CONV])
    dump = dump_of([part, ("OPERATOR_CALL", [("native_call_topk.values", 200)]), part])
    finding = found(dump)["delegate-fragmentation"]
    assert finding.evidence["delegate_calls"] == 2 and finding.evidence["operator_calls"] == 1
    # 200 us outside, 1 us around each of the three calls, of 2,203 us.
    assert finding.max_gain_pct == pytest.approx(100 * 203 / 2203, abs=0.01)
    assert "delegate-fragmentation" not in found(dump_of([part]))


def test_portable_operators_count_from_five_percent() -> None:
    outside = ("OPERATOR_CALL", [("native_call_topk.values", 60)])
    assert "portable-operators" in found(dump_of([("DELEGATE_CALL", [CONV]), outside]))
    less = ("OPERATOR_CALL", [("native_call_topk.values", 40)])
    assert "portable-operators" not in found(dump_of([("DELEGATE_CALL", [CONV]), less]))


def test_conversions_between_number_formats_are_named() -> None:
    dump = dump_of([("DELEGATE_CALL", [CONV, ("Convert (NC) #1", 100)])])
    assert found(dump)["quantize-dequantize"].evidence["count"] == 1


@pytest.mark.parametrize("times", [Times.EMULATED, Times.TRACED, Times.UNKNOWN])
def test_names_in_no_category_are_reported_even_without_latencies(times: Times) -> None:
    dump = dump_of([("DELEGATE_CALL", [CONV, ("Frobnicate (NC, F16) #1", 100)])], times=times)
    assert set(found(dump)) == {"unknown-operators"}
    evidence = found(dump)["unknown-operators"].evidence
    assert evidence == {"names": {"Frobnicate (NC, F16)": 1}, "share_pct": None}


@pytest.mark.parametrize("times", [Times.EMULATED, Times.TRACED, Times.UNKNOWN])
def test_no_advice_comes_from_times_that_are_no_latencies(times: Times) -> None:
    moving = ("DELEGATE_CALL", [CONV, ("Transpose (ND, X16) #1", 700)])
    assert found(dump_of([moving])) and not found(dump_of([moving], times=times))
    sweep = [series_of([dump_of([moving], threads=threads, times=times)]) for threads in (1, 2)]
    assert not advise(sweep)


def test_operators_far_below_the_roof_are_measured_against_the_best_seen_or_the_supplied() -> None:
    dump = dump_of([("DELEGATE_CALL", [CONV, ("Deconvolution (NHWC, F16) #1", 1000)])])
    fast = OperatorSource(flops=100_000_000, bytes_moved=1_000_000)
    slow = OperatorSource(flops=1_000_000, bytes_moved=100_000)
    dump = with_sources(dump, Convolution=fast, Deconvolution=slow)
    roof = seen_roofline(dump.operators)
    assert roof == Roofline(gflops=100.0, gbytes_per_s=1.0, source="best seen in this dump")
    assert [round(gap.efficiency, 3) for gap in roof_gaps(dump.operators, roof)] == [0.1, 1.0]
    finding = found(dump)["below-roofline"]
    assert finding.evidence["roof_source"] == "best seen in this dump"
    assert finding.max_gain_pct == pytest.approx(100 * 0.9 * 1000 / 2001, abs=0.01)
    supplied = found(dump, roof=Roofline(1000.0, 100.0, "supplied"))["below-roofline"]
    assert supplied.evidence["roof_source"] == "supplied"
    assert len(supplied.evidence["operators"]) == 2  # type: ignore[arg-type]


def test_matrix_operators_that_sme2_did_not_help_carry_a_reason() -> None:
    depthwise = ("Convolution (NHWC, F16) DWConv #1", 400)
    before = [CONV, depthwise, ("Fully Connected (NC, F16) GEMM #1", 90)]
    after = [
        ("Convolution (NHWC, PF16) IGEMM #1", 200),
        depthwise,
        ("Fully Connected (NC, PF16) GEMM #1", 120),
        ("Transpose (ND, X16) #1", 100),
    ]
    off, on = (
        series_of(
            [dump_of([("DELEGATE_CALL", calls)], experiment=name, sme2=sme2, round=n) for n in range(6)]
        )
        for name, sme2, calls in (("off", False, before), ("on", True, after))
    )
    findings = {finding.id: finding for finding in advise([off, on], [pair_series(off, on)])}
    same = findings["sme2-no-faster"].evidence["operators"]
    assert isinstance(same, list) and len(same) == 1
    assert same[0]["may_be_because"] == "XNNPACK has no SME2 kernel for depthwise convolution"
    slower = findings["sme2-slower"]
    assert isinstance(slower.evidence["operators"], list)
    assert slower.evidence["operators"][0]["kernel_after"] == "PF16"
    assert slower.max_gain_pct == pytest.approx(100 * 30 / 821, abs=0.01)
    shift = findings["data-movement-after-sme2"]
    assert shift.evidence["share_before_pct"] == 0 and shift.evidence["share_after_pct"] == pytest.approx(
        12.18
    )


def test_nothing_is_said_about_a_pair_that_may_not_be_compared() -> None:
    calls = [("DELEGATE_CALL", [CONV])]
    off, on = (
        series_of([dump_of(calls, experiment=str(sme2), sme2=sme2, round=n) for n in range(6)])
        for sme2 in (False, True)
    )
    assert {found.id for found in advise([off, on], [pair_series(off, on)])} == {"sme2-no-faster"}
    assert not advise([off, on], [pair_series(off, on, not_comparable="this CPU has no SME2")])


def test_threads_that_do_not_pay_are_found() -> None:
    def sweep(*lengths: int) -> list[SeriesAnalysis]:
        return [
            series_of([dump_of([("DELEGATE_CALL", [(CONV[0], length)])], threads=2**place)])
            for place, length in enumerate(lengths)
        ]

    (finding,) = advise(sweep(1000, 600, 900))
    assert finding.id == "too-many-threads" and finding.evidence["best_threads"] == 2
    assert finding.max_gain_pct == pytest.approx(100 * (1 - 601 / 901), abs=0.01)
    assert not advise(sweep(1000, 600, 400))


def test_threads_measured_in_rounds_are_judged_by_their_rounds() -> None:
    def rounds(threads: int, *lengths: int) -> SeriesAnalysis:
        return series_of([dump_of([("DELEGATE_CALL", [(CONV[0], one)])], threads=threads) for one in lengths])

    one = rounds(1, 1000, 1010, 990, 1005, 995, 1002, 1000, 998)
    assert advise([one, rounds(2, 900, 1100, 1050, 950, 1010, 990, 1060, 940)])[0].id == "too-many-threads"
    assert not advise([one, rounds(2, 900, 905, 890, 903, 899, 901, 900, 902)])


def test_no_finding_is_without_a_number() -> None:
    dump = dump_of(
        [
            ("DELEGATE_CALL", [CONV, ("Transpose (ND, X16) #1", 700), ("Convert (NC) #1", 100)]),
            ("OPERATOR_CALL", [("native_call_topk.values", 600)]),
            ("DELEGATE_CALL", [CONV]),
        ]
    )
    findings = advise([series_of([dump])])
    assert len(findings) >= 4
    assert [one.max_gain_pct for one in findings] == sorted(
        (one.max_gain_pct for one in findings), reverse=True
    )
    for finding in findings:
        assert any(isinstance(value, int | float) for value in finding.evidence.values())
        assert 0 < finding.max_gain_pct < 100 and finding.action and finding.title


def test_advice_comes_from_all_rounds_not_from_an_unlucky_first() -> None:
    moving = ("Transpose (ND, X16) #1", 900)
    unlucky = dump_of([("DELEGATE_CALL", [CONV, moving])])
    calm = [dump_of([("DELEGATE_CALL", [CONV, (moving[0], 20)])], round=place) for place in range(1, 6)]
    assert "data-movement" in {one.id for one in advise([series_of([unlucky])])}
    assert not advise([series_of([unlucky, *calm])])


def test_one_of_a_kind_is_told_in_the_singular() -> None:
    part = ("DELEGATE_CALL", [CONV])
    dump = dump_of([part, ("OPERATOR_CALL", [("native_call_frobnicate.out", 200)]), part], threads=1)
    titles = [one.title for one in advise([series_of([dump])])]
    assert any("with 1 operator outside them" in title for title in titles)
    assert any(title.startswith("1 operator name in no category") for title in titles)
