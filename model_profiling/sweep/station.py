"""A worker's side of a sweep: its devices, the runs that are open on them, and the files it was sent.

A visit measures one piece of one job from the run directory as the sweep has it. Between visits runs stay
open, so that a device is made ready once; where what lies here is not what the sweep has (this worker was
lost for a while, or another one went on), the sweep's word counts and the run is continued from there.
"""

from __future__ import annotations

import contextlib
import pickle
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from model_profiling.config.reading import ProfileConfig
from model_profiling.core import files
from model_profiling.core.errors import InputError, InUseError, ProfilingError, SetupError, refused_by_system
from model_profiling.core.formatting import plural
from model_profiling.pipeline.open_run import OpenRun, ReadyTarget, open_run
from model_profiling.pipeline.start import Start
from model_profiling.run.folders import holds_run
from model_profiling.sweep.exporting import Exporters
from model_profiling.sweep.machine_lock import measuring_alone, working_beside
from model_profiling.sweep.messages import (
    EMULATED,
    EXPORTS,
    HOST,
    QUIET,
    Blobs,
    ExportAsk,
    Exported,
    Failed,
    Hashes,
    Lacking,
    Listing,
    Offer,
    Versions,
    VisitAsk,
    Visited,
    checked_listing,
    contents,
    lay_out,
    own_versions,
    read_piece,
    resource_of,
)
from model_profiling.targets import open_target
from model_profiling.targets.remote.target import RemoteTarget

NAME = "sme2prof"
"""Of the plugin that a Dask worker of the kit's has."""
_WHOLE = 8 << 20
"""Bytes of files that come back with an answer; larger ones are fetched piece by piece."""
_IDLE_S = 90.0
"""After which a device that no sweep asks for is let go: a sweep that was killed tells nobody."""


class _LacksFiles(Exception):
    """What has to be sent first."""

    def __init__(self, hashes: tuple[str, ...]) -> None:
        super().__init__()
        self.hashes = hashes


@dataclass(slots=True)
class _Bench:
    """One device: made ready, with the runs that are open on it. All of them are one sweep's."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    sweep: str = ""
    ready: ReadyTarget | None = None
    runs: dict[str, OpenRun] = field(default_factory=dict)
    visits: int = 0
    timer: threading.Timer | None = None

    def clear_later(self) -> None:
        """Let go of everything, unless there is another visit before long. Whoever calls it has the lock."""
        self.visits += 1
        last = self.visits

        def clear() -> None:
            with self.lock:
                if self.visits == last:
                    with contextlib.suppress(ProfilingError, OSError):
                        self.clear()

        if self.timer is not None:
            self.timer.cancel()
        self.timer = threading.Timer(_IDLE_S, clear)
        self.timer.daemon = True
        self.timer.start()

    def clear(self, reason: BaseException | None = None) -> None:
        """Let go of every run, and of the device; each run says for what `reason`, where there is one."""
        runs, self.runs = self.runs, {}
        ready, self.ready = self.ready, None
        with contextlib.ExitStack() as ends:
            if ready is not None:
                if isinstance(ready.target, RemoteTarget):
                    ends.callback(ready.target.close)
                ends.callback(ready.close)
            for run in runs.values():
                ends.callback(run.close)
            if ready is not None and reason is not None:
                # A device that is lost cannot be put back either: the runs keep that, the sweep its reason.
                with contextlib.suppress(ProfilingError, OSError):
                    ready.give_up(reason)


@dataclass(slots=True)
class Station:
    """What one worker has and does; Dask's worker carries it as a plugin (`worker.py`)."""

    name: str
    folder: Path
    devices: tuple[str, ...] = ()
    quiet_cores: tuple[int, ...] = ()
    exports: bool = True
    address: str = ""
    versions: Versions = field(default_factory=own_versions)
    _hashes: Hashes = field(default_factory=Hashes)
    _benches: dict[str, _Bench] = field(default_factory=dict)
    _exporters: Exporters = field(default_factory=Exporters)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _laying: threading.Lock = field(default_factory=threading.Lock)

    @property
    def resources(self) -> dict[str, float]:
        """What Dask is told this worker has: one of each device, and as many quiet cores as it keeps."""
        found = {resource_of(device): 1.0 for device in self.devices}
        if self.exports:
            found[EXPORTS] = float(self._exporters.count)
        if self.quiet_cores and any(device.startswith(HOST) for device in self.devices):
            found[QUIET] = float(len(self.quiet_cores))
        return found

    @property
    def threads(self) -> int:
        """What may be under way at once."""
        return len(self.devices) + (self._exporters.count if self.exports else 0)

    def answer(self, method: str, packed: bytes) -> bytes:
        """Do what a sweep asks for. Both ways it is bytes, so that a scheduler needs no kit to pass it on."""
        known: dict[str, Callable[..., object]] = {
            "offer": self.offer,
            "export": self.export,
            "visit": self.visit,
            "lacking": self.lacking,
            "put": self.put,
            "get": self.get,
            "rest": self.rest,
            "forget": self.forget,
        }
        arguments = pickle.loads(packed)  # noqa: S301  from whom Dask takes code anyway: docs/sweeps.md
        return pickle.dumps(known[method](*arguments))

    def offer(self) -> Offer:
        return Offer(self.address, self.name, self.versions, self.devices, self.quiet_cores, self.exports)

    # Files.

    def lacking(self, hashes: Sequence[str]) -> list[str]:
        return self._blobs.lacking(hashes)

    def put(self, sha256: str, offset: int, piece: bytes, size: int) -> None:
        self._blobs.put(sha256, offset, piece, size)

    def get(self, sweep: str, name: str, offset: int) -> bytes:
        """A piece of a file below a sweep's folder here."""
        checked_listing({name: "0" * 64}, "the file asked for")
        return read_piece(self._home(sweep) / name, offset)

    @property
    def _blobs(self) -> Blobs:
        return Blobs(self.folder / "blobs")

    def _home(self, sweep: str) -> Path:
        if not sweep.isalnum():
            raise InputError(f"{sweep!r} names no sweep", "both sides are to run the same version of the kit")
        return self.folder / "sweeps" / sweep

    # Work.

    def export(self, ask: ExportAsk) -> Exported | Failed:
        """Export a program. One of the kit's own models needs no file of the sweep's machine."""
        if ask.versions != self.versions:
            return self._other_versions(ask.versions)
        home = self._home(ask.sweep) / "exports" / ask.program.name
        try:
            with working_beside():
                pte = self._exporters.export(ask.program, home)
        except ProfilingError as problem:
            return Failed(self.address, self.name, problem.problem, problem.fix)
        listing = {
            path.relative_to(home).as_posix(): self._hashes.of(path)
            for path in sorted(home.iterdir())
            if path.name.startswith(pte.name)
        }
        return Exported(self.address, self.name, pte.name, listing, contents(home, listing, _WHOLE))

    def visit(self, ask: VisitAsk) -> Visited | Lacking | Failed:
        """Measure the next piece of a job. What ends it for a reason that is not the program's own closes
        everything on the device: the next visit begins with a device made ready anew."""
        if ask.versions != self.versions:
            return self._other_versions(ask.versions)
        with self._lock:
            bench = self._benches.setdefault(ask.device, _Bench())
        with bench.lock:
            run_dir = self._home(ask.sweep) / ask.job.run_dir
            # Programs that are the same under two names are two: what lies beside them may differ.
            program = (
                self._home(ask.sweep) / "programs" / ask.program[ask.program_file] / ask.job.program.name
            )
            try:
                self._check_sent(ask, program, run_dir)
                return self._measure(bench, ask, program, run_dir)
            except _LacksFiles as lacking:
                return Lacking(self.address, lacking.hashes)
            except ProfilingError as problem:
                bench.clear(problem)
                return self._failed(ask, run_dir, problem)
            except OSError as problem:
                told = InputError(*refused_by_system(problem).rsplit("; ", 1))
                bench.clear(told)
                return self._failed(ask, run_dir, told)
            except BaseException as problem:
                bench.clear(problem)
                raise
            finally:
                if bench.ready is not None:
                    bench.clear_later()

    def rest(self) -> None:
        """No more exports are wanted: the memory is for others."""
        self._exporters.rest()

    def forget(self, sweep: str) -> None:
        """A sweep has ended: let go of its devices and its files, once what is under way for it has ended.
        Whoever asks does not wait for that."""
        home = self._home(sweep)

        def let_go() -> None:
            for bench in list(self._benches.values()):
                with bench.lock:
                    if bench.sweep == sweep:
                        with contextlib.suppress(ProfilingError, OSError):  # a device that is gone
                            bench.clear()
            shutil.rmtree(home, ignore_errors=True)

        self.rest()
        threading.Thread(target=let_go, daemon=True).start()

    def close(self) -> None:
        """Let go of everything; what is in the middle of a piece ends with the process."""
        for bench in list(self._benches.values()):
            if bench.lock.acquire(timeout=1):
                with contextlib.suppress(ProfilingError, OSError):
                    bench.clear()
                bench.lock.release()
        self._exporters.close()

    def _other_versions(self, theirs: Versions) -> Failed:
        problem = f"worker {self.name} runs {self.versions}, the sweep {theirs}"
        return Failed(self.address, self.name, problem, "install the same on both", device_gone=True)

    def _check_sent(self, ask: VisitAsk, program: Path, run_dir: Path) -> None:
        needed: set[str] = set()
        for folder, listing in ((program, ask.program), (run_dir, ask.run)):
            have = self._hashes.listing(folder) if folder.is_dir() else {}
            needed |= {sha256 for name, sha256 in listing.items() if have.get(name) != sha256}
        if lacking := tuple(self._blobs.lacking(needed)):
            raise _LacksFiles(lacking)

    def _lay_out(self, ask: VisitAsk, program: Path, run_dir: Path) -> None:
        """Files as the sweep has them. Visits of other devices may need the same ones, and drop them."""
        with self._laying:
            self._check_sent(ask, program, run_dir)
            for folder, listing in ((program, ask.program), (run_dir, ask.run)):
                files.make_folder(folder)
                lay_out(folder, checked_listing(listing, "what the sweep sent"), self._blobs, self._hashes)
            self._blobs.drop({*ask.program.values(), *ask.run.values()})

    def _measure(self, bench: _Bench, ask: VisitAsk, program: Path, run_dir: Path) -> Visited:
        began = time.monotonic()
        on_this_machine = ask.device.startswith(HOST)
        with measuring_alone(self.quiet_cores) if on_this_machine else working_beside():
            run = self._opened(bench, ask, program, run_dir)
            piece = run.step()
            left = run.left()
            if over := piece is None or left.nothing:
                run.finish()
                run.close()
                del bench.runs[ask.job.id]
                if not bench.runs:
                    bench.clear()
        listing = self._hashes.listing(run_dir)
        return Visited(
            self.address,
            self.name,
            listing,
            contents(run_dir, _changed(listing, ask.run), _WHOLE),
            over,
            left,
            round(time.monotonic() - began, 4),
        )

    def _opened(self, bench: _Bench, ask: VisitAsk, program: Path, run_dir: Path) -> OpenRun:
        """The run as the sweep has it: the open one if it is that, else continued from what the sweep has."""
        if bench.sweep != ask.sweep:
            bench.clear()
            bench.sweep = ask.sweep
        run = bench.runs.get(ask.job.id)
        if run is not None and self._hashes.listing(run_dir) == ask.run:
            return run
        if run is not None:
            run.close()
            del bench.runs[ask.job.id]
        self._lay_out(ask, program, run_dir)
        if bench.ready is None:
            bench.ready = _made_ready(ask)
        config = ask.job.config(program / ask.program_file, run_dir, bench.ready.target)
        if ask.device.startswith(HOST):
            config = self._on_quiet_cores(config)
        way = Start(resume=holds_run(run_dir), command_line=("sme2prof", "sweep"))
        run = bench.runs[ask.job.id] = open_run(config, bench.ready, way)
        return run

    def _on_quiet_cores(self, config: ProfileConfig) -> ProfileConfig:
        """`config` on the cores that this worker keeps for measuring, unless it says which itself."""
        if not self.quiet_cores:
            return config
        most = max(count for each in config.experiments for count in each.threads)
        if most > len(self.quiet_cores):
            raise InputError(
                f"{plural(most, 'thread')} do not fit on {plural(len(self.quiet_cores), 'quiet core')}"
                f" of worker {self.name}",
                "start the worker with more --quiet-cores, or leave those cells out",
            )
        experiments = tuple(
            each if each.cpu_affinity else each.model_copy(update={"cpu_affinity": self.quiet_cores})
            for each in config.experiments
        )
        return config.model_copy(update={"experiments": experiments})

    def _failed(self, ask: VisitAsk, run_dir: Path, problem: ProfilingError) -> Failed:
        listing = self._hashes.listing(run_dir) if run_dir.is_dir() else {}
        return Failed(
            self.address,
            self.name,
            problem.problem,
            problem.fix,
            device_gone=isinstance(problem, SetupError) and ask.device != EMULATED,
            in_use=isinstance(problem, InUseError),
            files=listing or None,
            contents=contents(run_dir, _changed(listing, ask.run), _WHOLE),
        )


def _made_ready(ask: VisitAsk) -> ReadyTarget:
    target = open_target(ask.job.choice)
    if not isinstance(target, RemoteTarget):
        return ReadyTarget(target)
    target.shell.patience_s = ask.patience_s
    try:
        return ReadyTarget(target)
    except BaseException:
        target.close()
        raise


def _changed(listing: Mapping[str, str], before: Mapping[str, str]) -> Listing:
    return {name: sha256 for name, sha256 in listing.items() if before.get(name) != sha256}
