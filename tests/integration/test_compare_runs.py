"""`sme2prof compare` on real runs and dumps: what it finds, when it fails a build, and when it refuses."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from measured_runs import ROUNDS, RUNS, copied, edit, load, pristine
from model_profiling.report.comparison_text import comparison_facts, comparison_markdown
from recorded_dumps import record

from model_profiling.errors import FormatError, InputError
from model_profiling.statistics.speedup import Verdict
from model_profiling.workflow.compare import compare


@pytest.fixture(scope="session")
def home(tmp_path_factory, exported) -> Path:
    return pristine(tmp_path_factory, exported)


@pytest.fixture
def two(home: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A run and a copy of it to change."""
    a = copied(home, tmp_path / "a", emulated=False) / "runs" / "linux"
    b = copied(home, tmp_path / "b", emulated=False) / "runs" / "linux"
    return a, b


def steady(run_dir: Path) -> None:
    """Give every series quiet latencies, so that what a test then changes is all there is to find."""

    def quieten(stats: dict[str, Any]) -> None:
        middle = stats["end_to_end_ms"]["median"]
        stats["end_to_end_rounds_ms"] = [
            [middle * (1 + 0.001 * ((place * 7 + run * 3) % 5)) for run in range(RUNS)]
            for place in range(ROUNDS)
        ]

    for path in run_dir.rglob("*_robust_stats.json"):
        edit(path, quieten)


def slowed(run_dir: Path, factor: float, only: str = "") -> None:
    def slow(stats: dict[str, Any]) -> None:
        stats["end_to_end_rounds_ms"] = [
            [value * factor for value in one] for one in stats["end_to_end_rounds_ms"]
        ]

    for path in run_dir.rglob("*_robust_stats.json"):
        if only in path.name:
            edit(path, slow)


def test_a_run_against_its_copy_has_not_changed(two: tuple[Path, Path], cli) -> None:
    a, b = two
    done = cli("compare", a, b, "--fail-on-regression", 5, "--json")
    assert done.returncode == 0, done.tail()
    facts = json.loads(done.stdout)
    assert facts["regressions"] == [] and facts["differing"] == []
    assert {one["end_to_end"]["verdict"] for one in facts["series"]} == {"no significant change"}
    assert len(facts["series"]) == 4
    for one in facts["series"]:
        assert one["end_to_end"]["ratio"] == pytest.approx(1) and not one["with_tracer"]
        judged = [part["speedup"]["verdict"] for part in one["categories"] if part["speedup"]]
        assert judged and set(judged) == {"no significant change"}
        assert {operator["change"] for operator in one["operators"]} == {"same"}


def test_a_regression_fails_with_1_and_is_written_for_people_and_machines(
    two: tuple[Path, Path], cli, tmp_path: Path
) -> None:
    a, b = two
    steady(a)
    steady(b)
    slowed(b, 1.25, only="x_sme2_on_t1")
    summary, junit = tmp_path / "s.md", tmp_path / "j.xml"
    done = cli("compare", a, b, "--fail-on-regression", 5, "--markdown", summary, "--junit", junit)
    assert done.returncode == 1, done.tail()
    assert "Regression: x_sme2_on, 1 thread is 25.0% slower, more than the 5.0% allowed." in done.stdout
    text = summary.read_text()
    assert text.startswith("## Regression: x_sme2_on, 1 thread is 25.0% slower")
    assert text.count("beyond the limit") == 1 and text.count("<details>") == text.count("</details>") == 4
    suites = ElementTree.parse(junit).getroot()
    assert suites.tag == "testsuites"
    (suite,) = suites
    cases = suite.findall("testcase")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "1", "0")
    assert len(cases) == 4 and all(case.get("classname") and case.get("name") for case in cases)
    failed = [case.get("name") for case in cases if case.find("failure") is not None]
    assert failed == ["x_sme2_on, 1 thread"]
    # The same change is no failure for a wider gate, nor without one.
    assert cli("compare", a, b, "--fail-on-regression", 30).returncode == 0
    assert cli("compare", a, b).returncode == 0


@pytest.mark.parametrize(
    ("factor", "limit", "regressions"), [(1.02, 1, 0), (1.08, 10, 0), (1.08, 5, 4), (0.5, 0, 0), (2.0, 99, 4)]
)
def test_the_gate_asks_for_both_size_and_certainty(
    two: tuple[Path, Path], factor: float, limit: float, regressions: int
) -> None:
    a, b = two
    steady(a)
    steady(b)
    slowed(b, factor)
    found = compare(a, b, limit=limit / 100)
    assert len(found.regressions) == regressions
    for one in found.series:
        assert one.slowdown == pytest.approx(factor - 1, abs=0.01)


def test_a_gate_too_narrow_for_the_noise_says_so(two: tuple[Path, Path], cli) -> None:
    a, b = two
    steady(a)
    steady(b)
    done = cli("compare", a, b, "--fail-on-regression", 1)
    assert done.returncode == 0 and "could hide in the noise" in done.stderr
    assert "could hide" not in cli("compare", a, b, "--fail-on-regression", 10).stderr


def test_emulated_times_are_never_compared(home: Path, tmp_path: Path, cli) -> None:
    out = copied(home, tmp_path)
    run_dir = out / "runs" / "emulated"
    assert cli("compare", run_dir, run_dir).returncode == 0
    junit, summary = tmp_path / "j.xml", tmp_path / "s.md"
    done = cli(
        "compare", run_dir, run_dir, "--fail-on-regression", 5, "--junit", junit, "--markdown", summary
    )
    assert done.returncode == 2
    assert done.stderr.count("error:") == 1 and "emulated" in done.stderr
    (suite,) = ElementTree.parse(junit).getroot()
    assert suite.get("errors") == "2" and suite.get("failures") == "0"
    assert "No answer" in summary.read_text() and not re.search(r"\d ms", summary.read_text())


def test_emulated_dumps_show_kernels_without_times(home: Path, tmp_path: Path) -> None:
    runs = copied(home, tmp_path) / "runs" / "emulated"
    (off,), (on,) = runs.glob("e_sme2_off/*.etdump"), runs.glob("e_sme2_on/*.etdump")
    found = compare(off, on)
    (one,) = found.series
    assert one.end_to_end.verdict is Verdict.NOT_COMPARABLE and one.end_to_end.ratio is None
    changed = [pair for pair in one.operators if pair.change == "kernel changed"]
    assert {pair.families for pair in changed} == {("F32", "PF32")} and len(changed) == 4
    facts: Any = comparison_facts(found)
    assert all(row["before_ms"] is row["after_ms"] is None for row in facts["series"][0]["operators"])
    assert "F32 to PF32" in comparison_markdown(found)


def test_different_machines_are_compared_only_on_request(two: tuple[Path, Path], cli) -> None:
    a, b = two
    edit(b / "manifest.json", lambda manifest: manifest["machine"]["before"].update(cpu="Other-9000"))
    done = cli("compare", a, b, "--fail-on-regression", 50)
    assert done.returncode == 2 and "different CPUs" in done.stderr
    done = cli("compare", a, b, "--fail-on-regression", 50, "--across-machines")
    assert done.returncode == 0 and "Other-9000" in done.stdout


def test_what_else_differs_is_told(two: tuple[Path, Path]) -> None:
    a, b = two

    def change(manifest: dict[str, Any]) -> None:
        manifest["model_sha256"] = "f" * 64
        manifest["executorch"]["version"] = "9.9"
        manifest["machine"]["before"]["load_average"] = 90.0

    edit(b / "manifest.json", change)
    text = comparison_markdown(compare(a, b))
    assert "9.9" in text and "f" * 16 in text and "load was" in text


def test_one_dump_each_shows_differences_without_a_verdict(home: Path, cli) -> None:
    runs = home / "runs" / "linux"
    (a,) = runs.glob("x_sme2_off/*_t1.etdump")
    (b,) = runs.glob("x_sme2_on/*_t1.etdump")
    found = compare(a, b)
    (one,) = found.series
    assert one.with_tracer and one.end_to_end.ratio is not None and not one.comparable
    assert "1 round cannot show" in one.end_to_end.reason
    assert cli("compare", a, b, "--fail-on-regression", 5).returncode == 2
    assert "too few rounds to judge any" in comparison_markdown(found)


def test_operators_that_appear_and_vanish_are_named(exported, tmp_path: Path) -> None:
    a = record(exported("toy_cnn", "fp32").pte, tmp_path, "toy_fp32_t1", runs=3)
    b = record(exported("toy_cnn", "int8").pte, tmp_path, "toy_int8_t1", runs=3)
    (one,) = compare(a, b).series
    appeared = [pair.main.type for pair in one.operators if pair.change == "appeared"]
    assert any(name.startswith("Convert") for name in appeared)
    (back,) = compare(b, a).series
    assert sorted(pair.main.type for pair in back.operators if pair.change == "vanished") == sorted(appeared)


def test_files_of_latencies_are_compared_round_by_round_within_a_run(home: Path, two) -> None:
    a, b = two
    (ours,) = a.glob("x_sme2_on/*_t1_robust_stats.json")
    (theirs,) = a.glob("x_sme2_on/*_t2_robust_stats.json")
    (other,) = b.glob("x_sme2_on/*_t2_robust_stats.json")
    within, across = compare(ours, theirs), compare(ours, other)
    assert within.series[0].end_to_end.method.startswith("signed-rank")
    assert across.series[0].end_to_end.method.startswith("separate runs")
    metrics = load(home / "runs/linux/metrics.json")
    paired = next(one for one in metrics["comparisons"] if one["label"] == "threads")
    assert within.series[0].end_to_end.ratio == pytest.approx(paired["ratio"])


def test_metrics_alone_give_medians_but_no_verdict(home: Path, tmp_path: Path, cli) -> None:
    alone = tmp_path / "metrics.json"
    shutil.copy(home / "runs/linux/metrics.json", alone)
    found = compare(alone, home / "runs" / "linux")
    assert {one.end_to_end.verdict for one in found.series} == {Verdict.NOT_COMPARABLE}
    assert all(one.end_to_end.ratio == pytest.approx(1, rel=0.2) for one in found.series)
    assert cli("compare", alone, alone, "--fail-on-regression", 5).returncode == 2
    # Beside its run, the same file stands for the whole run.
    whole = compare(home / "runs/linux/metrics.json", home / "runs/linux")
    assert {one.end_to_end.verdict for one in whole.series} == {Verdict.NO_CHANGE}


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: folder / "none", "there is no"),
        (lambda folder: folder, "holds no run"),
        (lambda folder: _written(folder / "x.txt", "1"), "neither a run directory"),
        (lambda folder: _written(folder / "x.json", "{"), "not JSON"),
        (lambda folder: _written(folder / "x.etdump", "junk"), "x.etdump"),
    ],
)
def test_what_cannot_be_compared_at_all_exits_with_2(
    home: Path, tmp_path: Path, cli, spoil: Callable[[Path], Path], said: str
) -> None:
    done = cli("compare", home / "runs" / "linux", spoil(tmp_path))
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_runs_without_a_common_experiment_are_refused(home: Path, tmp_path: Path) -> None:
    out = copied(home, tmp_path)
    with pytest.raises(InputError, match="no experiment in common"):
        compare(out / "runs" / "linux", out / "runs" / "emulated")


def test_an_experiment_missing_on_one_side_is_told(two: tuple[Path, Path]) -> None:
    a, b = two
    shutil.rmtree(b / "x_sme2_off")
    edit(b / "metrics.json", lambda metrics: metrics.update(latencies=metrics["latencies"][:2]))
    found = compare(a, b)
    assert [one.experiment for one in found.only_a] == ["x_sme2_off", "x_sme2_off"]
    assert "only A has x_sme2_off" in comparison_markdown(found)


@pytest.mark.parametrize("content", ["{", "[1, 2]"])
def test_a_file_that_is_no_measurement_is_not_cured_by_the_pipeline(tmp_path: Path, content: str) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(content)
    with pytest.raises(FormatError) as problem:
        compare(bad, bad)
    assert "pipeline" not in problem.value.fix and "name a run directory" in problem.value.fix
