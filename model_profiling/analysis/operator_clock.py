"""Which clock tells an operator's time, and a dump with the most exact one there is.

XNNPACK tells whole microseconds, cut off and laid back to back. Where the runner kept the boundaries beside
the dump, operators get their true starts and durations, provided that both files say the same up to what was
cut off.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from model_profiling.analysis.attribution import DELEGATE_CALL, Bools
from model_profiling.errors import FormatError
from model_profiling.etdump import Boundaries, EventTable, boundaries_beside, read_boundaries, read_etdump
from model_profiling.flatbuffer import Int64
from model_profiling.reading import check_regular, is_there
from model_profiling.run.remarks import Remark
from model_profiling.wording import plural

_US = 1_000
EXACT_CALL = "true boundaries"
"""The kind of a delegate's call in a timeline, where its operators have their true times."""
MISFIT = "boundaries"
"""The kind of remark on boundaries that cannot be used."""

EXACT = "nanoseconds from the backend's clock calls"
CUT = "whole microseconds of XNNPACK"
OWN = "nanoseconds of ExecuTorch's runtime"
"""Where no delegate told of operators."""
TOLD = "as the delegate tells them"


@dataclass(frozen=True, slots=True)
class TimedDump:
    """A dump's events with the best times there are for them, and whose those are."""

    table: EventTable
    clock: str
    """The source of operator times, for people."""
    exact_calls: Bools | None = None
    """Of each event: whether it is a delegate's call whose operators have their true times; None: none is."""
    remarks: tuple[Remark, ...] = ()
    """Of no series: a dump's table does not know whose it is."""


def read_timed(dump: Path) -> TimedDump:
    """Read a dump, and what lies beside it."""
    table = read_etdump(dump)
    beside = boundaries_beside(dump)
    if not is_there(check_regular(beside)):
        return TimedDump(table, clock_of(table))
    try:
        return with_boundaries(table, read_boundaries(beside))
    except FormatError as problem:
        said = Remark(None, MISFIT, problem.problem, "operators have the dump's own times")
        return TimedDump(table, clock_of(table), remarks=(said,))


def clock_of(table: EventTable) -> str:
    """Whose times the operators of a dump have that has no boundaries."""
    told = table.duration_ns[table.is_delegated]
    if not len(told):
        return OWN
    return CUT if not (told % _US).any() else TOLD


def with_boundaries(table: EventTable, exact: Boundaries) -> TimedDump:
    """`table` with the true times of the operators in every delegate call that `exact` fits."""
    is_operator = table.is_delegated
    calls = np.flatnonzero((table.name == table.name_index(DELEGATE_CALL)) & ~is_operator)
    if len(calls) != exact.invocations:
        told = f"{Path(exact.source).name} tells of {plural(exact.invocations, 'invocation')} of delegates"
        seen = f"{told}, the dump of {plural(len(calls), 'call')}"
        return TimedDump(table, clock_of(table), remarks=(_unused(seen),))
    # An event is written when it ends: operators stand before the call they ran in.
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
    # Cut off at each look at the clock: never more than is told, and less than a microsecond each.
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
    seen = f"{Path(exact.source).name} does not fit {len(calls) - count} of {every} in the dump"
    clock = f"{EXACT} in {count} of {every}, else {clock_of(table)}"
    return TimedDump(refined, clock if count else clock_of(table), exact_calls, (_unused(seen),))


def _unused(seen: str) -> Remark:
    return Remark(None, MISFIT, seen, "operators there have the dump's own times")


def _put(column: Int64, rows: Int64, values: Int64) -> Int64:
    changed = column.copy()
    changed[rows] = values
    return changed
