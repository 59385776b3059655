"""Prepares the targets of `--target auto` before the first run: `python -m model_profiling.targets`."""

from __future__ import annotations

import sys

from model_profiling.core.errors import ProfilingError
from model_profiling.core.stdio import checked_output
from model_profiling.runner.__main__ import describe, make_ready
from model_profiling.runner.build import RunnerBuild
from model_profiling.runner.machine import TargetChoice
from model_profiling.targets import plan_targets
from model_profiling.targets.emulated import EmulatedTarget
from model_profiling.targets.host import HostTarget


@checked_output
def main() -> int:
    return make_ready(_prepare)


def _prepare() -> list[str]:
    """Return one line per target; if emulation is not available, prepare the host instead."""
    try:
        plan = plan_targets(TargetChoice())
        kinds = {plan.main.name, plan.evidence.name}
    except ProfilingError:
        kinds = {"host"}
    ready = []
    if "emulated" in kinds:
        emulated = EmulatedTarget()
        try:
            emulated.prepare()
            version = emulated.facts().versions["qemu"]
            ready.append(_line("emulated", emulated.build) + f", with QEMU {version}")
        except ProfilingError as problem:
            ready.append(f"target emulated: not ready: {problem.problem}")
            kinds.add("host")
    if "host" in kinds:
        host = HostTarget()
        host.prepare()
        ready.append(_line("host", host.build))
    return ready


def _line(name: str, build: RunnerBuild | None) -> str:
    assert build is not None
    return f"target {name}: {describe(build)}"


if __name__ == "__main__":
    sys.exit(main())
