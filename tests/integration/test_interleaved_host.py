"""Two programs on this machine, each a run of its own: launches interleaved, on a core kept for them."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

from model_profiling.config.reading import ProfileConfig, parse_config
from model_profiling.pipeline.metrics import conclude
from model_profiling.pipeline.open_run import ReadyTarget, open_run
from model_profiling.run.journal import Entry, Journal
from model_profiling.sweep.device_queue import Interleaved
from model_profiling.targets.host import HostTarget
from model_profiling.targets.machine_lock import keep_off, measuring_alone

QUIET = sorted(os.sched_getaffinity(0))[-1:] if sys.platform == "linux" else []
"""Nothing else is pinned."""


def config_of(model: Path, run_dir: Path, cores: list[int]) -> ProfileConfig:
    raw: dict[str, Any] = {
        "model": str(model),
        "output_root": str(run_dir),
        "target": {"name": "host"},
        "experiments": [{"name": "only", "runs": 3, "warmup": 1, "cpu_affinity": cores}],
        "schedule": {"rounds": 3, "seed": 5, "budget_s": 1},
    }
    config, problems = parse_config(raw, folder=run_dir.parent)
    assert config is not None and not problems, problems
    return config


def launched(run_dir: Path) -> list[Entry]:
    return [entry for entry in Journal(run_dir).entries() if entry.launch]


def test_launches_of_two_runs_alternate_on_a_quiet_core(exported, tmp_path: Path) -> None:
    programs = {dtype: exported("toy_cnn", dtype).pte for dtype in ("fp32", "int8")}
    order, pieces = Interleaved(1), []

    def measure() -> None:
        """In a thread of its own: that is what is kept off the core."""
        keep_off(QUIET)
        with ReadyTarget(HostTarget()) as ready:
            runs = {
                dtype: open_run(config_of(program, tmp_path / dtype, QUIET), ready)
                for dtype, program in programs.items()
            }
            order.join(runs)
            while name := order.next():
                with measuring_alone("measures", QUIET):
                    piece = runs[name].step()
                assert piece is not None and piece.seconds > 0
                pieces.append((name, piece.what, len(launched(tmp_path / name))))
                order.visited(name, runs[name].left())
            for run in runs.values():
                found = conclude(run.finish())
                assert found.manifest.state == "finished" and found.metrics.latencies
                run.close()

    thread = threading.Thread(target=measure)
    thread.start()
    thread.join(120)
    assert [what for _, what, _ in pieces] == ["only, 1 thread"] * 2 + [
        f"launch {number}" for number in (1, 1, 2, 2, 3, 3)
    ]
    assert all({a[0], b[0]} == {"fp32", "int8"} for a, b in zip(pieces[::2], pieces[1::2], strict=True))
    assert [kept for _, what, kept in pieces if what == "launch 2"] == [4, 4], "untraced and traced, on disk"
    for dtype in ("fp32", "int8"):
        seen = {cpu for entry in launched(tmp_path / dtype) for cpu in entry.turns_cpu}
        assert seen == set(QUIET) or not QUIET
