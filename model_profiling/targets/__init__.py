"""Where programs run. A new kind of target is one file here and one row in `_KINDS`."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from model_profiling.errors import InputError
from model_profiling.runner.features import host_features, is_arm
from model_profiling.targets.emulated import EmulatedTarget
from model_profiling.targets.host import HostTarget
from model_profiling.targets.protocol import (
    Job,
    LockstepJob,
    LockstepOutcome,
    LockstepTarget,
    MachineFacts,
    Outcome,
    Target,
    TargetChoice,
    TargetKind,
)
from model_profiling.targets.qemu import NO_EMULATION

__all__ = [
    "Job",
    "LockstepJob",
    "LockstepOutcome",
    "LockstepTarget",
    "MachineFacts",
    "Outcome",
    "Target",
    "TargetChoice",
    "TargetPlan",
    "open_target",
    "parse_target",
    "plan_targets",
    "target_kinds",
    "why_not_yet",
]

# How each kind is made; one without a row may be named in a config, and cannot be opened yet.
_KINDS: dict[TargetKind, Callable[[TargetChoice], Target]] = {
    "host": lambda _choice: HostTarget(),
    "emulated": lambda _choice: EmulatedTarget(),
}


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """Where the run that is reported is made, where kernel evidence is gathered, and why, in words."""

    main: TargetChoice
    evidence: TargetChoice
    reason: str


def target_kinds() -> tuple[TargetKind, ...]:
    """Every kind `open_target` accepts, `auto` first."""
    return ("auto", *_KINDS)


def parse_target(text: str) -> TargetChoice:
    """What `--target` says: a kind and, after a colon, the serial or network address of a device."""
    word, _, device = text.partition(":")
    known: tuple[TargetKind, ...] = get_args(TargetKind)
    kind = next((name for name in known if name == word), None)
    if kind is None:
        raise InputError(f"unknown target {text!r}", f"choose from {', '.join(target_kinds())}")
    if device and kind != "android":
        raise InputError(f"target {kind} is no device that {device!r} could name", f"write {kind} alone")
    return TargetChoice(kind, remote=device) if ":" in device else TargetChoice(kind, serial=device or None)


def open_target(choice: TargetChoice) -> Target:
    """The target chosen; `auto` is where this machine's answer comes from."""
    choice = plan_targets(choice).main
    if problem := why_not_yet(choice):
        raise InputError(problem, f"use {' or '.join(_KINDS)}")
    return _KINDS[choice.kind](choice)


def why_not_yet(choice: TargetChoice) -> str | None:
    """What is missing of a target that may be named but not opened; None for every other."""
    return None if choice.kind in target_kinds() else f"target {choice.kind} is not built yet"


def plan_targets(choice: TargetChoice) -> TargetPlan:
    """What `choice` means on this machine; anything but `auto` means itself."""
    if choice.kind != "auto":
        return TargetPlan(choice, choice, f"{choice.kind} was asked for")
    host, emulated = TargetChoice("host"), TargetChoice("emulated")
    if "sme2" in host_features():
        return TargetPlan(host, host, "this CPU has SME2: on and off are measured on it")
    can_emulate = sys.platform == "linux"
    if not is_arm(platform.machine()):
        what = f"this CPU ({platform.machine()}) is not an Arm CPU"
        if not can_emulate:
            raise InputError(
                f"{what}, and {NO_EMULATION}",
                "use an Arm or a Linux machine, or --target host for times that say nothing about Arm",
            )
        return TargetPlan(
            emulated, emulated, f"{what}: what SME2 runs comes from emulation, no latency is measured"
        )
    lacks = f"this CPU ({platform.machine()}) has no SME2: one baseline is measured on it"
    if not can_emulate:
        return TargetPlan(host, host, f"{lacks}; no kernel evidence, because {NO_EMULATION}")
    return TargetPlan(host, emulated, f"{lacks}, what SME2 runs comes from emulation")
