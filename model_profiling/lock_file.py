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
from model_profiling.errors import InputError, InUseError, system_reason

# Who only looks takes the lock for a moment; that is nobody's run.
_MOMENT_S = 0.2


@dataclass(frozen=True, slots=True)
class LockFile:
    """The lock of `what`, as the user calls it; `fix` is what to do when another run holds it."""

    path: Path
    what: str
    fix: str
    elsewhere: str | None = None
    """What to do where the file itself cannot be written, if that is not to choose another folder."""

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold it for the length of the block, or say who holds it."""
        try:
            files.make_folder(self.path.parent)
        except InputError as problem:
            raise InputError(problem.problem, self.elsewhere or problem.fix) from problem
        try:
            handle = files.open_in_place(self.path)
        except OSError as problem:
            raise self._refused("write", problem) from problem
        try:
            try:
                self._take(handle, fcntl.LOCK_EX)
            except OSError as problem:  # a file system without locks
                raise self._refused("lock", problem) from problem
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
            handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return  # never locked, not ours to read, or a link: taking the lock tells
        try:
            # Who only reads may not have it alone on every file system, and need not. Where nothing can be
            # locked, taking the lock tells.
            with contextlib.suppress(OSError):
                self._take(handle, fcntl.LOCK_SH)
        finally:
            os.close(handle)

    def _take(self, handle: int, how: int) -> None:
        until = time.monotonic() + _MOMENT_S
        while True:
            try:
                fcntl.flock(handle, how | fcntl.LOCK_NB)
                return
            except BlockingIOError as problem:
                if time.monotonic() > until:
                    raise InUseError(
                        f"{self.what} is in use by another run ({_holder(handle)})", self.fix
                    ) from problem
            time.sleep(0.02)

    def _refused(self, verb: str, problem: OSError) -> InputError:
        reason = system_reason(problem)
        return InputError(
            f"cannot {verb} {self.path}: {reason}", self.elsewhere or "choose a folder you may write to"
        )


def _holder(handle: int) -> str:
    try:
        content = json.loads(os.pread(handle, 4096, 0))
        return f"process {content['pid']}, since {content['since']}"
    except (ValueError, KeyError, TypeError):
        return "it has just begun"
