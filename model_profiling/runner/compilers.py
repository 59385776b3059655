"""Finds a C++ compiler for a platform: CXX, then what is on the PATH, else the one in the `ziglang` wheel,
which is fetched into the cache and compiles for this machine, phones and emulated machines alike. A compiler
counts only after it has built a C++17 program: a clang without a C library for the platform cannot.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from model_profiling.core import files, process
from model_profiling.core.errors import SetupError
from model_profiling.runner import fetching
from model_profiling.runner.cache import cache_root, cached, make_root
from model_profiling.runner.features import AARCH64_LINUX, Platform, this_platform
from model_profiling.runner.fetching import this_distribution

# A compiler that brings its own C++ library compiles that first.
_PROBE_TIMEOUT_S = 900
_PROBE = """\
#include <fstream>
#include <optional>
#include <string>
#include <variant>
int main(int argc, char** argv) {
  std::optional<std::string> name{argv[0]};
  std::variant<int, std::string> either{*name};
  return std::ifstream(argc > 1 ? argv[1] : "").good() + static_cast<int>(either.index()) - 1;
}
"""
_ELF_MACHINES = {"aarch64": 183, "x86_64": 62}


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler that has built a program: its command, its version line, and where it is from."""

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
        return _checked(named, wanted, "installed", "correct CXX, or unset it")
    make_root()  # a cache that cannot be made is no compiler's fault
    refused: list[str] = []
    later = ""
    for command in _installed(wanted):
        try:
            return _checked(command, wanted, "installed")
        except SetupError as problem:
            refused.append(problem.problem)
    refused = refused or ["none is installed"]
    if can_be_fetched(wanted):
        try:
            return _checked(zig_command(wanted, fetch=fetch), wanted, ZIG)
        except SetupError as problem:
            if fetch:
                refused.append(f"{ZIG}: {problem.problem}")
            else:
                later = f"the first build gets one from {ZIG}, or "
    fix = later + this_distribution().fix("C++ compiler" if wanted.is_native else "aarch64 compiler")
    raise SetupError(f"no C++ compiler for {wanted} was found ({'; '.join(refused)})", fix)


def can_be_fetched(wanted: Platform) -> bool:
    """Whether a build may get the wheel's compiler: it compiles for `wanted`, no other was named, and this
    Python has, or can make, a pip. Whether the index can be reached shows only then."""
    named = wanted.is_native and os.environ.get("CXX")
    # PathFinder only: setuptools' import hooks print warnings that are not ours.
    has_pip = any(PathFinder.find_spec(name) for name in ("pip", "ensurepip"))
    return (wanted.system, wanted.machine) in _TARGETS and has_pip and not named


def _installed(wanted: Platform) -> Iterator[tuple[str, ...]]:
    """Yield the commands on the PATH that may compile for `wanted`, likeliest first."""
    if wanted.is_native:
        yield from ((path,) for name in ("g++", "clang++", "c++") if (path := shutil.which(name)))
        yield from ((path,) for path in _on_path(r"(?:clan)?g\+\+-(\d+)"))
    elif wanted == AARCH64_LINUX:
        yield from ((path,) for path in _on_path(r"aarch64-(?:[a-z]+-)?linux(?:-gnu)?-g\+\+(?:-(\d+))?"))
        yield from ((path, "--target=aarch64-linux-gnu") for path in _on_path(r"clang\+\+(?:-(\d+))?"))


def _on_path(pattern: str) -> list[str]:
    """Return matching programs on the PATH: those without a version in the name first, then the newest."""
    versions: dict[str, int] = {}
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        with contextlib.suppress(OSError):
            fitting = filter(None, (re.fullmatch(pattern, path.name) for path in Path(folder).iterdir()))
            versions.update((name[0], int(name[1] or 999)) for name in fitting)
    names = sorted(versions, key=lambda name: (-versions[name], name))
    return [path for name in names if (path := shutil.which(name))]


def _checked(command: tuple[str, ...], wanted: Platform, origin: str, cure: str = "") -> Compiler:
    """Return the compiler that `command` runs, after it has built a program for `wanted`; what it built is
    kept, so that it is asked once."""
    program = Path(shutil.which(command[0]) or command[0]).absolute()
    # Zig, asked for its version with a macOS target, leaves an object file in the working folder.
    with tempfile.TemporaryDirectory() as folder:
        answer = process.run([program, *command[1:], "--version"], timeout=60, cwd=Path(folder))
    first = answer.stdout.strip().splitlines()
    if not answer.ok or not first:
        raise SetupError(f"{Path(command[0]).name} does not answer as a C++ compiler", cure)
    compiler = Compiler(command, first[0], origin)
    facts = [command, compiler.identity, str(wanted), str(program), program.stat().st_mtime_ns, _PROBE]
    home = cache_root() / "tested" / hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    cached(home, lambda into: _probe(compiler, wanted, into, cure), "what a compiler built", fetch=True)
    return compiler


def _probe(compiler: Compiler, wanted: Platform, folder: Path, cure: str) -> None:
    source, binary = folder / "probe.cpp", folder / "probe"
    files.write_text(source, _PROBE)
    command = [*compiler.command, "-std=c++17", "-O2", str(source), "-o", str(binary)]
    built = process.run(command, timeout=_PROBE_TIMEOUT_S)
    made = built.ok and binary.is_file() and _is_for(binary.read_bytes()[:20], wanted)
    if made and (not wanted.is_native or process.run([binary], timeout=60).ok):
        return
    complaints = [line for line in built.stderr.splitlines() if "error" in line.lower()]
    reason = (complaints or [built.tail(1)])[0].strip()
    reason = "its output is not such a program" if built.ok else reason
    reason = "no answer in time" if built.timed_out else reason
    raise SetupError(f"{compiler.identity} cannot build a C++17 program for {wanted}: {reason}", cure)


def _is_for(header: bytes, wanted: Platform) -> bool:
    if wanted.system == "macos":
        return header.startswith(b"\xcf\xfa\xed\xfe\x0c\0\0\x01")
    number = _ELF_MACHINES.get(wanted.machine)
    return header.startswith(b"\x7fELF") and number in (None, int.from_bytes(header[18:20], "little"))


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
