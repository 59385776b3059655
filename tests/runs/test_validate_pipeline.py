"""`validate_pipeline.py`: a config, what it needs, and what came of it; and whether the runner is there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from recorded_runs import PROGRAM
from said import says

from model_profiling.core.errors import InputError, SetupError
from model_profiling.runner import build
from model_profiling.validation.validate import validate_pipeline


def write(folder: Path, **more: object) -> Path:
    experiment = {"name": "linux_sme2_on", "sme2": "on", "runs": 10, "warmup": 3, "threads": [1]}
    content = {"model": str(PROGRAM), "output_root": "run", "experiments": [experiment], **more}
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return path


def test_what_a_config_needs_is_looked_for(tmp_path: Path) -> None:
    found = validate_pipeline(write(tmp_path))
    assert found.ok, found.as_text()
    statuses = {check.name: check.status for check in found.checks}
    assert statuses.keys() == {"config", "model", "runners", "output directory", "results"}
    assert statuses["results"] == "skipped" and found.as_text().endswith("valid")


def test_what_is_missing_is_named_with_its_cure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    runner = {"name": "own_sme2_on", "runner_path": "executorch/cmake-out/x/executor_runner"}
    wrong = {"model": "nowhere.pte", "output_root": "file/run", "experiments": [runner]}
    found = validate_pipeline(write(tmp_path, **wrong))
    failed = {check.name: check for check in found.checks if check.status == "fail"}
    assert set(failed) == {"model", "runners", "output directory"}
    assert all(check.fix for check in failed.values())
    assert "model, runners, output directory" in found.as_text()


def test_a_config_that_is_none(tmp_path: Path) -> None:
    (check, *_) = validate_pipeline(write(tmp_path, experiment=[])).checks
    assert check.status == "fail" and "experiment " in check.found
    with pytest.raises(InputError, match=r"absent\.json"):
        validate_pipeline(tmp_path / "absent.json")


def test_results_are_validated_once_they_are_there(arm_home: Path, tmp_path: Path, capsys: object) -> None:
    del capsys
    run_dir = next(path.parent for path in sorted(arm_home.rglob("manifest.json")))
    found = validate_pipeline(write(tmp_path, output_root=str(run_dir)))
    assert found.ok, found.as_text()
    assert {"results: manifest", "results: closure"} <= {check.name for check in found.checks}


def test_the_script_answers_with_its_exit_code(script, tmp_path: Path) -> None:
    done = script("scripts/validate_pipeline.py", "--config", write(tmp_path, model="nowhere.pte"), "--json")
    assert done.returncode == 1 and json.loads(done.stdout)["ok"] is False
    absent = script("scripts/validate_pipeline.py", "--config", tmp_path / "absent.json")
    assert absent.returncode == 2
    says(absent.stderr, "error: ", "absent.json")


def test_the_runner_is_built_or_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = build.prospect()
    assert build.runner_check().status == "pass"
    broken = tmp_path / "sme2prof-runner"
    monkeypatch.setattr(build, "built_runner", lambda *_: (broken, "it is not there"))
    assert "not built yet" in build.runner_check().found
    broken.write_text("#!/bin/sh\necho 'a library is missing' >&2\nexit 127\n")
    broken.chmod(0o755)
    monkeypatch.setattr(build, "built_runner", lambda *_: (broken, None))
    check = build.runner_check()
    assert check.status == "fail" and "a library is missing" in check.found
    none = replace(found, compiler=None, sources=(), refused=("no g++",), fix="install one")
    monkeypatch.setattr(build, "prospect", lambda _platform: none)
    assert build.runner_check().fix == "install one"

    def no_sdk() -> None:
        raise SetupError("the wheel is not installed", "pip install it")

    monkeypatch.setattr(build, "installed_sdk", no_sdk)
    assert "the wheel is not installed" in build.runner_check().found
