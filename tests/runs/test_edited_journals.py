"""What the runner wrote, the journal and the figures made of it must agree: an edited one is named, with the
round and both values, also where everything that follows from it was computed again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_runs import ARM, Json, copied, edit, replay
from replay import ReplayTarget

from model_profiling.core.checks import Check
from model_profiling.core.records import write_record
from model_profiling.runs.figures import compute_metrics, latencies, robust_stats
from model_profiling.runs.journal import Journal
from model_profiling.runs.manifest import read_manifest
from model_profiling.validation.validate import validate


@pytest.fixture
def run_dir(arm_home: Path, tmp_path: Path) -> Path:
    return copied(arm_home, tmp_path) / "runs" / "xnnpack_fp16" / "linux"


def edited(run_dir: Path, change: Callable[[Json], object], *, follow: bool = True) -> None:
    """Change the line of round 2 of the first series that was timed; `follow` computes all figures again."""
    path = run_dir / "journal.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    wanted = {"kind": "untraced", "round": 2, "threads": 1}
    change(next(each for each in lines if wanted.items() <= {key: each[key] for key in wanted}.items()))
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    if not follow:
        return
    manifest, journal = read_manifest(run_dir), Journal(run_dir)
    assert manifest is not None
    found = latencies(manifest, journal)
    for result in manifest.results:
        stats = robust_stats(result, found[result.series], journal, manifest.model)
        write_record(run_dir / str(result.latency), stats)
    write_record(run_dir / "metrics.json", compute_metrics(manifest, journal, run_dir, found))


def forget_the_runner(run_dir: Path) -> None:
    """Nothing is left but the journal."""
    path = run_dir / "journal.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for each in lines:
        each.pop("told"), each.pop("told_child")
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    for told in run_dir.rglob("*_runner.json"):
        told.unlink()


def checks(run_dir: Path) -> dict[str, Check]:
    return {check.name: check for check in validate(run_dir).checks}


def divided(entry: Json) -> None:
    entry["turns_ns"] = [[max(1, ns // 1000) for ns in turn] for turn in entry["turns_ns"]]


def one_faster(entry: Json) -> None:
    entry["turns_ns"][3][2] //= 2


def slower(entry: Json) -> None:
    entry["turns_ns"][0] = [1000 * ns for ns in entry["turns_ns"][0]]


def without_the_last(entry: Json) -> None:
    for column in ("turns_ns", "turns_cpu_ns", "turns_preemptions", "turns_started_ns", "turns_cpu"):
        entry[column].pop()


def with_one_more(entry: Json) -> None:
    for column in ("turns_ns", "turns_cpu_ns", "turns_preemptions"):
        for turn in entry[column]:
            turn.append(turn[-1])


def less_cpu_time(entry: Json) -> None:
    entry["turns_cpu_ns"][3][2] //= 2


@pytest.mark.parametrize(
    "change", [divided, one_faster, less_cpu_time, slower, without_the_last, with_one_more]
)
def test_a_latency_that_the_runner_did_not_write_is_named(run_dir: Path, change) -> None:
    edited(run_dir, change)
    found = checks(run_dir)
    assert found["latencies"].status == "pass", "every figure followed"
    assert found["journal"].status == "fail" and found["journal"].fix
    told = found["journal"].found
    assert "untraced round 2" in told and "journal.jsonl" in told
    if change not in (without_the_last, with_one_more, slower, divided):
        assert "launches/" in told and told.count(" ns") == 2 and "inference 26" in told


def test_where_the_runners_word_was_not_kept_that_is_said(run_dir: Path) -> None:
    forget_the_runner(run_dir)
    found = checks(run_dir)["journal"]
    assert found.status == "optional" and "was not kept" in found.found


@pytest.mark.parametrize(
    ("latency", "said"),
    [(1e30, "turns_ns.0.0"), (10**30, "too large a number"), (10**16, "round 2"), (0, "0 ns")],
)
def test_a_latency_that_cannot_be_is_named(run_dir: Path, latency: float, said: str) -> None:
    edited(run_dir, lambda entry: entry["turns_ns"][0].__setitem__(0, latency), follow=False)
    found = checks(run_dir)["journal"]
    assert found.status == "fail" and "journal.jsonl, line " in found.found and said in found.found


def test_figures_that_do_not_follow_the_journal_are_named_with_round_and_values(run_dir: Path) -> None:
    edited(run_dir, one_faster, follow=False)
    found = checks(run_dir)["latencies"]
    assert found.status == "fail" and "end_to_end_rounds_ms.2.22 is " in found.found


def test_the_runners_word_of_another_launch_is_found(run_dir: Path) -> None:
    *_, first, second = sorted(run_dir.glob("launches/*.json"), key=lambda path: path.stat().st_size)
    first.write_bytes(second.read_bytes())
    found = checks(run_dir)["journal"]
    assert found.status == "fail" and first.name in found.found
    first.unlink()
    assert "no such file" in checks(run_dir)["journal"].found


def test_a_recorded_journal_is_valid() -> None:
    assert checks(ARM)["journal"].status == "pass"


def test_a_process_by_itself_keeps_what_its_runner_wrote(tmp_path: Path, monkeypatch) -> None:
    """In rounds, one process after the other."""
    run_dir = tmp_path / "alone"
    target = ReplayTarget(ARM)
    monkeypatch.setattr(target, "why_not_lockstep", lambda _jobs, _peaks: "it cannot")
    replay(target, run_dir, [{"name": "one"}], schedule={"rounds": 2})
    entries = [entry for entry in Journal(run_dir).entries() if entry.told]
    assert {entry.kind for entry in entries} == {"traced", "untraced"} and not any(e.launch for e in entries)
    assert checks(run_dir)["journal"].status == "pass"
    edit(run_dir / str(entries[0].told), lambda told: told["iterations_ns"].__setitem__(0, 7))
    assert " 7 ns" in checks(run_dir)["journal"].found
    assert str(entries[0].told).startswith("one/rounds/")
