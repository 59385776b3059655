"""A worker's side of a sweep: its devices, the runs that are open on them, and the files it was sent.

A visit measures one piece of one job from the run directory as the sweep has it. Runs stay open between
visits, so that a device is made ready once. If the files here differ from the sweep's (this worker was lost
for a while, or another one continued), the sweep's are taken and the run continues from them.
"""

from __future__ import annotations

import contextlib
import pickle
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from model_profiling.config.reading import ProfileConfig
from model_profiling.core import files
from model_profiling.core.errors import InputError, InUseError, ProfilingError, SetupError, refused_by_system
from model_profiling.core.formatting import plural
from model_profiling.pipeline.open_run import OpenRun, ReadyTarget, open_run
from model_profiling.pipeline.start import Start
from model_profiling.run.folders import holds_run
from model_profiling.sweep import messages
from model_profiling.sweep.exporting import Exporters
from model_profiling.targets import open_target
from model_profiling.targets.machine_lock import measuring_alone, working_beside
from model_profiling.targets.remote.target import RemoteTarget

NAME = "sme2prof"
"""The plugin's name on the kit's Dask workers."""
_IDLE_S = 90.0
"""How long a device that no sweep asks for stays open: a killed sweep tells nobody."""


@dataclass(slots=True)
class _Bench:
    """A device that is ready, with the runs that are open on it, all of one sweep."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    sweep: str = ""
    ready: ReadyTarget | None = None
    runs: dict[str, OpenRun] = field(default_factory=dict)
    visits: int = 0
    timer: threading.Timer | None = None

    def clear_later(self) -> None:
        """Close everything unless another visit comes soon. The caller holds the lock."""
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
        """Close every run, and the device; each run records `reason`, if there is one."""
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
                # A lost device cannot be restored either: the runs record that, the sweep its reason.
                with contextlib.suppress(ProfilingError, OSError):
                    ready.give_up(reason)


@dataclass(slots=True)
class DeviceServer:
    """What one worker has and does; a plugin of Dask's worker carries it (`worker.py`)."""

    name: str
    folder: Path
    devices: tuple[str, ...] = ()
    quiet_cores: tuple[int, ...] = ()
    exports: bool = True
    address: str = ""
    versions: messages.Versions = field(default_factory=messages.own_versions)
    _hashes: messages.Hashes = field(default_factory=messages.Hashes)
    _benches: dict[str, _Bench] = field(default_factory=dict)
    _exporters: Exporters = field(default_factory=Exporters)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def resources(self) -> dict[str, float]:
        """This worker's Dask resources: one of each device, its export slots and its quiet cores."""
        found = {messages.resource_of(device): 1.0 for device in self.devices}
        if self.exports:
            found[messages.EXPORTS] = float(self._exporters.count)
        if self.quiet_cores and any(device.startswith(messages.HOST) for device in self.devices):
            found[messages.QUIET] = float(len(self.quiet_cores))
        return found

    @property
    def threads(self) -> int:
        return len(self.devices) + (self._exporters.count if self.exports else 0)

    def answer(self, method: str, packed: bytes) -> bytes:
        """Do what a sweep asks. Both ways it is bytes, so that a scheduler needs no kit to pass it on."""
        known: dict[str, Callable[..., object]] = {
            "offer": self.offer,
            "export": self.export,
            "visit": self.visit,
            "put": self.put,
            "rest": self.rest,
            "forget": self.forget,
        }
        arguments = pickle.loads(packed)  # noqa: S301  Dask runs code of this sender anyway: docs/how-to/sweeps.md
        return pickle.dumps(known[method](*arguments))

    def offer(self) -> messages.Offer:
        return messages.Offer(
            self.address, self.name, self.versions, self.devices, self.quiet_cores, self.exports
        )

    def put(self, ask: messages.VisitAsk, program: messages.SentFiles, run: messages.SentFiles) -> None:
        with self._lock:
            bench = self._benches.setdefault(ask.device, _Bench())
        with bench.lock:
            if opened := bench.runs.pop(ask.job.id, None):
                opened.close()
            for folder, sent in ((self._program(ask), program), (self._run_dir(ask), run)):
                files.make_folder(folder)
                sent.lay_out(folder, self._hashes, "what the sweep sent")

    def _program(self, ask: messages.VisitAsk) -> Path:
        """Each job has its own folder for its program: the files beside equal programs may differ."""
        return self._home(ask.sweep) / "programs" / ask.job.id

    def _run_dir(self, ask: messages.VisitAsk) -> Path:
        return self._home(ask.sweep) / ask.job.run_dir

    def _home(self, sweep: str) -> Path:
        if not sweep.isalnum():
            raise InputError(f"{sweep!r} is not a sweep", "use the same version of the kit on both sides")
        return self.folder / "sweeps" / sweep

    def export(self, ask: messages.ExportAsk) -> messages.Exported | messages.Failed:
        """Export a program; the kit's own models need no file of the sweep's machine."""
        if ask.versions != self.versions:
            return self._other_versions(ask.versions)
        home = self._home(ask.sweep) / "exports" / ask.program.name
        try:
            with working_beside(f"exports {ask.program.name} (sme2prof sweep)"):
                pte = self._exporters.export(ask.program, home)
        except ProfilingError as problem:
            return messages.Failed(self.name, problem.problem, problem.fix)
        listing = {
            name: sha256 for name, sha256 in self._hashes.listing(home).items() if name.startswith(pte.name)
        }
        return messages.Exported(self.name, pte.name, messages.SentFiles.of(home, listing, {}))

    def visit(self, ask: messages.VisitAsk) -> messages.Visited | messages.Lacking | messages.Failed:
        """Measure the next piece of a job. After an error that is not the program's own the device is closed,
        and the next visit makes it ready again."""
        if ask.versions != self.versions:
            return self._other_versions(ask.versions)
        with self._lock:
            bench = self._benches.setdefault(ask.device, _Bench())
        with bench.lock:
            run_dir, program = self._run_dir(ask), self._program(ask)
            has = messages.Lacking(self.address, self._hashes.listing(program), self._hashes.listing(run_dir))
            if (has.program, has.run) != (ask.program, ask.run):
                return has
            try:
                return self._measure(bench, ask, program, run_dir)
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
        """Free the memory of the exporters: no more exports are wanted."""
        self._exporters.rest()

    def forget(self, sweep: str) -> None:
        """Close an ended sweep's devices and delete its files, in a thread that waits for its last tasks."""
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
        """Close everything; a piece in progress ends with the process."""
        for bench in list(self._benches.values()):
            if bench.lock.acquire(timeout=1):
                with contextlib.suppress(ProfilingError, OSError):
                    bench.clear()
                bench.lock.release()
        self._exporters.close()

    def _other_versions(self, theirs: messages.Versions) -> messages.Failed:
        problem = f"worker {self.name} runs {self.versions}, but the sweep runs {theirs}"
        return messages.Failed(self.name, problem, "install the same versions on both", device_gone=True)

    def _measure(
        self, bench: _Bench, ask: messages.VisitAsk, program: Path, run_dir: Path
    ) -> messages.Visited:
        on_this_machine = ask.device.startswith(messages.HOST)
        what = f"measures {ask.job.program.name} on {ask.device} (sme2prof sweep)"
        with measuring_alone(what, self.quiet_cores) if on_this_machine else working_beside(what):
            run = self._opened(bench, ask, program, run_dir)
            piece = run.step()
            left = run.left()
            if over := piece is None or left.nothing:
                run.finish()
                run.close()
                del bench.runs[ask.job.id]
                if not bench.runs:
                    bench.clear()
        return messages.Visited(self.name, self._changed(ask, run_dir), over, left)

    def _changed(self, ask: messages.VisitAsk, run_dir: Path) -> messages.SentFiles:
        return messages.SentFiles.of(run_dir, self._hashes.listing(run_dir), ask.run)

    def _opened(self, bench: _Bench, ask: messages.VisitAsk, program: Path, run_dir: Path) -> OpenRun:
        if bench.sweep != ask.sweep:
            bench.clear()
            bench.sweep = ask.sweep
        if run := bench.runs.get(ask.job.id):
            return run
        if bench.ready is None:
            bench.ready = _made_ready(ask)
        config = ask.job.config(program / ask.program_file, run_dir, bench.ready.target)
        if ask.device.startswith(messages.HOST):
            config = self._on_quiet_cores(config)
        way = Start(resume=holds_run(run_dir), command_line=("sme2prof", "sweep"))
        run = bench.runs[ask.job.id] = open_run(config, bench.ready, way)
        return run

    def _on_quiet_cores(self, config: ProfileConfig) -> ProfileConfig:
        """Pin `config` to this worker's quiet cores, unless it names cores itself."""
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

    def _failed(self, ask: messages.VisitAsk, run_dir: Path, problem: ProfilingError) -> messages.Failed:
        return messages.Failed(
            self.name,
            problem.problem,
            problem.fix,
            device_gone=isinstance(problem, SetupError) and ask.device != messages.EMULATED,
            in_use=isinstance(problem, InUseError),
            files=self._changed(ask, run_dir),
        )


def _made_ready(ask: messages.VisitAsk) -> ReadyTarget:
    target = open_target(ask.job.choice)
    if not isinstance(target, RemoteTarget):
        return ReadyTarget(target)
    target.shell.patience_s = ask.patience_s
    try:
        return ReadyTarget(target)
    except BaseException:
        target.close()
        raise
