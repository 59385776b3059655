"""A run directory of somebody else: whatever its files name and hold, only its own files are opened."""

from __future__ import annotations

import json
import os
import resource
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from recorded_runs import DATA, PROGRAM, put
from said import says

from model_profiling.config.names import RunFiles
from model_profiling.core.errors import ProfilingError
from model_profiling.runs import Run
from model_profiling.runs.begin import check_directory, clear_work
from model_profiling.runs.folders import runs_in
from model_profiling.validation.validate import validate
from model_profiling.workflow.analyse import analyse, write_analysis
from model_profiling.workflow.report import write_report
from model_profiling.workflow.share import share_report

SECRET = "root:x:0:0"
"""What no answer may repeat."""


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """What is read without end ends in an error, not in the machine's memory."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    taken = Path("/proc/self/statm")
    if taken.exists():
        pages = int(taken.read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (2 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the run's with a secret and a dump in it."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "passwd").write_text(f"{SECRET}:root:/root:/bin/sh\n")
    return folder


def first(run_dir: Path, pattern: str) -> Path:
    return sorted(run_dir.rglob(pattern))[0]


def said(run_dir: Path) -> str:
    """Everything `validate` finds wrong; that it comes to an end is half of what is asked."""
    wrong = [check for check in validate(run_dir).checks if check.status == "fail"]
    assert wrong and all(check.fix for check in wrong)
    return "\n".join(check.found for check in wrong)


def test_a_dump_larger_than_any_disk_is_not_copied(arm_run: Path, tmp_path: Path) -> None:
    with first(arm_run, "*.etdump_round").open("r+b") as dump:
        dump.truncate(1 << 42)
    with pytest.raises(ProfilingError, match="holds more than"):
        share_report(arm_run, tmp_path / "page.html")


def test_lists_and_logs_are_no_larger_than_any_that_a_run_has(arm_run: Path) -> None:
    """As rows and lines they would take many times their size."""
    line = "m,k,c,1,d,x,v,s,a,0,0\n"
    with first(arm_run, "*_kernels.csv").open("a") as kernels:
        kernels.write(line * ((8 << 20) // len(line)))
    says(said(arm_run), "_kernels.csv", "more than 4 MiB")
    with pytest.raises(ProfilingError, match="more than 4 MiB"):
        write_report(arm_run)


def test_a_folder_called_like_a_file_half_written_is_left(tmp_path: Path) -> None:
    (tmp_path / "a" / ".b.part").mkdir(parents=True)
    (tmp_path / "a" / ".c.part").write_text("x")
    clear_work(RunFiles(tmp_path, "m"))
    assert [path.name for path in (tmp_path / "a").iterdir()] == [".b.part"]


def test_a_program_is_not_reached_through_a_link(arm_run: Path, outside: Path) -> None:
    """Links in hidden folders keep no run from being read: a whole Python environment may be one."""
    shutil.copy(PROGRAM, outside / "secret.pte")
    (arm_run / ".hidden").symlink_to(outside)
    (arm_run / ".real").mkdir()
    (arm_run / ".real" / "link").symlink_to(outside)
    for named in (".hidden/secret.pte", "/.hidden/secret.pte", ".real/link/secret.pte"):
        put(arm_run / "manifest.json", "model", named)
        assert Run.open(arm_run).programs().named() is None


# What a run's files may name that leads out of it: of the manifest's first result, and of the journal's
# first line of evidence.
LEADING_OUT = [
    ("outputs.0.file", "/dev/zero"),
    ("outputs.0.file", "../../../../outside/passwd"),
    ("etdump", str(DATA / "a.etdump")),
    ("etdump_rounds.5", "rounds/../../../../a.etdump"),
    ("boundaries.0", "/a"),
    ("kernels", "../a.csv"),
    ("kernels", ".hidden/a.csv"),  # which may hold links
    ("latency", "/a.json"),
    ("samples", "/a.json"),
    ("log", "a\0b"),  # a name that no system has
    ("experiment", "../../../outside"),
    ("experiment", ".hidden"),
]
IN_JOURNAL = [
    ("log", "/etc/passwd_xnntrace.log"),
    ("log", ".hidden/a.log"),
    ("outputs.0.file", "../../x"),
    ("experiment", "/a"),
]


@pytest.mark.parametrize(("place", "value"), LEADING_OUT)
def test_a_path_that_leads_out_is_named_and_not_followed(
    arm_run: Path, outside: Path, place: str, value: str
) -> None:
    put(arm_run / "manifest.json", f"results.0.{place}", value)
    assert f"results.0.{place}: {value!r}" in said(arm_run)
    with pytest.raises(ProfilingError, match=r"manifest\.json: results\.0\."):
        write_analysis(analyse(arm_run))
    assert [path.name for path in outside.iterdir()] == ["passwd"]


@pytest.mark.parametrize(("place", "value"), IN_JOURNAL)
def test_nor_is_one_of_the_journal(arm_run: Path, outside: Path, place: str, value: str) -> None:
    path, line = arm_run / "journal.jsonl", arm_run.with_name("line.json")
    lines = path.read_text().splitlines()
    at = next(at for at, entry in enumerate(lines) if json.loads(entry)["kind"] == "evidence")
    line.write_text(lines[at])
    put(line, place, value)
    path.write_text("\n".join([*lines[:at], line.read_text(), *lines[at + 1 :]]) + "\n")
    assert f"{place}: {value!r}" in said(arm_run)
    assert [path.name for path in outside.iterdir()] == ["passwd"]


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except OSError:
        pytest.skip("only root makes devices")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def sparse(path: Path) -> None:
    with path.open("wb") as made:
        made.truncate(10 << 30)


FILES = (
    "manifest.json", "metrics.json", "journal.jsonl", "analysis_summary.json", "program_graph.json",
    "*_t1.etdump", "*_r3.etdump_round", "*_output0.bin", "*_robust_stats.json", "*_kernels.csv",
    "*_exec_ops_stats.csv",
)  # fmt: skip


@pytest.mark.parametrize(
    ("make", "files"),
    [(pipe, FILES), (endless, FILES[2::5]), (loop, FILES[2::5]), (sparse, FILES[2::3])],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_no_file_or_has_no_end_is_said(arm_run: Path, make, files) -> None:
    """One after the other in one run: each is named by the check that needs it, and put right again."""
    for pattern in files:
        path = first(arm_run, pattern)
        kept = path.read_bytes()
        path.unlink()
        make(path)
        assert path.name in said(arm_run), pattern
        path.unlink()
        path.write_bytes(kept)
    assert validate(arm_run).ok


def test_a_link_is_not_followed_out(arm_run: Path, outside: Path) -> None:
    for pattern in FILES[::2]:
        path = first(arm_run, pattern)
        kept = path.rename(outside / "kept")
        path.symlink_to(kept)
        found = said(arm_run)
        assert path.name in found and " link" in found, (pattern, found)
        path.unlink()
        kept.rename(path)
    assert validate(arm_run).ok


@pytest.mark.parametrize("name", ["linux_baseline", "linux_baseline/rounds", "report_files", "for_tools"])
def test_a_folder_that_is_a_link_is_refused_before_anything_is_written(
    arm_run: Path, outside: Path, name: str
) -> None:
    folder = arm_run / name
    if folder.exists():
        folder.rename(outside / "moved")
    (outside / "moved").mkdir(exist_ok=True)
    (outside / "moved" / "mine.svg").write_text("mine")
    before = sorted(outside.rglob("*"))
    folder.symlink_to(outside / "moved")
    for command in (analyse, write_report, lambda run: share_report(run, run / "a.zip")):
        with pytest.raises(ProfilingError, match=r"is a link .*outside"):
            command(arm_run)
    assert sorted(outside.rglob("*")) == before
    # The user's own way to the run may lead through links.
    folder.unlink()
    if (outside / "moved").joinpath("rounds").exists() or name.endswith("rounds"):
        (outside / "moved").rename(folder)
    (outside / "way").symlink_to(arm_run)
    assert analyse(outside / "way").series


@pytest.mark.parametrize("first", ["a", ".a"])
def test_folders_without_end_are_named_in_one_line(arm_run: Path, first: str, monkeypatch) -> None:
    """Python 3.11 walks through a thousand of them, then raises RecursionError."""
    monkeypatch.chdir(arm_run)
    for name in (first, *"a" * 1500):
        Path(name).mkdir()
        os.chdir(name)
    os.chdir(arm_run)
    for command in (analyse, write_report, lambda run: share_report(run, run / "a.zip")):
        with pytest.raises(ProfilingError, match="deep in each other"):
            command(arm_run)
    assert "deep in each other" in said(arm_run)
    assert arm_run in runs_in(arm_run.parent)
    subprocess.run(["rm", "-rf", arm_run / first], check=True, timeout=60)  # rmtree recurses, too


def test_the_program_is_not_looked_for_where_the_manifest_says(arm_run: Path, outside: Path) -> None:
    program = next(arm_run.parents[2].glob("artifacts/*_fp16.pte"))
    (arm_run / "program_graph.json").unlink()
    assert analyse(arm_run).model == str(program)
    elsewhere = program.rename(outside / program.name)
    put(arm_run / "manifest.json", "model", str(elsewhere))
    run = Run.open(arm_run)
    assert run.programs().named() is None and analyse(run).model is None
    # Where the user names it, it is taken.
    assert analyse(run, model=elsewhere).model == str(elsewhere)
    for model in ("/etc/passwd", "../../../../outside/passwd", "a\0.pte"):
        put(arm_run / "manifest.json", "model", model)
        try:
            assert Run.open(arm_run).programs().named() is None
        except ProfilingError as problem:
            assert "model" in problem.problem


def test_continuing_a_run_touches_nothing_elsewhere(arm_run: Path, outside: Path) -> None:
    (arm_run / ".work").symlink_to(outside)
    clear_work(RunFiles(arm_run, "small_cnn"))
    assert not (arm_run / ".work").is_symlink() and (outside / "passwd").exists()
    (arm_run / "linux_baseline").rename(outside / "moved")
    (arm_run / "linux_baseline").symlink_to(outside / "moved")
    with pytest.raises(ProfilingError, match=r"is a link .*outside"):
        check_directory(arm_run)
