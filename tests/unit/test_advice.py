"""Each finding appears where its cause is, with its numbers, and not where it is not."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from said import says, says_together
from strategies import dump_of_calls

from model_profiling.analysis.causes.outside import outside, why_outside
from model_profiling.analysis.findings import Finding, SeriesCase
from model_profiling.analysis.operators import DumpAnalysis, analyse_dump
from model_profiling.analysis.pairing import pair_series
from model_profiling.analysis.run import RunAnalysis, advise
from model_profiling.analysis.series import SeriesAnalysis, series_of
from model_profiling.analysis.series_views import Call as TimedCall
from model_profiling.analysis.series_views import Calls
from model_profiling.analysis.sources import OperatorSource
from model_profiling.config.series import Series
from model_profiling.etdump import read_etdump
from model_profiling.program.graph_file import ProgramGraph, Undelegated
from model_profiling.program.records import Program, SourceRef
from model_profiling.report.data import report_data
from model_profiling.report.verdict import answers
from model_profiling.runs import Times, run
from model_profiling.runs.records import Latency
from model_profiling.statistics.measure import summarize

CONV = ("Convolution (NHWC, F16) IGEMM #1", 1000)
PART = ("DELEGATE_CALL", [CONV])


def dump_of(calls, *, experiment="made", threads=None, times=Times.HARDWARE, round=0, sme2=None):
    dump = run.Dump(Path("made.etdump"), Series(experiment, threads), times, round, sme2=sme2)
    return analyse_dump(read_etdump(dump_of_calls(calls)), dump)


def kernel(name: str, us: int) -> tuple[str, list[tuple[str, int]]]:
    """The call of an operator outside delegates."""
    return "OPERATOR_CALL", [(f"native_call_{name}", us)]


def with_sources(dump: DumpAnalysis, **sources: OperatorSource) -> DumpAnalysis:
    """Replace what is known about operators, by the first word of their names."""
    known = [sources.get(one.name.split()[0], one.source) for one in dump.operators]
    pairs = zip(dump.operators, known, strict=True)
    return replace(dump, operators=tuple(replace(one, source=source) for one, source in pairs))


def causes(*arguments: object, **options: object) -> list[Finding]:
    """All findings but the one that follows from the share of the matrix products alone."""
    findings = advise(*arguments, **options)  # type: ignore[arg-type]
    return [finding for finding in findings if finding.id != "matrix-bound"]


def found(dump: DumpAnalysis, **options: object) -> dict[str, Finding]:
    return {finding.id: finding for finding in causes([series_of([dump])], **options)}


def off_and_on(before, after, threads=(None, None), **sources: OperatorSource) -> list[SeriesAnalysis]:
    """Six rounds of one delegate's operators without SME2, and six with it."""

    def rounds(name: str, operators, count: int | None) -> SeriesAnalysis:
        said = {"experiment": name, "threads": count, "sme2": name == "on"}
        dumps = [dump_of([("DELEGATE_CALL", operators)], **said, round=number) for number in range(6)]
        return series_of([with_sources(dump, **sources) for dump in dumps])

    return [rounds("off", before, threads[0]), rounds("on", after, threads[1])]


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
    place = SourceRef(module_path="features.0", file="/home/user/net.py", line=12)
    conv = OperatorSource(origin="model", node_kind="Conv2d", place=place)
    known = with_sources(dump, Transpose=OperatorSource(origin="lowering"), Convolution=conv)
    finding = found(known)["layout-changes"]
    assert finding.evidence["added_by_lowering"] == 1 and "that lowering added" in finding.title
    assert finding.max_gain_pct == pytest.approx(100 * 100 / 1151, abs=0.01)
    (concern,) = finding.concerns
    says(concern.where, "features.0", "net.py:12", "output")
    assert "layout-changes" not in found(dump)


def test_fragmentation_counts_the_calls_and_what_lies_between() -> None:
    dump = dump_of([PART, kernel("topk.values", 200), PART])
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
    assert found(dump_of([PART])) == {}, "a model that only computes"
    assert not found(dump_of([PART, kernel("topk.values", 15)])), "it cannot save two percent"
    assert "outside-delegates" in found(dump_of([PART, kernel("topk.values", 30)]))


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
    others = ("executorch_prim::et_view.default", "aten::_local_scalar_dense", "aten::topk.values")
    calls = [("OPERATOR_CALL", [each]) for each in (("gelu.out", 200), *((name, 900) for name in others))]
    finding = found(explained(dump_of([PART, *calls, PART]), GELU))["outside-delegates"]
    assert finding.title == "Bring 1 gelu operator into the delegate (model.py:31)"
    says(finding.action, "no cure is known for reshape, scalar read and reduction", "does not count it")
    assert "not exported by this kit" not in finding.action
    whys = {each.kind: why_outside(finding.found_in, each) for each in finding.operators}
    for kind, said in (("reshape", "varies"), ("scalar read", "a number"), ("reduction", "added it after")):
        assert (why := whys[kind]) and said in why.reason


def test_what_nothing_helps_is_named_and_left_out_of_the_bound() -> None:
    gelu, embedding = kernel("gelu.out", 200), kernel("embedding.out", 300)
    both = explained(dump_of([PART, gelu, PART, embedding, PART]), GELU, EMBEDDING)
    finding = found(both)["outside-delegates"]
    says(finding.title, "bring", "1 gelu operator", GELU.source)
    says_together(finding.action, "no cure", "embedding", EMBEDDING.source)
    assert finding.evidence["delegate_calls"] == 3 and finding.evidence["calls_joined"] == 1
    first, last = finding.steps
    says(first, GELU.reason, GELU.replacement)
    says_together(last, "no cure", "embedding")
    assert finding.max_gain_pct == pytest.approx(100 * 202 / 3505, abs=0.01)
    assert {concern.facts["call"] for concern in finding.concerns} == {"gelu", "embedding"}
    assert {(one.where, one.note) for one in finding.concerns} >= {("model.py:31", GELU.reason)}
    (told,) = (one for one in finding.as_dict()["evidence"]["operators"] if one["call"] == "gelu")
    assert (told["reason"], told["why"], told["call"]) == (GELU.reason, "refused", "gelu")
    assert told["replacement"] == GELU.replacement and told["parts_delegates"] == 1
    untimed = explained(dump_of([PART, gelu, PART], times=Times.EMULATED), GELU)
    assert found(untimed)["outside-delegates"].max_gain_pct is None
    alone = explained(dump_of([PART, PART, PART, embedding, PART]), EMBEDDING)
    finding = found(alone)["outside-delegates"]
    says(finding.title, "no cure", "1 embedding operator", EMBEDDING.source)
    says_together(finding.action, "no cure", "XNNPACK", "integers")
    assert finding.evidence["calls_joined"] == 0 and finding.besides is None
    constant = explained(dump_of([PART, gelu, PART]), replace(GELU, constant=True))
    assert found(constant)["outside-delegates"].evidence["calls_joined"] == 0, "it waits for no delegate"


def test_a_line_outside_that_takes_much_is_named_even_where_no_cure_is_known() -> None:
    """Never nothing to do while one line outside the delegate takes more than a tenth of the time."""
    part = ("DELEGATE_CALL", [("Sigmoid (NC) #1", 1000)])
    gelu, embedding = kernel("gelu.out", 5), kernel("embedding.out", 600)
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
    outside_us = (("expand_copy", by_kit_us), ("convolution", 300), ("embedding", 10))
    calls = [call for name, us in outside_us for call in (PART, kernel(f"{name}.out", us))]
    dump = explained(dump_of(calls), EXPANDED, WEIGHTED, replace(EMBEDDING, instruction=5))
    finding = found(dump)["outside-delegates"]
    says(finding.title, "2 of 3 operators")
    says(finding.action, "XNNPACK needs a constant weight", "; remove the weight norm")
    assert ("sme2prof optimize" in finding.action) is offered
    if offered:
        says(finding.action, "no rule for the `expand` inside matmul", "(batched matmul)", "`conv1d` by hand")


def test_calls_cost_what_they_do_and_what_nothing_parts_is_no_advice() -> None:
    """A delegate's whole microseconds lose a part of each operator: that is no price of its call."""
    small, large = (TimedCall(at, True, 1 + 9 * at, 500.0 + 400 * (1 + 9 * at)) for at in (0, 1))
    assert Calls((small, large), 0.0).entering_ns == pytest.approx(500)
    alike = Calls((small, replace(small, number=1)), 0.0)
    assert alike.entering_ns == pytest.approx(900), "one size: nothing tells the two apart"
    falling = Calls((small, replace(large, beside_ns=100.0)), 0.0)
    assert falling.entering_ns == pytest.approx(100), "never more than the cheapest"
    assert Calls((), 0.0).entering_ns == 0.0
    # Two calls in a row were parted by the partitioner: nothing in the model joins them.
    assert not found(dump_of([PART] * 4))
    first = found(dump_of([kernel("topk.values", 200), PART, PART]))
    assert first["outside-delegates"].evidence["calls_joined"] == 0
    assert "join" not in first["outside-delegates"].action
    finding = found(dump_of([kernel("addmm.out", 500)]))["outside-delegates"]
    assert "--backend xnnpack" in finding.action
    fixed = replace(GELU, call="full", constant=True, instruction=1)
    calls = [PART, kernel("full.out", 100), kernel("gelu.out", 200), PART]
    dump = explained(dump_of(calls), fixed, replace(GELU, instruction=2))
    series = series_of([dump])
    finding = outside(SeriesCase(series), [each for each in series.operators if "full" not in each.name])
    assert finding is not None and finding.evidence["calls_joined"] == 1


@pytest.mark.parametrize("times", [Times.EMULATED, Times.TRACED, Times.UNKNOWN])
def test_times_that_are_no_latencies_tell_structure_without_a_bound(times: Times) -> None:
    moving = ("DELEGATE_CALL", [CONV, ("Transpose (ND, X16) #1", 700)])
    assert found(dump_of([moving])) and not found(dump_of([moving], times=times))
    sweep = [series_of([dump_of([moving], threads=threads, times=times)]) for threads in (1, 2)]
    assert not causes(sweep)
    calls = [moving, kernel("topk.values", 5)]
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
    after = [("Convolution (NHWC, PF16) IGEMM #1", 200), depthwise]
    after += [("Fully Connected (NC, PF16) GEMM #1", 120), ("Transpose (ND, X16) #1", 100)]
    off, on = off_and_on(before, after)
    findings = {finding.id: finding for finding in causes([off, on], [pair_series(off, on)])}
    (same,) = findings["sme2-no-faster"].concerns
    says(str(same.facts["may_be_because"]), "no SME2 kernel", "depthwise")
    says(findings["sme2-no-faster"].action, "--dtype all")
    of_release = causes([off, on], [pair_series(off, on)], executorch="1.5.1+cpu")
    (probed,) = (each.action for each in of_release if each.id == "sme2-no-faster")
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
    ("rows", "reported", "said"),
    [(1, "XNNPACK issue 10719", "more than one row.*1x1 convolution"), (64, "", "matrices larger")],
)
def test_what_sme2_slows_down_is_named_with_its_cost_and_what_to_do(rows, reported, said):
    before, after = (
        [(f"Fully Connected (NC, {family}) GEMM #1", spent), ("Add (ND, F16) #1", 800)]
        for family, spent in (("F16", 90), ("PF16", 120))
    )
    off, on = off_and_on(before, after, Fully=OperatorSource(output_shape=(rows, 10)))
    (slower,) = (one for one in causes([off, on], [pair_series(off, on)]) if one.id == "sme2-slower")
    (concern,) = slower.concerns
    assert concern.facts["lost_ms"] == pytest.approx(0.03)
    says(concern.note, "0.030 ms", "3.3%")
    assert reported in concern.note and re.search(said, slower.action)
    assert "XNNPACK_ENABLE_ARM_SME2=OFF" in slower.action, "SME2 slows all of this model down"


def test_nothing_is_said_of_sme2_about_other_threads_or_what_may_not_be_compared() -> None:
    off, on = off_and_on([CONV], [CONV], threads=(1, 2))
    assert not [found for found in causes([off, on], [pair_series(off, on)]) if "sme2" in found.id]
    off, on = off_and_on([CONV], [CONV])
    assert {found.id for found in causes([off, on], [pair_series(off, on)])} == {"sme2-no-faster"}
    assert not causes([off, on], [pair_series(off, on, not_comparable="this CPU has no SME2")])


def test_no_finding_is_without_a_number() -> None:
    moving = ("DELEGATE_CALL", [CONV, ("Copy (NC, X16) #1", 700), ("Convert (NC) #1", 100)])
    dump = dump_of([moving, kernel("topk.values", 600), PART])
    findings = causes([series_of([dump])])
    gains = [one.max_gain_pct or 0.0 for one in findings]
    assert {one.id for one in findings} == {"data-movement", "quantize-dequantize", "outside-delegates"}
    assert gains == sorted(gains, reverse=True)
    assert sum(gains) < 100, "no time is in two bounds"
    every = [operator.identity for finding in findings for operator in finding.operators]
    assert len(set(every)) == len(every)
    for finding in findings:
        assert 0 < (finding.max_gain_pct or 0.0) < 100 and finding.action and finding.title
        assert finding.concerns and not any(character.isupper() for character in finding.id)


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


def test_only_a_model_that_products_bind_is_told_so_and_first_where_no_code_can_be_written_instead() -> None:
    outside = kernel("convolution.out", 1000)
    for calls in ([("DELEGATE_CALL", [FC, ("Copy (NC, X32) #1", 1000)])], [outside], [outside, PART]):
        assert "matrix-bound" not in {each.id for each in advise([series_of([dump_of(calls)])])}
    for moving, first in (("Copy (NC, X16) #1", "data-movement"), ("Transpose (ND, X16) #1", "matrix-bound")):
        assert first_of(dump_of([("DELEGATE_CALL", [CONV, (moving, 500)])])).id == first


def test_what_is_left_to_do_for_products_depends_on_how_they_ran() -> None:
    """No other format to compare for int8, no threads to try where several were measured."""
    narrow = dump_of([("DELEGATE_CALL", [("Fully Connected (NC, QS8) GEMM #1", 1000)])], threads=1)
    bound = first_of(narrow)
    assert bound.id == "matrix-bound" and "--dtype" not in bound.action and "--threads" in bound.first_step
    both = [series_of([dump_of([("DELEGATE_CALL", [FC])], threads=count)]) for count in (1, 2)]
    assert all("--threads" not in each.action for each in advise(both))
    convolution = first_of(dump_of([PART], threads=1))
    says(convolution.action, "compute in fp16", "int8")
    assert "int8-dynamic" not in convolution.action


def test_a_quantized_program_is_not_told_to_try_its_own_format() -> None:
    quantized = ("Fully Connected (NC, QD8, F32, QC8W) GEMM #1", 1000)
    graph = ProgramGraph(Program("net_xnnpack_int8-dynamic.pte", 0, ()))

    def advised(*calls: tuple[str, int]) -> dict[str, str]:
        dump = replace(dump_of([("DELEGATE_CALL", [*calls])]), graph=graph)
        return {each.id: each.action for each in advise([series_of([dump])])}

    mixed, wide = advised(quantized, FC), advised(FC)
    assert "compute in" not in mixed["matrix-bound"]
    says(wide["matrix-bound"], "compute in fp32", "compare fp16 and int8 (")
    first = [next(iter(each)) for each in (mixed, wide)]
    assert first == ["matrix-bound", "precision-not-as-asked"], "first only if it is most of the model"
    dump = dump_of([("DELEGATE_CALL", [quantized]), kernel("convolution.out", 5000)])
    assert first_of(replace(dump, graph=graph)).id == "outside-delegates"


def test_layer_norms_that_a_release_computes_wrongly_come_first() -> None:
    def ids(width: int, dtype: str, release: str) -> list[str]:
        source = OperatorSource(operator="aten::native_layer_norm.out", output_shape=(4, width), dtype=dtype)
        dump = dump_of([("DELEGATE_CALL", [FC]), kernel("native_layer_norm.out", 1)])
        known = with_sources(dump, **{"native_call_native_layer_norm.out": source})
        return [each.id for each in advise([series_of([known])], executorch=release)]

    assert ids(256, "fp16", "1.5.1+cpu")[0] == "wrong-results"
    for right in ((255, "fp16", "1.5.1"), (256, "fp32", "1.5.1"), (256, "fp16", "1.4.0")):
        assert "wrong-results" not in ids(*right)


def test_without_latencies_findings_are_ordered_by_the_work_they_are_about() -> None:
    """Not by the order in which causes are looked for."""
    calls = [("DELEGATE_CALL", [FC, ("Transpose (ND, X32) #1", 9), ("Copy (NC, X32) #1", 9)])]
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
