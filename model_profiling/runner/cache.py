"""Where the kit keeps what it builds and fetches, one folder per user."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from model_profiling import files
from model_profiling.errors import SetupError


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
    """`home`, filled by `make` the first time; of two processes at once the quicker one's is kept."""
    if home.is_dir():
        return home
    if not fetch:
        raise SetupError(f"{what} is not in the cache", "the first run that needs it fetches it")
    with tempfile.TemporaryDirectory(prefix=".fetch.", dir=files.make_folder(home.parent)) as folder:
        made = Path(folder) / "made"
        make(made)
        try:
            made.rename(home)
        except OSError:
            if not home.is_dir():
                raise
    return home
