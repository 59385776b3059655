"""Reports of run directories: what they say first, what they prove, and what they must never show."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pages import headings, lines, section, table, tables
from recorded_runs import (
    ARM,
    EMULATED,
    ROUNDS,
    RUNS,
    SME2,
    TURN,
    X86_64,
    Json,
    dumps_in,
    edit,
    load,
    medians,
    put,
    replay,
)  # fmt: skip
from said import says
from strategies import Block as DumpBlock
from strategies import Dump, ProfileEvent

from model_profiling.report.combined import combined_document, listed_run
from model_profiling.report.data import ReportData
from model_profiling.report.document import Block, Chart, Items, plain, render_markdown
from model_profiling.report.run_report import run_document
from model_profiling.report.verdict import answers
from model_profiling.runs import Times
from model_profiling.statistics.speedup import Verdict
from model_profiling.validation.validate import validate
from model_profiling.workflow.analyse import analyse, write_analysis
from model_profiling.workflow.compare import compare
from model_profiling.workflow.report import gather_report, write_report
from model_profiling.workflow.view import page_to_view

HEADINGS = ["What to do next", "Operators", "SME2", "Latency", "Threads", "How sure", "How to reproduce"]
METRICS = ARM / "metrics.json"
MILLISECONDS = re.compile(r"\bms\b|\d\s?ms|millisecond", re.IGNORECASE)


@pytest.fixture(scope="module")
def arm(arm_home: Path) -> ReportData:
    return gather_report(arm_home / "runs" / "xnnpack_fp16" / "linux")


@pytest.fixture(scope="module")
def sme2(sme2_home: Path) -> ReportData:
    return gather_report(sme2_home / "runs" / "xnnpack_fp16" / "linux")


def quality(run_dir: Path) -> list[str]:
    return [line.text for line in gather_report(run_dir).warnings]


def page_of(run_dir: Path) -> list[Block]:
    return run_document(gather_report(run_dir))


def test_the_verdict_stands_first_and_every_section_has_content(arm: ReportData) -> None:
    page = run_document(arm)
    told = answers(arm)
    assert headings(page)[0] == "What to do next"
    assert page[1] == told.block and isinstance(page[2], Chart), "the first screen"
    assert [line for line in lines(section(page, "How sure")) if line in told.notes] == list(told.notes)
    assert headings(page) == HEADINGS
    for heading in headings(page):
        assert section(page, heading), heading
    assert render_markdown(page).startswith(f"# {arm.title}\n")


def test_load_time_memory_and_program_size_stand_beside_the_latency(
    arm: ReportData, emulated_run: Path
) -> None:
    told, latency = answers(arm), arm.headline.latency if arm.headline else None
    assert latency is not None and latency.end_to_end_ms is not None and arm.run.manifest is not None
    times = {"latency_ms": latency.end_to_end_ms.median, "load_ms": latency.load_ms}
    bytes_of = {"peak_memory_bytes": latency.peak_memory_bytes, "program_bytes": arm.run.manifest.model_bytes}
    assert told.facts()["costs"] == times | bytes_of
    memory = f"{(latency.peak_memory_bytes or 0) / 1e6:.1f} MB"
    words = f"Loading takes {latency.load_ms:.3f} ms, memory peaks at {memory} and the program file is 110."
    assert words in told.where_time_goes and words in render_markdown(run_document(arm))
    edit(emulated_run / "metrics.json", lambda metrics: metrics.update(latencies=load(METRICS)["latencies"]))
    not_timed = answers(gather_report(emulated_run))
    assert not_timed.costs == {"program_bytes": arm.run.manifest.model_bytes}
    assert "The program file is 110.5 kB." in not_timed.where_time_goes


def test_a_faster_thread_count_and_what_binds_the_model_are_in_the_answers(arm: ReportData) -> None:
    """Its convolutions take most of the time, and no other finding could bring a tenth."""
    said = answers(arm)
    says(said.where_time_goes, f"With 2 threads an inference takes {medians(ARM)[1]} ms")
    (bound,) = (finding for finding in arm.findings if finding.id == "matrix-bound")
    says(bound.title, "Convolution and GEMM take 76% of the time", "matrix products")
    says(bound.action, "--dtype all")
    says(said.what_next, arm.findings[0].first_step or arm.findings[0].title)
    (pair,) = arm.pairs
    alike = replace(pair, speedup=replace(pair.speedup, verdict=Verdict.NO_CHANGE))
    assert "With 2 threads an" not in answers(replace(arm, pairs=(alike,))).where_time_goes


def test_a_damaged_journal_is_told_and_the_report_stands(arm_run: Path) -> None:
    before = quality(arm_run)
    journal = arm_run / "journal.jsonl"
    journal.write_bytes(b"{}\n" + journal.read_bytes())
    (told,) = (line for line in quality(arm_run) if line not in before)
    assert told.startswith(f"{journal}, line 1 is damaged") and "measure again" in told
    assert told in lines(section(page_of(arm_run), "How sure"))


def test_latencies_are_those_without_the_tracer(arm: ReportData) -> None:
    plain = table(section(run_document(arm), "Latency"), "threads", "SME2", "launches")
    measured = load(arm.run.path / "metrics.json")["latencies"]
    assert len(measured) == len(plain) == 2
    for entry, row in zip(measured, plain, strict=True):
        assert row[0] == str(entry["threads"])
        assert float(row[3]) == pytest.approx(entry["end_to_end_ms"]["median"], rel=0.01)


def test_a_cpu_with_sme2_is_told_what_it_brings_and_what_is_left(sme2: ReportData) -> None:
    found = next(pair for pair in sme2.pairs if pair.label == "SME2")
    assert found.speedup.verdict is Verdict.FASTER and found.speedup.ratio == pytest.approx(2, rel=0.1)
    page = run_document(sme2)
    operators = tables(section(page, "Operators"), "layer", "operator")[0]
    changed = [row for row in operators if row[9] == "F16 → PF16"]
    assert {row[2] for row in changed} == {"Convolution", "GEMM"}
    long = [row for row in changed if float(row[3]) > 0.01]
    assert all(float(row[4]) < float(row[3]) and row[7] == "faster" for row in long)
    assert "on 1 thread" in answers(sme2).what_sme2_changes
    assert any(kernels.sme.answer == "sme2" for kernels in sme2.evidence[0].kernels if kernels.sme2)
    rows = table(section(page, "Latency"), "experiment", "SME2")
    assert [row[1] for row in rows] == ["on", "off"]


def test_operators_lead_back_to_module_and_source_line(arm: ReportData) -> None:
    operators = tables(section(run_document(arm), "Operators"), "layer", "operator")[0]
    listed = [row for row in operators if not row[0].endswith(" more")]
    places = {row[0]: row[11] for row in listed if row[0] not in ("-", "inserted by lowering")}
    assert {"features.0 Conv2d", "features.2 Conv2d", "mix Linear", "the model itself"} <= set(places)
    assert all(re.fullmatch(r"small_cnn\.py:\d+", place) for place in places.values())
    assert any(row[0] == "inserted by lowering" and row[11] == "-" for row in operators)


def test_evidence_of_emulation_is_part_of_the_run(arm: ReportData) -> None:
    assert [place.emulated for place in arm.evidence] == [False, True]
    proven = {kernels.series.experiment: kernels.sme.answer for kernels in arm.evidence[1].kernels}
    assert proven == {"emulated_sme2_on": "sme2", "emulated_sme2_off": "none"}
    assert {kernels.sme.answer for kernels in arm.evidence[0].kernels} == {"untested"}
    page = run_document(arm)
    said = tables(section(page, "SME2"), "experiment", "SME2")[-1]
    assert [row[-1].partition(" SME2 ")[0] for row in said] == ["2", "no SME or"]
    latency = section(page, "Latency")
    assert not [row for rows in tables(latency) for row in rows if row[0].startswith("emulated")]


def test_a_run_keeps_its_evidence_when_the_emulated_run_is_gone_or_spoilt(arm_run: Path) -> None:
    beside = arm_run.parent / "emulated"
    (beside / "manifest.json").write_text("{")
    assert len(gather_report(arm_run).evidence) == 2
    shutil.rmtree(beside)
    assert len(gather_report(arm_run).evidence) == 2


def test_a_spoilt_emulated_run_costs_a_new_run_only_its_evidence(emulated_run: Path) -> None:
    (emulated_run / "manifest.json").write_text("{")
    data = replay(ARM, emulated_run.with_name("again")).data
    assert len(data.evidence) == 1 and data.experiments


def test_an_emulated_report_has_no_time_in_it_even_if_its_files_do(emulated_run: Path) -> None:
    linux = load(emulated_run.parent / "linux" / "metrics.json")
    for spoilt in ("nothing", "metrics", "manifest"):
        if spoilt == "metrics":
            put(emulated_run / "metrics.json", "latencies", linux["latencies"])
            put(emulated_run / "metrics.json", "times", "hardware")
        if spoilt == "manifest":
            (emulated_run / "manifest.json").unlink()
        data = gather_report(emulated_run)
        page = run_document(data)
        assert data.times is Times.EMULATED and not data.timed
        assert not MILLISECONDS.search(render_markdown(page)), spoilt
        assert [kernels.sme.proves_sme for kernels in data.evidence[0].kernels if kernels.sme2] == [True]
        operators = tables(section(page, "Operators"), "layer", "operator", "category", "million operations")
        assert "F16 → PF16" in {row[6] for row in operators[0]}
        proven = "not tested" if spoilt == "manifest" else "in emulation"
        assert {row[5] for row in operators[0]} == {proven, "no: not a matrix operator"}
        assert "Latency" not in headings(page) and headings(page)[0] == "What to do next"
        assert table(section(page, "Operators"), "category", "operators", "million operations")


def test_without_any_evidence_nothing_is_claimed(arm_run: Path) -> None:
    for path in [*arm_run.rglob("*_kernels.csv"), *dumps_in(arm_run), arm_run / "evidence.json"]:
        path.unlink()

    def forget(manifest: Json) -> None:
        manifest["machine"]["before"] = None
        for result in manifest["results"]:
            result.update(outputs=[], kernels=None, features_present=[])

    edit(arm_run / "manifest.json", forget)
    data = gather_report(arm_run)
    assert {kernels.sme.answer for place in data.evidence for kernels in place.kernels} == {"unknown"}
    assert data.analysis is None and data.gaps and not data.findings
    page = run_document(data)
    assert all(section(page, heading) for heading in headings(page))


def test_a_run_that_only_traces_kernels_shows_no_latency(tmp_path: Path) -> None:
    traces = [
        {"name": f"t_sme2_{switch}", "sme2": switch, "mode": "xnntrace", "runs": RUNS * TURN}
        for switch in ("on", "off")
    ]
    traced = replay(SME2, tmp_path / "trace", traces)
    assert traced.data.times is Times.TRACED and not traced.data.timed
    page = run_document(traced.data)
    assert not MILLISECONDS.search(render_markdown(page))
    (kernels, *_) = tables(section(page, "SME2"), "experiment")
    assert [row[0] for row in kernels] == ["t_sme2_on", "t_sme2_off"]
    assert validate(traced.run_dir).ok, validate(traced.run_dir).as_text()


def test_bare_dumps_are_of_an_unknown_machine(sme2_home: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for path in (sme2_home / "runs" / "xnnpack_fp16" / "linux").glob("*/*_t1.etdump"):
        shutil.copy(path, bare / path.name)
    data = gather_report(bare)
    assert data.times is Times.UNKNOWN and not data.timed and not data.has_sme2
    assert {pair.speedup.verdict for pair in data.pairs} == {Verdict.NOT_COMPARABLE}
    assert not [finding for finding in data.findings if finding.max_gain_pct]
    assert data.title == "Dumps in bare"
    missing = " ".join(data.gaps)
    assert "manifest.json" in missing and ".pte" in missing
    assert data.analysis is not None
    fine = replace(data, analysis=replace(data.analysis, findings=()))
    assert "--times hardware" in answers(fine).what_next
    assert answers(replace(data, analysis=None)).what_next.startswith("Nothing: there is no dump")
    said = gather_report(bare, times=Times.HARDWARE)
    assert said.timed and said.headline is not None and said.headline.latency is None


def test_a_lost_manifest_costs_no_source_line_and_proves_nothing_about_the_cpu(arm_run: Path) -> None:
    (arm_run / "manifest.json").unlink()
    data = gather_report(arm_run)
    assert data.has_sme2 is None and data.headline is not None and data.headline.dumps is not None
    assert any(operator.source.place.line for operator in data.headline.dumps.operators)
    # Its dumps took no SME path; whether SME2 was there to be taken is not known.
    (said,) = (sentence for sentence in answers(data).sentences if "SME2 kernel ran" in sentence)
    assert "whether this CPU has SME2" in said


def test_failures_and_doubts_are_listed(arm_run: Path) -> None:
    def fail(manifest: Json) -> None:
        said = {"series": None, "code": "note", "seen": "the fan was off"}
        manifest.update(state="failed", warnings=[said])
        manifest["results"][0].update(state="failed", problem="the runner crashed")

    before = set(quality(arm_run))
    edit(arm_run / "manifest.json", fail)
    new = [line for line in quality(arm_run) if line not in before]
    assert len(new) == 2 and "the runner crashed" in new[0] and new[1] == "the fan was off"
    edit(arm_run / "manifest.json", lambda manifest: manifest.update(state="interrupted"))
    assert any("interrupted" in line for line in quality(arm_run))


def test_outputs_that_differ_spoil_the_verdict(arm_run: Path) -> None:
    before = answers(gather_report(arm_run)).sentences

    put(arm_run / "metrics.json", "parity.0.parity.verdict", "mismatch")
    data = gather_report(arm_run)
    told = answers(data).sentences
    todo, new, question = (sentence for sentence in told if sentence not in before)
    assert "linux_baseline, 2 threads" in new and "linux_baseline, 1 thread" in new
    assert "outputs differ" in todo and data.findings[0].title in todo
    (open_question,) = data.not_tested
    assert question.startswith(open_question.what), "what had to give way is a note"


def test_outputs_that_differ_spoil_what_sme2_changes(sme2: ReportData) -> None:
    told = answers(sme2)
    own = sme2.evidence[0]
    (found,) = own.parity
    spoilt = replace(found, parity=replace(found.parity, verdict="mismatch"))
    data = replace(sme2, evidence=(replace(own, parity=(spoilt,)),))
    assert "outputs differ" not in " ".join(told.sentences)
    assert "outputs differ" in answers(data).what_sme2_changes
    assert "outputs differ" in plain(listed_run(data, "run", "")[-1])
    assert "outputs differ" in render_markdown(combined_document([data], "One"))


def test_advice_names_each_operator_once_with_its_line_and_the_figures_of_the_tables(
    sme2: ReportData,
) -> None:
    page = run_document(sme2)
    advised = [block for block in section(page, "What to do next") if isinstance(block, Items)]
    operators = tables(section(page, "Operators"), "layer", "operator", "category")[0]
    shown = {row[1]: f"{row[4]} ms" for row in operators}
    inside = [line for item in advised[0].entries for line in item.entries]
    lines_inside = [plain(line.text) for each in inside for line in (each, *each.entries)]
    named = [name for line in lines_inside for name in shown if line.startswith(name)]
    assert len(named) == len(set(named)) >= 2
    for line in lines_inside:
        for name, figures in shown.items():
            if line.startswith(name):
                assert f": {figures}" in line and "small_cnn.py:2" in line
    assert not any("aten_" in line for line in lines_inside)
    assert not any("%" in line for line in lines_inside), "a share of another time than the bound's"
    first, *_ = advised[0].entries
    assert answers(sme2).what_next.startswith(plain(first.text).partition(":")[0])


def test_the_only_series_of_a_run_is_not_named_and_titles_say_what_ran_where() -> None:
    data = gather_report(X86_64)
    assert [str(series) for series in data.run.series] == ["linux_baseline, 1 thread"]
    assert "linux_baseline" not in render_markdown(run_document(data))
    assert data.title == "small_cnn (XNNPACK, fp16) on Linux"
    assert gather_report(EMULATED).title == "small_cnn (XNNPACK, fp16, emulated)"
    (first, *_) = table(section(run_document(gather_report(ARM)), "Latency"), "threads", "SME2")
    assert not first[0].strip("12")


def test_without_a_pair_the_parts_are_those_of_the_typical_runs(arm: ReportData) -> None:
    page = section(run_document(replace(arm, pairs=())), "Operators")
    parts = {row[0]: row for row in table(page, "category", "ms", "share")}
    traced = load(arm.run.path / "metrics.json")["latencies"][0]["traced_ms"]["median"]
    assert float(parts["End to end, typical traced run"][1]) == pytest.approx(traced, rel=0.05)
    series = arm.experiments[0].dumps
    assert series is not None and series.runs == ROUNDS * RUNS * (TURN - 1)
    assert len(series.typical) == series.runs - 2 * (series.runs // 4)
    assert any(series.taken_from in line for line in lines(page))


def test_a_dump_without_operators_gets_a_report_that_says_so(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for side, end in (("on", 900), ("off", 950)):
        event = ProfileEvent("Method::execute", -1, 0, -1, None, None, 10, end)
        blocks = tuple(DumpBlock("Execute", number, (), (event,)) for number in range(3))
        dump = Dump(blocks, write_defaults=False, size_prefixed=True).to_bytes()
        (run / f"m_sme2_{side}_t1.etdump").write_bytes(dump)
    assert validate(run).ok
    written, _ = write_report(run)
    says(written.read_text(), "sme2prof report")
    assert page_to_view(run).path == run / "report.html"
    assert len(write_analysis(analyse(run))) > 2
    assert "omparison" in repr(compare(run, run))
