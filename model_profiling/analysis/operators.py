"""Analysis of one dump: its operators, and its end-to-end time divided into categories and overheads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model_profiling.analysis.attribution import Attribution, Node, Share, attribute
from model_profiling.analysis.sources import UNKNOWN_SOURCE, OperatorSource, Origin, ProgramView
from model_profiling.config.series import Diagnostic, Series
from model_profiling.core.flatbuffer import Int64
from model_profiling.etdump import EventTable
from model_profiling.etdump.reader import TimedDump, clock_of
from model_profiling.program.category import Category, operator_type
from model_profiling.program.delegates import describe
from model_profiling.program.graph_file import ProgramGraph
from model_profiling.program.records import OperatorKey, dtype_in_words
from model_profiling.runs.run import Dump
from model_profiling.runs.times import Times

MISFIT = "boundaries"
"""Kind of remark on boundaries that cannot be used."""
_UNUSED = "operators of those calls have the times of the dump"
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
    def line(self) -> str:
        """`/folder/model.py:12`; empty if unknown."""
        return self.source.place.source_line

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


# A whole dump.


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Where the time of each run went; every array has one entry per run, in nanoseconds.

    categories + framework + unattributed = e2e, exactly, in every run. `delegate_overhead` is the part of
    `unattributed` inside delegate calls that reported operators; the rest is delegates that reported none.
    Where start and end of operators are known, the time around them is in `framework`, and `tracing` is the
    part of that spent on the tracer: an inference without the tracer does not have it.
    """

    e2e: Int64
    categories: Mapping[Category, Int64]
    framework: Int64
    delegate_overhead: Int64
    unattributed: Int64
    tracing: Int64

    @property
    def runs(self) -> int:
        return len(self.e2e)

    @property
    def closes(self) -> bool:
        """Whether the parts add up to end-to-end time in every run; anything else is a defect."""
        parts = sum(self.categories.values(), start=self.framework + self.unattributed)
        return bool((parts == self.e2e).all())


@dataclass(frozen=True, slots=True, repr=False)
class DumpAnalysis:
    dump: Dump
    graph: ProgramGraph | None
    attribution: Attribution
    breakdown: Breakdown
    operators: tuple[Operator, ...]
    """Without times: these are of all launches together, in `SeriesAnalysis`."""
    operator_of_event: tuple[Int64, ...]
    """For each run group of `attribution`, for each event: index into `operators`, or -1."""
    delegate_calls: int
    """In one run of the most common structure."""
    operator_calls: int
    clock: str
    misfits: tuple[str, ...]
    """Proof that this program did not make this dump; also among the warnings."""
    warnings: tuple[Diagnostic, ...]
    cpu_ns: Int64 | None = None
    """CPU time of each run with one thread; None if unknown."""
    quiet: NDArray[np.bool_] | None = None
    """Which runs nobody disturbed; None if unknown."""

    @property
    def path(self) -> Path:
        return self.dump.path

    @property
    def stem(self) -> str:
        return self.dump.stem

    @property
    def series(self) -> Series:
        return self.dump.series

    @property
    def times(self) -> Times:
        return self.dump.times

    @property
    def runs(self) -> int:
        return self.breakdown.runs

    @property
    def turns(self) -> Int64:
        """Turn of its launch in which each run was made; all 0 where the process did not take turns."""
        after_warmup = self.attribution.numbers - self.dump.warmup_runs
        return after_warmup // self.dump.turn_length if self.dump.turn_length else 0 * after_warmup


def analyse_dump(
    table: EventTable | TimedDump,
    dump: Dump,
    graph: ProgramGraph | None = None,
    view: ProgramView | None = None,
    *,
    proven: bool = False,
) -> DumpAnalysis:
    """Attribute, classify and summarise one dump; `graph`, or else `view`, explains its operators."""
    timed = table if isinstance(table, TimedDump) else TimedDump(table, clock_of(table))
    attribution = attribute(timed.table, dump.warmup_runs, dump.turn_length, timed.exact_calls)
    if view is None:
        view = ProgramView()
        if graph:
            view = ProgramView(graph.program, graph.record, proven=proven, method=dump.method)
    operators, of_event = list_operators(attribution, view)
    breakdown = _break_down(attribution, operators, of_event)
    calls = [node for node in attribution.groups[0].nodes if node.level == "call"]
    return DumpAnalysis(
        dump=dump,
        graph=graph,
        attribution=attribution,
        breakdown=breakdown,
        operators=operators,
        operator_of_event=of_event,
        delegate_calls=sum(node.call_kind == "delegate" for node in calls),
        operator_calls=sum(node.call_kind == "operator" for node in calls),
        clock=timed.clock,
        misfits=tuple(view.misfits),
        warnings=(
            *([Diagnostic(dump.series, MISFIT, timed.misfit, _UNUSED)] if timed.misfit else ()),
            *(replace(remark, series=dump.series) for remark in attribution.warnings),
            *(Diagnostic(dump.series, "misfit", text) for text in (*view.misfits, *view.doubts)),
        ),
    )


def _break_down(
    attribution: Attribution, operators: Sequence[Operator], of_event: Sequence[Int64]
) -> Breakdown:
    categories = {category: np.zeros(attribution.run_count, np.int64) for category in Category}
    for group, owners in zip(attribution.groups, of_event, strict=True):
        columns: dict[Category, list[int]] = {}
        for column, owner in enumerate(owners.tolist()):
            if owner >= 0:
                columns.setdefault(operators[owner].category, []).append(column)
        for category, members in columns.items():
            categories[category][group.runs] = group.self_ns[:, members].sum(axis=1)
    return Breakdown(
        e2e=attribution.e2e_ns(),
        categories=categories,
        framework=attribution.total_ns(Share.FRAMEWORK),
        delegate_overhead=attribution.total_ns(Share.DELEGATE),
        unattributed=attribution.total_ns(Share.DELEGATE, Share.OPAQUE),
        tracing=attribution.of_runs(lambda group: group.tracing_ns),
    )
