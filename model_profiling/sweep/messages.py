"""What a sweep and its workers send each other: messages, and files by their content."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from model_profiling._version import __version__
from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError, system_reason
from model_profiling.core.safe_read import inside, open_regular, stays_inside
from model_profiling.pipeline.remaining import Left
from model_profiling.run import names
from model_profiling.sweep.cells import Job, Program

# Files between machines by their content: each is sent once, checked on arrival, and laid out under names
# that stay inside the folder they are meant for.
# A run directory is told as a listing, name to SHA-256. Whoever lacks a content asks for it; what arrives is
# kept in a `Blobs` folder under its hash until it is laid out.

PIECE = 16 << 20
"""Bytes in one message: what passes through a scheduler is held in its memory."""
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
        """Every file of a run or of an export; hidden ones are work in progress and nobody else's."""
        return {path.relative_to(folder).as_posix(): self.of(path) for path in _files_in(folder)}


def _files_in(folder: Path) -> Iterator[Path]:
    for place, subfolders, held in os.walk(folder):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in sorted(held):
            path = Path(place, name)
            if not name.startswith(".") and path.is_file() and not path.is_symlink():
                yield path


@dataclass(frozen=True, slots=True)
class Blobs:
    """A folder of contents, each under its hash."""

    folder: Path

    def path(self, sha256: str) -> Path:
        return self.folder / checked_hash(sha256)

    def lacking(self, wanted: Iterable[str]) -> list[str]:
        return sorted({each for each in wanted if not self.path(each).is_file()})

    def put(self, sha256: str, offset: int, piece: bytes, size: int) -> None:
        """Take one piece of a content of `size` bytes; the last makes it whole, if its hash is right."""
        path = self.path(sha256)
        if path.is_file():
            return
        part = path.with_name(f".{path.name}.part")
        files.make_folder(self.folder)
        if (part.stat().st_size if part.exists() else 0) != offset:
            part.unlink(missing_ok=True)
            if offset:
                raise FormatError(f"a piece of {sha256[:16]} is missing", "send it again from its beginning")
        try:
            with part.open("ab") as stream:
                stream.write(piece)
        except OSError as problem:
            part.unlink(missing_ok=True)
            raise InputError(
                f"cannot write below {self.folder}: {system_reason(problem)}", "free some space there"
            ) from problem
        if offset + len(piece) < size:
            return
        if files.sha256(part) != sha256:
            part.unlink()
            raise FormatError(f"what arrived as {sha256[:16]} is not what was sent", "send it again")
        part.replace(path)

    def put_whole(self, contents: Mapping[str, bytes]) -> None:
        for sha256, content in contents.items():
            if not self.path(sha256).is_file():
                if hashlib.sha256(content).hexdigest() != sha256:
                    raise FormatError(f"what arrived as {sha256[:16]} is not what was sent", "send it again")
                files.write_bytes(self.path(sha256), content)

    def drop(self, hashes: Iterable[str]) -> None:
        for sha256 in hashes:
            self.path(sha256).unlink(missing_ok=True)


def checked_hash(sha256: str) -> str:
    if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
        raise FormatError(
            f"{sha256[:80]!r} is no SHA-256", "both sides are to run the same version of the kit"
        )
    return sha256


def checked_listing(listing: Mapping[str, str], where: str) -> Listing:
    """What another machine tells of its files, if every name stays inside and is one that is listed."""
    for name, sha256 in listing.items():
        if any(part.startswith(".") for part in Path(stays_inside(name, where)).parts):
            raise FormatError(f"{where}: {name!r} is hidden", "a run names only files of its own")
        checked_hash(sha256)
    return dict(listing)


def lay_out(
    folder: Path, listing: Mapping[str, str], blobs: Blobs, hashes: Hashes, *, exactly: bool = True
) -> None:
    """Make `folder` hold what is listed, and if `exactly` nothing else; contents that are not there already
    come from `blobs`. However it is cut short, doing it again ends the same, and the journal never tells of
    files that are not there yet."""
    have = hashes.listing(folder) if folder.is_dir() else {}
    changed = [name for name, sha256 in listing.items() if have.get(name) != sha256]
    for name in sorted(changed, key=_place_in_order):
        target = inside(folder, name)
        files.real_folder(folder, target.parent)
        with files.replacing(target) as part:
            shutil.copyfile(blobs.path(listing[name]), part)
    for name in set(have) - set(listing) if exactly else ():
        (folder / name).unlink()


def _place_in_order(name: str) -> tuple[int, str]:
    return (_LAST.index(name) + 1 if name in _LAST else 0), name


def read_piece(path: Path, offset: int, most: int = PIECE) -> bytes:
    with open_regular(path) as stream:
        stream.seek(offset)
        return stream.read(most)


def pieces(path: Path) -> Iterator[tuple[int, bytes, int]]:
    """A file in pieces: where each begins, what it holds, and how many bytes there are in all."""
    with open_regular(path) as stream:
        size, offset = os.fstat(stream.fileno()).st_size, 0
        while True:
            piece = stream.read(PIECE)
            yield offset, piece, size
            offset += len(piece)
            if offset >= size or not piece:
                return


def contents(folder: Path, listing: Mapping[str, str], most: int) -> dict[str, bytes]:
    """Of the listed files as many whole as fit into `most` bytes, the smallest first."""
    found: dict[str, bytes] = {}
    paths = {sha256: folder / name for name, sha256 in listing.items()}
    with contextlib.suppress(FileNotFoundError):
        for sha256, path in sorted(paths.items(), key=lambda each: each[1].stat().st_size):
            most -= path.stat().st_size
            if most < 0:
                break
            found[sha256] = path.read_bytes()
    return found


# What a sweep and its workers say to each other. Files are named with their hash alone.

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
    """What `worker` must be sent before it can do as asked."""

    worker: str
    hashes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export left in a folder of the worker."""

    worker: str
    name: str
    program_file: str
    files: Listing
    contents: dict[str, bytes] = field(default_factory=dict)
    """Of the smaller files what they hold; the rest is fetched."""


@dataclass(frozen=True, slots=True)
class Visited:
    """A run directory after one piece."""

    worker: str
    name: str
    files: Listing
    contents: dict[str, bytes]
    over: bool
    """Whether nothing is left to measure; the run is then complete but for what is made of it."""
    left: Left
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Failed:
    """Why something could not be done. `device_gone` where it may be, once the device or worker is well
    again: then nothing is wrong with what was asked."""

    worker: str
    name: str
    problem: str
    fix: str
    device_gone: bool = False
    in_use: bool = False
    """Whether somebody else has the device; it is waited for, as one that is gone."""
    files: Listing | None = None
    contents: dict[str, bytes] = field(default_factory=dict)
