"""`sme2prof compare`: what it finds between runs, dumps and files, when it fails a build, when it refuses."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from recorded_runs import (
    EMULATED,
    INT8,
    ROUNDS,
    RUNS,
    SME2,
    X86_64,
    Json,
    copied,
    dumps_in,
    edit,
    rename_launches,
    slow_down,
)
from said import says

from model_profiling.core.errors import InputError
from model_profiling.report.comparison import NOT_MEASURED, Comparison, headline
from model_profiling.report.comparison_document import comparison_document, comparison_junit, warnings
from model_profiling.report.document import render_markdown
from model_profiling.runs import Times
from model_profiling.statistics.speedup import Verdict
from model_profiling.workflow.compare import compare

ON, OFF = "linux_sme2_on", "linux_sme2_off"
pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def two(sme2_home: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A run and a copy of it to change, as if it had been measured at another time."""
    a, b = (copied(sme2_home, tmp_path / name) / "runs" / "xnnpack_fp16" / "linux" for name in "ab")
    rename_launches(b, lambda launch: launch[::-1])
    return a, b


def steady(run_dir: Path) -> None:
    """Give every series quiet latencies, so that what a test then changes is all there is to find."""

    def quieten(stats: Json) -> None:
        middle = stats["end_to_end_ms"]["median"]
        stats["end_to_end_rounds_ms"] = [
            [middle * (1 + 0.001 * ((place * 7 + run * 3) % 5)) for run in range(RUNS)]
            for place in range(ROUNDS)
        ]

    for path in run_dir.rglob("*_robust_stats.json"):
        edit(path, quieten)


def verdicts(comparison: Comparison) -> set[Verdict]:
    return {found.end_to_end.verdict for found in comparison.series}


def test_a_run_against_its_copy_has_not_changed(two: tuple[Path, Path], sme2prof) -> None:
    done = sme2prof("compare", *two, "--fail-on-regression", 5, "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["regressions"] == [] and facts["differing"] == [] and len(facts["series"]) == 2
    for found in facts["series"]:
        assert found["end_to_end"]["verdict"] == "no significant change" and not found["with_tracer"]
        assert found["end_to_end"]["ratio"] == pytest.approx(1)
        judged = [part["verdict"] for part in found["categories"] if part["verdict"]]
        assert judged and set(judged) == {"no significant change"}
        assert {operator["change"] for operator in found["operators"]} == {"same"}


def test_a_folder_with_one_run_is_that_run(two: tuple[Path, Path], tmp_path: Path, sme2prof) -> None:
    """As for `view`; a folder with several is refused."""
    homes = [tmp_path / name for name in ("before", "after")]
    for run_dir, home in zip(two, homes, strict=True):
        shutil.copytree(run_dir, home / "runs" / "xnnpack_fp16" / "linux")
    facts = json.loads(sme2prof("compare", *homes, "--json").stdout)
    assert [facts[side]["name"] for side in "ab"] == [f"{home}/runs/xnnpack_fp16/linux" for home in homes]
    several = sme2prof("compare", tmp_path, homes[1])
    assert several.returncode == 2 and "it contains" in several.stderr


def test_a_regression_fails_with_1_and_is_written_for_people_and_machines(
    two: tuple[Path, Path], sme2prof, tmp_path: Path
) -> None:
    a, b = two
    steady(a)
    steady(b)
    slow_down(b, 1.25, only=f"*{ON}*")
    summary, junit = tmp_path / "s.md", tmp_path / "j.xml"
    done = sme2prof("compare", a, b, "--fail-on-regression", 5, "--out", summary, "--out", junit)
    found = compare(a, b, limit=0.05)
    assert done.returncode == 1 and headline(found) in done.stdout
    (worst,) = found.regressions
    assert worst.after.experiment == ON and worst.slowdown == pytest.approx(0.25)
    assert "25.0%" in headline(found) and "5.0%" in headline(found)
    text = summary.read_text()
    assert text.startswith(f"## {headline(found)}")
    assert text.count("beyond the limit") == 1 and text.count("<details>") == text.count("</details>") == 2
    (suite,) = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    failed = [case.get("name") for case in suite.findall("testcase") if case.find("failure") is not None]
    assert failed == [worst.name] and all(case.get("classname") for case in suite.findall("testcase"))
    # The same change is no failure for a wider gate, nor without one.
    assert sme2prof("compare", a, b, "--fail-on-regression", 30).returncode == 0
    assert sme2prof("compare", a, b).returncode == 0


def as_program(run_dir: Path, name: str) -> None:
    """As if this run were of another program."""
    edit(run_dir / "manifest.json", lambda manifest: manifest.update(model=f"elsewhere/{name}.pte"))


def test_the_sentence_says_which_side_is_faster(two: tuple[Path, Path], sme2prof) -> None:
    a, b = two
    for run_dir in two:
        steady(run_dir)
    as_program(b, "small_cnn_xnnpack_int8")
    slow_down(a, 1.84)
    faster = headline(compare(a, b))
    says(faster, "B (small_cnn XNNPACK int8) is 1.84x as fast as A in linux_sme2_", "(95% interval 1.")
    slower = headline(compare(b, a))
    says(slower, "A (small_cnn XNNPACK int8) is 1.84x as fast as B in linux_sme2_", "(95% interval 1.")
    assert "Arm" not in faster + slower
    facts = json.loads(sme2prof("compare", a, b, "--json").stdout)
    assert facts["headline"] == faster and {found["faster"] for found in facts["series"]} == {"B"}
    same = headline(compare(a, a))
    says(same, "No significant difference: B is 1.00x as fast as A in linux_sme2_")
    regressed = headline(compare(b, a, limit=0.05))
    says(regressed, "B is 84.0% slower than A in linux_sme2_", "5.0% allowed")


def test_the_times_shown_are_those_that_were_compared(sme2_home: Path) -> None:
    """Turns of the same launches: their ratio is the speedup's, whatever disturbed other inferences."""
    run = sme2_home / "runs" / "xnnpack_fp16" / "linux"
    for row in compare(run, run).series:
        assert row.way == "lockstep" and row.turns_ms is not None
        a, b = row.compared_ms
        assert a is not None and b is not None and a / b == pytest.approx(row.end_to_end.ratio)
        assert a <= (row.end_to_end.baseline_median or 0), "the fastest eighth"


def test_times_of_a_cpu_that_is_not_arm_are_marked(tmp_path: Path, sme2prof) -> None:
    runs = [tmp_path / name for name in "ab"]
    for run_dir in runs:
        shutil.copytree(X86_64, run_dir)
        steady(run_dir)
    rename_launches(runs[1], lambda launch: launch[::-1])
    slow_down(runs[0], 1.84)
    as_program(runs[1], "small_cnn_xnnpack_int8")
    done = sme2prof("compare", *runs)
    says(done.stdout, "linux_baseline, 1 thread (not Arm)")
    last = done.stdout.splitlines()[-1]
    says(last, "B (small_cnn XNNPACK int8) is 1.84x as fast as A (95% interval 1.")
    assert last.endswith("), on x86_64: says nothing about Arm.")
    facts = json.loads(sme2prof("compare", *runs, "--json").stdout)
    assert facts["headline"] == last and facts["a"]["is_arm"] is facts["b"]["is_arm"] is False
    assert headline(compare(*runs, limit=0.05)).endswith("on x86_64: says nothing about Arm.")
    assert headline(compare(runs[0], runs[0])).endswith("on x86_64: says nothing about Arm.")


def test_a_page_is_written_where_the_command_says(
    two: tuple[Path, Path], elsewhere: Path, tmp_path: Path, sme2prof
) -> None:
    for words in (("--quiet",), ("--json",)):
        sme2prof("compare", *two, *words)
    assert not list(elsewhere.iterdir()), "neither asked for nor said"
    done = sme2prof("compare", *two)
    assert "wrote out_compare/a_vs_b/comparison.html" in done.stdout.splitlines()
    written = elsewhere / "out_compare" / "a_vs_b" / "comparison.html"
    page = written.read_text()
    says(page, "small_cnn XNNPACK fp16: B compared with A", "No significant difference", "Where the time")
    facts = json.loads(sme2prof("compare", *two, "--json", "--out", tmp_path / "own.html").stdout)
    assert facts["report"] == str(tmp_path / "own.html") and (tmp_path / "own.html").is_file()
    # A page that nobody asked for is no reason to fail; one that was asked for is.
    written.unlink()
    written.mkdir()
    done = sme2prof("compare", *two)
    assert done.returncode == 0 and "no page was written" in done.stderr
    assert sme2prof("compare", *two, "--out", written).returncode == 2


@pytest.mark.parametrize(
    ("factor", "limit", "regressions"), [(1.02, 1, 0), (1.08, 10, 0), (1.08, 5, 2), (0.5, 0, 0), (2.0, 99, 2)]
)
def test_the_gate_asks_for_both_size_and_certainty(
    two: tuple[Path, Path], factor: float, limit: float, regressions: int
) -> None:
    a, b = two
    steady(a)
    steady(b)
    slow_down(b, factor)
    found = compare(a, b, limit=limit / 100)
    assert len(found.regressions) == regressions
    assert [series.slowdown for series in found.series] == pytest.approx([factor - 1] * 2, abs=0.01)


def test_a_gate_too_narrow_for_the_noise_says_so(two: tuple[Path, Path]) -> None:
    for run_dir in two:
        steady(run_dir)
    narrow, wide = (compare(*two, limit=limit) for limit in (0.01, 0.10))
    assert all(series.could_hide(0.01) and not series.could_hide(0.10) for series in narrow.series)
    (new,) = set(warnings(narrow)) - set(warnings(wide))
    assert all(series.after.experiment in new for series in narrow.series)


def test_emulated_times_are_never_compared(tmp_path: Path, sme2prof) -> None:
    assert verdicts(compare(EMULATED, EMULATED)) == {Verdict.NOT_COMPARABLE}
    assert sme2prof("compare", EMULATED, EMULATED).returncode == 0
    junit, summary = tmp_path / "j.xml", tmp_path / "s.md"
    gate = ("--fail-on-regression", 5, "--out", junit, "--out", summary)
    done = sme2prof("compare", EMULATED, EMULATED, *gate)
    assert done.returncode == 2 and done.stderr.count("error:") == 1
    (suite,) = ElementTree.parse(junit).getroot()
    assert suite.get("errors") == "2" and suite.get("failures") == "0"
    assert not re.search(r"\d ms", summary.read_text())


def test_a_damaged_journal_is_not_passed_over(two: tuple[Path, Path], sme2prof) -> None:
    """Without its turns a run would be compared in a weaker way, and nobody would know why."""
    a, b = two
    (b / "journal.jsonl").write_bytes(b"{}\n" + (b / "journal.jsonl").read_bytes())
    done = sme2prof("compare", a, b)
    assert done.returncode != 0 and f"{b / 'journal.jsonl'}, line 1 is damaged" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_different_machines_are_compared_only_on_request(two: tuple[Path, Path], sme2prof) -> None:
    a, b = two
    edit(b / "manifest.json", lambda manifest: manifest["machine"]["before"].update(cpu="Other-9000"))
    assert verdicts(compare(a, b)) == {Verdict.NOT_COMPARABLE}
    assert sme2prof("compare", a, b, "--fail-on-regression", 50).returncode == 2
    across = compare(a, b, across_machines=True)
    assert verdicts(across) == {Verdict.NO_CHANGE}
    assert ("CPU", "made SME2 CPU", "Other-9000") in across.differing_facts
    assert sme2prof("compare", a, b, "--fail-on-regression", 50, "--across-machines").returncode == 0


def test_what_else_differs_is_told(two: tuple[Path, Path]) -> None:
    a, b = two

    def change(manifest: Json) -> None:
        manifest["model_sha256"] = "f" * 64
        manifest["executorch"]["version"] = "9.9"

    edit(b / "manifest.json", change)
    found = compare(a, b)
    differing = {what: after for what, _, after in found.differing_facts}
    assert "9.9" in differing.values() and "f" * 16 in differing.values()
    text = render_markdown(comparison_document(found))
    assert "9.9" in text and "f" * 16 in text


def test_one_dump_each_shows_differences_without_a_verdict(sme2prof) -> None:
    (a,), (b,) = (SME2.glob(f"{name}/*_t1.etdump") for name in (OFF, ON))
    found = compare(a, b)
    (series,) = found.series
    assert series.with_tracer and not series.comparable and series.end_to_end.rounds == 1
    assert series.end_to_end.ratio == pytest.approx(2, rel=0.2)
    assert all(pair.speedup is None or pair.speedup.low is None for pair in series.operators)
    assert "too few launches" in render_markdown(comparison_document(found))
    assert sme2prof("compare", a, b, "--fail-on-regression", 5).returncode == 2


def test_operators_that_appear_and_vanish_are_named() -> None:
    (fp16,) = SME2.glob(f"{ON}/*_t1.etdump")
    int8 = INT8.with_suffix(".etdump")
    there, back = compare(fp16, int8, times=Times.HARDWARE), compare(int8, fp16, times=Times.HARDWARE)
    appeared = sorted(pair.main.type for pair in there.series[0].operators if pair.change == "appeared")
    assert any(name.startswith("Convert") for name in appeared)
    vanished = sorted(pair.main.type for pair in back.series[0].operators if pair.change == "vanished")
    assert vanished == appeared


def test_bare_dumps_are_compared_only_on_the_users_word(tmp_path: Path) -> None:
    folders = tmp_path / "a", tmp_path / "b"
    for name, folder in zip((OFF, ON), folders, strict=True):
        shutil.copytree(SME2 / name, folder / "x", ignore=shutil.ignore_patterns("*.json", "*.csv", "*_t2*"))
        for dump in dumps_in(folder):
            dump.rename(dump.with_name(dump.name.replace(name, "x")))
    assert verdicts(compare(*folders)) == {Verdict.NOT_COMPARABLE}
    (said,) = compare(*folders, times=Times.HARDWARE).series
    assert said.end_to_end.verdict is Verdict.FASTER and said.with_tracer


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: folder / "none", "none"),
        (lambda folder: folder, "contains no run"),
        (lambda folder: _written(folder / "x.txt", "1"), "x.txt"),
        (lambda folder: _written(folder / "x.json", "[1, 2]"), "x.json(?!.*pipeline).*; .*run directory"),
        (lambda folder: _written(folder / "x.etdump", "junk"), "x.etdump"),
    ],
)
def test_what_cannot_be_compared_at_all_exits_with_2(
    tmp_path: Path, sme2prof, spoil: Callable[[Path], Path], said: str
) -> None:
    done = sme2prof("compare", SME2, spoil(tmp_path))
    assert done.returncode == 2 and re.search(said, done.stderr) and done.stderr.count("\n") == 1


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_runs_without_a_common_experiment_are_refused() -> None:
    with pytest.raises(InputError, match="no experiment in common"):
        compare(SME2, EMULATED)


def test_an_experiment_missing_on_one_side_is_told(two: tuple[Path, Path]) -> None:
    a, b = two
    shutil.rmtree(b / OFF)
    edit(b / "metrics.json", lambda metrics: metrics.update(latencies=metrics["latencies"][:1]))
    edit(b / "manifest.json", lambda manifest: manifest["results"].pop())
    found = compare(a, b)
    assert [series.experiment for series in found.only_a] == [OFF] and not found.only_b
    assert any(str(found.only_a[0]) in warning for warning in warnings(found))
    assert found.answer is None
    for gate in ({"limit": 0.05}, {"fail_on": ("structure",)}):
        found = compare(a, b, **gate)
        assert found.answer == "no answer" and (str(found.only_a[0]), NOT_MEASURED) in found.unanswered
        says(headline(found), f"No answer: only A has {OFF}")
        says(comparison_junit(found), 'errors="1"')
        assert compare(b, a, **gate).answer == "passed"
