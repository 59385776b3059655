"""`sme2prof clean` removes runs that hold nothing but the kit's files: what the kit writes must be known."""

from __future__ import annotations

from pathlib import Path

from model_profiling.run.folders import strangers
from model_profiling.run.manifest import read_manifest


def test_every_file_of_a_run_is_known_to_be_the_kits(arm_home: Path) -> None:
    runs = [path.parent for path in arm_home.rglob("manifest.json")]
    assert len(runs) == 2
    for run_dir in runs:
        manifest = read_manifest(run_dir)
        assert manifest is not None and list(strangers(run_dir, manifest)) == []
