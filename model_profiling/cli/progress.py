"""Progress on stderr: lines with a live count for a person, JSON lines for a driving program."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator

from model_profiling.core.stdio import Lines, Progress, Silent, watching

DRIVEN = "SME2PROF_PROGRESS"
"""Set to `json` by a program that drives this one: it reads progress as JSON lines from stderr and holds
stdin open. When stdin ends, the driver is gone, and the work ends as on Ctrl-C."""


class JsonLines(Progress):
    """A JSON object per step: `{"stage": "measuring", "done": 3, "total": 12, "text": ""}`."""

    def __init__(self) -> None:
        # A duplicate of stderr, as in `Lines`.
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
        elif not quiet and (lines or sys.stderr.isatty()):
            progress = Lines()
            stack.callback(progress.end)
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
