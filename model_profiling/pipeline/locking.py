"""One run per directory at a time."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from model_profiling.lock_file import LockFile


def locked(run_dir: Path) -> AbstractContextManager[None]:
    """Hold `run_dir` for the length of the block, or say who holds it."""
    return _lock_of(run_dir).held()


def check_free(run_dir: Path) -> None:
    """Say who holds `run_dir`, if anyone does; the moment after it may be taken, so `locked` decides."""
    _lock_of(run_dir).check_free()


def _lock_of(run_dir: Path) -> LockFile:
    """The file lies beside the directory, because the directory itself may be moved aside meanwhile."""
    path = run_dir.parent / f".{run_dir.name}.lock"
    return LockFile(path, str(run_dir), "wait for it to end, or choose another output_root")
