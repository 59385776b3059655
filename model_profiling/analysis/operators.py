"""The operators of a dump: identity, source and times over all runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from model_profiling.analysis.attribution import DELEGATE_CALL, Attribution, Bools, Node
from model_profiling.analysis.sources import UNKNOWN_SOURCE, OperatorSource, Origin, ProgramView
from model_profiling.config.series import Diagnostic
from model_profiling.core.errors import FormatError
from model_profiling.core.flatbuffer import Int64
from model_profiling.core.formatting import plural
from model_profiling.core.safe_read import check_regular, is_there
from model_profiling.etdump import Boundaries, EventTable, boundaries_beside, read_boundaries, read_etdump
from model_profiling.program.category import Category, operator_type
from model_profiling.program.delegates import describe
from model_profiling.program.records import OperatorKey, dtype_in_words

LOWERING, THE_MODEL = "inserted by lowering", "the model itself"
"""Places of operators that no module of the model made."""


@dataclass(frozen=True, slots=True)
class OperatorTimes:
    """Self time of an operator in all launches of a series, in nanoseconds."""

    runs: int = 0
    """How many of the runs that count it appears in; the distribution is of these."""
    typical_ns: float = 0.0
    """Mean over the typical runs, so that operators add up to end-to-end time."""
    median_ns: float = 0.0
    p10_ns: float = 0.0
    p90_ns: float = 0.0


_NO_TIMES = OperatorTimes()


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of a model; (method, call, position) identifies it within a dump."""

    method: str
    """Empty if no program says which method ran."""
    call: int
    position: int
    chain_index: int
    instruction_id: int
    occurrence: int
    name: str
    """As the runtime or the delegate reports it, with its counter: `Transpose (ND, X32) #2`."""
    type: str
    category: Category
    kind: str
    family: str
    precision: str
    """`fp32`, `fp16`, `bf16`, `int8`, `int8 dynamic` (scaled at run time), with the bits of its weights if
    they differ; `fp32 to int8` for a conversion. Empty if neither label nor tensors tell."""
    known: bool
    """Whether the table of categories has the name."""
    packed: bool
    delegated: bool
    backend: str
    """As the program names it; `delegate` if unknown; `portable` outside delegates."""
    source: OperatorSource
    times: OperatorTimes = _NO_TIMES
    """Only the operators of a series have times; those of a single dump have none."""

    def __repr__(self) -> str:
        return f"<Operator {self.name}: {self.category.value}, {self.place}>"

    @property
    def identity(self) -> tuple[str, int, int]:
        return self.method, self.call, self.position

    @property
    def key(self) -> OperatorKey:
        call = self.method, self.chain_index, self.instruction_id, self.occurrence
        return OperatorKey(*call, self.source.node_index)

    @property
    def origin(self) -> Origin:
        return self.source.origin

    @property
    def ran_wider(self) -> bool:
        """Whether the program has it in fp16 but it ran in fp32."""
        return self.source.dtype == "fp16" and self.precision == "fp32"

    @property
    def typical_ms(self) -> float:
        return self.times.typical_ns / 1e6

    @property
    def gflops(self) -> float | None:
        if not self.source.flops or self.times.median_ns <= 0:
            return None
        return self.source.flops / self.times.median_ns

    @property
    def gbytes_per_s(self) -> float | None:
        """Achieved gigabytes per second, each tensor counted once, by the median time."""
        if not self.source.bytes_moved or self.times.median_ns <= 0:
            return None
        return self.source.bytes_moved / self.times.median_ns

    @property
    def place(self) -> str:
        """Place in the model, for people: the module path, or what else is known."""
        if self.source.origin == "lowering":
            return LOWERING
        known = self.source.module_path or (THE_MODEL if self.source.place.node else "")
        return known or f"call {self.call}, position {self.position}"


_Key = tuple[str, int, int, int, int, str]


def list_operators(
    attribution: Attribution, view: ProgramView
) -> tuple[tuple[Operator, ...], tuple[Int64, ...]]:
    """The operators of a dump in the order they ran; and for each run group, for each of its columns: the
    index of its operator, or -1."""
    explained: dict[_Key, tuple[str, Node, OperatorSource]] = {}
    for group in attribution.groups:
        method, sources = view.method_of(group), view.sources(group)
        for node in group.operators:
            source = sources.get(node.column, UNKNOWN_SOURCE)
            explained.setdefault(_key(method, node), (method, node, source))
    ordered = sorted(explained, key=lambda key: (key[0], explained[key][1].call, explained[key][1].position))
    places = {key: index for index, key in enumerate(ordered)}
    of_event = []
    for group in attribution.groups:
        method = view.method_of(group)
        owner = [places.get(_key(method, node), -1) for node in group.nodes]
        of_event.append(np.array(owner, np.int64))
    return tuple(_operator(*explained[key]) for key in ordered), tuple(of_event)


def _key(method: str, node: Node) -> _Key:
    return method, node.chain_index, node.instruction_id, node.occurrence, node.position, node.name


def _operator(method: str, node: Node, source: OperatorSource) -> Operator:
    name = source.operator or node.name if node.level == "call" else node.name
    known = source.described or describe(name, source.backend)
    category, kind = source.stated or (known.category, known.kind)
    return Operator(
        method=method,
        call=node.call,
        position=node.position,
        chain_index=node.chain_index,
        instruction_id=node.instruction_id,
        occurrence=node.occurrence,
        name=name,
        type=operator_type(name),
        category=category,
        kind=kind,
        family=known.family,
        precision=known.precision or dtype_in_words(source.ran_in or source.dtype),
        known=known.known,
        packed=known.packed,
        delegated=node.delegated,
        backend=source.backend or ("delegate" if node.delegated else "portable"),
        source=source,
    )


# Clocks of operator times. XNNPACK reports truncated whole microseconds, laid back to back. If the runner
# stored boundaries that agree with the dump up to the truncation, operators get their true times.

_US = 1_000
EXACT_CALL = "true boundaries"
"""Kind of a delegate call in a timeline whose operators have their true times."""
MISFIT = "boundaries"
"""Kind of remark on boundaries that cannot be used."""

EXACT = "nanoseconds, from the backend's clock calls"
CUT = "whole microseconds of XNNPACK"
OWN = "nanoseconds of ExecuTorch's runtime"
"""Used when no delegate reported operators."""
TOLD = "as the delegate reports them"


@dataclass(frozen=True, slots=True)
class TimedDump:
    """A dump's events with the most exact times available, and the source of those times."""

    table: EventTable
    clock: str
    exact_calls: Bools | None = None
    """For each event, whether it is a delegate call whose operators have true times; None if none is."""
    remarks: tuple[Diagnostic, ...] = ()
    """Without a series: a dump's table does not know which one it belongs to."""


def read_timed(dump: Path) -> TimedDump:
    """Read a dump, with the boundaries beside it if there are any."""
    table = read_etdump(dump)
    beside = boundaries_beside(dump)
    if not is_there(check_regular(beside)):
        return TimedDump(table, clock_of(table))
    try:
        return with_boundaries(table, read_boundaries(beside))
    except FormatError as problem:
        said = Diagnostic(None, MISFIT, problem.problem, "operators have the times of the dump")
        return TimedDump(table, clock_of(table), remarks=(said,))


def clock_of(table: EventTable) -> str:
    """Source of the operators' times in a dump without boundaries."""
    told = table.duration_ns[table.is_delegated]
    if not len(told):
        return OWN
    return CUT if not (told % _US).any() else TOLD


def with_boundaries(table: EventTable, exact: Boundaries) -> TimedDump:
    """`table` with true operator times in every delegate call that `exact` fits."""
    is_operator = table.is_delegated
    calls = np.flatnonzero((table.name == table.name_index(DELEGATE_CALL)) & ~is_operator)
    source = Path(exact.source).name
    if len(calls) != exact.invocations:
        told = f"{source} has {plural(exact.invocations, 'delegate call')}"
        seen = f"{told}, the dump has {plural(len(calls), 'call')}"
        return TimedDump(table, clock_of(table), remarks=(_unused(seen),))
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
    seen = f"{source} does not match {len(calls) - count} of {every} in the dump"
    clock = f"{EXACT} in {count} of {every}, else {clock_of(table)}"
    return TimedDump(refined, clock if count else clock_of(table), exact_calls, (_unused(seen),))


def _unused(seen: str) -> Diagnostic:
    return Diagnostic(None, MISFIT, seen, "operators of those calls have the times of the dump")


def _put(column: Int64, rows: Int64, values: Int64) -> Int64:
    changed = column.copy()
    changed[rows] = values
    return changed
