"""What an entry of the cache held when it was made: every file with its size, mode and hash, kept in it.

It tells whether the disk, a full one, a kill or a careless hand has damaged what is about to be run. It
proves nothing about who wrote it: that is what owners and modes are for (`trusted_folder`).
"""

from __future__ import annotations

import functools
import grp
import json
import os
import pwd
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from model_profiling.core import files, safe_read
from model_profiling.core.errors import ProfilingError, SetupError, system_reason

# Whether only this user and root can have put into a folder what lies in it.
# Programs are run from the cache. Whoever can write to it, or can rename a folder on the way to it, decides
# what this user runs; so every folder from the root of the file system on is looked at, as sshd does for
# keys. No hash can stand in for that: who plants a program writes its hash beside it.

_MOST_LINKS = 40
_ELSEWHERE = "set SME2PROF_CACHE to a folder that only you can write to"
_UNMAPPED = 65534
"""Whoever has no number in this user namespace: in a container the owner of what lies outside."""


def check_trusted(folder: Path) -> None:
    """Refuse `folder` if another user could have put something into it, or something else into its place.

    A folder on the way may be one where everybody puts things (/tmp), if its sticky bit keeps them from each
    other's. A link on the way is followed, and where it leads is looked at as well. What is not there yet is
    nobody's, and can be made.
    """
    here, left, links = Path("/"), list(folder.absolute().parts[1:]), 0
    _check(here, os.lstat(here), last=not left)
    while left:
        name = left.pop(0)
        if name == "..":
            here = here.parent
            continue
        place = here / name
        try:
            found = os.lstat(place)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as problem:
            raise SetupError(f"cannot look at {place}: {system_reason(problem)}", _ELSEWHERE) from problem
        if stat.S_ISLNK(found.st_mode):
            _check_owner(place, found)
            links += 1
            if links > _MOST_LINKS:
                raise SetupError(f"{folder} leads through links without end", _ELSEWHERE)
            target = Path(place.readlink())
            here = Path("/") if target.is_absolute() else here
            left = [part for part in target.parts if part != "/"] + left
            continue
        _check(place, found, last=not left)
        here = place


def is_trusted_owner(found: os.stat_result) -> bool:
    return found.st_uid in (0, os.geteuid())


def writable_by_others(found: os.stat_result) -> bool:
    """Whether somebody else may write to it; a group that has its owner only is no one else."""
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_private_group(found.st_gid, found.st_uid)


def _check(place: Path, found: os.stat_result, *, last: bool) -> None:
    _check_owner(place, found, unmapped=not last)
    if not writable_by_others(found) or (found.st_mode & stat.S_ISVTX and not last):
        return
    raise SetupError(
        f"other users can write to {place}, so they may decide what is run from the cache",
        f"{_ELSEWHERE}, or see that nothing in {place} is theirs and `chmod go-w {place}`",
    )


def _check_owner(place: Path, found: os.stat_result, *, unmapped: bool = False) -> None:
    if is_trusted_owner(found) or (unmapped and found.st_uid == _UNMAPPED and _in_user_namespace()):
        return
    raise SetupError(
        f"{place} belongs to {_user(found.st_uid)}, who may decide what is run from the cache", _ELSEWHERE
    )


def _in_user_namespace() -> bool:
    try:
        mapped = Path("/proc/self/uid_map").read_text(encoding="ascii").split()
    except OSError:
        return False
    return mapped != ["0", "0", "4294967295"]


def _user(number: int) -> str:
    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"


@functools.cache
def _is_private_group(group: int, owner: int) -> bool:
    """Whether `owner` is its only member: many systems give each user a group, and a umask that lets it
    write. Asked once: behind a directory service the list of all users takes seconds."""
    try:
        members, name = grp.getgrgid(group).gr_mem, pwd.getpwuid(owner).pw_name
    except KeyError:
        return False
    at_home = {user.pw_name for user in pwd.getpwall() if user.pw_gid == group}
    return at_home | set(members) == {name}


RECORD = ".sme2prof-entry.json"
_HASHED_EACH_TIME = 64 << 20
"""A larger entry (a compiler of 20,000 files) is hashed where a file is not the very one that was hashed when
it was made, by its inode and times; smaller ones are hashed by every process that uses them."""
_NEVER = stat.S_IWGRP | stat.S_IWOTH | stat.S_ISUID | stat.S_ISGID
"""What no file or folder in the cache needs, whatever its package gave it."""

Stamp = tuple[int, int, int, int, int]
"""A file as the system knows it: device, inode, size, and when content and anything about it last changed."""


@dataclass(frozen=True, slots=True)
class RecordedFile:
    """A file, or a link with what it leads to."""

    size: int
    mode: int
    sha256: str
    inode: int
    mtime_ns: int
    ctime_ns: int
    link: str | None = None

    def is_same_inode(self, found: os.stat_result) -> bool:
        return (self.inode, self.mtime_ns, self.ctime_ns) == (
            found.st_ino,
            found.st_mtime_ns,
            found.st_ctime_ns,
        )


@dataclass(frozen=True, slots=True)
class EntryRecord:
    what: str
    made: str
    files: dict[str, RecordedFile]

    is_hashed_each_time: bool


class Damage(Exception):
    """What is wrong with an entry, as a clause."""


def write_entry_record(home: Path, what: str) -> None:
    """Record what is in `home`, after taking from others whatever they might write to."""
    recorded: dict[str, list[object]] = {}
    home.chmod(stat.S_IMODE(home.lstat().st_mode) & ~_NEVER)
    for name, path, found in _walk(home):
        if stat.S_ISLNK(found.st_mode):
            recorded[name] = [str(Path(path).readlink())]
            continue
        mode = stat.S_IMODE(found.st_mode) & ~_NEVER
        Path(path).chmod(mode)
        if stat.S_ISREG(found.st_mode):
            now = os.lstat(path)
            hashed = files.sha256(Path(path))
            recorded[name] = [now.st_size, mode, hashed, now.st_ino, now.st_mtime_ns, now.st_ctime_ns]
    content = {
        "schema_version": 1,
        "what": what,
        "made": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "files": recorded,
    }
    files.write_text(home / RECORD, json.dumps(content) + "\n")
    (home / RECORD).chmod(0o644)


def read_entry_record(home: Path) -> EntryRecord:
    """The record in `home`; `Damage` where there is none, or it is no record."""
    path = home / RECORD
    if not path.exists():
        raise Damage("nothing says what it held: its record is gone, or an earlier version made it")
    if not _is_own(path.lstat()):
        raise Damage("others can write its record")
    try:
        content = safe_read.read_json(path)
        return _parsed(content)
    except ProfilingError as problem:
        raise Damage(f"its record cannot be read ({problem.problem})") from problem
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise Damage(f"{path} is no record of it") from problem


def _parsed(content: object) -> EntryRecord:
    if not isinstance(content, dict) or content["schema_version"] != 1:
        raise ValueError
    recorded = {}
    for name, facts in content["files"].items():
        if len(facts) == 1:
            recorded[name] = RecordedFile(0, 0, "", 0, 0, 0, link=str(facts[0]))
        else:
            size, mode, hashed, inode, changed, touched = facts
            recorded[name] = RecordedFile(
                int(size), int(mode), str(hashed), int(inode), int(changed), int(touched)
            )
    small = sum(file.size for file in recorded.values()) <= _HASHED_EACH_TIME
    return EntryRecord(str(content["what"]), str(content["made"]), recorded, small)


def check_entry(home: Path) -> dict[str, Stamp]:
    """Compare what is in `home` with its record; `Damage` at the first difference.

    Gives the stamps of what was compared: while they stay, nothing has to be compared again.
    """
    try:
        _compare_folder(home)
        record = read_entry_record(home)
        stamps = _own_stamps(home)
        for name, path, found in _walk(home):
            _compare(name, path, found, record)
            stamps[name] = _stamp(found)
    except OSError as problem:
        raise Damage(f"it cannot be read ({system_reason(problem)})") from problem
    if missing := sorted(record.files.keys() - stamps.keys()):
        raise Damage(f"{missing[0]} is missing")
    return stamps


def _compare_folder(home: Path) -> None:
    found = os.lstat(home)
    if stat.S_ISLNK(found.st_mode):
        raise Damage("it is a link")
    if not _is_own_folder(found):
        raise Damage("it is no folder of this user's alone")


def stamps_of(home: Path) -> dict[str, Stamp]:
    """The stamps of everything in `home` as it is now, and its own."""
    return _own_stamps(home) | {name: _stamp(found) for name, _, found in _walk(home)}


def _own_stamps(home: Path) -> dict[str, Stamp]:
    """Those of the folder and its record, whose times only say when the entry was last used."""
    record = os.lstat(home / RECORD)
    known = (record.st_dev, record.st_ino, record.st_size, record.st_mode, 0)
    return {"": _stamp(os.lstat(home)), RECORD: known}


def _compare(name: str, path: str, found: os.stat_result, record: EntryRecord) -> None:
    if stat.S_ISDIR(found.st_mode):
        if not _is_own_folder(found):
            raise Damage(f"{name} in it is no folder of this user's alone")
        if name in record.files:
            raise Damage(f"{name} is a folder")
        return
    was = record.files.get(name)
    if was is None:
        raise Damage(f"{name} is in it and was not")
    _compare_file(name, path, found, was)
    hashing = was.link is None and (record.is_hashed_each_time or not was.is_same_inode(found))
    if hashing and files.sha256(Path(path)) != was.sha256:
        raise Damage(f"{name} is not as it was written")


def _compare_file(name: str, path: str, found: os.stat_result, was: RecordedFile) -> None:
    if not is_trusted_owner(found):
        raise Damage(f"{name} belongs to another user")
    if stat.S_ISLNK(found.st_mode) != (was.link is not None):
        raise Damage(f"{name} is {'a' if was.link is None else 'no'} link")
    if was.link is not None:
        if str(Path(path).readlink()) != was.link:
            raise Damage(f"{name} leads elsewhere")
        return
    if not stat.S_ISREG(found.st_mode):
        raise Damage(f"{name} is no regular file")
    if found.st_size != was.size:
        raise Damage(f"{name} has {found.st_size:,} of {was.size:,} bytes")
    if stat.S_IMODE(found.st_mode) != was.mode:
        raise Damage(f"{name} has mode {stat.S_IMODE(found.st_mode):o}, not {was.mode:o}")


def _is_own_folder(found: os.stat_result) -> bool:
    return stat.S_ISDIR(found.st_mode) and _is_own(found)


def _is_own(found: os.stat_result) -> bool:
    return is_trusted_owner(found) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _walk(home: Path) -> Iterator[tuple[str, str, os.stat_result]]:
    """Everything below `home` but the record: its name there, its path, and what it is; no link is
    followed."""
    waiting = [(str(home), "")]
    while waiting:
        folder, before = waiting.pop()
        with os.scandir(folder) as listed:
            for found in listed:
                name = f"{before}{found.name}"
                if name == RECORD:
                    continue
                facts = found.stat(follow_symlinks=False)
                yield name, found.path, facts
                if stat.S_ISDIR(facts.st_mode):
                    waiting.append((found.path, f"{name}/"))
