"""What a command says while it works, and how it ends: signals act like Ctrl-C, and output that could not be
written never looks like success.

Python itself drops what it could not write, or complains at exit in its own words; libraries that print
(argparse) swallow the error. So entry points are wrapped in `checked_output`.
"""

from __future__ import annotations

import contextlib
import contextvars
import errno
import functools
import io
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, ParamSpec

from model_profiling.core.errors import system_reason
from model_profiling.core.formatting import duration, in_short, no_command, printable

if TYPE_CHECKING:
    from typing_extensions import Buffer


_P = ParamSpec("_P")
_FAILED = 2
_NOT_READ = 141
"""What a shell reports for a program that SIGPIPE ended: 128 plus the signal's number."""


class _WatchedFile(io.FileIO):
    """Remembers the first failed write, even if the caller ignores it."""

    problem: OSError | None = None

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except OSError as problem:
            self.problem = self.problem or problem
            raise


def checked_output(work: Callable[_P, int]) -> Callable[_P, int]:
    """Wrap `work`, which returns an exit code. If standard output could not be written, the code is 141
    without a message if its reader has gone (`| head`), else 2 with one line."""

    @functools.wraps(work)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> int:
        with _watching_output():
            try:
                code = work(*args, **kwargs)
            except (SystemExit, OSError) as ended:
                if lost_output() is None:
                    raise
                exit_code = getattr(ended, "code", 0)
                code = exit_code if isinstance(exit_code, int) else 0
            problem = lost_output()
            if problem is None or code > 1:
                return code
            if isinstance(problem, BrokenPipeError):
                return _NOT_READ
            reason = "it is closed" if problem.errno == errno.EBADF else system_reason(problem)
            say_aside(f"error: cannot write standard output, {reason}; redirect it to a file")
            return _FAILED

    return call


def lost_output() -> OSError | None:
    """Return why standard output could not all be written so far, or None if it was."""
    try:
        sys.stdout.flush()
    except OSError as problem:
        return problem
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.problem if isinstance(raw, _WatchedFile) else None


def say_aside(text: str, end: str = "\n") -> None:
    """Write a line to standard error, if possible."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{text}{end}")
        sys.stderr.flush()


@contextlib.contextmanager
def _watching_output() -> Iterator[None]:
    """Open the missing standard streams, and record write failures of standard output; the streams of a
    notebook or a test runner are left alone."""
    _fill_gaps()
    theirs = sys.stdout
    if theirs is not sys.__stdout__ or not isinstance(theirs, io.TextIOWrapper):
        yield
        return
    raw = _WatchedFile(theirs.fileno(), "wb", closefd=False)
    ours = io.TextIOWrapper(
        io.BufferedWriter(raw), theirs.encoding, theirs.errors, line_buffering=theirs.line_buffering
    )
    sys.stdout = ours
    try:
        yield
    finally:
        sys.stdout = theirs
        if raw.problem is not None:  # discard the rest; otherwise Python tries again at exit
            with contextlib.suppress(OSError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, ours.fileno())
                os.close(nowhere)
                ours.flush()


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


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)


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
    signal.signal(signal.SIGALRM, _interrupt)
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _raise_again


def _raise_again(lost: sys.UnraisableHookArgs) -> None:
    """Python drops what is raised while it frees an object: an interruption comes again a moment later."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, 0.02)
    else:
        sys.__unraisablehook__(lost)


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


# Progress of long operations: whoever calls them decides how it looks, with `watching`.

_ERASE = "\r\033[K"


class Progress:
    """Receives the name of each stage and, if the amount of work is known, how much is done. This one, for
    use as a library, shows nothing."""

    def stage(self, text: str) -> None:
        """A new stage began."""

    def advance(self, done: int, total: int, text: str = "") -> None:
        """`done` of `total` steps are finished."""


def counted(began: float, done: int, total: int, text: str = "") -> str:
    """Return how far a stage is that began at this time of the monotonic clock: `3/12, 20 s left: text`."""
    left_s = (time.monotonic() - began) / done * (total - done) if done else 0.0
    left = f", about {duration(left_s)} left" if left_s > 0 else ""
    return f"{done}/{total}{left}{f': {text}' if text else ''}"


class Lines(Progress):
    """A line on stderr per stage, and its progress every few seconds. Several programs may share a terminal:
    there the count stays in the last line until anyone writes another."""

    def __init__(self, every_s: float = 10.0) -> None:
        self._stage, self._every_s = "", every_s
        self._began = self._shown = time.monotonic()
        # A duplicate of stderr: output to stderr is held back while torch works.
        terminal = os.dup(sys.stderr.fileno()) if sys.stderr.isatty() else None
        self._terminal = None if terminal is None else os.fdopen(terminal, "w", encoding="utf-8")

    def stage(self, text: str) -> None:
        if text != self._stage:
            self._stage = text
            self._began = self._shown = time.monotonic()
            self._write(text, "\n")

    def advance(self, done: int, total: int, text: str = "") -> None:
        count = f"{self._stage} {counted(self._began, done, total, text)}"
        if self._terminal:
            self._write(count[: shutil.get_terminal_size().columns - 1], "")
        elif done >= total or time.monotonic() - self._shown >= self._every_s:
            self._shown = time.monotonic()
            self._write(count, "\n")

    def end(self) -> None:
        """Erase the count that stays in a terminal's last line."""
        if self._terminal:
            self._write("", "")
            self._terminal.close()

    def _write(self, text: str, end: str) -> None:
        safe = no_command(printable(in_short(text)))
        if not self._terminal:
            say_aside(safe, end)
            return
        with contextlib.suppress(OSError):
            self._terminal.write(f"{_ERASE}{safe}{end}")
            self._terminal.flush()


_watching: contextvars.ContextVar[Progress] = contextvars.ContextVar("watching")


def current_progress() -> Progress:
    """Return the progress to report to."""
    return _watching.get(Progress())


@contextlib.contextmanager
def watching(progress: Progress) -> Iterator[None]:
    """Report to `progress` during the block."""
    before = _watching.set(progress)
    try:
        yield
    finally:
        _watching.reset(before)


DRIVEN = "SME2PROF_PROGRESS"
"""Set by a program that reads progress from stderr: then every command shows it, in more lines."""


@contextlib.contextmanager
def shown_progress(*, lines: bool = False, quiet: bool = False) -> Iterator[Progress]:
    """Show progress on stderr to a person or a program that reads it; otherwise nothing, or plain `lines`."""
    with contextlib.ExitStack() as stack:
        progress = Progress()
        driven = DRIVEN in os.environ
        if not quiet and (lines or driven or sys.stderr.isatty()):
            progress = Lines(1.0 if driven else 10.0)
            stack.callback(progress.end)
        stack.enter_context(watching(progress))
        yield progress
