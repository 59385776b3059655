"""Where the kit keeps what it builds and fetches, one folder per user."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """`$SME2PROF_CACHE`, or `sme2prof` in the user's cache folder."""
    if chosen := os.environ.get("SME2PROF_CACHE"):
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".cache").absolute() / "sme2prof"
