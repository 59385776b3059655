"""Matches operators that are the same: in a series, in what was proven of a program, in the program itself.

A graph node is the same under any name. Without a graph, the n-th matrix operators of a call are the same if
both calls have equally many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.program.category import MATRIX, Miss
from model_profiling.program.matrix_work import MatrixWork
from model_profiling.program.records import OperatorKey
from model_profiling.run.evidence import MatrixOperator

NOT_KNOWN = "not known"
NOT_DELEGATED = Miss("portable", "not delegated: it runs on ExecuTorch's own kernels")
_NOT_SEEN = Miss(NOT_KNOWN, "no event of it was found in the run that proves the others")


def matrix_operators(series: SeriesAnalysis) -> list[Operator]:
    return [operator for operator in series.operators if operator.category in MATRIX]


def matrix_operators_by_key(series: SeriesAnalysis) -> Mapping[OperatorKey, Sequence[Operator]]:
    """Matrix operators with a known place in the program, by that place."""
    found: dict[OperatorKey, list[Operator]] = {}
    for operator in matrix_operators(series):
        if operator.source.node_index >= 0 or not operator.delegated:
            found.setdefault(operator.key.in_program, []).append(operator)
    return found


def orders_in_calls(keys: Iterable[OperatorKey]) -> list[tuple[Hashable, int, int]]:
    """For each matrix operator, in order: its call, its number in the call, and how many the call has."""
    calls = [key.call for key in keys]
    sizes, numbers = Counter(calls), Counter[Hashable]()
    found: list[tuple[Hashable, int, int]] = []
    for call in calls:
        found.append((call, numbers[call], sizes[call]))
        numbers[call] += 1
    return found


def _place(proven: MatrixOperator, key: OperatorKey) -> Hashable:
    return key if key.node >= 0 else (key.call, proven.order, proven.of)


@dataclass(frozen=True, slots=True)
class Match:
    """An operator proven on SME2, and the operators that do its work in the measured series."""

    proven: MatrixOperator
    measured: tuple[Operator, ...]


def match_proven(
    series: SeriesAnalysis, operators: Sequence[MatrixOperator]
) -> tuple[list[Match], tuple[str, ...]]:
    """Proven operators with their counterparts in `series`, and the names of those without one.

    A node that ran as more or fewer operators than here counts only if all of them were proven.
    """
    ours: dict[Hashable, list[Operator]] = {}
    measured = matrix_operators(series)
    orders = orders_in_calls(operator.key for operator in measured)
    for one, order in zip(measured, orders, strict=True):
        ours.setdefault(one.key, []).append(one)
        ours.setdefault(order, []).append(one)
    theirs: dict[Hashable, list[MatrixOperator]] = {}
    for operator in operators:
        theirs.setdefault(_place(operator, operator.key), []).append(operator)
    matched: list[Match] = []
    unmatched: list[str] = []
    for place, members in theirs.items():
        found = ours.get(place, [])
        if len(found) == len(members):
            pairs = zip(members, found, strict=True)
            matched += [Match(operator, (one,)) for operator, one in pairs if operator.on_sme]
        elif found and all(operator.on_sme for operator in members):
            matched.append(Match(members[0], tuple(found)))
        else:
            unmatched += [operator.name for operator in members if operator.on_sme]
    return matched, tuple(unmatched)


def proven_work(work: Sequence[MatrixWork], ran: Sequence[MatrixOperator]) -> Iterator[MatrixOperator]:
    """Each matrix operator of the program with its proof. One that ran as several is on SME if all of them
    are; the first that is not says why."""
    by_place: dict[Hashable, list[MatrixOperator]] = {}
    for operator in ran:
        by_place.setdefault(_place(operator, operator.key.in_program), []).append(operator)
    for each, order in zip(work, orders_in_calls(each.key for each in work), strict=True):
        if found := by_place.get(each.key) or by_place.get(order):
            said = next((operator for operator in found if not operator.on_sme), found[0])
            yield replace(said, flops=each.flops, category=each.category, node=each.node_index)
        else:
            yield unproven_work(each)


def unproven_work(work: MatrixWork) -> MatrixOperator:
    miss = _NOT_SEEN if work.node else NOT_DELEGATED
    return MatrixOperator(
        **work.key._asdict(),
        order=0,
        of=0,
        name=work.name,
        category=work.category,
        kind=work.kind,
        backend=work.backend,
        flops=work.flops,
        rows=work.rows,
        on_sme=False,
        why_not=miss.words,
        module_path=work.place.module_path,
        source=work.place.source_line,
        cause=miss.cause,
    )
