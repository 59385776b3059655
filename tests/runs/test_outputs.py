"""Outputs go where the user says, were it a pipe, and never where somebody else's link leads."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from said import says

from model_profiling.core import process
from model_profiling.tools import robust_latency_analysis

Cli = Callable[..., process.Completed]


@pytest.fixture(scope="module")
def run(arm_home: Path) -> Path:
    return arm_home / "runs" / "xnnpack_fp16" / "linux"


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe.md")
    return tmp_path / "pipe.md"


def test_one_output_takes_standard_output_and_what_is_said_goes_aside(
    run: Path, tmp_path: Path, sme2prof: Cli
) -> None:
    junit = tmp_path / "junit.xml"
    done = sme2prof("compare", run, run, "--out", "-", "--out", junit, "--quiet")
    assert done.returncode == 0 and done.stderr.count("\n") == 1
    told = done.stderr.rstrip(".\n")
    assert done.stdout.startswith(f"## {told}")
    assert junit.read_bytes().startswith(b"<?xml")
    assert list(tmp_path.iterdir()) == [junit]


def test_a_pipe_is_not_waited_for(run: Path, pipe: Path, sme2prof: Cli) -> None:
    for words in (("compare", run, run, "--out", pipe), ("report", run, "--out", pipe)):
        done = sme2prof(*words)
        assert done.returncode == 2 and pipe.is_fifo()
        says(done.stderr, f"cannot write {pipe}", "a named pipe has that name")


def test_two_answers_on_standard_output_are_refused(run: Path, sme2prof: Cli) -> None:
    for other in (("--json",), ("--out", "/dev/fd/1")):
        done = sme2prof("compare", run, run, "--out", "-", *other)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert "standard output" in done.stderr


def test_an_archive_into_a_stream(run: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "model_profiling", "report", str(run), "--zip", "--out", "-"],
        capture_output=True, check=True, timeout=120,
    )  # fmt: skip
    with zipfile.ZipFile(io.BytesIO(done.stdout)) as archive:
        assert archive.testzip() is None and archive.namelist()


def test_a_config_and_a_tool_write_to_standard_output(run: Path, sme2prof, capsys) -> None:
    program = next((run.parents[2] / "artifacts").glob("*.pte"))
    done = sme2prof("config", "new", "--model", program, "--output", "-")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("{") and done.stdout.endswith("}\n")
    dump = next(run.rglob("*.etdump"))
    assert robust_latency_analysis.main([str(dump), "--output", "-"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("{") and said.out.endswith("}\n")
    says(said.err, "median", "standard output")
    done = sme2prof("report", run, "--out", "-")
    assert "standard output\n" in done.stderr and "/dev/stdout" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("analyze", "{run}", "--out", "-"),
        ("export", "toy_cnn", "--outdir", "-"),
        ("profile", "toy_cnn", "--outdir", "-"),
        ("compare", "{run}", "{run}", "--outdir", "-"),
        ("onboard", "new_model", "--dir", "-"),
        ("skills", "install", "--dir", "-"),
    ],
)
def test_several_files_need_a_folder(words: tuple[str, ...], run: Path, sme2prof: Cli) -> None:
    done = sme2prof(*(word.format(run=run) for word in words))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    says(done.stderr, "several files", "folder")
    assert not Path("-").exists()


def test_a_page_to_look_at_needs_a_file(run: Path, sme2prof: Cli) -> None:
    done = sme2prof("view", run, "--out", "-")
    assert done.returncode == 2
    says(done.stderr, "/dev/stdout", "name a file")
