"""A dump with the most exact operator times there are.

XNNPACK reports truncated whole microseconds, laid back to back. If the runner stored boundaries that agree
with the dump up to the truncation, operators get their true times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model_profiling.core.errors import FormatError
from model_profiling.core.flatbuffer import Int64
from model_profiling.core.formatting import plural
from model_profiling.core.safe_read import check_regular, is_there
from model_profiling.etdump.reader import read_etdump
from model_profiling.etdump.table import Boundaries, EventTable, boundaries_beside, read_boundaries

_US = 1_000

DELEGATE_CALL = "DELEGATE_CALL"
EXACT = "nanoseconds, from the backend's clock calls"
CUT = "whole microseconds of XNNPACK"
OWN = "nanoseconds of ExecuTorch's runtime"
"""Used when no delegate reported operators."""
REPORTED = "as the delegate reports them"


@dataclass(frozen=True, slots=True)
class TimedDump:
    """A dump's events with the most exact times available, and the source of those times."""

    table: EventTable
    clock: str
    exact_calls: NDArray[np.bool_] | None = None
    """For each event, whether it is a delegate call whose operators have true times; None if none is."""
    misfit: str = ""
    """Why the boundaries beside it, or some of them, are not used; empty if they are."""


def read_timed(dump: Path) -> TimedDump:
    """Read a dump, with the boundaries beside it if there are any."""
    table = read_etdump(dump)
    beside = boundaries_beside(dump)
    if not is_there(check_regular(beside)):
        return TimedDump(table, clock_of(table))
    try:
        return with_boundaries(table, read_boundaries(beside))
    except FormatError as problem:
        return TimedDump(table, clock_of(table), misfit=problem.problem)


def clock_of(table: EventTable) -> str:
    """Source of the operators' times in a dump without boundaries."""
    reported = table.duration_ns[table.is_delegated]
    if not len(reported):
        return OWN
    return CUT if not (reported % _US).any() else REPORTED


def with_boundaries(table: EventTable, exact: Boundaries) -> TimedDump:
    """`table` with true operator times in every delegate call that `exact` fits."""
    is_operator = table.is_delegated
    calls = np.flatnonzero((table.name == table.name_index(DELEGATE_CALL)) & ~is_operator)
    source = Path(exact.source).name
    if len(calls) != exact.invocations:
        has = f"{source} has {plural(exact.invocations, 'delegate call')}"
        misfit = f"{has}, the dump has {plural(len(calls), 'call')}"
        return TimedDump(table, clock_of(table), misfit=misfit)
    # An event is written when it ends: operators come before the call they ran in.
    events = np.flatnonzero(is_operator)
    events = events[events < (calls[-1] if len(calls) else 0)]
    call = np.searchsorted(calls, events)
    held = np.bincount(call, minlength=len(calls))
    fits = held == exact.operators
    if not fits.all():
        events, call = events[fits[call]], call[fits[call]]
    position = np.arange(len(events)) - np.searchsorted(call, call)
    at = exact.first[call] + position
    start, end = exact.times_ns[at], exact.times_ns[at + 1]
    looks = exact.looks[exact.first_look[exact.delegate[call]] + position]
    lost = (end - start) - table.duration_ns[events]
    # Each look at the clock truncates: reported times are short by less than a microsecond per look.
    wrong = (lost < 0) | (lost >= _US * looks)
    wrong |= table.instruction_id[events] != table.instruction_id[calls[call]]
    wrong |= (start < table.start_ns[calls[call]] - _US) | (end > table.end_ns[calls[call]] + _US)
    fits[call[wrong]] = False
    used = fits[call]
    refined = replace(
        table,
        start_ns=_put(table.start_ns, events[used], start[used]),
        end_ns=_put(table.end_ns, events[used], end[used]),
        duration_ns=_put(table.duration_ns, events[used], (end - start)[used]),
    )
    exact_calls = np.zeros(len(table), np.bool_)
    exact_calls[calls[fits]] = True
    count = int(fits.sum())
    if count == len(calls):
        return TimedDump(refined, EXACT if len(events) else clock_of(table), exact_calls)
    every = plural(len(calls), "delegate call")
    misfit = f"{source} does not match {len(calls) - count} of {every} in the dump"
    clock = f"{EXACT} in {count} of {every}, else {clock_of(table)}"
    return TimedDump(refined, clock if count else clock_of(table), exact_calls, misfit)


def _put(column: Int64, rows: Int64, values: Int64) -> Int64:
    changed = column.copy()
    changed[rows] = values
    return changed
