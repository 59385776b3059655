"""Analysis of one dump: its operators, and its end-to-end time divided into categories and overheads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model_profiling.analysis.attribution import Attribution, Share, attribute
from model_profiling.analysis.operators import Operator, TimedDump, clock_of, list_operators
from model_profiling.analysis.sources import ProgramView
from model_profiling.config.series import Diagnostic, Series
from model_profiling.core.flatbuffer import Int64
from model_profiling.core.formatting import plural
from model_profiling.etdump import EventTable
from model_profiling.program.category import Category
from model_profiling.program.graph_file import ProgramGraph
from model_profiling.runs.run import Dump
from model_profiling.runs.times import Times


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


@dataclass(frozen=True, slots=True)
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

    def __repr__(self) -> str:
        operators = plural(len(self.operators), "operator")
        return f"<DumpAnalysis {self.path.name}: {plural(self.runs, 'run')}, {operators}>"

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
            *(replace(remark, series=dump.series) for remark in timed.remarks),
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
