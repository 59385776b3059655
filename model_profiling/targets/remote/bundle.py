"""What a runner takes along to a machine that may have no C library of its own, or an older one: the dynamic
loader, the C and C++ libraries and ExecuTorch's, all of this machine or of the emulated one.

Started through that loader it uses nothing of the other machine but the kernel, so a phone needs no NDK.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.errors import SetupError
from model_profiling.runner.build import RunnerBuild, build_runner
from model_profiling.runner.elf import AARCH64, read_elf
from model_profiling.runner.platforms import this_platform
from model_profiling.targets.cross import build_cross_runner

LOADER = "ld-linux-aarch64.so.1"
RUNNER = "sme2prof-runner"
# The runner opens this one itself, after it has switched features off.
OPENED = ("libexecutorch_backend_xnnpack.so",)
_FOLDERS = ("lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib64", "usr/lib64", "lib", "usr/lib")


@dataclass(frozen=True, slots=True)
class Bundle:
    """A built runner and every file it needs, by the name it must have. One built for Android needs no loader
    of its own."""

    build: RunnerBuild
    files: dict[str, Path]

    def loader(self, folder: str) -> tuple[str, ...]:
        """What starts a program that is linked to the C library in `folder`; empty where none is there."""
        return (f"{folder}/{LOADER}", "--library-path", folder) if LOADER in self.files else ()

    def runner(self, folder: str) -> tuple[str, ...]:
        """What starts the runner once everything is in `folder`."""
        start = self.loader(folder) or ("env", f"LD_LIBRARY_PATH={folder}")
        return (*start, f"{folder}/{RUNNER}")


def make_bundle(*, fetch: bool = True) -> Bundle:
    """The kit's runner for aarch64 Linux with all it needs."""
    here = this_platform()
    if here.system != "linux":
        raise SetupError(
            f"{sys.platform} has no aarch64 C library that could go along with the kit's runner",
            "work from a Linux machine, or name an executor_runner built with the Android NDK as runner_path",
        )
    if here.machine == "aarch64":
        build, root = build_runner(fetch=fetch), Path("/")
    else:
        build, root = build_cross_runner(fetch=fetch)
    return Bundle(
        build, gather(build.path, [build.library_path, *library_folders(root)], opened=(LOADER, *OPENED))
    )


def gather(
    program: Path,
    folders: Sequence[Path],
    *,
    opened: Iterable[str],
    not_sent: Collection[str] = (),
) -> dict[str, Path]:
    """`program` with every library that it and they name and those that are `opened`, found in `folders`,
    first ones first. What is `not_sent` is there already."""
    found = {RUNNER: program}
    waiting = [*opened, *_needs(program)]
    while waiting:
        name = waiting.pop()
        if name in found or name in not_sent:
            continue
        place = next((folder / name for folder in folders if _fits(folder / name)), None)
        if place is None:
            raise SetupError(
                f"the runner needs {name} for aarch64, which is in none of {', '.join(map(str, folders))}",
                "install it, or name a folder with an aarch64 C and C++ library in SME2PROF_SYSROOT",
            )
        found[name] = place.resolve()
        waiting += _needs(place)
    return found


def _needs(path: Path) -> tuple[str, ...]:
    facts = read_elf(path)
    return facts.needed if facts else ()


def _fits(path: Path) -> bool:
    facts = read_elf(path) if path.is_file() else None
    return facts is not None and facts.machine == AARCH64


def library_folders(root: Path) -> Iterator[Path]:
    """Where the system under `root` has libraries for aarch64."""
    return (root / folder for folder in _FOLDERS if (root / folder).is_dir())
