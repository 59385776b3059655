"""The kit's runner for Android's own C library, compiled by the NDK.

ExecuTorch's wheels hold libraries for glibc alone, so this needs an ExecuTorch that the user has built for
Android as shared libraries, laid out as the wheel is. Without one, the runner travels with glibc
(`bundle.py`), which needs neither. Kernels cannot be counted by a runner built this way: Android's C library
does not show the slots that calls go through, and the runner's result says so.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from model_profiling.errors import SetupError
from model_profiling.runner.build import RunnerBuild, build_runner
from model_profiling.runner.compilers import Compiler
from model_profiling.runner.sdk import sdk_at
from model_profiling.runner.source_build.toolchain import ANDROID_TARGET, Ndk, find_ndk
from model_profiling.targets.remote.bundle import OPENED, Bundle, gather

SDK = "SME2PROF_ANDROID_EXECUTORCH"
_OF_ANDROID = frozenset(
    ("libc.so", "libm.so", "libdl.so", "liblog.so", "libandroid.so", "libz.so", "ld-android.so")
)


def ndk_is_meant() -> bool:
    """Whether the user has named an ExecuTorch for Android."""
    return bool(os.environ.get(SDK))


def make_ndk_bundle() -> Bundle:
    """The runner built by the NDK, with the libraries that Android does not have."""
    ndk = find_ndk()
    build = build_with_ndk(ndk, Path(os.environ[SDK]).expanduser())
    libraries = sorted(ndk.root.glob("toolchains/llvm/prebuilt/*/sysroot/usr/lib/aarch64-linux-android"))
    folders = [build.library_path, *libraries]
    return Bundle(build, gather(build.path, folders, opened=OPENED, not_sent=_OF_ANDROID))


def build_with_ndk(ndk: Ndk, executorch: Path) -> RunnerBuild:
    """The runner, compiled against the Android ExecuTorch in `executorch`."""
    try:
        sdk = replace(sdk_at(executorch, "aarch64"), system="android")
    except SetupError as problem:
        raise SetupError(problem.problem, f"correct {SDK} or unset it") from problem
    identity = f"{ndk.compiler.family} {ndk.compiler.version} of NDK r{ndk.revision}"
    compiler = Compiler((str(ndk.compiler.cxx), f"--target={ANDROID_TARGET}"), identity, "the Android NDK")
    return build_runner(sdk, compiler)
