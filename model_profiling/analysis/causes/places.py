"""The operators of a series that do the work of a program's matrix operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.program.category import MATRIX
from model_profiling.run.evidence import MatrixOperator

Place = tuple[str, int, int, int]


def by_place(series: SeriesAnalysis) -> Mapping[Place, Sequence[Operator]]:
    """Matrix operators by method, instruction and node; outside delegates the node is -1."""
    found: dict[Place, list[Operator]] = {}
    for operator in series.operators:
        if operator.category in MATRIX and (operator.source.node_index >= 0 or not operator.delegated):
            call = operator.method, operator.chain_index, operator.instruction_id
            found.setdefault((*call, operator.source.node_index), []).append(operator)
    return found


def place_of(operator: MatrixOperator) -> Place:
    return operator.method, operator.chain_index, operator.instruction_id, operator.node
