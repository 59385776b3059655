"""A worker: a process that offers devices, a machine and its quiet cores to sweeps, as Dask resources.

It is Dask's own worker with a `DeviceServer` as plugin. Nothing else listens, and it listens on loopback
unless it is given an address.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_profiling.config.sweep import choice_of
from model_profiling.core import process
from model_profiling.core.errors import InputError, SetupError
from model_profiling.core.files import LockFile
from model_profiling.core.formatting import ranges
from model_profiling.core.hints import needed
from model_profiling.runner.cache import state_root
from model_profiling.sweep.device_server import NAME, DeviceServer
from model_profiling.sweep.messages import EMULATED, HOST
from model_profiling.targets.machine_lock import keep_off

EXTRA = "sweep"
LOOPBACK = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(tcp|tls)://)?(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})/?")


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: the authority that both sides trust, and this side's certificate with its key."""

    ca: Path
    cert: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A checked address; with `tls`, a peer that cannot prove its identity is not talked to."""

    address: str
    tls: Tls | None = None

    @property
    def is_loopback(self) -> bool:
        found = _ADDRESS.fullmatch(self.address)
        return found is not None and is_loopback(found.group(2))

    def security(self) -> Any:
        if self.tls is None:
            return None
        cert, key = str(self.tls.cert), str(self.tls.key)
        return needed("distributed", EXTRA).Security(
            require_encryption=True,
            tls_ca_file=str(self.tls.ca),
            tls_client_cert=cert,
            tls_client_key=key,
            tls_worker_cert=cert,
            tls_worker_key=key,
        )


def parse_tls(ca: Path | None, cert: Path | None, key: Path | None) -> Tls | None:
    """Check that all three files are given, or none."""
    given = [path for path in (ca, cert, key) if path is not None]
    if not given:
        return None
    if ca is None or cert is None or key is None:
        raise InputError("TLS needs three files", "give --tls-ca, --tls-cert and --tls-key together")
    for path in given:
        if not path.is_file():
            raise InputError(f"there is no file {path}", "give a certificate or key in PEM format")
    return Tls(ca.absolute(), cert.absolute(), key.absolute())


def parse_scheduler(text: str, tls: Tls | None = None) -> Scheduler:
    """Parse `HOST:PORT`, with `tcp://` or `tls://` before it if wanted."""
    found = _ADDRESS.fullmatch(text)
    if found is None or not 0 < int(found.group(3)) < 65536:
        raise InputError(
            f"{text!r} is not the address of a scheduler", "write HOST:PORT, such as 127.0.0.1:8786"
        )
    scheme = found.group(1) or ("tls" if tls else "tcp")
    if (scheme == "tls") != (tls is not None):
        fix = (
            "give --tls-ca, --tls-cert and --tls-key"
            if tls is None
            else "write tls://, or leave the files out"
        )
        raise InputError(f"{text} was given {'without' if tls is None else 'with'} certificates", fix)
    return Scheduler(f"{scheme}://{found.group(2)}:{found.group(3)}", tls)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FIRST_CONNECTION_S = 20
_MOST_WORKERS = 64
"""The most unnamed workers of one user on one machine."""
_AGAIN_S = 600
_CLOSE_S = 5


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """`devices` are phones and machines behind ssh, as a sweep names them; `host` offers this machine as
    `host@MACHINE`. Measuring is pinned to its `quiet_cores`, and this worker's other work keeps off them."""

    scheduler: Scheduler
    devices: tuple[str, ...] = ()
    host: bool = False
    emulated: bool = False
    exports: bool = True
    quiet_cores: tuple[int, ...] = ()
    name: str | None = None
    machine: str | None = None
    listen: str | None = None


def machine_name() -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", socket.gethostname().partition(".")[0]).strip("-.") or "machine"


def run_worker(options: WorkerOptions, said: Callable[[str], None]) -> None:
    """Offer what `options` say until interrupted; `said` gets a line about each event."""
    needed("distributed", EXTRA)
    if options.listen is None and not options.scheduler.is_loopback:
        raise InputError(
            f"{options.scheduler.address} is another machine, but this worker listens only on loopback",
            "give the address of this machine that the scheduler can reach with --listen",
        )
    with _opened_server(options) as server:
        try:
            asyncio.run(_serve(server, options, said))
        finally:
            server.close()


@contextlib.contextmanager
def _opened_server(options: WorkerOptions) -> Iterator[DeviceServer]:
    for name in filter(None, (options.name, options.machine)):
        if not _NAME.fullmatch(name):
            raise InputError(f"{name!r} is not a valid name", "use letters, digits, '.', '_' and '-'")
    with _name_held(options.name) as name:
        folder = state_root() / "workers" / name
        shutil.rmtree(folder, ignore_errors=True)
        try:
            devices, cores = offered_devices(options), checked_cores(options.quiet_cores)
            keep_off(cores)
            yield DeviceServer(name, folder, devices, cores, options.exports)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _name_held(wanted: str | None) -> Iterator[str]:
    """Hold a name that no other worker of this user has: `wanted`, or the machine's with a number."""
    folder = state_root() / "workers"
    names = [wanted] if wanted else [f"{machine_name()}-{number}" for number in range(1, _MOST_WORKERS + 1)]
    for name in names:
        lock = LockFile(folder / f".{name}.lock", f"the name {name}", "give this worker another --name")
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(lock.held())
            except InputError:
                if name == names[-1]:
                    raise
                continue
            yield name
            return


def offered_devices(options: WorkerOptions) -> tuple[str, ...]:
    found = [HOST + (options.machine or machine_name())] if options.host else []
    found += [EMULATED] if options.emulated else []
    for device in options.devices:
        chosen = choice_of(device)
        if not (chosen.serial or chosen.remote or chosen.host):
            raise InputError(
                f"--target {device} names no device",
                "give android:SERIAL or ssh:HOST, or use --host or --emulated",
            )
        found.append(device)
    if not found and not options.exports:
        raise InputError("this worker would have nothing to do", "give --host, --emulated or --target")
    return tuple(dict.fromkeys(found))


def checked_cores(cores: tuple[int, ...]) -> tuple[int, ...]:
    """Return `cores` if this machine has each of them and this process may use it."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if cores and not usable:
        raise InputError("this system cannot pin processes to cores", "leave --quiet-cores out")
    for core in cores:
        if core not in usable:
            raise InputError(f"there is no CPU {core} to use here", f"choose from {ranges(usable)}")
    return cores


async def _serve(server: DeviceServer, options: WorkerOptions, said: Callable[[str], None]) -> None:
    """Serve until the scheduler goes away, then wait for it, so that a worker outlives a restart."""
    address, patience = options.scheduler.address, _FIRST_CONNECTION_S
    while True:
        worker = dask_worker(server, options.scheduler, options.listen or LOOPBACK, patience)
        try:
            await worker
        except Exception as problem:
            await _close(worker)
            why = "no scheduler answers" if isinstance(problem, TimeoutError | OSError) else str(problem)
            raise SetupError(
                f"cannot join {address}: {why.splitlines()[0] if why else type(problem).__name__}",
                "start it first (dask scheduler), or correct the address or the certificates",
            ) from problem
        offered = ", ".join((*server.devices, *(["exports"] if server.exports else [])))
        said(f"worker {server.name} serves {address}: {offered}")
        try:
            await worker.finished()
        finally:
            await _close(worker)
        process.kill_running()  # nobody waits for it any more, and the device is soon asked for again
        said(f"the connection to {address} is gone; waiting for it")
        patience = _AGAIN_S


async def _close(worker: Any) -> None:
    """Close, but do not wait long: an interrupt may have cut short a close that Dask began and waits for."""
    with contextlib.suppress(Exception):
        await asyncio.wait_for(worker.close(timeout=2, executor_wait=False), _CLOSE_S)


def dask_worker(server: DeviceServer, scheduler: Scheduler, host: str, patience_s: float) -> Any:
    distributed = needed("distributed", EXTRA)
    quieten()
    return distributed.Worker(
        scheduler.address,
        security=scheduler.security(),
        death_timeout=patience_s,
        local_directory=str(server.folder / "dask"),
        **worker_settings(server),
        host=host,
    )


def worker_settings(server: DeviceServer) -> dict[str, Any]:
    """Settings of every worker of the kit: a thread for each device and export, a web page on loopback only,
    and no watch on memory, because the kit moves the files itself."""
    return {
        "name": server.name,
        "nthreads": server.threads,
        "resources": server.resources,
        "plugins": [_plugin(server)],
        "dashboard": False,
        "dashboard_address": f"{LOOPBACK}:0",
        "memory_limit": 0,
        "validate": False,
    }


def quieten() -> None:
    """Silence Dask's messages on stderr; the kit tells people what happens."""
    for name in ("distributed", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _plugin(server: DeviceServer) -> Any:
    distributed = needed("distributed", EXTRA)

    class Plugin(distributed.WorkerPlugin):  # type: ignore[misc,name-defined]
        """Dask finds the server by this plugin's name; `remote_call` asks it."""

        name = NAME

        def setup(self, worker: Any) -> None:
            self.worker = worker

        def answer(self, method: str, packed: bytes) -> bytes:
            server.address = self.worker.address
            return server.answer(method, packed)

    return Plugin()


def remote_call() -> Callable[..., bytes | None]:
    """The function that a sweep sends to workers. It is nested so that Dask sends its code, not its name: a
    scheduler that unpacks it needs no kit."""
    name = NAME

    def call(method: str, packed: bytes, dask_worker: Any = None) -> bytes | None:
        from distributed import get_worker

        plugin: Any = (dask_worker or get_worker()).plugins.get(name)
        answer: bytes | None = plugin.answer(method, packed) if plugin is not None else None
        return answer

    return call
