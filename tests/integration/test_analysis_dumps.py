"""Attribution, operators and pairing on dumps that the runner writes in this test run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from model_profiling.analysis.attribution import Share
from model_profiling.analysis.pairing import pair_series
from model_profiling.analysis.series import series_of
from model_profiling.config import names
from model_profiling.core.records import write_record
from model_profiling.etdump import read_etdump
from model_profiling.program.category import Category
from model_profiling.program.graph_file import make_graph, read_graph_file, record_beside
from model_profiling.report.breakdown import place_cells
from model_profiling.runs import Times
from model_profiling.runs.shared_fields import SharedFields
from model_profiling.targets import Job
from model_profiling.targets.host import HostTarget
from model_profiling.workflow.analyse import analyse, write_analysis
from model_profiling.workflow.report import write_report

UNSEEN = Path(__file__).parents[1] / "models" / "unseen.py"
CASES = [
    ("toy_cnn", "fp32", "xnnpack", 5),
    ("toy_cnn", "fp16", "xnnpack", 5),
    ("toy_cnn", "int8", "xnnpack", 5),
    ("toy_cnn", "fp32", "portable", 2),
    ("mobilenet_v3_small@hardsigmoid=1", "fp32", "xnnpack", 20),
    ("mobilenet_v3_small@hardsigmoid=1", "fp16", "xnnpack", 20),
    ("mobilenet_v3_small@hardsigmoid=1", "int8", "xnnpack", 20),
]


@pytest.fixture(scope="module")
def dump_of(exported, host: HostTarget, tmp_path_factory):
    made: dict[tuple[str, str, str], Path] = {}

    def make(model: str, dtype: str, backend: str, runs: int) -> tuple[Path, Path]:
        art = exported(model, dtype, backend)
        if (model, dtype, backend) not in made:
            folder = tmp_path_factory.mktemp("dumps")
            job = Job(art.pte, runs=runs, warmup=1, etdump=True)
            made[model, dtype, backend] = host.execute(job, folder, f"{art.pte.stem}_host_t1").etdump
        return made[model, dtype, backend], art.pte

    return make


@pytest.mark.parametrize("case", CASES, ids=["-".join(case[:3]) for case in CASES])
def test_every_nanosecond_of_every_run_is_accounted_for(case, dump_of) -> None:
    dump, pte = dump_of(*case)
    table = read_etdump(dump)
    executes = table.duration_ns[table.name == table.name_index("Method::execute")]
    for model in (pte, None):
        analysis = analyse(dump, model=model).series[0].first
        breakdown = analysis.breakdown
        assert analysis.runs == case[3]
        assert np.array_equal(breakdown.e2e, executes)
        parts = np.sum([*breakdown.categories.values(), breakdown.framework, breakdown.unattributed], axis=0)
        assert np.array_equal(parts, breakdown.e2e)
        assert (breakdown.delegate_overhead <= breakdown.unattributed).all()
        assert analysis.attribution.event_count == len(table)
        series = series_of([analysis])
        assert series.operator_ns.sum() == sum(int(part.sum()) for part in breakdown.categories.values())
        assert all(operator.known for operator in analysis.operators)
        assert analysis.warnings == ()


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8"])
def test_all_delegate_time_of_mobilenet_leads_back_to_the_model_or_to_lowering(dtype, dump_of) -> None:
    dump, pte = dump_of("mobilenet_v3_small@hardsigmoid=1", dtype, "xnnpack", 20)
    analysis = analyse(dump, model=pte).series[0].first
    delegated = [operator for operator in analysis.operators if operator.delegated]
    known = [each for each in delegated if each.source.module_path or each.source.place.node]
    assert {each.origin for each in delegated if each not in known} <= {"lowering"}
    assert len(delegated) > 100
    assert {operator.backend for operator in delegated} == {"XnnpackBackend"}
    assert any(operator.origin == "lowering" and operator.kind == "transpose" for operator in delegated)


@pytest.mark.parametrize(
    ("dtype", "before"), [("fp32", "the model's input"), ("int8", 'the quantize at Conv2d "0"')]
)
def test_a_layer_without_a_line_of_the_model_is_named_and_never_a_file_of_torch(
    dtype, before, dump_of
) -> None:
    dump, pte = dump_of(f"{UNSEEN}:layers", dtype, "xnnpack", 5)
    analysis = analyse(dump, model=pte)
    assert {operator.source.place.file for operator in analysis.series[0].operators} == {""}
    (changes,) = (found for found in analysis.findings if found.id == "layout-changes")
    assert f'between {before} and Conv2d "0"' in {concern.where for concern in changes.concerns}
    convolutions = [each for each in analysis.series[0].operators if each.category is Category.CONV]
    assert [place_cells(each)[1] for each in convolutions] == ['Conv2d "0"', 'Conv2d "2"']


def test_a_half_precision_program_run_in_fp32_is_the_program_that_was_run(arm, tmp_path: Path) -> None:
    pte = Path(__file__).parents[1] / "data" / "runs" / "programs" / "small_cnn_xnnpack_fp16.pte"
    # SME2 multiplies fp16 whatever else the CPU has: only without all three does XNNPACK run it in fp32.
    off = tuple(feature for feature in ("sme2", "sme", "fp16") if feature in arm.facts().features)
    job = Job(model=pte, etdump=True, runs=2, disable=off)
    dump = (
        analyse(arm.execute(job, tmp_path, "small_cnn_xnnpack_fp16_off_t1").etdump, model=pte).series[0].first
    )
    assert dump.misfits == dump.warnings == ()
    assert all(one.source.node_index >= 0 for one in dump.operators if one.delegated)
    matrix = [one for one in dump.operators if one.category in (Category.CONV, Category.GEMM)]
    assert {(one.source.dtype, one.precision) for one in matrix} == {("fp16", "fp32")}
    added = [one for one in dump.operators if one.type == "Convert (NC)"]
    assert len(added) == 4 and {one.origin for one in added} == {"backend"}


def test_portable_operators_are_operators_of_their_own(dump_of) -> None:
    dump, pte = dump_of("toy_cnn", "fp32", "portable", 2)
    analysis = analyse(dump, model=pte).series[0].first
    assert analysis.delegate_calls == 0 and analysis.operator_calls == len(analysis.operators)
    assert {operator.backend for operator in analysis.operators} == {"portable"}
    convolutions = [operator for operator in analysis.operators if operator.category is Category.CONV]
    assert len(convolutions) == 3 and all(operator.source.flops for operator in convolutions)
    findings = analyse(dump, model=pte, times=Times.HARDWARE).findings
    assert any(finding.id == "outside-delegates" for finding in findings)
    assert int(analysis.attribution.total_ns(Share.DELEGATE).sum()) == 0


@pytest.fixture(scope="module")
def moved(dump_of, tmp_path_factory) -> Path:
    """A run of MobileNetV3 in fp16 on another machine: its dump and the graph it keeps, no program."""
    dump, pte = dump_of("mobilenet_v3_small@hardsigmoid=1", "fp16", "xnnpack", 20)
    folder = tmp_path_factory.mktemp("moved")
    shutil.copy(dump, folder)
    write_record(folder / names.GRAPH, make_graph(pte, record_beside(pte)))
    return folder


def test_a_moved_run_says_why_operators_are_outside_and_what_joins(moved: Path) -> None:
    """Each `hardsigmoid` goes to fp32 and back, which cuts the model into 19 delegates."""
    (finding,) = (each for each in analyse(moved).findings if each.id == "outside-delegates")
    assert finding.title.startswith("Bring 36 hardsigmoid operators into the delegate (")
    assert "float16 to float32 is not supported" in finding.action
    assert "instead: F.relu6(x + 3.0) * (1 / 6)" in finding.action
    assert (
        finding.evidence["calls_joined"] == 18 and sum("call" in each.facts for each in finding.concerns) == 9
    )
    assert finding.max_gain_pct is None, "nothing says what these times are"
    facts = finding.concerns[0].facts
    # To fp32 and back; the numbers that no input reaches may be another finding's.
    assert facts["operator_count"] in (2, 4) and facts["parts_delegates"] == 2
    assert (facts["call"], facts["why"]) == ("hardsigmoid", "refused")


def test_report_and_json_of_a_moved_run_tell_the_same_reasons(moved: Path, tmp_path: Path) -> None:
    run = shutil.copytree(moved, tmp_path / "run")
    write_analysis(analyse(run))
    summary = json.loads((run / names.ANALYSIS).read_text())
    (told,) = (each for each in summary["findings"] if each["id"] == "outside-delegates")
    page = write_report(run)[0].read_text()
    assert told["title"] in page.replace("\\", "")
    row = told["evidence"]["operators"][0]
    assert row["reason"].partition(";")[0] in page and row["replacement"] in page.replace("\\", "")
    graph = read_graph_file(run / names.GRAPH)
    assert {each.code for each in SharedFields().of(graph).undelegated or ()} == {""}
    assert any(each.code for each in graph.undelegated or ())


def test_fp16_and_int8_of_one_model_are_paired_by_module(dump_of) -> None:
    fp16, int8 = (
        analyse(dump, model=pte).series[0].first
        for dump, pte in (
            dump_of("mobilenet_v3_small@hardsigmoid=1", dtype, "xnnpack", 20) for dtype in ("fp16", "int8")
        )
    )
    pairing = pair_series(series_of([fp16]), series_of([int8]))
    assert pairing.matched_by == "module"
    matched = [pair for pair in pairing.operators if pair.baseline and pair.candidate]
    convolutions = [pair for pair in matched if pair.category is Category.CONV]
    modules = [
        {side[0].source.module_path for side in (pair.baseline, pair.candidate)} for pair in convolutions
    ]
    assert {len(paths) for paths in modules} == {1} and len(convolutions) >= 50
    assert {pair.change for pair in convolutions} == {"kernel changed"}
    assert any(pair.main.kind == "quantize" and pair.change == "appeared" for pair in pairing.operators)
    sides = [pair.baseline for pair in pairing.operators], [pair.candidate for pair in pairing.operators]
    for side, dump in zip(sides, (fp16, int8), strict=True):
        assert sorted(one.identity for found in side for one in found) == sorted(
            one.identity for one in dump.operators
        )
