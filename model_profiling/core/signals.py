"""Signals that end a command: they act like Ctrl-C, and wait while work must not be interrupted."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

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
