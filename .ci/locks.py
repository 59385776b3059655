"""The locks under requirements/: what stands in them, and the Pythons and machines they are for.

A lock is a requirements file that any pip since 22 installs: for each of these Pythons and machines one
version of every package, with the SHA-256 of each file that pip may take for it. `make_lock.py` writes them,
`sbom.py` and the tests read them. What is not locked, and why, is in requirements/README.md.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import Marker
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "requirements"
FETCHED = ROOT / "model_profiling" / "runner"
"""Locks inside of the kit: what it fetches itself, when it is used."""
PROJECT = "sme2-profiling-kit"
UNLOCKED = "torch"
"""Installed by its version alone, from requirements/torch.txt: its builds differ from place to place."""
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
MACHINES = (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
_SYSTEMS = {"linux": "Linux", "darwin": "Darwin"}
# Some markers tell patch releases apart: the first of each Python, and one that is late enough for all.
_PATCHES = ("0", "30")


_marker = functools.cache(Marker)


@dataclass(frozen=True, slots=True)
class Machine:
    """A Python on a machine that a lock is for."""

    python: str
    patch: str
    sys_platform: str
    machine: str

    @property
    def markers(self) -> Mapping[str, str]:
        """Everything that a marker may ask."""
        full = f"{self.python}.{self.patch}"
        return {
            "implementation_name": "cpython",
            "implementation_version": full,
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": _SYSTEMS[self.sys_platform],
            "platform_version": "",
            "python_full_version": full,
            "python_version": self.python,
            "sys_platform": self.sys_platform,
        }

    def holds(self, marker: str | Marker | None, extra: str = "") -> bool:
        """Whether what has this marker is asked for here."""
        if not marker:
            return True
        return _marker(str(marker)).evaluate({**self.markers, "extra": extra})


def machines() -> list[Machine]:
    """All that the locks are for."""
    return [
        Machine(python, patch, system, machine)
        for python, patch, (system, machine) in itertools.product(PYTHONS, _PATCHES, MACHINES)
    ]


@dataclass(frozen=True, slots=True)
class Locked:
    """One version of a package, where it is wanted, what its files are and who asks for it."""

    name: str
    version: Version
    marker: str = ""
    hashes: tuple[str, ...] = ()
    via: tuple[str, ...] = ()

    def text(self) -> str:
        """As it stands in a lock."""
        first = f"{self.name}=={self.version}" + (f" ; {self.marker}" if self.marker else "")
        lines = [first, *(f"    --hash=sha256:{digest}" for digest in self.hashes)]
        return " \\\n".join(lines) + (f"\n    # via {', '.join(self.via)}" if self.via else "") + "\n"


def normal(name: str) -> str:
    """A package's name as indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


_FIRST = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\]+?))? ?\\?")
_HASH = re.compile(r"    --hash=sha256:(?P<digest>[0-9a-f]{64})(?: \\)?")
_VIA = re.compile(r"    # {1,3}(?:via ?)?(?P<names>.*)")


def parse(text: str) -> list[Locked]:
    """The packages in a requirements file; a line that is none of a lock's is a ValueError."""
    found: list[Locked] = []
    for line in text.splitlines():
        if not line or line.startswith(("#", "--")):
            continue
        if first := _FIRST.fullmatch(line):
            found.append(Locked(normal(first["name"]), Version(first["version"]), first["marker"] or ""))
            continue
        if not found:
            raise ValueError(f"no line of a lock: {line}")
        last = found[-1]
        if hashed := _HASH.fullmatch(line):
            last = Locked(last.name, last.version, last.marker, (*last.hashes, hashed["digest"]), last.via)
        elif via := _VIA.fullmatch(line):
            names = (normal(name.split()[0]) for name in via["names"].split(",") if name.strip())
            last = Locked(last.name, last.version, last.marker, last.hashes, (*last.via, *names))
        else:
            raise ValueError(f"no line of a lock: {line}")
        found[-1] = last
    return found


def read(name: str, folder: Path = FOLDER) -> list[Locked]:
    """The packages of a lock, by its name without `.txt`."""
    return parse((folder / f"{name}.txt").read_text(encoding="utf-8"))
