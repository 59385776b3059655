"""Several runs on one page: one, two or twelve of them, each shown for what it is, with its own figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pages import lines, section, table, tables
from recorded_runs import ARM, EMULATED, SME2, X86_64, copied
from said import says

from model_profiling.core.errors import InputError
from model_profiling.report.combined import combined_document, combined_title, listed_run, name_runs
from model_profiling.report.data import ReportData
from model_profiling.report.document import Answers, Block, Chart, plain
from model_profiling.report.run_report import latency
from model_profiling.report.sections import categories
from model_profiling.report.verdict import answers
from model_profiling.runs.folders import expand_runs, runs_in
from model_profiling.workflow.report import gather_report, write_combined_report


@pytest.fixture(scope="module")
def machines() -> tuple[ReportData, ...]:
    """The recorded runs as they are: Arm without SME2, with it, emulated, x86_64."""
    return tuple(map(gather_report, (ARM, SME2, EMULATED, X86_64)))


def charts(blocks: Sequence[Block]) -> dict[str, Chart]:
    return {block.name: block for block in blocks if isinstance(block, Chart)}


def rows_of(chart: Chart) -> list[dict[str, object]]:
    datasets: Any = chart.spec["datasets"]
    found: list[dict[str, object]] = datasets.get("segments") or datasets["rows"]
    return found


def test_runs_are_told_apart_by_as_little_as_does(machines: tuple[ReportData, ...]) -> None:
    arm, sme2, emulated, x86_64 = machines
    names = [run.name for run in name_runs(machines)]
    assert names == ["Neoverse-N1", "made SME2 CPU", "emulated", "made x86_64 CPU"]
    assert [run.name for run in name_runs([sme2])] == ["small_cnn"]
    assert [run.name for run in name_runs([arm, emulated])] == ["Neoverse-N1", "emulated"]
    assert [run.name for run in name_runs([sme2, sme2])] == ["small_cnn, run 1", "small_cnn, run 2"]
    manifest = sme2.run.manifest
    assert manifest is not None and x86_64.run.manifest is not None
    int8 = replace(manifest, model="/elsewhere/small_cnn_xnnpack_int8.pte")
    again = replace(sme2, run=type(sme2.run)(sme2.run.path, int8, metrics=sme2.run.metrics))
    assert [run.name for run in name_runs([sme2, again])] == ["XNNPACK fp16", "XNNPACK int8"]
    other = replace(manifest, model="/elsewhere/big_cnn_xnnpack_fp16.pte")
    bigger = replace(sme2, run=type(sme2.run)(sme2.run.path, other, metrics=sme2.run.metrics))
    assert [run.name for run in name_runs([arm, bigger, x86_64])] == [
        "small_cnn, Neoverse-N1",
        "big_cnn, made SME2 CPU",
        "small_cnn, made x86_64 CPU",
    ], "a device alone would tell them apart, and leave open which model ran"
    says(combined_title([sme2, again]), "small_cnn", "2 runs")


def test_every_figure_is_that_of_the_runs_own_report(machines: tuple[ReportData, ...]) -> None:
    page = combined_document(machines, "All")
    shown = table(section(page, "Latency"), "run", "device", "experiment")
    arm, sme2, _, x86_64 = machines
    for name, data in (("Neoverse-N1", arm), ("made SME2 CPU", sme2), ("made x86_64 CPU", x86_64)):
        (own, *_) = [rows for rows in tables(latency(data)) if rows[0][-1] == "wall time"]
        assert [row[-3:-1] for row in shown if row[0] == name] == [row[-5:-3] for row in own]
    parts = table(section(page, "Where the time goes"), "run", "Convolution")
    own_page = tables(categories(sme2), "category", "SME2 off ms")[0]
    off, on = ([row for row in parts if row[0] == f"made SME2 CPU, SME2 {word}"] for word in ("off", "on"))
    assert off[0][1:] == [*(f"{row[1]} ({row[2]})" for row in own_page[:-1]), own_page[-1][1]]
    assert on[0][1:] == [*(f"{row[3]} ({row[4]})" for row in own_page[:-1]), own_page[-1][3]]


def test_each_run_answers_as_its_own_report_does(machines: tuple[ReportData, ...]) -> None:
    said = section(combined_document(machines, "All"), "What each run says")
    told = [block for block in said if isinstance(block, Answers)]
    assert told == [answers(data).block for data in machines]


def test_a_run_that_is_not_on_arm_is_told_so_wherever_its_speedup_is(
    machines: tuple[ReportData, ...],
) -> None:
    elsewhere = replace(machines[3], pairs=machines[0].pairs)
    (told,) = [block for block in combined_document([elsewhere], "One") if isinstance(block, Answers)]
    says(plain(told.entries[0][1]), "not Arm")
    says(plain(listed_run(elsewhere, "run", "")[-1]), "threads: faster", "not Arm")


def test_what_cannot_be_compared_is_shown_for_what_it_is(machines: tuple[ReportData, ...]) -> None:
    page = combined_document(machines, "All")
    emulated = [row for row in table(section(page, "Latency"), "run") if row[0] == "emulated"]
    assert len(emulated) == 1 and emulated[0][5] == "-"
    drawn = [row for chart in charts(page).values() for row in rows_of(chart)]
    assert not any("emulated" in str(row["side"]) for row in drawn)
    said = "\n".join(lines(section(page, "Latency")))
    says(said, "made x86_64 CPU: measured on a CPU that is not Arm", "emulated: kernels and outputs, no")
    assert any("sme2prof compare" in line for line in lines(page))


@pytest.mark.parametrize("count", [1, 2, 12])
def test_any_number_of_runs_has_room(machines: tuple[ReportData, ...], count: int) -> None:
    runs = [machines[place % 4] for place in range(count)]
    page = combined_document(runs, "Many")
    assert len({row[0] for row in table(section(page, "Latency"), "run")}) == count


def test_a_folder_of_runs_stands_for_them(arm_home: Path, tmp_path: Path, sme2prof) -> None:
    runs = copied(arm_home, tmp_path) / "runs"
    (runs / "xnnpack_fp16" / "linux" / ".work").mkdir()
    (runs / "xnnpack_fp16" / "linux" / ".work" / "manifest.json").write_text("{}")
    home = runs / "xnnpack_fp16"
    assert runs_in(runs) == (home / "emulated", home / "linux")
    assert expand_runs([home / "linux", runs]) == (home / "linux", home / "emulated")
    done = sme2prof("report", runs)
    assert done.returncode == 0 and str(runs / "combined_report.md") in done.stdout, done.stderr
    written = (runs / "combined_report.md").read_text()
    assert "combined_report_files" not in written and (runs / "combined_report.html").is_file()
    done = sme2prof("report", runs, "--pictures")
    assert done.returncode == 0 and (runs / "combined_report_files" / "categories.svg").is_file()
    assert "combined_report_files/categories.svg" in (runs / "combined_report.md").read_text()


def test_several_runs_without_a_name_go_to_one_page_here(
    arm_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sme2prof
) -> None:
    monkeypatch.chdir(tmp_path)
    home = arm_home / "runs" / "xnnpack_fp16"
    assert sme2prof("report", home / "linux", home / "emulated").returncode == 0
    assert (tmp_path / "combined_report.html").is_file()
    assert sme2prof("report", home / "linux", tmp_path / "mistyped").returncode == 2
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(InputError, match="cannot write"):
        write_combined_report([home / "linux", home / "emulated"], blocked / "page.html")
