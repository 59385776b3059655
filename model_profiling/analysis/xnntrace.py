"""XNNPACK's own log, from a runner built with it: kernels it configured and operators it ran, in order.

Text in, records out. Lines may come from a terminal (`Debug (XNNPACK): ...`) or from Android's logcat
(tag XNNPACK); everything else in the log is ignored.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.analysis.kernels import KernelUse, configured_kernels, operator_kernels
from model_profiling.core.errors import InputError
from model_profiling.core.hints import document
from model_profiling.core.safe_read import MOST_LOG, read_text
from model_profiling.program.category import operator_type


@dataclass(frozen=True, slots=True)
class ConfiguredKernel:
    """A kernel XNNPACK put into one of its tables: `Using gemm microkernel '...'`."""

    kind: str
    name: str
    line: int


@dataclass(frozen=True, slots=True)
class OperatorStep:
    """One operator of one delegate call; a skipped one ran nothing but has its event in the dump."""

    index: int
    name: str
    skipped: bool
    line: int


@dataclass(frozen=True, slots=True)
class DelegateCall:
    """One run of one delegate: its operators in order."""

    steps: tuple[OperatorStep, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(step.name for step in self.steps)


@dataclass(frozen=True, slots=True)
class XnnTrace:
    """What one process logged. `iterations` is what executor_runner said of itself, None if it did not."""

    configured: tuple[ConfiguredKernel, ...]
    calls: tuple[DelegateCall, ...]
    iterations: int | None

    @property
    def steps(self) -> tuple[OperatorStep, ...]:
        return tuple(step for call in self.calls for step in call.steps)


@dataclass(frozen=True, slots=True)
class Departure:
    """Where log and dump stop agreeing; a side that ended first is None."""

    position: int
    operator: str | None
    event: str | None
    line: int | None

    def __str__(self) -> str:
        if self.event is None:
            return f"the dump ends after {self.position} operators; the log goes on with {self.operator}"
        if self.operator is None:
            return f"the log ends after {self.position} operators; the dump goes on with {self.event}"
        logged = f"{self.operator} in the log (line {self.line})"
        return f"operator {self.position} is {logged}, but {self.event} in the dump"


@dataclass(frozen=True, slots=True)
class SequenceMatch:
    """Steps of a log paired in order with a dump's events, up to where they depart (None: nowhere)."""

    pairs: tuple[tuple[OperatorStep, str], ...]
    departure: Departure | None


_TERMINAL = re.compile(r"(?:Note|Debug|Warning|Error|Fatal error) \(XNNPACK\): (?P<message>.*)")
# logcat's threadtime, time and brief formats.
_LOGCAT = re.compile(
    r"(?:\d\d-\d\d \d\d:\d\d:\d\d\.\d+ +(?P<pid>\d{1,9}) +\d+ [VDIWEF] XNNPACK *: "
    r"|(?:\d\d-\d\d \d\d:\d\d:\d\d\.\d+ +)?[VDIWEF]/XNNPACK *\( *(?P<brief_pid>\d{1,9})\): )(?P<message>.*)"
)
_CONFIGURED = re.compile(r"Using (?P<kind>\w+) microkernel '(?P<name>[^']+)'")
_RUNNING = re.compile(
    r"(?P<skip>skip )?running operator (?P<index>\d{1,9}):(?P<part>\d{1,9}) \((?P<name>.+)\)"
)
_PLACE = re.compile(r"\w+, .*:\d+\)")
_RESHAPING = re.compile(r"reshaping operator \d+ \(")
_ITERATION = re.compile(
    r"executed successfully (?P<done>\d{1,9}) time|Iteration \d+ of (?P<planned>\d{1,9})(?!\d)"
)


def parse_xnntrace(text: str, *, pid: int | None = None) -> XnnTrace:
    """Read a log. A logcat with XNNPACK lines of several processes needs `pid` to choose one."""
    configured: list[ConfiguredKernel] = []
    calls: list[list[OperatorStep]] = []
    last = (-1, -1)
    closed = True
    for number, message in _messages(text, pid):
        if found := _CONFIGURED.match(message):
            configured.append(ConfiguredKernel(found["kind"], found["name"], number))
        elif _RESHAPING.match(message):
            # Each delegate call reshapes its operators first; indices restart in the next one.
            closed = True
        elif found := _RUNNING.fullmatch(_without_place(message)):
            place = (int(found["index"]), int(found["part"]))
            if closed or place <= last:
                calls.append([])
            closed, last = False, place
            # An operator of several parts is one operator, and one event of the dump.
            if place[1] == 0:
                name = found["name"].removesuffix(" Default")
                calls[-1].append(OperatorStep(place[0], name, bool(found["skip"]), number))
    made = tuple(DelegateCall(tuple(steps)) for steps in calls if steps)
    return XnnTrace(tuple(configured), made, _iterations(text))


def read_xnntrace(path: Path, *, pid: int | None = None, follow: bool = False) -> XnnTrace:
    """Read a log file; one without any line of XNNPACK is refused. `follow` links where the user named it."""
    text = read_text(path, MOST_LOG, follow=follow)
    trace = parse_xnntrace(text, pid=pid)
    if not trace.configured and not trace.calls:
        fix = f"run a runner of an -xnnlog preset, see {document('source_builds.md')}"
        raise InputError(f"{path} has no XNNPACK lines", fix)
    return trace


def kernel_uses(trace: XnnTrace) -> tuple[KernelUse, ...]:
    """The log as kernel evidence: announced kernels are configured, matrix operators it ran are executed."""
    return (
        *configured_kernels(kernel.name for kernel in trace.configured),
        *operator_kernels(step.name for step in trace.steps if not step.skipped),
    )


def match_events(steps: Iterable[OperatorStep], event_names: Sequence[str]) -> SequenceMatch:
    """Pair the steps of a log with the names of a dump's delegate events, in order.

    A dump names an operator when it is created, the log when it runs; what is chosen in between
    (`Mean (ND)` becoming `Mean (ND) Reduce`) is at the end of the log's name only.
    """
    pairs: list[tuple[OperatorStep, str]] = []
    departure = None
    for position, (step, event) in enumerate(itertools.zip_longest(steps, event_names)):
        if step is None:
            departure = Departure(position, None, event, None)
        elif event is None or not _same(step.name, operator_type(event.strip())):
            departure = Departure(position, step.name, event, step.line)
        if departure:
            break
        pairs.append((step, event))
    return SequenceMatch(tuple(pairs), departure)


def _same(logged: str, family: str) -> bool:
    chosen = logged.removeprefix(f"{family} ")
    return logged == family or (chosen != logged and not set("()") & set(chosen))


def _without_place(message: str) -> str:
    """A message without the `(function, file:line)` that XNNPACK ends it with."""
    head, _, place = message.rpartition(") (")
    return f"{head})" if head and _PLACE.fullmatch(place) else message


def _messages(text: str, pid: int | None) -> Iterator[tuple[int, str]]:
    """XNNPACK's messages with their line numbers, their prefixes taken off."""
    chosen = pid
    for number, line in enumerate(text.splitlines(), 1):
        if found := _TERMINAL.search(line):
            yield number, found["message"].strip()
        elif found := _LOGCAT.match(line.strip()):
            owner = int(found["pid"] or found["brief_pid"])
            if pid is None and chosen not in (None, owner):
                what = f"the log holds XNNPACK lines of processes {chosen} and {owner}"
                raise InputError(what, "choose one with --pid or clear logcat before the run")
            if chosen is None:
                chosen = owner
            if owner == chosen:
                yield number, found["message"].strip()


def _iterations(text: str) -> int | None:
    found = list(_ITERATION.finditer(text))
    if not found:
        return None
    done = [match["done"] for match in found if match["done"]]
    return int(done[-1] if done else found[-1]["planned"])
