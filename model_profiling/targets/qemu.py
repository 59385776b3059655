"""Finds a QEMU user-mode emulator that really has SME2, or gets one from Debian into the kit's cache.

A version number is only a hint: a candidate counts when the kit's own runner, run under it, reports SME2.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from model_profiling import files, process
from model_profiling.errors import SetupError
from model_profiling.runner.cache import cache_root
from model_profiling.runner.result import read_features
from model_profiling.targets import debian

NO_EMULATION = "QEMU's user mode runs on Linux only"
CURE = "install qemu-user 10.1 or newer and put qemu-aarch64 on the PATH"
_SUITE = "trixie-backports"
_MEMBER = "usr/bin/qemu-aarch64"


@dataclass(frozen=True, slots=True)
class Qemu:
    """An emulator that was seen to have SME2."""

    path: Path
    version: str
    features: tuple[str, ...]
    prefix: tuple[str, ...]


def find_qemu(runner: Path, sysroot: Path | None = None, *, fetch: bool = True) -> Qemu:
    """The first emulator with SME2: `$SME2PROF_QEMU`, the PATH, the cache, Debian's mirror."""
    if sys.platform != "linux":
        raise SetupError(NO_EMULATION, "use --target host, or a Linux machine")
    if chosen := os.environ.get("SME2PROF_QEMU"):
        return _require(Path(chosen), runner, sysroot, "correct SME2PROF_QEMU")
    refused = []
    for candidate in _installed():
        try:
            return _require(candidate, runner, sysroot, CURE)
        except SetupError as problem:
            refused.append(problem.problem)
    if not fetch:
        cure = f"the first --target emulated run fetches one where apt is at hand; else {CURE}"
        raise SetupError(refused[0] if refused else "no qemu-aarch64 was found", cure)
    return _require(fetch_qemu(), runner, sysroot, CURE)


def fetch_qemu() -> Path:
    """A QEMU from Debian's backports, kept in the cache."""
    home = _cached()
    with tempfile.TemporaryDirectory(prefix=".qemu.", dir=files.make_folder(home.parent)) as folder:
        debian.unpack_packages(
            ["qemu-user"],
            suite=_SUITE,
            architecture=debian.native_architecture(CURE),
            into=Path(folder),
            member=_MEMBER,
            cure=CURE,
        )
        (Path(folder) / _MEMBER).replace(home)
    return home


def _installed() -> Iterator[Path]:
    for name in ("qemu-aarch64", "qemu-aarch64-static"):
        if found := shutil.which(name):
            yield Path(found)
    if _cached().is_file():
        yield _cached()


def _cached() -> Path:
    return cache_root() / "qemu" / "qemu-aarch64"


def _require(path: Path, runner: Path, sysroot: Path | None, cure: str) -> Qemu:
    said = process.run([path, "--version"], timeout=30)
    number = re.search(r"version (\d+\.\d+(?:\.\d+)?)", said.stdout)
    if not said.ok or number is None:
        raise SetupError(f"{path} does not answer as a QEMU", cure)
    prefix = (str(path), "-cpu", "max", *(("-L", str(sysroot)) if sysroot else ()))
    probe = process.run([*prefix, runner, "--features-only"], timeout=120)
    features = read_features(probe.stdout) if probe.ok else ()
    if "sme2" not in features:
        trouble = (
            "has no SME2" if probe.ok else f"cannot run the runner ({probe.tail(1) or probe.returncode})"
        )
        raise SetupError(f"{path} is QEMU {number.group(1)} and {trouble}", cure)
    return Qemu(path, number.group(1), features, prefix)
