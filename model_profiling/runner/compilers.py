"""Finds a C++ compiler for a kind of machine, or gets one into the cache without root.

Asked in this order: the one that CXX names, those that are installed, the distribution's own packages
unpacked into the cache, and the compiler in the `ziglang` wheel. A compiler counts when it has built a C++17
program; a clang without a C library for the machine, for one, is there and cannot.
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from model_profiling.core import files, process
from model_profiling.core.errors import ProfilingError, SetupError
from model_profiling.runner import unpacked_gcc, zig
from model_profiling.runner.apt import Need, this_distribution
from model_profiling.runner.cache import cache_root, make_place
from model_profiling.runner.features import AARCH64_LINUX, Platform, this_platform

# A compiler that unpacks its own C++ library compiles that first.
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
    """A C++ compiler that has built a program: how it is called, what it says it is, where it is from."""

    command: tuple[str, ...]
    identity: str
    origin: str = "installed"


@dataclass(frozen=True, slots=True)
class Prospect:
    """What would compile for a machine: a compiler at hand, or where the first build would get one from."""

    compiler: Compiler | None
    sources: tuple[str, ...]
    refused: tuple[str, ...]
    fix: str

    @property
    def possible(self) -> bool:
        """Whether a build has something to try. Only trying shows whether a source can be reached."""
        return self.compiler is not None or bool(self.sources)


def find_compiler(wanted: Platform | None = None, *, fetch: bool = True) -> Compiler:
    """A compiler for `wanted` (this machine); `fetch` allows one to be downloaded into the cache."""
    wanted = wanted or this_platform()
    refused: list[str] = []
    if not fetch:
        found = prospect(wanted)
        if found.compiler is None:
            fetched = f"the first build gets one from {found.sources[0]}, or " if found.sources else ""
            reasons = "; ".join(found.refused)
            raise SetupError(f"no C++ compiler for {wanted} is at hand ({reasons})", f"{fetched}{found.fix}")
        return found.compiler
    if compiler := _at_hand(wanted, refused):
        return compiler
    for title, maker in _sources(wanted).items():
        try:
            return _checked(maker.command(wanted), wanted, title)
        except ProfilingError as problem:
            refused.append(f"{title}: {problem.problem}")
    raise SetupError(f"no C++ compiler for {wanted} could be had ({'; '.join(refused)})", _fix(wanted))


def prospect(wanted: Platform | None = None) -> Prospect:
    """What `find_compiler` would use, found out without fetching anything."""
    wanted = wanted or this_platform()
    refused: list[str] = []
    sources = {} if os.environ.get("CXX") and wanted.is_native else _sources(wanted)
    try:
        compiler = _at_hand(wanted, refused)
    except SetupError as problem:
        return Prospect(None, (), (problem.problem,), problem.fix)
    for title, maker in sources.items() if compiler is None else ():
        with contextlib.suppress(ProfilingError):
            compiler = _checked(maker.command(wanted, fetch=False), wanted, title)
            break
    return Prospect(compiler, tuple(sources), tuple(refused), _fix(wanted))


def _at_hand(wanted: Platform, refused: list[str]) -> Compiler | None:
    """An installed compiler that works; what does not is added to `refused`. CXX's word is final."""
    if wanted.is_native and (chosen := os.environ.get("CXX")):
        named = tuple(shlex.split(chosen))
        if not named or shutil.which(named[0]) is None:
            raise SetupError(f"there is no C++ compiler {chosen}", "correct CXX or unset it")
        return _checked(named, wanted, "installed", "correct CXX or unset it")
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
    """The commands on the PATH that may compile for `wanted`, likeliest first."""
    if wanted.is_native:
        yield from ((path,) for name in ("g++", "clang++", "c++") if (path := shutil.which(name)))
        yield from ((path,) for path in _on_path(r"(?:clan)?g\+\+-(\d+)"))
    elif wanted == AARCH64_LINUX:
        yield from ((path,) for path in _on_path(r"aarch64-(?:[a-z]+-)?linux(?:-gnu)?-g\+\+(?:-(\d+))?"))
        yield from ((path, "--target=aarch64-linux-gnu") for path in _on_path(r"clang\+\+(?:-(\d+))?"))


def _on_path(pattern: str) -> list[str]:
    """Programs on the PATH, those without a version in their names first, then the newest."""
    versions: dict[str, int] = {}
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        with contextlib.suppress(OSError):
            fitting = filter(None, (re.fullmatch(pattern, path.name) for path in Path(folder).iterdir()))
            versions.update((name[0], int(name[1] or 999)) for name in fitting)
    names = sorted(versions, key=lambda name: (-versions[name], name))
    return [path for name in names if (path := shutil.which(name))]


def _sources(wanted: Platform) -> dict[str, ModuleType]:
    """Where a compiler for `wanted` can be had from on this machine."""
    return {title: maker for maker in (unpacked_gcc, zig) if (title := maker.source(wanted))}


def _fix(wanted: Platform) -> str:
    need: Need = "C++ compiler" if wanted.is_native else "aarch64 compiler"
    return this_distribution().fix(need)


def _checked(command: tuple[str, ...], wanted: Platform, origin: str, cure: str | None = None) -> Compiler:
    """The compiler that `command` runs, once it has been seen to build a program for `wanted`."""
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
    # Zig, asked for its version where it compiles for macOS, leaves an object behind where it is.
    with tempfile.TemporaryDirectory() as folder:
        asked = [str(Path(program).absolute()), *command[1:], "--version"]
        said = process.run(asked, timeout=60, cwd=Path(folder))
    first = said.stdout.strip().splitlines()
    if not said.ok or not first:
        raise SetupError(f"{Path(command[0]).name} does not answer as a C++ compiler", cure)
    return first[0]


def _known_to_work(compiler: Compiler, wanted: Platform) -> Path:
    """A note in the cache that this very compiler has passed."""
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
        reason = (complaints or [built.tail(1)])[0].strip() if not built.ok else "what it made is not one"
        reason = "no answer in time" if built.timed_out else reason
        raise SetupError(f"{compiler.identity} cannot build a C++17 program for {wanted}: {reason}", cure)


def _is_for(header: bytes, wanted: Platform) -> bool:
    """Whether a program that begins with `header` is one for `wanted`."""
    if wanted.system == "macos":
        return header.startswith(b"\xcf\xfa\xed\xfe\x0c\0\0\x01")
    number = _ELF_MACHINES.get(wanted.machine)
    return header.startswith(b"\x7fELF") and number in (None, int.from_bytes(header[18:20], "little"))
