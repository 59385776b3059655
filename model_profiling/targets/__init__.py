"""Where programs run. A new kind of target is one file here and one row in `_KINDS`."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.core.errors import InputError
from model_profiling.core.formatting import listing
from model_profiling.runner.features import host_features, is_arm
from model_profiling.runner.machine import MachineFacts, TargetChoice, TargetKind, parse_target, target_kinds
from model_profiling.targets.emulated import NO_EMULATION, EmulatedTarget
from model_profiling.targets.execution import Target
from model_profiling.targets.host import HostTarget
from model_profiling.targets.job import Job, LockstepJob, LockstepOutcome, Outcome
from model_profiling.targets.remote import RemoteTarget
from model_profiling.targets.remote.android import AndroidTarget
from model_profiling.targets.remote.ssh import SshTarget

__all__ = [
    "Job",
    "LockstepJob",
    "LockstepOutcome",
    "MachineFacts",
    "Outcome",
    "Target",
    "TargetChoice",
    "TargetPlan",
    "open_target",
    "parse_target",
    "plan_targets",
    "target_kinds",
]

_KINDS: dict[TargetKind, Callable[[TargetChoice], Target]] = {
    "host": lambda _choice: HostTarget(),
    "emulated": lambda _choice: EmulatedTarget(),
    "android": AndroidTarget,
    "ssh": SshTarget,
}


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """Where the reported run is made, where kernel evidence is gathered, and why, in words."""

    main: TargetChoice
    evidence: TargetChoice
    reason: str
    lacks: str = ""
    """The part of `reason` that says that the main machine has no SME2; empty if it has."""

    def shown_by(self, runs: Sequence[Path]) -> TargetPlan:
        """The plan if `runs` made elsewhere show what runs on SME2."""
        if not runs or not self.lacks:
            return self
        reason = f"{self.lacks}; what runs on SME2 is shown by {listing(map(str, runs))}"
        return TargetPlan(self.main, self.main, reason, self.lacks)


_ELSEWHERE = f"no kernel evidence, because {NO_EMULATION} (--evidence takes it from a run on another machine)"


def open_target(choice: TargetChoice) -> Target:
    """Open the chosen target; `auto` is the one that `plan_targets` picks for this machine."""
    if choice.name == "auto":
        choice = plan_targets(choice).main
    return _KINDS[choice.name](choice)


def plan_targets(choice: TargetChoice) -> TargetPlan:
    """Decide what `choice` means on this machine; a remote machine is asked whether it has SME2."""
    if choice.name != "auto":
        target = open_target(choice)
        if isinstance(target, RemoteTarget):
            return _plan_remote(target)
        return TargetPlan(choice, choice, f"target {choice.name}, as requested")
    host, emulated = TargetChoice("host"), TargetChoice("emulated")
    if "sme2" in host_features():
        return TargetPlan(host, host, "this CPU has SME2: SME2 on and off are measured on it")
    can_emulate = sys.platform == "linux"
    if not is_arm(platform.machine()):
        what = f"this CPU ({platform.machine()}) is not an Arm CPU"
        if not can_emulate:
            raise InputError(
                f"{what}, and {NO_EMULATION}",
                "use an Arm or a Linux machine; --target host measures this "
                "CPU, which says nothing about Arm",
            )
        return TargetPlan(
            emulated, emulated, f"{what}: emulation shows what runs on SME2, no latency is measured"
        )
    lacks = f"this CPU ({platform.machine()}) has no SME2: latency is measured here"
    if not can_emulate:
        return TargetPlan(host, host, f"{lacks}; {_ELSEWHERE}", lacks)
    return TargetPlan(host, emulated, f"{lacks}; only emulation can show what runs on SME2", lacks)


def _plan_remote(target: RemoteTarget) -> TargetPlan:
    """Measure latency on the remote machine; if it has no SME2, emulate here what SME2 runs."""
    try:
        target.prepare()
        choice, name, has_sme2 = target.choice, target.name, target.facts().has_sme2
    finally:
        target.close()
    if target.why_emulated:
        why = f"{name} does not count as hardware ({target.why_emulated})"
        return TargetPlan(choice, choice, f"{why}: no latency is measured")
    if has_sme2:
        return TargetPlan(choice, choice, f"{name} has SME2: SME2 on and off are measured on it")
    lacks = f"{name} has no SME2: latency is measured there"
    if sys.platform != "linux":
        return TargetPlan(choice, choice, f"{lacks}; {_ELSEWHERE}", lacks)
    reason = f"{lacks}; only emulation can show what runs on SME2"
    return TargetPlan(choice, TargetChoice("emulated"), reason, lacks)
