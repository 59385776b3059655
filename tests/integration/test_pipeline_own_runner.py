"""Configs that name two runner binaries, as older ones do: timed, and honest about what they cannot show."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from model_profiling.core import process
from model_profiling.runner.build import _flags, installed_sdk, places
from model_profiling.runner.compilers import find_compiler
from model_profiling.runner.features import host_features

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="the stand-in names the Linux library")
SOURCE = Path(__file__).with_name("standin_executor_runner.cpp")


@pytest.fixture(scope="module")
def runners(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("cmake-out")
    # As ExecuTorch 1.0 has it: it tells the sum of its executions, and each in its dump alone.
    name = "executor_runner_1_0"
    made = {switch: folder / f"linux-arm64-sme2-{switch}" / name for switch in ("on", "off")}
    for path in made.values():
        path.parent.mkdir()
    compiling, linking = _flags(installed_sdk())
    words = [
        *find_compiler().command,
        *compiling,
        *places(installed_sdk()),
        "-O0",
        SOURCE,
        "-o",
        made["on"],
        *linking,
    ]
    built = process.run(words, timeout=200)
    assert built.ok, built.tail()
    shutil.copy(made["on"], made["off"])
    return made


def test_two_binaries_are_timed_and_traced(runners: dict[str, Path], exported, cli, tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "model": str(exported("toy_cnn", "fp32").pte),
        "output_root": str(tmp_path / "run"),
        "target": {"name": "host"},
        "experiments": [
            # Numbers in quotes and this name of the runner's path are the earlier kit's.
            {
                "name": f"x_sme2_{switch}",
                "quiet_runner": str(path),
                "runs": "3",
                "warmup": 2,
                "threads": ["1"],
            }
            for switch, path in runners.items()
        ],
        "schedule": {"rounds": 3, "budget_s": 60},
    }
    (tmp_path / "c.json").write_text(json.dumps(config))
    done = cli("run", "c.json")
    assert done.ok, done.tail()
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert [(one["sme2"], one["disable"], one["etdump_warmup_runs"]) for one in manifest["results"]] == [
        ("on", [], 2),
        ("off", [], 2),
    ]
    told = {remark["code"] for remark in manifest["warnings"]}
    assert {"tracer_on", "quiet_runner", "quoted_number"} <= told
    assert "is taken for runner_path" in done.stderr
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert [one["end_to_end_ms"]["count"] for one in metrics["latencies"]] == [9, 9]
    assert metrics["parity"][0]["parity"] is None
    assert "keeps no outputs" in metrics["parity"][0]["reason"]
    if "sme2" not in host_features():
        assert "has no SME2" in metrics["comparisons"][0]["speedup"]["reason"]
    # Its dump holds the warm-up too; the analysis leaves it out.
    summary = json.loads((tmp_path / "run" / "analysis_summary.json").read_text())
    assert [one["runs"] for one in summary["per_etdump"]] == [3, 3]
    # Without a count of kernel calls, only the operators' own names say which path ran.
    kernels = (tmp_path / "run" / "kernel_view.md").read_text()
    assert "Fully Connected" in kernels
