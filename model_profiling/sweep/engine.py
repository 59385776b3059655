"""Runs a sweep: exports programs, lets the jobs of each device take turns, and publishes the results.

The run directories in the sweep's folder are authoritative. Each visit of a worker starts from them and
brings back one piece of measuring, so a lost worker costs one piece, and a killed sweep can continue.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model_profiling.config.sweep import SweepConfig
from model_profiling.core.errors import FormatError, InputError, ProfilingError, SetupError
from model_profiling.core.formatting import listing
from model_profiling.core.progress import Progress, Silent
from model_profiling.run import names
from model_profiling.store.store import Store
from model_profiling.sweep import messages
from model_profiling.sweep.cells import Job, Program, SweepRecord, jobs, sweep_cost
from model_profiling.sweep.cluster import (
    Cluster,
    SchedulerLost,
    WorkerLost,
    check_versions,
    connected,
    device_of,
    how_to_offer,
    other_versions,
    workers_for,
)
from model_profiling.sweep.device_queue import (
    DeviceQueue,
    Programs,
    SweepProgress,
    Work,
    exports_anywhere,
    queues_of,
)
from model_profiling.sweep.folder import CellOutcome, SweepFolder, open_sweep, put_aside
from model_profiling.sweep.report import publish
from model_profiling.sweep.worker import Scheduler
from model_profiling.targets.machine_lock import holders

_LOOK_S = 0.5
"""How often to check whether a device or a worker has come or gone."""
_LOST_S = 30.0
"""How long a visit waits for a device that it lost; other visits of that worker may wait meanwhile."""
_MOST_LACKED = 3
"""How many times in a row a worker is sent the files it says it lacks."""
_RESUME = "then continue the sweep with --resume"


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """Where to write, which workers to use, and what to do with an earlier sweep. `device_wait_s` is how long
    to wait for a device that nobody offers or that went away."""

    outdir: Path
    scheduler: Scheduler | None = None
    resume: bool = False
    force: bool = False
    device_wait_s: float = 300.0
    store: Store | None = None
    """Each run is added to it as soon as it is published."""


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    folder: Path
    record: SweepRecord
    published: tuple[Path, ...] = ()
    moved: Path | None = None
    """Where an earlier sweep was moved to."""


def run_sweep(sweep: SweepConfig, options: SweepOptions, progress: Progress | None = None) -> SweepOutcome:
    """Measure every cell of `sweep` into `options.outdir`. Each ends done, or failed with a reason. Only
    problems of the whole sweep are errors: no scheduler, workers of another version, a folder in use."""
    with (
        connected(options.scheduler, sweep.targets) as cluster,
        cluster.watched(sweep.schedule.timeout_s),
    ):
        check_versions(cluster.offers())
        for target in () if options.resume else sweep.targets:  # a continued sweep knows its devices
            device_of(target, cluster.offers())
        # Last, so that an earlier sweep is moved aside only by one that can begin.
        with open_sweep(options.outdir, sweep, resume=options.resume, force=options.force) as folder:
            coordinator = _Coordinator(folder, cluster, options, progress or Silent())
            with coordinator.at_work():
                coordinator.run()
            folder.end()
            return SweepOutcome(folder.path, folder.record, tuple(coordinator.published), folder.moved)


@dataclass(slots=True)
class _Coordinator:
    folder: SweepFolder
    cluster: Cluster
    options: SweepOptions
    progress: Progress
    id: str = field(default_factory=lambda: secrets.token_hex(10))
    """What workers know this session by."""
    versions: messages.Versions = field(default_factory=messages.own_versions)
    published: list[Path] = field(default_factory=list)
    queues: list[DeviceQueue] = field(default_factory=list)
    programs: Programs = field(init=False)
    _hashes: messages.Hashes = field(default_factory=messages.Hashes)
    _to_publish: list[Work] = field(default_factory=list)
    _publishing: dict[Future[dict[str, CellOutcome]], Work] = field(default_factory=dict)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "publish"))
    _awake: threading.Event = field(default_factory=threading.Event)
    _said: str = ""
    _shown: SweepProgress = field(init=False)

    def __post_init__(self) -> None:
        self.programs = Programs(self.folder.artifacts, self._hashes, self.options.resume)
        self.queues = queues_of([job for job in jobs(self.folder.sweep) if self.folder.waiting(job)])
        self._shown = self._reckoned()

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """However the block ends, nothing is left running, and no worker keeps anything of this sweep."""
        try:
            yield
        except BaseException:
            self.cluster.abandon()
            raise
        finally:
            for queue in self.queues:
                queue.drop()
                for work in queue.left:  # interrupted, or unable to continue
                    with contextlib.suppress(ProfilingError):
                        self._put_aside(
                            work, "the sweep ended before it was measured", _RESUME.removeprefix("then ")
                        )
            self._pool.shutdown(wait=True, cancel_futures=True)
            self.programs.close()
            self.cluster.tell_all("forget", self.id)

    def run(self) -> None:
        for queue in self.queues:
            known = self.folder.record.devices.get(queue.target)
            queue.device = device_of(queue.target, self.cluster.offers(), known) or known
            own = {device for offer in self.cluster.offers() for device in offer.devices}
            if known is not None and self.cluster.own and queue.device not in own:
                raise InputError(
                    f"{queue.target} of this sweep is {known}, but this is another machine",
                    "continue it with the same --scheduler as before, or on that machine",
                )
        self._begin_exports()
        exporting = True
        while self._to_publish or self._publishing or any(queue.left for queue in self.queues):
            self._awake.clear()
            self._take_exports()
            self._take_visits()
            self._start_visits()
            self._publish()
            self._look()
            if exporting and not self.programs.under_way:
                exporting = False
                self.programs.rest()
                self.cluster.tell_all("rest")
                self._shown = self._reckoned()
            self._show()
            self._awake.wait(_LOOK_S)

    def _wake(self, _done: object) -> None:
        self._awake.set()

    # Programs.

    def _begin_exports(self) -> None:
        wanted = dict.fromkeys(work.job.program for queue in self.queues for work in queue.works)
        somebody = any(offer.exports for offer in self.cluster.offers())
        for program in wanted:
            if self.programs.find(program):
                continue
            if somebody and exports_anywhere(program):
                ask = messages.ExportAsk(self.id, program, self.versions)
                future = self.cluster.submit("export", ask, {messages.EXPORTS: 1})
                self.programs.under_way[future] = program
                future.add_done_callback(self._wake)
            else:
                self.programs.export_here(program, self._wake)

    def _take_exports(self) -> None:
        somebody = any(offer.exports for offer in self.cluster.offers())
        for future, program in list(self.programs.under_way.items()):
            if not somebody and not isinstance(future, Future):
                future.cancel()  # or it waits until another worker comes
            elif not future.done():
                continue
            del self.programs.under_way[future]
            try:
                self._take_export(future, program)
            except ProfilingError as problem:
                self.programs.failed[program] = problem
            except Exception as problem:  # noqa: BLE001  its worker is gone, or Dask gave up, or a full disk
                self.cluster.check()
                if isinstance(future, Future):
                    fix = _RESUME.removeprefix("then ")
                    self.programs.failed[program] = SetupError(_of_dask(problem), fix)
                else:  # this machine can do it
                    self.programs.export_here(program, self._wake)
        for queue in self.queues:
            for work in queue.left:
                if why := self.programs.failed.get(work.job.program):
                    self._fail(queue, work, why.problem, why.fix)

    def _take_export(self, future: Any, program: Program) -> None:
        if isinstance(future, Future):
            self.programs.add(program, future.result())
            return
        answer = self.cluster.answer_of(future)
        if isinstance(answer, messages.Failed):
            if answer.device_gone:
                raise WorkerLost(answer.problem)
            raise SetupError(answer.problem, answer.fix)
        if not isinstance(answer, messages.Exported):
            raise WorkerLost("it gave another answer than expected")
        self.programs.take(program, answer)

    # Visits.

    def _start_visits(self) -> None:
        now = time.monotonic()
        for queue in self.queues:
            if queue.visiting is not None or not queue.left or now < queue.not_before:
                continue
            if not all(self.programs.settled(work.job.program) for work in queue.works):
                continue  # a device's jobs all begin together, so that drift affects them alike
            offers = self.cluster.offers()
            device = device_of(queue.target, offers, queue.device)
            if device is None:
                queue.lost(*self._missing(queue))
                continue
            queue.workers = workers_for(device, offers, self.versions, queue.workers)
            if not queue.workers:
                queue.lost(*other_versions(device, offers, self.versions))
                continue
            queue.device = device
            if device != queue.target and not self.cluster.own:
                self.folder.settle_device(queue.target, device)
            if work := queue.next():
                self._visit(queue, work)

    def _ask(self, queue: DeviceQueue, work: Work) -> messages.VisitAsk:
        assert queue.device is not None
        program = self.programs.ready[work.job.program]
        run = self._hashes.listing(self.folder.run_dir(work.job))
        return messages.VisitAsk(
            self.id,
            work.job,
            queue.device,
            program.path.name,
            program.files,
            run if names.MANIFEST in run else {},  # it comes last: the first files were not brought whole
            self.versions,
            min(_LOST_S, self.options.device_wait_s / 4),
        )

    def _visit(self, queue: DeviceQueue, work: Work) -> None:
        ask = self._ask(queue, work)
        self.folder.mark(work.job, "running")
        queue.visiting = work
        queue.future = self.cluster.submit("visit", ask, self._resources(ask.device, ask.job), queue.workers)
        queue.future.add_done_callback(self._wake)

    def _resources(self, device: str, job: Job) -> dict[str, float]:
        """What a visit takes: the device and, if its machine reserves cores, one of those per thread."""
        found = {messages.resource_of(device): 1.0}
        kept = [len(offer.quiet_cores) for offer in self.cluster.offers() if device in offer.devices]
        if device.startswith(messages.HOST) and kept and min(kept):
            most = max(cell.threads for cell in job.cells)
            found[messages.QUIET] = float(min(most, *kept))
        return found

    def _take_visits(self) -> None:
        for queue in self.queues:
            if queue.future is None or not queue.future.done():
                continue
            future, work = queue.future, queue.visiting
            queue.future = queue.visiting = None
            assert work is not None
            try:
                answer = self.cluster.answer_of(future)
                if isinstance(answer, messages.Lacking):
                    self._send(answer, queue, work)
                    self._visit(queue, work)
                elif isinstance(answer, messages.Visited):
                    self._keep(answer, queue, work)
                    queue.found()
                elif isinstance(answer, messages.Failed):
                    self._failed(answer, queue, work)
                else:
                    raise FormatError(
                        "its worker gave another answer than expected", "stop that worker; " + _RESUME
                    )
            except SchedulerLost:
                raise
            except WorkerLost as problem:
                self.cluster.check()
                queue.lost(
                    f"the worker of {queue.target} is lost ({problem})",
                    how_to_offer(self.options.scheduler, queue.target),
                )
            except ProfilingError as problem:
                self._fail(queue, work, problem.problem, problem.fix)
            except Exception as problem:  # noqa: BLE001  Dask's own, or a defect: one job's, not the sweep's
                self.cluster.check()
                self._fail(queue, work, _of_dask(problem), "look at the worker's output; " + _RESUME)

    def _send(self, answer: messages.Lacking, queue: DeviceQueue, work: Work) -> None:
        queue.lacked += 1
        if queue.lacked > _MOST_LACKED:
            raise FormatError("its worker asks for the same files again and again", "stop it; " + _RESUME)
        ask, program = self._ask(queue, work), self.programs.ready[work.job.program]
        self.cluster.send(
            answer.worker,
            "put",
            ask,
            messages.SentFiles.of(program.path.parent, ask.program, answer.program),
            messages.SentFiles.of(self.folder.run_dir(work.job), ask.run, answer.run),
        )

    def _keep(self, answer: messages.Visited, queue: DeviceQueue, work: Work) -> None:
        self._bring(answer, work)
        work.seconds_left = answer.left.seconds_at_most
        if not answer.over:
            queue.turns.visited(work.job.id, answer.left)
        else:
            queue.end(work)
            self._to_publish.append(work)

    def _failed(self, answer: messages.Failed, queue: DeviceQueue, work: Work) -> None:
        if answer.files.listing:
            self._bring(answer, work)
        if not answer.device_gone and not answer.in_use:
            self._fail(queue, work, answer.problem, answer.fix)
            return
        queue.lost(answer.problem, answer.fix)
        if not queue.was_there and not answer.in_use:
            self._give_up(queue)

    def _bring(self, answer: messages.Visited | messages.Failed, work: Work) -> None:
        run_dir = self.folder.run_dir(work.job)
        run_dir.mkdir(parents=True, exist_ok=True)
        answer.files.lay_out(run_dir, self._hashes, f"worker {answer.name}")

    # Outcomes of jobs.

    def _publish(self) -> None:
        for future, work in list(self._publishing.items()):
            if future.done():
                del self._publishing[future]
                self._conclude(future, work)
        emulating = {
            work.job.program
            for queue in self.queues
            if queue.target == messages.EMULATED
            for work in queue.left
        } | {work.job.program for work in self._publishing.values() if work.job.target == messages.EMULATED}
        for work in list(self._to_publish):
            job = work.job
            if job.target != messages.EMULATED and job.program in emulating:
                continue  # its report includes what emulation proves about the program
            self._to_publish.remove(work)
            program = self.programs.ready[job.program].path
            future = self._pool.submit(
                publish, job, self.folder.run_dir(job), program, self.folder.sweep.name, self.options.store
            )
            self._publishing[future] = work
            future.add_done_callback(self._wake)

    def _conclude(self, future: Future[dict[str, CellOutcome]], work: Work) -> None:
        try:
            self.folder.conclude(work.job, future.result())
        except ProfilingError as problem:
            self.folder.mark(work.job, "failed", problem.problem, problem.fix)
        except Exception as problem:  # noqa: BLE001  a full disk, or a defect: one job's, not the sweep's
            self.folder.mark(work.job, "failed", _of_dask(problem), _RESUME.removeprefix("then "))
        else:
            self.published.append(self.folder.run_dir(work.job))

    def _fail(self, queue: DeviceQueue, work: Work, problem: str, fix: str) -> None:
        queue.end(work)
        self._put_aside(work, problem, fix)
        self.folder.mark(work.job, "failed", problem, fix)

    def _put_aside(self, work: Work, problem: str, fix: str) -> None:
        program, run_dir = self.programs.ready.get(work.job.program), self.folder.run_dir(work.job)
        if program is not None and run_dir.is_dir():
            put_aside(run_dir, program.path, problem, fix)

    def _give_up(self, queue: DeviceQueue) -> None:
        for work in queue.left:
            self._fail(queue, work, queue.why, f"{queue.fix}; {_RESUME}" if queue.fix else _RESUME)

    # Devices that come and go.

    def _look(self) -> None:
        self.cluster.check()
        there = {offer.worker for offer in self.cluster.offers()}
        for queue in self.queues:
            if not queue.left:
                continue
            if queue.future is not None and there.isdisjoint(queue.workers):
                queue.drop()
                queue.lost(*self._missing(queue))
            if queue.future is None and queue.waited_s() > self.options.device_wait_s:
                self._give_up(queue)

    def _missing(self, queue: DeviceQueue) -> tuple[str, str]:
        """Why no worker offers a queue's device, and what to do."""
        device = queue.device or queue.target
        fix = how_to_offer(self.options.scheduler, device)
        if silent := self.cluster.silent(device):
            return silent, f"wake its machine, look at its network, or end it and {fix}"
        return f"no worker offers {device}", fix

    def _show(self) -> None:
        waiting = next((queue for queue in self.queues if queue.left and queue.waited_s()), None)
        if waiting is not None:
            self._stage(f"waiting for {waiting.target}: {waiting.why}; {waiting.fix}")
        elif others := self._others():
            self._stage(f"waiting: {listing(others)}")
        else:
            stage, silent = "exporting" if self.programs.under_way else "measuring", self.cluster.silent()
            self._stage(f"{stage}; {silent}" if silent else stage)
        works = [work for queue in self.queues for work in queue.works]
        visited = [queue.visiting.job for queue in self.queues if queue.visiting is not None]
        self._shown.show(self.folder.record, works, visited, self.programs.exported)

    def _others(self) -> list[str]:
        """Return who keeps this machine from a visit that waits for it."""
        here = [
            queue
            for queue in self.queues
            if queue.visiting and (queue.device or "").startswith(messages.HOST)
        ]
        found, own = holders() if here and self.cluster.own else (), f"process {os.getpid()} "
        if any(who.startswith(f"{own}measures") for who in found):
            return []
        return [who for who in found if not who.startswith(own)]

    def _reckoned(self) -> SweepProgress:
        """Progress with the costs of jobs, from the programs exported so far."""
        cost = sweep_cost((work.job for queue in self.queues for work in queue.works), self.folder.artifacts)
        costs = {each.job.id: each for each in cost.jobs}
        return SweepProgress(self.progress, costs, alone=self.options.scheduler is None)

    def _stage(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self.progress.stage(text)


def _of_dask(problem: Exception) -> str:
    if type(problem).__name__ == "KilledWorker":
        return "every worker that tried to measure it ended too early"
    return f"unexpected {type(problem).__name__}: {problem}"
