"""Sweeps as people start them: alone on a machine, and with a team's workers, some of which die."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from conftest import ROOT, missing
from recorded_runs import INT8
from stand_ins import wait_until
from virtual_phone import AdbServer, VirtualPhone

from model_profiling.core import process
from model_profiling.runs import Run

distributed = pytest.importorskip("distributed")
PYTHON = [sys.executable, "-m"]


def write_sweep(path: Path, *names: str, **more: object) -> None:
    """As short as can be: one experiment of one inference."""
    short = {"rungs": ["on"], "runs": 1, "warmup": 0, "schedule": {"rounds": 2}}
    models = [str(shutil.copyfile(INT8, path.parent / f"{name}.pte")) for name in names]
    path.write_text(json.dumps({"name": path.stem, "models": models, **short, **more}))


def states(outdir: Path) -> dict[str, str]:
    with contextlib.suppress(FileNotFoundError):
        cells = json.loads((outdir / "cells.json").read_text())["cells"]
        named = ((each["cell"], each["state"]) for each in cells)
        return {f"{cell['program']['name']} {cell['target']}": state for cell, state in named}
    return {}


@dataclass
class Team:
    """A scheduler, workers and sweeps as processes on loopback; all end with the test."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    protocol: str = "tcp"
    running: dict[str, process.Child] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"{self.protocol}://127.0.0.1:{free.getsockname()[1]}"

    def start(self, name: str, *words: object) -> process.Child:
        env = {"PYTHONPATH": str(ROOT), **self.environment}
        asked = ["sh", "-c", 'exec "$@" 2>&1', "sh", *PYTHON, *map(str, words)]
        self.running[name] = process.start(asked, env=env, cwd=self.folder)
        return self.running[name]

    def schedule(self) -> None:
        port = self.address.rpartition(":")[2]
        where = ("--host", "127.0.0.1", "--port", port, "--protocol", self.protocol, "--no-dashboard")
        self.start("scheduler", "distributed.cli.dask_scheduler", *where)

    def work(self, name: str, *words: object) -> None:
        own = ("worker", "--scheduler", self.address, "--name", name)
        child = self.start(name, "model_profiling", *own, *words)
        assert child.stdout is not None
        line = child.stdout.readline().decode()
        assert f"worker {name} serves {self.address}" in line, line

    def sweep(self, *words: object) -> process.Child:
        given = ("sweep", "s.json", "--no-store", "--scheduler", self.address, *words)
        return self.start("sweep", "model_profiling", *given)

    def end(self, name: str, how: signal.Signals | None = None) -> tuple[int, str]:
        child = self.running.pop(name)
        if how is not None:
            child.send_signal(how)
        assert child.stdout is not None and child.stderr is not None
        text = child.stdout.read().decode()
        code = child.wait(timeout=120)
        child.stdout.close()
        child.stderr.close()
        process.end(child)
        return code, text

    def close(self) -> None:
        for name in list(self.running):
            self.end(name, signal.SIGKILL)


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    made = Team(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.quick
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_sweep_that_is_cut_short_goes_on_where_it_was(
    team: Team, tmp_path: Path, how: signal.Signals
) -> None:
    """Alone on one machine: nothing is left running, and what was measured is not measured again."""
    write_sweep(tmp_path / "s.json", "one", "two")
    words, outdir = ("model_profiling", "sweep", "s.json", "--no-store"), tmp_path / "sweep_s"
    child = team.start("sweep", *words)
    wait_until(lambda: states(outdir).get("one host") == "done", "nothing was measured")
    started = psutil.Process(child.pid).children(recursive=True)
    listening = set()
    for each in (psutil.Process(child.pid), *started):
        with contextlib.suppress(psutil.NoSuchProcess):  # a measurement that has just ended
            told = each.net_connections("inet")
            listening |= {one.laddr.ip for one in told if one.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}
    code, text = team.end("sweep", how)
    assert code == (-signal.SIGKILL if how == signal.SIGKILL else 130), text
    assert how == signal.SIGKILL or "sme2prof sweep s.json --no-store --resume" in text
    _, left = psutil.wait_procs(started, timeout=30)
    assert not [each for each in left if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
    run_dir = outdir / "runs" / "one" / "host"
    before = (run_dir / "journal.jsonl").read_bytes()
    team.start("sweep", *words, "--resume")
    code, text = team.end("sweep")
    assert code == 0 and "2 of 2 cells done" in text, text
    assert (run_dir / "journal.jsonl").read_bytes() == before
    assert not [*outdir.glob(".work"), *outdir.glob("**/*.part")], "work in progress is left"


def test_a_team_outlives_a_worker_and_a_phone(
    team: Team, arm_phones: Callable[..., VirtualPhone], adb: AdbServer, tmp_path: Path
) -> None:
    """The host's worker is killed in the middle of a run and another takes over; one phone dies. Later that
    phone is back, and the sweep is continued."""
    phones = arm_phones("One"), arm_phones("Two")
    targets = [f"android:{phone.serial}" for phone in phones]
    team.environment = adb.environment
    team.schedule()
    team.work("phones", *(word for target in targets for word in ("--target", target)))
    team.work("host", "--target", "host")
    write_sweep(tmp_path / "s.json", "one", "two", targets=["host", *targets])
    outdir, lost = tmp_path / "sweep_s", targets[1]
    phones[1].switch_off()
    team.sweep()
    wait_until(lambda: states(outdir).get("one host") == "done", "the host measured nothing")
    team.end("host", signal.SIGKILL)
    team.work("host-2", "--target", "host")
    code, text = team.end("sweep")
    ended = states(outdir)
    assert {name for name, state in ended.items() if state == "failed"} == {f"one {lost}", f"two {lost}"}
    assert code == 2 and lost.rpartition(":")[2] in text
    assert sum(state == "done" for state in ended.values()) == 4
    phones[1].switch_on()
    phones[1].plug_in()
    team.sweep("--resume")
    code, text = team.end("sweep")
    assert code == 0 and "6 of 6 cells done" in text, text
    for manifest in outdir.glob("runs/*/*/manifest.json"):
        run = Run.open(manifest.parent)
        assert run.manifest is not None and run.manifest.state == "finished"


def test_a_scheduler_that_dies_costs_no_cell_that_ended(team: Team, tmp_path: Path) -> None:
    team.schedule()
    team.work("host", "--target", "host")
    write_sweep(tmp_path / "s.json", "one", "two", "three")
    team.sweep()
    wait_until(lambda: "done" in states(tmp_path / "sweep_s").values(), "nothing was measured")
    team.end("scheduler", signal.SIGKILL)
    code, text = team.end("sweep")
    assert code == 2 and "the scheduler went away" in text and "--resume" in text, text
    assert "failed" not in states(tmp_path / "sweep_s").values()
    code, text = team.end("host")
    assert code == 2 and "is gone" in text, text


def test_only_who_has_a_certificate_takes_part(team: Team, tmp_path: Path) -> None:
    """TLS by Dask's own settings: whoever has none, or those of another authority, is not answered."""
    ours, theirs = (certificates(tmp_path / name) for name in ("ours", "theirs"))
    safe = Team(tmp_path, ours, "tls")
    try:
        safe.schedule()
        safe.work("safe", "--target", "emulated")
        plain = safe.address.replace("tls://", "tcp://")
        for environment, address in (({}, safe.address), (theirs, safe.address), (theirs, plain)):
            team.environment = environment
            team.start("stranger", "model_profiling", "worker", "--scheduler", address, "--target", "host")
            code, text = team.end("stranger")
            assert code == 2 and "cannot join" in text, text
    finally:
        safe.close()


def certificates(folder: Path) -> dict[str, str]:
    """An authority of its own and one certificate that it signed, as settings of Dask."""
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
    tls, sides = "DASK_DISTRIBUTED__COMM__TLS", ("SCHEDULER", "WORKER", "CLIENT")
    own = {f"{tls}__{side}__{what.upper()}": str(folder / f"own.{end}") for side in sides for what, end in
           (("cert", "pem"), ("key", "key"))}  # fmt: skip
    authority = {f"{tls}__CA_FILE": str(folder / "ca.pem")}
    return {**own, **authority, "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true"}
