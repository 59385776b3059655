"""A sweep on the Dask cluster that it starts itself: what breaks costs its own cells, and nobody else's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from recorded_runs import INT8
from said import refused

from model_profiling.config.sweep import SweepConfig, load_sweep
from model_profiling.core.errors import InputError, SetupError
from model_profiling.core.stdio import Progress, watching
from model_profiling.runs import Run
from model_profiling.store.labels import Labels
from model_profiling.store.store import Store
from model_profiling.sweep import worker
from model_profiling.sweep.cells import WORK
from model_profiling.sweep.dispatch import SweepOptions, run_sweep
from model_profiling.validation.validate import validate

dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
pytestmark = [pytest.mark.usefixtures("own_state")]


def written(folder: Path, *models: str, **changed: object) -> SweepConfig:
    """As short as can be: one experiment of one inference."""
    short = {"rungs": ["on"], "runs": 1, "warmup": 0, "schedule": {"rounds": 2}}
    (folder / "s.json").write_text(json.dumps({"name": "s", "models": models, **short, **changed}))
    return load_sweep(folder / "s.json")


def copies(folder: Path, *names: str) -> list[str]:
    return [str(shutil.copyfile(INT8, folder / f"{name}.pte")) for name in names]


@dataclass
class Watching(Progress):
    """Does `harm` once, when it is due."""

    due: Callable[[], object]
    harm: Callable[[], object]
    stages: list[str] = field(default_factory=list)

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def advance(self, done: int, total: int, text: str = "") -> None:
        del done, total, text
        if self.due():
            self.due = lambda: False
            self.harm()


@pytest.mark.quick
def test_a_worker_that_dies_is_replaced_and_its_job_done_again(tmp_path: Path) -> None:
    """Runs are in the store under the sweep's name, their files name their place at home, and nothing else is
    left."""
    outdir, store = tmp_path / "out", Store.open(str(tmp_path / "store"), make=True)

    def workers() -> list[psutil.Process]:
        alive = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
        return [child for child in alive if "spawn_main" in " ".join(child.cmdline())]

    harm = Watching(
        lambda: list(outdir.glob(f"{WORK}/**/run/journal.jsonl")),
        lambda: [child.kill() for child in workers()],
    )
    sweep = written(tmp_path, *copies(tmp_path, "one", "two"))
    with watching(harm):
        folder = run_sweep(sweep, SweepOptions(outdir, store=store))
    assert not harm.due(), "nothing was killed"
    assert folder.record.counts() == {"done": 2}, folder.record.cells
    for name in ("one", "two"):
        run_dir = outdir / "runs" / name / "host"
        assert validate(run_dir).ok
        manifest = Run.open(run_dir).manifest
        assert manifest is not None and manifest.state == "finished" and len(manifest.sessions) == 1
        assert Path(manifest.model) == tmp_path / f"{name}.pte"
        assert manifest.settings["output_root"] == str(run_dir)
        assert (run_dir / "report.html").is_file() and "task-" not in (run_dir / "report.md").read_text()
    assert sorted(path.name for path in outdir.iterdir()) == ["cells.json", "runs", "sweep.json"]
    assert not workers()
    added = store.add([outdir / "runs"], labels=Labels(sweep="s"))
    assert len(added.runs) == 2 and not added.new, "they are there already"


def test_what_a_model_breaks_costs_its_own_cells(tmp_path: Path) -> None:
    """One ends the process that exports it; the next one cannot be exported."""
    (tmp_path / "own.py").write_text(
        "import os\ndef ends(): os._exit(3)\ndef fails(): raise OSError('no data')\n"
    )
    models = [*copies(tmp_path, "good"), f"{tmp_path}/own.py:ends", f"{tmp_path}/own.py:fails"]
    sweep = written(tmp_path, *models)
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        folder = run_sweep(sweep, SweepOptions(tmp_path / "out"))
    assert folder.record.counts() == {"done": 1, "failed": 2}
    reasons = {record.cell.program.name: record.reason for record in folder.record.cells}
    assert reasons["good"] == "" and "no data" in reasons["own_fails_xnnpack_fp32"]
    assert "ended in the middle" in reasons["own_ends_xnnpack_fp32"]


@pytest.mark.quick
def test_a_worker_of_another_version_is_refused_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "own_versions", lambda: "sme2prof 0.1 with ExecuTorch 1.0")
    folder = run_sweep(written(tmp_path, *copies(tmp_path, "one")), SweepOptions(tmp_path / "out"))
    (record,) = folder.record.cells
    assert record.state == "failed" and "but the sweep runs sme2prof 0.1" in record.reason
    assert record.fix == "install the same versions on both"


def test_host_is_the_only_machine_that_offers_itself(tmp_path: Path) -> None:
    """And a sweep that cannot begin moves no earlier one aside."""
    sweep, outdir = written(tmp_path, *copies(tmp_path, "one")), tmp_path / "out"
    outdir.mkdir()
    (outdir / "cells.json").write_text(
        '{"schema_version": 1, "name": "s", "began": "2026-11-18T01:00:00+0000"}'
    )
    with refused(SetupError, "127.0.0.1:1"):
        run_sweep(sweep, SweepOptions(outdir, "127.0.0.1:1"))
    assert [path.name for path in tmp_path.glob("out*")] == ["out"]
    options = {"resources": {"host": 1}, "host": "127.0.0.1"}
    workers = {name: {"cls": distributed.Worker, "options": options} for name in ("a", "b")}
    scheduler = {"cls": distributed.Scheduler, "options": {"host": "127.0.0.1", "port": 0, **worker.NO_PAGE}}
    with (
        distributed.SpecCluster(workers=workers, scheduler=scheduler, silence_logs=False) as cluster,
        refused(InputError, "several machines offer host", fix="ssh:HOST"),
    ):
        run_sweep(sweep, SweepOptions(outdir, cluster.scheduler_address))


def test_with_a_scheduler_models_are_exported_here_and_a_device_that_nobody_offers_fails(
    tmp_path: Path,
) -> None:
    sweep = written(tmp_path, "toy_cnn", targets=["host", "ssh:away"])
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        options = {"resources": {"host": 1}, "host": "127.0.0.1", "nthreads": 1}
        workers = {"a": {"cls": distributed.Nanny, "options": options}}
        scheduler = {"cls": distributed.Scheduler, "options": {"host": "127.0.0.1", **worker.NO_PAGE}}
        with distributed.SpecCluster(workers=workers, scheduler=scheduler, silence_logs=False) as cluster:
            folder = run_sweep(sweep, SweepOptions(tmp_path / "out", cluster.scheduler_address))
    here, away = folder.record.cells
    assert here.state == "done" and (folder.artifacts / "toy_cnn_xnnpack_fp32.pte").is_file(), here
    assert away.state == "failed" and away.reason == "no worker offers ssh:away"
    assert "worker --scheduler tcp://127.0.0.1" in away.fix and "--target ssh:away" in away.fix


def test_a_run_that_came_home_just_before_a_kill_is_not_measured_again(tmp_path: Path) -> None:
    sweep, outdir = written(tmp_path, *copies(tmp_path, "one")), tmp_path / "out"
    run_sweep(sweep, SweepOptions(outdir))
    run_dir, cells = outdir / "runs" / "one" / "host", outdir / "cells.json"
    before = (run_dir / "journal.jsonl").read_bytes()
    cells.write_text(cells.read_text().replace('"done"', '"waiting"'))
    (run_dir / "report.html").unlink()
    assert run_sweep(sweep, SweepOptions(outdir, resume=True)).record.counts() == {"done": 1}
    assert (run_dir / "journal.jsonl").read_bytes() == before and (run_dir / "report.html").is_file()
