"""Which matrix operators take SME2 paths, which miss them and why: on a model that has them all, under
emulation."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from recorded_runs import ARM, EMULATED, SME2, X86_64
from said import says

from model_profiling.analysis.causes.avoidable import layout_changes
from model_profiling.analysis.causes.matrix import precision_not_as_asked
from model_profiling.analysis.causes.sme2 import misses_sme2
from model_profiling.analysis.coverage import Sme2Coverage, coverage_of
from model_profiling.analysis.findings import SeriesCase
from model_profiling.analysis.run import RunAnalysis, analyse_run, proven_of
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.program.delegates import describe
from model_profiling.program.matrix_work import PROBE, reach_in
from model_profiling.runs import Run

PATHS = Path(__file__).parents[1] / "data" / "sme_paths"
FP16, INT8 = PATHS / "fp16", PATHS / "int8"
MISSING = {
    FP16: {"up": "dtype", "depthwise7": "depthwise", "point": "dtype", "depthwise3": "depthwise"},
    INT8: {"depthwise7": "depthwise", "depthwise3": "depthwise"},
}
RELEASE = "1.5.1+cpu"
"""The ExecuTorch that the recorded runs used."""
IDS = {"misses-sme2", "precision-not-as-asked"}


@cache
def analysed(run_dir: Path) -> RunAnalysis:
    run = Run.open(run_dir)
    return analyse_run(run, run.programs())


def coverage(run_dir: Path) -> Sme2Coverage:
    return analysed(run_dir).proven.coverage


def untested(run_dir: Path) -> Sme2Coverage:
    return coverage_of(analysed(run_dir).run, (), analysed(run_dir).series)


def with_sme2(run_dir: Path) -> SeriesAnalysis:
    return next(series for series in analysed(run_dir).series if series.sme2 is not False)


def case(series: SeriesAnalysis, known: Sme2Coverage, release: str) -> SeriesCase:
    return SeriesCase(series, coverage=known, executorch=release)


@pytest.mark.parametrize("run_dir", [FP16, INT8], ids=lambda path: path.name)
def test_what_misses_sme2_is_known_with_its_cause_and_what_the_program_foretells_is_what_ran(
    run_dir: Path,
) -> None:
    found = coverage(run_dir)
    assert {each.module_path: each.cause for each in found.missing} == MISSING[run_dir]
    reach = reach_in(RELEASE)
    assert reach is not None
    foretold = [reach.takes_sme(work.path, work.node.types) for work in found.work if work.node]
    assert foretold == [operator.on_sme for operator in found.operators]
    assert not [each for each in found.missing if "not known" in each.why_not]


def test_the_whole_is_the_same_in_every_report_of_a_program() -> None:
    wholes = {
        tuple((each.node, each.instruction_id, each.flops) for each in coverage(run_dir).operators)
        for run_dir in (ARM, EMULATED, X86_64, SME2)
    }
    assert len(wholes) == 1
    for run_dir in (FP16, INT8):
        tested, not_tested = coverage(run_dir), untested(run_dir)
        assert not not_tested.tested and not not_tested.proven and not not_tested.missing
        assert tested.flops_total == not_tested.flops_total and len(not_tested.operators) == 12
    # What a run understood of its events changes what is proven, never what it is a share of.
    found = coverage(FP16)
    series = tuple(replace(each, operators=each.operators[:9]) for each in analysed(FP16).series)
    seen = proven_of(analysed(FP16).run, series).coverage
    assert seen.flops_total == found.flops_total and len(seen.proven) < len(found.proven)
    assert any("has no event of" in each.why_not for each in seen.missing)


def test_findings_about_sme2_are_made_where_they_hold_and_nowhere_else() -> None:
    runs = FP16, INT8, ARM, EMULATED, X86_64, SME2
    made = {run_dir: {each.id for each in analysed(run_dir).findings} & IDS for run_dir in runs}
    assert made[FP16] == {"misses-sme2"}
    assert made[INT8] == {"misses-sme2", "precision-not-as-asked"}
    assert not made[ARM] | made[EMULATED] | made[X86_64] | made[SME2]


def test_why_operators_miss_sme2_comes_with_what_helps() -> None:
    found = misses_sme2(case(with_sme2(FP16), coverage(FP16), RELEASE), ())
    assert found is not None and found.max_gain_pct is None
    says(found.title, "Let 1 of 1 transposed convolution reach SME2", "export it as int8")
    says(found.action, "export the transposed convolution as int8", "place of the 2 depthwise convolutions")
    assert {concern.operator.source.module_path for concern in found.concerns} == set(MISSING[FP16])
    assert found.evidence["arithmetic_share"] == pytest.approx(0.1348, abs=5e-5)
    known = coverage(FP16)
    point = tuple(replace(each, on_sme=each.module_path != "point") for each in known.operators)
    only = misses_sme2(case(with_sme2(FP16), replace(known, operators=point), RELEASE), ())
    assert only is None, "less than 2% of the arithmetic"
    heavy = tuple(replace(each, flops=10**9 if not each.on_sme else 1) for each in point)
    only = misses_sme2(case(with_sme2(FP16), replace(known, operators=heavy), RELEASE), ())
    assert only is not None
    says(only.title, "Let 1 of 1 1x1 convolution reach SME2", "write it as linear layers over the channels")
    alone = tuple(replace(each, cause="not known") for each in known.operators)
    without = misses_sme2(case(with_sme2(FP16), replace(known, operators=alone), RELEASE), ())
    assert found.has_cure and without is not None and not without.has_cure
    assert without.title.startswith("No known change lets")


@pytest.mark.parametrize("release", ["1.6.0", "", "../../../etc/1.5.1"])
def test_nothing_is_guessed_about_a_release_that_was_not_probed(release: str) -> None:
    assert reach_in(release) is None
    found = misses_sme2(case(with_sme2(FP16), coverage(FP16), release), ())
    assert found is not None and found.has_cure == bool(release)
    told = (f"not known for ExecuTorch {release}", PROBE) if release else ("no change is known",)
    says(found.action, *told)
    assert "export the" not in found.action


def test_every_recorded_layer_that_misses_sme2_has_a_reason_in_words() -> None:
    reach = reach_in(RELEASE)
    assert reach is not None
    own_words = ("pointwise convolution", "convolution with one input channel")  # these need the program
    missing = [each for each in reach.layers if not each.kernels and each.path not in own_words]
    said = {each: describe(each.event).matrix for each in missing}
    assert missing and all(path is not None and path.miss is not None for path in said.values())
    # Reasons that name the formats which reach SME2 name those that did.
    assert reach.formats("transposed convolution") == ("int8",)
    assert reach.formats("matmul") == ("fp32", "fp16")


def test_an_int8_program_tells_what_ran_in_fp32() -> None:
    found = precision_not_as_asked(SeriesCase(with_sme2(INT8)), ())
    assert found is not None
    says(found.title, "2 of 12 matrix operators", "fp32")
    assert [concern.operator.kind for concern in found.concerns] == ["matmul", "matmul"]
    assert [concern.where for concern in found.concerns] == ["paths.py:28", "paths.py:29"]
    assert precision_not_as_asked(SeriesCase(with_sme2(FP16)), ()) is None


def test_fp16_on_a_cpu_without_it_is_told_as_the_cpus_doing() -> None:
    series = with_sme2(FP16)
    wider = replace(series, operators=tuple(replace(each, precision="fp32") for each in series.operators))
    found = precision_not_as_asked(SeriesCase(wider), ())
    assert found is not None and "12 of 12" in found.title
    says(found.action, "CPU", "fp16")


def test_every_operator_says_what_it_computed_in() -> None:
    operators = with_sme2(INT8).operators
    changing = {each.kind: each.precision for each in operators if "quantize" in each.kind}
    assert changing == {"quantize": "fp32 to int8", "dequantize": "int8 to fp32"}
    kept = (each for each in operators if each.kind not in changing)
    found = {each.source.module_path or each.kind: each.precision for each in kept}
    assert found["stem"] == found["grouped"] == found["depthwise7"] == found["head"] == "int8"
    assert found["matmul"] == found["softmax"] == found["reduction"] == "fp32"


@pytest.mark.parametrize(
    ("event", "precision"),
    [
        ("Fully Connected (NC, PF16) GEMM #1", "fp16"),
        ("Fully Connected (NC, QP8, F32, QC4W) GEMM #1", "int8 dynamic, int4 weights"),
        ("Fully Connected (NC, QD8, F32, QC8W) GEMM #1", "int8 dynamic"),
        ("Fully Connected (NC, F32, QC8W) GEMM #1", "fp32, int8 weights"),
        ("Convolution (NHWC, PQS8, QS8, QC8W) IGEMM #1", "int8"),
        ("Convert (NC, F32, QS8) #1", "fp32 to int8"),
        ("Transpose (ND, X16) #1", ""),
        ("aten::mm.out", ""),
    ],
)
def test_labels_are_read_as_precision(event: str, precision: str) -> None:
    assert describe(event).precision == precision


def test_constants_that_are_turned_in_no_time_are_not_counted() -> None:
    series = analysed(ARM).series[0]
    before = layout_changes(SeriesCase(series), series.operators)
    assert before is not None and before.evidence["added_by_lowering"] == len(before.concerns)
    one = before.concerns[0].operators[0]
    quick = replace(one, times=replace(one.times, typical_ns=20.0))
    tiny = [replace(quick, position=1000 + place) for place in range(54)]
    more = replace(series, operators=(*series.operators, *tiny))
    after = layout_changes(SeriesCase(more), more.operators)
    assert after is not None and after.title == before.title
    assert after.evidence["added_by_lowering"] == len(before.concerns) + 54
