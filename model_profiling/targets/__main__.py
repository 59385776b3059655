"""Gets ready what `--target auto` uses here, ahead of the first run: `python -m model_profiling.targets`."""

from __future__ import annotations

import sys

from model_profiling.errors import ProfilingError
from model_profiling.printable import printable
from model_profiling.progress import Lines, watching
from model_profiling.runner.build import RunnerBuild
from model_profiling.runner.cache import take_remade
from model_profiling.signals import end_like_ctrl_c
from model_profiling.standard_streams import answered
from model_profiling.targets import plan_targets
from model_profiling.targets.emulated import EmulatedTarget
from model_profiling.targets.host import HostTarget
from model_profiling.targets.protocol import TargetChoice


@answered
def main() -> int:
    end_like_ctrl_c()
    try:
        with watching(Lines()):
            ready = _prepare()
    except ProfilingError as problem:
        print(printable(f"error: {problem}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130
    for note in take_remade():
        print(printable(f"warning: {note}"), file=sys.stderr)
    for line in ready:
        print(printable(line))
    return 0


def _prepare() -> list[str]:
    """One line for each target that is ready. Emulation may be out of reach: then the runner for this machine
    is what there is, and the doctor says how to get the rest."""
    try:
        plan = plan_targets(TargetChoice())
        kinds = {plan.main.kind, plan.evidence.kind}
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
    how = "found" if build.cached else f"built in {build.seconds:.1f} s with {build.compiler}"
    return f"target {name}: runner {build.build_id} for ExecuTorch {build.executorch_version}: {how}"


if __name__ == "__main__":
    sys.exit(main())
