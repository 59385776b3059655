"""Where programs run. A new kind of target is one file here and one row in `_KINDS`."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass

from model_profiling.errors import InputError
from model_profiling.runner.features import host_features
from model_profiling.targets.emulated import EmulatedTarget
from model_profiling.targets.host import HostTarget
from model_profiling.targets.protocol import Job, MachineFacts, Outcome, Platform, Target

__all__ = [
    "Job",
    "MachineFacts",
    "Outcome",
    "Platform",
    "Target",
    "TargetPlan",
    "open_target",
    "plan_targets",
    "target_kinds",
    "why_not_yet",
]

# Each row: the name users type, and how the target is made from what follows the colon, if anything does.
_KINDS: dict[str, Callable[[str], Target]] = {
    "host": lambda _detail: HostTarget(),
    "emulated": lambda _detail: EmulatedTarget(),
}

# Names that configs may hold already; each has an effect once it has a row above.
_PLANNED = ("android",)


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """Where latencies are measured, where kernel evidence is gathered, and why, in words."""

    timing: str
    evidence: str
    reason: str


def target_kinds() -> tuple[str, ...]:
    """Every name `open_target` accepts, `auto` first."""
    return ("auto", *_KINDS)


def open_target(name: str) -> Target:
    """The target a user named; `auto` is where latencies are measured."""
    kind, _, detail = (plan_targets(name).timing if name == "auto" else name).partition(":")
    if problem := why_not_yet(name):
        raise InputError(problem, f"use {' or '.join(_KINDS)}")
    if kind not in _KINDS:
        raise InputError(f"unknown target {name!r}", f"choose from {', '.join(target_kinds())}")
    return _KINDS[kind](detail)


def why_not_yet(name: str) -> str | None:
    """What is missing of a target that is planned but cannot be opened; None for every other."""
    kind = name.partition(":")[0]
    return f"target {kind} is not built yet" if kind in _PLANNED and kind not in _KINDS else None


def plan_targets(name: str) -> TargetPlan:
    """What `name` means on this machine; anything but `auto` means itself."""
    if name != "auto":
        return TargetPlan(name, name, f"{name} was asked for")
    if "sme2" in host_features():
        return TargetPlan("host", "host", "this CPU has SME2")
    lacks = f"this CPU ({platform.machine()}) has no SME2"
    if sys.platform != "linux":
        return TargetPlan("host", "host", f"{lacks}, and QEMU's user mode runs on Linux only")
    return TargetPlan("host", "emulated", f"{lacks}: latencies come from it, SME2 evidence from emulation")
