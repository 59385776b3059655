"""How a command ends: signals act like Ctrl-C, and output that could not be written never looks like success.

Python itself drops what it could not write, or complains at exit in its own words; libraries that print
(argparse) swallow the error. So entry points are wrapped in `checked_output`.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import ParamSpec

from model_profiling.core.errors import system_reason

_P = ParamSpec("_P")
_FAILED = 2
_NOT_READ = 141
"""What a shell reports for a program that SIGPIPE ended: 128 plus the signal's number."""


@contextlib.contextmanager
def watched_output() -> Iterator[Callable[[int], int]]:
    """Watch standard output during the block, which gets a function for the exit code at its end: if output
    could not be written, 141 without a message if its reader has gone (`| head`), else 2 with one line."""

    def code_after(code: int) -> int:
        problem = lost_output()
        if problem is None or code > 1:
            return code
        if isinstance(problem, BrokenPipeError):
            return _NOT_READ
        reason = "it is closed" if problem.errno == errno.EBADF else system_reason(problem)
        say_aside(f"error: cannot write standard output, {reason}; redirect it to a file")
        return _FAILED

    _fill_gaps()
    try:
        yield code_after
    finally:
        if lost_output() is not None:  # drop the rest; otherwise Python tries again at exit
            with contextlib.suppress(OSError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, sys.stdout.fileno())
                os.close(nowhere)
                sys.stdout.flush()


def checked_output(work: Callable[_P, int]) -> Callable[_P, int]:
    """Wrap `work`, which returns an exit code, to fail if standard output cannot be written."""

    @functools.wraps(work)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> int:
        with watched_output() as code_after:
            try:
                code = work(*args, **kwargs)
            except (SystemExit, OSError) as ended:
                if lost_output() is None:
                    raise
                exit_code = getattr(ended, "code", 0)
                code = exit_code if isinstance(exit_code, int) else 0
            return code_after(code)

    return call


def lost_output() -> OSError | None:
    """Return why standard output could not all be written so far, or None if it was. What was not written
    stays in its buffer, so every call finds out again."""
    try:
        sys.stdout.flush()
    except OSError as problem:
        return problem
    return None


def say_aside(text: str, end: str = "\n") -> None:
    """Write a line to standard error, if possible."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{text}{end}")
        sys.stderr.flush()


def _fill_gaps() -> None:
    """Open something in place of each closed standard stream, so that no file gets its number. The one for
    standard output is not writable, so that writing to it fails as it should."""
    for name, flags in (("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is not None:
            continue
        handle = os.open(os.devnull, flags)
        os.set_inheritable(handle, True)
        stream = os.fdopen(handle, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_like_ctrl_c() -> None:
    """Make SIGTERM and SIGHUP raise KeyboardInterrupt, so that partial files and subprocesses are cleaned up.

    SIGHUP stays ignored under nohup: the work is to outlive its terminal. SIGQUIT still exits at once; then
    the keeper of `process.py` ends what runs. SIGCHLD is reset because a parent may have set it to be
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
    before = {number: signal.getsignal(number) for number in _ENDING}
    # None means a handler that is not Python's; ignored signals stay ignored.
    before = {number: old for number, old in before.items() if old not in (None, signal.SIG_IGN)}
    try:
        for number in before:
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
        if came:
            signal.raise_signal(came[0])
