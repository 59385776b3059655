"""Emulates an SME2 machine: runs the runner under QEMU, and fetches what that needs. On other CPUs than Arm
it is cross-compiled, for which pip and a Debian mirror give an aarch64 ExecuTorch and C library."""

from __future__ import annotations

import os
import re
import shutil
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.runner import fetching
from model_profiling.runner.build import RunnerBuild, Sdk, build_runner, installed_sdk, sdk_at
from model_profiling.runner.cache import cache_root, cached
from model_profiling.runner.compilers import find_compiler
from model_profiling.runner.features import AARCH64_LINUX, AARCH64_MACOS, Platform, this_platform
from model_profiling.runner.fetching import fix_for
from model_profiling.runner.machine import MachineFacts, PlatformName, TargetChoice
from model_profiling.runner.result import RunnerReport, read_report
from model_profiling.targets.execution import Route, Transport
from model_profiling.targets.host import HostTarget, host_facts

# These packages are for every architecture, so any mirror has them, even one without arm64.
_LIBC = ("libc6-arm64-cross", "libgcc-s1-arm64-cross", "libstdc++6-arm64-cross")
_PLACE = "usr/aarch64-linux-gnu"
# Where a root may hold aarch64 libraries.
_FOLDERS = ("lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib64", "usr/lib64", "lib", "usr/lib")
_WHEELS: dict[Platform, Sequence[str]] = {
    AARCH64_LINUX: [f"manylinux_2_{minor}_aarch64" for minor in range(28, 40)] + ["manylinux2014_aarch64"],
    AARCH64_MACOS: [f"macosx_{major}_0_arm64" for major in (14, 13, 12, 11)],
}


def build_cross_runner(*, fetch: bool = True) -> tuple[RunnerBuild, Path]:
    """Return the runner cross-compiled for aarch64 Linux, and the folder of its C library, for QEMU."""
    compiler = find_compiler(AARCH64_LINUX, fetch=fetch)
    sdk = aarch64_sdk(installed_sdk(), fetch=fetch)
    return build_runner(sdk, compiler), aarch64_sysroot(fetch=fetch)


def aarch64_sdk(native: Sdk, wanted: Platform = AARCH64_LINUX, *, fetch: bool = True) -> Sdk:
    """Return the wheel of the same release for `wanted`, downloaded by pip and unpacked into the cache."""
    release = native.version.partition("+")[0]

    def make(into: Path) -> None:
        folder = into.parent
        done = fetching.pip(
            *("download", "--no-deps", "--only-binary=:all:"),
            *("--dest", folder, "--python-version", f"{sys.version_info.major}.{sys.version_info.minor}"),
            *(word for name in _WHEELS[wanted] for word in ("--platform", name)),
            *fetching.pip_words("executorch", release),
            timeout=900,
        )
        wheels = list(folder.glob("executorch-*.whl"))
        if not done.ok or not wheels:
            reached = "check the connection to the package index"
            raise SetupError(f"pip cannot get {what}: {done.tail(1)}", reached)
        parts = ("executorch/include/", "executorch/lib/", "executorch/version.py")
        try:
            with zipfile.ZipFile(wheels[0]) as archive:
                archive.extractall(into, [name for name in archive.namelist() if name.startswith(parts)])
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as problem:
            # An index may have no hashes, and pip does not check every byte that it downloads.
            raise SetupError(f"{what} arrived damaged: {problem}", "try again") from problem

    kind = wanted.machine if wanted.system == "linux" else f"{wanted.machine}-{wanted.system}"
    home = cache_root() / "wheels" / f"executorch-{release}-{kind}"
    what = f"the {wanted} wheel of ExecuTorch {release}"
    return sdk_at(cached(home, make, what, fetch=fetch) / "executorch", wanted.machine)


def aarch64_sysroot(*, fetch: bool = True) -> Path:
    """Return a folder with an aarch64 C and C++ runtime: the user's choice, the installed or a cached one."""
    if chosen := os.environ.get("SME2PROF_SYSROOT"):
        if not _has_runtime(Path(chosen)):
            lacking = f"{chosen} has no lib/ld-linux-aarch64.so.1 with a libstdc++.so.6"
            raise SetupError(lacking, "correct SME2PROF_SYSROOT")
        return Path(chosen)
    installed = Path("/", _PLACE)
    if _has_runtime(installed):
        return installed
    fix = fix_for("aarch64 C library")
    archive = fetching.own_archive(fix)

    def make(into: Path) -> None:
        with fetching.packages_of(archive, fix) as packages:
            for deb in packages.download(*_LIBC):
                packages.unpack(deb, into)
        # An emulator takes a file from the machine itself if its root has none of that name. On an Arm
        # machine that would be a C library of another build than the loader's, so Debian's usual paths are
        # here too.
        libraries = into / _PLACE
        (libraries / "lib/aarch64-linux-gnu").symlink_to(".")
        (libraries / "usr").symlink_to(".")

    home = cache_root() / "sysroots" / f"{archive.origin.lower()}-{archive.suite}-aarch64"
    return cached(home, make, "an aarch64 C library", fetch=fetch) / _PLACE


def _has_runtime(folder: Path) -> bool:
    libraries = (
        folder.glob(f"{place}/libstdc++.so.6") for place in ("lib*", "lib/*", "usr/lib*", "usr/lib/*")
    )
    return (folder / "lib/ld-linux-aarch64.so.1").exists() and any(map(any, libraries))


def library_folders(root: Path) -> Iterator[Path]:
    """Yield the folders under `root` that may hold aarch64 libraries."""
    return (root / folder for folder in _FOLDERS if (root / folder).is_dir())


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
    report: RunnerReport
    prefix: tuple[str, ...]


def find_qemu(runner: Path, sysroot: Path | None = None, *, fetch: bool = True) -> Qemu:
    """Return the first emulator with SME2: `$SME2PROF_QEMU`, PATH, cache, the distribution's mirror."""
    if sys.platform != "linux":
        raise SetupError(NO_EMULATION, "use --target host, or a Linux machine")
    if chosen := os.environ.get("SME2PROF_QEMU"):
        return _require(Path(chosen), runner, sysroot, "correct SME2PROF_QEMU")
    refused = "no qemu-aarch64 was found"
    for candidate in _on_path():
        try:
            return _require(candidate, runner, sysroot)
        except SetupError as problem:
            refused = problem.problem
    if fetch or _home().exists():
        return _require(fetch_qemu(fetch=fetch), runner, sysroot)
    cure = fix_for("QEMU")
    if source := qemu_source():
        cure = f"the first --target emulated run fetches one from {source}, or {cure}"
    raise SetupError(refused, cure)


def qemu_source() -> str | None:
    """Return where `fetch_qemu` would look, or None. Fetches nothing."""
    try:
        archive = _archive("")
    except SetupError:
        return None
    return f"{archive.origin}'s {archive.suite}" if archive.keyring() else None


def can_be_had() -> bool:
    """Whether there is an emulator to try, or a place to fetch one from. Fetches nothing."""
    at_hand = os.environ.get("SME2PROF_QEMU") or _on_path() or _home().exists()
    return bool(at_hand) or qemu_source() is not None


def _on_path() -> list[Path]:
    return [Path(path) for name in ("qemu-aarch64", "qemu-aarch64-static") if (path := shutil.which(name))]


def _home() -> Path:
    return cache_root() / "qemu" / _PACKAGE


def _archive(cure: str) -> fetching.Archive:
    own = fetching.own_archive(cure)
    return replace(own, suite=_DEBIAN_SUITE) if own.origin == "Debian" else own


def new_enough(version: str) -> bool:
    """Whether a QEMU of this version may have SME2; the test with the runner decides."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= _OLDEST


def fetch_qemu(*, fetch: bool = True) -> Path:
    def make(into: Path) -> None:
        cure = fix_for("QEMU")
        archive = _archive(cure)
        with fetching.packages_of(archive, cure) as packages:
            version = packages.version(_PACKAGE)
            if version is None or not new_enough(version):
                offered = f"{_PACKAGE} {version}" if version else f"no {_PACKAGE}"
                raise SetupError(f"{archive.origin}'s {archive.suite} has {offered}, which has no SME2", cure)
            for deb in packages.download(_PACKAGE):
                packages.unpack(deb, into, member=_MEMBER)

    return cached(_home(), make, "QEMU", fetch=fetch) / _MEMBER


def _require(path: Path, runner: Path, sysroot: Path | None, cure: str | None = None) -> Qemu:
    prefix = (str(path), "-cpu", "max", *(("-L", str(sysroot)) if sysroot else ()))
    answer = process.run([path, "--version"], timeout=30)
    number = re.search(r"version (\d+\.\d+(?:\.\d+)?)", answer.stdout)
    problem = "is not a working QEMU"
    if answer.ok and number is not None:
        probe = process.run([*prefix, runner, "--features-only"], timeout=120)
        problem = f"is QEMU {number[1]} and cannot run the runner ({probe.tail(1) or probe.returncode})"
        if probe.ok:
            report = read_report(probe.stdout)
            if "sme2" in report.features:
                return Qemu(path, number[1], report, prefix)
            problem = f"is QEMU {number[1]} and has no SME2"
    raise SetupError(f"{path} {problem}", cure or fix_for("QEMU"))


class EmulatedTarget(HostTarget):
    """Runs aarch64 runners under `qemu-aarch64 -cpu max`: everything is real except the times."""

    name = "emulated"
    choice = TargetChoice("emulated")
    platform: PlatformName = "emulated"
    place: str = platform
    timings_are_latency = False

    def __init__(self, *, fetch: bool = True) -> None:
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

    def _route(self) -> Route:
        transport = Transport(self.qemu.prefix if self.qemu else ())
        if self.build is None:
            return Route((), transport)
        # The folders here with the libraries that the emulated machine sees elsewhere.
        code = (self.build.library_path, *(library_folders(self.sysroot) if self.sysroot else ()))
        return Route((str(self.build.path),), transport, code)

    def operators(self) -> frozenset[str] | None:
        return self.qemu.report.operators if self.qemu else None

    def libraries_with(self, operators: Iterable[str]) -> tuple[Path, ...]:
        # Of another machine's wheel only the runtime is fetched.
        return () if self.sysroot else super().libraries_with(operators)

    @property
    def _prefix(self) -> tuple[str, ...]:
        return self.qemu.prefix if self.qemu else ()

    def facts(self) -> MachineFacts:
        if self.build is None or self.qemu is None:
            return replace(host_facts(None), cpu="QEMU, not prepared yet", features=())
        host = host_facts(self.build, qemu=self.qemu.version)
        return replace(
            host,
            cpu=f"QEMU {self.qemu.version} -cpu max, on {host.cpu}",
            machine="aarch64",
            features=self.qemu.report.features,
        )
