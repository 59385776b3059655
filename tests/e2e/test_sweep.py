"""A sweep on a real scheduler and real workers: host, emulation and two phones, of which things break."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from conftest import ON_ARM, ROOT, Artifact, missing
from virtual_phone import AdbServer, VirtualPhone

from model_profiling.config.sweep import load_sweep
from model_profiling.core import files, process
from model_profiling.core.errors import InputError, SetupError
from model_profiling.run import Run
from model_profiling.store.store import Store
from model_profiling.sweep.cells import read_sweep_record, write_sweep_record
from model_profiling.sweep.cluster import SchedulerLost, connected
from model_profiling.sweep.engine import SweepOptions, SweepOutcome, run_sweep
from model_profiling.sweep.messages import own_versions
from model_profiling.sweep.worker import Tls, parse_scheduler
from model_profiling.targets.emulated import EmulatedTarget

distributed = pytest.importorskip("distributed")
QUIET_CORE = max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0


@contextlib.contextmanager
def scheduler(**options: object) -> Iterator[str]:
    """A Dask scheduler on loopback, without a page for browsers."""
    silent = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    made = {"cls": distributed.Scheduler, "options": {"host": "127.0.0.1", "port": 0, **silent, **options}}
    security = options.get("security")
    with distributed.SpecCluster(scheduler=made, workers={}, silence_logs=False, security=security) as own:
        yield own.scheduler_address


@dataclass
class Workers:
    """`sme2prof worker` processes; all end with the test, also if that is killed."""

    address: str
    running: dict[str, process.Child] = field(default_factory=dict)

    def start(self, name: str, *words: object, **env: str) -> None:
        asked = ["worker", "--scheduler", self.address, "--name", name, *map(str, words)]
        self.running[name] = process.start(
            [sys.executable, "-m", "model_profiling", *asked],
            env={"PYTHONPATH": str(ROOT), **env},
            stderr=subprocess.STDOUT,
        )

    def kill(self, name: str) -> None:
        """The worker dies at once; what it had started is ended by its own keeper."""
        self.running[name].kill()
        self._end(self.running.pop(name))

    def said(self, name: str) -> str:
        """The next line of a worker."""
        stream = self.running[name].stdout
        assert stream is not None
        return stream.readline().decode()

    def close(self) -> None:
        for child in self.running.values():
            child.terminate()
        for child in self.running.values():
            self._end(child)

    def _end(self, child: process.Child) -> None:
        child.wait(timeout=60)
        process.end(child)
        assert child.stdout is not None
        child.stdout.close()


@contextlib.contextmanager
def started(address: str) -> Iterator[Workers]:
    made = Workers(address)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def workers() -> Iterator[Workers]:
    with scheduler() as address, started(address) as made:
        yield made


def listens_at(child: process.Child) -> set[str]:
    """The addresses at which a process can be reached."""
    psutil = pytest.importorskip("psutil")
    process_info = psutil.Process(child.pid)
    look = getattr(process_info, "net_connections", None) or process_info.connections
    return {each.laddr.ip for each in look("inet") if each.status == psutil.CONN_LISTEN}


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


def write_sweep(path: Path, rounds: int, **more: object) -> None:
    """As short as can be: one experiment of one inference."""
    short = {"rungs": ["on"], "runs": 1, "warmup": 0, "schedule": {"mode": "rounds", "rounds": rounds}}
    path.write_text(json.dumps({"name": path.stem, **short, **more}))


def steps(outdir: Path, place: str) -> Counter[str]:
    """How often each step of the runs on a device stands in their journals."""
    found: Counter[str] = Counter()
    for journal in (outdir / "runs").glob(f"*/{place}/journal.jsonl"):
        for line in journal.read_text().splitlines():
            entry = json.loads(line)
            what = (entry["kind"], str(entry["round"]), entry["experiment"], str(entry["threads"]))
            found["/".join((journal.parts[-3], *what))] += 1
    return found


def lines(outdir: Path, place: str) -> set[str]:
    """All that was measured on a device so far, with when and how long."""
    journals = (outdir / "runs").glob(f"*/{place}/journal.jsonl")
    return {f"{path.parts[-3]} {line}" for path in journals for line in path.read_text().splitlines()}


def in_store(store: Store) -> tuple[int, int]:
    """How many run directories a store knows, and how many runs."""
    (found,) = store.rows("SELECT count(DISTINCT run_dir) AS folders, count(*) AS runs FROM runs")
    return found["folders"], found["runs"]


def test_a_sweep_outlives_a_worker_and_a_phone(
    workers: Workers,
    arm_phones: Callable[..., VirtualPhone],
    adb: AdbServer,
    emulated: EmulatedTarget,
    tmp_path: Path,
) -> None:
    """2 models x 2 dtypes on the host (one core of it named as what measuring needs), emulated, and on two
    phones. The host's worker is killed in the middle of a launch and another takes over; one phone dies. What
    ended is in the store before the rest has. Later that phone is back, and the sweep is continued.

    Where the phones are emulated they have no latencies: each of their cells is one launch."""
    del emulated  # where it cannot be had, this test cannot be run
    phones = arm_phones("One"), arm_phones("Two")
    core = ("--quiet-cores", QUIET_CORE)
    on_host = ("--host", "--machine", "here", "--no-exports", *core)
    workers.start("host", *on_host)
    workers.start("emulating", "--emulated", *core)
    devices = [word for phone in phones for word in ("--device", f"android:{phone.serial}")]
    workers.start("phones", *devices, "--no-exports", *core, **adb.environment)
    targets = ["host@here", "emulated", *(f"android:{phone.serial}" for phone in phones)]
    small = {"models": ["linear", "conv1d"], "dtypes": ["fp32", "fp16"], "targets": targets}
    write_sweep(tmp_path / "sweep.json", 2, **small)
    outdir, before = tmp_path / "out", set[str]()
    store = Store.open(tmp_path / "store", make=True)

    def kill_worker() -> None:
        before.update(lines(outdir, "host-here"))
        workers.kill("host")
        workers.start("host-2", *on_host)

    stored_early: list[bool] = []
    lost = f"android-{phones[1].serial.replace(':', '-')}"
    breaking = Breaking(
        [
            (lambda: sum(steps(outdir, "host-here").values()) >= 6, kill_worker),
            (lambda: sum(steps(outdir, lost).values()) >= (5 if ON_ARM else 1), phones[1].switch_off),
            (lambda: bool(list(store.root.glob("data/*/*/*.parquet"))), lambda: stored_early.append(True)),
        ]
    )
    assert listens_at(workers.running["emulating"]) <= {"127.0.0.1"}
    options = SweepOptions(outdir, parse_scheduler(workers.address), device_wait_s=40, store=store)
    outcome = run_sweep(load_sweep(tmp_path / "sweep.json"), options, breaking)
    assert not breaking.harms, "nothing was killed, or nothing stored before the end"
    assert listens_at(workers.running["phones"]) == {"127.0.0.1"}
    done = check_all_ended(outcome, f"android:{phones[1].serial}")
    for place in ("host-here", "emulated", lost, f"android-{phones[0].serial.replace(':', '-')}"):
        assert set(steps(outdir, place).values()) == {1}, f"something was measured twice on {place}"
    assert before < lines(outdir, "host-here"), "what was measured before the kill is lost"
    check_runs(outdir, done)
    assert in_store(store) == (done, done)
    said = " / ".join(breaking.stages)
    assert "waiting for host@here" in said and f"waiting for android:{phones[1].serial}" in said
    earlier = {place: lines(outdir, place) for place in ("host-here", "emulated", lost)}
    phones[1].switch_on()
    phones[1].plug_in()
    outcome = run_sweep(load_sweep(tmp_path / "sweep.json"), replace(options, resume=True))
    assert outcome.record.counts() == {"done": 16} and len(outcome.published) == 16 - done
    assert set(steps(outdir, lost).values()) == {1} and earlier[lost] < lines(outdir, lost)
    assert all(lines(outdir, place) == earlier[place] for place in ("host-here", "emulated"))
    assert in_store(store) == (16, 16)


def check_all_ended(outcome: SweepOutcome, lost: str) -> int:
    """Every cell is done, but for those that the lost phone did not end, which say why. How many are done."""
    cells = outcome.record.cells
    assert len({each.cell.id for each in cells}) == len(cells) == 16
    for each in cells:
        assert each.ended, each
        assert each.state == "done" or (each.state == "failed" and each.cell.target == lost), each
        assert bool(each.reason) == (each.state == "failed")
        assert each.state == "done" or ("connect" in each.reason and "--resume" in each.fix)
    done = len(outcome.published)
    assert outcome.record.counts() == {"done": done, "failed": 16 - done}
    assert done == 12 if ON_ARM else 12 < done < 16, "some cells of the emulated phone ended before it died"
    return done


def check_runs(outdir: Path, done: int) -> None:
    """Runs are of the same programs everywhere, those of the host on the core that was named, and what
    emulation proved stands in them."""
    programs = {path.stem: files.sha256(path) for path in (outdir / "artifacts").glob("*.pte")}
    assert len(programs) == 4
    runs = [Run.open(path.parent) for path in (outdir / "runs").glob("*/*/manifest.json")]
    assert len(runs) == 16 if ON_ARM else done <= len(runs) <= 16
    sessions = []
    for run in runs:
        manifest = run.manifest
        assert manifest is not None
        name, place = run.path.parts[-2:]
        assert manifest.model_sha256 == programs[name]
        assert Path(manifest.model) == outdir / "artifacts" / f"{name}.pte"
        assert manifest.state == ("interrupted" if manifest.sessions[-1].problem else "finished")
        if place != "host-here":
            assert len(manifest.sessions) == 1, "a device whose worker lives is made ready once"
            continue
        sessions.append(len(manifest.sessions))
        experiments = manifest.settings["experiments"]
        assert isinstance(experiments, list) and experiments[0]["cpu_affinity"] == [QUIET_CORE]
        assert manifest.has_sme2 or (run.path / "evidence.json").is_file()
    assert max(sessions) == 2  # begun by the worker that was killed, ended by its successor


def scheduler_process(port: int) -> process.Child:
    words = ["--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    return process.start([sys.executable, "-m", "distributed.cli.dask_scheduler", *words])


def end_scheduler(child: process.Child) -> None:
    child.kill()
    process.end(child)
    for pipe in (child.stdout, child.stderr):
        assert pipe is not None
        pipe.close()


def test_a_worker_that_hangs_is_given_up_and_does_no_harm_when_it_is_back(
    workers: Workers, exported, tmp_path: Path
) -> None:
    """Its connection stays open and says nothing. It is named within a launch's time limit; once it goes on,
    it drops the launch that nobody waits for, joins again, and the sweep ends with each launch once."""
    workers.start("stuck", "--host", "--machine", "here", "--no-exports")
    assert "serves" in workers.said("stuck")
    schedule = {"mode": "rounds", "rounds": 3, "timeout_s": 8}
    model = str(exported("toy_cnn").pte)
    write_sweep(tmp_path / "hang.json", 3, models=[model], targets=["host"], runs=50, schedule=schedule)
    outdir, pid = tmp_path / "out", workers.running["stuck"].pid
    stopped: list[float] = []
    named: list[float] = []
    rescue = threading.Timer(20, os.kill, (pid, signal.SIGCONT))

    def stop() -> None:
        os.kill(pid, signal.SIGSTOP)
        stopped.append(time.monotonic())
        rescue.start()

    def go_on() -> None:
        named.append(time.monotonic())
        os.kill(pid, signal.SIGCONT)

    breaking = Breaking([])
    breaking.harms += [
        (lambda: len(lines(outdir, "host")) >= 2, stop),
        (lambda: "has not answered since" in breaking.stages[-1], go_on),
    ]
    try:
        options = SweepOptions(outdir, parse_scheduler(workers.address), device_wait_s=60)
        outcome = run_sweep(load_sweep(tmp_path / "hang.json"), options, breaking)
    finally:
        rescue.cancel()
        os.kill(pid, signal.SIGCONT)
    assert outcome.record.counts() == {"done": 1}, (outcome.record.cells[0].reason, breaking.stages)
    assert set(steps(outdir, "host").values()) == {1}
    assert named and named[0] - stopped[0] < 12, breaking.stages
    (said,) = [stage for stage in breaking.stages if "has not answered" in stage]
    assert "waiting for host: worker stuck has not answered since " in said


def test_a_scheduler_that_dies_costs_no_launch_that_ended(exported, tmp_path: Path) -> None:
    """The sweep says in one line what to do and marks no cell failed; the worker waits for the next one."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    write_sweep(tmp_path / "cut.json", 3, models=[str(exported("toy_cnn").pte)], targets=["host"])
    outdir, asked = tmp_path / "out", load_sweep(tmp_path / "cut.json")
    options = SweepOptions(outdir, parse_scheduler(f"127.0.0.1:{port}"), device_wait_s=60)
    schedulers = [scheduler_process(port)]
    try:
        with started(f"127.0.0.1:{port}") as workers:
            workers.start("host", "--host", "--machine", "here", "--no-exports")
            assert "serves" in workers.said("host")
            kill = (lambda: len(lines(outdir, "host")) >= 2, lambda: end_scheduler(schedulers.pop()))
            with pytest.raises(SchedulerLost, match=r"scheduler.*--resume"):
                run_sweep(asked, options, Breaking([kill]))
            assert not schedulers
            before = lines(outdir, "host")
            record = read_sweep_record(outdir)
            assert [each.state for each in record.cells] == ["running"]
            assert record.devices == {"host": "host@here"}
            assert "is gone; waiting" in workers.said("host")
            schedulers.append(scheduler_process(port))
            outcome = run_sweep(asked, replace(options, resume=True))
        assert outcome.record.counts() == {"done": 1}
        assert len(before) >= 2 and before < lines(outdir, "host")
        assert set(steps(outdir, "host").values()) == {1}
        with pytest.raises(InputError, match="host@here, but this is another machine"):
            write_sweep_record(outdir, replace(outcome.record, cells=record.cells))
            run_sweep(asked, SweepOptions(outdir, resume=True))
    finally:
        for child in schedulers:
            end_scheduler(child)


def test_only_who_has_a_certificate_takes_part(tmp_path: Path) -> None:
    """TLS as Dask does it: a worker and a sweep of the same authority meet, nobody else is let in."""
    ours, theirs = certificates(tmp_path / "ours"), certificates(tmp_path / "theirs")
    security = parse_scheduler("lab:1", ours).security()
    security.tls_scheduler_cert, security.tls_scheduler_key = str(ours.cert), str(ours.key)
    with scheduler(security=security, protocol="tls://") as address, started(address) as workers:
        files_of = [word for name in ("ca", "cert", "key") for word in (f"--tls-{name}", getattr(ours, name))]
        workers.start("safe", "--emulated", *files_of)
        assert "worker safe serves tls://127.0.0.1" in workers.said("safe")
        with connected(parse_scheduler(address, ours), ()) as cluster:
            (offer,) = cluster.offers()
            assert (offer.name, offer.devices, offer.versions) == ("safe", ("emulated",), own_versions())
            assert offer.worker.startswith("tls://127.0.0.1")
        plain = parse_scheduler(address.replace("tls://", "tcp://"))
        for stranger in (parse_scheduler(address, theirs), plain):
            with pytest.raises(SetupError, match="no scheduler answers"), connected(stranger, ()):
                pass


def certificates(folder: Path) -> Tls:
    """An authority of its own, and one certificate that it signed."""
    if shutil.which("openssl") is None:
        missing("openssl")
    folder.mkdir()

    def openssl(*words: str) -> None:
        done = process.run(["openssl", *words], timeout=60, cwd=folder)
        assert done.ok, done.stderr

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=sweeps")
    openssl("req", *key, "-keyout", "own.key", "-out", "own.csr", "-subj", "/CN=own")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "own.pem")
    openssl("x509", "-req", "-in", "own.csr", *signed)
    return Tls(folder / "ca.pem", folder / "own.pem", folder / "own.key")


@pytest.mark.quick
def test_a_killed_sweep_goes_on_where_it_was(exported: Callable[..., Artifact], tmp_path: Path) -> None:
    """Alone on one machine, killed in the middle: nothing is left running, nothing is measured again."""
    write_sweep(tmp_path / "alone.json", 3, models=[str(exported("toy_cnn").pte)])
    words = [sys.executable, "-m", "model_profiling", "sweep", "alone.json", "--no-store"]
    outdir = tmp_path / "sweep_alone"
    child = process.start(words, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, stderr=subprocess.STDOUT)
    assert child.stdout is not None
    until = time.monotonic() + 120
    while sum(steps(outdir, "host").values()) < 3 and time.monotonic() < until:
        time.sleep(0.05)
    assert listens_at(child) <= {"127.0.0.1"}
    child.kill()
    said = child.stdout.read().decode()
    child.stdout.close()
    process.end(child)
    before = lines(outdir, "host")
    assert 3 <= len(before) < 6, said
    done = process.run([*words, "--resume"], timeout=300, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)})
    assert done.ok, done.stderr
    assert before < lines(outdir, "host") and set(steps(outdir, "host").values()) == {1}
    (run_dir,) = (outdir / "runs").glob("*/host")
    manifest = Run.open(run_dir).manifest
    assert manifest is not None and [each.end for each in manifest.sessions] == ["killed", "done"]
