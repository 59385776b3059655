"""One process at a time.

The lock is the kernel's: it goes when its holder goes, however that ends, so a lock can never be stale. The
file's content only tells people who holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from model_profiling import files
from model_profiling.errors import InputError

# Who only looks takes the lock for a moment; that is nobody's run.
_MOMENT_S = 0.2


@dataclass(frozen=True, slots=True)
class LockFile:
    """The lock of `what`, as the user calls it; `fix` is what to do when another run holds it."""

    path: Path
    what: str
    fix: str

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold it for the length of the block, or say who holds it."""
        files.make_folder(self.path.parent)
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            raise InputError(
                f"cannot write {self.path}: {reason}", "choose a folder you may write to"
            ) from problem
        try:
            self._take(handle)
            os.ftruncate(handle, 0)
            since = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            os.pwrite(handle, json.dumps({"pid": os.getpid(), "since": since}).encode(), 0)
            yield
            os.ftruncate(handle, 0)
        finally:
            os.close(handle)

    def check_free(self) -> None:
        """Say who holds it, if anyone does; the moment after it may be taken, so `held` decides."""
        try:
            handle = os.open(self.path, os.O_RDONLY)
        except OSError:
            return  # never locked, or not ours to read: taking the lock tells
        try:
            self._take(handle)
        finally:
            os.close(handle)

    def _take(self, handle: int) -> None:
        until = time.monotonic() + _MOMENT_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError as problem:
                if time.monotonic() > until:
                    raise InputError(
                        f"{self.what} is in use by another run ({_holder(handle)})", self.fix
                    ) from problem
            time.sleep(0.02)


def _holder(handle: int) -> str:
    try:
        content = json.loads(os.pread(handle, 4096, 0))
        return f"process {content['pid']}, since {content['since']}"
    except (ValueError, KeyError, TypeError):
        return "it has just begun"
