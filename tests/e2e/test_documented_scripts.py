"""The documented smoke test, the pipeline scripts and the shipped configs, run as the documents say."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from model_profiling.runner.features import host_features

CONFIGS = Path(__file__).resolve().parents[2] / "model_profiling" / "configs"


def test_the_pipeline_script_of_this_system_runs_and_the_other_refuses(
    script, exported, tmp_path: Path
) -> None:
    config = {
        "model": str(exported("toy_cnn", "fp32").pte),
        "output_root": str(tmp_path / "run"),
        "experiments": [
            {"name": f"x_sme2_{s}", "sme2": s, "num_runs": 2, "num_threads": 1} for s in ("on", "off")
        ],
        "schedule": {"rounds": 2, "budget_s": 1},
    }
    (tmp_path / "c.json").write_text(json.dumps(config))
    here, other = ("mac", "linux") if sys.platform == "darwin" else ("linux", "mac")
    done = script(f"scripts/{here}_pipeline.py", "--config", tmp_path / "c.json")
    assert done.ok, done.tail()
    assert (tmp_path / "run" / "manifest.json").is_file()
    refused = script(f"scripts/{other}_pipeline.py", "--config", tmp_path / "c.json")
    assert refused.returncode == 2 and f"use {here}_pipeline.py" in refused.stderr
    again = script(f"scripts/{here}_pipeline.py", "--config", tmp_path / "c.json", "--analysis-only")
    assert again.ok, again.tail()


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
