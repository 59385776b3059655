"""What else may stand where a run's files have a number or a text: every reader takes it or says in one line
what is wrong, and where."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import pytest
from recorded_runs import ARM, SME2, edit

from model_profiling.core.errors import ProfilingError, RunError
from model_profiling.run.evidence import read_evidence
from model_profiling.run.journal import Journal
from model_profiling.run.manifest import read_manifest
from model_profiling.run.metrics import read_metrics, read_robust_stats
from model_profiling.runner.result import read_result

Place = tuple[str | int, ...]
ODD = (
    "1" + "0" * 400, "1" + "0" * 5000, "1e999", "NaN", "-Infinity", "-1", "0", "1e300", '"x"', '"\\u0000"',
    '"\\ud800"', "true", "null", "[]", "{}", f'"{"x" * 5000}"', "[" * 500 + "]" * 500,
)  # fmt: skip
READERS: dict[str, Callable[[Path], object]] = {
    "manifest.json": lambda path: read_manifest(path.parent),
    "metrics.json": read_metrics,
    "journal.jsonl": lambda path: Journal(path.parent),
    "evidence.json": lambda path: read_evidence(path.parent),
    "robust_stats.json": read_robust_stats,
}


def places(content: object, at: Place = ()) -> Iterator[Place]:
    """Every place of a value; of a list the first entry stands for all."""
    yield at
    match content:
        case dict():
            for key, value in content.items():
                yield from places(value, (*at, key))
        case list():
            for value in content[:1]:
                yield from places(value, (*at, 0))


def replaced(text: str, at: Place, odd: str) -> str:
    """JSON with `odd`, whatever that is, at one place."""
    if not at:
        return odd
    content = json.loads(text)
    inner = content
    for step in at[:-1]:
        inner = inner[step]
    inner[at[-1]] = "@odd@"
    return json.dumps(content).replace('"@odd@"', odd)


@pytest.mark.parametrize("name", READERS)
def test_odd_values_at_each_place_of_a_record(tmp_path: Path, name: str) -> None:
    (found, *_) = [path for run in (SME2, ARM) for path in sorted(run.rglob(f"*{name}"))]
    text = found.read_text().splitlines()[0] if name.endswith("l") else found.read_text()
    odd, taken = cycle(ODD), 0
    for at in places(json.loads(text)):
        for _ in range(2):  # in turn: all at each place would take long
            value = next(odd)
            path = tmp_path / name
            path.write_text(f"{replaced(text, at, value)}\n")
            try:
                READERS[name](path)
                taken += 1
            except ProfilingError as problem:
                assert name in str(problem) and "unexpected" not in str(problem)
                assert "\n" not in str(problem) and problem.fix, (at, value)
    assert taken, "keys that no record names are not looked at"


def test_odd_values_in_what_a_runner_says(tmp_path: Path) -> None:
    whole = json.dumps({
        "schema_version": 1, "flags_present": ["sme2"], "flags_masked": [], "layout_verified": True,
        "executorch": "1.5", "iterations_ns": [1], "threads": 1, "warmup": 0, "load_ns": 1,
    })  # fmt: skip
    path = tmp_path / "runner.json"
    for at in places(json.loads(whole)):
        for odd in ODD:
            path.write_text(replaced(whole, at, odd))
            try:
                times = read_result(path).iterations_ns
                assert all(0 <= time < 1 << 62 for time in times)
            except RunError as problem:
                assert "runner.json" in str(problem) and problem.fix


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("metrics.json", lambda c: c["latencies"][0]["traced_ms"].update(median=0.0)),
        ("metrics.json", lambda c: c["latencies"][0]["end_to_end_ms"].update(minimum=-1.0)),
        ("metrics.json", lambda c: c["comparisons"][0]["speedup"].update(ratio=0.0)),
    ],
)
def test_times_that_no_clock_tells_are_named(sme2prof, tmp_path, name, change):
    run = Path(shutil.copytree(SME2, tmp_path / "run"))
    edit(run / name, change)
    for words in (("report", run), ("compare", run, run), ("analyze", run)):
        done = sme2prof(*words)
        assert done.returncode == 2 and "compute it again" in done.stderr and name in done.stderr
        assert "unexpected" not in done.stderr and len(done.stderr.splitlines()) == 1
