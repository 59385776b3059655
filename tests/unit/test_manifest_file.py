"""The one reader of manifest.json: what it takes, what it refuses, and how little it loads."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from model_profiling.workflow.manifest_file import read_manifest_file

from model_profiling import process
from model_profiling.errors import FormatError

ROOT = Path(__file__).resolve().parents[2]


def written(run_dir: Path, **content: object) -> Path:
    (run_dir / "manifest.json").write_text(json.dumps({"schema_version": 1, "results": [], **content}))
    return run_dir


def test_what_a_manifest_says_is_typed_and_what_it_omits_is_empty(tmp_path: Path) -> None:
    assert read_manifest_file(tmp_path) is None
    results = [
        {
            "experiment": "a",
            "sme2": "off",
            "etdump_rounds": ["x"],
            "outputs": [{"file": "o", "shape": [1, 2]}],
        },
        {"experiment": "b", "disable": ["sme2"], "threads": None, "a key of a newer kit": {}},
    ]
    machine = {"before": {"load_average": 1, "features": ["fp16"]}, "after": None}
    manifest = read_manifest_file(written(tmp_path, results=results, machine=machine))
    assert manifest is not None
    first, second = manifest.results
    assert (first.sme2, first.dumps, first.outputs[0].shape) == (False, ("x",), (1, 2))
    assert (second.sme2, second.sme2_left_on, second.threads) == (None, False, None)
    assert manifest.machine.before is not None and manifest.machine.before.load_average == 1.0
    assert manifest.times_are_latencies and manifest.evidence is None


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"schema_version": 2}, "schema_version: should be 1, not 2"),
        ({"schema_version": True}, "schema_version"),
        ({"results": {}}, "results: should be a list"),
        ({"results": [{"threads": "many"}]}, "results.0.threads: should be a whole number"),
        ({"results": [{"threads": True}]}, "results.0.threads"),
        ({"results": [{"sme2": "maybe"}]}, "results.0.sme2: should be true or false"),
        ({"results": [{"outputs": [{}]}]}, "results.0.outputs.0.file: is missing"),
        ({"target": {"timings_are_latency": "no"}}, "target.timings_are_latency: should be true or false"),
        ({"machine": {"before": {"versions": {"a": 1}}}}, "machine.before.versions.a: should be text"),
        ({"model": None}, "model: should be text"),
    ],
)
def test_a_field_that_does_not_fit_is_named(tmp_path: Path, content: dict[str, object], place: str) -> None:
    with pytest.raises(FormatError) as problem:
        read_manifest_file(written(tmp_path, **content))
    assert f"manifest.json: {place}" in problem.value.problem
    assert "remove" not in problem.value.fix, "without a manifest emulated times would pass for latencies"


@pytest.mark.parametrize("text", ["{", "[]", "7", "", "[" * 100_000])
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(FormatError, match=r"manifest\.json is not"):
        read_manifest_file(tmp_path)


def test_analysing_loads_nothing_heavy() -> None:
    code = "import sys, model_profiling.cli.analyze; print(*{name.split('.')[0] for name in sys.modules})"
    done = process.run([sys.executable, "-c", code], timeout=60, cwd=ROOT)
    assert done.ok, done.stderr
    assert not {"pydantic", "pandas", "scipy", "torch", "rich"} & set(done.stdout.split())
