"""What the analysis reads about the installed ExecuTorch is what its kernels do."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from model_profiling.program.matrix_work import PROBE, reach_in

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
from sme2_probe import probe


@pytest.mark.timeout(1800)  # two minutes on a machine that does nothing else
@pytest.mark.usefixtures("emulated")
def test_the_record_of_the_installed_release_is_what_a_new_probe_finds(tmp_path: Path) -> None:
    recorded = reach_in(importlib.metadata.version("executorch"))
    assert recorded is not None, f"there is none: {PROBE}"
    found = probe(tmp_path)
    before, now = ({(each.layer, each.format): each for each in one.layers} for one in (recorded, found))
    assert now == before, f"it changed: {PROBE}"
    assert found.executorch == recorded.executorch
