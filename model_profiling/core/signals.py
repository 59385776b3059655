"""Signals that end a command: it ends as by Ctrl-C, and not in the middle of what must not be cut in half."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_like_ctrl_c() -> None:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt, so that half-made files go and what runs is ended.

    What nohup has set to be ignored stays ignored: the work is to outlive its terminal. SIGQUIT stays the way
    out at once, after which the keeper of `left_running.py` ends what runs. Whoever started the command may
    have let it ignore SIGCHLD; then the system forgets how each child ended, and a crash would pass for a
    success.
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
    """Signals that would end the process wait until the block is done; then the first of them counts.

    Handlers, rather than SIG_IGN, so that no child inherits it. Other threads than the main one get no
    signals, and may not say what becomes of them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    done = False
    before = {number: signal.getsignal(number) for number in _ENDING}
    # None is a handler that is not Python's; what is ignored stays so.
    before = {number: old for number, old in before.items() if old not in (None, signal.SIG_IGN)}

    def note(number: int, frame: FrameType | None) -> None:
        if not done:
            came.append(number)
        # A signal came between two of those that are put back below, and this one was not.
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
