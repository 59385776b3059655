"""An SME2 machine without SME2 hardware: the same runner under QEMU's user mode.

The kernels chosen, the numbers computed and the events recorded are real. The times are the emulator's and
mean nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from model_profiling.runner.build import RunnerBuild, build_runner
from model_profiling.runner.cache import confirm
from model_profiling.runner.platforms import this_platform
from model_profiling.targets.cross import build_cross_runner
from model_profiling.targets.execution import execute, execute_lockstep
from model_profiling.targets.lockstep import too_large_together, unfit_for_turns
from model_profiling.targets.machine import available_memory, host_facts
from model_profiling.targets.protocol import (
    Job,
    LockstepJob,
    LockstepOutcome,
    MachineFacts,
    Outcome,
    Platform,
    TargetChoice,
)
from model_profiling.targets.qemu import Qemu, find_qemu
from model_profiling.targets.remote.bundle import library_folders
from model_profiling.targets.transport import LocalTransport


class EmulatedTarget:
    """Runs aarch64 runners under `qemu-aarch64 -cpu max`."""

    name = "emulated"
    choice = TargetChoice("emulated")
    platform: Platform = "emulated"
    place: str = platform
    timings_are_latency = False

    def __init__(self, *, fetch: bool = True) -> None:
        self._fetch = fetch
        self.build: RunnerBuild | None = None
        self.qemu: Qemu | None = None
        self.sysroot: Path | None = None

    def prepare(self) -> None:
        if self.qemu is not None:
            return
        if this_platform().machine == "aarch64":
            self.build = build_runner(fetch=self._fetch)
        else:
            self.build, self.sysroot = build_cross_runner(fetch=self._fetch)
        self.qemu = find_qemu(self.build.path, self.sysroot, fetch=self._fetch)

    def execute(self, job: Job, into: Path, stem: str) -> Outcome:
        runner = self._runner()
        transport = LocalTransport(prefix=self.qemu.prefix if self.qemu else ())
        return execute(
            job,
            into,
            stem,
            runner=runner,
            transport=transport,
            timings_are_latency=False,
            code=self._code_folders(),
        )

    def execute_lockstep(self, job: LockstepJob, into: Path, stem: str) -> LockstepOutcome:
        runner = self._runner()
        transport = LocalTransport(prefix=self.qemu.prefix if self.qemu else ())
        return execute_lockstep(
            job, into, stem, runner=runner, transport=transport, timings_are_latency=False
        )

    def why_not_lockstep(self, jobs: Sequence[Job], peaks: Mapping[Path, int]) -> str | None:
        return unfit_for_turns(jobs) or too_large_together(jobs, peaks, available_memory())

    def _runner(self) -> tuple[str, ...]:
        if self.build is None:
            return ()
        emulator = (self.qemu.path,) if self.qemu else ()
        system = (self.sysroot,) if self.sysroot else ()
        confirm(self.build.path, self.build.library_path, *emulator, *system)
        return (str(self.build.path),)

    def _code_folders(self) -> tuple[Path, ...]:
        """Where the libraries are that the emulated machine sees elsewhere."""
        system = library_folders(self.sysroot) if self.sysroot else ()
        return (self.build.library_path, *system) if self.build else ()

    def facts(self) -> MachineFacts:
        if self.build is None or self.qemu is None:
            unknown = host_facts(None)
            return replace(
                unknown, cpu="QEMU, not prepared yet", features=(), features_source="not asked yet"
            )
        host = host_facts(self.build, qemu=self.qemu.version)
        return replace(
            host,
            cpu=f"QEMU {self.qemu.version} -cpu max, on {host.cpu}",
            machine="aarch64",
            features=self.qemu.features,
            features_source="the runner under QEMU",
        )
