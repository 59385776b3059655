"""Compiles the runner against an ExecuTorch wheel, once for each content of everything that goes into it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling import files
from model_profiling.progress import watched
from model_profiling.runner.cache import cache_root, cached, damage_of
from model_profiling.runner.compilers import Compiler, find_compiler
from model_profiling.runner.objects import SOURCES, call, compiled
from model_profiling.runner.sdk import Sdk, installed_sdk

_BINARY = "sme2prof-runner"
_LIBRARIES = ("executorch", "executorch_kernels_optimized", "executorch_kernels_quantized")
_SUPPORT = ("executorch_threadpool", "executorch_etdump")


@dataclass(frozen=True, slots=True)
class RunnerBuild:
    """A built runner and what it was built from."""

    path: Path
    build_id: str
    library_path: Path
    executorch_version: str
    executorch_sha: str | None
    compiler: str
    seconds: float
    cached: bool


def build_runner(
    sdk: Sdk | None = None,
    compiler: Compiler | None = None,
    *,
    extra_flags: Sequence[str] = (),
    fetch: bool = True,
) -> RunnerBuild:
    """The runner for `sdk` (the installed one), from the cache when nothing it depends on has changed.

    It is compiled for the machine that `sdk` is for, which need not be this one. `extra_flags` go to the
    compiler and the linker after all others; `fetch` allows a compiler to be downloaded. Two builds at once
    are safe: each works in a folder of its own and the first to finish is kept. For a wheel elsewhere,
    what was compiled before (`objects`) is only linked.
    """
    began = time.monotonic()
    sdk = sdk or installed_sdk()
    compiler = compiler or find_compiler(sdk.platform, fetch=fetch)
    sources = sorted(SOURCES.glob("*.cpp"))
    compile_flags, link_flags = ([*flags, *extra_flags] for flags in _flags(sdk))
    home = _home(sdk, compiler, extra_flags)
    build_id = home.name
    built = False

    def make(folder: Path) -> None:
        nonlocal built
        built = True
        watched().stage(f"building the runner for {sdk.platform}")
        folder.mkdir()
        objects = compiled(sdk, compiler, sources, compile_flags)
        _link(compiler, objects, link_flags, folder, build_id)
        facts = {"schema_version": 1, "executorch": sdk.version, "compiler": compiler.identity}
        files.write_json(folder / "build.json", facts)

    cached(home, make, "the runner", fetch=True)
    return RunnerBuild(
        path=home / _BINARY,
        build_id=build_id,
        library_path=sdk.libraries,
        executorch_version=sdk.version,
        executorch_sha=sdk.sha,
        compiler=f"{compiler.identity}{_from(compiler)}",
        seconds=time.monotonic() - began,
        cached=not built,
    )


def built_runner(sdk: Sdk, compiler: Compiler) -> tuple[Path, str | None]:
    """Where `build_runner` keeps the runner, and why it would compile it, if it would."""
    home = _home(sdk, compiler)
    return home / _BINARY, damage_of(home)


def _home(sdk: Sdk, compiler: Compiler, extra_flags: Sequence[str] = ()) -> Path:
    """Where the cache keeps the runner that comes of these."""
    flags = [flag for part in _flags(sdk) for flag in (*part, *extra_flags)]
    build_id = _identity(sdk, compiler, sorted(SOURCES.glob("*.cpp")), flags)
    return cache_root() / "runners" / build_id


def _from(compiler: Compiler) -> str:
    return "" if compiler.origin == "installed" else f", from {compiler.origin}"


def _flags(sdk: Sdk) -> tuple[list[str], list[str]]:
    compiling = [
        "-std=c++17",
        "-O2",
        "-fPIE",
        "-DC10_USING_CUSTOM_GENERATED_MACROS",
        "-DET_EVENT_TRACER_ENABLED",
        "-DET_USE_THREADPOOL",
        f'-DSME2PROF_EXECUTORCH_VERSION="{sdk.version}"',
    ]
    is_elf = sdk.platform.system != "macos"
    # On a phone the libraries lie elsewhere than here.
    stay_here = sdk.platform.system != "android"
    linking = [
        f"-L{sdk.libraries}",
        *([f"-Wl,-rpath,{sdk.libraries}"] if stay_here else []),
        # Kernels register themselves when loaded, so the linker must keep libraries nothing seems to use.
        *(["-Wl,--no-as-needed", "-pie"] if is_elf else []),
        *(f"-l{name}" for name in (*_LIBRARIES, *_SUPPORT)),
        *(["-ldl"] if is_elf else []),
    ]
    return compiling, linking


def _identity(sdk: Sdk, compiler: Compiler, sources: Sequence[Path], flags: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for source in (*sources, *sorted(SOURCES.glob("*.h"))):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    facts = [
        sdk.version,
        sdk.sha,
        str(sdk.platform),
        compiler.command,
        compiler.identity,
        list(flags),
    ]
    digest.update(json.dumps(facts).encode())
    return digest.hexdigest()[:16]


_NAMED = """\
namespace sme2prof {
extern const char* const kBuildId;
const char* const kBuildId = "%s";
} // namespace sme2prof
"""


def _link(
    compiler: Compiler, objects: Sequence[Path], flags: Sequence[str], folder: Path, build_id: str
) -> None:
    """Objects are of every runner; which one it is goes in here."""
    named = folder / "build_id.cpp"
    files.write_text(named, _NAMED % build_id)
    call([*compiler.command, "-fPIE", str(named), *map(str, objects), "-o", str(folder / _BINARY), *flags])
    named.unlink()
