# ruff: noqa: E501  tables read best with one case per line
"""Every flag of every script and tool of the kit before this one: taken with the same meaning, or answered in one line."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_runs import PROGRAM, csv_rows
from said import says

from model_profiling.compat import scripts
from model_profiling.core import process
from model_profiling.facts import CATEGORY_CHANGE_FACTS
from model_profiling.report.csv_files import STATS_COLUMNS

KIT = Path(__file__).resolve().parents[2] / "model_profiling"
EARLIER: dict[str, tuple[str, ...]] = {
    "export/export_model.py": ("--model", "--backend", "--dtype", "--quantize", "--outdir", "--verbose", "--save-graph"),
    "scripts/analyze_results.py": ("--run-dir", "--quiet"),
    "scripts/android_pipeline.py": ("--config", "--only", "--analysis-only", "--verbose", "--remote-device"),
    "scripts/mac_pipeline.py": ("--config", "--only", "--analysis-only", "--verbose"),
    "scripts/generate_combined_report.py": ("--mac-dir", "--android-dir", "--out", "--model-name"),
    "scripts/generate_report.py": ("--run-dir", "--out", "--title"),
    "scripts/run_quick_test.py": ("--platform",),
    "scripts/validate_results.py": ("--results",),
    "scripts/validate_setup.py": ("--model",),
    "tools/analyze_etdump_csv.py": ("--timeline-csv", "--output-dir", "--model-name", "--compare", "--name1", "--name2", "-v", "--verbose"),
    "tools/etdump_to_csv.py": ("--etdump", "--etrecord", "--out-dir", "--run-index", "--all-runs", "--strict-etrecord", "--model-id"),
    "tools/generate_kernel_view.py": ("--sme2-on", "--sme2-off", "--out", "--filter-op", "--title"),
    "tools/robust_latency_analysis.py": ("--timeline-csv", "--compare", "--name", "--name1", "--name2", "--output-dir", "--verbose"),
    "tools/xnntrace_to_kernels.py": ("--xnntrace", "--out", "--model-id"),
}  # fmt: skip
COMMAND_OF = {"export_model": "export", "analyze_results": "analyze", "android_pipeline": "run", "mac_pipeline": "run",
              "generate_combined_report": "report", "generate_report": "report"}  # fmt: skip
"""What the scripts do not take themselves, the command takes that they run."""

Call = Callable[..., process.Completed]


@pytest.mark.parametrize("path", EARLIER)
def test_every_flag_is_known(path: str, entry: Call, sme2prof: Call) -> None:
    text = entry(path, "--help").stdout
    if command := COMMAND_OF.get(Path(path).stem):
        text += sme2prof(command, "--help").stdout
    words = set(text.replace(",", " ").replace("[", " ").split())
    assert not set(EARLIER[path]) - words


def test_a_mac_and_a_phone_are_combined_beside_their_runs(
    entry: Call, sme2_run: Path, tmp_path: Path
) -> None:
    mac, android = tmp_path / "runs" / "mac", tmp_path / "runs" / "android"
    for folder in (mac, android):
        shutil.copytree(sme2_run, folder)
    words = ("--mac-dir", mac, "--android-dir", android, "--model-name", "small_cnn")
    done = entry("scripts/generate_combined_report.py", *words)
    page = tmp_path / "runs" / "combined_report.md"
    assert done.ok and page.read_text().startswith("# small_cnn"), done.stderr
    shutil.rmtree(android)
    alone = entry("scripts/generate_combined_report.py", *words, "--out", tmp_path / "one.md")
    assert alone.ok and f"there is no {android}" in alone.stderr and (tmp_path / "one.md").is_file()
    shutil.rmtree(mac)
    none = entry("scripts/generate_combined_report.py", *words)
    assert none.returncode == 2 and len(none.stderr.splitlines()) == 1


def pipeline_words(monkeypatch: pytest.MonkeyPatch, *argv: str, **options: bool) -> list[str]:
    """What `sme2prof` is asked for."""
    asked: list[list[str]] = []
    monkeypatch.setattr(scripts, "sme2prof", lambda words: asked.append(list(words)) or 0)
    assert scripts.run_pipeline("", argv=argv, **options) == 0  # type: ignore[arg-type]
    return asked[0]


def test_experiments_and_a_phone_on_the_network_are_named_as_before(monkeypatch, capsys) -> None:
    words = ("--config", "c.json", "--only", "a", "b", "--remote-device", "192.0.2.7:5555", "--verbose")
    asked = pipeline_words(monkeypatch, *words, android=True)
    assert asked == ["run", "c.json", "--only", "a", "--only", "b", "--target", "android:192.0.2.7:5555"]
    assert ".log " in capsys.readouterr().err
    assert pipeline_words(monkeypatch, "--config", "c.json", "--only", "a", "--analysis-only") == [
        "run", "c.json", "--only", "a", "--analysis-only",
    ]  # fmt: skip
    assert scripts.run_pipeline("", android=True, argv=[*words, "--target", "android"]) == 2


def test_quantizing_makes_int8_and_the_usual_format_is_fp16(monkeypatch, capsys) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(scripts, "sme2prof", lambda words: asked.append(list(words)) or 0)
    everything = ("--dtype", "fp16", "--quantize", "--verbose", "--backend", "xnnpack")
    for words in ((), ("--quantize",), everything):
        scripts.run_export("", ["--model", "toy_cnn", "--outdir", "o", *words])
    assert [words[3] for words in asked] == ["fp16", "int8", "int8"]
    assert asked[2][6:] == ["--backend", "xnnpack", "--debug"]
    assert "--dtype fp16" in capsys.readouterr().err


def _both(off: Path, on: Path, out: Path) -> tuple[object, ...]:
    named = ("--name1", "A", "--name2", "B")
    return ("--timeline-csv", off, "--compare", on, *named, "--output-dir", out)


def test_latencies_are_analysed_as_before(entry: Call, sme2_run: Path, tmp_path: Path) -> None:
    off, on = sorted(sme2_run.glob("*/*_exec_all_runs_timeline.csv"))[:2]
    before = sorted(sme2_run.rglob("*"))
    words = ("--timeline-csv", off, "--name", "SME2-Off", "--verbose")
    printed = entry("tools/robust_latency_analysis.py", *words)
    assert printed.ok and "SME2-Off" in printed.stdout
    assert sorted(sme2_run.rglob("*")) == before, "nothing is written"
    words = _both(off, on, tmp_path / "out")
    for _ in range(2):  # a second call replaces the first one's files
        assert entry("tools/robust_latency_analysis.py", *words).ok
    stats = json.loads((tmp_path / "out" / f"{off.stem}_robust_stats.json").read_text())
    assert stats["name"] == "A" and stats["count"] == len(stats["latencies_ms"]) and stats["mean_ms"] > 0


def test_files_of_timelines_have_the_columns_of_the_kit_s_other_files(
    entry: Call, sme2_run: Path, tmp_path: Path
) -> None:
    off, on = sorted(sme2_run.glob("*/*_exec_all_runs_timeline.csv"))[:2]
    assert entry("tools/analyze_etdump_csv.py", *_both(off, on, tmp_path), "-v", "--model-name", "m").ok
    stats = {name: csv_rows(tmp_path / f"m_{name}_exec_ops_stats.csv") for name in "AB"}
    assert tuple(stats["A"][0]) == STATS_COLUMNS
    rows = csv_rows(tmp_path / "m_category_changes.csv")
    assert list(rows[0]) == [fact.name for fact in CATEGORY_CHANGE_FACTS]
    for row in rows:
        for side, name in (("baseline", "A"), ("candidate", "B")):
            ms = sum(float(each["ms"]) for each in stats[name] if each["category"] == row["category"])
            inside = any(each["category"] == row["category"] for each in stats[name])
            assert not inside or float(row[f"{side}_ms"]) == pytest.approx(ms)
    operators = csv_rows(tmp_path / "m_operator_changes.csv")
    assert len(operators) == len(stats["A"])
    assert list(operators[0])[:3] == ["comparison", "operator", "baseline"]
    many = entry("tools/analyze_etdump_csv.py", "--timeline-csv", off, on)
    assert many.returncode == 2
    says(many.stderr, "--timeline-csv", "2 files")


def test_a_run_with_what_the_tools_wrote_into_it_says_whose_figures_these_are(
    entry: Call, sme2_run: Path
) -> None:
    """A dump is one launch; the run's own file holds the figures of all."""
    dump = next(sme2_run.glob("*/*_t1.etdump"))
    words = ("--etdump", dump, "--out-dir", dump.parent, "--all-runs")
    assert entry("tools/etdump_to_csv.py", *words).ok
    done = entry("scripts/validate_results.py", "--results", sme2_run)
    assert done.returncode == 1
    says(done.stdout, "_exec_ops_stats.csv adds up to", "sme2prof analyze")
    assert entry("scripts/analyze_results.py", "--run-dir", sme2_run).ok
    assert entry("scripts/validate_results.py", "--results", sme2_run).ok


@pytest.mark.parametrize("content", [None, b"no record"])
def test_a_record_that_cannot_be_read_is_done_without_unless_it_must_be(
    entry: Call, sme2_run: Path, tmp_path: Path, content: bytes | None
) -> None:
    record = tmp_path / "m.etrecord"
    if content is not None:
        record.write_bytes(content)
    dump = next(sme2_run.glob("*/*_t1.etdump"))
    files = ("--etdump", dump, "--etrecord", record, "--out-dir", tmp_path)
    words = (*files, "--run-index", 0, "--model-id", "mine")
    done = entry("tools/etdump_to_csv.py", *words)
    assert done.ok and "continuing without it" in done.stderr and list(tmp_path.glob("*_ops_stats.csv"))
    strict = entry("tools/etdump_to_csv.py", *words, "--strict-etrecord")
    assert strict.returncode == 2
    assert strict.stderr.startswith("error: ") and len(strict.stderr.splitlines()) == 1


def test_the_setup_is_checked_with_a_program(entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no adb, whose server takes seconds to start
    monkeypatch.setenv("SME2PROF_CACHE", str(tmp_path))
    words = ("--prerequisites", "--android-run", "--model")
    there = entry("scripts/validate_setup.py", *words, PROGRAM)
    assert f"{PROGRAM}\n" in there.stdout and "FAIL  program" not in there.stdout
    assert "----  adb" in there.stdout and "NDK" in there.stdout
    gone = entry("scripts/validate_setup.py", *words, tmp_path / "gone.pte")
    assert gone.returncode == 1 and "FAIL  program" in gone.stdout


def test_the_smoke_test_says_which_system_this_is(entry: Call) -> None:
    other = "linux" if sys.platform == "darwin" else "mac"
    done = entry("scripts/run_quick_test.py", "--platform", other)
    assert done.returncode == 2 and f"not {other}" in done.stderr and len(done.stderr.splitlines()) == 1


def test_no_command_takes_another_run_than_the_one_named(
    sme2prof, sme2_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    place = Path("model_profiling/out_toy_cnn/runs/xnnpack_fp16/mac")
    shutil.copytree(sme2_run, here / place)
    strangers = tmp_path / "elsewhere" / "runs"
    shutil.copytree(sme2_run, strangers / "run")
    monkeypatch.chdir(here)
    for wrong in ("out_toy_cnn/runs/mac", "model_profiling/out_toy_cnn/runs/mac", f"{place.parent}/linux"):
        for command in ("validate", "report", "analyze"):
            done = sme2prof(command, wrong)
            assert done.returncode == 2, done.tail()
            says(done.stderr, f"there is no run directory {wrong}", f"did you mean {place}")
        assert f"there is no {wrong}" in sme2prof("compare", wrong, wrong).stderr
    # Beyond this folder and the one that is named, nothing is looked at: it may be a whole disk.
    walked = (
        "import sys; sys.addaudithook(lambda name, given: name in ('os.scandir', 'os.listdir') and "
        "print('LISTED', *given))\nfrom model_profiling.cli.main import main\n"
        f"main(['report', {str(strangers / 'rum')!r}])"
    )
    done = process.run([sys.executable, "-c", walked], timeout=60, cwd=here)
    says(done.stderr, "there is no run directory", "use a folder written by")
    listed = done.stdout.splitlines()
    assert "LISTED ." in listed and not {f"LISTED {path}" for path in strangers.parents} & set(listed)
    assert f"LISTED {strangers}" not in listed
