"""A sweep's side of Dask: connects to a scheduler or starts one in this process, and asks its workers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model_profiling.core import process
from model_profiling.core.errors import InputError, ProfilingError, SetupError
from model_profiling.core.hints import needed
from model_profiling.sweep.device_server import DeviceServer
from model_profiling.sweep.messages import EMULATED, HOST, Offer, Versions, is_ours, own_versions, resource_of
from model_profiling.sweep.worker import (
    EXTRA,
    LOOPBACK,
    Scheduler,
    machine_name,
    quieten,
    remote_call,
    worker_settings,
)
from model_profiling.targets.machine_lock import stop_waiting

_CONNECT_S = 20
_ANSWER_S = 60
"""How long an answer that is ready may take to arrive."""
_SILENT_S = 30.0
"""The longest silence of a worker. Dask's workers report every second or so, whatever they measure."""
_SHORTEST_SILENT_S = 5.0
_LOOKS = 10
"""How many times within that silence to look for a new report."""


class WorkerLost(Exception):
    """A worker that was asked something is gone."""


class SchedulerLost(SetupError):
    """The scheduler is gone, so no worker can be asked."""


@dataclass(slots=True)
class Cluster:
    """The workers of a sweep. Long tasks go to Dask, which finds a worker with the resources and another if
    that one is lost; small things (files, offers) go to one worker at once."""

    client: Any
    own: bool
    _call: Callable[..., bytes | None] = field(default_factory=remote_call)
    _offers: dict[str, Offer | None] = field(default_factory=dict)
    _silent: dict[str, tuple[str, frozenset[str]]] = field(default_factory=dict)
    """By name, workers that were given up: since when they are silent, and what they offered."""

    @contextlib.contextmanager
    def watched(self, launch_s: float) -> Iterator[None]:
        """Give up workers that hang, within the time limit of a launch. A sweep on its own has none."""
        if self.own:
            yield
            return
        silent_s = max(_SHORTEST_SILENT_S, min(_SILENT_S, launch_s))
        watching = asyncio.run_coroutine_threadsafe(self._watch(silent_s), self.client.loop.asyncio_loop)
        try:
            yield
        finally:
            watching.cancel()

    async def _watch(self, silent_s: float) -> None:
        """Take silent workers of the kit from the scheduler, which by itself waits five minutes (its
        `worker-ttl`, for everybody's workers). All that waits for them then ends. Looks are counted, not
        seconds, because this process or the scheduler may have been asleep."""
        last: dict[str, tuple[float, int, str]] = {}
        while True:
            await asyncio.sleep(silent_s / _LOOKS)
            with contextlib.suppress(OSError):  # no scheduler: `check` tells
                for worker, facts in (await self.client.scheduler.identity())["workers"].items():
                    report, looks, since = last.get(worker, (0.0, 0, ""))
                    if report != facts["last_seen"]:
                        looks, since = 0, time.strftime("%H:%M:%S")
                    last[worker] = facts["last_seen"], looks + 1, since
                    offered = frozenset(filter(is_ours, facts["resources"]))
                    if looks + 1 >= _LOOKS and offered:
                        self._silent[facts["name"]] = since, offered
                        await self.client.scheduler.restart_workers(
                            workers=[worker], wait_for_workers=False, stimulus_id="sme2prof-silent"
                        )

    def silent(self, target: str = "") -> str:
        """Which worker, of those that offered `target`, was given up, and since when it is silent."""
        for name, (since, offered) in tuple(self._silent.items()):
            if not target or any(f"{each}@".startswith(f"{resource_of(target)}@") for each in offered):
                return f"worker {name} has not answered since {since}"
        return ""

    def check(self) -> None:
        """Raise if the scheduler is gone. One that comes back knows nothing of earlier tasks."""
        if self.client.status not in ("running", "newly-created"):
            raise SchedulerLost("the scheduler went away", "start it again, then continue with --resume")

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        """Turn any error of Dask, all of which mean that nobody answers, into SchedulerLost."""
        try:
            yield
        except Exception as problem:
            self.check()
            raise SchedulerLost(
                f"the scheduler does not answer ({str(problem) or type(problem).__name__})",
                "start it again, then continue with --resume",
            ) from problem

    def abandon(self) -> None:
        """Kill what runs in this process: a launch may take minutes, and nobody needs its result."""
        if self.own:
            process.kill_running()
            stop_waiting()

    def submit(
        self, method: str, ask: object, resources: Mapping[str, float], workers: Sequence[str] = ()
    ) -> Any:
        """Return a Dask future for `answer_of`; from one of `workers`, if given."""
        with self._reached():
            return self.client.submit(
                self._call,
                method,
                pickle.dumps((ask,)),
                resources=dict(resources),
                workers=list(workers) or None,
                pure=False,
            )

    @staticmethod
    def answer_of(future: Any) -> object:
        """Return the result of a future that is done, or raise whatever went wrong."""
        try:
            packed = future.result(timeout=_ANSWER_S)
        except concurrent.futures.CancelledError as problem:
            raise WorkerLost("the connection was lost") from problem
        except (TimeoutError, asyncio.TimeoutError) as problem:
            raise WorkerLost("its answer did not arrive") from problem
        if packed is None:
            raise WorkerLost("it was not a worker of this kit")
        return pickle.loads(packed)  # noqa: S301  Dask has unpacked it once: docs/how-to/sweeps.md says who is trusted

    def send(self, worker: str, method: str, *arguments: object) -> None:
        """Send something large to one worker, in Dask's own frames."""
        try:
            packed = self.client.scatter(pickle.dumps(arguments), workers=[worker], hash=False)
            self.client.submit(self._call, method, packed, workers=[worker], pure=False).result()
        except ProfilingError:
            raise
        except Exception as problem:
            raise WorkerLost(str(problem)) from problem

    def tell_all(self, method: str, *arguments: object) -> None:
        """Tell every worker something; those that are gone do not matter."""
        with contextlib.suppress(Exception):
            self.check()
            self.client.run(self._call, method, pickle.dumps(arguments), on_error="ignore")

    def offers(self) -> tuple[Offer, ...]:
        """Return what the present workers offer; each is asked once. Other people's workers offer nothing."""
        with self._reached():
            there = list(self.client.nthreads())
        new = [worker for worker in there if worker not in self._offers]
        if new:
            with self._reached():
                answers: Mapping[str, bytes | None] = self.client.run(
                    self._call, "offer", pickle.dumps(()), workers=new, on_error="ignore"
                )
            for worker, packed in answers.items():
                self._offers[worker] = offer = pickle.loads(packed) if packed else None  # noqa: S301
                self._silent.pop(offer.name if offer else "", None)  # it is back
        return tuple(offer for worker in there if (offer := self._offers.get(worker)) is not None)


@contextlib.contextmanager
def connected(scheduler: Scheduler | None, targets: Sequence[str]) -> Iterator[Cluster]:
    """Connect to a scheduler or, without one, start a cluster in this process that reaches `targets`."""
    if scheduler is None:
        with (
            tempfile.TemporaryDirectory(prefix="sme2prof-sweep-") as folder,
            _own(Path(folder), targets) as own,
        ):
            yield own
        return
    distributed = needed("distributed", EXTRA)
    quieten()
    try:
        client = distributed.Client(
            scheduler.address, security=scheduler.security(), timeout=_CONNECT_S, set_as_default=False
        )
    except (OSError, TimeoutError, ValueError) as problem:
        raise SetupError(
            f"no scheduler answers at {scheduler.address}",
            "start it (dask scheduler), or correct the address or the certificates",
        ) from problem
    with client:
        yield Cluster(client, own=False)


@contextlib.contextmanager
def _own(folder: Path, targets: Sequence[str]) -> Iterator[Cluster]:
    """Run scheduler and worker in this process, where nobody else can reach them. Long tasks still run in
    child processes, which end with this one."""
    distributed = needed("distributed", EXTRA)
    quieten()
    here = HOST + machine_name()
    devices = [here if target == "host" else target for target in targets]
    server = DeviceServer("sweep", folder, tuple(dict.fromkeys(devices)))
    scheduler = {
        "cls": distributed.Scheduler,
        "options": {"protocol": "inproc", "dashboard": False, "dashboard_address": f"{LOOPBACK}:0"},
    }
    options = {
        **worker_settings(server), "protocol": "inproc", "local_directory": str(folder / "dask")
    }  # fmt: skip
    workers = {options.pop("name"): {"cls": distributed.Worker, "options": options}}
    try:
        with (
            distributed.SpecCluster(workers=workers, scheduler=scheduler, silence_logs=False) as cluster,
            distributed.Client(cluster, set_as_default=False) as client,
        ):
            yield Cluster(client, own=True)
    finally:
        server.close()


def check_versions(offers: Sequence[Offer]) -> None:
    own = own_versions()
    for offer in offers:
        if offer.versions != own:
            raise InputError(
                f"worker {offer.name} runs {offer.versions}, but this sweep runs {own}",
                "install the same versions on both, or stop that worker",
            )


def device_of(target: str, offers: Sequence[Offer], known: str | None = None) -> str | None:
    """The offered device that `target` means, if any. A `known` one stays: a run does not change machines."""
    offered = {device for offer in offers for device in offer.devices}
    if known is not None or target != "host":
        meant = known or target
        return meant if meant in offered else None
    hosts = sorted(device for device in offered if device.startswith(HOST))
    if len(hosts) > 1:
        raise InputError(
            f'several machines offer the target "host": {", ".join(hosts)}',
            "write one of them in the sweep",
        )
    return hosts[0] if hosts else None


def workers_for(
    device: str, offers: Sequence[Offer], versions: Versions, before: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return which workers to ask for `device`. If several reach it, the one asked `before` has it open and
    keeps the others off, so it is asked again while it is there. Any worker may emulate."""
    able = [each.worker for each in offers if device in each.devices and each.versions == versions]
    if device == EMULATED:
        return tuple(able)
    return tuple([worker for worker in before if worker in able] or able)[:1]


def other_versions(device: str, offers: Sequence[Offer], versions: Versions) -> tuple[str, str]:
    offer = next(offer for offer in offers if device in offer.devices)
    return f"worker {offer.name} runs {offer.versions}, but this sweep runs {versions}", (
        "install the same versions on both"
    )


def how_to_offer(scheduler: Scheduler | None, target: str) -> str:
    if scheduler is None:
        return "this machine does not have it: choose one that it has, or give --scheduler"
    option = {"host": "--host", EMULATED: "--emulated"}.get(target.partition("@")[0], f"--target {target}")
    return f"start it there: sme2prof worker --scheduler {scheduler.address} {option}"
