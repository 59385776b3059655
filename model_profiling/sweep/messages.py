"""What a sweep and its workers send each other: messages, and the files that changed with their hashes."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from model_profiling._version import __version__
from model_profiling.core import files
from model_profiling.core.errors import FormatError
from model_profiling.core.safe_read import inside, stays_inside
from model_profiling.pipeline.remaining import RemainingWork
from model_profiling.run import names
from model_profiling.sweep.cells import Job, Program

# A run directory is told as a listing of all its files; with it go the contents of those that the other side
# does not have. What arrives is checked by its hash, and laid out under names that stay inside the folder.

_LAST = (names.JOURNAL, names.MANIFEST)
"""Written after everything else, in this order: the journal's lines make what was measured count."""

Listing = dict[str, str]
"""Names below a folder, with `/`, and the SHA-256 of what each holds."""


@dataclass(slots=True)
class Hashes:
    """The SHA-256 of files, computed again only for those that have changed."""

    _known: dict[Path, tuple[tuple[int, ...], str]] = field(default_factory=dict)

    def of(self, path: Path) -> str:
        found = path.stat()
        mark = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        known = self._known.get(path)
        if known is None or known[0] != mark:
            known = self._known[path] = mark, files.sha256(path)
        return known[1]

    def listing(self, folder: Path) -> Listing:
        """Every file of a run or of an export, where there is one; hidden ones are work in progress."""
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
    """All files of a folder, with the contents of those that whoever gets it does not have."""

    listing: Listing = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    """By name."""

    @classmethod
    def of(cls, folder: Path, listing: Mapping[str, str], have: Mapping[str, str]) -> SentFiles:
        changed = [name for name, sha256 in listing.items() if have.get(name) != sha256]
        return cls(dict(listing), {name: (folder / name).read_bytes() for name in changed})

    def lay_out(self, folder: Path, hashes: Hashes, where: str, *, exactly: bool = True) -> None:
        """Make `folder` hold what is listed, and if `exactly` nothing else. However it is cut short, doing it
        again ends the same, and the journal never tells of files that are not there yet."""
        _check_names(self.listing, where)
        have = hashes.listing(folder)
        changed = [name for name, sha256 in self.listing.items() if have.get(name) != sha256]
        for name in changed:
            content = self.contents.get(name)
            if content is None or hashlib.sha256(content).hexdigest() != self.listing[name]:
                raise FormatError(f"{where}: what arrived as {name} is not what was sent", "send it again")
        for name in sorted(changed, key=_place_in_order):
            target = inside(folder, name)
            files.real_folder(folder, target.parent)
            files.write_bytes(target, self.contents[name])
        for name in set(have) - set(self.listing) if exactly else ():
            (folder / name).unlink()


def _check_names(listing: Iterable[str], where: str) -> None:
    """Every name stays inside, and is one that is listed."""
    for name in listing:
        if any(part.startswith(".") for part in Path(stays_inside(name, where)).parts):
            raise FormatError(f"{where}: {name!r} is hidden", "a run names only files of its own")


def _place_in_order(name: str) -> tuple[int, str]:
    return (_LAST.index(name) + 1 if name in _LAST else 0), name


# What a sweep and its workers say to each other.

EXPORTS = "sme2prof:exports"
"""The Dask resource of a worker that exports; one export takes one of it."""
QUIET = "sme2prof:quiet-cores"
"""The Dask resource of a worker that has cores set aside for measuring: how many."""
_DEVICE = "device:"
HOST = "host@"
EMULATED = "emulated"


def resource_of(device: str) -> str:
    """The Dask resource that a device is; each worker that reaches it has one."""
    return f"{_DEVICE}{device}"


@dataclass(frozen=True, slots=True)
class Versions:
    """What must be the same on both sides for runs to be one sweep's."""

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
    """What one worker can do. Devices are told as a sweep names them, its own machine as `host@MACHINE`."""

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
    """One piece of one job: `program` lists the program and what lies beside it, `run` the run directory as
    the sweep has it, from which the piece is measured."""

    sweep: str
    job: Job
    device: str
    program_file: str
    program: Listing
    run: Listing
    versions: Versions
    patience_s: float
    """How long a device that is lost in the middle is waited for there; longer waits are the sweep's."""


@dataclass(frozen=True, slots=True)
class Lacking:
    """What `worker` has of the program and of the run, which is not what it was asked to measure."""

    worker: str
    program: Listing
    run: Listing


@dataclass(frozen=True, slots=True)
class Exported:
    name: str
    """Of the worker."""
    program_file: str
    files: SentFiles


@dataclass(frozen=True, slots=True)
class Visited:
    """A run directory after one piece."""

    name: str
    files: SentFiles
    over: bool
    """Whether nothing is left to measure; the run is then complete but for what is made of it."""
    left: RemainingWork


@dataclass(frozen=True, slots=True)
class Failed:
    """Why something could not be done. `device_gone` where it may be, once the device or worker is well
    again: then nothing is wrong with what was asked."""

    name: str
    problem: str
    fix: str
    device_gone: bool = False
    in_use: bool = False
    """Whether somebody else has the device; it is waited for, as one that is gone."""
    files: SentFiles = field(default_factory=SentFiles)
