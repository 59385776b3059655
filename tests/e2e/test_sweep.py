"""A sweep on a real scheduler and real workers: host, emulation and two phones, of which things break."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import ROOT
from virtual_phone import AdbServer, VirtualPhone

from model_profiling import process
from model_profiling.config.sweep_reading import load_sweep
from model_profiling.run import Run
from model_profiling.sweep.addresses import parse_scheduler
from model_profiling.sweep.engine import SweepOptions, SweepOutcome, run_sweep
from model_profiling.targets.emulated import EmulatedTarget

distributed = pytest.importorskip("distributed")
QUIET_CORE = max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0


@contextlib.contextmanager
def scheduler() -> Iterator[str]:
    """A Dask scheduler on loopback, without a page for browsers."""
    made = {
        "cls": distributed.Scheduler,
        "options": {"host": "127.0.0.1", "port": 0, "dashboard": False, "dashboard_address": "127.0.0.1:0"},
    }
    with distributed.SpecCluster(scheduler=made, workers={}, silence_logs=False) as cluster:
        yield cluster.scheduler_address


@dataclass
class Workers:
    """`sme2prof worker` processes; all end with the test, also if that is killed."""

    address: str
    running: dict[str, process.Child] = field(default_factory=dict)

    def start(self, name: str, *words: object, **env: str) -> None:
        asked = ["worker", "--scheduler", self.address, "--name", name, *map(str, words)]
        self.running[name] = process.start(
            [sys.executable, "-m", "model_profiling", *asked], env={"PYTHONPATH": str(ROOT), **env}
        )

    def kill(self, name: str) -> None:
        """The worker dies at once; what it had started is ended by its own keeper."""
        child = self.running.pop(name)
        child.kill()
        process.end(child)

    def said(self, name: str) -> str:
        """The next line of a worker."""
        stream = self.running[name].stdout
        assert stream is not None
        return stream.readline().decode()

    def close(self) -> None:
        for child in self.running.values():
            child.terminate()
        for child in self.running.values():
            child.wait(timeout=60)
            process.end(child)


@pytest.fixture
def workers() -> Iterator[Workers]:
    with scheduler() as address:
        made = Workers(address)
        yield made
        made.close()


@dataclass
class Breaking:
    """Watches a sweep, and once `due` holds does the harm."""

    harms: list[tuple[Callable[[], bool], Callable[[], None]]]
    stages: list[str] = field(default_factory=list)

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def advance(self, done: int, total: int, text: str = "", left_s: float | None = None) -> None:
        del done, total, text, left_s
        for due, harm in list(self.harms):
            if due():
                self.harms.remove((due, harm))
                harm()


def steps(outdir: Path, place: str) -> Counter[str]:
    """How often each step of the runs on a device stands in their journals."""
    found: Counter[str] = Counter()
    for journal in (outdir / "runs").glob(f"*/{place}/journal.jsonl"):
        for line in journal.read_text().splitlines():
            entry = json.loads(line)
            what = (entry["kind"], str(entry["round"]), entry["experiment"], str(entry["threads"]))
            found["/".join((journal.parts[-3], *what))] += 1
    return found


def test_a_sweep_outlives_a_worker_and_a_phone(
    workers: Workers,
    arm_phones: Callable[..., VirtualPhone],
    adb: AdbServer,
    emulated: EmulatedTarget,
    tmp_path: Path,
) -> None:
    """2 models x 2 dtypes on the host (one core of it named as what measuring needs), emulated, and on two
    phones. The host's worker is killed in the middle of a launch and another takes over; one phone dies."""
    del emulated  # where it cannot be had, this test cannot be run
    phones = arm_phones("One"), arm_phones("Two")
    core = ("--quiet-cores", QUIET_CORE)
    on_host = ("--host", "--machine", "here", "--no-exports", *core)
    workers.start("host", *on_host)
    workers.start("emulating", "--emulated", *core)
    devices = [word for phone in phones for word in ("--device", f"android:{phone.serial}")]
    workers.start("phones", *devices, "--no-exports", *core, **adb.environment)
    (tmp_path / "sweep.json").write_text(
        json.dumps(
            {
                "name": "small",
                "models": ["linear", "conv1d"],
                "dtypes": ["fp32", "fp16"],
                "rungs": ["on"],
                "targets": ["host@here", "emulated", *(f"android:{phone.serial}" for phone in phones)],
                "runs": 1,
                "warmup": 0,
                "schedule": {"mode": "rounds", "rounds": 2},
            }
        )
    )
    outdir = tmp_path / "out"
    kept: dict[str, int] = {}

    def kill_worker() -> None:
        kept.update(steps(outdir, "host-here"))
        workers.kill("host")
        workers.start("host-2", *on_host)

    place = f"android-{phones[1].serial.replace(':', '-')}"
    breaking = Breaking(
        [
            (lambda: sum(steps(outdir, "host-here").values()) >= 7, kill_worker),
            (lambda: sum(steps(outdir, place).values()) >= 5, phones[1].switch_off),
        ]
    )
    options = SweepOptions(outdir, parse_scheduler(workers.address), device_wait_s=40)
    outcome = run_sweep(load_sweep(tmp_path / "sweep.json"), options, breaking)
    assert not breaking.harms
    for cell in outcome.record.cells:
        print(cell.cell.id, cell.state, cell.reason, cell.fix)
    print(breaking.stages)
    print(resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
