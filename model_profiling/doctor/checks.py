"""Checks of the machine, each independent of the others and of any third-party package.

They run before the kit is installed, too (`check_prereqs.sh`, `validate_setup.py --prerequisites`).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling import process
from model_profiling.check import Check, CheckList, check_unless
from model_profiling.errors import SetupError
from model_profiling.runner.compilers import prospect
from model_profiling.runner.sdk import installed_sdk
from model_profiling.runner.source_build.toolchain import CMAKE_MINIMUM

if TYPE_CHECKING:
    from packaging.requirements import Requirement

PYTHON = ((3, 10), (3, 13))
NEEDED_GB = 1.0
INSTALL_GB = 4.0
DISTRIBUTION = "sme2-profiling-kit"


def python_version() -> Check:
    found = f"{platform.python_version()} at {sys.executable}"
    low, high = PYTHON
    if low <= sys.version_info[:2] <= high:
        return Check("Python", "pass", found)
    return Check("Python", "fail", found, f"use Python {low[0]}.{low[1]} to {high[0]}.{high[1]}")


def virtual_environments() -> Check:
    if all(importlib.util.find_spec(name) for name in ("ensurepip", "venv")):
        return Check("venv", "pass", "venv and pip can be made")
    fix = "apt install python3-venv, or as your system calls it"
    return Check("venv", "fail", "Python's venv module is missing", fix)


def compiler() -> Check:
    """Whether a C++17 program can be built: with what is installed, or with what the first build fetches."""
    found = prospect()
    if found.compiler is not None:
        return Check("C++ compiler", "pass", found.compiler.identity)
    problems = "; ".join(found.refused)
    if found.sources:
        return Check("C++ compiler", "pass", f"{problems}; the first build fetches one ({found.sources[0]})")
    return Check("C++ compiler", "fail", problems, found.fix)


def sdk() -> Check:
    """The headers and libraries in ExecuTorch's wheel that the runner is compiled against."""
    try:
        found = installed_sdk()
    except SetupError as problem:
        return Check("ExecuTorch SDK", "fail", problem.problem, problem.fix)
    return Check("ExecuTorch SDK", "pass", f"{found.version}, headers and libraries in place")


def git() -> Check:
    path = shutil.which("git")
    if path is None:
        return Check("git", "optional", "not found", "install git to fetch ExecuTorch's source or models")
    return Check("git", "pass", process.run([path, "--version"], timeout=20).stdout.strip())


def disk_space(needed_gb: float = NEEDED_GB) -> Check:
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    found = f"{free:.1f} GB free in {Path.cwd()}"
    short = [found] if free < needed_gb else []
    return check_unless(short, "disk space", found, f"free at least {needed_gb:.0f} GB")


def cmake() -> Check:
    path = shutil.which("cmake")
    needed = ".".join(map(str, CMAKE_MINIMUM))
    fix = f"pip install 'cmake>={needed}' ninja; only source-built runners need it"
    if path is None:
        return Check("CMake", "optional", "not found", fix)
    match = re.search(r"version (\d+)\.(\d+)", process.run([path, "--version"], timeout=20).stdout)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    found = f"{version[0]}.{version[1]} at {path}"
    if version >= CMAKE_MINIMUM:
        return Check("CMake", "pass", found)
    return Check("CMake", "optional", found, fix)


def ndk() -> Check:
    fix = "unpack an NDK (r28 or newer) and set ANDROID_NDK; only source-built Android runners need it"
    variables = ("ANDROID_NDK", "ANDROID_NDK_HOME", "ANDROID_NDK_ROOT")
    variable = next((name for name in variables if os.environ.get(name)), None)
    if variable is None:
        return Check("Android NDK", "optional", "ANDROID_NDK is not set", fix)
    place = os.environ[variable]
    properties = Path(place, "source.properties")
    if not properties.is_file():
        return Check("Android NDK", "optional", f"{variable}={place} holds no NDK", fix)
    text = properties.read_text(encoding="utf-8", errors="replace")
    match = re.search(r"Pkg\.Revision\s*=\s*(\S+)", text)
    return Check("Android NDK", "pass", f"{match[1] if match else 'unknown revision'} at {place}")


def adb() -> tuple[Check, tuple[str, ...]]:
    """adb and the serials of the devices that are ready."""
    path = shutil.which("adb")
    if path is None:
        return Check("adb", "optional", "not found", "install Android's platform-tools to profile phones"), ()
    listing = process.run([path, "devices"], timeout=30)
    if not listing.ok:
        failure = f"`adb devices` failed: {listing.tail(1)}"
        return Check("adb", "optional", failure, "adb kill-server, then again"), ()
    states = [line.strip().split("\t") for line in listing.stdout.splitlines() if "\t" in line]
    ready = tuple(serial for serial, state in states if state == "device")
    waiting = [f"{serial} is {state}" for serial, state in states if state != "device"]
    if ready:
        return Check("adb", "pass", f"devices: {', '.join((*ready, *waiting))}"), ready
    fix = "allow debugging on the device's screen" if waiting else "connect a device with USB debugging on"
    return Check("adb", "optional", ", ".join(waiting) or f"no device ({path})", fix), ()


def packages() -> Iterator[Check]:
    """Every package the kit asks for, and those ExecuTorch asks for: there, and of versions that fit."""
    try:
        yield from _requirements(DISTRIBUTION)
    except ImportError:
        fix = "bash model_profiling/scripts/setup_repo.sh"
        yield Check("Python packages", "fail", f"{DISTRIBUTION} is not installed", fix)
        return
    try:
        theirs = _requirements("executorch")
    except importlib.metadata.PackageNotFoundError:
        return
    yield from (check for check in theirs if check.status != "pass")
    if CheckList(tuple(theirs)).ok:
        yield Check("for ExecuTorch", "pass", f"the {len(theirs)} packages it asks for fit")


def _requirements(distribution: str) -> list[Check]:
    """What `distribution` asks for on this machine, one check a package."""
    from packaging.requirements import Requirement

    asked = [Requirement(line) for line in importlib.metadata.requires(distribution) or []]
    extras = ("", "executorch")
    return [
        _fits(requirement)
        for requirement in asked
        if not requirement.marker or any(requirement.marker.evaluate({"extra": extra}) for extra in extras)
    ]


def _fits(requirement: Requirement) -> Check:
    fix = f"pip install '{requirement.name}{requirement.specifier}'"
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return Check(requirement.name, "fail", "not installed", fix)
    if requirement.specifier.contains(version, prereleases=True):
        return Check(requirement.name, "pass", version)
    return Check(requirement.name, "fail", f"{version} does not fit {requirement.specifier}", fix)
