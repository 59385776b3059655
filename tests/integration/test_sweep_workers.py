"""A sweep whose workers are not as they should be: busy, of another version, or lying."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from conftest import ROOT, Artifact

from model_profiling.config.reading import ProfileConfig, checked_config
from model_profiling.config.sweep import SweepConfig, load_sweep
from model_profiling.core import files
from model_profiling.core.errors import InputError, SetupError
from model_profiling.pipeline import open_run
from model_profiling.pipeline.open_run import RemainingWork
from model_profiling.run import Run
from model_profiling.store.store import Store
from model_profiling.sweep import device_server, exporting
from model_profiling.sweep.cells import Job, Program, jobs
from model_profiling.sweep.cluster import workers_for
from model_profiling.sweep.device_server import DeviceServer
from model_profiling.sweep.engine import SweepOptions, run_sweep
from model_profiling.sweep.folder import open_sweep
from model_profiling.sweep.messages import (
    EXPORTS,
    ExportAsk,
    Failed,
    Hashes,
    Lacking,
    Offer,
    SentFiles,
    Versions,
    VisitAsk,
    Visited,
)
from model_profiling.sweep.worker import parse_scheduler, worker_settings
from model_profiling.targets.machine_lock import holders

distributed = pytest.importorskip("distributed")
HERE = "host@here"


@contextlib.contextmanager
def served_by(*servers: DeviceServer) -> Iterator[str]:
    """A scheduler on loopback with a worker for each server, all in this process."""
    silent = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": "127.0.0.1:0"}
    made = {"cls": distributed.Scheduler, "options": {**silent, "port": 0}}
    workers = {}
    for server in servers:
        options = {**worker_settings(server), "host": "127.0.0.1"}
        options["local_directory"] = str(server.folder / "dask")
        workers[options.pop("name")] = {"cls": distributed.Worker, "options": options}
    try:
        with distributed.SpecCluster(workers=workers, scheduler=made, silence_logs=False) as own:
            yield own.scheduler_address
    finally:
        for server in servers:
            server.close()


def made_sweep(folder: Path, *models: Path) -> SweepConfig:
    asked = {
        "name": "small",
        "models": [str(model) for model in models],
        "rungs": ["on"],
        "targets": [HERE],
        "runs": 1,
        "warmup": 0,
        "schedule": {"mode": "rounds", "rounds": 2},
    }
    (folder / "sweep.json").write_text(json.dumps(asked))
    return load_sweep(folder / "sweep.json")


@dataclass
class Heard:
    stages: list[str] = field(default_factory=list)

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def advance(self, done: int, total: int, text: str = "", left_s: float | None = None) -> None:
        del done, total, text, left_s


class Liar(DeviceServer):
    """Measures what is called `good`, once the device is free; of other programs it says something else."""

    busy = 2

    def visit(self, ask: VisitAsk) -> Visited | Lacking | Failed:
        name = ask.job.program.name
        if name != "good":
            return self.lie(name)
        if self.busy:
            type(self).busy -= 1
            return Failed(self.name, "it is in use", "wait", in_use=True)
        return super().visit(ask)

    def lie(self, name: str) -> Visited | Lacking | Failed:
        evil, sha256 = b"evil", hashlib.sha256(b"evil").hexdigest()
        answers: dict[str, object] = {
            "forged": self.visited({"journal.jsonl": "0" * 64}, {"journal.jsonl": evil}),
            "missing": self.visited({"journal.jsonl": sha256}, {}),
            "insatiable": Lacking(self.address, {}, {}),
            "nonsense": "done",
        }
        return answers[name]

    def visited(self, listing: dict[str, str], contents: dict[str, bytes]) -> Visited:
        return Visited(self.name, SentFiles(listing, contents), over=True, left=RemainingWork())


def test_a_worker_that_lies_costs_its_own_cells(exported: Callable[..., Artifact], tmp_path: Path) -> None:
    lies = ("forged", "missing", "insatiable", "nonsense")
    models = [tmp_path / f"{name}.pte" for name in (*lies, "good")]
    for model in models:
        shutil.copyfile(exported("toy_cnn").pte, model)
    outdir, heard = tmp_path / "a" / "b" / "out", Heard()
    store = Store.open(tmp_path / "store", make=True)
    sweep = made_sweep(tmp_path, *models)
    with open_sweep(outdir, sweep):  # the disk was full when the first files of this one came
        torn = files.make_folder(outdir / "runs" / "good" / "host-here" / "linux_baseline") / "torn"
        torn.write_text("")
    with served_by(Liar("liar", tmp_path / "worker", (HERE,), exports=False)) as address:
        options = SweepOptions(outdir, parse_scheduler(address), store=store, resume=True)
        outcome = run_sweep(sweep, options, heard)
    found = {each.cell.program.name: each for each in outcome.record.cells}
    assert found.pop("good").state == "done" and not torn.exists()
    assert f"waiting for {HERE}: it is in use; wait" in heard.stages
    reasons = {name: each.reason for name, each in found.items()}
    assert all(each.state == "failed" for each in found.values()), found
    assert all("was damaged on the way" in reasons[name] for name in ("forged", "missing"))
    assert "again and again" in reasons["insatiable"] and "another answer" in reasons["nonsense"]
    (stored,) = store.rows("SELECT run_dir FROM runs")
    assert Path(stored["run_dir"]) == outdir / "runs" / "good" / "host-here"
    manifest = Run.open(outdir / "runs" / "good" / "host-here").manifest
    assert manifest is not None and [each.end for each in manifest.sessions] == ["done"]


def asked_of(server: DeviceServer, job: Job) -> VisitAsk:
    """The first visit of a job, with its program sent."""
    model = Path(job.program.model)
    program = {model.name: files.sha256(model)}
    ask = VisitAsk("s1", job, HERE, model.name, program, {}, server.versions, 5.0)
    lacking = server.visit(ask)
    assert isinstance(lacking, Lacking) and not lacking.program
    server.put(ask, SentFiles.of(model.parent, program, {}), SentFiles())
    return ask


def session_of(server: DeviceServer, ask: VisitAsk) -> tuple[str, str | None]:
    manifest = Run.open(server.folder / "sweeps" / ask.sweep / ask.job.run_dir).manifest
    assert manifest is not None
    return manifest.sessions[-1].end, manifest.sessions[-1].problem


def test_all_runs_on_a_device_say_why_it_was_given_up_or_let_go(exported, tmp_path, monkeypatch) -> None:
    server = DeviceServer("one", tmp_path / "worker", (HERE,), exports=False)
    models = [tmp_path / f"{name}.pte" for name in ("first", "second")]
    for model in models:
        shutil.copyfile(exported("toy_cnn").pte, model)
    asks = [asked_of(server, job) for job in jobs(made_sweep(tmp_path, *models))]
    assert len(asks) == 2
    for ask in asks:
        assert isinstance(server.visit(ask), Visited)
        assert session_of(server, ask) == ("running", None)
    opened = open_run.OpenRun.step

    def lost(_run: open_run.OpenRun) -> None:
        raise SetupError("the device is gone", "connect it")

    monkeypatch.setattr(open_run.OpenRun, "step", lost)
    run = server.folder / "sweeps/s1" / asks[0].job.run_dir
    failed = server.visit(replace(asks[0], run=Hashes().listing(run)))
    assert isinstance(failed, Failed) and failed.device_gone
    for ask in asks:
        assert session_of(server, ask) == ("SetupError", "the device is gone")

    monkeypatch.setattr(open_run.OpenRun, "step", opened)
    monkeypatch.setattr(device_server, "_IDLE_S", 0.1)
    found = server.visit(replace(asks[0], run=Hashes().listing(run)))
    assert isinstance(found, Visited) and not found.over
    until = time.monotonic() + 60
    while session_of(server, asks[0])[0] == "running" and time.monotonic() < until:
        time.sleep(0.05)
    assert session_of(server, asks[0]) == ("put aside", None)
    server.close()


@pytest.mark.usefixtures("own_state")
def test_a_sweep_and_a_run_wait_for_each_other(exported, host, tmp_path, monkeypatch) -> None:
    server, pte = DeviceServer("one", tmp_path / "worker", (HERE,), exports=False), exported("toy_cnn").pte
    (job,) = jobs(made_sweep(tmp_path, pte))
    ask, go_on, heard, step = asked_of(server, job), threading.Event(), Heard(), open_run.OpenRun.step
    raw: dict[str, object] = {"model": str(pte), "target": {"name": "host"}, "experiments": [{"name": "one"}]}

    def to(folder: str) -> ProfileConfig:
        return checked_config(raw | {"output_root": str(tmp_path / folder)}, folder=tmp_path)

    with ThreadPoolExecutor(1) as worker:
        with open_run.open_run(to("first"), host) as run:
            visit = worker.submit(server.visit, ask)
            run.step()
            assert holders() == (f"process {os.getpid()} measures {pte.stem}",) and not visit.done()
        assert isinstance(visit.result(timeout=60), Visited)

        def slow_step(run: open_run.OpenRun) -> object:
            assert go_on.wait(60)
            return step(run)

        monkeypatch.setattr(open_run.OpenRun, "step", slow_step)
        monkeypatch.setattr(heard, "stage", lambda text: "sme2prof sweep" in text and go_on.set())
        done = Hashes().listing(server.folder / "sweeps" / ask.sweep / job.run_dir)
        visit = worker.submit(server.visit, replace(ask, run=done))
        while not holders():
            time.sleep(0.05)
        with open_run.open_run(to("second"), host, progress=heard):
            assert isinstance(visit.result(timeout=60), Visited) and go_on.is_set()
    server.close()


@pytest.mark.usefixtures("own_state")
def test_a_sweep_says_whom_it_waits_for_and_can_be_interrupted(exported, tmp_path, monkeypatch) -> None:
    sweep, heard = made_sweep(tmp_path, exported("toy_cnn").pte), Heard()
    sweep = sweep.model_copy(update={"targets": ("host",)})
    hold = "from model_profiling.targets.machine_lock import measuring_alone as alone; import time\n"
    words = [sys.executable, "-c", hold + "with alone('measures toy_cnn'): print(flush=True); time.sleep(60)"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}

    def stage(text: str) -> None:
        if text == f"waiting: process {other.pid} measures toy_cnn":
            raise KeyboardInterrupt

    monkeypatch.setattr(heard, "stage", stage)
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=env) as other:
        assert other.stdout is not None and other.stdout.readline()
        with pytest.raises(KeyboardInterrupt):
            run_sweep(sweep, SweepOptions(tmp_path / "sweep"), heard)
        assert other.poll() is None, "it was not waited for"
        other.kill()


class Leaving(DeviceServer):
    """The only one that exports, and its worker goes away in the middle of it."""

    def export(self, ask: ExportAsk) -> Failed:
        worker = distributed.get_worker()
        worker.loop.add_callback(worker.close, executor_wait=False)
        time.sleep(2)
        return Failed(self.name, f"nobody hears of {ask.program.name}", "")


def test_what_the_last_exporting_worker_leaves_undone_is_exported_here(
    exported: Callable[..., Artifact], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Impatient(Heard):
        until = time.monotonic() + 60

        def advance(self, done: int, total: int, text: str = "", left_s: float | None = None) -> None:
            del done, total, text, left_s
            assert time.monotonic() < self.until, f"still {self.stages[-1]}"

    pte = exported("toy_cnn").pte

    def export(_self: exporting.Exporter, program: Program, folder: Path) -> Path:
        folder.mkdir(exist_ok=True)
        return Path(shutil.copyfile(pte, folder / f"{program.name}.pte"))

    monkeypatch.setattr(exporting.Exporter, "export", export)
    leaving = Leaving("leaving", tmp_path / "leaving")
    with served_by(leaving, DeviceServer("one", tmp_path / "worker", (HERE,), exports=False)) as address:
        options = SweepOptions(tmp_path / "out", parse_scheduler(address))
        outcome = run_sweep(made_sweep(tmp_path, Path("toy_cnn")), options, Impatient())
    assert outcome.record.counts() == {"done": 1}

    def full(_self: exporting.Exporter, _program: Program, _folder: Path) -> Path:
        raise OSError("no space left")

    monkeypatch.setattr(exporting.Exporter, "export", full)
    with served_by(DeviceServer("two", tmp_path / "two", (HERE,), exports=False)) as address:
        options = SweepOptions(tmp_path / "failed", parse_scheduler(address))
        outcome = run_sweep(made_sweep(tmp_path, Path("toy_cnn")), options, Impatient())
    assert outcome.record.counts() == {"failed": 1}, "an export that fails here is not tried for ever"
    assert "no space left" in outcome.record.cells[0].reason


def test_exports_run_beside_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there are cores and memory for, and Dask is told how many."""
    monkeypatch.setattr(exporting, "allowed_cpus", lambda: frozenset(range(16)))
    for gigabytes, count in ((64, 4), (9, 2), (1, 1)):
        monkeypatch.setattr(exporting, "available_memory", lambda held=gigabytes << 30: held)
        server = DeviceServer("one", tmp_path, (HERE,))
        assert (server.resources[EXPORTS], server.threads) == (count, count + 1)
    both = threading.Barrier(2, timeout=30)

    def export(_self: exporting.Exporter, program: Program, folder: Path) -> Path:
        both.wait()
        return folder / program.name

    monkeypatch.setattr(exporting.Exporter, "export", export)
    exporters = exporting.Exporters(2)
    with ThreadPoolExecutor(2) as pool:
        made = pool.map(lambda name: exporters.export(Program(name, name), tmp_path), ("a", "b"))
        assert [path.name for path in made] == ["a", "b"]


def test_another_version_is_named_and_refused(exported: Callable[..., Artifact], tmp_path: Path) -> None:
    old = DeviceServer("old", tmp_path / "worker", (HERE,), exports=False, versions=Versions("0.1", "1.0"))
    sweep = made_sweep(tmp_path, exported("toy_cnn").pte)
    with (
        served_by(old) as address,
        pytest.raises(InputError, match=r"worker old .*sme2prof 0\.1 .*ExecuTorch 1\.0"),
    ):
        run_sweep(sweep, SweepOptions(tmp_path / "out", parse_scheduler(address)))
    assert not (tmp_path / "out").exists()


def test_a_device_that_several_workers_reach_is_asked_for_at_one_of_them() -> None:
    ours, theirs = Versions("2", "1"), Versions("1", "1")
    offers = [
        Offer("tcp://a", "a", theirs, ("android:X", "emulated")),
        Offer("tcp://b", "b", ours, ("android:X", "emulated")),
        Offer("tcp://c", "c", ours, ("android:X", "emulated")),
    ]
    assert workers_for("android:X", offers, ours) == ("tcp://b",)
    assert workers_for("android:X", offers, ours, ("tcp://c",)) == ("tcp://c",)
    assert workers_for("android:X", offers[:2], ours, ("tcp://c",)) == ("tcp://b",)
    assert workers_for("android:X", offers[:1], ours) == ()
    assert workers_for("emulated", offers, ours) == ("tcp://b", "tcp://c")
