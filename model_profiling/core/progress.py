"""Progress reporting for long operations; the command line decides how it looks."""

from __future__ import annotations

import contextlib
import contextvars
import shutil
import sys
import time
from collections.abc import Iterator

from model_profiling.core.formatting import duration, in_short, no_command, printable
from model_profiling.core.stdio import say_aside

_SECONDS_BETWEEN_LINES = 10.0
_ERASE = "\r\033[K"


class Progress:
    """Receives the name of each stage and, if the amount of work is known, how much is done."""

    def stage(self, text: str) -> None:
        """A new stage began."""

    def advance(self, done: int, total: int, text: str = "", left_s: float | None = None) -> None:
        """`done` of `total` steps are finished; `left_s` is the time left, if known better than by steps."""


def counted(began: float, done: int, total: int, text: str = "", left_s: float | None = None) -> str:
    """Return how far a stage is that began at this time of the monotonic clock: `3/12, 20 s left: text`."""
    if left_s is None and 0 < done < total:
        left_s = (time.monotonic() - began) / done * (total - done)
    left = f", about {duration(left_s)} left" if left_s else ""
    return f"{done}/{total}{left}{f': {text}' if text else ''}"


class Silent(Progress):
    """Reports nothing; the default for library use."""


class Lines(Progress):
    """A line on stderr per stage, and its progress every few seconds. Several programs may share a terminal:
    there the count stays in the last line until anyone writes another."""

    def __init__(self) -> None:
        self._stage = ""
        self._began = self._shown = time.monotonic()

    def stage(self, text: str) -> None:
        if text != self._stage:
            self._stage = text
            self._began = self._shown = time.monotonic()
            self._write(text, "\n")

    def advance(self, done: int, total: int, text: str = "", left_s: float | None = None) -> None:
        count = f"{self._stage} {counted(self._began, done, total, text, left_s)}"
        if sys.stderr.isatty():
            self._write(count[: shutil.get_terminal_size().columns - 1], "")
        elif done >= total or time.monotonic() - self._shown >= _SECONDS_BETWEEN_LINES:
            self._shown = time.monotonic()
            self._write(count, "\n")

    def _write(self, text: str, end: str) -> None:
        say_aside(f"{_ERASE if sys.stderr.isatty() else ''}{no_command(printable(in_short(text)))}", end)


_watching: contextvars.ContextVar[Progress] = contextvars.ContextVar("watching")


def current_progress() -> Progress:
    """Return the progress to report to, for implicit work such as a first-run download."""
    return _watching.get(Silent())


@contextlib.contextmanager
def watching(progress: Progress) -> Iterator[None]:
    """Report to `progress` during the block."""
    before = _watching.set(progress)
    try:
        yield
    finally:
        _watching.reset(before)
