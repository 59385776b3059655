"""A pipeline whose programs take turns: what it keeps, what ends it, and what happens where turns cannot be
taken or a launch is ended from outside."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from recorded_runs import ARM, pair, raw_config
from said import says
from stand_ins import started

from model_profiling.config.reading import parse_config
from model_profiling.config.series import Series
from model_profiling.core import process
from model_profiling.core.errors import FormatError
from model_profiling.runs.journal import Entry, Journal
from model_profiling.runs.times import timed, way_of
from model_profiling.validation.validate import validate
from model_profiling.workflow.compare import compare
from model_profiling.workflow.measure import RunOutcome, run_config

STATEFUL, RANDOM = (f"{ROOT}/tests/models/unseen.py:{factory}" for factory in ("counter", "drawing"))
Raw = dict[str, Any]
Run = Callable[..., process.Completed]


def twice(model: Path, run_dir: Path, **schedule: object) -> Raw:
    """One program twice: no comparison of the two may find a difference, and every CPU can make it."""
    experiments = [{"name": name, "runs": 2, "warmup": 1} for name in ("one", "two")]
    pairs = {"compare_pairs": [pair("two", "one", "twice")]}
    asked = {"schedule": {"seed": 5, **schedule}, "analysis": pairs}
    return raw_config(run_dir, experiments, program=model, **asked)


def measured(raw: Raw) -> RunOutcome:
    config = parse_config(raw, folder=Path.cwd())
    return run_config(config)


def timings(run_dir: Path) -> list[Entry]:
    return [entry for entry in Journal(run_dir).entries() if entry.kind != "evidence"]


def test_every_turn_is_kept_and_the_budget_ends_it(exported, tmp_path: Path) -> None:
    outcome = measured(twice(exported("toy_cnn", "fp32").pte, tmp_path / "run", budget_s=0.5))
    assert outcome.run.manifest is not None and outcome.run.metrics is not None
    schedule = outcome.run.manifest.schedule
    assert schedule.rounds_done >= 6
    assert schedule.ended in ("budget", "precision") and schedule.measured_s and schedule.measured_s > 0.5
    if schedule.ended == "budget":
        assert "budget of 0.5 s" in outcome.report.read_text()
    one, two = (Journal(outcome.run_dir).ended_well("untraced", Series(name, 1)) for name in ("one", "two"))
    for ours, theirs in zip(one, two, strict=True):
        assert ours.launch == theirs.launch and ours.machine_before == theirs.machine_before
        assert len(ours.turns_ns) == len(theirs.turns_ns) == len(ours.turns_started_ns)
        assert all(len(turn) == len(ours.turns_ns[0]) and min(turn) > 0 for turn in ours.turns_ns)
        # Cycle by cycle each had its turn, and nobody began before the other had ended.
        order = sorted(
            (start, sum(turn))
            for entry in (ours, theirs)
            for start, turn in zip(entry.turns_started_ns, entry.turns_ns, strict=True)
        )
        ends = [start + took for start, took in order]
        assert all(start >= end for (start, _), end in zip(order[1:], ends, strict=False))
    for latency in outcome.run.metrics.latencies:
        assert latency.way == "lockstep" and latency.rounds == len(one)
    (found,) = outcome.run.metrics.comparisons
    assert found.speedup.unit == "launch" and found.speedup.rounds == len(one)
    valid = validate(outcome.run_dir)
    assert valid.ok, valid.as_text()


def test_a_program_with_state_takes_turns_because_its_state_is_put_back(exported, tmp_path: Path) -> None:
    outcome = measured(twice(exported(STATEFUL, "fp32").pte, tmp_path / "run", rounds=2))
    assert not outcome.failed and None not in {entry.launch for entry in timings(outcome.run_dir)}
    assert "no_lockstep" not in [line.kind for line in outcome.warnings]


def test_a_program_that_cannot_take_turns_is_measured_in_rounds(exported, tmp_path: Path) -> None:
    outcome = measured(twice(exported(RANDOM, "fp32").pte, tmp_path / "run", rounds=2))
    assert not outcome.failed
    assert {entry.launch for entry in timings(outcome.run_dir)} == {None}
    assert [line.kind for line in outcome.warnings].count("no_lockstep") == 1
    assert (outcome.run_dir / "failed_launch.log").is_file()


def descendants(pid: int) -> list[int]:
    """The processes a process started, and those they started, as Linux lists them."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        found = [int(word) for task in tasks for word in (task / "children").read_text().split()]
    except OSError:
        return []
    return [*found, *(below for child in found for below in descendants(child))]


def named_runner(pid: int) -> bool:
    try:
        return "sme2prof-runner" in Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="it looks into Linux's /proc")
@pytest.mark.parametrize("whom", ["parent", "child"])
def test_a_launch_that_was_killed_is_made_again(exported, tmp_path: Path, whom: str) -> None:
    raw = twice(exported("toy_cnn", "fp32").pte, tmp_path / "run", rounds=4, budget_s=4)
    (tmp_path / "c.json").write_text(json.dumps(raw))
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    run = started("-m", "model_profiling", "run", "c.json", cwd=tmp_path, **streams)
    killed = 0
    try:
        while run.poll() is None and killed < 2:
            # Within a launch the parent has its children; a lone process has none.
            runners = [pid for pid in descendants(run.pid) if named_runner(pid)]
            parents = [pid for pid in runners if len(descendants(pid)) == 2]
            begun = (tmp_path / "run" / "journal.jsonl").exists()
            launches = {entry.launch for entry in timings(tmp_path / "run")} if begun else set()
            if parents and len(launches) == 2 * killed + 1:
                victim = parents[0] if whom == "parent" else descendants(parents[0])[0]
                os.kill(victim, signal.SIGKILL)
                killed += 1
            time.sleep(0.01)
        _, errors = run.communicate(timeout=120)
    finally:
        run.kill()
        run.wait()
    assert run.returncode == 0, errors
    assert killed == 2, "no launch was caught"
    entries = timings(tmp_path / "run")
    launches = {entry.launch for entry in entries}
    assert (len(entries), len(launches)) == (16, 8) and None not in launches, "each step once, all in turns"
    assert (tmp_path / "run" / "failed_launch.log").is_file()
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert "no_lockstep" not in [remark["code"] for remark in manifest["warnings"]]
    valid = validate(tmp_path / "run")
    assert valid.ok, valid.as_text()


def test_two_programs_are_compared_in_the_same_launches(exported, sme2prof: Run, tmp_path: Path) -> None:
    a, b = exported("toy_cnn", "fp32").pte, exported("toy_cnn", "int8").pte
    words = ("compare", a, b, "--target", "host", "--outdir", tmp_path / "o", "--budget", 2)
    done = sme2prof(*words, "--json")
    assert done.returncode == 0, done.stderr
    stated = json.loads(done.stdout)
    (series,) = stated["series"]
    says(stated["headline"], "as fast as", "95% interval")
    assert stated["headline"].endswith("says nothing about Arm.") == (stated["b"]["is_arm"] is False)
    assert series["end_to_end"]["unit"] == "launch" and series["end_to_end"]["rounds"] >= 6
    runs = [next((tmp_path / "o" / side).glob("*/manifest.json")).parent for side in "ab"]
    sides = [timed(Journal(run_dir), Series("program", 1)) for run_dir in runs]
    assert (
        sides[0].launches.keys() == sides[1].launches.keys() and way_of(*sides, same_run=False) == "lockstep"
    )
    again = compare(*runs).series[0]
    assert again.pairing is not None and again.pairing.measured == "lockstep", "operators, too"
    assert again.way == "lockstep" and again.end_to_end.ratio == series["end_to_end"]["ratio"]
    for run_dir in runs:
        valid = validate(run_dir)
        assert valid.ok, valid.as_text()
    # What was measured together but not reported is not measured again.
    before = [(run_dir / "journal.jsonl").read_bytes() for run_dir in runs]
    for run_dir in runs:
        stopped = json.loads((run_dir / "manifest.json").read_text()) | {"state": "analysing"}
        (run_dir / "manifest.json").write_text(json.dumps(stopped))
    resumed = sme2prof(*words)
    assert resumed.returncode == 0, resumed.stderr
    assert [(run_dir / "journal.jsonl").read_bytes() for run_dir in runs] == before
    assert str(a) in resumed.stdout
    page = tmp_path / "o" / "comparison.html"
    assert f"wrote {page}" in resumed.stdout.splitlines()
    says(page.read_text(), "B (toy_cnn XNNPACK int8) compared with A (toy_cnn XNNPACK fp32)")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("{pte}", "{folder}"), "is a program and"),
        (("{folder}", "{folder}", "--budget", "3"), "--budget"),
        (("{pte}", "{pte}", "--times", "hardware"), "--times"),
        (("{pte}", "{pte}", "--target", "emulated"), "target emulated are not latencies"),
        (("{pte}", "gone.pte"), "no program gone.pte"),
        (("{folder}", "{folder}", "--out", "x.txt"), ".html, .md or .xml"),
    ],
)
def test_what_cannot_be_compared_is_one_line(exported, sme2prof, tmp_path, words, said) -> None:
    names = {"pte": str(exported("toy_cnn", "fp32").pte), "folder": str(tmp_path)}
    done = sme2prof("compare", *(word.format(**names) for word in words))
    assert done.returncode == 2 and said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_one_that_crashes_costs_the_others_no_launch(exported, tmp_path: Path) -> None:
    """Every round of what works is measured in turns, and all dumps are of one kind."""
    raw = twice(exported("toy_cnn", "fp32").pte, tmp_path / "run", rounds=2, budget_s=1)
    raw["experiments"].append({"name": "bad", "runs": 2, "warmup": 1, "extra_args": ["--no-such-flag"]})
    outcome = measured(raw)
    assert [result.experiment for result in outcome.failed] == ["bad"]
    good = [entry for entry in timings(outcome.run_dir) if entry.experiment != "bad"]
    assert len(good) == 8 and None not in {entry.launch for entry in good}
    (found,) = outcome.run.metrics.comparisons if outcome.run.metrics else ()
    assert found.speedup.unit == "launch" and not any(line.kind == "no_lockstep" for line in outcome.warnings)


def test_turns_that_cannot_have_been_taken_are_damage(tmp_path: Path) -> None:
    lines = (ARM / "journal.jsonl").read_text().splitlines()
    for turns in ("[[]]", "[]", f"[[{10**400}]]", "[[0, 0]]", "[[5], [5, 6]]"):
        spoilt = [re.sub(r'"turns_ns": \[\[.*?\]\]', f'"turns_ns": {turns}', line) for line in lines]
        (tmp_path / "journal.jsonl").write_text("\n".join(spoilt) + "\n")
        with pytest.raises(FormatError, match="is damaged"):
            Journal(tmp_path)
