"""An aarch64 ExecuTorch and C library for a Linux machine that is not aarch64, each fetched by its package
manager's own client, so that the runner can be cross-compiled and run under QEMU.
"""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from model_profiling import files, process
from model_profiling.errors import SetupError
from model_profiling.runner.build import Compiler, RunnerBuild, build_runner, identify
from model_profiling.runner.cache import cache_root
from model_profiling.runner.sdk import Sdk, installed_sdk, sdk_at
from model_profiling.targets import debian

_COMPILER = "aarch64-linux-gnu-g++"
_LIBC = ("libc6", "libgcc-s1", "libstdc++6")
_LIBC_CURE = "install libc6-arm64-cross and libstdc++6-arm64-cross, or use a machine with Debian's apt"


@dataclass(frozen=True, slots=True)
class CrossRunner:
    """An aarch64 runner and the folder QEMU takes its C library from."""

    build: RunnerBuild
    sysroot: Path


def build_cross_runner() -> CrossRunner:
    """Cross-compile the runner against the aarch64 wheel of the ExecuTorch that is installed here."""
    compiler = cross_compiler()
    sdk = aarch64_sdk(installed_sdk())
    return CrossRunner(build_runner(sdk, compiler), aarch64_sysroot())


def cross_compiler() -> Compiler:
    if shutil.which(_COMPILER) is None:
        raise SetupError(
            f"emulating aarch64 on {platform.machine()} needs {_COMPILER}", "install g++-aarch64-linux-gnu"
        )
    return identify([_COMPILER])


def aarch64_sdk(native: Sdk) -> Sdk:
    """The aarch64 wheel of the same release, downloaded by pip and unpacked into the cache."""
    release = native.version.partition("+")[0]
    home = cache_root() / "wheels" / f"executorch-{release}-aarch64"
    if not home.is_dir():
        files.make_folder(home.parent)
        with tempfile.TemporaryDirectory(prefix=".wheel.", dir=home.parent) as folder:
            wheel = _download_wheel(release, Path(folder))
            unpacked = Path(folder) / "unpacked"
            with zipfile.ZipFile(wheel) as archive:
                wanted = ("executorch/include/", "executorch/lib/", "executorch/version.py")
                archive.extractall(unpacked, [n for n in archive.namelist() if n.startswith(wanted)])
            _keep(unpacked, home)
    return sdk_at(home / "executorch", "aarch64")


def aarch64_sysroot() -> Path:
    """An aarch64 C and C++ runtime: the cross packages' when installed, else Debian's in the cache."""
    installed = Path("/usr/aarch64-linux-gnu")
    if (installed / "lib/ld-linux-aarch64.so.1").exists() and list(installed.glob("lib/libstdc++.so.6*")):
        return installed
    suite = debian.own_suite(_LIBC_CURE)
    home = cache_root() / "sysroots" / f"{suite}-arm64"
    if not home.is_dir():
        files.make_folder(home.parent)
        with tempfile.TemporaryDirectory(prefix=".sysroot.", dir=home.parent) as folder:
            root = Path(folder) / "root"
            debian.unpack_packages(_LIBC, suite=suite, architecture="arm64", into=root, cure=_LIBC_CURE)
            _keep(root, home)
    return home


def _download_wheel(release: str, folder: Path) -> Path:
    platforms = [f"manylinux_2_{minor}_aarch64" for minor in range(28, 40)] + ["manylinux2014_aarch64"]
    done = process.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"),
            *("--dest", folder, "--python-version", f"{sys.version_info.major}.{sys.version_info.minor}"),
            *(word for name in platforms for word in ("--platform", name)),
            f"executorch=={release}",
        ],
        timeout=900,
    )
    wheels = list(folder.glob("executorch-*.whl"))
    if not done.ok or not wheels:
        raise SetupError(
            f"pip cannot get the aarch64 wheel of ExecuTorch {release}: {done.tail(1)}",
            "check the connection to the package index",
        )
    return wheels[0]


def _keep(made: Path, home: Path) -> None:
    """Move `made` into place, unless another process was quicker."""
    try:
        made.rename(home)
    except OSError:
        if not home.is_dir():
            raise
