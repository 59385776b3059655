"""Downloads of wheels and packages from servers that cut, stall and lie: refused in one line,
nothing of them in the cache, and the next try on a good line is as if nothing had been."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from attack.faulty_server import FAULTS, Fault, FaultyServer, package_index
from attack.finds import Find, PartResult
from model_profiling.core.errors import ProfilingError
from model_profiling.runner import fetching
from model_profiling.runner.build import installed_sdk
from model_profiling.runner.compilers import ZIG_RELEASE, can_be_fetched, zig_command
from model_profiling.runner.features import AARCH64_LINUX
from model_profiling.targets.emulated import aarch64_sdk

PATIENCE_S = 120.0
"""pip gives up after three tries of 2 s here, apt after three of 20 s."""


def interrupt(seed: int, work: Path) -> PartResult:
    del seed  # every fault is tried
    began, finds, tried, lines = time.monotonic(), [], 0, []
    for name, attack, why_not in (
        ("ExecuTorch's wheel", _wheel, _no_sdk()),
        (
            "the compiler's wheel",
            _zig,
            "" if can_be_fetched(AARCH64_LINUX) else "this Python has no pip",
        ),
        ("a package of the distribution", _package, _no_apt()),
    ):
        if why_not:
            lines.append(f"{name} was not fetched: {why_not}")
            continue
        for fault in FAULTS:
            folder = work / f"{tried}"
            folder.mkdir()
            with _own_cache(folder / "cache"):
                found = list(attack(fault, folder))
            finds += [Find("downloads", f"{name}, {fault}", what) for what in found]
            tried += 1
    return PartResult("downloads", tried, time.monotonic() - began, tuple(finds), lines=tuple(lines))


def _no_sdk() -> str:
    try:
        installed_sdk()
    except ProfilingError as problem:
        return problem.problem
    return ""


def _no_apt() -> str:
    try:
        archive = fetching.own_archive("")
    except ProfilingError as problem:
        return problem.problem
    return "" if archive.keyring() else "the archive's keyring is not installed"


@contextlib.contextmanager
def _own_cache(cache: Path) -> Iterator[None]:
    settings = {
        "SME2PROF_CACHE": str(cache),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DEFAULT_TIMEOUT": "2",
        "PIP_RETRIES": "2",
        "PIP_NO_CACHE_DIR": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "no_proxy": "127.0.0.1",
    }
    without = [
        name for name in os.environ if name.startswith(("PIP_", "UV_")) or name.lower().endswith("_proxy")
    ]
    with mock.patch.dict(os.environ):
        for name in without:
            del os.environ[name]
        os.environ.update(settings)
        yield


def _refused(get: Callable[[], object], cache: Path) -> Iterator[str]:
    """What is wrong with how a download that cannot succeed ended."""
    began = time.monotonic()
    try:
        get()
        yield "it was taken for a success"
    except ProfilingError as problem:
        if "\n" in str(problem) or not problem.fix:
            yield f"not one line with a cure: {problem}"
    except Exception as problem:  # noqa: BLE001  # it is what we look for
        yield f"{type(problem).__name__}: {problem}"
    if (took := time.monotonic() - began) > PATIENCE_S:
        yield f"it took {took:.0f} s"
    left = [path.relative_to(cache).as_posix() for path in cache.rglob("*") if path.is_file()]
    left = [name for name in left if name != "CACHEDIR.TAG"]
    if left:
        yield f"left in the cache: {left[:5]}"


def _fetched(get: Callable[[], object]) -> Iterator[str]:
    try:
        get()
    except Exception as problem:  # noqa: BLE001  # with everything there nothing may fail
        yield f"what is whole was refused: {type(problem).__name__}: {problem}"


def _wheel(fault: Fault, folder: Path) -> Iterator[str]:
    native = installed_sdk()
    release = native.version.partition("+")[0]
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    name = f"executorch-{release}-{python}-{python}-manylinux_2_28_aarch64.whl"
    package = {
        "executorch/version.py": f'__version__ = "{release}"\n',
        "executorch/lib/libexecutorch.so": "x" * 200_000,
        "executorch/include/executorch/runtime/executor/method.h": "#pragma once\n" * 1000,
    }
    data = _packed(package, "executorch", release)
    yield from _from_index(fault, name, data, lambda: aarch64_sdk(native), folder)


def _zig(fault: Fault, folder: Path) -> Iterator[str]:
    release = f"{ZIG_RELEASE}.0"
    data = _packed({"ziglang/zig": "x" * 200_000, "ziglang/__init__.py": ""}, "ziglang", release)
    name = f"ziglang-{release}-py3-none-any.whl"
    yield from _from_index(fault, name, data, lambda: zig_command(AARCH64_LINUX), folder)


def _packed(package: dict[str, str], name: str, release: str) -> bytes:
    about = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {release}\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: campaign\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:  # stored: what is changed in the middle stays a zip
        for path, text in package.items():
            archive.writestr(path, text)
        for file, text in about.items():
            archive.writestr(f"{name}-{release}.dist-info/{file}", text)
    return stream.getvalue()


def _from_index(
    fault: Fault, wheel: str, data: bytes, get: Callable[[], object], folder: Path
) -> Iterator[str]:
    """From an index that tells hashes and from one that does not. The kit knows the hash of the right wheel,
    so a whole one of this server is forged: it is refused, too."""
    package = wheel.partition("-")[0]
    faults: tuple[tuple[Fault, bool], ...] = ((fault, True), (fault, False), ("none", False))
    for each, hashes in faults:
        index = package_index(package, wheel, data, hashes=hashes)
        with FaultyServer(index, each, ".whl").serving() as address:
            os.environ["PIP_INDEX_URL"] = f"{address}/simple/"
            told = "" if hashes else "an index without hashes: "
            yield from (f"{told}{each}: {what}" for what in _refused(get, folder / "cache"))


def _package(fault: Fault, folder: Path) -> Iterator[str]:
    """No server without the distribution's own signature can be a good one, so all are refused."""
    release = b"Origin: Debian\nSuite: stable\nCodename: bookworm\n" * 400
    own = fetching.own_archive("")
    files = {f"/dists/{own.suite}/{name}": release for name in ("InRelease", "Release", "Release.gpg")}
    with FaultyServer(files, fault, "elease").serving() as address:
        archive = fetching.Archive(own.origin, own.suite, f"{address}/")

        def get() -> None:
            with fetching.packages_of(archive, "check the mirror") as packages:
                packages.download("qemu-user")

        yield from _refused(get, folder / "cache")
