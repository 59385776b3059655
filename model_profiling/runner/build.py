"""Compiles the runner against the installed ExecuTorch wheel, once for each state of its inputs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from model_profiling.core import files, process
from model_profiling.core.errors import SetupError
from model_profiling.core.hints import install_extra, wheel_folder
from model_profiling.core.records import Check
from model_profiling.core.stdio import current_progress
from model_profiling.runner.cache import cache_root, cached, check_cache
from model_profiling.runner.compilers import Compiler, find_compiler
from model_profiling.runner.features import Platform, this_platform


@dataclass(frozen=True, slots=True)
class Sdk:
    """An ExecuTorch wheel, installed or unpacked, for one platform."""

    root: Path
    version: str
    sha: str | None
    machine: str

    @property
    def platform(self) -> Platform:
        on_macos = (self.libraries / "libexecutorch.dylib").is_file()
        return Platform("macos" if on_macos else "linux", self.machine)

    @property
    def include(self) -> Path:
        return self.root / "include"

    @property
    def libraries(self) -> Path:
        return self.root / "lib"


def installed_sdk() -> Sdk:
    """Return the wheel in this Python's environment, found without importing it."""
    folder = wheel_folder()
    if folder is None:
        raise SetupError("the ExecuTorch wheel is not installed in this Python", install_extra("executorch"))
    # The real path, so that environments that share a wheel share its runner.
    return sdk_at(folder.resolve(), this_platform().machine)


_AGAIN = "remove {}, and install ExecuTorch's wheel again (one in the cache is fetched again)"


def sdk_at(root: Path, machine: str) -> Sdk:
    """Return the SDK under `root`, after checking for the parts that the runner needs."""
    for part in ("version.py", "include/executorch/runtime/executor/method.h", "lib"):
        if not (root / part).exists():
            lacking = f"the ExecuTorch in {root} has no {part}, so it is not an official wheel"
            raise SetupError(lacking, _AGAIN.format(root))
    text = (root / "version.py").read_text(encoding="utf-8")
    version = re.search(r"__version__[^=\n]*=[ \t]*['\"]([^'\"\n]+)['\"]", text)
    sha = re.search(r"git_version[^=\n]*=[ \t]*['\"]([0-9a-f]{7,40})['\"]", text)
    if version is None:
        raise SetupError(f"the version of the ExecuTorch in {root} cannot be found", _AGAIN.format(root))
    return Sdk(root, version.group(1), sha.group(1) if sha else None, machine)


# Compiled objects are cached by content. The wheel's location does not matter before linking: another
# environment with the same wheel, such as the next CI job with a restored cache, only links them.

SOURCES = Path(__file__).resolve().parent
# An emulated compiler takes minutes per file.
_TIMEOUT_S = 900
_UNIT = """\
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wsubobject-linkage"  // it takes what is included for a header
#endif
"""


def compiled(sdk: Sdk, compiler: Compiler, sources: Sequence[Path], flags: Sequence[str]) -> list[Path]:
    """Return the objects of `sources`, cached if compiled before; `flags` must not name `sdk`'s folder."""
    # One part per CPU, each compiled as one: ExecuTorch's headers, which take most of the time, are then read
    # only once.
    parts: list[list[Path]] = [[] for _ in range(min(os.cpu_count() or 1, len(sources)))]
    for source in sorted(sources, key=lambda path: -path.stat().st_size):
        min(parts, key=lambda part: sum(path.stat().st_size for path in part)).append(source)

    def make(folder: Path) -> None:
        folder.mkdir()
        _compile([*compiler.command, *flags, *places(sdk)], parts, folder)

    # Everything the compiler reads, except its own headers.
    walked = os.walk(sdk.include, followlinks=True)
    theirs = sorted(Path(folder, name) for folder, _, names in walked for name in names)
    read = [*_with_headers(sources), *((sdk.include, path) for path in theirs)]
    facts = [compiler.command, compiler.identity, str(sdk.platform), list(flags), len(parts)]
    home = cache_root() / "objects" / _identity(read, facts)
    return sorted(cached(home, make, "the compiled runner", fetch=True).glob("*.o"))


def places(sdk: Sdk) -> list[str]:
    """Return flags that locate ExecuTorch's headers and keep this machine's paths out of the objects."""
    includes = (sdk.include, sdk.include / "executorch/runtime/core/portable_type/c10")
    names = ((SOURCES, "runner"), (sdk.root, "executorch"))
    return [
        *(f"-isystem{folder}" for folder in includes),
        *(f"-ffile-prefix-map={folder}={name}" for folder, name in names),
    ]


def _identity(contents: Iterable[tuple[Path, Path]], facts: Sequence[object]) -> str:
    """Return a hash of files, each named relative to its folder, and of facts."""
    digest = hashlib.sha256()
    for root, path in contents:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)}\0{len(content)}\0".encode() + content)
    digest.update(json.dumps(facts).encode())
    return digest.hexdigest()[:16]


def _with_headers(sources: Iterable[Path]) -> list[tuple[Path, Path]]:
    return [(SOURCES, path) for path in (*sorted(sources), *sorted(SOURCES.glob("*.h")))]


def _compile(command: Sequence[str], parts: Sequence[Sequence[Path]], folder: Path) -> None:
    stop = threading.Event()

    def compile_one(unit: Path) -> None:
        call([*command, "-c", str(unit), "-o", str(unit.with_suffix(".o"))], stop)
        unit.unlink()

    units = [folder / f"unit{number}.cpp" for number in range(len(parts))]
    for unit, part in zip(units, parts, strict=True):
        files.write_text(unit, _UNIT + "".join(f'#include "{source}"\n' for source in part))
    with ThreadPoolExecutor(max_workers=len(units)) as pool:
        try:
            list(pool.map(compile_one, units))
        except BaseException:  # Ctrl-C or a failure: stop the others
            stop.set()
            raise


def call(command: Sequence[str], stop: threading.Event | None = None) -> None:
    """Run a compiler; raise an error with its complaint if it fails."""
    done = process.run(command, timeout=_TIMEOUT_S, stop=stop)
    if done.ok:
        return
    if done.timed_out:
        late = f"{Path(command[0]).name} did not finish building the runner in {_TIMEOUT_S} s"
        raise SetupError(late, "try again when the machine is less busy")
    complaints = [line for line in done.stderr.splitlines() if "error" in line.lower()]
    reason = (complaints or [f"exit code {done.returncode}"])[0].strip()
    raise SetupError(
        f"{Path(command[0]).name} cannot build the runner: {reason}",
        (
            "use another compiler with C++17 (g++ 9, clang 10 or newer); set CXX to choose the one for "
            "this machine"
        ),
    )


_BINARY = "sme2prof-runner"
_LIBRARIES = ("executorch", "executorch_kernels_optimized", "executorch_kernels_quantized")
_SUPPORT = ("executorch_threadpool", "executorch_etdump")


@dataclass(frozen=True, slots=True)
class RunnerBuild:
    path: Path
    build_id: str
    library_path: Path
    executorch_version: str
    executorch_sha: str | None
    compiler: str
    seconds: float
    cached: bool

    @property
    def versions(self) -> dict[str, str]:
        return {"executorch": self.executorch_version, "compiler": self.compiler}


def build_runner(
    sdk: Sdk | None = None,
    compiler: Compiler | None = None,
    *,
    extra_flags: Sequence[str] = (),
    fetch: bool = True,
) -> RunnerBuild:
    """Return the runner for `sdk` (default: the installed one), cached if nothing it depends on has changed.

    It is compiled for the machine of `sdk`, which may be another one. `extra_flags` go to the compiler and
    the linker after all others; `fetch` allows a compiler to be downloaded. Concurrent builds are safe: each
    works in its own folder and the first to finish is kept. If only the wheel's location changed, it is only
    linked.
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
        current_progress().stage(f"building the runner for {sdk.platform}")
        folder.mkdir()
        objects = compiled(sdk, compiler, sources, compile_flags)
        # Objects are shared by all runners, so the build id is added here.
        named, binary = folder / "build_id.cpp", str(folder / _BINARY)
        files.write_text(named, _NAMED % build_id)
        call([*compiler.command, "-fPIE", str(named), *map(str, objects), "-o", binary, *link_flags])
        named.unlink()
        facts = {"schema_version": 1, "executorch": sdk.version, "compiler": compiler.identity}
        files.write_json(folder / "build.json", facts)

    cached(home, make, "the runner", fetch=True)
    return RunnerBuild(
        path=home / _BINARY,
        build_id=build_id,
        library_path=sdk.libraries,
        executorch_version=sdk.version,
        executorch_sha=sdk.sha,
        compiler=compiler.identity + ("" if compiler.origin == "installed" else f", from {compiler.origin}"),
        seconds=time.monotonic() - began,
        cached=not built,
    )


def built_runner(sdk: Sdk, compiler: Compiler) -> Path:
    """Return where `build_runner` keeps the runner."""
    return _home(sdk, compiler) / _BINARY


def _home(sdk: Sdk, compiler: Compiler, extra_flags: Sequence[str] = ()) -> Path:
    """Return the cache folder of the runner built from these."""
    flags = [flag for part in _flags(sdk) for flag in (*part, *extra_flags)]
    facts = [sdk.version, sdk.sha, str(sdk.platform), compiler.command, compiler.identity, flags]
    return cache_root() / "runners" / _identity(_with_headers(SOURCES.glob("*.cpp")), facts)


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
    linking = [
        f"-L{sdk.libraries}",
        f"-Wl,-rpath,{sdk.libraries}",
        # Kernels register themselves when loaded, so the linker must keep libraries that seem unused.
        *(["-Wl,--no-as-needed", "-pie"] if is_elf else []),
        *(f"-l{name}" for name in (*_LIBRARIES, *_SUPPORT)),
        *(["-ldl"] if is_elf else []),
    ]
    return compiling, linking


_NAMED = """\
namespace sme2prof {
extern const char* const kBuildId;
const char* const kBuildId = "%s";
} // namespace sme2prof
"""


_NAME = "runner"


def runner_check() -> Check:
    """Check whether the kit's runner is built and starts; what its build needs has checks of its own."""
    try:
        check_cache()
        built = built_runner(installed_sdk(), find_compiler(fetch=False))
    except SetupError as problem:
        return Check(_NAME, "skipped", f"not built yet: {problem.problem}")
    if not built.is_file():
        return Check(_NAME, "pass", "not built yet; the first run builds it")
    started = process.run([built, "--features-only"], timeout=60)
    if not started.ok:
        reason = started.tail(1) or f"exit {started.returncode}"
        fix = f"rm -r {built.parent}, and the next run builds it again"
        return Check(_NAME, "fail", f"{built} does not start: {reason}", fix)
    return Check(_NAME, "pass", f"built and starts: {built}")
