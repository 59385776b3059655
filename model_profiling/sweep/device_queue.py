"""The queue of each device in a sweep, and the progress of the sweep."""

from __future__ import annotations

import contextlib
import random
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError, ProfilingError
from model_profiling.core.number_formats import parse_format
from model_profiling.core.progress import Progress
from model_profiling.export.records import read_export
from model_profiling.models import registry
from model_profiling.pipeline.open_run import RemainingWork
from model_profiling.sweep.cells import Job, JobCost, Program, SweepRecord, lane_of, longest
from model_profiling.sweep.exporting import Exporters
from model_profiling.sweep.messages import EMULATED, Exported, Hashes, Listing
from model_profiling.workflow.profile import current_export

_PAUSES_S = (1.0, 2.0, 5.0, 15.0)


# The order in which several runs on one device get their pieces. First every run collects its evidence, which
# is not timed. Then each round gives every run one launch, in an order drawn from the seed and the round's
# number, so that slow changes of the device (heat, clocks, other work) affect all alike. Energy and sampling
# run long and alone, so they wait until no launch is left that they could heat up.

_Phase = Literal["evidence", "launches", "afterwards"]


@dataclass(slots=True)
class Interleaved:
    """Decides which run is next. A continued sweep passes `round`, so that no order is drawn twice."""

    seed: int
    round: int = 0
    _phases: dict[str, _Phase] = field(default_factory=dict)
    """Every run that has not ended, in the order they joined."""
    _turns: list[str] = field(default_factory=list)
    """Runs still to visit in this round, in order."""

    def join(self, runs: Iterable[str]) -> None:
        """Add runs: their evidence comes at once, their launches from the next round on."""
        for run in runs:
            self._phases.setdefault(run, "evidence")

    def next(self) -> str | None:
        """Return the run to visit, or None if all have ended. It stays the same until `visited` or `leave` is
        called, so that a lost visit is repeated."""
        if found := self._in("evidence"):
            return found[0]
        if not self._turns and (turns := sorted(self._in("launches"))):
            random.Random(f"{self.seed}/{self.round}").shuffle(turns)
            self._turns, self.round = turns, self.round + 1
        return next(iter(self._turns or self._in("afterwards")), None)

    def visited(self, run: str, left: RemainingWork) -> None:
        """Record that one piece of `run` was measured, and what is left."""
        known = run in self._phases
        self.leave(run, ended=left.nothing)
        if known and not left.nothing:
            self._phases[run] = (
                "evidence" if left.evidence else "launches" if left.launches.most else "afterwards"
            )

    def leave(self, run: str, *, ended: bool = True) -> None:
        """Remove a run from this round, and from all if it has ended or cannot go on."""
        if ended:
            self._phases.pop(run, None)
        if run in self._turns:
            self._turns.remove(run)

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(self._phases)

    def _in(self, phase: _Phase) -> list[str]:
        return [run for run, its in self._phases.items() if its == phase]


@dataclass(slots=True, eq=False)
class Work:
    job: Job
    seconds_left: float | None = None
    """From the last visit; None before the first."""
    over: bool = False
    """Whether nothing is left to measure, for whatever reason."""


@dataclass(slots=True, eq=False)
class DeviceQueue:
    """A device and its jobs: one visit at a time, so that nothing disturbs a measurement. Emulation measures
    no time, so each of its jobs has its own queue."""

    target: str
    works: list[Work]
    device: str | None = None
    """The workers' name for it, once one of them offers it."""
    turns: Interleaved = field(default_factory=lambda: Interleaved(secrets.randbits(32)))
    visiting: Work | None = None
    future: Any = None
    workers: tuple[str, ...] = ()
    lacked: int = 0
    """How often in a row the worker lacked files for the next visit."""
    was_there: bool = False
    lost_at: float | None = None
    """Since when visits fail; None while they succeed."""
    why: str = ""
    fix: str = ""
    tries: int = 0
    not_before: float = 0.0

    @property
    def left(self) -> list[Work]:
        return [work for work in self.works if not work.over]

    def next(self) -> Work | None:
        """The job whose piece is next; the same until its turn is recorded."""
        turn = self.turns.next()
        return next((work for work in self.left if work.job.id == turn), None)

    def end(self, work: Work) -> None:
        work.over, self.lacked = True, 0
        self.turns.leave(work.job.id)

    def lost(self, why: str, fix: str) -> None:
        """Record that it cannot be reached for now; it is tried again after a pause."""
        now = time.monotonic()
        self.lost_at = now if self.lost_at is None else self.lost_at
        self.why, self.fix = why, fix
        self.not_before = now + _PAUSES_S[min(self.tries, len(_PAUSES_S) - 1)]
        self.tries += 1

    def drop(self) -> None:
        if self.future is not None:
            with contextlib.suppress(Exception):  # there may be no scheduler to tell
                self.future.cancel()
        self.future = self.visiting = None

    def found(self) -> None:
        self.was_there, self.lost_at, self.lacked, self.tries, self.not_before = True, None, 0, 0, 0.0

    def waited_s(self) -> float:
        """For how long it has been out of reach; 0 while it is not."""
        return time.monotonic() - self.lost_at if self.lost_at is not None else 0.0


def queues_of(jobs: list[Job]) -> list[DeviceQueue]:
    """One queue per target, or per emulated job, in the order of the sweep."""
    queues: dict[str, DeviceQueue] = {}
    for job in jobs:
        key = job.id if job.target == EMULATED else job.target
        queues.setdefault(key, DeviceQueue(job.target, [])).works.append(Work(job))
    for queue in queues.values():
        queue.turns.join(work.job.id for work in queue.works)
    return list(queues.values())


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """Reports a sweep to `progress`. `costs` are the estimates by job; `alone` means that this machine does
    everything, so it emulates and measures one after the other."""

    progress: Progress
    costs: Mapping[str, JobCost]
    alone: bool

    def show(
        self,
        record: SweepRecord,
        works: Sequence[Work],
        visited: Iterable[Job],
        exported: tuple[int, int] | None = None,
    ) -> None:
        """Report how many cells have ended, the time left, and what is measured where. During exports, report
        the count of programs `exported` instead: nobody knows their time."""
        cells = [each for each in record.cells if each.state != "left out"]
        ended = sum(each.ended for each in cells)
        failed = sum(each.state == "failed" for each in cells)
        said = [f"{failed} failed"] if failed else []
        said += [f"{job.target}: {job.cells[0].run_name}" for job in visited]
        if exported is not None:
            self.progress.advance(*exported, "; ".join(said))
        else:
            self.progress.advance(ended, len(cells), "; ".join(said), self.seconds_left(works))

    def seconds_left(self, works: Sequence[Work]) -> float | None:
        """Estimate the time left, if any is known. A job without a time counts as the mean of the others."""
        known = {work.job.id: seconds for work in works if (seconds := self._seconds(work)) is not None}
        if not known:
            return None
        usual = sum(known.values()) / len(known)
        return longest(
            (lane_of(work.job.target) if self.alone else work.job.target, known.get(work.job.id, usual))
            for work in works
            if not work.over
        )

    def _seconds(self, work: Work) -> float | None:
        if work.seconds_left:  # unknown until a launch was timed
            return work.seconds_left
        cost = self.costs.get(work.job.id)
        return cost.seconds if cost else None


# The programs of a sweep: each is exported once, by whichever worker has time, or used as it is.

_BESIDE = (".etrecord", ".json")


@dataclass(frozen=True, slots=True)
class ReadyProgram:
    path: Path
    files: Listing


@dataclass(slots=True)
class Programs:
    artifacts: Path
    hashes: Hashes
    resume: bool
    ready: dict[Program, ReadyProgram] = field(default_factory=dict)
    failed: dict[Program, ProfilingError] = field(default_factory=dict)
    under_way: dict[Any, Program] = field(default_factory=dict)
    """By the future of Dask or of this process."""
    _exporters: Exporters = field(default_factory=Exporters)
    _pool: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(self._exporters.count, "export")

    def settled(self, program: Program) -> bool:
        return program in self.ready or program in self.failed

    @property
    def exported(self) -> tuple[int, int] | None:
        """Settled and wanted programs; None once all are settled."""
        settled = len({*self.ready, *self.failed})
        return (settled, settled + len(self.under_way)) if self.under_way else None

    def find(self, program: Program) -> bool:
        """Whether it needs no export: it is a .pte file, or an earlier export is still current."""
        try:
            if program.exported:
                path = Path(program.model)
                if not path.is_file():
                    raise InputError(f"there is no program {path}", "correct the path in the sweep")
                self.add(program, path)
            elif found := self._earlier(program):
                self.add(program, found)
        except ProfilingError as problem:
            self.failed[program] = problem
        return self.settled(program)

    def _earlier(self, program: Program) -> Path | None:
        """A continued sweep keeps the programs it has."""
        path = self.artifacts / f"{program.name}.pte"
        if self.resume and path.is_file():
            try:
                whole = files.sha256(path) == read_export(path).sha256
            except ProfilingError:
                whole = False
            return path if whole else None
        if program.keep or program.calibration:
            return None
        return current_export(program.model, program.dtype, program.backend, self.artifacts)

    def add(self, program: Program, path: Path) -> None:
        beside = [path, *(found for end in _BESIDE if (found := Path(f"{path}{end}")).is_file())]
        self.ready[program] = ReadyProgram(path, {each.name: self.hashes.of(each) for each in beside})

    def take(self, program: Program, answer: Exported) -> None:
        wanted = f"{program.name}.pte"
        if answer.program_file != wanted or not all(
            name.startswith(wanted) for name in (wanted, *answer.files.listing)
        ):
            raise FormatError(
                f"worker {answer.name} exported something other than {wanted}",
                "stop that worker, then continue the sweep with --resume",
            )
        answer.files.lay_out(self.artifacts, self.hashes, f"worker {answer.name}", exactly=False)
        self.add(program, self.artifacts / wanted)

    def export_here(self, program: Program, wake: Callable[[Any], None]) -> None:
        """Export in a child process here: a user's own model may import what other machines do not have."""
        future = self._pool.submit(self._exporters.export, program, self.artifacts)
        self.under_way[future] = program
        future.add_done_callback(wake)

    def rest(self) -> None:
        self._exporters.close()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._exporters.close()


def exports_anywhere(program: Program) -> bool:
    """Whether any machine with the kit exports the same: a model of the kit or ExecuTorch, from no file."""
    chosen = registry.choose(program.model)
    own_format = parse_format(program.dtype or "fp32").kind == "own"
    if chosen is None or program.calibration or own_format:
        return False
    return not chosen.files and registry.discover()[chosen.model].source in ("kit", "executorch")
