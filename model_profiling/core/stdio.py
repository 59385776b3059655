"""How a command ends: signals act like Ctrl-C, and output that could not be written never looks like success.

Python itself drops what it could not write, or complains at exit in its own words. It says nothing if a
stream was closed from the start, and gives that stream's number to the next file opened. Libraries that print
(argparse) swallow the error. So entry points are wrapped in `checked_output`.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import IO, TYPE_CHECKING, ParamSpec

from model_profiling.core.errors import system_reason

if TYPE_CHECKING:
    from typing_extensions import Buffer


_P = ParamSpec("_P")
_FAILED = 2
_NOT_READ = 141
"""What a shell reports for a program that SIGPIPE ended: 128 plus the signal's number."""
_REASONS = {errno.EBADF: "it is closed"}
_CURES = {errno.ENOSPC: "free some space, or write to another place"}


class _Watched(io.FileIO):
    """Remembers the first failed write, even if the caller ignores it."""

    problem: OSError | None = None

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except OSError as problem:
            self.problem = self.problem or problem
            raise


def checked_output(work: Callable[_P, int]) -> Callable[_P, int]:
    """Wrap `work`, which returns an exit code, to fail if standard output cannot be written: 141 without a
    message if its reader has gone (`| head`), else 2 with one line. A failure to write standard error changes
    nothing: the exit code is enough."""

    @functools.wraps(work)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> int:
        with _watching():
            try:
                code = work(*args, **kwargs)
            except SystemExit as ended:
                if lost_output() is None:
                    raise
                code = ended.code if isinstance(ended.code, int) else 0
            except OSError:
                if lost_output() is None and not _silenced(sys.stderr):
                    raise
                code = 0 if lost_output() else _FAILED
            finally:
                _silenced(sys.stderr)
            problem = lost_output()
            return code if problem is None or code > 1 else _told(problem)

    return call


def lost_output() -> OSError | None:
    """Return why standard output could not all be written so far, or None if it was."""
    try:
        sys.stdout.flush()
    except OSError as problem:
        return problem
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.problem if isinstance(raw, _Watched) else None


def say_aside(text: str, end: str = "\n") -> None:
    """Write a line to standard error, if possible."""
    try:
        sys.stderr.write(f"{text}{end}")
        sys.stderr.flush()
    except OSError:
        _silence(sys.stderr)


def _told(problem: OSError) -> int:
    if isinstance(problem, BrokenPipeError):
        return _NOT_READ
    number = problem.errno or 0
    reason = _REASONS.get(number) or system_reason(problem)
    cure = _CURES.get(number, "redirect it to a file")
    say_aside(f"error: the answer was lost: cannot write standard output, {reason}; {cure}")
    return _FAILED


@contextlib.contextmanager
def _watching() -> Iterator[None]:
    """Open the missing standard streams, and record write failures of standard output; the streams of a
    notebook or a test runner are left alone."""
    _fill_gaps()
    theirs = sys.stdout
    if theirs is not sys.__stdout__ or not isinstance(theirs, io.TextIOWrapper):
        yield
        return
    raw = _Watched(theirs.fileno(), "wb", closefd=False)
    ours = io.TextIOWrapper(
        io.BufferedWriter(raw), theirs.encoding, theirs.errors, line_buffering=theirs.line_buffering
    )
    sys.stdout = ours
    try:
        yield
    finally:
        sys.stdout = theirs
        if raw.problem is not None:
            _silence(ours)


def _fill_gaps() -> None:
    """Open something in place of each closed standard stream. The one for standard output is not writable, so
    that writing to it fails as it should."""
    for name, flags in (("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is not None:
            continue
        handle = os.open(os.devnull, flags)
        os.set_inheritable(handle, True)
        stream = os.fdopen(handle, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _silenced(stream: IO[str]) -> bool:
    """Whether `stream` could not be written, and was silenced."""
    try:
        stream.flush()
    except OSError:
        _silence(stream)
        return True
    return False


def _silence(stream: IO[str]) -> None:
    """Discard what cannot be written; otherwise Python tries again at exit."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        stream.flush()


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_like_ctrl_c() -> None:
    """Make SIGTERM and SIGHUP raise KeyboardInterrupt, so that partial files and subprocesses are cleaned up.

    SIGHUP stays ignored under nohup: the work is to outlive its terminal. SIGQUIT still exits at once; then
    the keeper of `left_running.py` ends what runs. SIGCHLD is reset because a parent may have set it to be
    ignored: then the system forgets how each child ended, and a crash would look like success.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Delay signals that would end the process until the block is done; then the first one counts. Uses
    handlers rather than SIG_IGN, which children would inherit. Only the main thread gets signals and may set
    handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    done = False
    before = {number: signal.getsignal(number) for number in _ENDING}
    # None means a handler that is not Python's; ignored signals stay ignored.
    before = {number: old for number, old in before.items() if old not in (None, signal.SIG_IGN)}

    def note(number: int, frame: FrameType | None) -> None:
        if not done:
            came.append(number)
        # This signal came while the handlers were being restored below, before its own was.
        elif callable(old := before[signal.Signals(number)]):
            old(number, frame)
        else:
            signal.signal(number, old)
            signal.raise_signal(number)

    try:
        for number in before:
            signal.signal(number, note)
        yield
    finally:
        done = True
        for number, old in before.items():
            signal.signal(number, old)
        if came:
            signal.raise_signal(came[0])
