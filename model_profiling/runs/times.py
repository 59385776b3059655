"""What a time means: only times measured on hardware are latencies, and times of unknown origin are not.

The manifest says it. Without one, the names of emulated runs still tell.
"""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path

from model_profiling.config import names


class Times(str, Enum):
    HARDWARE = "hardware"
    """Measured on the named CPU: latencies."""
    TRACED = "traced"
    """From a run that logs or counts kernels, which slows it down."""
    EMULATED = "emulated"
    """From an emulator; they mean nothing."""
    UNKNOWN = "unknown"
    """Shown as recorded, but nothing is concluded from them."""

    @property
    def are_latencies(self) -> bool:
        return self is Times.HARDWARE

    @property
    def are_shown(self) -> bool:
        """Whether milliseconds may be printed at all."""
        return self in (Times.HARDWARE, Times.UNKNOWN)

    @property
    def origin(self) -> str:
        return _ORIGINS[self]


_ORIGINS = {
    Times.HARDWARE: "hardware",
    Times.TRACED: "a run that traces kernels",
    Times.EMULATED: "an emulated run",
    Times.UNKNOWN: "an unknown machine",
}

NOT_ARM = "(not Arm): measured on a CPU that is not Arm, which says nothing about Arm."
"""Explains the mark."""


def marked(text: str, is_arm: bool | None) -> str:
    """Return `text`, marked if its times were measured on a CPU that is not Arm (`Manifest.is_arm`)."""
    return f"{text} (not Arm)" if is_arm is False else text


TRACING_MODES = ("xnntrace", "trace")


def times_of_mode(mode: str, target: Times) -> Times:
    return Times.TRACED if target is Times.HARDWARE and mode in TRACING_MODES else target


def times_without_manifest(path: Path) -> Times:
    """Return what the times of a file or folder without a manifest mean: emulated runs of the kit have names
    that say so; about any other, nothing is known."""
    whole = path.resolve()
    folders = [whole, *whole.parents][:4] if path.is_dir() else list(whole.parents)[:3]
    named = any(re.match(r"emulated($|[-_])", folder.name) for folder in folders)
    named = named or re.search(r"(^|_)emulated_", names.dump_stem(path.name)) is not None
    return Times.EMULATED if named else Times.UNKNOWN
