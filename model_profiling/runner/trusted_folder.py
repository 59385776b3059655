"""Whether only this user and root can have put into a folder what lies in it.

Programs are run from the cache. Whoever can write to it, or can rename a folder on the way to it, decides
what this user runs; so every folder from the root of the file system on is looked at, as sshd does for keys.
No hash can stand in for that: who plants a program writes its hash beside it.
"""

from __future__ import annotations

import functools
import grp
import os
import pwd
import stat
from pathlib import Path

from model_profiling.errors import SetupError, system_reason

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
