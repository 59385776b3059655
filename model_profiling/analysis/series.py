"""All rounds of one experiment at one number of threads, taken together: what its time typically is.

One process may be unlucky as a whole, and one slow run decides a mean. So a time here is the median over the
runs of every round, and a share the median of what each run says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import numpy as np

from model_profiling.analysis.attribution import Int64
from model_profiling.statistics.latency import LatencySummary, summarize
from model_profiling.analysis.operators import Operator, time_statistics
from model_profiling.analysis.summary import Breakdown, DumpAnalysis

FRAMEWORK = "Framework overhead"
UNATTRIBUTED = "Unattributed"
OVERHEADS = (FRAMEWORK, UNATTRIBUTED)
_DID_NOT_RUN = np.iinfo(np.int64).min

_Key = tuple[str, int, int, int, int, str]


@dataclass(frozen=True, slots=True)
class Spent:
    """What something takes in a typical run."""

    ms: float
    share: float
    """Of end-to-end time, from 0 to 1."""


@dataclass(frozen=True, slots=True, eq=False)
class SeriesAnalysis:
    """The rounds of one series; what they have in common is told by the first."""

    rounds: tuple[DumpAnalysis, ...]
    breakdown: Breakdown
    """Of the runs of every round, one round after another."""
    latency: LatencySummary
    """Of end-to-end time with the tracer on, in milliseconds, over the runs of every round."""
    operators: tuple[Operator, ...]
    """Those of the first round, timed over the runs of every round."""
    operator_ns: Int64
    """A row for each operator, a column for each run; the least number there is where it did not run."""
    rows: Mapping[_Key, int]

    @property
    def first(self) -> DumpAnalysis:
        return self.rounds[0]

    @property
    def experiment(self) -> str:
        return self.first.experiment

    @property
    def threads(self) -> int | None:
        return self.first.threads

    @property
    def name(self) -> str:
        """The experiment, or its dump's name, and the threads."""
        known = self.experiment or self.first.stem
        return f"{known}, {self.threads} thread{'' if self.threads == 1 else 's'}" if self.threads else known

    @property
    def sme2(self) -> bool | None:
        return self.first.sme2

    @property
    def features(self) -> frozenset[str] | None:
        return self.first.features

    @property
    def timings_are_latency(self) -> bool:
        return self.first.timings_are_latency

    @property
    def model(self) -> Path | None:
        return self.first.model

    @property
    def runs(self) -> int:
        return self.breakdown.runs

    @property
    def parts(self) -> dict[str, Int64]:
        """What end-to-end time divides into, for each run; the parts add up to it."""
        return {
            **{category.value: part for category, part in self.breakdown.categories.items()},
            FRAMEWORK: self.breakdown.framework,
            UNATTRIBUTED: self.breakdown.unattributed,
        }

    def spent(self, part: Int64) -> Spent:
        """On something known in every run, such as a category."""
        return _typical(part, self.breakdown.e2e)

    def spent_by(self, operators: Sequence[Operator]) -> Spent:
        """By several operators together, in the runs that any of them is in."""
        times = self._times(operators)
        ran = (times != _DID_NOT_RUN).any(axis=0)
        together = np.where(times == _DID_NOT_RUN, 0, times).sum(axis=0)
        return _typical(together[ran], self.breakdown.e2e[ran])

    def part_rounds(self, part: Int64) -> list[list[float]]:
        """Milliseconds in every run, by round."""
        return [_ms(one) for one in np.split(part, self._edges)]

    def operator_rounds(self, operators: Sequence[Operator]) -> list[list[float]]:
        """What operators took together in the runs that have all of them, by round; empty where none has."""
        times = self._times(operators)
        found = []
        for one in np.split(times, self._edges, axis=1):
            whole = (one != _DID_NOT_RUN).all(axis=0) & bool(len(operators))
            found.append(_ms(one[:, whole].sum(axis=0)))
        return found

    def _times(self, operators: Sequence[Operator]) -> Int64:
        times: Int64 = self.operator_ns[[self.rows[_key(one)] for one in operators]]
        return times

    @property
    def _edges(self) -> list[int]:
        return list(accumulate(dump.runs for dump in self.rounds[:-1]))


def series_of(rounds: Sequence[DumpAnalysis]) -> SeriesAnalysis:
    """Take the dumps of one series together, in the order of their rounds."""
    first = rounds[0]
    rows = {_key(operator): row for row, operator in enumerate(first.operators)}
    placed = [
        range(len(first.operators)),
        *([rows.get(_key(one), -1) for one in dump.operators] for dump in rounds[1:]),
    ]
    times = np.concatenate(
        [
            _operator_ns(dump, row_of, len(first.operators))
            for dump, row_of in zip(rounds, placed, strict=True)
        ],
        axis=1,
    )
    breakdown, latency, operators = first.breakdown, first.latency, first.operators
    if len(rounds) > 1:
        breakdown = _together([dump.breakdown for dump in rounds])
        latency = summarize(breakdown.e2e / 1e6)
        statistics = time_statistics([[row[row != _DID_NOT_RUN]] for row in times])
        operators = tuple(
            replace(operator, times=one) for operator, one in zip(operators, statistics, strict=True)
        )
    return SeriesAnalysis(tuple(rounds), breakdown, latency, operators, times, rows)


def _key(operator: Operator) -> _Key:
    place = operator.chain_index, operator.instruction_id, operator.occurrence, operator.position
    return operator.method, *place, operator.type


def _operator_ns(dump: DumpAnalysis, row_of: Sequence[int], rows: int) -> Int64:
    """Self time in every run of a dump; operator `i` goes to row `row_of[i]`, or nowhere where that is -1."""
    times = np.full((rows, dump.runs), _DID_NOT_RUN, np.int64)
    for group, of_event in zip(dump.attribution.groups, dump.operator_of_event, strict=True):
        for column, owner in enumerate(of_event.tolist()):
            row = row_of[owner] if owner >= 0 else -1
            if row >= 0:
                times[row, group.runs] = group.self_ns[:, column]
    return times


def _together(breakdowns: Sequence[Breakdown]) -> Breakdown:
    return Breakdown(
        e2e=np.concatenate([one.e2e for one in breakdowns]),
        categories={
            category: np.concatenate([one.categories[category] for one in breakdowns])
            for category in breakdowns[0].categories
        },
        framework=np.concatenate([one.framework for one in breakdowns]),
        delegate_overhead=np.concatenate([one.delegate_overhead for one in breakdowns]),
        unattributed=np.concatenate([one.unattributed for one in breakdowns]),
    )


def _typical(part: Int64, whole: Int64) -> Spent:
    if not len(part):
        return Spent(0.0, 0.0)
    shares = np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)
    return Spent(float(np.median(part)) / 1e6, float(np.median(shares)))


def _ms(nanoseconds: Int64) -> list[float]:
    milliseconds: list[float] = (nanoseconds / 1e6).tolist()
    return milliseconds
