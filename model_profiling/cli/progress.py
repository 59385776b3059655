"""How progress looks: a live line on a terminal, nothing where output is piped."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

from model_profiling.progress import Progress, Silent


class LiveLine:
    """A spinner with the current stage, how much of it is done, and the time it has left."""

    def __init__(self) -> None:
        from rich.console import Console

        self._status = Console(stderr=True).status("")
        self._stage = ""
        self._began = time.monotonic()

    def __enter__(self) -> LiveLine:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def stage(self, text: str) -> None:
        self._stage, self._began = text, time.monotonic()
        self._status.update(text)

    def advance(self, done: int, total: int, text: str = "") -> None:
        spent = time.monotonic() - self._began
        left = f", {_clock(spent / done * (total - done))} left" if 0 < done < total else ""
        self._status.update(f"{self._stage} {done}/{total}{left}{f': {text}' if text else ''}")


@contextlib.contextmanager
def shown_progress() -> Iterator[Progress]:
    """Progress on stderr if a person watches it, silence otherwise."""
    if sys.stderr.isatty():
        with LiveLine() as line:
            yield line
    else:
        yield Silent()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
