"""CPU features by their common names: which a machine has, which go together, and the ladder that removes
them one by one.

A feature is switched off by clearing its flags in cpuinfo before XNNPACK reads them. The runner gets those
flags by name; only this table says which flags belong to which feature.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from model_profiling.core import process
from model_profiling.core.errors import InputError, SetupError


@dataclass(frozen=True, slots=True)
class Feature:
    """One CPU feature and its names in Linux, macOS and cpuinfo."""

    name: str
    linux: str
    macos: str
    flags: tuple[str, ...]


_SME = ("sme", "sme_i16i32", "sme_bi32i32", "sme_b16b16", "sme_f16f16")
_TABLE = (
    Feature("sme2", "sme2", "FEAT_SME2", ("sme2", "sme2p1")),
    Feature("sme", "sme", "FEAT_SME", _SME),
    Feature("sve2", "sve2", "FEAT_SVE2", ("sve2",)),
    Feature("sve", "sve", "FEAT_SVE", ("sve",)),
    Feature("i8mm", "i8mm", "FEAT_I8MM", ("i8mm",)),
    Feature("bf16", "bf16", "FEAT_BF16", ("bf16",)),
    Feature("dotprod", "asimddp", "FEAT_DotProd", ("dot",)),
    Feature("fp16", "asimdhp", "FEAT_FP16", ("fp16arith", "fhm")),
)

FEATURES: tuple[str, ...] = tuple(feature.name for feature in _TABLE)
"""Every feature, newest first: the order in which the ladder removes them."""

PROC_CPUINFO = Path("/proc/cpuinfo")

SME2_ONLY = "sme2-only"
"""Switches SME2 off but keeps SME. `sme2` switches both off: that is what people mean by "SME2 off"."""

_BY_NAME = {feature.name: feature for feature in _TABLE}

# Switching off the key also switches these off: a newer version cannot stay without the older one.
_GO_TOGETHER: dict[str, tuple[str, ...]] = {
    SME2_ONLY: (),
    "sme2": ("sme",),
    "sme": ("sme2",),
    "sve": ("sve2",),
    "dotprod": ("i8mm",),
}


@dataclass(frozen=True, slots=True)
class LadderStep:
    """One step of the ablation ladder: what is switched off, and which features are left."""

    disable: tuple[str, ...]
    left: tuple[str, ...]


def closure(disable: Iterable[str]) -> tuple[str, ...]:
    """Return everything that `disable` switches off, in table order; applying it twice changes nothing."""
    off: set[str] = set()
    for name in disable:
        if name not in _BY_NAME and name != SME2_ONLY:
            raise InputError(
                f"unknown CPU feature {name!r}", f"choose from {', '.join((*FEATURES, SME2_ONLY))}"
            )
        off |= {name, *_GO_TOGETHER.get(name, ())}
    if "sme2" in off:
        off.discard(SME2_ONLY)
    return tuple(name for name in (SME2_ONLY, *FEATURES) if name in off)


def cpuinfo_flags(disable: Iterable[str]) -> tuple[str, ...]:
    return tuple(
        flag for name in closure(disable) for flag in _BY_NAME["sme2" if name == SME2_ONLY else name].flags
    )


def features_of_flags(flags: Iterable[str]) -> tuple[str, ...]:
    """Return the features whose first cpuinfo flag is in `flags`, in table order."""
    given = set(flags)
    return tuple(feature.name for feature in _TABLE if feature.flags[0] in given)


def ladder(present: Iterable[str]) -> tuple[LadderStep, ...]:
    """Return the rungs from all features of the machine down to plain NEON, one fewer at each."""
    left = [name for name in FEATURES if name in set(present)]
    rungs = [LadderStep((), tuple(left))]
    off: list[str] = []
    while left:
        gone = left.pop(0)
        off.append(gone)
        sme_stays = gone == "sme2" and "sme" in left
        rungs.append(LadderStep((SME2_ONLY,) if sme_stays else closure(off), tuple(left)))
    return tuple(rungs)


# The folders of macOS's own commands, for a PATH that leaves them out.
_MAC_FOLDERS = "/usr/bin:/usr/sbin"


def mac_says(command: str, *words: str) -> str:
    """Return what one of macOS's own commands prints; empty if it does not answer."""
    path = shutil.which(command, path=f"{os.environ.get('PATH', '')}:{_MAC_FOLDERS}")
    try:
        done = process.run([path, *words], timeout=10) if path else None
    except SetupError:
        return ""
    return done.stdout if done and done.ok else ""


def sysctl(name: str) -> str:
    return mac_says("sysctl", "-n", name).strip()


def is_arm(machine: str) -> bool:
    """Whether `machine` (`uname -m`) is a 64-bit Arm CPU."""
    return machine.lower() in ("aarch64", "arm64")


def host_features() -> frozenset[str]:
    """Return the features of this machine; empty if its CPU is not Arm, or does not say."""
    if not is_arm(platform.machine()):
        return frozenset()
    if sys.platform == "darwin":
        return from_sysctl(mac_says("sysctl", "hw.optional.arm"))
    try:
        return from_proc_cpuinfo(PROC_CPUINFO.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return frozenset()


def from_proc_cpuinfo(text: str) -> frozenset[str]:
    """Return the features that every core in `/proc/cpuinfo` has."""
    cores = [set(line.split()) for line in re.findall(r"(?m)^Features[ \t]*:(.*)$", text)]
    if not cores:
        return frozenset()
    shared = set.intersection(*cores)
    return frozenset(feature.name for feature in _TABLE if feature.linux in shared)


def from_sysctl(text: str) -> frozenset[str]:
    """Return the features that `sysctl hw.optional.arm` reports as 1."""
    on = set(re.findall(r"(?m)^hw\.optional\.arm\.(\w+): 1[ \t]*$", text))
    return frozenset(feature.name for feature in _TABLE if feature.macos in on)


System = Literal["linux", "macos"]


@dataclass(frozen=True, slots=True)
class Platform:
    """An operating system and a CPU architecture, by the names that Linux wheels and compilers use."""

    system: System
    machine: str

    @property
    def is_native(self) -> bool:
        return self == this_platform()

    def __str__(self) -> str:
        return f"{self.machine} {_TITLES[self.system]}"


def this_platform() -> Platform:
    machine = platform.machine().lower()
    return Platform("macos" if sys.platform == "darwin" else "linux", _NAMES.get(machine, machine))


_TITLES: dict[System, str] = {"linux": "Linux", "macos": "macOS"}
_NAMES = {"arm64": "aarch64", "amd64": "x86_64"}
AARCH64_LINUX = Platform("linux", "aarch64")
AARCH64_MACOS = Platform("macos", "aarch64")
