"""Files that are written whole or not at all.

Everything the kit writes goes through `replacing`: the content is made in a hidden sibling and renamed
into place, so a reader, a crash or a full disk never leaves half a file under the final name. Paths that
callers give come in through `as_path`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from model_profiling.errors import InputError, system_reason

StrPath: TypeAlias = str | os.PathLike[str]

_CURES = {
    errno.ENOSPC: "free some space or choose another folder",
    errno.EDQUOT: "free some space or choose another folder",
    errno.EROFS: "choose a folder on a writable file system",
    errno.EACCES: "choose a folder you may write to",
    errno.EPERM: "choose a folder you may write to",
    errno.ENOTDIR: "a part of the path is a file; choose another folder",
    errno.EEXIST: "a part of the path is a file; choose another folder",
    errno.EISDIR: "a folder has that name; choose another name",
}


def as_path(given: StrPath) -> Path:
    """What a caller named, as a `Path`."""
    if not isinstance(given, str | os.PathLike) or not isinstance(text := os.fspath(given), str):
        raise InputError(f"{type(given).__name__} is not a path", "give a str or a pathlib.Path")
    if not text:
        raise InputError("the path is empty", "name a file or a folder; '.' is the current one")
    return Path(text)


def _refusal(path: Path, problem: OSError) -> InputError:
    reason = system_reason(problem)
    return InputError(
        f"cannot write {path}: {reason}", _CURES.get(problem.errno or 0, "check the path and the disk")
    )


def make_folder(path: Path) -> Path:
    """Create `path` and its parents, or say in one line why it cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise _refusal(path, problem) from problem
    return path


@contextlib.contextmanager
def no_empty_folder(path: Path) -> Iterator[None]:
    """Of the folders that the block makes for `path`, none stays that nothing was put into."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # the first one that is not empty, or was never made
            for folder in made:
                folder.rmdir()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a hidden sibling of `path` to write to; it becomes `path` only if the block succeeds."""
    make_folder(path.parent)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        os.close(handle)
    except OSError as problem:
        raise _refusal(path, problem) from problem
    part = Path(name)
    try:
        yield part
        part.chmod(0o666 & ~_umask())
        part.replace(path)
    except OSError as problem:
        raise _refusal(path, problem) from problem
    finally:
        part.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_bytes(path: Path, content: bytes) -> None:
    with replacing(path) as part:
        part.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    write_bytes(path, content.encode("utf-8"))


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write `content` as indented JSON; NaN and infinities are refused, they are not JSON."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def all_in(folder: Path) -> list[Path]:
    """Every file below `folder`, in one order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def move(source: Path, path: Path) -> None:
    """Rename `source` to `path`, or copy it whole where they lie on different file systems."""
    make_folder(path.parent)
    try:
        source.replace(path)
    except OSError as problem:
        if problem.errno != errno.EXDEV:
            raise _refusal(path, problem) from problem
        with replacing(path) as part:
            shutil.copyfile(source, part)
        source.unlink()


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
