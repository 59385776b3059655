"""How does a sweep behave with many cells and workers that die? 1,000 simulated cells on 20 workers, of which
some are killed: every cell must end once, in one place, and the same tasks as bare Dask are the yardstick.

    python bench/sweep_scale.py [--cells 1000] [--workers 20] [--kills 20]

A simulated cell is the real task with one difference: in place of a measurement, a recorded run directory is
copied. Packing, sending, unpacking, `cells.json` and every decision are the real ones; analysis is left
out, because it is the same code as that of `sme2prof run`.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import distributed
import psutil

from model_profiling.config.sweep import SweepConfig, parse_sweep
from model_profiling.core import files
from model_profiling.sweep import dispatch, worker
from model_profiling.sweep.cells import SweepJob, jobs

DATA = Path(__file__).resolve().parents[1] / "tests" / "data" / "runs"
RECORDED, PROGRAM = DATA / "arm_without_sme2", DATA / "programs" / "small_cnn_xnnpack_int8.pte"
SECONDS = 0.05
"""What a simulated measurement takes."""


def simulated_job(job: SweepJob, program: bytes, home: tuple[Path, Path], versions: str) -> worker.TaskResult:
    del home, versions
    worker.unpack(program, Path(tempfile.mkdtemp()) / job.program.name)
    time.sleep(SECONDS)
    return worker.TaskResult(worker.pack(RECORDED, files.all_in(RECORDED)))


def bare(number: int) -> bytes:
    time.sleep(SECONDS)
    return number.to_bytes(8, "big")


def make_sweep(folder: Path, cells: int, workers: int) -> SweepConfig:
    models = [shutil.copyfile(PROGRAM, folder / f"m{number}.pte") for number in range(cells // workers)]
    raw = {"name": "scale", "models": list(map(str, models)), "rungs": ["on"]}
    return parse_sweep(raw | {"targets": [f"ssh:w{at}" for at in range(workers)]}, folder=folder)


def kill_workers(count: int, stop: threading.Event, came_home: Counter[Path], killed: list[int]) -> None:
    """At random moments, once the first run has come home."""
    chance = random.Random(1)
    while len(killed) < count and not stop.wait(chance.uniform(0.2, 1.0)):
        alive = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
        workers = [child for child in alive if "spawn_main" in " ".join(child.cmdline())]
        if workers and came_home:
            victim = chance.choice(workers)
            victim.kill()
            killed.append(victim.pid)


def sweep_once(folder: Path, cells: int, workers: int, kills: int) -> dict[str, object]:
    """Run the sweep; raise if a cell is lost, ends twice or in another place."""
    came_home: Counter[Path] = Counter()
    killed: list[int] = []
    dispatch.worker.measure_job = simulated_job
    dispatch.parse_config = lambda _settings, folder: folder
    dispatch.run_config = lambda run_dir, _options: came_home.update([run_dir])
    sweep, stop, began = make_sweep(folder, cells, workers), threading.Event(), time.monotonic()
    killer = threading.Thread(target=kill_workers, args=(kills, stop, came_home, killed))
    killer.start()
    try:
        ended = dispatch.run_sweep(sweep, dispatch.SweepOptions(folder / f"out{kills}"))
    finally:
        stop.set()
        killer.join()
    seconds = time.monotonic() - began
    expected = {ended.run_dir(job) for job in jobs(sweep)}
    assert ended.record.counts() == {"done": len(expected)}, ended.record.counts()
    assert came_home == Counter(expected), "a run was lost, or came home twice"
    found = {path.parent for path in ended.path.glob("runs/*/*/manifest.json")}
    assert found == expected and not list(ended.path.glob("**/*.part"))
    return {"cells": len(expected), "workers": workers, "kills": len(killed), "seconds": round(seconds, 1)}


def bare_once(cells: int, workers: int) -> float:
    """The same number of tasks that take as long, on the same workers, with nothing around them."""
    settings = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None, "memory_limit": 0}
    began = time.monotonic()
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster) as client:
        assert len(client.gather(client.map(bare, range(cells), pure=False))) == cells
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, value in (("cells", 1000), ("workers", 20), ("kills", 20)):
        parser.add_argument(f"--{name}", type=int, default=value)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        calm = sweep_once(Path(folder), asked.cells, asked.workers, 0)
        rough = sweep_once(Path(folder), asked.cells, asked.workers, asked.kills)
    plain = bare_once(asked.cells, asked.workers)
    overhead = 1e3 * (float(str(calm["seconds"])) - plain) / asked.cells
    facts = {"calm": calm, "with kills": rough, "bare_dask_seconds": round(plain, 1)}
    print(json.dumps({**facts, "overhead_ms_per_cell": round(overhead, 1)}))


if __name__ == "__main__":
    main()
