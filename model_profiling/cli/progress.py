"""Progress on stderr: a live line on a terminal, plain lines in a log, JSON lines for a driving program."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from model_profiling.core.formatting import duration, printable
from model_profiling.core.stdio import Lines, Progress, Silent, counted, watching

if TYPE_CHECKING:
    from rich.text import Text

DRIVEN = "SME2PROF_PROGRESS"
"""Set to `json` by a program that drives this one: it reads progress as JSON lines from stderr and holds
stdin open. When stdin ends, the driver is gone, and the work ends as on Ctrl-C."""


class LiveLine(Progress):
    """A spinner with the current stage, its progress, the time it has taken and the time left."""

    def __init__(self) -> None:
        from rich.console import Console

        # A duplicate of stderr: output to stderr is held back while torch works, and this line must not be.
        self._stream = os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8")
        self._console = Console(file=self._stream, force_terminal=True)
        self._status = self._console.status("")
        self._stage, self._count = "", ""
        self._began = time.monotonic()

    def __enter__(self) -> LiveLine:
        self._status.update(self)  # asked again for every picture of the spinner, so that seconds count up
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()
        self._stream.close()

    def stage(self, text: str) -> None:
        self._stage, self._count, self._began = text, "", time.monotonic()

    def advance(self, done: int, total: int, text: str = "") -> None:
        self._count = counted(self._began, done, total, text)

    def __rich__(self) -> Text:
        """One line, however narrow the terminal; `Text` because brackets in names are not markup."""
        from rich.text import Text

        spent = f"[{duration(time.monotonic() - self._began)}] " if self._stage else ""
        text = printable(" ".join(f"{spent}{self._stage} {self._count}".split()))
        room = self._console.width - len("* ") - 1
        return Text(text if len(text) <= room else text[: room - 3] + "...")


class JsonLines(Progress):
    """A JSON object per step: `{"stage": "measuring", "done": 3, "total": 12, "text": ""}`."""

    def __init__(self) -> None:
        # A duplicate of stderr, as in LiveLine.
        self._stream = os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8")
        self._stage = ""

    def __enter__(self) -> JsonLines:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def stage(self, text: str) -> None:
        self._stage = text
        self._write({"stage": text})

    def advance(self, done: int, total: int, text: str = "") -> None:
        self._write({"stage": self._stage, "done": done, "total": total, "text": text})

    def _write(self, step: dict[str, object]) -> None:
        # If the driver is gone, stdin ends too, and that ends the work in order.
        with contextlib.suppress(OSError):
            self._stream.write(json.dumps(step) + "\n")
            self._stream.flush()


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def shown_progress(*, lines: bool = False, quiet: bool = False) -> Iterator[Progress]:
    """Show progress on stderr to a person or a driving program; otherwise nothing, or plain `lines`."""
    with contextlib.ExitStack() as stack:
        progress: Progress = Silent()
        if os.environ.get(DRIVEN) == "json":
            progress = stack.enter_context(JsonLines())
        elif not quiet and sys.stderr.isatty():
            progress = stack.enter_context(LiveLine())
        elif not quiet and lines:
            progress = Lines()
        stack.enter_context(watching(progress))
        yield progress


@contextlib.contextmanager
def measuring(kept: str = "", *, quiet: bool, no_wait: bool = False) -> Iterator[Progress]:
    """Show progress of a measurement; Ctrl-C says what is `kept`. With `no_wait`, refuse if somebody else
    measures on this machine."""
    from model_profiling.targets.machine_lock import may_wait

    try:
        with may_wait(not no_wait), shown_progress(lines=True, quiet=quiet) as progress:
            yield progress
    except KeyboardInterrupt as ended:
        ended.args = ended.args or ((kept,) if kept else ())
        raise
