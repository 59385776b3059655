"""The runner's sources compiled, once for each content of what they are compiled from.

Where ExecuTorch's wheel lies does not matter before linking: another environment with the same wheel, such as
the next job of CI with a cache that was kept, links what was compiled for the first.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from model_profiling import files, process
from model_profiling.errors import SetupError
from model_profiling.runner.cache import cache_root, cached
from model_profiling.runner.compilers import Compiler
from model_profiling.runner.sdk import Sdk

SOURCES = Path(__file__).resolve().parent
# A compiler that is itself emulated takes minutes for a file.
_TIMEOUT_S = 900
_UNIT = """\
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wsubobject-linkage"  // it takes what is included for a header
#endif
"""


def compiled(sdk: Sdk, compiler: Compiler, sources: Sequence[Path], flags: Sequence[str]) -> list[Path]:
    """The objects of `sources`, from the cache where they were compiled before; `flags` are the same wherever
    `sdk` lies."""
    parts = _parts(sources)

    def make(folder: Path) -> None:
        folder.mkdir()
        _compile([*compiler.command, *flags, *places(sdk)], parts, folder)

    home = cache_root() / "objects" / _identity(sdk, compiler, parts, flags)
    return sorted(cached(home, make, "the compiled runner", fetch=True).glob("*.o"))


def places(sdk: Sdk) -> list[str]:
    """Where the compiler finds ExecuTorch's headers; what it makes names no place of this machine."""
    includes = (sdk.include, sdk.include / "executorch/runtime/core/portable_type/c10")
    names = ((SOURCES, "runner"), (sdk.root, "executorch"))
    return [
        *(f"-isystem{folder}" for folder in includes),
        *(f"-ffile-prefix-map={folder}={name}" for folder, name in names),
    ]


def _identity(sdk: Sdk, compiler: Compiler, parts: Sequence[Sequence[Path]], flags: Sequence[str]) -> str:
    """Of all that the compiler reads but its own headers, which are the compiler's."""
    digest = hashlib.sha256()
    own = [source for part in parts for source in part] + sorted(SOURCES.glob("*.h"))
    walked = os.walk(sdk.include, followlinks=True)
    theirs = sorted(Path(folder, name) for folder, _, names in walked for name in names)
    for root, read in ((SOURCES, own), (sdk.include, theirs)):
        for path in read:
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root)}\0{len(content)}\0".encode() + content)
    facts = [
        compiler.command,
        compiler.identity,
        str(sdk.platform),
        list(flags),
        [len(part) for part in parts],
    ]
    digest.update(json.dumps(facts).encode())
    return digest.hexdigest()[:16]


def _parts(sources: Sequence[Path]) -> list[list[Path]]:
    """The sources for each CPU to compile as one: much of a source's time is ExecuTorch's headers, which are
    then read once."""
    parts: list[list[Path]] = [[] for _ in range(min(os.cpu_count() or 1, len(sources)))]
    for source in sorted(sources, key=lambda path: -path.stat().st_size):
        min(parts, key=lambda part: sum(path.stat().st_size for path in part)).append(source)
    return parts


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
        except BaseException:  # Ctrl-C, or one that failed: nobody waits for the others
            stop.set()
            raise


def call(command: Sequence[str], stop: threading.Event | None = None) -> None:
    """Run a compiler; what it complains of is the error."""
    done = process.run(command, timeout=_TIMEOUT_S, stop=stop)
    if done.ok:
        return
    if done.timed_out:
        late = f"{Path(command[0]).name} did not build the runner in {_TIMEOUT_S} s"
        raise SetupError(late, "try again when the machine is less busy")
    complaints = [line for line in done.stderr.splitlines() if "error" in line.lower()]
    reason = (complaints or [f"exit code {done.returncode}"])[0].strip()
    raise SetupError(
        f"{Path(command[0]).name} cannot build the runner: {reason}",
        "use another compiler with C++17 (g++ 9, clang 10 or newer); CXX names the one for this machine",
    )
