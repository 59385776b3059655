"""Progress reporting for long operations; the command line decides how it looks."""

from __future__ import annotations

import contextlib
import contextvars
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Protocol

from model_profiling.core.formatting import printable

_SECONDS_BETWEEN_LINES = 10.0
_ERASE = "\r\033[K"


class Progress(Protocol):
    """Receives the name of each stage and, if the amount of work is known, how much is done."""

    def stage(self, text: str) -> None:
        """A new stage began."""

    def advance(self, done: int, total: int, text: str = "", left_s: float | None = None) -> None:
        """`done` of `total` steps are finished; `left_s` is the time left, if known better than by steps."""


class Silent:
    """Reports nothing; the default for library use."""

    def stage(self, text: str) -> None:
        """Nothing is shown."""

    def advance(self, done: int, total: int, text: str = "", left_s: float | None = None) -> None:
        """Nothing is shown."""


class Lines:
    """Plain progress lines on stderr, for programs that run without the kit's packages. Several programs may
    share a terminal: the count stays in the last line until anyone writes another."""

    def __init__(self) -> None:
        self._stage, self._shown = "", time.monotonic()

    def stage(self, text: str) -> None:
        self._stage, self._shown = text, time.monotonic()
        self._write(text, "\n")

    def advance(self, done: int, total: int, text: str = "", left_s: float | None = None) -> None:
        del left_s
        count = f"{self._stage} {done}/{total} {text}".rstrip()
        if sys.stderr.isatty():
            self._write(count[: shutil.get_terminal_size().columns - 1], "")
        elif time.monotonic() - self._shown >= _SECONDS_BETWEEN_LINES:
            self._shown = time.monotonic()
            self._write(count, "\n")

    def _write(self, text: str, end: str) -> None:
        sys.stderr.write(f"{_ERASE if sys.stderr.isatty() else ''}{printable(text)}{end}")
        sys.stderr.flush()


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
