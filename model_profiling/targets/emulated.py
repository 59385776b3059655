"""Emulates an SME2 machine: runs the runner under QEMU, and fetches what that needs."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.runner import apt
from model_profiling.runner.apt import this_distribution
from model_profiling.runner.build import build_runner
from model_profiling.runner.cache import cache_root, cached
from model_profiling.runner.features import this_platform
from model_profiling.runner.machine import MachineFacts, PlatformName, TargetChoice
from model_profiling.runner.result import read_features
from model_profiling.targets.cross import build_cross_runner
from model_profiling.targets.execution import LocalTransport, Route
from model_profiling.targets.host import HostTarget, host_facts
from model_profiling.targets.remote.facts import library_folders

# A QEMU counts if the kit's runner, run under it, reports SME2; its version is only a hint.

NO_EMULATION = "QEMU's user mode runs on Linux only"
_PACKAGE = "qemu-user"
_MEMBER = "usr/bin/qemu-aarch64"
# Debian up to 13 has no QEMU with SME2 of its own. Every Debian mirror has this suite, and its QEMU is linked
# statically, so it runs on older releases too.
_DEBIAN_SUITE = "trixie-backports"
_OLDEST = (10, 1)


@dataclass(frozen=True, slots=True)
class Qemu:
    """An emulator that was tested to have SME2."""

    path: Path
    version: str
    features: tuple[str, ...]
    prefix: tuple[str, ...]


def find_qemu(runner: Path, sysroot: Path | None = None, *, fetch: bool = True) -> Qemu:
    """Return the first emulator with SME2: `$SME2PROF_QEMU`, PATH, cache, the distribution's mirror."""
    if sys.platform != "linux":
        raise SetupError(NO_EMULATION, "use --target host, or a Linux machine")
    if chosen := os.environ.get("SME2PROF_QEMU"):
        return _require(Path(chosen), runner, sysroot, "correct SME2PROF_QEMU")
    cure = this_distribution().fix("QEMU")
    refused: list[str] = []
    for candidate in _on_path():
        try:
            return _require(candidate, runner, sysroot, cure)
        except SetupError as problem:
            refused.append(problem.problem)
    if fetch or _kept().exists():
        return _require(fetch_qemu(fetch=fetch), runner, sysroot, cure)
    if source() is not None:
        cure = f"the first --target emulated run fetches one from {source()}, or {cure}"
    raise SetupError(refused[0] if refused else "no qemu-aarch64 was found", cure)


def source() -> str | None:
    """Return where `fetch_qemu` would look, or None. Fetches nothing."""
    try:
        archive = _archive("")
    except SetupError:
        return None
    return f"{archive.origin}'s {archive.suite}" if archive.keyring() else None


def can_be_had() -> bool:
    """Whether there is an emulator to try, or a place to fetch one from. Fetches nothing."""
    named = os.environ.get("SME2PROF_QEMU")
    return bool(named) or bool(_on_path()) or _kept().exists() or source() is not None


def new_enough(version: str) -> bool:
    """Whether a QEMU of this version may have SME2; the test with the runner decides."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= _OLDEST


def _archive(cure: str) -> apt.Archive:
    own = apt.own_archive(cure)
    return own.with_suite(_DEBIAN_SUITE) if own.origin == "Debian" else own


def _on_path() -> list[Path]:
    found = map(shutil.which, ("qemu-aarch64", "qemu-aarch64-static"))
    return [Path(path) for path in found if path]


def _kept() -> Path:
    return cache_root() / "qemu" / _PACKAGE


def fetch_qemu(*, fetch: bool = True) -> Path:

    def make(into: Path) -> None:
        cure = this_distribution().fix("QEMU")
        archive = _archive(cure)
        with apt.packages_of(archive, cure) as packages:
            version = packages.version(_PACKAGE)
            if version is None or not new_enough(version):
                found = f"{_PACKAGE} {version}" if version else f"no {_PACKAGE}"
                raise SetupError(f"{archive.origin}'s {archive.suite} has {found}, which has no SME2", cure)
            for deb in packages.download([_PACKAGE]):
                packages.unpack(deb, into, member=_MEMBER)

    return cached(_kept(), make, "QEMU", fetch=fetch) / _MEMBER


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


class EmulatedTarget(HostTarget):
    """Runs aarch64 runners under `qemu-aarch64 -cpu max`: everything is real except the times."""

    name = "emulated"
    choice = TargetChoice("emulated")
    platform: PlatformName = "emulated"
    place: str = platform
    timings_are_latency = False

    def __init__(self, *, fetch: bool = True) -> None:
        super().__init__()
        self._fetch = fetch
        self.qemu: Qemu | None = None
        self.sysroot: Path | None = None

    def prepare(self) -> None:
        if self.qemu is not None:
            return
        if this_platform().machine == "aarch64":
            self.build = build_runner(fetch=self._fetch)
        else:
            self.build, self.sysroot = build_cross_runner(fetch=self._fetch)
        self.qemu = find_qemu(self.build.path, self.sysroot, fetch=self._fetch)

    def _route(self, *, own_runner: bool) -> Route:
        del own_runner
        transport = LocalTransport(prefix=self.qemu.prefix if self.qemu else ())
        if self.build is None:
            return Route((), transport, timings_are_latency=False)
        # The folders here with the libraries that the emulated machine sees elsewhere.
        code = (self.build.library_path, *(library_folders(self.sysroot) if self.sysroot else ()))
        return Route((str(self.build.path),), transport, code, timings_are_latency=False)

    def facts(self) -> MachineFacts:
        if self.build is None or self.qemu is None:
            unknown = host_facts(None)
            return replace(
                unknown, cpu="QEMU, not prepared yet", features=(), features_source="not asked yet"
            )
        host = host_facts(self.build, qemu=self.qemu.version)
        return replace(
            host,
            cpu=f"QEMU {self.qemu.version} -cpu max, on {host.cpu}",
            machine="aarch64",
            features=self.qemu.features,
            features_source="the runner under QEMU",
        )
