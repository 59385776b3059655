"""The way to the machine a job runs on: its files go there, its command runs there, what it left comes back.

A machine behind adb or ssh is one more class with these methods (`remote/transport.py`).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from model_profiling import process
from model_profiling.errors import InputError, SetupError
from model_profiling.targets.left_files import LeftFile


class Transport(Protocol):
    """One machine, seen from this one: a `Path` is here, a `str` is a path there."""

    def make_folder(self, into: Path) -> str:
        """A folder there for what one job writes; it ends up in `into` here."""

    def put(self, file: Path) -> str:
        """Bring `file` there unless it is there already, and say where that is."""

    def put_runner(self, file: Path) -> tuple[str, ...]:
        """Bring a runner of the user's own there, and say what starts it."""

    def run(
        self, argv: Sequence[str], *, folder: str, timeout: float, cores: Sequence[int]
    ) -> process.Completed:
        """Run `argv` there for the job with this `folder`, on `cores` alone if any are named; at `timeout`
        seconds it is stopped with all it started. The `argv` in the answer is what a person would type
        here."""

    def fetch(self, folder: str, wanted: Sequence[LeftFile], into: Path) -> None:
        """Bring those files in a job's folder that are `wanted` to `into`; whatever else is there stays."""

    def remove(self, folder: str) -> None:
        """Remove a job's folder. A machine that has gone is no error here: running the job said so."""


@dataclass(frozen=True, slots=True)
class LocalTransport:
    """This machine, where every file is in its place already; `prefix` stands in front of each command."""

    prefix: tuple[str, ...] = ()

    def make_folder(self, into: Path) -> str:
        return str(into)

    def put(self, file: Path) -> str:
        return str(file)

    def put_runner(self, file: Path) -> tuple[str, ...]:
        return (str(file),)

    def run(
        self, argv: Sequence[str], *, folder: str, timeout: float, cores: Sequence[int]
    ) -> process.Completed:
        del folder
        words = (*_pinning(cores), *self.prefix, *argv)
        return process.run(words, timeout=timeout, leaves_nothing=True)

    def fetch(self, folder: str, wanted: Sequence[LeftFile], into: Path) -> None:
        """The job wrote into `into` itself."""

    def remove(self, folder: str) -> None:
        """The folder is `into`, which stays."""


def _pinning(cores: Sequence[int]) -> tuple[str, ...]:
    if not cores:
        return ()
    if sys.platform != "linux":
        raise InputError(
            "cpu_affinity cannot be set on this system", "leave it out; only Linux pins processes"
        )
    known = os.cpu_count() or 1
    if beyond := [core for core in cores if not 0 <= core < known]:
        raise InputError(f"there is no CPU {beyond[0]}", f"choose from 0 to {known - 1}")
    if shutil.which("taskset") is None:
        raise SetupError("cpu_affinity needs taskset", "install util-linux or leave cpu_affinity out")
    return ("taskset", "--cpu-list", ",".join(map(str, cores)))
