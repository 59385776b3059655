"""The machine this Python runs on."""

from __future__ import annotations

import sys
from pathlib import Path

from model_profiling.runner.build import RunnerBuild, build_runner
from model_profiling.targets.execution import Launch, execute
from model_profiling.targets.machine import host_facts
from model_profiling.targets.protocol import Job, MachineFacts, Outcome, Platform


class HostTarget:
    """Runs the kit's runner, or any executor_runner, natively."""

    name = "host"
    timings_are_latency = True

    def __init__(self) -> None:
        self.build: RunnerBuild | None = None

    @property
    def platform(self) -> Platform:
        return "mac" if sys.platform == "darwin" else "linux"

    def prepare(self) -> None:
        if self.build is None:
            self.build = build_runner()

    def execute(self, job: Job, into: Path, stem: str) -> Outcome:
        return execute(job, Launch(self.build.path if self.build else None), into, stem)

    def facts(self) -> MachineFacts:
        versions = {}
        if self.build is not None:
            versions = {"executorch": self.build.executorch_version, "compiler": self.build.compiler}
        return host_facts(versions)
