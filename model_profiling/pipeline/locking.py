"""One run per directory at a time.

The lock is the kernel's: it goes when its holder goes, however that ends, so a lock can never be stale. The
file's content only tells people who holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from model_profiling import files
from model_profiling.errors import InputError
from model_profiling.run.journal import moment


@contextlib.contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """Hold `run_dir` for the length of the block, or say who holds it.

    The file lies beside the directory, because the directory itself may be moved aside meanwhile.
    """
    path = files.make_folder(run_dir.parent) / f".{run_dir.name}.lock"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise InputError(f"cannot write {path}: {reason}", "choose a folder you may write to") from problem
    try:
        _take(handle, run_dir)
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps({"pid": os.getpid(), "since": moment()}).encode(), 0)
        yield
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def check_free(run_dir: Path) -> None:
    """Say who holds `run_dir`, if anyone does; the moment after it may be taken, so `locked` decides."""
    try:
        handle = os.open(run_dir.parent / f".{run_dir.name}.lock", os.O_RDONLY)
    except OSError:
        return  # never locked, or not ours to read: taking the lock tells
    try:
        _take(handle, run_dir)
    finally:
        os.close(handle)


def _take(handle: int, run_dir: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as problem:
        raise InputError(
            f"{run_dir} is in use by another run ({_holder(handle)})",
            "wait for it to end, or choose another output_root",
        ) from problem


def _holder(handle: int) -> str:
    try:
        content = json.loads(os.pread(handle, 4096, 0))
        return f"process {content['pid']}, since {content['since']}"
    except (ValueError, KeyError, TypeError):
        return "it has just begun"
