"""Programs that the kit looks for by itself: not in folders of the PATH that depend on where one stands, nor
in those that anybody can write to. What a user names is run as named.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path


def on_path(name: str, refused: list[str] | None = None) -> Path | None:
    """The first program called `name` that may be run; one that may not is added to `refused` as a clause."""
    for folder in _folders():
        found = shutil.which(name, path=folder or os.curdir)
        if found is None:
            continue
        if _may_be_used(folder):
            return Path(found)
        if refused is not None:
            refused.append(f"{name} in {folder or os.curdir} is not run: {_why_not(folder)}")
    return None


def path_folders() -> list[Path]:
    """The folders of the PATH from which something may be run."""
    return [Path(folder) for folder in _folders() if _may_be_used(folder)]


def _folders() -> Iterator[str]:
    yield from os.environ.get("PATH", os.defpath).split(os.pathsep)


def _may_be_used(folder: str) -> bool:
    return not _why_not(folder)


def _why_not(folder: str) -> str:
    if not Path(folder).is_absolute():
        return "the PATH names that folder by a relative path"
    try:
        anybody = Path(folder).stat().st_mode & stat.S_IWOTH
    except OSError:
        return "it cannot be looked at"
    return "anybody can write to that folder" if anybody else ""
