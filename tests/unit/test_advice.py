"""Each finding appears where its cause is, with its numbers, and not where it is not."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from said import says, says_together
from strategies import Block, Dump, ProfileEvent

from model_profiling.analysis.causes import advise
from model_profiling.analysis.causes.outside import outside, why_outside
from model_profiling.analysis.findings import Finding, SeriesCase
from model_profiling.analysis.operators import DumpAnalysis, analyse_dump
from model_profiling.analysis.pairing import pair_series
from model_profiling.analysis.run import RunAnalysis
from model_profiling.analysis.series import series_of
from model_profiling.analysis.series_views import Call as TimedCall
from model_profiling.analysis.series_views import Calls
from model_profiling.analysis.sources import OperatorSource
from model_profiling.config.series import Series
from model_profiling.etdump import read_etdump
from model_profiling.program import Program, SourceRef
from model_profiling.program.graph_file import ProgramGraph, Undelegated
from model_profiling.report.data import report_data
from model_profiling.report.verdict import answers
from model_profiling.runs import Times, run
from model_profiling.runs.metrics import Latency
from model_profiling.statistics.latency import summarize

Call = tuple[str, list[tuple[str, int]]]


def dump_of(calls, *, experiment="made", threads=None, times=Times.HARDWARE, round=0, sme2=None):
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
    dump = run.Dump(Path("made.etdump"), Series(experiment, threads), times, round, sme2=sme2)
    return analyse_dump(read_etdump(content), dump)


def with_sources(dump: DumpAnalysis, **sources: OperatorSource) -> DumpAnalysis:
    """Replace what is known about operators, by the first word of their names."""
    return replace(
        dump,
        operators=tuple(
            replace(one, source=sources.get(one.name.split()[0], one.source)) for one in dump.operators
        ),
    )


def causes(*arguments: object, **options: object) -> list[Finding]:
    """All findings but the one that follows from the share of the matrix products alone."""
    findings = advise(*arguments, **options)  # type: ignore[arg-type]
    return [finding for finding in findings if finding.id != "matrix-bound"]


def found(dump: DumpAnalysis, **options: object) -> dict[str, Finding]:
    return {finding.id: finding for finding in causes([series_of([dump])], **options)}


CONV = ("Convolution (NHWC, F16) IGEMM #1", 1000)


def test_data_movement_is_two_causes_that_share_no_operator() -> None:
    """Layout changes and copies want different things done, and neither bound holds the other's time."""
    dump = dump_of([("DELEGATE_CALL", [CONV, ("Transpose (ND, X16) #1", 700), ("Copy (NC, X16) #1", 299)])])
    findings = found(with_sources(dump, Transpose=OperatorSource(origin="lowering")))
    assert set(findings) == {"layout-changes", "data-movement"}
    assert findings["layout-changes"].max_gain_pct == pytest.approx(100 * 700 / 2000, abs=0.01)
    copies = findings["data-movement"]
    assert copies.max_gain_pct == pytest.approx(100 * 299 / 2000, abs=0.01)
    assert copies.evidence["by_kind"] == {"copy": 1}
    assert "`clone`" in copies.action and "permute" not in copies.action
    own = found(dump)
    assert set(own) == {"data-movement"}, "what the model permutes itself, lowering did not add"
    assert "permute" in own["data-movement"].action


def test_inserted_transposes_say_where_they_stand() -> None:
    dump = dump_of([("DELEGATE_CALL", [CONV, ("Transpose (ND, X16) #1", 100), ("Sigmoid (NC) #1", 50)])])
    finding = found(
        with_sources(
            dump,
            Transpose=OperatorSource(origin="lowering"),
            Convolution=OperatorSource(
                origin="model",
                node_kind="Conv2d",
                place=SourceRef(module_path="features.0", file="/home/user/net.py", line=12),
            ),
        )
    )["layout-changes"]
    assert finding.evidence["added_by_lowering"] == 1 and "that lowering added" in finding.title
    assert finding.max_gain_pct == pytest.approx(100 * 100 / 1151, abs=0.01)
    (concern,) = finding.concerns
    says(concern.where, "features.0", "net.py:12", "output")
    assert "layout-changes" not in found(dump)


def test_fragmentation_counts_the_calls_and_what_lies_between() -> None:
    part = ("DELEGATE_CALL", [CONV])
    dump = dump_of([part, ("OPERATOR_CALL", [("native_call_topk.values", 200)]), part])
    findings = found(dump)
    assert set(findings) == {"outside-delegates"}, "one cause, one item"
    finding = findings["outside-delegates"]
    assert finding.evidence["delegate_calls"] == 2 and finding.evidence["operator_calls"] == 1
    # 200 us outside, 1 us around its call and the one of the delegate that joins the other, of 2,203 us.
    assert finding.max_gain_pct == pytest.approx(100 * 202 / 2203, abs=0.01)
    assert finding.besides is not None and finding.besides.ms == pytest.approx(0.002)
    assert finding.evidence["calls_joined"] == 1
    says(finding.title, "bring", "1 reduction operator")
    assert "why is not known" in finding.action
    assert found(dump_of([part])) == {}, "a model that only computes"


def explained(dump: DumpAnalysis, *undelegated: Undelegated) -> DumpAnalysis:
    """The dump of a program whose export said why operators are outside."""
    graph = ProgramGraph(Program("made.pte", 0, ()), undelegated=undelegated)
    operators = tuple(replace(operator, method="forward") for operator in dump.operators)
    return replace(dump, graph=graph, operators=operators)


GELU = Undelegated(
    "aten.gelu.default", "gelu", "mlp", "GELU does not support fp16", "refused", call="gelu",
    source="model.py:31", dtype="float16", replacement="x * torch.sigmoid(1.702 * x)", instruction=1,
)  # fmt: skip
EMBEDDING = Undelegated(
    "aten.embedding.default", "embedding", "embed", "no rule", "no rule", call="embedding",
    source="model.py:9", dtype="float16", reads="float16, int64", instruction=3,
)  # fmt: skip


def test_what_the_export_has_no_reason_for_is_no_promise() -> None:
    part = ("DELEGATE_CALL", [CONV])
    others = ("executorch_prim::et_view.default", "aten::_local_scalar_dense", "aten::topk.values")
    calls = [
        ("OPERATOR_CALL", [(name, spent)])
        for name, spent in (("gelu.out", 200), *((each, 900) for each in others))
    ]
    finding = found(explained(dump_of([part, *calls, part]), GELU))["outside-delegates"]
    assert finding.title == "Bring 1 gelu operator into the delegate (model.py:31)"
    says(finding.action, "no cure is known for reshape, scalar read and reduction", "does not count it")
    assert "not exported by this kit" not in finding.action
    whys = {each.kind: why_outside(finding.found_in, each) for each in finding.operators}
    for kind, said in (("reshape", "varies"), ("scalar read", "a number"), ("reduction", "added it after")):
        assert (why := whys[kind]) and said in why.reason


@pytest.mark.parametrize("times", [Times.HARDWARE, Times.EMULATED])
def test_what_is_outside_is_named_with_its_line_reason_and_replacement(times: Times) -> None:
    part = ("DELEGATE_CALL", [CONV])
    gelu = ("OPERATOR_CALL", [("native_call_gelu.out", 200)])
    finding = found(explained(dump_of([part, gelu, part], times=times), GELU))["outside-delegates"]
    says(finding.title, "bring", "1 gelu operator", GELU.source)
    says(finding.action, GELU.reason, GELU.replacement)
    assert finding.evidence["delegate_calls"] == 2 and finding.evidence["calls_joined"] == 1
    (concern,) = finding.concerns
    assert concern.where == "model.py:31" and concern.note == GELU.reason
    (told,) = finding.as_dict()["evidence"]["operators"]  # type: ignore[index]
    assert (told["reason"], told["why"], told["call"]) == (GELU.reason, "refused", "gelu")
    assert told["replacement"] == GELU.replacement and told["parts_delegates"] == 1
    assert (finding.max_gain_pct is None) is (times is Times.EMULATED)


def test_what_nothing_helps_is_named_and_left_out_of_the_bound() -> None:
    part = ("DELEGATE_CALL", [CONV])
    gelu = ("OPERATOR_CALL", [("native_call_gelu.out", 200)])
    embedding = ("OPERATOR_CALL", [("native_call_embedding.out", 300)])
    both = explained(dump_of([part, gelu, part, embedding, part]), GELU, EMBEDDING)
    finding = found(both)["outside-delegates"]
    says(finding.title, "bring", "1 gelu operator", GELU.source)
    says_together(finding.action, "no cure", "embedding", EMBEDDING.source)
    assert finding.evidence["delegate_calls"] == 3 and finding.evidence["calls_joined"] == 1
    first, last = finding.steps
    says(first, GELU.reason, GELU.replacement)
    says_together(last, "no cure", "embedding")
    assert finding.max_gain_pct == pytest.approx(100 * 202 / 3505, abs=0.01)
    assert {concern.facts["call"] for concern in finding.concerns} == {"gelu", "embedding"}
    alone = explained(dump_of([part, part, part, embedding, part]), EMBEDDING)
    finding = found(alone)["outside-delegates"]
    says(finding.title, "no cure", "1 embedding operator", EMBEDDING.source)
    says_together(finding.action, "no cure", "XNNPACK", "integers")
    assert finding.evidence["calls_joined"] == 0 and finding.besides is None
    constant = explained(dump_of([part, gelu, part]), replace(GELU, constant=True))
    assert found(constant)["outside-delegates"].evidence["calls_joined"] == 0, "it waits for no delegate"


def test_a_line_outside_that_takes_much_is_named_even_where_no_cure_is_known() -> None:
    """Never nothing to do while one line outside the delegate takes more than a tenth of the time."""
    part = ("DELEGATE_CALL", [("Sigmoid (NC) #1", 1000)])
    gelu = ("OPERATOR_CALL", [("native_call_gelu.out", 5)])
    embedding = ("OPERATOR_CALL", [("native_call_embedding.out", 600)])
    series = series_of([explained(dump_of([part, gelu, part, embedding, part]), GELU, EMBEDDING)])
    finding = {each.id: each for each in causes([series])}["outside-delegates"]
    says(finding.title, "no cure", "1 embedding operator", EMBEDDING.source)
    assert not finding.has_cure and len(finding.operators) == 1
    made = run.Run(Path("d"), dumps=(series.first.dump,))
    data = report_data(made, RunAnalysis(made, (series,), (), (finding,), (), ()))
    says(answers(data).what_next, "embedding", EMBEDDING.source, "of the time")


WEIGHTED = replace(
    GELU, operator="aten.convolution.default", call="conv1d", reason="Expected weight to be a static param",
    source="model.py:5", instruction=3, replacement="remove the weight norm before export",
)  # fmt: skip
EXPANDED = replace(
    GELU, operator="aten.expand_copy.default", call="matmul", why="no rule", source="model.py:7",
    reason="the backend has no rule for this operator", rewrite="batched matmul",
)  # fmt: skip


@pytest.mark.parametrize(("by_kit_us", "offered"), [(200, True), (5, False)])
def test_what_optimize_changes_and_what_is_left_to_a_person_is_said(by_kit_us: int, offered: bool) -> None:
    part, calls = ("DELEGATE_CALL", [CONV]), []
    for name, spent in (("expand_copy", by_kit_us), ("convolution", 300), ("embedding", 10)):
        calls += [part, ("OPERATOR_CALL", [(f"native_call_{name}.out", spent)])]
    dump = explained(dump_of(calls), EXPANDED, WEIGHTED, replace(EMBEDDING, instruction=5))
    finding = found(dump)["outside-delegates"]
    says(finding.title, "2 of 3 operators")
    says(finding.action, "XNNPACK needs a constant weight", "; remove the weight norm")
    assert ("sme2prof optimize" in finding.action) is offered
    if offered:
        says(finding.action, "no rule for the `expand` inside matmul", "(batched matmul)", "`conv1d` by hand")


def test_what_another_finding_has_parts_no_delegates_where_no_input_reaches_it() -> None:
    part = ("DELEGATE_CALL", [CONV])
    mask = ("OPERATOR_CALL", [("native_call_full.out", 100)])
    gelu = ("OPERATOR_CALL", [("native_call_gelu.out", 200)])
    fixed = replace(GELU, call="full", constant=True, instruction=1)
    dump = explained(dump_of([part, mask, gelu, part]), fixed, replace(GELU, instruction=2))
    series = series_of([dump])
    finding = outside(SeriesCase(series), [each for each in series.operators if "full" not in each.name])
    assert finding is not None and finding.evidence["calls_joined"] == 1


def test_delegates_that_nothing_parts_are_no_advice_and_none_at_all_is() -> None:
    """Two calls in a row were parted by the partitioner: nothing in the model joins them."""
    assert not found(dump_of([("DELEGATE_CALL", [CONV])] * 4))
    before = ("OPERATOR_CALL", [("native_call_topk.values", 200)])
    first = found(dump_of([before, ("DELEGATE_CALL", [CONV]), ("DELEGATE_CALL", [CONV])]))
    assert first["outside-delegates"].evidence["calls_joined"] == 0
    assert "join" not in first["outside-delegates"].action
    finding = found(dump_of([("OPERATOR_CALL", [("native_call_addmm.out", 500)])]))["outside-delegates"]
    assert "--backend xnnpack" in finding.action


def test_what_a_call_costs_does_not_grow_with_its_operators() -> None:
    """A delegate's whole microseconds lose a part of each operator: that is no price of its call."""
    small, large = (
        TimedCall(number, True, 1 + 9 * number, 500.0 + 400 * (1 + 9 * number)) for number in (0, 1)
    )
    assert Calls((small, large), 0.0).entering_ns == pytest.approx(500)
    alike = Calls((small, replace(small, number=1)), 0.0)
    assert alike.entering_ns == pytest.approx(900), "one size: nothing tells the two apart"
    falling = Calls((small, replace(large, beside_ns=100.0)), 0.0)
    assert falling.entering_ns == pytest.approx(100), "never more than the cheapest"
    assert Calls((), 0.0).entering_ns == 0.0


def test_what_cannot_save_two_percent_is_no_advice() -> None:
    outside = ("OPERATOR_CALL", [("native_call_topk.values", 30)])
    assert "outside-delegates" in found(dump_of([("DELEGATE_CALL", [CONV]), outside]))
    less = ("OPERATOR_CALL", [("native_call_topk.values", 15)])
    assert not found(dump_of([("DELEGATE_CALL", [CONV]), less]))


def test_conversions_between_number_formats_are_named() -> None:
    dump = dump_of([("DELEGATE_CALL", [CONV, ("Convert (NC) #1", 100)])])
    findings = found(dump)
    assert set(findings) == {"quantize-dequantize"}
    assert [each.operator.kind for each in findings["quantize-dequantize"].concerns] == ["convert"]


@pytest.mark.parametrize("times", [Times.EMULATED, Times.TRACED, Times.UNKNOWN])
def test_no_advice_comes_from_times_that_are_no_latencies(times: Times) -> None:
    moving = ("DELEGATE_CALL", [CONV, ("Transpose (ND, X16) #1", 700)])
    assert found(dump_of([moving])) and not found(dump_of([moving], times=times))
    sweep = [series_of([dump_of([moving], threads=threads, times=times)]) for threads in (1, 2)]
    assert not causes(sweep)


@pytest.mark.parametrize("times", [Times.EMULATED, Times.TRACED, Times.UNKNOWN])
def test_structure_is_told_without_a_bound_where_times_say_nothing(times: Times) -> None:
    calls: list[Call] = [
        ("DELEGATE_CALL", [CONV, ("Transpose (ND, X16) #1", 700)]),
        ("OPERATOR_CALL", [("native_call_topk.values", 5)]),
    ]
    dump = with_sources(dump_of(calls, times=times), Transpose=OperatorSource(origin="lowering"))
    findings = found(dump)
    assert list(findings) == ["outside-delegates", "layout-changes"]
    for finding in findings.values():
        assert finding.max_gain_pct is None
        facts = finding.as_dict()["evidence"]
        assert isinstance(facts, dict) and {row["ms"] for row in facts["operators"]} == {None}
    not_arm = [finding.max_gain_pct for finding in causes([series_of([dump_of(calls)])], about_time=False)]
    assert not_arm == [None]


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
    findings = {finding.id: finding for finding in causes([off, on], [pair_series(off, on)])}
    (same,) = findings["sme2-no-faster"].concerns
    says(str(same.facts["may_be_because"]), "no SME2 kernel", "depthwise")
    says(findings["sme2-no-faster"].action, "--dtype all")
    (probed,) = (
        each.action
        for each in causes([off, on], [pair_series(off, on)], executorch="1.5.1+cpu")
        if each.id == "sme2-no-faster"
    )
    says(probed, "depthwise convolutions reach SME2 in no number format", "convolutions reach SME2 in fp32")
    slower = findings["sme2-slower"]
    assert slower.concerns[0].facts["kernel_after"] == "PF16" and "packing" in slower.action
    assert slower.max_gain_pct == pytest.approx(100 * 30 / 821, abs=0.01)
    moved = findings["data-movement"]
    assert moved.max_gain_pct == pytest.approx(12.18), "what SME2 left is told once, as its cause"
    for untraced_us, whole_us, named in ((900, 821, "0.821 ms with the"), (750, 820, "0.820 ms with")):
        latency = Latency(experiment="on", threads=1, end_to_end_ms=summarize([untraced_us / 1e3]))
        measured = replace(on, measured=latency)
        for finding in causes([off, measured], [pair_series(off, measured)]):
            bound = str(finding.as_dict()["max_gain_of"])
            says(bound, named, "tracer")
            assert ("left out" in bound) is (whole_us < 821)
            traced = findings[finding.id].max_gain_pct
            assert finding.max_gain_pct == pytest.approx((traced or 0) * 821 / whole_us, abs=0.02)


@pytest.mark.parametrize(
    ("name", "source", "reported", "said"),
    [
        (
            "Fully",
            OperatorSource(output_shape=(1, 10)),
            "XNNPACK issue 10719",
            "more than one row.*1x1 convolution",
        ),
        ("Fully", OperatorSource(output_shape=(64, 10)), "", "matrices larger"),
    ],
)
def test_what_sme2_slows_down_is_named_with_its_cost_and_what_to_do(name, source, reported, said):
    path = {
        "Fully": "Fully Connected (NC, {}F16) GEMM #1",
        "Convolution": "Convolution (NHWC, {}F16) IGEMM #1",
    }
    work = ("Add (ND, F16) #1", 800)
    off, on = (
        series_of(
            [
                with_sources(
                    dump_of(
                        [("DELEGATE_CALL", [(path[name].format("P" if sme2 else ""), spent), work])],
                        experiment=str(sme2),
                        sme2=sme2,
                        round=n,
                    ),
                    **{name: source},
                )
                for n in range(6)
            ]
        )
        for sme2, spent in ((False, 90), (True, 120))
    )
    (slower,) = (one for one in causes([off, on], [pair_series(off, on)]) if one.id == "sme2-slower")
    (concern,) = slower.concerns
    assert concern.facts["lost_ms"] == pytest.approx(0.03)
    says(concern.note, "0.030 ms", "3.3%")
    assert reported in concern.note and re.search(said, slower.action)
    assert "XNNPACK_ENABLE_ARM_SME2=OFF" in slower.action, "SME2 slows all of this model down"


def test_nothing_is_said_of_sme2_about_other_threads_or_what_may_not_be_compared() -> None:
    off, on = (
        series_of([dump_of([("DELEGATE_CALL", [CONV])], experiment=name, threads=n, sme2=n == 2, round=r)
                   for r in range(6)])
        for name, n in (("off", 1), ("on", 2))
    )  # fmt: skip
    assert not [found for found in causes([off, on], [pair_series(off, on)]) if "sme2" in found.id]
    calls = [("DELEGATE_CALL", [CONV])]
    off, on = (
        series_of([dump_of(calls, experiment=str(sme2), sme2=sme2, round=n) for n in range(6)])
        for sme2 in (False, True)
    )
    assert {found.id for found in causes([off, on], [pair_series(off, on)])} == {"sme2-no-faster"}
    assert not causes([off, on], [pair_series(off, on, not_comparable="this CPU has no SME2")])


def test_no_finding_is_without_a_number() -> None:
    dump = dump_of(
        [
            ("DELEGATE_CALL", [CONV, ("Copy (NC, X16) #1", 700), ("Convert (NC) #1", 100)]),
            ("OPERATOR_CALL", [("native_call_topk.values", 600)]),
            ("DELEGATE_CALL", [CONV]),
        ]
    )
    findings = causes([series_of([dump])])
    gains = [one.max_gain_pct or 0.0 for one in findings]
    assert len(findings) == 3 and gains == sorted(gains, reverse=True)
    assert sum(gains) < 100, "no time is in two bounds"
    every = [operator.identity for finding in findings for operator in finding.operators]
    assert len(set(every)) == len(every)
    for finding in findings:
        assert 0 < (finding.max_gain_pct or 0.0) < 100 and finding.action and finding.title
        assert finding.concerns and not any(character.isupper() for character in finding.id)


def test_advice_comes_from_all_rounds_not_from_an_unlucky_first() -> None:
    moving = ("Transpose (ND, X16) #1", 900)
    unlucky = dump_of([("DELEGATE_CALL", [CONV, moving])])
    calm = [dump_of([("DELEGATE_CALL", [CONV, (moving[0], 20)])], round=place) for place in range(1, 6)]
    assert "data-movement" in {one.id for one in causes([series_of([unlucky])])}
    assert not causes([series_of([unlucky, *calm])])


# A model bound by its matrix products, and the order of findings.

FC = ("Fully Connected (NC, F32) GEMM #1", 1000)


def first_of(dump: DumpAnalysis, **options: object) -> Finding:
    return advise([series_of([dump])], **options)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(("moving", "first"), [(80, "matrix-bound"), (400, "data-movement")])
def test_a_model_bound_by_its_products_is_told_so_before_a_cure_for_little(moving: int, first: str) -> None:
    dump = dump_of([("DELEGATE_CALL", [FC, ("Copy (NC, X32) #1", moving)])], threads=1)
    finding = first_of(dump)
    assert finding.id == first
    (bound,) = (each for each in advise([series_of([dump])]) if each.id == "matrix-bound")
    assert bound.max_gain_pct is None, "what another format brings was not measured"
    says(bound.title, f"GEMM takes {100_000 / (1001 + moving):.0f}% of the time", "matrix products")
    says(bound.action, "fp32", "fp16, int8 and int8-dynamic", "--dtype all", "--threads 1,2`")
    assert "SME2" not in bound.action and "--dtype all" in bound.first_step


def test_data_movement_without_code_to_write_instead_is_not_the_first_advice() -> None:
    def first(moving: str) -> str:
        return first_of(dump_of([("DELEGATE_CALL", [CONV, (moving, 500)])])).id

    assert first("Copy (NC, X16) #1") == "data-movement"
    assert first("Transpose (ND, X16) #1") == "matrix-bound"


def test_a_model_that_products_do_not_bind_is_not_told_so() -> None:
    copies = ("Copy (NC, X32) #1", 1000)
    outside = ("OPERATOR_CALL", [("native_call_convolution.out", 1000)])
    for calls in ([("DELEGATE_CALL", [FC, copies])], [outside], [outside, ("DELEGATE_CALL", [CONV])]):
        assert "matrix-bound" not in {each.id for each in advise([series_of([dump_of(calls)])])}


def test_what_is_left_to_do_for_products_depends_on_how_they_ran() -> None:
    """No other format to compare for int8, no threads to try where several were measured."""
    narrow = dump_of([("DELEGATE_CALL", [("Fully Connected (NC, QS8) GEMM #1", 1000)])], threads=1)
    bound = first_of(narrow)
    assert bound.id == "matrix-bound" and "--dtype" not in bound.action and "--threads" in bound.first_step
    both = [series_of([dump_of([("DELEGATE_CALL", [FC])], threads=count)]) for count in (1, 2)]
    assert all("--threads" not in each.action for each in advise(both))
    convolution = first_of(dump_of([("DELEGATE_CALL", [CONV])], threads=1))
    says(convolution.action, "compute in fp16", "int8")
    assert "int8-dynamic" not in convolution.action


def test_a_quantized_program_is_not_told_to_try_its_own_format() -> None:
    quantized = ("Fully Connected (NC, QD8, F32, QC8W) GEMM #1", 1000)

    def advised(*calls: tuple[str, int]) -> dict[str, str]:
        graph = ProgramGraph(Program("net_xnnpack_int8-dynamic.pte", 0, ()))
        dump = replace(dump_of([("DELEGATE_CALL", [*calls])]), graph=graph)
        return {each.id: each.action for each in advise([series_of([dump])])}

    mixed, wide = advised(quantized, FC), advised(FC)
    assert "compute in" not in mixed["matrix-bound"]
    says(wide["matrix-bound"], "compute in fp32", "compare fp16 and int8 (")
    first = [next(iter(each)) for each in (mixed, wide)]
    assert first == ["matrix-bound", "precision-not-as-asked"], "first only if it is most of the model"
    outside = ("OPERATOR_CALL", [("native_call_convolution.out", 5000)])
    dump = dump_of([("DELEGATE_CALL", [quantized]), outside])
    graph = ProgramGraph(Program("net_xnnpack_int8-dynamic.pte", 0, ()))
    assert first_of(replace(dump, graph=graph)).id == "outside-delegates"


def test_layer_norms_that_a_release_computes_wrongly_come_first() -> None:
    norm = ("native_call_native_layer_norm.out", 1)

    def ids(width: int, dtype: str, release: str) -> list[str]:
        source = OperatorSource(operator="aten::native_layer_norm.out", output_shape=(4, width), dtype=dtype)
        dump = dump_of([("DELEGATE_CALL", [FC]), ("OPERATOR_CALL", [norm])])
        known = with_sources(dump, **{norm[0]: source})
        return [each.id for each in advise([series_of([known])], executorch=release)]

    assert ids(256, "fp16", "1.5.1+cpu")[0] == "wrong-results"
    for right in ((255, "fp16", "1.5.1"), (256, "fp32", "1.5.1"), (256, "fp16", "1.4.0")):
        assert "wrong-results" not in ids(*right)


def test_without_latencies_findings_are_ordered_by_the_work_they_are_about() -> None:
    """Not by the order in which causes are looked for."""
    calls: list[Call] = [("DELEGATE_CALL", [FC, ("Transpose (ND, X32) #1", 9), ("Copy (NC, X32) #1", 9)])]
    dump = dump_of(calls, times=Times.EMULATED)

    def ids(transposed: int, copied: int) -> list[str]:
        known = with_sources(
            dump,
            Fully=OperatorSource(flops=900_000, bytes_moved=100_000),
            Transpose=OperatorSource(origin="lowering", bytes_moved=transposed),
            Copy=OperatorSource(bytes_moved=copied),
        )
        findings = advise([series_of([known])])
        assert all(finding.max_gain_pct is None for finding in findings)
        return [finding.id for finding in findings]

    assert ids(30_000, 60_000) == ["matrix-bound", "data-movement", "layout-changes"]
    assert ids(500_000, 60_000) == ["layout-changes", "matrix-bound", "data-movement"]
