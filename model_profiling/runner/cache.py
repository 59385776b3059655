"""Where the kit keeps what it builds and fetches, one folder per user, and runs it from.

An entry is used only where nobody else can have written to it (`trusted_folder`) and as it was made
(`cache_record`); a damaged one is made again, once, and that is said.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from model_profiling.core import files
from model_profiling.core.errors import ProfilingError, SetupError, system_reason
from model_profiling.core.signals import put_off
from model_profiling.runner.cache_record import (
    RECORD,
    Damage,
    Stamp,
    check_entry,
    check_trusted,
    stamps_of,
    write_entry_record,
)

UNFINISHED = ".fetch."
"""Begins the name of a folder in which an entry is being made."""
_ANOTHER = "set SME2PROF_CACHE to a folder on another disk"

# Of this process: entries that were compared with their records, and what they were then; the open records
# that keep `sme2prof clean` of other processes away; and what nobody has been told yet.
_compared: dict[Path, dict[str, Stamp]] = {}
_held: dict[Path, int] = {}
_remade: list[str] = []


def cache_root() -> Path:
    """`$SME2PROF_CACHE`, or `sme2prof` in the user's cache folder."""
    if chosen := os.environ.get("SME2PROF_CACHE"):
        return Path(chosen).expanduser().absolute()
    return _own("XDG_CACHE_HOME", ".cache")


def state_root() -> Path:
    """Where the kit keeps what must not be lost: `sme2prof` in the user's folder for state."""
    return _own("XDG_STATE_HOME", ".local/state")


def _own(variable: str, in_home: str) -> Path:
    try:
        base = os.environ.get(variable)
        return (Path(base).expanduser() if base else Path.home() / in_home).absolute() / "sme2prof"
    except RuntimeError as problem:  # a user without an entry, as in some containers
        raise SetupError("this user has no home folder", f"set HOME, or {variable}") from problem


def cached(home: Path, make: Callable[[Path], None], what: str, *, fetch: bool) -> Path:
    """`home`, filled by `make` the first time and where it is damaged; of two processes at once the quicker
    one's is kept.

    It is this process's until that ends: `sme2prof clean` leaves it alone.
    """
    damage = damage_of(home)
    if damage is None:
        return home
    there = os.path.lexists(home)
    if not fetch:
        if there:
            raise SetupError(
                f"{what} in the cache is damaged: {damage}", "the next run that needs it makes it again"
            )
        raise SetupError(f"{what} is not in the cache", "the first run that needs it fetches it")
    place = _make_trusted(home.parent)
    try:
        with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=place, ignore_cleanup_errors=True) as folder:
            made = Path(folder) / "made"
            try:
                make(made)
            except ProfilingError as problem:
                raise _not_made_again(problem, what, damage) if there else problem from problem
            write_entry_record(made, what)
            with _turn(place):
                _put_in_place(made, home, Path(folder) / "damaged")
    except OSError as problem:
        reason = system_reason(problem)
        raise SetupError(
            f"cannot keep {what} in {place}: {reason}", f"make room there, or {_ANOTHER}"
        ) from problem
    if again := damage_of(home):
        raise SetupError(
            f"{what} was made and is damaged at once: {again}", f"check the disk of {home}, or {_ANOTHER}"
        )
    if there:
        _remade.append(f"{what} in the cache was damaged ({damage}) and was made again")
    return home


def _not_made_again(problem: ProfilingError, what: str, damage: str) -> SetupError:
    """Offline, after an update of the kit, say: there is one, and why it does not do has to be known."""
    return SetupError(
        f"{what} in the cache is not used ({damage}), and could not be made again: {problem.problem}",
        problem.fix,
    )


def damage_of(home: Path) -> str | None:
    """What is wrong with the entry in `home`, as a clause; None where it may be used. A place that others can
    write to is an error."""
    _check_place(home.parent)
    if not _hold(home):
        return "it is not there"
    known = _compared.pop(home, None)
    with contextlib.suppress(OSError):
        if known is not None and stamps_of(home) == known:
            _compared[home] = known
            return None
    try:
        _compared[home] = check_entry(home)
    except Damage as damage:
        return str(damage)
    return None


def confirm(*used: Path) -> None:
    """Say so if an entry that this process has taken something from is no longer what it was: between the
    first look at it and a launch there may be hours."""
    for home in {parent for path in used for parent in (path, *path.parents) if parent in _compared}:
        if damage := damage_of(home):
            raise SetupError(
                f"{home} was changed while it was in use: {damage}",
                "start again (--resume continues a run): it is made anew first",
            )


def check_cache() -> Path:
    """The cache's folder, if what lies in it can only be this user's."""
    root = cache_root()
    check_trusted(root)
    for kind in sorted(root.iterdir()) if root.is_dir() else ():
        check_trusted(kind)
    return root


def take_remade() -> tuple[str, ...]:
    """What was made again because it was damaged, and nobody has said yet."""
    said = tuple(_remade)
    _remade.clear()
    return said


def make_place(kind: str) -> Path:
    """The folder of the cache for entries of one `kind`, for others to read at most, whatever the umask."""
    return _make_trusted(cache_root() / kind)


def _make_trusted(folder: Path) -> Path:
    _check_place(folder)
    with contextlib.suppress(OSError):  # what cannot be made is said below
        for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
            missing.mkdir(mode=0o755, exist_ok=True)
    files.make_folder(folder)
    _check_place(folder)  # somebody may have been quicker
    return folder


def _check_place(folder: Path) -> None:
    """Refuse a folder for entries where others can write to it or to the one it lies in."""
    for place in (folder.parent, folder):
        check_trusted(place)


@contextlib.contextmanager
def _turn(place: Path) -> Iterator[None]:
    """One process at a time puts entries into `place`: between the look at one that is damaged and its
    removal, another may have mended it and be about to run it."""
    folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _put_in_place(made: Path, home: Path, damaged: Path) -> None:
    """Make `made` the entry `home`, unless another process has put a good one there."""
    try:
        if os.path.lexists(home):
            if damage_of(home) is None:
                return
            home.rename(damaged)
        made.rename(home)
    except OSError:
        if damage_of(home) is not None:
            raise


def _hold(home: Path) -> bool:
    """Keep the entry in `home` from being removed while this process lives; False where there is none.

    The lock is on its record: a damaged entry may have none, and is nobody's to keep.
    """
    try:
        record = os.open(home / RECORD, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return os.path.lexists(home)
    try:
        fcntl.flock(record, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:  # it is being removed
        os.close(record)
        return False
    except OSError:  # a file system without locks
        pass
    if not _is_record_of(record, home):  # it was removed, or made again, before it was locked
        os.close(record)
        return os.path.lexists(home) and _hold(home)
    with contextlib.suppress(OSError):  # not ours to write to
        os.utime(record)  # when it was last used
    if home in _held:
        os.close(_held[home])
    _held[home] = record
    return True


def _is_record_of(record: int, home: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(record), os.lstat(home / RECORD))
    except OSError:
        return False


# What is in the cache, how large it is and when it was last used; and its removal, one entry at a time.

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
