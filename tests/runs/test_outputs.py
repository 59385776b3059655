"""What is written needs a file or a folder: a pipe is not waited for, and - is neither."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_runs import X86_64
from said import says

from model_profiling.core import process

Cli = Callable[..., process.Completed]


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe.md")
    return tmp_path / "pipe.md"


def test_a_pipe_is_not_waited_for(pipe: Path, sme2prof: Cli) -> None:
    for words in (("compare", X86_64, X86_64, "--out", pipe), ("report", X86_64, "--out", pipe)):
        done = sme2prof(*words)
        assert done.returncode == 2 and pipe.is_fifo()
        says(done.stderr, f"cannot write {pipe}", "a named pipe has that name")


@pytest.mark.parametrize(
    "words",
    [
        ("analyze", "{run}", "--out", "-"),
        ("export", "toy_cnn", "--outdir", "-"),
        ("profile", "toy_cnn", "--outdir", "-"),
        ("compare", "{run}", "{run}", "--outdir", "-"),
        ("onboard", "new_model", "--dir", "-"),
        ("skills", "install", "--dir", "-"),
        ("report", "{run}", "--out", "-"),
        ("view", "{run}", "--out", "-"),
    ],
)
def test_standard_output_is_no_file_and_no_folder(words: tuple[str, ...], sme2prof: Cli) -> None:
    done = sme2prof(*(word.format(run=X86_64) for word in words))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    says(done.stderr, "- is not a", "name a ")
    assert not Path("-").exists()
