"""The cache of what the kit builds and fetches: one folder per user, from which programs are run. An entry is
a folder named after what decides its content; it is made beside its place and renamed, so it is whole."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from model_profiling.core import files
from model_profiling.core.errors import InputError, SetupError, system_reason

_TAG = "CACHEDIR.TAG"
"""The usual mark of a cache, which backups leave out; only a folder with the kit's own is ever removed."""
_TAG_TEXT = "Signature: 8a477f597d28d172789f06886806bc55\n# made by sme2prof, safe to remove\n"
_ELSEWHERE = "set SME2PROF_CACHE to a folder that only you can write to"


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
    """Return the entry `home` in a folder of the cache; `make` fills it if it is missing. If two processes
    make it at once, the first is kept."""
    check_cache()
    if home.is_dir():
        return home
    if not fetch:
        raise SetupError(f"{what} is not in the cache", "the first run that needs it downloads it")
    make_root()
    place = home.parent
    files.make_folder(place)
    try:
        with tempfile.TemporaryDirectory(prefix=".making.", dir=place, ignore_cleanup_errors=True) as folder:
            made = Path(folder) / "made"
            make(made)
            try:
                made.rename(home)
            except OSError:
                if not home.is_dir():  # no other process was faster
                    raise
    except OSError as problem:
        another = "free space there, or set SME2PROF_CACHE to a folder on another disk"
        raise SetupError(f"cannot store {what} in {place}: {system_reason(problem)}", another) from problem
    return home


def make_root() -> None:
    """Make the cache's folder, for this user only; refuse one that is not safe."""
    root = cache_root()
    files.make_folder(root.parent)
    try:
        root.mkdir(mode=0o700)
    except FileExistsError:
        check_cache()
        return
    except OSError as problem:
        raise SetupError(f"cannot make {root}: {system_reason(problem)}", _ELSEWHERE) from problem
    files.write_text(root / _TAG, _TAG_TEXT)


def check_cache() -> Path:
    """Return the cache's folder; refuse one that belongs to another user, or that others can write to."""
    root = cache_root()
    try:
        facts = root.stat()
    except (FileNotFoundError, NotADirectoryError):
        return root
    except OSError as problem:
        raise SetupError(f"cannot look at {root}: {system_reason(problem)}", _ELSEWHERE) from problem
    if facts.st_uid not in (0, os.geteuid()):
        raise SetupError(
            f"{root} belongs to user {facts.st_uid}, who could replace programs that are run from it",
            _ELSEWHERE,
        )
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SetupError(
            f"other users can write to {root}, so they could replace programs that are run from it",
            f"{_ELSEWHERE}, or check that all files there are yours, then `chmod go-w {root}`",
        )
    return root


def remove_cache() -> int:
    """Remove the whole cache; return the bytes it held."""
    root = check_cache()
    if not root.is_dir():
        return 0
    if not (root / _TAG).is_file():
        raise InputError(f"{root} was not made by the kit", "remove it by hand if nothing of yours is in it")
    try:
        paths = [path for path in root.rglob("*") if not path.is_symlink()]
        size = sum(path.stat().st_size for path in paths if path.is_file())
        for path in paths:
            if path.is_dir():  # some packages have read-only folders
                path.chmod(0o700)
        shutil.rmtree(root)
    except OSError as problem:
        raise SetupError(
            f"cannot remove all of {root}: {system_reason(problem)}", "remove the rest by hand"
        ) from problem
    return size
