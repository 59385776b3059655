"""Messages between a sweep and its workers, with the files that changed and their hashes."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from model_profiling._version import __version__
from model_profiling.core import files
from model_profiling.core.errors import FormatError
from model_profiling.pipeline.open_run import RemainingWork
from model_profiling.run import names
from model_profiling.sweep.cells import Job, Program

# A run directory is sent as a listing of all its files, with the contents of those that the other side lacks.
# What arrives is checked by its hash. The sender is trusted: Dask runs its code.

_LAST = (names.JOURNAL, names.MANIFEST)
"""Written last, in this order: what was measured counts only once the journal lists it."""

Listing = dict[str, str]
"""Relative names, with `/`, and the SHA-256 of each file."""


@dataclass(slots=True)
class Hashes:
    """SHA-256 of files, computed again only after a change."""

    _known: dict[Path, tuple[tuple[int, ...], str]] = field(default_factory=dict)

    def of(self, path: Path) -> str:
        found = path.stat()
        mark = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        known = self._known.get(path)
        if known is None or known[0] != mark:
            known = self._known[path] = mark, files.sha256(path)
        return known[1]

    def listing(self, folder: Path) -> Listing:
        """Every file of a run or an export, if there is one; hidden files are work in progress."""
        return {path.relative_to(folder).as_posix(): self.of(path) for path in _files_in(folder)}


def _files_in(folder: Path) -> Iterator[Path]:
    for place, subfolders, held in os.walk(folder):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in sorted(held):
            path = Path(place, name)
            if not name.startswith(".") and path.is_file() and not path.is_symlink():
                yield path


@dataclass(frozen=True, slots=True)
class SentFiles:
    """The listing of a folder, with the contents of the files that the receiver lacks."""

    listing: Listing = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, listing: Mapping[str, str], have: Mapping[str, str]) -> SentFiles:
        changed = [name for name, sha256 in listing.items() if have.get(name) != sha256]
        return cls(dict(listing), {name: (folder / name).read_bytes() for name in changed})

    def lay_out(self, folder: Path, hashes: Hashes, where: str, *, exactly: bool = True) -> None:
        """Make `folder` hold the listed files, and if `exactly` nothing else. It can be repeated after any
        interruption, and the journal never lists files that are not there yet."""
        have = hashes.listing(folder)
        changed = [name for name, sha256 in self.listing.items() if have.get(name) != sha256]
        for name in changed:
            content = self.contents.get(name)
            if content is None or hashlib.sha256(content).hexdigest() != self.listing[name]:
                raise FormatError(f"{where}: {name} was damaged on the way", "send it again")
        for name in sorted(changed, key=lambda name: (_LAST.index(name) + 1 if name in _LAST else 0, name)):
            files.write_bytes(folder / name, self.contents[name])
        for name in set(have) - set(self.listing) if exactly else ():
            (folder / name).unlink()


EXPORTS = "sme2prof:exports"
"""The Dask resource of a worker that exports; one export takes one."""
QUIET = "sme2prof:quiet-cores"
"""The Dask resource of a worker that reserves cores for measuring: how many."""
HOST = "host@"
EMULATED = "emulated"


_DEVICE = "device:"


def resource_of(device: str) -> str:
    return f"{_DEVICE}{device}"


def is_ours(resource: str) -> bool:
    """Whether only workers of the kit have this Dask resource."""
    return resource.startswith(_DEVICE) or resource in (EXPORTS, QUIET)


@dataclass(frozen=True, slots=True)
class Versions:
    """What must be the same on both sides of a sweep."""

    kit: str
    executorch: str

    def __str__(self) -> str:
        return f"sme2prof {self.kit} with ExecuTorch {self.executorch}"


def own_versions() -> Versions:
    try:
        executorch = importlib.metadata.version("executorch")
    except importlib.metadata.PackageNotFoundError:
        executorch = "that is not installed"
    return Versions(__version__, executorch)


@dataclass(frozen=True, slots=True)
class Offer:
    """What one worker can do. Devices are named as in a sweep, the worker's own machine `host@MACHINE`."""

    worker: str
    name: str
    versions: Versions
    devices: tuple[str, ...] = ()
    quiet_cores: tuple[int, ...] = ()
    exports: bool = True


@dataclass(frozen=True, slots=True)
class ExportAsk:
    sweep: str
    program: Program
    versions: Versions


@dataclass(frozen=True, slots=True)
class VisitAsk:
    """Asks for one piece of one job. `program` lists the program and the files beside it, `run` the run
    directory as the sweep has it, from which the piece is measured."""

    sweep: str
    job: Job
    device: str
    program_file: str
    program: Listing
    run: Listing
    versions: Versions
    patience_s: float
    """How long the worker waits for a device that is lost midway; the sweep does longer waits."""


@dataclass(frozen=True, slots=True)
class Lacking:
    """What `worker` has of the program and the run, if it differs from what it was asked to measure."""

    worker: str
    program: Listing
    run: Listing


@dataclass(frozen=True, slots=True)
class Exported:
    name: str
    """The worker's name."""
    program_file: str
    files: SentFiles


@dataclass(frozen=True, slots=True)
class Visited:
    name: str
    files: SentFiles
    over: bool
    """Whether nothing is left to measure; then only analysis and report are missing."""
    left: RemainingWork


@dataclass(frozen=True, slots=True)
class Failed:
    """Why something failed. With `device_gone` it may work later, once the device or worker is well again."""

    name: str
    problem: str
    fix: str
    device_gone: bool = False
    in_use: bool = False
    """Whether somebody else has the device; the sweep waits for it as for a lost one."""
    files: SentFiles = field(default_factory=SentFiles)
