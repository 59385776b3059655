"""Compiles the runner against an ExecuTorch wheel, once for each content of everything that goes into it."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from model_profiling import files, process
from model_profiling.errors import SetupError
from model_profiling.runner.cache import cache_root, cached, damage_of
from model_profiling.runner.compilers import Compiler, find_compiler
from model_profiling.runner.sdk import Sdk, installed_sdk

_SOURCES = Path(__file__).parent
_BINARY = "sme2prof-runner"
_LIBRARIES = ("executorch", "executorch_kernels_optimized", "executorch_kernels_quantized")
_SUPPORT = ("executorch_threadpool", "executorch_etdump")
# A compiler that is itself emulated takes minutes for a file.
_TIMEOUT_S = 900


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
    are safe: each works in a folder of its own and the first to finish is kept.
    """
    began = time.monotonic()
    sdk = sdk or installed_sdk()
    compiler = compiler or find_compiler(sdk.platform, fetch=fetch)
    sources = sorted(_SOURCES.glob("*.cpp"))
    compile_flags, link_flags = ([*flags, *extra_flags] for flags in _flags(sdk))
    home = _home(sdk, compiler, extra_flags)
    build_id = home.name
    built = False

    def make(folder: Path) -> None:
        nonlocal built
        built = True
        folder.mkdir()
        identified = [*compile_flags, f'-DSME2PROF_BUILD_ID="{build_id}"']
        _compile(compiler, sources, identified, link_flags, folder)
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
    build_id = _identity(sdk, compiler, sorted(_SOURCES.glob("*.cpp")), flags)
    return cache_root() / "runners" / build_id


def _from(compiler: Compiler) -> str:
    return "" if compiler.origin == "installed" else f", from {compiler.origin}"


def _flags(sdk: Sdk) -> tuple[list[str], list[str]]:
    includes = (sdk.include, sdk.include / "executorch/runtime/core/portable_type/c10")
    compiling = [
        "-std=c++17",
        "-O2",
        "-fPIE",
        "-DC10_USING_CUSTOM_GENERATED_MACROS",
        "-DET_EVENT_TRACER_ENABLED",
        "-DET_USE_THREADPOOL",
        f'-DSME2PROF_EXECUTORCH_VERSION="{sdk.version}"',
        *(f"-isystem{folder}" for folder in includes),
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
    for source in (*sources, *sorted(_SOURCES.glob("*.h"))):
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


def _compile(
    compiler: Compiler,
    sources: Sequence[Path],
    compile_flags: Sequence[str],
    link_flags: Sequence[str],
    folder: Path,
) -> None:
    def compile_one(unit: Path) -> Path:
        target = unit.with_suffix(".o")
        _call([*compiler.command, *compile_flags, "-c", str(unit), "-o", str(target)], "the runner", stop)
        return target

    units, stop = _units(sources, folder), threading.Event()
    with ThreadPoolExecutor(max_workers=len(units)) as pool:
        try:
            objects = list(pool.map(compile_one, units))
        except BaseException:  # Ctrl-C, or one that failed: nobody waits for the others
            stop.set()
            raise
    command = [*compiler.command, *map(str, objects), "-o", str(folder / _BINARY), *link_flags]
    _call(command, "the runner")
    for made in (*units, *objects):
        made.unlink()


_UNIT = """\
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wsubobject-linkage"  // it takes what is included for a header
#endif
"""


def _units(sources: Sequence[Path], folder: Path) -> list[Path]:
    """A file for each CPU that includes its part of the sources: most of a source's time is ExecuTorch's
    headers, which are then read once."""
    parts: list[list[Path]] = [[] for _ in range(min(os.cpu_count() or 1, len(sources)))]
    for source in sorted(sources, key=lambda path: -path.stat().st_size):
        min(parts, key=lambda part: sum(path.stat().st_size for path in part)).append(source)
    units = []
    for number, part in enumerate(parts):
        unit = folder / f"unit{number}.cpp"
        files.write_text(unit, _UNIT + "".join(f'#include "{source.resolve()}"\n' for source in part))
        units.append(unit)
    return units


def _call(command: Sequence[str], what: str, stop: threading.Event | None = None) -> None:
    done = process.run(command, timeout=_TIMEOUT_S, stop=stop)
    if done.ok:
        return
    if done.timed_out:
        late = f"{Path(command[0]).name} did not build {what} in {_TIMEOUT_S} s"
        raise SetupError(late, "try again when the machine is less busy")
    complaints = [line for line in done.stderr.splitlines() if "error" in line.lower()]
    reason = (complaints or [f"exit code {done.returncode}"])[0].strip()
    raise SetupError(
        f"{Path(command[0]).name} cannot build {what}: {reason}",
        "use another compiler with C++17 (g++ 9, clang 10 or newer); CXX names the one for this machine",
    )
