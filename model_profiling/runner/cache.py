"""The cache of what the kit builds and fetches: one folder per user, from which programs are run.

An entry is a folder with a record of its content. It is used only if it still matches, and only if no other
user can write to the cache; a damaged entry is made again, once, and that is reported.
"""

from __future__ import annotations

import contextlib
import fcntl
import grp
import json
import os
import pwd
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_profiling.core import files, safe_read
from model_profiling.core.errors import ProfilingError, SetupError, system_reason
from model_profiling.core.records import read_json_object
from model_profiling.core.stdio import defer_signals

RECORD = ".sme2prof-entry.json"
UNFINISHED = ".fetch."
"""The prefix of folders in which an entry is being made."""
_ANOTHER = "set SME2PROF_CACHE to a folder on another disk"
_ELSEWHERE = "set SME2PROF_CACHE to a folder that only you can write to"
_HASHED_EACH_TIME = 64 << 20
"""A larger entry (a compiler of 20,000 files) is hashed only where a file changed since it was recorded."""
_NEVER = stat.S_IWGRP | stat.S_IWOTH | stat.S_ISUID | stat.S_ISGID
"""Permissions that nothing in the cache needs, whatever its package set."""

Facts = list[object]
"""For a link its target; for a file its size, mode, hash, inode and change times."""

# Open records, which keep another process's `sme2prof clean` away, and notes of repairs.
_held: dict[Path, int] = {}
_remade: list[str] = []


def cache_root() -> Path:
    """Return `$SME2PROF_CACHE`, or `sme2prof` in the user's cache folder."""
    if chosen := os.environ.get("SME2PROF_CACHE"):
        return Path(chosen).expanduser().absolute()
    return _own("XDG_CACHE_HOME", ".cache")


def state_root() -> Path:
    """Return the folder for what must not be lost: `sme2prof` in the user's state folder."""
    return _own("XDG_STATE_HOME", ".local/state")


def _own(variable: str, in_home: str) -> Path:
    try:
        base = os.environ.get(variable)
        return (Path(base).expanduser() if base else Path.home() / in_home).absolute() / "sme2prof"
    except RuntimeError as problem:  # a user without a passwd entry, as in some containers
        raise SetupError("this user has no home folder", f"set HOME, or {variable}") from problem


def cached(home: Path, make: Callable[[Path], None], what: str, *, fetch: bool) -> Path:
    """Return the entry `home`; `make` fills it if it is missing or damaged. If two processes make it at once,
    the first is kept. `sme2prof clean` leaves it while this process runs."""
    damage = damage_of(home)
    if damage is None:
        return home
    there = os.path.lexists(home)
    if not fetch:
        if there:
            raise SetupError(
                f"{what} in the cache is damaged: {damage}", "the next run that needs it creates it again"
            )
        raise SetupError(f"{what} is not in the cache", "the first run that needs it downloads it")
    place = _make_trusted(home.parent)
    try:
        with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=place, ignore_cleanup_errors=True) as folder:
            made = Path(folder) / "made"
            try:
                make(made)
            except ProfilingError as problem:
                if not there:
                    raise
                both = f"{what} in the cache is not used ({damage}), and it could not be created again"
                raise SetupError(f"{both}: {problem.problem}", problem.fix) from problem
            write_record(made, what)
            with _turn(place):
                if damage_of(home) is not None:  # no other process was faster
                    if os.path.lexists(home):
                        home.rename(Path(folder) / "damaged")
                    made.rename(home)
    except OSError as problem:
        reason = system_reason(problem)
        raise SetupError(
            f"cannot store {what} in {place}: {reason}", f"free space there, or {_ANOTHER}"
        ) from problem
    if again := damage_of(home):
        raise SetupError(
            f"{what} was created and is already damaged: {again}",
            f"check the disk of {home}, or {_ANOTHER}",
        )
    if there:
        _remade.append(f"{what} in the cache was damaged ({damage}) and was created again")
    return home


def damage_of(home: Path) -> str | None:
    """Return what is wrong with the entry in `home`, or None; raise an error if others can write there."""
    _check_place(home.parent)
    if not os.path.lexists(home) or not _hold(home):
        return "it is not there"
    check_trusted(home)
    try:
        record: Any = read_json_object(home / RECORD, "")["files"]
        large = sum(facts[0] for facts in record.values() if len(facts) > 1) > _HASHED_EACH_TIME
        found = _contents(home, record if large else {})
        # All but the inode and times.
        changed = {name for name in {*record, *found} if record.get(name, [])[:3] != found.get(name, [])[:3]}
    except (ProfilingError, OSError, KeyError, TypeError, AttributeError):
        return "its record is missing or cannot be read, or an earlier version wrote it"
    return f"{min(changed)} has changed since it was created" if changed else None


def write_record(home: Path, what: str) -> None:
    """Record the content of `home`, after removing other users' write permission."""
    for path in (home, *home.rglob("*")):
        if not path.is_symlink():
            path.chmod(stat.S_IMODE(path.lstat().st_mode) & ~_NEVER)
    made = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    record = {"schema_version": 1, "what": what, "made": made, "files": _contents(home, {})}
    files.write_text(home / RECORD, json.dumps(record) + "\n")
    (home / RECORD).chmod(0o644)


def _contents(home: Path, known: Mapping[str, Facts]) -> dict[str, Facts]:
    """Return the facts of every file and link in `home`; files unchanged since `known` are not hashed."""
    found: dict[str, Facts] = {}
    for folder, subfolders, names in os.walk(home):
        for name in (*subfolders, *names):
            path = os.path.join(folder, name)  # noqa: PTH118  20,000 files
            key, facts = path[len(str(home)) + 1 :], os.lstat(path)
            if stat.S_ISLNK(facts.st_mode):
                found[key] = [str(Path(path).readlink())]
            elif not stat.S_ISDIR(facts.st_mode) and key != RECORD:
                stamps = [facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns]
                was = known.get(key, [])
                hashed = was[2] if was[3:] == stamps else files.sha256(Path(path))
                found[key] = [facts.st_size, stat.S_IMODE(facts.st_mode), hashed, *stamps]
    return found


def _hold(home: Path) -> bool:
    """Keep the entry from being removed while this process lives; return False if it is being removed."""
    with contextlib.suppress(OSError):  # no record, which is damage, or a file system without locks
        record = os.open(home / RECORD, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        if home in _held:
            os.close(_held[home])
        _held[home] = record
        try:
            fcntl.flock(record, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        os.utime(record)  # marks the last use
    return True


def take_repair_notes() -> tuple[str, ...]:
    """Return and clear the notes about repaired entries."""
    said = tuple(_remade)
    _remade.clear()
    return said


def make_place(kind: str) -> Path:
    """Make and return the cache's folder for one `kind`; others cannot write to it, whatever the umask."""
    return _make_trusted(cache_root() / kind)


def _make_trusted(folder: Path) -> Path:
    with contextlib.suppress(OSError):  # a failure is reported below
        for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
            missing.mkdir(mode=0o755, exist_ok=True)
    files.make_folder(folder)
    _check_place(folder)
    return folder


@contextlib.contextmanager
def _turn(place: Path) -> Iterator[None]:
    """Let one process at a time put entries into `place`: between finding one damaged and removing it,
    another process may have repaired it and be about to run it."""
    folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


# Trust: programs are run from the cache, so only this user and root may write to it.


def check_cache() -> Path:
    root = cache_root()
    for place in (root, *sorted(root.iterdir())) if root.is_dir() else ():
        check_trusted(place)
    return root


def _check_place(folder: Path) -> None:
    for place in (folder.parent, folder):
        check_trusted(place)


def check_trusted(folder: Path) -> None:
    """Refuse a cache folder that belongs to another user, or that others can write to."""
    try:
        found = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as problem:
        raise SetupError(f"cannot look at {folder}: {system_reason(problem)}", _ELSEWHERE) from problem
    if found.st_uid not in (0, os.geteuid()):
        raise SetupError(
            (
                f"{folder} belongs to user {found.st_uid}, who could replace programs that are run from "
                "the cache"
            ),
            _ELSEWHERE,
        )
    if found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _is_private_group(found)):
        raise SetupError(
            f"other users can write to {folder}, so they could replace programs that are run from the cache",
            f"{_ELSEWHERE}, or check that all files in {folder} are yours, then `chmod go-w {folder}`",
        )


def _is_private_group(found: os.stat_result) -> bool:
    """Whether only the owner is in the group: many systems give each user such a group, and let it write."""
    try:
        group, owner = grp.getgrgid(found.st_gid), pwd.getpwuid(found.st_uid)
    except KeyError:
        return False
    return group.gr_name == owner.pw_name and set(group.gr_mem) <= {owner.pw_name}


NOT_OURS = "not written by the kit"
IN_USE = "in use"
_ABANDONED_S = 86_400.0
"""Nothing takes a day to make: anything older was left by a killed process."""
_ZIG_CACHE = "compilers/zig-cache"
_WITHOUT_RECORD = re.compile(rf"{_ZIG_CACHE}|stores/[0-9a-f]{{16}}")
"""Folders that are not filled by `cached`: a compiler's own cache, and copies of stores."""
_NOTES = "probes"
"""Holds one-line notes of the compilers that passed the probe."""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """An entry: when it was last `used` (seconds), and why it `stays`, if it does."""

    kind: str
    name: str
    path: Path
    bytes: int
    used: float
    stays: str = ""


def cache_entries() -> tuple[CacheEntry, ...]:
    """Return every entry of the cache, and whatever else lies there; links are not followed."""
    root = cache_root()
    found = []
    for kind in sorted(root.iterdir()) if root.is_dir() else ():
        is_kind = kind.is_dir() and not kind.is_symlink()
        for path in sorted(kind.iterdir()) if is_kind else [kind]:
            with contextlib.suppress(FileNotFoundError):  # another process has removed it
                if kind.name != _NOTES:
                    found.append(_entry(kind.name, path))
    return tuple(found)


def _entry(kind: str, path: Path) -> CacheEntry:
    used, record = path.lstat().st_mtime, path / RECORD
    if path.is_symlink():
        return CacheEntry(kind, path.name, path, 0, used, f"a link, {NOT_OURS}")
    stays = ""
    if path.name.startswith(UNFINISHED) and path.is_dir():
        stays = "" if time.time() - used > _ABANDONED_S else "being made"
    elif safe_read.is_regular(record) or (path.is_dir() and _WITHOUT_RECORD.fullmatch(f"{kind}/{path.name}")):
        used = record.lstat().st_mtime if record.is_file() else used
        with _alone(path) as free:
            stays = "" if free else IN_USE
    else:
        stays = NOT_OURS
    return CacheEntry(kind, path.name, path, size_below(path), used, stays)


def size_below(path: Path, but: Collection[Path] = ()) -> int:
    """Return the bytes of the file or of all files in the folder `path`, without the folders `but`."""
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


def remove_entry(entry: CacheEntry) -> bool:
    """Remove the entry; return False if a process has begun to use it."""
    with _alone(entry.path) as free:
        if free:
            remove_whole(entry.path)
    return free


def remove_whole(path: Path, begins: str = UNFINISHED) -> None:
    """Remove a file or folder. It is first renamed into a folder with the prefix `begins`, so that nothing
    half removed keeps its name. A failure is an error that says where the rest is. Ctrl-C waits, as nobody
    would find the rest again."""
    with defer_signals():
        try:
            grave = Path(tempfile.mkdtemp(prefix=begins, dir=path.parent))
            try:
                path.rename(grave / path.name)
            except FileNotFoundError:  # another process was faster
                grave.rmdir()
                return
            except OSError:
                grave.rmdir()
                raise
        except OSError as problem:
            raise SetupError(
                f"cannot remove {path}: {system_reason(problem)}", "check who owns it"
            ) from problem
        try:
            for folder, subfolders, _ in os.walk(grave):
                for name in subfolders:  # some may be read-only
                    if not (below := Path(folder, name)).is_symlink():
                        below.chmod(stat.S_IMODE(below.lstat().st_mode) | stat.S_IRWXU)
            shutil.rmtree(grave)
        except OSError as problem:
            raise SetupError(
                f"cannot remove all of {path}: {system_reason(problem)}", f"remove the rest of it: {grave}"
            ) from problem


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """Yield whether no process uses the entry; none can start to during the block."""
    # Zig's cache has no record; its users hold the compiler's.
    is_zigs = path.parts[-2:] == tuple(_ZIG_CACHE.split("/"))
    free = True
    with contextlib.ExitStack() as opened:
        for record in path.parent.glob(f"ziglang-*/{RECORD}") if is_zigs else [path / RECORD]:
            try:
                # Open for writing: over NFS, a reader cannot get an exclusive lock.
                handle = os.open(record, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
                opened.callback(os.close, handle)
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                free = False
            except OSError:  # no record, or a file system without locks
                continue
        yield free
