"""All rounds of one experiment at one number of threads, combined into its typical times.

A round is one process and its dump; where experiments took turns, its process in one launch. Times are means
over the middle half of all runs by end-to-end time: slow runs do not count, and parts add up to the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from model_profiling.analysis.operators import Breakdown, DumpAnalysis, Operator, OperatorTimes
from model_profiling.config.series import Diagnostic, Series
from model_profiling.core.flatbuffer import Int64
from model_profiling.core.formatting import listing, milliseconds, percent, plural
from model_profiling.etdump.reader import CUT
from model_profiling.program.graph_file import ProgramGraph
from model_profiling.runs.records import Latency
from model_profiling.runs.times import Times
from model_profiling.statistics.measure import ENOUGH, LatencySummary, summarize

FRAMEWORK = "Framework overhead"
UNATTRIBUTED = "Unattributed"
OVERHEADS = (FRAMEWORK, UNATTRIBUTED)
_DISTORTS = 0.15
"""Relative cost of tracing above which shares of the traced time say little about an untraced inference."""
_DID_NOT_RUN = np.iinfo(np.int64).min
_PERCENTS = (50, 10, 90)

Bools = NDArray[np.bool_]
Measured = Int64 | Sequence[Operator]
"""A part of the time of every run, such as a category; or operators, summed."""
Column = TypeVar("Column", Int64, Bools)
_Key = tuple[str, int, int, int, int, str]


@dataclass(frozen=True, slots=True)
class Spent:
    """Mean time of something in the typical runs."""

    ms: float
    share: float
    """Of end-to-end time, from 0 to 1."""


@dataclass(frozen=True, eq=False)
class SeriesAnalysis:
    """The rounds of one series; what they have in common comes from the first."""

    rounds: tuple[DumpAnalysis, ...]
    breakdown: Breakdown
    """Over the runs of all rounds, in round order."""
    latency: LatencySummary
    """End-to-end time in milliseconds with the tracer on, of the runs of all rounds that count."""
    typical: Int64
    """Indexes of the runs that times and shares come from: the middle half by end-to-end time."""
    operators: tuple[Operator, ...]
    operator_ns: Int64
    """A row for each operator, a column for each run; `_DID_NOT_RUN` where it did not run."""
    rows: Mapping[_Key, int]
    measured: Latency | None = None
    """The run's own measurement of this series, with and without the tracer."""
    label: str = ""
    """What tells it from the other series of its run; empty if it is alone."""
    quiet: Bools | None = None
    """The runs that nobody disturbed, if these alone count."""
    scale: float = 1.0
    """CPU time over wall time, if other programs interrupted too many runs: times are then multiplied by it,
    so that they are those of the program. They strike an operator as often as it is long, so shares stay
    right."""

    def __repr__(self) -> str:
        operators = plural(len(self.operators), "operator")
        time = f"{milliseconds(self.e2e_ms)} ms traced, " if self.times.are_shown else ""
        return f"<SeriesAnalysis {self.name}: {time}{plural(self.runs, 'run')}, {operators}>"

    @property
    def first(self) -> DumpAnalysis:
        return self.rounds[0]

    @property
    def series(self) -> Series:
        return self.first.series

    @property
    def name(self) -> str:
        return str(self.series)

    @property
    def sme2(self) -> bool | None:
        return self.first.dump.sme2

    @property
    def times(self) -> Times:
        return self.first.times

    @property
    def graph(self) -> ProgramGraph | None:
        return self.first.graph

    @property
    def runs(self) -> int:
        return self.breakdown.runs

    @property
    def took_turns(self) -> bool:
        """Whether it was measured in lockstep: its rounds are launches, and runs belong to turns."""
        return self.first.dump.turn_length > 0

    @property
    def unit(self) -> str:
        return "launch" if self.took_turns else "round"

    @property
    def taken_from(self) -> str:
        if len(self.typical) == self.runs:
            return f"mean of {plural(self.runs, 'run')}"
        known = self.runs if self.quiet is None else int(self.quiet.sum())
        which = "" if self.quiet is None or known == self.runs else " that nobody interrupted"
        scaled = ", scaled to CPU time because other programs interrupted them" if self.interrupted else ""
        return (
            f"mean of the middle {len(self.typical)} of {known} traced runs{which}, by end-to-end time, in "
            f"{plural(len(self.rounds), self.unit)}{scaled}"
        )

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """About its dumps, each once."""
        remarks = (remark for dump in self.rounds for remark in dump.warnings)
        return tuple(dict.fromkeys((*remarks, *self._unplaced())))

    def _unplaced(self) -> Iterator[Diagnostic]:
        inside = [operator for operator in self.operators if operator.delegated]
        unplaced = [operator for operator in inside if operator.source.unplaced]
        if not unplaced:
            return
        share = self.spent_by(unplaced).ms / (self.spent_by(inside).ms or 1.0)
        took = f", {percent(share)} of their time," if self.times.are_latencies else ""
        count = f"{len(unplaced)} of {plural(len(inside), 'operator')} in delegates{took}"
        types = listing(dict.fromkeys(operator.type for operator in unplaced))
        yield Diagnostic(
            self.series,
            "unplaced",
            f"{count} match no node of the program ({types})",
            "these operators are categorised by name, and have no shape, cost or place in the model",
        )

    @property
    def clock(self) -> str:
        """The source of operator times, for people; rounds may have several."""
        return "; ".join(dict.fromkeys(dump.clock for dump in self.rounds))

    @property
    def cut_to_microseconds(self) -> bool:
        return CUT in self.clock

    @property
    def parts(self) -> dict[str, Int64]:
        """The parts of end-to-end time, for each run; they add up to it."""
        return {
            **{category.value: part for category, part in self.breakdown.categories.items()},
            FRAMEWORK: self.breakdown.framework,
            UNATTRIBUTED: self.breakdown.unattributed,
        }

    @property
    def operator_counts(self) -> dict[str, int]:
        """How many operators each category has."""
        counts = Counter(operator.category for operator in self.operators)
        return {category.value: counts[category] for category in self.breakdown.categories}

    @cached_property
    def e2e_ms(self) -> float:
        return self.scale * float(self.breakdown.e2e[self.typical].mean()) / 1e6

    @property
    def interrupted(self) -> bool:
        return self.scale != 1.0

    def spent(self, part: Int64) -> Spent:
        """Typical time of a part known in every run, such as a category."""
        return self.spent_ms(self.scale * float(part[self.typical].mean()) / 1e6)

    def spent_by(self, operators: Sequence[Operator]) -> Spent:
        return self.spent_ms(sum(operator.typical_ms for operator in operators))

    @property
    def untraced_ms(self) -> float | None:
        """Time of an inference without the tracer; None if not measured."""
        whole = self.measured.end_to_end_ms if self.measured else None
        return whole.median if whole is not None and whole.median > 0 else None

    @property
    def tracer_cost(self) -> float | None:
        """How much longer an inference takes with the tracer on: 0.02 means 2%. None if not measured."""
        if self.untraced_ms is None:
            return None
        cost = self.measured.tracer_cost if self.measured else None
        return cost.share if cost else self.e2e_ms / self.untraced_ms - 1

    @property
    def distorted(self) -> bool:
        """Whether tracing takes so long that shares of the traced time do not hold without the tracer. A cost
        that may be zero is noise."""
        cost = self.measured.tracer_cost if self.measured else None
        noise = cost is not None and cost.low is not None and cost.low <= 0
        return not noise and (self.tracer_cost or 0.0) > _DISTORTS

    @cached_property
    def tracing(self) -> Spent:
        """The tracer's part of the traced time: in framework and unattributed time, never in operators."""
        seen = self.spent(self.breakdown.tracing).ms
        # From runs that took turns: a slow moment of the traced runs alone is not due to the tracer.
        more = (self.untraced_ms or 0.0) * (self.tracer_cost or 0.0)
        return self.spent_ms(min(max(seen, more), self._overheads_ms))

    def gain_pct(self, ms: float, overhead_ms: float = 0.0) -> float:
        """Upper bound in percent on how much saving `ms` of operators and `overhead_ms` around them shortens
        an inference (without the tracer, if measured). The tracer's part of the overheads cannot be saved."""
        real = 1 - self.tracing.ms / self._overheads_ms if self._overheads_ms > 0 else 0.0
        saved, whole = ms + overhead_ms * real, self._bounded_ms
        return round(min(100.0, 100 * saved / whole), 2) if whole > 0 else 0.0

    @property
    def _bounded_ms(self) -> float:
        if self.untraced_ms is None:
            return self.e2e_ms
        # Noise may make traced runs, which the savings are measured in, the faster ones.
        return min(self.e2e_ms, max(self.untraced_ms, self.e2e_ms - self.tracing.ms))

    @property
    def bounds_are_of(self) -> str:
        """The time that `gain_pct` is a share of, for people."""
        if self.untraced_ms is None or self._bounded_ms == self.e2e_ms:
            return f"{milliseconds(self.e2e_ms)} ms with the tracer on"
        if (shown := milliseconds(self._bounded_ms)) != milliseconds(self.untraced_ms):
            return f"{shown} ms with the tracer on, its own part left out"
        return f"{milliseconds(self.untraced_ms)} ms without the tracer"

    @cached_property
    def _overheads_ms(self) -> float:
        return max(0.0, self.spent(self.breakdown.framework + self.breakdown.unattributed).ms)

    def spent_ms(self, ms: float) -> Spent:
        return Spent(ms, ms / self.e2e_ms if self.e2e_ms > 0 else 0.0)

    def place(self, operator: Operator) -> int:
        """Row of an operator in `operator_ns`; runs may differ in what they call at one position."""
        return self.rows[_key(operator)]

    def by_round(self, measured: Measured) -> list[list[float]]:
        """Milliseconds in every run that has `measured`, by round."""
        return [_ms(values) for values, _ in self._values(measured)]

    def by_turn(self, measured: Measured) -> dict[str, list[list[float]]]:
        """The same by launch and turn; a run that lacks an operator is missing from its turn."""
        return {
            dump.dump.met: _by_turn(values, dump.turns[whole])
            for dump, (values, whole) in zip(self.rounds, self._values(measured), strict=True)
        }

    def _values(self, measured: Measured) -> Iterator[tuple[Int64, Bools]]:
        """For each round: the times of the runs that have all of `measured`, and the mask of those runs."""
        counts = np.ones(self.runs, np.bool_) if self.quiet is None else self.quiet
        if isinstance(measured, np.ndarray):
            parts = zip(np.split(measured, self._edges), np.split(counts, self._edges), strict=True)
            yield from ((part[counted], counted) for part, counted in parts)
            return
        times: Int64 = self.operator_ns[[self.place(operator) for operator in measured]]
        ran = (times != _DID_NOT_RUN).all(axis=0) & bool(len(measured)) & counts
        for values, whole in zip(
            np.split(times, self._edges, axis=1), np.split(ran, self._edges), strict=True
        ):
            yield values[:, whole].sum(axis=0), whole

    @property
    def _edges(self) -> list[int]:
        return list(accumulate(dump.runs for dump in self.rounds[:-1]))


def series_of(
    rounds: Sequence[DumpAnalysis], measured: Latency | None = None, label: str = ""
) -> SeriesAnalysis:
    """Combine the dumps of one series, given in the order of their rounds."""
    known: dict[_Key, Operator] = {}
    for dump in rounds:
        for operator in dump.operators:
            known.setdefault(_key(operator), operator)
    rows = {key: row for row, key in enumerate(known)}
    times = np.concatenate([_operator_ns(dump, rows) for dump in rounds], axis=1)
    breakdown = rounds[0].breakdown if len(rounds) == 1 else _joined([dump.breakdown for dump in rounds])
    quiet, scale = _joined_columns([dump.quiet for dump in rounds]), 1.0
    if quiet is not None and quiet.sum() < min(ENOUGH, len(quiet)):
        quiet = None  # too few runs that nobody disturbed: all count
    chosen = np.flatnonzero(quiet) if quiet is not None else np.arange(breakdown.runs)
    order = chosen[np.argsort(breakdown.e2e[chosen], kind="stable")]
    typical = np.sort(order[len(order) // 4 : len(order) - len(order) // 4])
    cpu = _joined_columns([dump.cpu_ns for dump in rounds])
    if quiet is None and cpu is not None:
        scale = min(1.0, float(cpu[typical].sum() / breakdown.e2e[typical].sum()))
    means = np.where(times == _DID_NOT_RUN, 0, times)[:, typical].mean(axis=1)
    figures = scale * np.vstack((means, _percentiles(times[:, chosen])))
    ran = (times[:, chosen] != _DID_NOT_RUN).sum(axis=1)
    operators = tuple(
        replace(operator, times=OperatorTimes(count, *own))
        for operator, count, own in zip(known.values(), ran.tolist(), figures.T.tolist(), strict=True)
    )
    latency = summarize((cpu if cpu is not None and scale < 1 else breakdown.e2e)[chosen] / 1e6)
    return SeriesAnalysis(
        tuple(rounds), breakdown, latency, typical, operators, times, rows, measured, label, quiet, scale
    )


def _percentiles(times: Int64) -> NDArray[np.float64]:
    """Median, 10th and 90th percentile of each row, over the runs it has; 0 for a row without any."""
    found = np.zeros((3, len(times)))
    complete = (times != _DID_NOT_RUN).all(axis=1)
    if complete.any():
        found[:, complete] = np.percentile(times[complete], _PERCENTS, axis=1)
    for row in np.flatnonzero(~complete):
        if len(ran := times[row][times[row] != _DID_NOT_RUN]):
            found[:, row] = np.percentile(ran, _PERCENTS)
    return found


def _joined_columns(columns: Sequence[Column | None]) -> Column | None:
    """One value for each run of all rounds; None if a round does not have them."""
    known = [column for column in columns if column is not None]
    return np.concatenate(known) if len(known) == len(columns) else None


def _key(operator: Operator) -> _Key:
    place = operator.chain_index, operator.instruction_id, operator.occurrence, operator.position
    return operator.method, *place, operator.type


def _operator_ns(dump: DumpAnalysis, rows: Mapping[_Key, int]) -> Int64:
    times = np.full((len(rows), dump.runs), _DID_NOT_RUN, np.int64)
    row_of = [rows[_key(operator)] for operator in dump.operators]
    for group, of_event in zip(dump.attribution.groups, dump.operator_of_event, strict=True):
        for column, owner in enumerate(of_event.tolist()):
            if owner >= 0:
                times[row_of[owner], group.runs] = group.self_ns[:, column]
    return times


def _joined(breakdowns: Sequence[Breakdown]) -> Breakdown:
    names = ("e2e", "framework", "delegate_overhead", "unattributed", "tracing")
    parts = {name: np.concatenate([getattr(one, name) for one in breakdowns]) for name in names}
    categories = {
        category: np.concatenate([one.categories[category] for one in breakdowns])
        for category in breakdowns[0].categories
    }
    return Breakdown(categories=categories, **parts)


def _by_turn(nanoseconds: Int64, turns: Int64) -> list[list[float]]:
    """Runs grouped by turn; a turn without runs is empty, so that cycles stay aligned."""
    count = int(turns[-1]) + 1 if len(turns) else 0
    return [_ms(values) for values in np.split(nanoseconds, np.searchsorted(turns, np.arange(1, count)))]


def _ms(nanoseconds: Int64) -> list[float]:
    milliseconds: list[float] = (nanoseconds / 1e6).tolist()
    return milliseconds
