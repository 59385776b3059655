"""Where the kit keeps what it builds and fetches, one folder per user, and runs it from.

An entry is used only where nobody else can have written to it (`trusted_folder`) and as it was made
(`cache_record`); a damaged one is made again, once, and that is said.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from model_profiling import files
from model_profiling.errors import ProfilingError, SetupError, system_reason
from model_profiling.runner.cache_record import (
    RECORD,
    Damage,
    Stamp,
    check_entry,
    stamps_of,
    write_entry_record,
)
from model_profiling.runner.trusted_folder import check_trusted

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
