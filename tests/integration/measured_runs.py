"""Real run directories for the tests of report, compare and validate: measured once, copied by each test."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import missing

from model_profiling.config.reading import parse_config
from model_profiling.errors import SetupError
from model_profiling.targets.emulated import EmulatedTarget
from model_profiling.workflow.measure import run_config

Json = dict[str, Any]
Pairs = Sequence[tuple[Json, Json, str]]
ROUNDS, RUNS = 6, 5


def pristine(factory: pytest.TempPathFactory, exported: Callable[..., Any]) -> Path:
    """`out/` with `artifacts` and `runs/linux`; where QEMU can be had, also `runs/emulated`."""
    base = factory.getbasetemp()
    # Test workers have folders of their own inside one of the session.
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    home = shared / "measured" / "out"
    home.mkdir(parents=True, exist_ok=True)
    with (shared / "measured" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "done").exists():
            _measure(home, exported("toy_cnn", "fp32"))
            (home / "done").touch()
    return home


def _measure(home: Path, artifact: Any) -> None:
    artifacts = home / "artifacts"
    artifacts.mkdir(exist_ok=True)
    pte = artifacts / artifact.pte.name
    for path in (artifact.pte, artifact.etrecord):
        shutil.copy(path, artifacts / path.name)
    run_program(
        pte,
        home / "runs" / "linux",
        "host",
        [{"name": f"x_sme2_{switch}", "sme2": switch, "threads": [1, 2]} for switch in ("on", "off")],
        pairs=[
            ({"experiment": "x_sme2_off", "threads": 1}, {"experiment": "x_sme2_on", "threads": 1}, "SME2"),
            ({"experiment": "x_sme2_on", "threads": 1}, {"experiment": "x_sme2_on", "threads": 2}, "threads"),
        ],
    )
    if sys.platform == "linux":
        try:
            EmulatedTarget().prepare()
        except SetupError:
            return
        run_program(
            pte,
            home / "runs" / "emulated",
            "emulated",
            [
                {"name": f"e_sme2_{switch}", "sme2": switch, "runs": 1, "warmup": 0}
                for switch in ("on", "off")
            ],
        )


def run_program(pte: Path, run_dir: Path, target: str, experiments: list[Json], pairs: Pairs = ()) -> None:
    raw = {
        "model": str(pte),
        "output_root": str(run_dir),
        "target": {"name": target},
        "experiments": [{"runs": RUNS, "warmup": 1, **one} for one in experiments],
        "schedule": {"rounds": ROUNDS, "seed": 3},
        "analysis": {
            "compare_pairs": [{"baseline": a, "candidate": b, "label": label} for a, b, label in pairs]
        },
    }
    config, problems = parse_config(raw, folder=pte.parent)
    assert config is not None and not problems, problems
    outcome = run_config(config)
    assert not outcome.failed, outcome.failed


def copied(home: Path, tmp_path: Path, *, emulated: bool = True) -> Path:
    """A copy to spoil; its manifests name the copied program."""
    if emulated and not (home / "runs" / "emulated").exists():
        missing("QEMU with SME2")
    out = tmp_path / "out"
    shutil.copytree(home, out)
    for manifest in out.glob("runs/*/manifest.json"):
        manifest.write_text(manifest.read_text().replace(str(home), str(out)))
    if not emulated:
        shutil.rmtree(out / "runs" / "emulated", ignore_errors=True)
    return out


def load(path: Path) -> Json:
    content = json.loads(path.read_text())
    assert isinstance(content, dict)
    return content


def edit(path: Path, change: Callable[[Json], object]) -> None:
    """Change a JSON file in place."""
    content = load(path)
    change(content)
    path.write_text(json.dumps(content))
