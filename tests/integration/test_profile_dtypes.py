"""`profile --dtype` with several: real exports, real runs, one side-by-side that can be moved and resumed."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ON_ARM
from said import says

from model_profiling.core import process
from model_profiling.core.number_formats import FORMATS
from model_profiling.core.records import read_record
from model_profiling.report.dtypes import Dtypes
from model_profiling.runs.journal import Journal

UNSEEN = Path(__file__).parents[1] / "models" / "unseen.py"
DTYPES = ("fp32", "fp16", "int8")
QUICK = ("--quick", "--budget", 1)
Run = Callable[..., process.Completed]


@pytest.fixture
def home(tmp_path: Path, exported: Callable[..., object]) -> Path:
    """A folder for the results that has toy_cnn's exports already."""
    artifacts = tmp_path / "out" / "artifacts"
    artifacts.mkdir(parents=True)
    for dtype in DTYPES:
        made = exported("toy_cnn", dtype)
        for path in (made.pte, made.etrecord, made.summary):
            shutil.copyfile(path, artifacts / path.name)
    return artifacts.parent


def test_all_dtypes_side_by_side(home: Path, sme2prof: Run) -> None:
    words = ("profile", "toy_cnn", "--target", "host", *QUICK, "--outdir", home)
    assert sme2prof(*words, "--dtype", "fp32").returncode == 0
    assert not (home / "runs" / "dtypes.md").exists(), "one dtype is profiled as ever"
    done = sme2prof(*words, "--dtype", "all")
    assert done.returncode == 0, done.stderr
    found = read_record(Dtypes, home / "runs" / "dtypes.json", "make it again")
    assert [side.dtype for side in found.sides] == list(FORMATS)
    assert found.machine in ("arm", "sme2") if ON_ARM else found.machine == "other"
    journals = [Journal(home / "runs" / run) for side in found.sides for run in side.runs]
    timed = [[entry for entry in journal.entries() if entry.kind == "untraced"] for journal in journals]
    launches = [{entry.launch for entry in entries} for entries in timed]
    assert len(launches) == len(FORMATS)
    assert all(each == launches[0] for each in launches), "all took turns with each other"
    assert None not in launches[0] and all(pair.speedup.unit == "launch" for pair in found.pairs)
    assert found.ship in FORMATS if ON_ARM else found.ship is None
    page = (home / "runs" / "dtypes.md").read_text()
    assert all(sentence in done.stdout for sentence in found.sentences)
    assert all(answer in page for _, answer in found.answers)
    assert all(f"]({run}/report.html)" in page for side in found.sides for run in side.runs)
    assert (home / "runs" / "dtypes.html").is_file()
    for side in found.sides:
        assert side.latency is not None and side.accuracy is not None and not side.accuracy.wrong
        assert (side.delegates, side.operators_outside) == (1, 0)
    assert found.sides[0].size_bytes > found.sides[1].size_bytes > found.sides[2].size_bytes
    assert ("as fast as" in found.on_this_cpu) <= ON_ARM
    assert found.pairs, "the fastest is judged against the others"

    moved = home.rename(home.with_name("moved"))
    for side in found.sides:
        assert (moved / "runs" / side.program).is_file()
        assert all((moved / "runs" / run / "report.md").is_file() for run in side.runs)


@pytest.mark.usefixtures("emulated")
def test_without_latencies_nothing_is_recommended(home: Path, sme2prof: Run) -> None:
    words = ("--dtype", "fp32,int8", "--target", "emulated", "--outdir", home, "--json")
    done = sme2prof("profile", "toy_cnn", *words)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert set(facts["profiles"]) == {"fp32", "int8"}
    found = facts["side_by_side"]
    assert found == json.loads((home / "runs" / "dtypes.json").read_text())
    assert [side["latency"] for side in found["sides"]] == [None, None]
    assert [side["sme2"]["arithmetic_share"] for side in found["sides"]] == [1.0, 1.0]
    assert found["ship"] is None and not found["pairs"]
    says(found["on_this_cpu"], "no recommendation", "no Arm latency")
    says(found["with_sme2"], "not known", "fp32 100.0%", "int8 100.0%")
    assert "| matrix arithmetic on SME2 | 100.0% | 100.0% |" in (home / "runs" / "dtypes.md").read_text()


def test_a_dtype_that_fails_is_kept_with_its_reason(
    tmp_path: Path, sme2prof: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", sys.stdout)  # as on a terminal
    words = ("--dtype", "fp16,fp32", "--target", "host", *QUICK, "--outdir", tmp_path)
    done = sme2prof("profile", f"{UNSEEN}:large", *words)
    assert done.returncode == 2
    says(done.stdout, "error: fp16: 'unseen_large' overflows")
    found = read_record(Dtypes, tmp_path / "runs" / "dtypes.json", "make it again")
    assert [bool(side.problem) for side in found.sides] == [True, False]
    assert found.ship == ("fp32" if ON_ARM else None)
    assert found.sides[0].problem in " ".join(found.notes)
    assert "export fp32" in (tmp_path / "runs" / "dtypes.md").read_text()
    *_, last = done.stdout.splitlines()
    assert "\n".join((*found.sentences, last)) in done.stdout, "the answers come after warnings and errors"
    says(last, "Side by side", tmp_path / "runs" / "dtypes.html")


def test_where_all_fail_the_first_reason_is_the_error(tmp_path: Path, sme2prof: Run) -> None:
    done = sme2prof("profile", f"{UNSEEN}:branching", "--dtype", "all", "--outdir", tmp_path)
    assert done.returncode == 2
    says(done.stderr, "torch.export", "'unseen_branching'")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", ["fp8", "fp32,", "fp32,fp32", "all,fp32", ""])
def test_a_mistyped_dtype_is_one_line(words: str, sme2prof: Run) -> None:
    done = sme2prof("profile", "toy_cnn", "--dtype", words)
    assert done.returncode == 2
    says(done.stderr, "--dtype", "give each once" if words == "fp32,fp32" else "fp32, fp16, int8", "all")
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_program_has_one_dtype(sme2prof: Run) -> None:
    done = sme2prof("profile", "some.pte", "--dtype", "fp32,fp16")
    assert done.returncode == 2
    says(done.stderr, "error: some.pte", "dtype; name a model")
