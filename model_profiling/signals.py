"""Work that the user's impatience must not cut in half."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """Signals that would end the process wait until the block is done; then the first of them counts.

    Handlers, rather than SIG_IGN, so that no child inherits it. Other threads than the main one get no
    signals, and may not say what becomes of them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        came.append(number)

    before = {number: signal.getsignal(number) for number in _ENDING}
    # None is a handler that is not Python's; what is ignored stays so.
    before = {number: old for number, old in before.items() if old not in (None, signal.SIG_IGN)}
    try:
        for number in before:
            signal.signal(number, note)
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
        if came:
            signal.raise_signal(came[0])
