"""What recorded runs prove about their operators on SME2, and what is projected from which of them."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from made_series import made_series
from pages import lines, section, table
from recorded_runs import (
    ARM,
    DATA,
    EMULATED,
    SME2,
    X86_64,
    assert_same_figures,
    edit,
    load,
    make_config,
    replay,
)
from said import refused, says

from model_profiling.analysis.coverage import ONE_ROW, Outlook, outlook_of, speedup_of
from model_profiling.analysis.kernels import executed_kernels, operator_kernels, sme_verdict
from model_profiling.analysis.matching import match_proven, prove_operators
from model_profiling.analysis.run import RunAnalysis
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.cli.main import main
from model_profiling.core.errors import InputError
from model_profiling.program.delegates import describe
from model_profiling.program.records import GraphNode, Tensor
from model_profiling.report.analysis_json import outlook_facts
from model_profiling.report.data import ReportData
from model_profiling.report.run_report import run_document
from model_profiling.report.verdict import answers
from model_profiling.runs.records import MatrixOperator, read_evidence
from model_profiling.workflow.analyse import analyse
from model_profiling.workflow.measure import RunOptions
from model_profiling.workflow.report import gather_report

KEYS = ("sme2_coverage", "sme2_headroom", "headroom_reason")
SUMMARY = "small_cnn_xnnpack_fp16_pipeline_summary.json"


@cache
def recorded(run_dir: Path) -> RunAnalysis:
    """The analysis of a run that no test changes."""
    return analyse(run_dir)


def outlook(run_dir: Path) -> Outlook:
    analysis = recorded(run_dir) if DATA in run_dir.parents else analyse(run_dir)
    return outlook_of(analysis.run, analysis, analysis.proven.evidence)


@pytest.fixture
def arm(tmp_path: Path) -> Path:
    """A copy of the run on the Arm CPU without SME2, to be spoilt."""
    return shutil.copytree(ARM, tmp_path / "linux")


def test_an_arm_cpu_without_sme2_gets_a_projection() -> None:
    found = outlook(ARM)
    assert found.coverage.tested and found.coverage.emulated and not found.reason
    assert [projection.series.threads for projection in found.projections] == [1, 2], "one for each count"
    for projection in found.projections:
        assert 0 < projection.time_share < 1
        assert 1 < projection.low < projection.high < projection.ceiling
        assert projection.ceiling == pytest.approx(1 / (1 - projection.time_share))
        assert projection.before.category == "Convolution"
        for part in (projection.before, projection.after_low, projection.after_high):
            assert 0 <= part.share <= 1


def test_shares_are_those_of_the_measured_operators() -> None:
    analysis = recorded(ARM)
    projection = outlook_of(analysis.run, analysis, analysis.proven.evidence).projections[0]
    series = analysis.of(projection.series)
    assert series is not None
    matrix = [each for each in series.operators if each.category.value in ("Convolution", "GEMM")]
    assert projection.time_share == pytest.approx(series.spent_by(matrix).share)
    assert sum(group.count for group in projection.groups) == len(matrix)
    parts = [(group.time_share, group.low) for group in projection.groups]
    assert projection.low == pytest.approx(speedup_of(parts))
    median = load(ARM / "metrics.json")["latencies"][0]["end_to_end_ms"]["median"]
    assert_same_figures(projection.latency_ms, median)


def test_a_linear_layer_with_one_row_is_not_taken_to_get_faster() -> None:
    found = outlook(ARM)
    (one,) = [operator for operator in found.coverage.operators if operator.rows == 1]
    assert one.kind == "linear" and one.on_sme
    (group,) = [group for group in found.projections[0].groups if group.operators == ONE_ROW]
    assert group.count == 1 and group.high <= 1


@pytest.mark.parametrize(
    ("run_dir", "reason"),
    [(EMULATED, "emulated"), (X86_64, "not from an Arm CPU"), (SME2, "is measured")],
    ids=lambda value: value.name if isinstance(value, Path) else "",
)
def test_elsewhere_only_coverage_is_told(run_dir: Path, reason: str) -> None:
    found = outlook(run_dir)
    assert found.coverage.tested and not found.projections and reason in found.reason
    assert found.coverage.emulated is (run_dir != SME2), "where this CPU has SME2 it proves it itself"
    assert (len(found.coverage.proven), len(found.coverage.operators)) == (5, 5)
    assert found.coverage.arithmetic_share == 1
    facts = outlook_facts(found)
    assert facts["sme2_headroom"] is None and facts["headroom_reason"] == found.reason
    assert not any("roject" in sentence for sentence in answers(gather_report(run_dir)).sentences)


@pytest.mark.parametrize("run_dir", [ARM, EMULATED, X86_64, SME2], ids=lambda path: path.name)
def test_every_file_and_command_states_one_record(run_dir: Path, capsys, tmp_path: Path) -> None:
    facts = json.loads(json.dumps(outlook_facts(outlook(run_dir))))
    assert {key: load(run_dir / "analysis_summary.json")[key] for key in KEYS} == facts
    assert {key: load(run_dir / SUMMARY)[key] for key in KEYS} == facts
    assert main(["report", str(run_dir), "--out", str(tmp_path / "page.md"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert {key: printed[key] for key in KEYS} == facts


def test_the_report_opens_with_the_projection_and_shows_its_inputs() -> None:
    data = gather_report(ARM)
    projection = data.outlook.projections[0]
    speedups = f"about {projection.low:.1f}x to {projection.high:.1f}x"
    told = answers(data)
    assert re.match(rf"Projected.* {re.escape(speedups)}", told.what_sme2_changes)
    assert projection.series.spoken(data.run.series) in told.where_time_goes, "what the projection is of"
    shown = section(run_document(data), "SME2")
    first = table(shown, "threads", "share of time")[0]
    assert first[2:5] == [f"{each:.2f}x" for each in (projection.low, projection.high, projection.ceiling)]
    factors = {group.operators: (group.low, group.high) for group in projection.groups}
    assert factors == {"Convolution": (3, 15), "GEMM": (3, 15), ONE_ROW: (0.33, 1)}
    assert any("not a measurement" in line for line in lines(shown))


def test_unknown_arithmetic_is_in_no_share_and_that_is_said() -> None:
    data = _without_program(gather_report(EMULATED))
    kept = data.evidence[0].operators
    assert kept is not None
    first, *others = kept.operators
    proof = replace(kept, operators=(replace(first, flops=None), *others))
    data = replace(data, evidence=(replace(data.evidence[0], operators=proof),))
    coverage = data.outlook.coverage
    assert coverage.uncounted == 1 and coverage.flops_total == sum(each.flops or 0 for each in others)
    assert any("arithmetic that is known" in sentence for sentence in answers(data).sentences)
    said = lines(section(run_document(data), "SME2"))
    assert any(re.search(r"\b1 matrix operator\b.*not known", line) for line in said)


def _without_program(data: ReportData) -> ReportData:
    """As if nothing but the events were known: then what ran has to do."""
    assert data.analysis is not None
    series = tuple(
        replace(found, rounds=tuple(replace(dump, graph=None) for dump in found.rounds))
        for found in data.analysis.series
    )
    return replace(data, analysis=replace(data.analysis, series=series))


def test_what_misses_sme2_is_listed_with_share_and_reason() -> None:
    data = gather_report(EMULATED)
    kept = data.evidence[0].operators
    assert kept is not None
    first, *others = kept.operators
    missing = replace(first, on_sme=False, why_not="no kernel for it")
    proof = replace(kept, operators=(missing, *others))
    data = replace(data, evidence=(replace(data.evidence[0], operators=proof),))
    (found,) = data.outlook.coverage.missing
    share = (first.flops or 0) / sum(each.flops or 0 for each in kept.operators)
    assert data.outlook.coverage.share_of(found) == pytest.approx(share)
    assert found.why_not == "no kernel for it"
    assert data.outlook.coverage.arithmetic_share == pytest.approx(1 - share)
    ((row,),) = [table(section(run_document(data), "SME2"), "why")]
    assert row == ["no kernel for it", "not known", "1", f"{100 * share:.1f}%"]


def test_reasons_to_miss_sme2_are_summed_with_the_largest_first() -> None:
    known = gather_report(EMULATED).outlook.coverage
    largest = max(known.operators, key=lambda each: each.flops or 0)
    missing = tuple(
        replace(each, on_sme=False, why_not="large" if each is largest else "small")
        for each in known.operators
    )
    found = replace(known, operators=missing).missing_reasons
    assert {each.reason: each.operators for each in found} == {"large": 1, "small": len(missing) - 1}
    assert found[0].share > found[1].share and found[0].share + found[1].share == pytest.approx(1)


def test_evidence_without_operators_tests_nothing_and_says_what_would(arm: Path) -> None:
    edit(arm / "evidence.json", lambda content: content.pop("operators"))
    found = outlook(arm)
    assert found.coverage.evidence == "not tested" and not found.projections
    assert found.coverage.next_command.startswith("sme2prof profile ")
    coverage = outlook_facts(found)["sme2_coverage"]
    assert isinstance(coverage, dict) and coverage["operators"] is None and not coverage["missing"]
    assert coverage["operators_total"] == 5, "how many there are is the program's word"
    line, *_ = lines(section(run_document(gather_report(arm)), "SME2"))
    assert line.startswith("It was not tested") and found.coverage.next_command in line


def test_operators_that_are_not_found_again_give_no_projection(arm: Path) -> None:
    (arm / "program_graph.json").unlink()
    data = gather_report(arm)
    assert data.outlook.coverage.proven and not data.outlook.projections
    says(data.outlook.reason, "not found")
    assert "1.00x" not in answers(data).what_sme2_changes


@pytest.mark.parametrize(
    ("kernel", "tested"),
    [
        ("", False),
        ("kai_run_matmul_clamp_f32_f32p2vlx1_f32p2vlx1biasf32_sme2_mopa", True),  # of another type
        ("kai_run_lhs_pack_x16p2vlx2_x16_sme", True),  # it only packs
    ],
)
def test_a_label_without_its_kernel_called_proves_nothing(kernel: str, tested: bool) -> None:
    series = recorded(EMULATED).series[0]
    labels = operator_kernels(tuple(operator.name for operator in series.operators))
    uses = (*executed_kernels({kernel: 7} if kernel else {}), *labels)
    proof = prove_operators(series, uses, sme_verdict(uses, traced=tested))
    assert not any(operator.on_sme for operator in proof.operators)
    assert proof.operators if tested else proof.not_tested


def _proven() -> tuple[SeriesAnalysis, tuple[MatrixOperator, ...]]:
    """A series of the CPU without SME2, and what was proven of its program elsewhere."""
    kept = read_evidence(ARM)
    assert kept is not None and kept.operators is not None
    return recorded(ARM).series[0], kept.operators.operators


def test_proven_operators_are_found_under_another_name() -> None:
    matched = match_proven(*_proven())
    for proven, (operator,) in matched:
        assert "PF16" in proven.name and "PF16" not in operator.name
        assert operator.source.node_index == proven.node
        assert operator.source.flops == proven.flops


def test_a_node_that_ran_as_two_operators_counts_once_and_only_if_both_are_proven() -> None:
    series, (first, *_) = _proven()
    assert len(match_proven(series, (first, first))) == 1
    assert not match_proven(series, (first, replace(first, on_sme=False)))


def test_evidence_of_a_run_made_elsewhere_is_kept_and_projected_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = shutil.copytree(EMULATED, tmp_path / "there" / "brought_here")
    other = shutil.copytree(EMULATED, tmp_path / "there" / "of_another_program")
    edit(other / "manifest.json", lambda manifest: manifest.update(model_sha256="0" * 64))
    run_dir = tmp_path / "here" / "mac"
    with refused(InputError, "another program", "000000000000", fix="copy of this .pte"):
        replay(ARM, run_dir, options=RunOptions(evidence=(other,)))
    with refused(InputError, "not a finished emulated run", fix="--target emulated"):
        replay(ARM, run_dir, options=RunOptions(evidence=(SME2,)))
    assert not run_dir.exists(), "nothing was measured"
    made = replay(ARM, run_dir, options=RunOptions(evidence=(other, there)))
    assert made.data.outlook.projections and made.run.evidence
    assert "Projected, not measured" in (run_dir / "report.md").read_text()
    # Afterwards too, without measuring; and a run that holds such evidence gives it on.
    later = tmp_path / "later" / "linux"
    assert not replay(ARM, later).data.outlook.projections
    config = tmp_path / "config.json"
    config.write_text(json.dumps(make_config(later).model_dump(mode="json")))
    assert main(["run", str(config), "--analysis-only", "--evidence", str(run_dir), "--json"]) == 0
    assert outlook(later).projections == made.data.outlook.projections
    assert read_evidence(later) == read_evidence(run_dir)
    with_sme2 = tmp_path / "with_sme2" / "linux"
    replay(SME2, with_sme2)
    config.write_text(json.dumps(make_config(with_sme2).model_dump(mode="json")))
    capsys.readouterr()
    assert main(["run", str(config), "--analysis-only", "--evidence", str(there)]) == 0
    says(capsys.readouterr().err, "--evidence has no effect", "without SME2")


def test_a_mac_without_sme2_is_told_the_way_to_evidence(tmp_path: Path) -> None:
    run_dir = shutil.copytree(ARM, tmp_path / "mac")
    edit(run_dir / "manifest.json", lambda manifest: manifest["target"].update(platform="mac"))
    (run_dir / "evidence.json").unlink(missing_ok=True)
    (kernels, *_) = gather_report(run_dir).not_tested
    says(str(kernels), "--evidence ssh:HOST", "Linux machine")


def _node(kind: str, dtype: str, weights: str) -> GraphNode:
    image = Tensor((1, 8, 8, 16), dtype)
    inputs = image, Tensor((16, 1, 1, 16), weights, constant=True)
    return GraphNode(0, kind, 1, inputs, (image,), (0, 1), (2,), None, None, (), 0, 0)


@pytest.mark.parametrize(
    ("event", "kind", "dtype", "weights", "words"),
    [
        ("Fully Connected (NC, F16) GEMM #1", "Conv2d", "fp16", "fp32", "1x1 convolutions"),
        ("Convolution (NHWC, F16) DWConv #1", "DepthwiseConv2d", "fp16", "fp32", "depthwise"),
        ("Deconvolution (NHWC, F32) GEMM #1", "ConvTranspose2d", "fp32", "fp32", "transposed"),
        ("Fully Connected (NC, QS8) GEMM #1", "FullyConnected", "qint8", "qint8", "scale per output channel"),
        ("Fully Connected (NC, QP8, F32, QC4W) GEMM #1", "FullyConnected", "qdint8", "qcint4", "same name"),
        ("Fully Connected (NC, QP8, F32, QB4W) GEMM #1", "FullyConnected", "qdint8", "qbint4", "per block"),
        ("Fully Connected (NC, QD8, F16, QC8W) GEMM #1", "FullyConnected", "qdint8", "qcint8", "returns "),
        ("Fully Connected (NC, F32, QC8W) GEMM #1", "FullyConnected", "fp32", "qcint8", "that are not"),
        ("Convolution (NHWC, QD8, F32, QC8W) IGEMM #1", "Conv2d", "qdint8", "qcint8", "at run time"),
        ("Batch Matrix Multiply (NC, QS8) GEMM #1", "BatchMatrixMultiply", "qint8", "qint8", "activations"),
        ("Convolution (NHWC, QC8) IGEMM #1", "DepthwiseConv2d", "qint8", "qcint8", "runs as IGEMM"),
        ("Fully Connected (NC, F16) GEMM #1", "FullyConnected", "fp16", "fp16", ""),
        ("Fully Connected (NC, PF16) GEMM #1", "FullyConnected", "fp16", "fp16", ""),
    ],
)
def test_xnnpack_says_why_it_has_no_sme2_path(
    event: str, kind: str, dtype: str, weights: str, words: str
) -> None:
    found = describe(event, "XnnpackBackend", _node(kind, dtype, weights)).matrix
    said = found.miss.words if found and found.miss else ""
    assert found is not None and words in said and bool(said) == bool(words)


@pytest.mark.parametrize(
    ("ran", "on_sme"),
    [
        (("1vlx4_qsi8cxp4vlx4_1vlx4vl_sme2_mopa",), True),
        (("4x8_qsi8cxp4x8_16x4_neon_i8mm",), False),
        (("1vlx4_qsi8cxp4vlx4_1vlx4vl_sme2_mopa", "4x8_qsi8cxp4x8_16x4_neon_i8mm"), False),
        ((), False),
    ],
)
def test_a_label_that_every_instruction_set_has_is_proven_by_the_kernels_called(
    ran: tuple[str, ...], on_sme: bool
) -> None:
    series = made_series(1, name=lambda _: "Fully Connected (NC, QP8, F32, QC8W) GEMM #1")
    uses = executed_kernels({f"kai_run_matmul_clamp_f32_qai8dxp{each}": 1 for each in ran})
    (operator,) = prove_operators(series, uses, sme_verdict(uses, traced=True)).operators
    assert operator.on_sme is on_sme and bool(operator.why_not) is not on_sme
