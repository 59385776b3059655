"""Runs a sweep: each export and each job is one Dask task. Exports are made on this machine.

Dask decides which worker does what and when, tries again, and outlives lost workers. A job's run comes home
whole, so a killed sweep loses only what was being measured.
"""

from __future__ import annotations

import contextlib
import queue
import secrets
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model_profiling.config import names
from model_profiling.config.reading import parse_config
from model_profiling.config.sweep import SweepConfig
from model_profiling.core.errors import InputError, ProfilingError, SetupError, refused_by_system
from model_profiling.core.formatting import plural
from model_profiling.core.hints import needed
from model_profiling.core.stdio import current_progress
from model_profiling.report.combined import NamedRun, latency_blocks
from model_profiling.report.data import report_data
from model_profiling.report.document import Block, Folded, Heading, make_list
from model_profiling.runs import Run
from model_profiling.runs.manifest import read_manifest
from model_profiling.store.labels import Labels, with_commit
from model_profiling.store.store import Store
from model_profiling.sweep import worker
from model_profiling.sweep.cells import (
    WORK,
    CellRecord,
    CellState,
    SweepFolder,
    SweepJob,
    SweepProgram,
    SweepRecord,
    open_sweep,
    program_path,
)
from model_profiling.targets.machine_lock import holder, working_beside
from model_profiling.workflow.measure import RunOptions, run_config
from model_profiling.workflow.report import write_page

_CONNECT_S = 20
_LOOK_S = 0.5
"""How often to look whether the scheduler is there, and to show progress."""
_NOTICE_S = 0.2
"""How long Dask's client may take to notice that the scheduler is gone."""
_RETRIES = 1
"""How many times Dask repeats a task after an error that may pass, such as a phone that was away."""
_RESUME = "continue the sweep with --resume"
_REASONS = {
    "KilledWorker": "every worker that tried it ended in the middle",
    "NoValidWorkerError": "no worker offers its device any more",
}


class SchedulerLost(SetupError):
    """The scheduler is gone, and with it every task."""


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """Where to write, which scheduler's workers to use (None: this machine's own), and whether to continue
    the sweep that is there."""

    outdir: Path
    scheduler: str | None = None
    resume: bool = False
    store: Store | None = None
    """Each run is added to it as soon as it is there."""


def run_sweep(sweep: SweepConfig, options: SweepOptions) -> SweepFolder:
    """Measure every cell of `sweep` into `options.outdir`. Each ends done, or failed with a reason. Only
    problems of the whole sweep are errors: no scheduler, a folder in use."""
    worker.quieten()
    with contextlib.ExitStack() as ends:
        # First, so that an earlier sweep is moved aside only by one that can begin.
        client = ends.enter_context(_connected(options.scheduler)) if options.scheduler else None
        folder = ends.enter_context(open_sweep(options.outdir, sweep, resume=options.resume))
        labels = with_commit(Labels(sweep=sweep.name))
        dispatch = _Dispatch(folder, options, labels)
        for job in folder.waiting_jobs():
            if folder.is_measured(job):
                dispatch.publish(job)
        if jobs := folder.waiting_jobs():
            resources = [] if client else [job.target for job in jobs]
            if not all(program_path(job.program, folder.artifacts).is_file() for job in jobs):
                resources.append(worker.EXPORTS)
            dispatch.exporter = ends.enter_context(_local_cluster(folder, resources)) if resources else client
            dispatch.client = client or dispatch.exporter
            dispatch.run(jobs)
        folder.end()
        return folder


@contextlib.contextmanager
def _connected(address: str) -> Iterator[Any]:
    try:
        client = needed("distributed", worker.EXTRA).Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as problem:
        raise SetupError(
            f"no scheduler answers at {address}",
            "start it (dask scheduler), or correct the address or Dask's TLS settings",
        ) from problem
    with client:
        yield client


@contextlib.contextmanager
def _local_cluster(folder: SweepFolder, resources: Sequence[str]) -> Iterator[Any]:
    """Start a scheduler in this process, and a worker process for each resource."""
    distributed, settings = needed("distributed", worker.EXTRA), needed("dask", worker.EXTRA).config
    workers = {
        name: {"cls": distributed.Nanny, "options": worker.nanny_options(name, [name], folder.path / WORK)}
        for name in dict.fromkeys(resources)
    }
    protocol = "tls" if settings.get("distributed.comm.require-encryption") else "tcp"
    options = {"host": worker.LOOPBACK, "port": 0, "protocol": protocol, **worker.NO_PAGE}
    scheduler = {"cls": distributed.Scheduler, "options": options}
    # A cluster gives up a worker that died 15 s ago; to start another one takes longer on a busy machine.
    with settings.set({"distributed.deploy.lost-worker-timeout": "1 day"}):
        try:
            cluster = distributed.SpecCluster(workers=workers, scheduler=scheduler, silence_logs=False)
        except (OSError, RuntimeError) as problem:
            raise SetupError(f"a worker process did not start ({problem})", _RESUME) from problem
        with cluster, distributed.Client(cluster, set_as_default=False) as client:
            yield client


def _resource_of(task: SweepJob | SweepProgram) -> str:
    return task.target if isinstance(task, SweepJob) else worker.EXPORTS


@dataclass(slots=True)
class _Dispatch:
    folder: SweepFolder
    options: SweepOptions
    labels: Labels
    client: Any = None
    """Of the workers that measure."""
    exporter: Any = None
    """A client of the worker that exports."""
    offered: Counter[str] = field(default_factory=Counter)
    """How many workers have each device."""
    jobs: dict[SweepProgram, list[SweepJob]] = field(default_factory=dict)
    waiting: dict[str, deque[SweepJob | SweepProgram]] = field(default_factory=dict)
    """By the resource they take, exports and jobs whose program is there."""
    running: dict[Any, SweepJob | SweepProgram] = field(default_factory=dict)
    """By the future of Dask. No more than workers can do at once: Dask blames a worker's death on all that it
    was given."""
    ended: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)

    def run(self, jobs: Sequence[SweepJob]) -> None:
        self._look_at_workers()
        if self.offered["host"] > 1 and any(job.target == "host" for job in jobs):
            raise InputError("several machines offer host", "let one offer it, and name the others ssh:HOST")
        for job in jobs:
            if self.offered[job.target]:
                self.jobs.setdefault(job.program, []).append(job)
            else:
                start = f"sme2prof worker --scheduler {self.options.scheduler} --target {job.target}"
                self.folder.fail(job, f"no worker offers {job.target}", f"start one: {start}; {_RESUME}")
        for program in self.jobs:
            if program_path(program, self.folder.artifacts).is_file():
                self._let_measure(program)
            else:
                self.waiting.setdefault(worker.EXPORTS, deque()).append(program)
        while self.running or any(self.waiting.values()):
            self._submit_waiting()
            self._show()
            try:
                self._take(self.ended.get(timeout=_LOOK_S))
            except queue.Empty:
                self._look_at_workers()

    def _look_at_workers(self) -> None:
        self._check_scheduler()
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        self.offered = Counter(name for state in workers for name in state["resources"])

    def _let_measure(self, program: SweepProgram) -> None:
        for job in self.jobs[program]:
            self.waiting.setdefault(job.target, deque()).append(job)

    def _submit_waiting(self) -> None:
        running = Counter(_resource_of(task) for task in self.running.values())
        for resource, tasks in self.waiting.items():
            free = max(1, self.offered[resource]) - running[resource]
            for task in [tasks.popleft() for _ in range(min(free, len(tasks)))]:
                with self._failures_of(task):
                    self._submit(task)

    def _submit(self, task: SweepJob | SweepProgram) -> None:
        call: tuple[Any, ...] = (worker.export_program, task, self.folder.artifacts.resolve())
        if isinstance(task, SweepJob):
            path = program_path(task.program, self.folder.artifacts)
            home = self.folder.run_dir(task).resolve(), path.resolve()
            call = (worker.measure_job, task, worker.pack_program(path), home)
        future = (self.client if isinstance(task, SweepJob) else self.exporter).submit(
            *call,
            worker.own_versions(),
            key=f"{task.id if isinstance(task, SweepJob) else task.name}-{secrets.token_hex(4)}",
            resources={_resource_of(task): 1},
            retries=_RETRIES,
            pure=False,
        )
        self.running[future] = task
        future.add_done_callback(self.ended.put)

    def _take(self, future: Any) -> None:
        task = self.running.pop(future)
        with self._failures_of(task):
            archive = self._archive_of(future)
            if isinstance(task, SweepProgram):
                self._let_measure(task)
            else:
                worker.unpack(archive, self.folder.run_dir(task))
                self.publish(task)

    def _archive_of(self, future: Any) -> bytes:
        self._check_scheduler()
        try:
            result: worker.TaskResult = future.result()
        except ProfilingError:
            raise
        except Exception as problem:
            reason = _REASONS.get(type(problem).__name__) or f"unexpected {type(problem).__name__}: {problem}"
            raise SetupError(reason, f"look at its worker; {_RESUME}") from problem
        if result.problem:
            raise InputError(result.problem, result.fix)
        return result.archive

    def _check_scheduler(self) -> None:
        if self.client.status != "running":
            raise SchedulerLost("the scheduler went away", f"start it again, then {_RESUME}")

    @contextlib.contextmanager
    def _failures_of(self, task: SweepJob | SweepProgram) -> Iterator[None]:
        """Record in the cells of a task why it failed; the other cells go on."""
        try:
            yield
        except SchedulerLost:
            raise
        except (ProfilingError, OSError) as problem:
            time.sleep(_NOTICE_S)
            self._check_scheduler()  # where it died, that is the reason, and no cell's failure
            if isinstance(problem, OSError):
                problem = InputError(refused_by_system(problem))
            for job in [task] if isinstance(task, SweepJob) else self.jobs[task]:
                self.folder.fail(job, problem.problem, problem.fix)

    def publish(self, job: SweepJob) -> None:
        """Analyse and report a run that came home, add it to the store, and record its cells: last, so that
        a sweep that ends before does this again when it is continued."""
        run_dir = self.folder.run_dir(job)
        manifest = read_manifest(run_dir)
        if manifest is None:
            raise InputError(f"{run_dir} holds no run", _RESUME)
        with working_beside(f"analyses {job.id} (sme2prof sweep)"):
            run_config(parse_config(manifest.settings, folder=run_dir), RunOptions(analysis_only=True))
        if self.options.store is not None:
            for refused in self.options.store.add([run_dir], self.labels).refused:
                raise InputError(refused.problem, refused.fix)
        self.folder.conclude(job)

    def _show(self) -> None:
        exporting = any(isinstance(task, SweepProgram) for task in self.running.values())
        current_progress().stage("exporting and measuring" if exporting else "measuring")
        counts = self.folder.record.counts()
        cells = sum(counts.values()) - counts.get("left out", 0)
        failed = [f"{counts['failed']} failed"] if counts.get("failed") else []
        here = holder() if self.options.scheduler is None else None
        detail = "; ".join([*failed, *([here] if here else [])])
        current_progress().advance(cells - counts.get("waiting", 0), cells, detail)


# The page: what failed, and the latency of every experiment.


def write_sweep_report(folder: Path, record: SweepRecord) -> tuple[Path, list[NamedRun]]:
    """Write the page; return it and the runs that are on it."""
    runs = []
    for run_dir, cell in {cell.run_dir: cell.cell for cell in record.cells if cell.run_dir}.items():
        try:
            data = report_data(Run.open(folder / run_dir), None)
        except ProfilingError:
            continue  # what is wrong with it is in its cells
        runs.append(NamedRun(cell.job_id, data, link=f"{run_dir}/{names.REPORT_PAGE}"))
    page = folder / names.REPORT
    return write_page(sweep_document(record, runs), page, sweep_title(record)), runs


def sweep_document(record: SweepRecord, runs: Sequence[NamedRun]) -> list[Block]:
    left_out = [f"{plural(len(cells), 'cell')}: {reason}" for reason, cells in _by_reason(record, "left out")]
    return [
        Heading(sweep_title(record), 1),
        *make_list(failures(record) or ["Every cell is done."]),
        Heading("Experiments"),
        *latency_blocks(runs),
        *make_list(["`sme2prof compare` tells a difference from noise."]),
        *([Folded("Cells left out", tuple(make_list(left_out)))] if left_out else []),
    ]


def sweep_title(record: SweepRecord) -> str:
    """`Sweep nightly: 30 of 34 cells done, 4 failed`, without cells that were left out."""
    counts = record.counts()
    cells = sum(count for state, count in counts.items() if state != "left out")
    others = [f"{counts[state]} {state}" for state in ("failed", "waiting") if state in counts]
    done = f"{counts.get('done', 0)} of {plural(cells, 'cell')} done"
    return f"Sweep {record.name}: {', '.join((done, *others))}"


def failures(record: SweepRecord) -> list[str]:
    """A line for each reason, with the first cell that failed for it."""
    lines = []
    for reason, cells in _by_reason(record, "failed"):
        others = f" and {plural(len(cells) - 1, 'other cell')}" if cells[1:] else ""
        lines.append(f"{cells[0].cell.id}{others}: {reason}")
    return lines


def _by_reason(record: SweepRecord, state: CellState) -> list[tuple[str, list[CellRecord]]]:
    reasons: dict[str, list[CellRecord]] = {}
    for cell in record.cells:
        if cell.state == state:
            reasons.setdefault(f"{cell.reason}; {cell.fix}" if cell.fix else cell.reason, []).append(cell)
    return list(reasons.items())
