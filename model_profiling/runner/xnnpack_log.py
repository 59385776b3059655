"""XNNPACK's own log, from a terminal or logcat: kernels it configured and operators it ran."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from model_profiling.core.errors import InputError
from model_profiling.core.safe_read import MOST_LOG, read_text


@dataclass(frozen=True, slots=True)
class XnnTrace:
    configured: tuple[str, ...]
    """Kernels XNNPACK put into one of its tables: `Using gemm microkernel '...'`."""
    operators: tuple[str, ...]
    """The operators that ran, in order; without those it skipped."""


_LOGGED = re.compile(
    r"(?:(?:Note|Debug|Warning|Error|Fatal error) \(XNNPACK\)|\b[VDIWEF][ /]XNNPACK *(?:\( *\d{1,9}\))? *): "
    r"(?P<message>.*)"
)
"""On a terminal, and in logcat's threadtime, time and brief formats."""
_CONFIGURED = re.compile(r"Using \w+ microkernel '(?P<name>[^'\n]+)'")
_RUNNING = re.compile(r"running operator \d{1,9}:0 \((?P<name>.+)\)")
"""The first part of an operator that has several; skipped ones begin with `skip`."""
_PLACE = re.compile(r"\w+, .*:\d+\)")


def parse_xnntrace(text: str) -> XnnTrace:
    configured: list[str] = []
    operators: list[str] = []
    for logged in map(_LOGGED.search, text.splitlines()):
        message = logged["message"].strip() if logged else ""
        if found := _CONFIGURED.match(message):
            configured.append(found["name"])
        else:
            head, _, place = message.rpartition(") (")  # an operator, perhaps with ` (function, file:line)`
            whole = f"{head})" if head and _PLACE.fullmatch(place) else message
            if found := _RUNNING.fullmatch(whole):
                operators.append(found["name"].removesuffix(" Default"))
    return XnnTrace(tuple(configured), tuple(operators))


def read_xnntrace(path: Path, *, follow: bool = False) -> XnnTrace:
    """Read a log file; refuse one without XNNPACK lines. `follow` links where the user named the file."""
    trace = parse_xnntrace(read_text(path, MOST_LOG, follow=follow))
    if not trace.configured and not trace.operators:
        page = "docs/how-to/source_builds.md of the kit's repository"
        fix = f"use a runner built with an -xnnlog preset, see {page}"
        raise InputError(f"{path} has no lines of XNNPACK's log", fix)
    return trace
