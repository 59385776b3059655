"""Node data for Model Explorer: colours and numbers on the graph that its adapter makes of the same program.

`pte-adapter-model-explorer` names the graph of a method after the method and its nodes
`<method>_<chain>_<instruction>`. Each instruction that calls a delegate has its own graph,
`<file>.pte::<node>`, whose nodes are numbered as in the delegate's payload. A test checks both against the
adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.analysis.series_views import instruction_ms
from model_profiling.report.data import ReportData
from model_profiling.report.tools import NothingToShow, file_word, no_dumps, write_json

if TYPE_CHECKING:
    from model_profiling.program import Program

FOLDER = "model_explorer"
_HEAT = (
    {"stop": 0, "bgColor": "#fff5eb"},
    {"stop": 0.3, "bgColor": "#fdae6b"},
    {"stop": 1, "bgColor": "#d94801"},
)

Json = dict[str, object]
Node = tuple[str, str]
"""A graph of the adapter, and a node in it."""
Values = Mapping[Node, Json]


def instruction_node(method: str, chain: int, instruction: int) -> Node:
    return method, f"{method}_{chain}_{instruction}"


def delegated_node(program: str, call: Node, index: int) -> Node:
    return f"{Path(program).name}::{call[1]}", str(index)


def write(data: ReportData, folder: Path) -> tuple[Path, ...]:
    if data.analysis is None:
        raise no_dumps(data)
    explained = [
        found
        for found in data.analysis.series
        if found.graph and found.operators and found.operators[0].method
    ]
    if not explained:
        raise NothingToShow(
            f"no program (.pte) explains the dumps of {data.run.path}", "put it beside them and analyse again"
        )
    home = folder / FOLDER
    written = {home / f"{file}.json": content for file, content in _sets(explained)}
    for path, content in written.items():
        write_json(path, content)
    for old in home.glob("*.json"):
        if old not in written:
            old.unlink()
    return tuple(written)


def _sets(explained: Sequence[SeriesAnalysis]) -> Iterator[tuple[str, Json]]:
    graph = explained[0].graph
    assert graph is not None
    program = graph.program

    def node_of(operator: Operator) -> Node:
        call = instruction_node(operator.method, operator.chain_index, operator.instruction_id)
        index = operator.source.node_index
        return delegated_node(program.source, call, index) if index >= 0 else call

    for series in explained:
        if series.times.are_shown:
            title = f"ms: {series.name}"
            yield f"time_{file_word(str(series.series))}", _node_data(title, _times(series, node_of))
    ran = {operator.method for operator in explained[0].operators}
    arithmetic = dict(_arithmetic(program, ran))
    yield "arithmetic", _node_data("million arithmetic operations", arithmetic)


def _times(series: SeriesAnalysis, node_of: Callable[[Operator], Node]) -> Values:
    """Instructions as a whole; inside delegates, each node with all operators that ran for it."""
    spent = {instruction_node(*place): ms for place, ms in instruction_ms(series).items() if place[0]}
    for operator in series.operators:
        if operator.source.node_index >= 0:
            spent[node_of(operator)] = spent.get(node_of(operator), 0.0) + operator.typical_ms
    return {node: {"value": round(ms, 6)} for node, ms in spent.items()}


def _arithmetic(program: Program, ran: Container[str]) -> Iterator[tuple[Node, Json]]:
    for method in program.methods:
        for step in method.instructions if method.name in ran else ():
            call = instruction_node(method.name, step.chain_index, step.instruction_id)
            if step.flops:
                yield call, {"value": step.flops / 1e6}
            for node in method.delegates[step.delegate].nodes if step.delegate >= 0 else ():
                if node.flops:
                    yield delegated_node(program.source, call, node.index), {"value": node.flops / 1e6}


def _node_data(name: str, values: Values) -> Json:
    graphs: dict[str, dict[str, Json]] = {}
    for (graph, node), value in values.items():
        graphs.setdefault(graph, {})[node] = value
    return {
        graph: {"name": name, "results": results, "gradient": list(_HEAT)}
        for graph, results in graphs.items()
    }
