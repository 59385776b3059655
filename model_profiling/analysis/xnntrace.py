"""Parses XNNPACK's own log, from a terminal or logcat: kernels it configured and operators it ran."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from model_profiling.analysis.kernels import KernelUse, configured_kernels, operator_kernels
from model_profiling.core.errors import InputError
from model_profiling.core.safe_read import MOST_LOG, read_text


@dataclass(frozen=True, slots=True)
class XnnTrace:
    configured: tuple[str, ...]
    """Kernels XNNPACK put into one of its tables: `Using gemm microkernel '...'`."""
    operators: tuple[str, ...]
    """The operators that ran, in order; without those it skipped."""


_TERMINAL = re.compile(r"(?:Note|Debug|Warning|Error|Fatal error) \(XNNPACK\): (?P<message>.*)")
# logcat's threadtime, time and brief formats.
_LOGCAT = re.compile(
    r"(?:\d\d-\d\d \d\d:\d\d:\d\d\.\d+ +(?P<pid>\d{1,9}) +\d+ [VDIWEF] XNNPACK *: "
    r"|(?:\d\d-\d\d \d\d:\d\d:\d\d\.\d+ +)?[VDIWEF]/XNNPACK *\( *(?P<brief_pid>\d{1,9})\): )(?P<message>.*)"
)
_CONFIGURED = re.compile(r"Using \w+ microkernel '(?P<name>[^'\n]+)'")
_RUNNING = re.compile(r"running operator \d{1,9}:0 \((?P<name>.+)\)")
"""The first part of an operator that has several; skipped ones begin with `skip`."""
_PLACE = re.compile(r"\w+, .*:\d+\)")


def parse_xnntrace(text: str, *, pid: int | None = None) -> XnnTrace:
    """Parse a log. A logcat with XNNPACK lines of several processes needs `pid` to choose one."""
    configured: list[str] = []
    operators: list[str] = []
    for message in _messages(text, pid):
        if found := _CONFIGURED.match(message):
            configured.append(found["name"])
        elif found := _RUNNING.fullmatch(_without_place(message)):
            operators.append(found["name"].removesuffix(" Default"))
    return XnnTrace(tuple(configured), tuple(operators))


def read_xnntrace(path: Path, *, pid: int | None = None, follow: bool = False) -> XnnTrace:
    """Read a log file; refuse one without XNNPACK lines. `follow` links where the user named the file."""
    trace = parse_xnntrace(read_text(path, MOST_LOG, follow=follow), pid=pid)
    if not trace.configured and not trace.operators:
        page = "docs/how-to/source_builds.md of the kit's repository"
        fix = f"use a runner built with an -xnnlog preset, see {page}"
        raise InputError(f"{path} has no lines of XNNPACK's log", fix)
    return trace


def kernel_uses(trace: XnnTrace) -> tuple[KernelUse, ...]:
    """The log as kernel evidence: announced kernels are configured, matrix operators it ran are executed."""
    return (*configured_kernels(trace.configured), *operator_kernels(trace.operators))


def _without_place(message: str) -> str:
    """The message without the `(function, file:line)` at its end."""
    head, _, place = message.rpartition(") (")
    return f"{head})" if head and _PLACE.fullmatch(place) else message


def _messages(text: str, pid: int | None) -> Iterator[str]:
    chosen = pid
    for line in text.splitlines():
        if found := _TERMINAL.search(line):
            yield found["message"].strip()
        elif found := _LOGCAT.match(line.strip()):
            owner = int(found["pid"] or found["brief_pid"])
            if pid is None and chosen not in (None, owner):
                what = f"the log has XNNPACK lines of two processes, {chosen} and {owner}"
                raise InputError(what, "choose one with --pid, or clear logcat before the run")
            if chosen is None:
                chosen = owner
            if owner == chosen:
                yield found["message"].strip()
