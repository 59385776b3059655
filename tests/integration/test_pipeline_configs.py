"""Every shipped config that this machine can run does run, as it is."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from conftest import ROOT

CONFIGS = ROOT / "model_profiling" / "configs"
HERE = "mac" if sys.platform == "darwin" else "linux"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob(f"*/{HERE}_*.json")), ids=lambda path: path.stem)
def test_a_shipped_config_runs(path: Path, exported, cli, tmp_path: Path) -> None:
    content = json.loads(path.read_text())
    stem = Path(content["model"]).stem
    name, _, dtype = stem.partition("_xnnpack_")
    made = exported(name, dtype)
    (tmp_path / content["model"]).parent.mkdir(parents=True)
    for source, ending in ((made.pte, ""), (made.etrecord, ".etrecord")):
        shutil.copy(source, tmp_path / f"{content['model']}{ending}")
    done = cli("run", path)
    assert done.ok, done.tail()
    manifest = json.loads((tmp_path / content["output_root"] / "manifest.json").read_text())
    assert manifest["state"] == "finished"
    names = {one["name"] for one in content["experiments"]}
    assert {result["experiment"] for result in manifest["results"]} == names
