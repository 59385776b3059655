"""The repository's files as git sees them, and a copy of them to work in."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import lint

ROOT = Path(__file__).resolve().parents[1]


@functools.cache
def tracked() -> tuple[str, ...]:
    """Every file that is or would be committed, from the root."""
    return lint.tracked(ROOT)


def copy_to(destination: Path) -> None:
    """All of them but the recorded data."""
    for name in tracked():
        if not name.startswith("tests/data/"):
            copy = destination / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy)
