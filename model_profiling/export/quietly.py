"""Keeps what torch and the native runtime print away from the user, and at hand for an error message."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator


class Captured:
    """The text that was kept back; complete once the block has ended."""

    text = ""


@contextlib.contextmanager
def quietly(enabled: bool = True) -> Iterator[Captured]:
    """Catch Python warnings, log lines and everything written to the process's stdout and stderr."""
    captured = Captured()
    if not enabled:
        yield captured
        return
    sys.stdout.flush()
    sys.stderr.flush()
    saved = {number: os.dup(number) for number in (1, 2)}
    with tempfile.TemporaryFile() as sink:
        for number in saved:
            os.dup2(sink.fileno(), number)
        disabled = logging.root.manager.disable
        logging.disable(logging.WARNING)
        # In a notebook or under a test runner sys.stdout and sys.stderr are not the process's own.
        text = os.fdopen(os.dup(sink.fileno()), "w", encoding="utf-8", errors="replace")
        try:
            with (
                text,
                contextlib.redirect_stdout(text),
                contextlib.redirect_stderr(text),
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("ignore")
                yield captured
        finally:
            logging.disable(disabled)
            sys.stdout.flush()
            sys.stderr.flush()
            for number, original in saved.items():
                os.dup2(original, number)
                os.close(original)
            sink.seek(0)
            captured.text = sink.read().decode("utf-8", "replace")
