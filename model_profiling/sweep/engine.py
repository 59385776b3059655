"""Runs a sweep: exports each program once, lets the jobs of each device take turns on it, launch by launch,
and publishes what came of each.

This process has the truth: the run directories in the sweep's folder. A visit of a worker starts from them
and brings back what one piece of measuring added, so a worker that is lost costs one piece, and a sweep that
is killed goes on where it was.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model_profiling.config.sweep import SweepConfig
from model_profiling.core.errors import FormatError, InputError, ProfilingError, SetupError
from model_profiling.core.progress import Progress, Silent
from model_profiling.store.store import Store
from model_profiling.sweep.addresses import Scheduler
from model_profiling.sweep.cells import Job, Program, SweepRecord, jobs, sweep_cost
from model_profiling.sweep.cluster import (
    Cluster,
    SchedulerLost,
    WorkerLost,
    check_versions,
    connected,
    device_of,
    workers_for,
)
from model_profiling.sweep.device_queue import Lane, Programs, SweepProgress, Work, exports_anywhere, lanes_of
from model_profiling.sweep.folder import CellOutcome, SweepFolder, opened_sweep
from model_profiling.sweep.messages import (
    EMULATED,
    EXPORTS,
    HOST,
    PIECE,
    QUIET,
    Blobs,
    ExportAsk,
    Exported,
    Failed,
    Hashes,
    Lacking,
    Listing,
    Versions,
    VisitAsk,
    Visited,
    checked_listing,
    lay_out,
    own_versions,
    pieces,
    resource_of,
)
from model_profiling.sweep.publishing import add_to_store, publish, put_aside

_LOOK_S = 0.5
"""How often is looked whether a device or a worker has come or gone."""
_LOST_S = 30.0
"""How long a visit waits for a device that it lost; other visits of that worker may wait for it."""
_MOST_LACKED = 5
"""Times in a row that a worker is sent what it says it lacks."""
_MOST_BYTES = 64 << 30
"""Of one file of a worker's."""
_ARRIVING = ".arriving"
_RESUME = "then continue the sweep with --resume"


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """Where to, on which workers, and what to do with what is there. `device_wait_s` is how long a device
    that nobody offers, or that went away, is waited for."""

    outdir: Path
    scheduler: Scheduler | None = None
    resume: bool = False
    force: bool = False
    device_wait_s: float = 300.0
    store: Store | None = None
    """Where each run is added as soon as it is published."""


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """What a sweep came to. `published` are the run directories that were made in this session."""

    folder: Path
    record: SweepRecord
    published: tuple[Path, ...] = ()
    moved: Path | None = None
    """Where an earlier sweep was kept."""


def run_sweep(sweep: SweepConfig, options: SweepOptions, progress: Progress | None = None) -> SweepOutcome:
    """Measure every cell of `sweep` into `options.outdir`. Each ends done or failed with its reason, and only
    what concerns the whole sweep is an error: no scheduler, workers of another version, a folder in use."""
    with connected(options.scheduler, sweep.targets) as cluster:
        check_versions(cluster.offers())
        for target in () if options.resume else sweep.targets:  # one that goes on knows which it means
            device_of(target, cluster.offers())
        # Last: an earlier sweep is kept aside only by one that can begin.
        with opened_sweep(options.outdir, sweep, resume=options.resume, force=options.force) as folder:
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
    versions: Versions = field(default_factory=own_versions)
    published: list[Path] = field(default_factory=list)
    lanes: list[Lane] = field(default_factory=list)
    programs: Programs = field(init=False)
    _hashes: Hashes = field(default_factory=Hashes)
    _to_publish: list[Work] = field(default_factory=list)
    _publishing: dict[Future[dict[str, CellOutcome]], Work] = field(default_factory=dict)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "publish"))
    _awake: threading.Event = field(default_factory=threading.Event)
    _said: str = ""
    _shown: SweepProgress = field(init=False)

    def __post_init__(self) -> None:
        self.programs = Programs(self.folder.artifacts, self._hashes, self.options.resume)
        self.lanes = lanes_of([job for job in jobs(self.folder.sweep) if self.folder.waiting(job)])
        self._shown = self._reckoned()

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """However it ends, nothing is left under way, and no worker keeps anything of it."""
        try:
            yield
        except BaseException:
            self.cluster.abandon()
            raise
        finally:
            for lane in self.lanes:
                lane.drop()
                for work in lane.left:  # it was interrupted, or cannot go on
                    with contextlib.suppress(ProfilingError):
                        self._put_aside(work, "the sweep ended before it", _RESUME.removeprefix("then "))
            self._pool.shutdown(wait=True, cancel_futures=True)
            self.programs.close()
            self.cluster.tell_all("forget", self.id)
            shutil.rmtree(self.folder.path / _ARRIVING, ignore_errors=True)

    def run(self) -> None:
        for lane in self.lanes:
            known = self.folder.record.devices.get(lane.target)
            lane.device = device_of(lane.target, self.cluster.offers(), known) or known
            if known is not None and self.cluster.own and lane.device not in self._own_devices():
                raise InputError(
                    f"{lane.target} of this sweep is {known}, and this is another machine",
                    "continue it with the --scheduler it was begun with, or on that machine",
                )
        self._begin_exports()
        exporting = True
        while self._is_left():
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

    def _is_left(self) -> bool:
        return bool(self._to_publish or self._publishing or any(lane.left for lane in self.lanes))

    def _wake(self, _done: object) -> None:
        self._awake.set()

    def _own_devices(self) -> set[str]:
        return {device for offer in self.cluster.offers() for device in offer.devices}

    # Programs.

    def _begin_exports(self) -> None:
        wanted = dict.fromkeys(work.job.program for lane in self.lanes for work in lane.works)
        somebody = any(offer.exports for offer in self.cluster.offers())
        for program in wanted:
            if self.programs.find(program):
                continue
            if somebody and exports_anywhere(program):
                ask = ExportAsk(self.id, program, self.versions)
                future = self.cluster.submit("export", ask, {EXPORTS: 1})
                self.programs.under_way[future] = program
                future.add_done_callback(self._wake)
            else:
                self.programs.export_here(program, self._wake)
        if self.programs.under_way:
            self.progress.stage("exporting")

    def _take_exports(self) -> None:
        for future, program in list(self.programs.under_way.items()):
            if not future.done():
                continue
            del self.programs.under_way[future]
            try:
                self._take_export(future, program)
            except ProfilingError as problem:
                self.programs.failed[program] = problem
            except Exception:  # noqa: BLE001  its worker is gone, or Dask gave up: this machine can do it
                self.cluster.check()
                self.programs.export_here(program, self._wake)
        for lane in self.lanes:
            for work in lane.left:
                if why := self.programs.failed.get(work.job.program):
                    self._fail(lane, work, why.problem, why.fix)

    def _take_export(self, future: Any, program: Program) -> None:
        if isinstance(future, Future):
            self.programs.add(program, future.result())
            return
        answer = self.cluster.answer_of(future)
        if isinstance(answer, Failed):
            if answer.device_gone:
                raise WorkerLost(answer.problem)
            raise SetupError(answer.problem, answer.fix)
        if not isinstance(answer, Exported):
            raise WorkerLost("it answered something else")
        listing = checked_listing(answer.files, f"worker {answer.name}")
        wanted = f"{program.name}.pte"
        if answer.program_file != wanted or not all(name.startswith(wanted) for name in (wanted, *listing)):
            raise FormatError(
                f"worker {answer.name} exported something else than {wanted}", "end that worker; " + _RESUME
            )
        folder = self.folder.artifacts
        have = {name: self._hashes.of(folder / name) for name in listing if (folder / name).is_file()}
        blobs = self._received(answer.worker, f"exports/{program.name}", listing, have, answer.contents)
        lay_out(folder, listing, blobs, self._hashes, exactly=False)
        blobs.drop(listing.values())
        self.programs.add(program, folder / answer.program_file)

    # Visits.

    def _start_visits(self) -> None:
        now = time.monotonic()
        for lane in self.lanes:
            if lane.visiting is not None or not lane.left or now < lane.not_before:
                continue
            if not all(self.programs.settled(work.job.program) for work in lane.works):
                continue  # all of a device's jobs begin together, so that drift meets them alike
            offers = self.cluster.offers()
            device = device_of(lane.target, offers, lane.device)
            if device is None:
                named = lane.device or lane.target
                lane.lost(f"no worker offers {named}", self._how_to_offer(named))
                continue
            lane.workers = workers_for(device, offers, self.versions, lane.workers)
            if not lane.workers:
                lane.lost(*self._other_versions(device))
                continue
            lane.device = device
            if device != lane.target and not self.cluster.own:
                self.folder.settle_device(lane.target, device)
            if work := lane.next():
                self._visit(lane, work)

    def _visit(self, lane: Lane, work: Work) -> None:
        job, device = work.job, lane.device
        assert device is not None
        program = self.programs.ready[job.program]
        run_dir = self.folder.run_dir(job)
        ask = VisitAsk(
            self.id,
            job,
            device,
            program.path.name,
            program.files,
            self._hashes.listing(run_dir) if run_dir.is_dir() else {},
            self.versions,
            min(_LOST_S, self.options.device_wait_s / 4),
        )
        self.folder.mark(job, "running")
        lane.visiting = work
        lane.future = self.cluster.submit("visit", ask, self._resources(device, job), lane.workers)
        lane.future.add_done_callback(self._wake)

    def _resources(self, device: str, job: Job) -> dict[str, float]:
        """What a visit takes: the device alone and, on a machine that keeps cores for it, as many of those as
        there are threads."""
        found = {resource_of(device): 1.0}
        kept = [len(offer.quiet_cores) for offer in self.cluster.offers() if device in offer.devices]
        if device.startswith(HOST) and kept and min(kept):
            most = max(cell.threads for cell in job.cells)
            found[QUIET] = float(min(most, *kept))
        return found

    def _take_visits(self) -> None:
        for lane in self.lanes:
            if lane.future is None or not lane.future.done():
                continue
            future, work = lane.future, lane.visiting
            lane.future = lane.visiting = None
            assert work is not None
            try:
                answer = self.cluster.answer_of(future)
                if isinstance(answer, Lacking):
                    self._send(answer, lane, work)
                    self._visit(lane, work)
                elif isinstance(answer, Visited):
                    self._keep(answer, lane, work)
                    lane.found()
                elif isinstance(answer, Failed):
                    self._failed(answer, lane, work)
                else:
                    raise FormatError("its worker answered something else", "end that worker; " + _RESUME)
            except SchedulerLost:
                raise
            except WorkerLost as problem:
                self.cluster.check()
                lane.lost(f"the worker of {lane.target} is lost ({problem})", self._how_to_offer(lane.target))
            except ProfilingError as problem:
                self._fail(lane, work, problem.problem, problem.fix)
            except Exception as problem:  # noqa: BLE001  Dask's own, or a defect: one job's, not the sweep's
                self.cluster.check()
                self._fail(lane, work, _of_dask(problem), "see what the worker says; " + _RESUME)

    def _send(self, answer: Lacking, lane: Lane, work: Work) -> None:
        """Two devices of one worker may be sent the same for each other, so it is asked for again, a few
        times."""
        lane.lacked += 1
        if lane.lacked > _MOST_LACKED:
            raise FormatError("its worker asks for the same files again and again", "end it; " + _RESUME)
        program = self.programs.ready[work.job.program]
        run_dir = self.folder.run_dir(work.job)
        where = {sha256: program.path.with_name(name) for name, sha256 in program.files.items()}
        if run_dir.is_dir():
            where |= {sha256: run_dir / name for name, sha256 in self._hashes.listing(run_dir).items()}
        for sha256 in answer.hashes:
            for offset, piece, size in pieces(where[sha256]):
                self.cluster.ask(answer.worker, "put", sha256, offset, piece, size)

    def _keep(self, answer: Visited, lane: Lane, work: Work) -> None:
        self._bring(answer.worker, answer.name, answer.files, answer.contents, work)
        work.left = answer.left
        if not answer.over:
            lane.turns.visited(work.job.id, answer.left)
        else:
            lane.end(work)
            self._to_publish.append(work)

    def _failed(self, answer: Failed, lane: Lane, work: Work) -> None:
        if answer.files:
            with contextlib.suppress(WorkerLost):  # what was measured before is here already
                self._bring(answer.worker, answer.name, answer.files, answer.contents, work)
        if not answer.device_gone and not answer.in_use:
            self._fail(lane, work, answer.problem, answer.fix)
            return
        lane.lost(answer.problem, answer.fix)
        if not lane.was_there and not answer.in_use:
            self._give_up(lane)

    def _bring(
        self, worker: str, name: str, files: Listing, contents: Mapping[str, bytes], work: Work
    ) -> None:
        """Make the run directory here what it is on the worker."""
        listing = checked_listing(files, f"worker {name}")
        run_dir = self.folder.run_dir(work.job)
        run_dir.mkdir(parents=True, exist_ok=True)
        blobs = self._received(worker, work.job.run_dir, listing, self._hashes.listing(run_dir), contents)
        lay_out(run_dir, listing, blobs, self._hashes)
        blobs.drop(listing.values())

    def _received(
        self, worker: str, below: str, listing: Listing, have: Listing, contents: Mapping[str, bytes]
    ) -> Blobs:
        """What of the listed files is not here: as it came with the answer, else fetched from the worker."""
        blobs = Blobs(self.folder.path / _ARRIVING)
        blobs.put_whole(contents)
        missing = {sha256: name for name, sha256 in listing.items() if have.get(name) != sha256}
        for sha256 in blobs.lacking(missing):
            offset, more = 0, True
            while more:
                piece = self.cluster.ask(worker, "get", self.id, f"{below}/{missing[sha256]}", offset)
                if not isinstance(piece, bytes) or len(piece) > PIECE or offset > _MOST_BYTES:
                    raise FormatError(f"{missing[sha256]!r} of its worker does not end", "end that worker")
                more = len(piece) == PIECE
                blobs.put(sha256, offset, piece, offset + len(piece) + more)
                offset += len(piece)
        return blobs

    # What becomes of jobs.

    def _publish(self) -> None:
        for future, work in list(self._publishing.items()):
            if future.done():
                del self._publishing[future]
                self._conclude(future, work)
        emulating = {
            work.job.program for lane in self.lanes if lane.target == EMULATED for work in lane.left
        } | {work.job.program for work in self._publishing.values() if work.job.target == EMULATED}
        for work in list(self._to_publish):
            job = work.job
            if job.target != EMULATED and job.program in emulating:
                continue  # what emulation proves about the program belongs into its report
            self._to_publish.remove(work)
            program = self.programs.ready[job.program].path
            future = self._pool.submit(self._make, job, program)
            self._publishing[future] = work
            future.add_done_callback(self._wake)

    def _make(self, job: Job, program: Path) -> dict[str, CellOutcome]:
        """In a thread of its own. A store that cannot be written now is told of when the sweep ends, when all
        runs that are not there are added once more."""
        run_dir, store = self.folder.run_dir(job), self.options.store
        outcomes = publish(job, run_dir, program)
        if store is not None and any(each.state == "done" for each in outcomes.values()):
            with contextlib.suppress(Exception):
                add_to_store(store, [run_dir], self.folder.sweep.name)
        return outcomes

    def _conclude(self, future: Future[dict[str, CellOutcome]], work: Work) -> None:
        try:
            self.folder.conclude(work.job, future.result())
        except ProfilingError as problem:
            self.folder.mark(work.job, "failed", problem.problem, problem.fix)
        except Exception as problem:  # noqa: BLE001  a full disk, or a defect: one job's, not the sweep's
            self.folder.mark(work.job, "failed", _of_dask(problem), _RESUME.removeprefix("then "))
        else:
            self.published.append(self.folder.run_dir(work.job))

    def _fail(self, lane: Lane, work: Work, problem: str, fix: str) -> None:
        lane.end(work)
        self._put_aside(work, problem, fix)
        self.folder.mark(work.job, "failed", problem, fix)

    def _put_aside(self, work: Work, problem: str, fix: str) -> None:
        program, run_dir = self.programs.ready.get(work.job.program), self.folder.run_dir(work.job)
        if program is not None and run_dir.is_dir():
            put_aside(run_dir, program.path, problem, fix)

    def _give_up(self, lane: Lane) -> None:
        for work in lane.left:
            self._fail(lane, work, lane.why, f"{lane.fix}; {_RESUME}" if lane.fix else _RESUME)

    # Devices that come and go.

    def _look(self) -> None:
        self.cluster.check()
        there = {offer.worker for offer in self.cluster.offers()}
        for lane in self.lanes:
            if not lane.left:
                continue
            if lane.future is not None and there.isdisjoint(lane.workers):
                lane.drop()
                why = f"the worker that offered {lane.target} went away"
                lane.lost(why, self._how_to_offer(lane.device or lane.target))
            if lane.future is None and lane.waited_s() > self.options.device_wait_s:
                self._give_up(lane)

    def _other_versions(self, device: str) -> tuple[str, str]:
        offer = next(offer for offer in self.cluster.offers() if device in offer.devices)
        problem = f"worker {offer.name} runs {offer.versions}, this sweep {self.versions}"
        return problem, "install the same on both"

    def _how_to_offer(self, target: str) -> str:
        if self.options.scheduler is None:
            return "it is not this machine's: name one that is, or give --scheduler"
        option = {"host": "--host", EMULATED: "--emulated"}.get(
            target.partition("@")[0], f"--device {target}"
        )
        return f"start it there: sme2prof worker --scheduler {self.options.scheduler.address} {option}"

    def _show(self) -> None:
        waiting = next((lane for lane in self.lanes if lane.left and lane.waited_s()), None)
        if waiting is not None:
            self._stage(f"waiting for {waiting.target}: {waiting.why}")
        elif not self.programs.under_way:
            self._stage("measuring")
        works = [work for lane in self.lanes for work in lane.works]
        visited = [lane.visiting.job for lane in self.lanes if lane.visiting is not None]
        self._shown.show(self.folder.record, works, visited, self.programs.exported)

    def _reckoned(self) -> SweepProgress:
        """Progress with what the jobs cost by what is exported so far."""
        cost = sweep_cost((work.job for lane in self.lanes for work in lane.works), self.folder.artifacts)
        costs = {each.job.id: each for each in cost.jobs}
        return SweepProgress(self.progress, costs, alone=self.options.scheduler is None)

    def _stage(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self.progress.stage(text)


def _of_dask(problem: Exception) -> str:
    if type(problem).__name__ == "KilledWorker":
        return "every worker that was to measure it ended in the middle of it"
    return f"unexpected {type(problem).__name__}: {problem}"
