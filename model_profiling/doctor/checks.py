"""Checks of the machine, each independent of the others and of any third-party package.

They run before the kit is installed, too (`check_prereqs.sh`, `validate_setup.py --prerequisites`).
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling import process
from model_profiling.check import Check
from model_profiling.errors import SetupError
from model_profiling.runner.build import find_compiler
from model_profiling.runner.sdk import installed_sdk

if TYPE_CHECKING:
    from packaging.requirements import Requirement

PYTHON = ((3, 10), (3, 13))
NEEDED_GB = 1.0
INSTALL_GB = 4.0
CMAKE = (3, 29)
DISTRIBUTION = "sme2-profiling-kit"
_CXX17 = "#include <optional>\nint main() { std::optional<int> x{0}; return *x; }\n"


def python_version() -> Check:
    found = f"{platform.python_version()} at {sys.executable}"
    low, high = PYTHON
    if low <= sys.version_info[:2] <= high:
        return Check("Python", "pass", found)
    return Check("Python", "fail", found, f"use Python {low[0]}.{low[1]} to {high[0]}.{high[1]}")


def virtual_environments() -> Check:
    try:
        import ensurepip
        import venv
    except ImportError:
        return Check(
            "venv",
            "fail",
            "Python's venv module is missing",
            "apt install python3-venv, or as your system calls it",
        )
    del ensurepip, venv
    return Check("venv", "pass", "venv and pip can be made")


def compiler() -> Check:
    """Whether the compiler the runner's build would take can make a C++17 program that runs."""
    try:
        chosen = find_compiler()
    except SetupError as problem:
        return Check("C++ compiler", "fail", problem.problem, problem.fix)
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder, "probe.cpp"), Path(folder, "probe")
        source.write_text(_CXX17, encoding="utf-8")
        built = process.run([*chosen.command, "-std=c++17", source, "-o", binary], timeout=60)
        if built.ok and process.run([binary], timeout=20).ok:
            return Check("C++ compiler", "pass", chosen.identity)
    return Check(
        "C++ compiler",
        "fail",
        f"{chosen.identity} cannot build a C++17 program: {built.tail(1)}",
        "install its C++ standard library (apt install g++), or set CXX to another compiler",
    )


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
    if free < needed_gb:
        return Check("disk space", "fail", found, f"free at least {needed_gb:.0f} GB")
    return Check("disk space", "pass", found)


def cmake() -> Check:
    path = shutil.which("cmake")
    fix = f"pip install 'cmake>={CMAKE[0]}.{CMAKE[1]}' ninja; only source-built runners need it"
    if path is None:
        return Check("CMake", "optional", "not found", fix)
    match = re.search(r"version (\d+)\.(\d+)", process.run([path, "--version"], timeout=20).stdout)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    found = f"{version[0]}.{version[1]} at {path}"
    return Check("CMake", "pass", found) if version >= CMAKE else Check("CMake", "optional", found, fix)


def ndk() -> Check:
    fix = "unpack an NDK (r28 or newer) and set ANDROID_NDK; only source-built Android runners need it"
    for variable in ("ANDROID_NDK", "ANDROID_NDK_HOME", "ANDROID_NDK_ROOT"):
        place = os.environ.get(variable)
        if not place:
            continue
        properties = Path(place, "source.properties")
        if not properties.is_file():
            return Check("Android NDK", "optional", f"{variable}={place} holds no NDK", fix)
        match = re.search(
            r"Pkg\.Revision\s*=\s*(\S+)", properties.read_text(encoding="utf-8", errors="replace")
        )
        return Check("Android NDK", "pass", f"{match[1] if match else 'unknown revision'} at {place}")
    return Check("Android NDK", "optional", "ANDROID_NDK is not set", fix)


def adb() -> tuple[Check, tuple[str, ...]]:
    """adb and the serials of the devices that are ready."""
    path = shutil.which("adb")
    if path is None:
        return Check("adb", "optional", "not found", "install Android's platform-tools to profile phones"), ()
    listing = process.run([path, "devices"], timeout=30)
    if not listing.ok:
        return Check(
            "adb", "optional", f"`adb devices` failed: {listing.tail(1)}", "adb kill-server, then again"
        ), ()
    states = [line.split("\t") for line in listing.stdout.splitlines() if "\t" in line]
    ready = tuple(serial for serial, state in states if state.strip() == "device")
    waiting = [f"{serial} is {state.strip()}" for serial, state in states if state.strip() != "device"]
    if ready:
        return Check("adb", "pass", f"devices: {', '.join((*ready, *waiting))}"), ready
    fix = "allow debugging on the device's screen" if waiting else "connect a device with USB debugging on"
    return Check("adb", "optional", ", ".join(waiting) or f"no device ({path})", fix), ()


def packages() -> Iterator[Check]:
    """Every package the kit asks for, and those ExecuTorch asks for: there, and of versions that fit."""
    try:
        from packaging.requirements import Requirement

        asked = [Requirement(line) for line in importlib.metadata.requires(DISTRIBUTION) or []]
    except (ImportError, importlib.metadata.PackageNotFoundError):
        yield Check(
            "Python packages",
            "fail",
            f"{DISTRIBUTION} is not installed",
            "bash model_profiling/scripts/setup_repo.sh",
        )
        return
    for requirement in asked:
        if _applies(requirement):
            yield _fits(requirement)
    try:
        upstream = [Requirement(line) for line in importlib.metadata.requires("executorch") or []]
    except importlib.metadata.PackageNotFoundError:
        return
    theirs = [_fits(requirement) for requirement in upstream if _applies(requirement)]
    yield from (check for check in theirs if check.status != "pass")
    if all(check.status == "pass" for check in theirs):
        yield Check("for ExecuTorch", "pass", f"the {len(theirs)} packages it asks for fit")


def _applies(requirement: Requirement) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", "executorch"))


def _fits(requirement: Requirement) -> Check:
    fix = f"pip install '{requirement.name}{requirement.specifier}'"
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return Check(requirement.name, "fail", "not installed", fix)
    if requirement.specifier.contains(version, prereleases=True):
        return Check(requirement.name, "pass", version)
    return Check(requirement.name, "fail", f"{version} does not fit {requirement.specifier}", fix)
