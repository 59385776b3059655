"""Which lines of the kit ran: told at once and for nearly nothing by Python 3.12 and newer, of every so many
inputs by older ones."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PACKAGE = str(Path(__file__).resolve().parents[2] / "model_profiling")
EVERY = 24
"""Without `sys.monitoring`, one of so many inputs is watched."""
Line = tuple[str, int]


class SeenLines:
    """Lines of the package that ran inside of `watching`."""

    def __init__(self) -> None:
        self.lines: set[Line] = set()
        self._monitoring = getattr(sys, "monitoring", None)
        if self._monitoring is not None:
            tool = self._monitoring.COVERAGE_ID
            self._monitoring.use_tool_id(tool, "attack campaign")
            self._monitoring.register_callback(tool, self._monitoring.events.LINE, self._line)

    @contextmanager
    def watching(self, case: int) -> Iterator[None]:
        if self._monitoring is not None:
            tool, events = self._monitoring.COVERAGE_ID, self._monitoring.events
            self._monitoring.set_events(tool, events.LINE)
            try:
                yield
            finally:
                self._monitoring.set_events(tool, events.NO_EVENTS)
        elif case % EVERY == EVERY - 1:
            sys.settrace(self._called)
            try:
                yield
            finally:
                sys.settrace(None)
        else:
            yield

    def _line(self, code: CodeType, number: int) -> object:
        if code.co_filename.startswith(PACKAGE):
            self.lines.add((code.co_filename, number))
        assert self._monitoring is not None
        return self._monitoring.DISABLE  # once seen, a line costs nothing any more

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        del event, argument
        return self._traced if frame.f_code.co_filename.startswith(PACKAGE) else None

    def _traced(self, frame: FrameType, event: str, argument: object) -> Any:
        del argument
        if event == "line":
            self.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._traced


def by_module(lines: Iterable[Line]) -> list[tuple[str, int, int]]:
    """For each file in which anything was seen: its name, the lines of functions seen, how many it has."""
    seen: dict[str, set[int]] = {}
    for name, number in lines:
        seen.setdefault(name, set()).add(number)
    table = []
    for name, numbers in sorted(seen.items()):
        path = Path(name)
        whole = set(_lines_of_functions(compile(path.read_bytes(), name, "exec")))
        table.append((path.relative_to(PACKAGE).as_posix(), len(numbers & whole), len(whole)))
    return table


def _lines_of_functions(code: CodeType) -> Iterator[int]:
    """Where functions have code; what runs when a module is imported proves nothing."""
    for inner in (each for each in code.co_consts if isinstance(each, CodeType)):
        if inner.co_flags & 0x02:  # CO_NEWLOCALS: a function, not the body of a class
            yield from (line for *_, line in inner.co_lines() if line and line != inner.co_firstlineno)
        yield from _lines_of_functions(inner)
