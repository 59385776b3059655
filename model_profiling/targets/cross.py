"""An aarch64 ExecuTorch and C library for Linux on other CPUs, to cross-compile the runner and run it under
QEMU. pip and apt fetch them."""

from __future__ import annotations

import os
import sys
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from model_profiling.core import fetching
from model_profiling.core.errors import SetupError
from model_profiling.runner import apt, compilers
from model_profiling.runner.apt import this_distribution
from model_profiling.runner.build import RunnerBuild, build_runner
from model_profiling.runner.cache import cache_root, cached
from model_profiling.runner.compilers import Compiler, find_compiler
from model_profiling.runner.features import AARCH64_LINUX, AARCH64_MACOS, Platform
from model_profiling.runner.sdk import Sdk, installed_sdk, pip_words, sdk_at

# These packages are for every architecture, so any mirror has them, even one without arm64.
_LIBC = ("libc6-arm64-cross", "libgcc-s1-arm64-cross", "libstdc++6-arm64-cross")
_PLACE = "usr/aarch64-linux-gnu"
_WHEELS: dict[Platform, Sequence[str]] = {
    AARCH64_LINUX: [f"manylinux_2_{minor}_aarch64" for minor in range(28, 40)] + ["manylinux2014_aarch64"],
    AARCH64_MACOS: [f"macosx_{major}_0_arm64" for major in (14, 13, 12, 11)],
}


def build_cross_runner(*, fetch: bool = True) -> tuple[RunnerBuild, Path]:
    """Return the runner cross-compiled for aarch64 Linux, and the folder of its C library, for QEMU."""
    compiler = cross_compiler(fetch=fetch)
    sdk = aarch64_sdk(installed_sdk(), fetch=fetch)
    return build_runner(sdk, compiler), aarch64_sysroot(fetch=fetch)


def cross_compiler(*, fetch: bool = True) -> Compiler:
    return find_compiler(AARCH64_LINUX, fetch=fetch)


def aarch64_sdk(native: Sdk, wanted: Platform = AARCH64_LINUX, *, fetch: bool = True) -> Sdk:
    """Return the wheel of the same release for `wanted`, downloaded by pip and unpacked into the cache."""
    release = native.version.partition("+")[0]

    def make(into: Path) -> None:
        wheel = _download_wheel(release, wanted, into.parent)
        parts = ("executorch/include/", "executorch/lib/", "executorch/version.py")
        try:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(into, [name for name in archive.namelist() if name.startswith(parts)])
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as problem:
            # An index may have no hashes, and pip does not check every byte that it downloads.
            raise SetupError(f"{what} came damaged: {problem}", "try again") from problem

    kind = wanted.machine if wanted.system == "linux" else f"{wanted.machine}-{wanted.system}"
    home = cache_root() / "wheels" / f"executorch-{release}-{kind}"
    what = f"the {wanted} wheel of ExecuTorch {release}"
    return sdk_at(cached(home, make, what, fetch=fetch) / "executorch", wanted.machine)


def aarch64_sysroot(*, fetch: bool = True) -> Path:
    """Return a folder with an aarch64 C and C++ runtime: the user's choice, installed, unpacked or cached."""
    if chosen := os.environ.get("SME2PROF_SYSROOT"):
        if not _has_runtime(Path(chosen)):
            lacking = f"{chosen} has no lib/ld-linux-aarch64.so.1 with a libstdc++.so.6"
            raise SetupError(lacking, "correct SME2PROF_SYSROOT")
        return Path(chosen)
    installed = Path("/", _PLACE)
    if _has_runtime(installed):
        return installed
    unpacked = compilers.aarch64_libraries()
    if unpacked is not None and _has_runtime(unpacked):
        return unpacked
    fix = this_distribution().fix("aarch64 C library")
    archive = apt.own_archive(fix)

    def make(into: Path) -> None:
        with apt.packages_of(archive, fix) as packages:
            for deb in packages.download(_LIBC):
                packages.unpack(deb, into)
        compilers.cover_multiarch(into / _PLACE)

    home = cache_root() / "sysroots" / f"{archive.origin.lower()}-{archive.suite}-aarch64"
    return cached(home, make, "an aarch64 C library", fetch=fetch) / _PLACE


def _has_runtime(folder: Path) -> bool:
    libraries = (
        folder.glob(f"{place}/libstdc++.so.6") for place in ("lib*", "lib/*", "usr/lib*", "usr/lib/*")
    )
    return (folder / "lib/ld-linux-aarch64.so.1").exists() and any(map(any, libraries))


def _download_wheel(release: str, wanted: Platform, folder: Path) -> Path:
    done = fetching.pip(
        *("download", "--no-deps", "--only-binary=:all:"),
        *("--dest", folder, "--python-version", f"{sys.version_info.major}.{sys.version_info.minor}"),
        *(word for name in _WHEELS[wanted] for word in ("--platform", name)),
        *pip_words("executorch", release),
        timeout=900,
    )
    wheels = list(folder.glob("executorch-*.whl"))
    if not done.ok or not wheels:
        raise SetupError(
            f"pip cannot get the {wanted} wheel of ExecuTorch {release}: {done.tail(1)}",
            "check the connection to the package index",
        )
    return wheels[0]
