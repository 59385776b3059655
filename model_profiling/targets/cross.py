"""An aarch64 ExecuTorch and C library for a Linux machine that is not aarch64, each fetched by its package
manager's own client, so that the runner can be cross-compiled and run under QEMU.
"""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable
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


def build_cross_runner(*, fetch: bool = True) -> tuple[RunnerBuild, Path]:
    """The runner, cross-compiled against the aarch64 wheel of the ExecuTorch that is installed here, and the
    folder QEMU takes its C library from."""
    compiler = cross_compiler()
    sdk = aarch64_sdk(installed_sdk(), fetch=fetch)
    return build_runner(sdk, compiler), aarch64_sysroot(fetch=fetch)


def cross_compiler() -> Compiler:
    if shutil.which(_COMPILER) is None:
        raise SetupError(
            f"emulating aarch64 on {platform.machine()} needs {_COMPILER}", "install g++-aarch64-linux-gnu"
        )
    return identify([_COMPILER])


def aarch64_sdk(native: Sdk, *, fetch: bool = True) -> Sdk:
    """The aarch64 wheel of the same release, downloaded by pip and unpacked into the cache."""
    release = native.version.partition("+")[0]

    def make(into: Path) -> None:
        with zipfile.ZipFile(_download_wheel(release, into.parent)) as archive:
            wanted = ("executorch/include/", "executorch/lib/", "executorch/version.py")
            archive.extractall(into, [name for name in archive.namelist() if name.startswith(wanted)])

    home = cache_root() / "wheels" / f"executorch-{release}-aarch64"
    what = f"the aarch64 wheel of ExecuTorch {release}"
    return sdk_at(_cached(home, make, what, fetch=fetch) / "executorch", "aarch64")


def aarch64_sysroot(*, fetch: bool = True) -> Path:
    """An aarch64 C and C++ runtime: the cross packages' when installed, else Debian's in the cache."""
    installed = Path("/usr/aarch64-linux-gnu")
    if (installed / "lib/ld-linux-aarch64.so.1").exists() and list(installed.glob("lib/libstdc++.so.6*")):
        return installed
    suite = debian.own_suite(_LIBC_CURE)

    def make(into: Path) -> None:
        debian.unpack_packages(_LIBC, suite=suite, architecture="arm64", into=into, cure=_LIBC_CURE)

    home = cache_root() / "sysroots" / f"{suite}-arm64"
    return _cached(home, make, "an aarch64 C library", fetch=fetch)


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


def _cached(home: Path, make: Callable[[Path], None], what: str, *, fetch: bool) -> Path:
    """`home`, filled by `make` the first time; of two processes at once the quicker one's is kept."""
    if home.is_dir():
        return home
    if not fetch:
        raise SetupError(f"{what} is not in the cache", "the first --target emulated run fetches it")
    with tempfile.TemporaryDirectory(prefix=".fetch.", dir=files.make_folder(home.parent)) as folder:
        made = Path(folder) / "made"
        make(made)
        try:
            made.rename(home)
        except OSError:
            if not home.is_dir():
                raise
    return home
