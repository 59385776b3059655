"""Finds a C++ compiler for a platform: CXX, then what is on the PATH, else the one in the `ziglang` wheel,
which is fetched into the cache and compiles for this machine, phones and emulated machines alike."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.runner import fetching
from model_profiling.runner.cache import cache_root, cached, make_root
from model_profiling.runner.features import AARCH64_LINUX, Platform, this_platform
from model_profiling.runner.fetching import fix_for

_INSTALLED = ("g++", "clang++", "c++")
_CROSS = ("aarch64-linux-gnu-g++",)


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler: its command, its version line, and where it is from."""

    command: tuple[str, ...]
    identity: str
    origin: str = "installed"


def find_compiler(wanted: Platform | None = None, *, fetch: bool = True) -> Compiler:
    """Return a compiler for `wanted` (default: this machine); `fetch` allows a download into the cache."""
    wanted = wanted or this_platform()
    if wanted.is_native and (chosen := os.environ.get("CXX")):
        named = tuple(shlex.split(chosen))
        if not named or shutil.which(named[0]) is None:
            raise SetupError(f"there is no C++ compiler {chosen}", "correct CXX, or unset it")
        return _checked(named, "installed", "correct CXX, or unset it")
    make_root()  # a cache that cannot be made is no compiler's fault
    refused: list[str] = []
    later = ""
    names = _INSTALLED if wanted.is_native else _CROSS if wanted == AARCH64_LINUX else ()
    for program in filter(None, map(shutil.which, names)):
        try:
            return _checked((program,), "installed")
        except SetupError as problem:
            refused.append(problem.problem)
    refused = refused or ["none is installed"]
    if can_be_fetched(wanted):
        try:
            return _checked(zig_command(wanted, fetch=fetch), ZIG)
        except SetupError as problem:
            if fetch:
                refused.append(f"{ZIG}: {problem.problem}")
            else:
                later = f"the first build gets one from {ZIG}, or "
    fix = later + fix_for("C++ compiler" if wanted.is_native else "aarch64 compiler")
    raise SetupError(f"no C++ compiler for {wanted} was found ({'; '.join(refused)})", fix)


def can_be_fetched(wanted: Platform) -> bool:
    """Whether a build may get the wheel's compiler: it compiles for `wanted`, no other was named, and this
    Python has, or can make, a pip. Whether the index can be reached shows only then."""
    named = wanted.is_native and os.environ.get("CXX")
    # PathFinder only: setuptools' import hooks print warnings that are not ours.
    has_pip = any(PathFinder.find_spec(name) for name in ("pip", "ensurepip"))
    return (wanted.system, wanted.machine) in _TARGETS and has_pip and not named


def _checked(command: tuple[str, ...], origin: str, cure: str = "") -> Compiler:
    """Return the compiler that `command` runs, if it says its version: macOS has a stand-in that does not."""
    # Zig, asked for its version with a macOS target, leaves an object file in the working folder.
    with tempfile.TemporaryDirectory() as folder:
        program = Path(shutil.which(command[0]) or command[0]).absolute()
        answer = process.run([program, *command[1:], "--version"], timeout=60, cwd=Path(folder))
    first = answer.stdout.strip().splitlines()
    if not answer.ok or not first:
        raise SetupError(f"{program.name} does not answer as a C++ compiler", cure)
    if program.name in _CROSS:  # Fedora's has none
        library = process.run([program, "-print-file-name=libstdc++.so"], timeout=60)
        if "/" not in library.stdout:
            raise SetupError(f"{program.name} has no C++ library", cure)
    return Compiler(command, first[0], origin)


# The C++ compiler in the `ziglang` wheel: one download for any Linux or macOS, which compiles for any other.
# It has headers and stubs of the C libraries, and its own C++ library, which it builds the first time.
# ExecuTorch's Linux libraries use another C++ library: functions with types of either cannot be linked to the
# other. `_SAME_LAYOUT` makes the types agree that cross over inside ExecuTorch's own types.

ZIG = "the ziglang wheel"
ZIG_RELEASE = "0.17"
_TARGETS = {
    # The oldest glibc that ExecuTorch's wheels run on, and the oldest macOS.
    ("linux", "aarch64"): "aarch64-linux-gnu.2.28",
    ("linux", "x86_64"): "x86_64-linux-gnu.2.28",
    ("macos", "aarch64"): "aarch64-macos.14.0",
}
# A program holds its data in a std::variant, which both sides move: libstdc++ keeps its index in one byte,
# libc++ in four unless told so. Without this a runner sometimes ends in std::bad_variant_access.
_SAME_LAYOUT = "-D_LIBCPP_ABI_VARIANT_INDEX_TYPE_OPTIMIZATION"
_ZIG_SCRIPT = """\
#!/bin/sh
home=${0%/*}
ZIG_GLOBAL_CACHE_DIR="$home/../zig-cache" ZIG_LOCAL_CACHE_DIR="$home/../zig-cache" \\
  exec "$home/ziglang/zig" c++ "$@"
"""


def zig_command(wanted: Platform, *, fetch: bool = True) -> tuple[str, ...]:
    """Return the command that compiles C++ for `wanted`; fetches the wheel the first time."""
    home = cached(cache_root() / "compilers" / f"ziglang-{ZIG_RELEASE}", _install_zig, ZIG, fetch=fetch)
    layout = (_SAME_LAYOUT,) if wanted.system == "linux" else ()
    # The level also selects the build of its C++ library; fixed here, there is only one.
    return (str(home / "c++"), "-target", _TARGETS[wanted.system, wanted.machine], "-O2", *layout)


def _install_zig(into: Path) -> None:
    done = fetching.pip(
        *("install", "--no-deps", "--only-binary=:all:", "--no-compile", "--target", into),
        *fetching.pip_words("ziglang"),
        timeout=900,
    )
    if not done.ok:
        raise SetupError(
            f"pip cannot download ziglang {ZIG_RELEASE}: {done.tail(1)}",
            "check the connection to the package index",
        )
    script = into / "c++"
    script.write_text(_ZIG_SCRIPT, encoding="utf-8")
    script.chmod(0o755)
