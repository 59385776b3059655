"""Finds a C++ compiler for a platform, or fetches one into the cache without root.

Tried in this order: CXX, installed compilers, the distribution's packages unpacked into the cache, and the
compiler in the `ziglang` wheel. A compiler counts only after it has built a C++17 program: a clang without a
C library for the platform, for example, cannot.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from model_profiling.core import files, process
from model_profiling.core.errors import ProfilingError, SetupError
from model_profiling.runner import fetching
from model_profiling.runner.apt import (
    Need,
    native_architecture,
    own_archive,
    packages_of,
    this_distribution,
    unpack_closure,
)
from model_profiling.runner.cache import cache_root, cached, make_place
from model_profiling.runner.features import AARCH64_LINUX, Platform, this_platform

# A compiler that brings its own C++ library compiles that first.
_PROBE_TIMEOUT_S = 900
_PROBES = "probes"
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


@dataclass(frozen=True, slots=True)
class Prospect:
    """What would compile for a platform: a compiler at hand, or sources that the first build would try."""

    compiler: Compiler | None
    sources: tuple[str, ...]
    refused: tuple[str, ...]
    fix: str

    @property
    def possible(self) -> bool:
        """Whether a build has something to try; whether a source can be reached shows only then."""
        return self.compiler is not None or bool(self.sources)


def find_compiler(wanted: Platform | None = None, *, fetch: bool = True) -> Compiler:
    """Return a compiler for `wanted` (default: this machine); `fetch` allows a download into the cache."""
    wanted = wanted or this_platform()
    refused: list[str] = []
    if not fetch:
        found = prospect(wanted)
        if found.compiler is None:
            fetched = f"the first build gets one from {found.sources[0]}, or " if found.sources else ""
            reasons = "; ".join(found.refused)
            raise SetupError(f"no C++ compiler for {wanted} was found ({reasons})", f"{fetched}{found.fix}")
        return found.compiler
    if compiler := _at_hand(wanted, refused):
        return compiler
    for title, command in _sources(wanted).items():
        try:
            return _checked(command(wanted), wanted, title)
        except ProfilingError as problem:
            refused.append(f"{title}: {problem.problem}")
    raise SetupError(f"no C++ compiler for {wanted} could be downloaded ({'; '.join(refused)})", _fix(wanted))


def prospect(wanted: Platform | None = None) -> Prospect:
    """Return what `find_compiler` would use, without fetching anything."""
    wanted = wanted or this_platform()
    refused: list[str] = []
    sources = {} if os.environ.get("CXX") and wanted.is_native else _sources(wanted)
    try:
        compiler = _at_hand(wanted, refused)
    except SetupError as problem:
        return Prospect(None, (), (problem.problem,), problem.fix)
    for title, command in sources.items() if compiler is None else ():
        with contextlib.suppress(ProfilingError):
            compiler = _checked(command(wanted, fetch=False), wanted, title)
            break
    return Prospect(compiler, tuple(sources), tuple(refused), _fix(wanted))


def _at_hand(wanted: Platform, refused: list[str]) -> Compiler | None:
    """Return an installed compiler that works; add others to `refused`. If CXX is set, only that counts."""
    if wanted.is_native and (chosen := os.environ.get("CXX")):
        named = tuple(shlex.split(chosen))
        if not named or shutil.which(named[0]) is None:
            raise SetupError(f"there is no C++ compiler {chosen}", "correct CXX, or unset it")
        return _checked(named, wanted, "installed", "correct CXX, or unset it")
    candidates = list(_installed(wanted))
    for command in candidates:
        try:
            return _checked(command, wanted, "installed")
        except SetupError as problem:
            refused.append(problem.problem)
    if not candidates:
        refused.append("none is installed")
    return None


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


def _sources(wanted: Platform) -> dict[str, Callable[..., tuple[str, ...]]]:
    makers = ((gcc_source, gcc_command), (zig_source, zig_command))
    return {title: command for source, command in makers if (title := source(wanted))}


def _fix(wanted: Platform) -> str:
    need: Need = "C++ compiler" if wanted.is_native else "aarch64 compiler"
    return this_distribution().fix(need)


def _checked(command: tuple[str, ...], wanted: Platform, origin: str, cure: str | None = None) -> Compiler:
    """Return the compiler that `command` runs, after it has built a program for `wanted`."""
    compiler = Compiler(command, _identity(command, cure or _fix(wanted)), origin)
    if not _known_to_work(compiler, wanted).is_file():
        _probe(compiler, wanted, cure or _fix(wanted))
        # Only a shortcut: without it the probe runs again.
        with contextlib.suppress(ProfilingError):
            note = make_place(_PROBES) / _known_to_work(compiler, wanted).name
            files.write_text(note, f"{compiler.identity}\n")
    return compiler


def _identity(command: Sequence[str], cure: str) -> str:
    program = shutil.which(command[0]) or command[0]
    # Zig, asked for its version with a macOS target, leaves an object file in the working folder.
    with tempfile.TemporaryDirectory() as folder:
        asked = [str(Path(program).absolute()), *command[1:], "--version"]
        said = process.run(asked, timeout=60, cwd=Path(folder))
    first = said.stdout.strip().splitlines()
    if not said.ok or not first:
        raise SetupError(f"{Path(command[0]).name} does not answer as a C++ compiler", cure)
    return first[0]


def _known_to_work(compiler: Compiler, wanted: Platform) -> Path:
    """Return the path of the cached note that this exact compiler passed the probe."""
    program = Path(shutil.which(compiler.command[0]) or compiler.command[0]).resolve()
    changed = program.stat().st_mtime_ns if program.exists() else 0
    facts = [compiler.command, compiler.identity, str(wanted), str(program), changed, _PROBE]
    return cache_root() / _PROBES / hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def _probe(compiler: Compiler, wanted: Platform, cure: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder, "probe.cpp"), Path(folder, "probe")
        source.write_text(_PROBE, encoding="utf-8")
        built = process.run(
            [*compiler.command, "-std=c++17", "-O2", source, "-o", binary], timeout=_PROBE_TIMEOUT_S
        )
        made = built.ok and binary.is_file() and binary.read_bytes()[:20]
        fits = made and _is_for(made, wanted)
        ran = fits and (not wanted.is_native or process.run([binary], timeout=60).ok)
    if not ran:
        complaints = [line for line in built.stderr.splitlines() if "error" in line.lower()]
        reason = (
            (complaints or [built.tail(1)])[0].strip()
            if not built.ok
            else ("its output is not such a program")
        )
        reason = "no answer in time" if built.timed_out else reason
        raise SetupError(f"{compiler.identity} cannot build a C++17 program for {wanted}: {reason}", cure)


def _is_for(header: bytes, wanted: Platform) -> bool:
    if wanted.system == "macos":
        return header.startswith(b"\xcf\xfa\xed\xfe\x0c\0\0\x01")
    number = _ELF_MACHINES.get(wanted.machine)
    return header.startswith(b"\x7fELF") and number in (None, int.from_bytes(header[18:20], "little"))


# g++ from the distribution's packages, unpacked into the cache: needs no configuration and no root.

_APT_CURE = "install it with apt"
_CROSS = "aarch64-linux-gnu"
# The libraries beside the compiler leave out the C library, which must match the machine's loader.
GCC_SCRIPT = """\
#!/bin/sh
home=${{0%/*}}
LD_LIBRARY_PATH="$home/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" PATH="$home/sysroot/usr/bin:$PATH" \\
  exec "$home/sysroot/usr/bin/{program}" --sysroot="$home/sysroot" "$@"
"""


def gcc_source(wanted: Platform) -> str | None:
    """Return the name of the source, if this machine's apt should have g++; fetches nothing."""
    if wanted.system != "linux" or not (wanted.is_native or wanted == AARCH64_LINUX):
        return None
    try:
        archive = own_archive(_APT_CURE)
    except SetupError:
        return None
    return f"{archive.origin}'s packages" if archive.keyring() else None


def gcc_command(wanted: Platform, *, fetch: bool = True) -> tuple[str, ...]:
    """Return the command of g++; fetches the packages the first time."""
    program = "g++" if wanted.is_native else f"{_CROSS}-g++"
    return (str(_gcc_home(wanted, fetch=fetch) / program),)


def aarch64_libraries() -> Path | None:
    """Return the aarch64 C and C++ libraries of an unpacked cross compiler, if there is one."""
    try:
        return _gcc_home(AARCH64_LINUX, fetch=False) / "sysroot/usr" / _CROSS
    except SetupError:
        return None


def cover_multiarch(libraries: Path) -> None:
    """Make the cross packages' libraries also available under Debian's multiarch paths. An emulator takes a
    file from the machine itself if its root has none of that name. On an Arm machine that would be a C
    library of another build than the loader's, and the program would not start."""
    (libraries / "lib" / _CROSS).symlink_to(".")
    (libraries / "usr").symlink_to(".")


def _gcc_home(wanted: Platform, *, fetch: bool) -> Path:
    archive = own_archive(_APT_CURE)
    program = "g++" if wanted.is_native else f"{_CROSS}-g++"
    package = "g++" if wanted.is_native else f"g++-{_CROSS}"

    def make(into: Path) -> None:
        with packages_of(archive, _APT_CURE) as packages:
            unpack_closure(packages, [package], into / "sysroot", into / "lib")
        if not wanted.is_native:
            cover_multiarch(into / "sysroot/usr" / _CROSS)
        script = into / program
        script.write_text(GCC_SCRIPT.format(program=program), encoding="utf-8")
        script.chmod(0o755)

    name = f"{archive.origin.lower()}-{archive.suite}-{native_architecture()}-{package}"
    return cached(
        cache_root() / "compilers" / name, make, f"{package} from {archive.origin}'s packages", fetch=fetch
    )


# The C++ compiler in the `ziglang` wheel: one download for any Linux or macOS, which compiles for any other.
# It has headers and stubs of the C libraries, and its own C++ library, which it builds the first time.
# ExecuTorch's Linux libraries use another C++ library: functions with types of either cannot be linked to the
# other. `_SAME_LAYOUT` makes the types agree that cross over inside ExecuTorch's own types.

_ZIG = "the ziglang wheel"
ZIG_RELEASE = "0.17"
_PACKAGE = f"ziglang=={ZIG_RELEASE}.*"
_INDEX_CURE = "check the connection to the package index"
_TARGETS = {
    # The oldest glibc that ExecuTorch's wheels run on, and the oldest macOS.
    ("linux", "aarch64"): "aarch64-linux-gnu.2.28",
    ("linux", "x86_64"): "x86_64-linux-gnu.2.28",
    ("macos", "aarch64"): "aarch64-macos.14.0",
}
# A program holds its data in a std::variant, which both sides move: libstdc++ keeps its index in one byte,
# libc++ in four unless told so. Without this a runner sometimes ends in std::bad_variant_access.
_SAME_LAYOUT = "-D_LIBCPP_ABI_VARIANT_INDEX_TYPE_OPTIMIZATION"
ZIG_SCRIPT = """\
#!/bin/sh
home=${0%/*}
ZIG_GLOBAL_CACHE_DIR="$home/../zig-cache" ZIG_LOCAL_CACHE_DIR="$home/../zig-cache" \\
  exec "$home/ziglang/zig" c++ "$@"
"""


def zig_source(wanted: Platform) -> str | None:
    """Return its name if it compiles for `wanted` and this Python has, or can make, a pip to get it."""
    # PathFinder only: setuptools' import hooks print warnings that are not ours.
    has_pip = any(PathFinder.find_spec(name) for name in ("pip", "ensurepip"))
    return _ZIG if (wanted.system, wanted.machine) in _TARGETS and has_pip else None


def zig_command(wanted: Platform, *, fetch: bool = True) -> tuple[str, ...]:
    """Return the command that compiles C++ for `wanted`; fetches the wheel the first time."""
    home = cached(cache_root() / "compilers" / f"ziglang-{ZIG_RELEASE}", _install_zig, _ZIG, fetch=fetch)
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
        raise SetupError(f"pip cannot download {_PACKAGE}: {done.tail(1)}", _INDEX_CURE)
    script = into / "c++"
    script.write_text(ZIG_SCRIPT, encoding="utf-8")
    script.chmod(0o755)
