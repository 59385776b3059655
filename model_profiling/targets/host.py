"""The machine this Python runs on."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from model_profiling.runner.build import RunnerBuild, build_runner
from model_profiling.runner.cache import confirm
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
from model_profiling.targets.transport import LocalTransport


class HostTarget:
    """Runs the kit's runner, or any executor_runner, natively."""

    name = "host"
    choice = TargetChoice("host")
    platform: Platform = "mac" if sys.platform == "darwin" else "linux"
    place: str = platform
    timings_are_latency = True

    def __init__(self) -> None:
        self.build: RunnerBuild | None = None

    def prepare(self) -> None:
        if self.build is None:
            self.build = build_runner()

    def execute(self, job: Job, into: Path, stem: str) -> Outcome:
        runner = self._runner()
        code = (self.build.library_path,) if self.build else ()
        return execute(job, into, stem, runner=runner, transport=LocalTransport(), code=code)

    def execute_lockstep(self, job: LockstepJob, into: Path, stem: str) -> LockstepOutcome:
        runner = self._runner()
        return execute_lockstep(job, into, stem, runner=runner, transport=LocalTransport())

    def why_not_lockstep(self, jobs: Sequence[Job], peaks: Mapping[Path, int]) -> str | None:
        return unfit_for_turns(jobs) or too_large_together(jobs, peaks, available_memory())

    def _runner(self) -> tuple[str, ...]:
        if self.build is None:
            return ()
        confirm(self.build.path)
        return (str(self.build.path),)

    def facts(self) -> MachineFacts:
        return host_facts(self.build)
