"""Checks of the machine, which need no third-party package: some run before the kit is installed."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.core import process
from model_profiling.core.errors import ProfilingError, SetupError
from model_profiling.core.hints import (
    DISTRIBUTION,
    install_extra,
    pip_install,
    set_up,
    sme2prof,
    with_another_python,
)
from model_profiling.core.records import Check, CheckList, check_unless, read_record
from model_profiling.runner.build import installed_sdk
from model_profiling.runner.cache import check_cache, state_root
from model_profiling.runner.compilers import ZIG, can_be_fetched, find_compiler
from model_profiling.runner.features import this_platform
from model_profiling.runner.fetching import fix_for
from model_profiling.targets.machine_lock import holder, lock_of
from model_profiling.targets.power_mode import FIX, Unfinished
from model_profiling.targets.remote.android import find_adb

if TYPE_CHECKING:
    from packaging.requirements import Requirement


PYTHON = ((3, 10), (3, 13))
NEEDED_GB = 1.0
INSTALL_GB = 4.0


def _found(name: str, find: Callable[[], str]) -> Check:
    """A check that passes with what `find` returns."""
    try:
        return Check(name, "pass", find())
    except SetupError as problem:
        return Check(name, "fail", problem.problem, problem.fix)


def python_version() -> Check:
    version = f"{platform.python_version()} at {sys.executable}"
    low, high = PYTHON
    if low <= sys.version_info[:2] <= high:
        return Check("Python", "pass", version)
    fix = f"{with_another_python()}, with a Python {low[0]}.{low[1]} to {high[0]}.{high[1]}"
    return Check("Python", "fail", version, fix)


def virtual_environments() -> Check:
    if all(importlib.util.find_spec(name) for name in ("ensurepip", "venv")):
        return Check("venv", "pass", "virtual environments with pip can be created")
    return Check("venv", "fail", "Python's venv module is missing", fix_for("venv"))


def compiler() -> Check:
    """Whether a C++17 program can be built, with a compiler that is there or that the first build fetches."""
    try:
        return Check("C++ compiler", "pass", find_compiler(fetch=False).identity)
    except SetupError as problem:
        if can_be_fetched(this_platform()):
            return Check("C++ compiler", "pass", f"{problem.problem}; the first build downloads one ({ZIG})")
        return Check("C++ compiler", "fail", problem.problem, problem.fix)


def cache() -> Check:
    """Whether only the kit can have put there what it runs from the cache."""
    return _found("cache", lambda: f"{check_cache()}, where only you can write")


def sdk() -> Check:
    """The headers and libraries in ExecuTorch's wheel that the runner is compiled against."""
    return _found("ExecuTorch SDK", lambda: f"{installed_sdk().version}, headers and libraries in place")


def git() -> Check:
    """Start git, not just look for it: the `git` of a bare macOS only asks for the developer tools."""
    path = shutil.which("git")
    version = process.run([path, "--version"], timeout=20) if path else None
    if version and version.ok:
        return Check("git", "pass", version.stdout.strip())
    problem = f"{path} does not work" if path else "not found"
    words = f"{problem}; needed only to download ExecuTorch's source"
    return Check("git", "optional", words, fix_for("git"))


def disk_space(needed_gb: float = NEEDED_GB) -> Check:
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    space = f"{free:.1f} GB free in {Path.cwd()}"
    short = [space] if free < needed_gb else []
    return check_unless(short, "disk space", space, f"free at least {needed_gb:.0f} GB")


def cmake() -> Check:
    # pip puts them beside this Python.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    lacking = [name for name in ("cmake", "ninja") if shutil.which(name, path=path) is None]
    if lacking:
        missing = f"no {lacking[0]}; needed only for runners built from source"
        return Check("CMake", "optional", missing, install_extra("source-build"))
    return Check("CMake", "pass", f"{shutil.which('cmake', path=path)}, with Ninja")


def ndk() -> Check:
    names = ("ANDROID_NDK", "ANDROID_NDK_HOME", "ANDROID_NDK_ROOT")
    folder = next((os.environ[name] for name in names if os.environ.get(name)), None)
    if folder and Path(folder, "build/cmake/android.toolchain.cmake").is_file():
        return Check("Android NDK", "pass", folder)
    what = f"{folder} is not an NDK" if folder else "ANDROID_NDK is not set"
    fix = "unpack an Android NDK, r27 or newer, and set ANDROID_NDK to its folder"
    return Check("Android NDK", "optional", f"{what}; needed only for Android runners built from source", fix)


def adb() -> tuple[Check, tuple[str, ...]]:
    """Check adb, and return the serials of the devices that are ready."""
    try:
        program = find_adb()
        devices = program.devices()
    except SetupError as problem:
        return Check("adb", "optional", f"{problem.problem}; only phones need it", problem.fix), ()
    ready = tuple(serial for serial, state in devices.items() if state == "device")
    waiting = [f"{serial} is {state}" for serial, state in devices.items() if state != "device"]
    named = f"{program.version} at {program.path}"
    if ready:
        return Check("adb", "pass", f"{named}, devices: {', '.join((*ready, *waiting))}"), ready
    fix = "allow debugging on the device's screen" if waiting else "connect a device with USB debugging on"
    return Check("adb", "optional", ", ".join(waiting) or f"{named} finds no device", fix), ()


def phone_settings() -> Iterator[Check]:
    """One check per phone whose power mode a run could not restore."""
    for path in sorted((state_root() / "devices").glob("[!.]*.json")):
        # An unreadable file is left until that phone is used; `packages` says which package is missing.
        with contextlib.suppress(ProfilingError, ImportError):
            left = read_record(Unfinished, path, FIX)
            if not lock_of(left.device, left.device).holder():
                what = f"power mode {left.mode}, set on {left.since}, is still set on {left.device}"
                cure = f"connect it, then: {sme2prof('clean', '--target', 'android:SERIAL')}"
                yield Check("phone settings", "optional", what, cure)


def in_use() -> tuple[Check, ...]:
    """Who measures or works here now, if anybody does."""
    name = holder()
    return (Check("in use", "pass", f"{name}: measurements wait for it"),) if name else ()


def program_checks(pte: Path) -> tuple[Check, ...]:
    """Check a program that the user names and its export record, which is optional."""
    fix = sme2prof("export", "MODEL", "--outdir", str(pte.parent))
    if not pte.is_file():
        return (Check("program", "fail", f"there is no {pte}", fix),)
    record = pte.with_name(f"{pte.name}.etrecord")
    if not record.is_file():
        missing = f"{record.name} is not beside it, so operators have no source lines"
        return Check("program", "pass", str(pte)), Check("its record", "optional", missing, fix)
    return Check("program", "pass", str(pte)), Check("its record", "pass", str(record))


def packages() -> Iterator[Check]:
    """Whether all packages that the kit and ExecuTorch require are installed in fitting versions."""
    if importlib.util.find_spec("packaging") is None:  # needed to check the versions of the others
        yield Check("packaging", "fail", "not installed", pip_install("packaging>=23"))
        return
    try:
        yield from _requirements(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        fix = install_extra("executorch") if sys.prefix != sys.base_prefix else set_up()
        yield Check("Python packages", "fail", f"{DISTRIBUTION} is not installed in this Python", fix)
        return
    try:
        theirs = _requirements("executorch")
    except importlib.metadata.PackageNotFoundError:
        return
    yield from (check for check in theirs if check.status != "pass")
    if CheckList(tuple(theirs)).ok:
        yield Check("for ExecuTorch", "pass", f"{len(theirs)} ExecuTorch dependencies OK")


def _requirements(distribution: str) -> list[Check]:
    from packaging.requirements import Requirement

    requirements = [Requirement(line) for line in importlib.metadata.requires(distribution) or []]
    extras = ("", "executorch")
    return [
        _fits(requirement)
        for requirement in requirements
        if not requirement.marker or any(requirement.marker.evaluate({"extra": extra}) for extra in extras)
    ]


def _fits(requirement: Requirement) -> Check:
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    fix = pip_install(f"{requirement.name}{extras}{requirement.specifier}")
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return Check(requirement.name, "fail", "not installed", fix)
    if requirement.specifier.contains(version, prereleases=True):
        return Check(requirement.name, "pass", version)
    return Check(requirement.name, "fail", f"{version} is not {requirement.specifier}", fix)
