"""What is in the cache, how large it is and when it was last used; and its removal, one entry at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from model_profiling.errors import SetupError, system_reason
from model_profiling.runner.cache import UNFINISHED, cache_root
from model_profiling.runner.cache_record import RECORD
from model_profiling.signals import put_off

NOT_OURS = "not the kit's"
IN_USE = "in use"
_ABANDONED_S = 86_400.0
"""Nothing takes a day to be made: what is older was left by a kill."""
_ZIG_CACHE = "zig-cache"
# What has no record: a compiler's own cache, and entries of earlier versions.
_WITHOUT_RECORD = {
    "runners": r"[0-9a-f]{16}",
    "vega": r"[\w.-]+\.js",
    "qemu": r"qemu-aarch64",
    "compilers": rf"{_ZIG_CACHE}|ziglang-[\d.]+|(?:debian|ubuntu)-[\w.+-]+-g\+\+[\w.+-]*",
    "wheels": r"executorch-\d[\w.+]*-(?:aarch64|arm64|x86_64)(?:-\w+)?",
    "sysroots": r"(?:debian|ubuntu)-[\w.+-]+-aarch64",
    "adb": r"(?:debian|ubuntu)-[\w.+-]+",
    "stores": r"[0-9a-f]{16}",
}
_FILES = ("vega", "qemu")
"""Kinds that earlier versions kept as single files; all others are folders."""
_NOTES = "probes"
"""Empty but for a line each: which compilers were seen to work."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Something the kit keeps: when it was last `used` (seconds), and why it `stays`, if it does."""

    kind: str
    name: str
    path: Path
    bytes: int
    used: float
    stays: str = ""


def cache_entries() -> tuple[Kept, ...]:
    """Every entry of the cache, and what else lies among them; no link is followed."""
    return tuple(entry for kind in _folders(cache_root()) for entry in _entries(kind))


def size_below(path: Path, but: Collection[Path] = ()) -> int:
    """The bytes of every file in `path`, or of the one that it is, without what lies in the folders `but`."""
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        return found.st_size
    total = 0
    for folder, subfolders, names in os.walk(path):
        if but:
            subfolders[:] = [name for name in subfolders if Path(folder, name) not in but]
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # a run that is being measured
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118  20,000 files
    return total


def remove_entry(entry: Kept) -> bool:
    """Remove it; False where a process has begun to use it."""
    with _alone(entry.path) as free:
        if not free:
            return False
        remove_whole(entry.path)
    return True


def remove_whole(path: Path, begins: str = UNFINISHED) -> None:
    """Remove a file or folder; renamed first, into a folder whose name so `begins`, so that nothing half
    removed is left under its name. What cannot be removed is an error that says where it is now. Ctrl-C waits
    for it: nobody would find the rest of it again."""
    with put_off():
        _remove_whole(path, begins)


def _remove_whole(path: Path, begins: str) -> None:
    try:
        grave = Path(tempfile.mkdtemp(prefix=begins, dir=path.parent))
    except OSError as problem:
        raise _refused(path, problem) from problem
    try:
        path.rename(grave / path.name)
    except OSError as problem:
        grave.rmdir()
        if isinstance(problem, FileNotFoundError):  # another process was quicker
            return
        raise _refused(path, problem) from problem
    _open_folders(grave)
    try:
        shutil.rmtree(grave)
    except OSError as problem:
        raise SetupError(
            f"cannot remove all of {path}: {system_reason(problem)}", f"remove the rest of it: {grave}"
        ) from problem


def _open_folders(place: Path) -> None:
    """Let this user change folders of theirs that are read-only."""
    for folder, subfolders, _ in os.walk(place):
        for name in subfolders:
            with contextlib.suppress(OSError):
                path = Path(folder, name)
                if not path.is_symlink():
                    path.chmod(stat.S_IMODE(path.lstat().st_mode) | stat.S_IRWXU)


def _refused(path: Path, problem: OSError) -> SetupError:
    return SetupError(f"cannot remove {path}: {system_reason(problem)}", "check whose it is")


def _folders(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if path.name != _NOTES)


def _entries(kind: Path) -> Iterator[Kept]:
    if kind.is_symlink() or not kind.is_dir():
        yield _stranger(kind.name, kind)
        return
    for path in sorted(kind.iterdir()):
        with contextlib.suppress(FileNotFoundError):  # another process is done with it
            yield _entry(kind.name, path)


def _entry(kind: str, path: Path) -> Kept:
    if path.is_symlink():
        return _stranger(kind, path)
    record = path / RECORD
    if path.name.startswith(UNFINISHED) and path.is_dir():
        used = path.lstat().st_mtime
        abandoned = time.time() - used > _ABANDONED_S
        return Kept(kind, path.name, path, size_below(path), used, "" if abandoned else "being made")
    is_folder = stat.S_ISDIR(path.lstat().st_mode)
    if is_folder and record.is_file() and not record.is_symlink():
        used = record.lstat().st_mtime
    elif is_folder != (kind in _FILES) and re.fullmatch(_WITHOUT_RECORD.get(kind, "(?!)"), path.name):
        used = path.lstat().st_mtime
    else:
        return _stranger(kind, path)
    with _alone(path) as free:
        return Kept(kind, path.name, path, size_below(path), used, "" if free else IN_USE)


def _stranger(kind: str, path: Path) -> Kept:
    """Something that others put there; what a link leads to is not even looked at."""
    found = path.lstat()
    linked = stat.S_ISLNK(found.st_mode)
    size = 0 if linked else size_below(path)
    return Kept(kind, path.name, path, size, found.st_mtime, f"a link, {NOT_OURS}" if linked else NOT_OURS)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """Whether no process uses the entry; for the length of the block none begins to."""
    # Zig's cache has no record; who uses it holds the compiler's.
    records = path.parent.glob(f"ziglang-*/{RECORD}") if path.name == _ZIG_CACHE else [path / RECORD]
    handles: list[int] = []
    try:
        free = True
        for record in records:
            handle = _opened(record)
            if handle is None:
                continue
            handles.append(handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                free = False
            except OSError:  # a file system without locks
                pass
        yield free
    finally:
        for handle in handles:
            os.close(handle)


def _opened(record: Path) -> int | None:
    """For writing where possible: over NFS, who only reads may not have it alone."""
    for access in (os.O_RDWR, os.O_RDONLY):
        with contextlib.suppress(OSError):
            return os.open(record, access | os.O_NOFOLLOW | os.O_NONBLOCK)
    return None
