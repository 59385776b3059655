"""The shipped configs for Linux, run as the documents say."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from model_profiling.runner.features import host_features

CONFIGS = Path(__file__).resolve().parents[2] / "model_profiling" / "configs"


@pytest.mark.skipif(sys.platform != "linux", reason="these configs are for Linux")
@pytest.mark.parametrize("name", ["templates/linux_template.json", "examples/linux_toy_cnn.json"])
def test_a_linux_config_runs_from_the_folder_of_the_export(
    name: str, sme2prof, exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    artifact = exported("toy_cnn", "fp16")
    shutil.copytree(artifact.pte.parent, tmp_path / "out_toy_cnn" / "artifacts")
    done = sme2prof("run", CONFIGS / name, "--budget", 1)
    assert done.returncode == 0, done.tail(20)
    run_dir = tmp_path / "out_toy_cnn" / "runs" / "linux"
    wanted = json.loads((CONFIGS / name).read_text())
    manifest = json.loads((run_dir / "manifest.json").read_text())
    once = "sme2" not in host_features()
    assert {(row["experiment"], row["threads"]) for row in manifest["results"]} == {
        ("linux_baseline" if once else experiment["name"], threads)
        for experiment in wanted["experiments"]
        for threads in ([1, 2] if "examples" in name else [1])
    }
    assert ("measured once" in done.stdout) is once
    assert (run_dir / "report.md").read_text().startswith("# toy_cnn (XNNPACK, fp16) on Linux")
    checked = sme2prof("validate", run_dir)
    assert checked.returncode == 0, checked.stdout
