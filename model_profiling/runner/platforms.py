"""The kinds of machine a runner is compiled for."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from typing import Literal

System = Literal["linux", "macos", "android"]


@dataclass(frozen=True, slots=True)
class Platform:
    """An operating system and a CPU architecture, by the names that wheels and compilers use for Linux."""

    system: System
    machine: str

    @property
    def is_native(self) -> bool:
        return self == this_platform()

    def __str__(self) -> str:
        return f"{self.machine} {_TITLES[self.system]}"


def this_platform() -> Platform:
    """The machine this Python runs on."""
    machine = platform.machine().lower()
    return Platform("macos" if sys.platform == "darwin" else "linux", _NAMES.get(machine, machine))


_TITLES: dict[System, str] = {"linux": "Linux", "macos": "macOS", "android": "Android"}
_NAMES = {"arm64": "aarch64", "amd64": "x86_64"}
AARCH64_LINUX = Platform("linux", "aarch64")
AARCH64_MACOS = Platform("macos", "aarch64")
