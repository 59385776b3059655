"""The API as people use it from Python: tables equal the run's files, cells are inert, examples run, the
example notebook too."""

from __future__ import annotations

import functools
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pandas
import pytest
from recorded_runs import ARM, DATA, EMULATED, PROGRAM, SME2, X86_64, assert_same_figures, load
from rendered_markdown import Page, rendered
from replay import ReplayTarget
from said import says

import model_profiling
from model_profiling import (
    AnalysedRun,
    Comparison,
    ProfilingError,
    Records,
    analyse,
    compare,
    export,
    profile,
    profile_llm,
)
from model_profiling.config import names
from model_profiling.core import process
from model_profiling.facts import Value
from model_profiling.report.data import report_data
from model_profiling.report.verdict import SME2 as SME2_CHANGES
from model_profiling.targets import TargetChoice, TargetPlan
from model_profiling.workflow.measure import RunOutcome

ROOT = Path(__file__).resolve().parents[2]
OF_A_RUN = (
    "categories", "operators", "latencies", "samples", "speedups", "category_changes", "operator_changes",
)  # fmt: skip
RECORDED = pytest.mark.parametrize("recorded", [SME2, ARM, X86_64, EMULATED], ids=lambda path: path.name)


@functools.cache
def analysed(recorded: Path) -> AnalysedRun:
    return analyse(str(recorded))


@functools.cache
def compared(recorded: Path) -> Comparison:
    return compare(str(recorded), recorded)


@pytest.fixture(scope="module")
def run() -> AnalysedRun:
    return analysed(SME2)


def of(table: Records, **wanted: Value) -> list[dict[str, Value]]:
    return [dict(row) for row in table if all(row[key] == value for key, value in wanted.items())]


def test_latencies_samples_and_speedups_are_those_of_the_metrics(run: AnalysedRun) -> None:
    metrics = load(SME2 / names.METRICS)
    for latency in metrics["latencies"]:
        (row,) = of(run.latencies, experiment=latency["experiment"], threads=latency["threads"])
        summary = latency["end_to_end_ms"]
        told = [row[key] for key in ("median_ms", "p95_ms", "max_ms", "traced_median_ms")]
        known = [*(summary[key] for key in ("median", "p95", "maximum")), latency["traced_ms"]["median"]]
        assert_same_figures(told, known)
        assert row["peak_memory_bytes"] == latency["peak_memory_bytes"]
        samples = of(run.samples, experiment=latency["experiment"], threads=latency["threads"])
        assert len(samples) == summary["count"]
        assert pandas.Series([row["ms"] for row in samples]).median() == pytest.approx(summary["median"])
    for row, stored in zip(run.speedups, metrics["comparisons"], strict=True):
        assert row["comparison"] == stored["label"]
        assert (row["baseline"], row["baseline_threads"]) == tuple(stored["baseline"].values())
        for key in ("verdict", "ratio", "low", "high", "baseline_median", "candidate_median", "rounds"):
            assert_same_figures(row[key], stored["speedup"][key])


def test_changes_are_those_of_the_summary(run: AnalysedRun) -> None:
    for pair in load(SME2 / names.ANALYSIS)["pairs"]:
        parts = (run.category_changes, pair["categories"]), (run.operator_changes, pair["operators"])
        for table, entries in parts:
            rows = of(table, comparison=pair["label"])
            assert len(rows) == len(entries)
            for row, entry in zip(rows, entries, strict=True):
                for key in (row.keys() & entry.keys()) - {"baseline", "candidate"}:
                    assert row[key] == (entry[key] if entry[key] is None else pytest.approx(entry[key]))


@RECORDED
def test_every_table_becomes_a_frame_and_times_that_mean_nothing_are_missing(recorded: Path) -> None:
    found = analysed(recorded)
    for name in OF_A_RUN:
        table: Records = getattr(found, name)
        frame = table.to_pandas()
        assert (len(frame), tuple(frame.columns)) == (len(table), table.columns)
        times = [column for column in frame if column == "ms" or column.endswith(("_ms", "_median"))]
        shown = frame[times].notna().any().any()
        assert shown == (recorded != EMULATED and len(frame) > 0), name
    operators = found.operators.to_pandas()
    assert operators["threads"].dtype == "int64" and operators["packed"].dtype == "bool"
    assert operators["flops"].sum() > 0


@RECORDED
def test_reprs_are_one_short_line(recorded: Path) -> None:
    found = analysed(recorded)
    data = report_data(found.run, found)
    outcome = RunOutcome(data, recorded / names.REPORT, {})
    twice = compared(recorded)
    shown = [found, found.run, data, outcome, twice, twice.series[0], found.operators, found.series[0]]
    shown += [found.series[0].first, found.series[0].operators[0], *found.pairings[:1]]
    for each in shown:
        assert "\n" not in repr(each) and len(repr(each)) < 300, repr(each)
    assert "small_cnn (XNNPACK, fp16" in repr(found)
    if recorded == SME2:
        says(repr(found), "faster", "2.03x (2.01 to 2.04)")
        assert "2.03x" in repr(outcome)
    if recorded == X86_64:
        median = load(X86_64 / names.METRICS)["latencies"][0]["end_to_end_ms"]["median"]
        says(repr(outcome), "linux_baseline, 1 thread", f"{median:.3f} ms")


def _assert_inert(markdown: str) -> Page:
    page = rendered(markdown)
    for tag, attributes in page.elements:
        assert tag != "script" and not [name for name, _ in attributes if name.startswith("on")], tag
        assert not {name for name, _ in attributes} & {"src", "href"}, tag
    return page


@RECORDED
def test_a_run_in_a_cell_is_inert_and_states_its_figures(recorded: Path) -> None:
    page = _assert_inert(analysed(recorded)._repr_markdown_())
    assert page.text.count(SME2_CHANGES) == 1
    assert all(len(repr(found)) < 200 and found.title in repr(found) for found in analysed(recorded).findings)
    for stored in load(recorded / names.METRICS)["comparisons"]:
        if (ratio := stored["speedup"]["ratio"]) is not None:
            assert f"{ratio:.3f}x" in page.text
    _assert_inert(compared(recorded)._repr_markdown_())


@pytest.mark.parametrize(
    "call",
    [
        lambda: analyse(""),
        lambda: analyse([]),
        lambda: compare("no/such/run", SME2),
        lambda: profile("no_such_model.pte"),
        lambda: profile(PROGRAM, target="moon"),
        lambda: profile(PROGRAM, threads=0),
        lambda: profile(PROGRAM, budget_s=0),
        lambda: profile(PROGRAM, target=model_profiling.TargetChoice("host", power_mode="boost")),
        lambda: profile(PROGRAM, name="other"),
        lambda: profile(PROGRAM, dtype="all"),
        lambda: profile("toy_cnn", dtype="fp8"),  # type: ignore[call-overload]
        lambda: profile("toy_cnn", dtype=[]),
        lambda: profile("toy_cnn", (1, 2)),
    ],
)
def test_bad_input_is_an_error_with_a_cure(call: Callable[[], object]) -> None:
    with pytest.raises(ProfilingError) as caught:
        call()
    assert caught.value.problem and caught.value.fix and not isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("call", "accepted"),
    [
        (lambda: analyse(5), "pathlib.Path"),  # type: ignore[arg-type]
        (lambda: analyse(SME2, model=b"model.pte"), "pathlib.Path"),  # type: ignore[arg-type]
        (lambda: compare(SME2, None), "pathlib.Path"),  # type: ignore[arg-type]
        (lambda: model_profiling.read_etdump(3.5), "pathlib.Path"),  # type: ignore[arg-type]
        (lambda: profile(7), "torch.nn.Module"),  # type: ignore[call-overload]
        (lambda: profile(dict), "dict(...)"),  # type: ignore[call-overload]
        (lambda: profile(PROGRAM, target=3), "auto, host, emulated"),  # type: ignore[call-overload]
        (lambda: profile(PROGRAM, dtype=16), "fp32, fp16, int8"),  # type: ignore[call-overload]
        (lambda: profile(PROGRAM, budget_s="20"), "a valid number"),  # type: ignore[call-overload]
        (lambda: profile(PROGRAM, threads="1,2"), "a list"),  # type: ignore[call-overload]
        (lambda: profile(PROGRAM, sample="yes"), "a valid boolean"),  # type: ignore[call-overload]
        (lambda: profile(PROGRAM, thread=(1,)), "'threads'"),  # type: ignore[call-overload]
        (lambda: profile(PROGRAM, outdir=9), "pathlib.Path"),  # type: ignore[call-overload]
        (lambda: profile(PROGRAM, lengths={"x": "32"}), "a list"),  # type: ignore[call-overload]
        (lambda: profile(PROGRAM, values={"x": True}), "a list"),  # type: ignore[call-overload]
        (lambda: profile_llm(PROGRAM, prompts="8"), "a list"),  # type: ignore[arg-type]
        (lambda: profile_llm(PROGRAM, method="decode"), "choose from target"),  # type: ignore[call-arg]
        (lambda: export("toy_cnn", outdir=2), "pathlib.Path"),  # type: ignore[arg-type]
        (lambda: export("toy_cnn", dtype=8), "fp32, fp16, int8"),  # type: ignore[arg-type]
        (lambda: export("toy_cnn", dtype="int8", calibration=3), "an iterable"),  # type: ignore[arg-type]
        (lambda: export("toy_cnn", seed="one"), "a whole number"),  # type: ignore[arg-type]
        (lambda: export(len), "file.py:factory"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_type_is_a_type_error_that_says_what_is_accepted(
    call: Callable[[], object], accepted: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(accepted)) as caught:
        call()
    assert isinstance(caught.value, ProfilingError) and accepted in caught.value.fix


def test_export_is_the_function_whether_or_not_its_room_was_imported_before() -> None:
    code = (
        "import inspect, sys\n{before}import model_profiling\nassert 'torch' not in sys.modules\n"
        "export = model_profiling.export\nfrom model_profiling import export as again\n"
        "assert again is export and list(inspect.signature(export).parameters)[:2] == ['model', 'inputs']\n"
        "try:\n    export(7)\nexcept TypeError as wrong:\n    print(wrong)\n"
    )
    for before in ("", "from model_profiling.export import export_model\n"):
        words = [sys.executable, "-c", code.format(before=before)]
        done = process.run(words, timeout=60, env={"PYTHONPATH": str(ROOT)})
        assert done.ok and "torch.nn.Module" in done.stdout, done.stderr


def test_paths_are_texts_or_paths() -> None:
    dump = next(SME2.glob(f"linux_sme2_on/*_t1{names.DUMP}"))

    class Named:
        def __fspath__(self) -> str:
            return str(dump)

    for path in (str(dump), dump, Named(), [str(dump)], (dump,)):
        assert len(analyse(path).operators) == len(model_profiling.analyse(dump).operators)
    assert len(model_profiling.read_etdump(Named())) > 0


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring is replayed, everything else is what a reader gets."""
    program = tmp_path / "out_toy_cnn" / "artifacts" / PROGRAM.name
    shutil.copytree(PROGRAM.parent, program.parent)
    shutil.copy(next(DATA.glob(f"sme2_hardware/linux_sme2_on/*_t1{names.DUMP}")), tmp_path / "model.etdump")
    host = TargetChoice("host")
    room = "model_profiling.workflow.profile"
    monkeypatch.setattr(f"{room}.find_or_export", lambda *_, **__: program)
    monkeypatch.setattr(f"{room}.open_target", lambda _: ReplayTarget(SME2))
    monkeypatch.setattr(f"{room}.plan_targets", lambda _: TargetPlan(host, host, "has SME2"))
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "reference" / "api.md").read_text()
    blocks = re.findall(r"(?<!-->\n)```python\n(.*?)```", page, re.DOTALL)
    made: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/reference/api.md", "exec"), made)
    outcome = made["outcome"]
    assert isinstance(outcome, model_profiling.ProfileOutcome) and outcome.analysis is not None
    assert len(repr(outcome)) < 300 and "faster" in repr(outcome)
    assert outcome.report.is_file() and outcome.verdict == outcome.main.verdict
    assert outcome._repr_markdown_() == outcome.main._repr_markdown_()
    operators, longest = made["operators"], made["longest"]
    assert isinstance(operators, pandas.DataFrame) and isinstance(longest, pandas.DataFrame)
    assert longest["ms"].max() == operators["ms"].max()
    assert made["fix"] and len(blocks) >= 6


def test_every_table_is_on_the_page() -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text()
    assert re.findall(r"^\| `run\.(\w+)`", page, re.MULTILINE) == list(OF_A_RUN)
    properties = [name for name, found in vars(AnalysedRun).items() if isinstance(found, property)]
    assert set(properties) == set(OF_A_RUN)
