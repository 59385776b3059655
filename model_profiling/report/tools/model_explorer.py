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

from model_profiling.analysis.event_views import instruction_ms
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import OperatorPair
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.report.charts import PARTS
from model_profiling.report.data import PairReport, ReportData
from model_profiling.report.tools import NothingToShow, file_word, no_dumps, write_json
from model_profiling.statistics.speedup import Verdict

if TYPE_CHECKING:
    from model_profiling.program import Program

FOLDER = "model_explorer"
_HEAT = (
    {"stop": 0, "bgColor": "#fff5eb"},
    {"stop": 0.3, "bgColor": "#fdae6b"},
    {"stop": 1, "bgColor": "#d94801"},
)
_VERDICTS = {Verdict.FASTER: "#a1d99b", Verdict.SLOWER: "#fc9272"}
_UNSURE = "#d9d9d9"

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
    written = {home / f"{file}.json": content for file, content in _sets(data, explained)}
    for path, content in written.items():
        write_json(path, content)
    for old in home.glob("*.json"):
        if old not in written:
            old.unlink()
    return tuple(written)


def _sets(data: ReportData, explained: Sequence[SeriesAnalysis]) -> Iterator[tuple[str, Json]]:
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
            yield f"time_{file_word(str(series.series))}", _node_data(title, _times(series, node_of), _HEAT)
    for pair in data.pairs:
        if saved := _saved(pair, node_of):
            yield f"saved_{file_word(pair.label)}", _node_data(f"ms saved: {pair.label}", saved)
    # Preparation comes first, so that the work itself overwrites it on a node they share.
    by_importance = sorted(
        explained[0].operators, key=lambda each: (each.origin != "backend", each.times.typical_ns)
    )
    categories = {
        node_of(each): _value(each.category.value, PARTS[each.category.value]) for each in by_importance
    }
    yield "category", _node_data("category", categories)
    ran = {operator.method for operator in explained[0].operators}
    arithmetic = dict(_arithmetic(program, ran))
    yield "arithmetic", _node_data("million arithmetic operations", arithmetic, _HEAT)


def _times(series: SeriesAnalysis, node_of: Callable[[Operator], Node]) -> Values:
    """Instructions as a whole; inside delegates, each node with all operators that ran for it."""
    spent = {instruction_node(*place): ms for place, ms in instruction_ms(series).items() if place[0]}
    for operator in series.operators:
        if operator.source.node_index >= 0:
            spent[node_of(operator)] = spent.get(node_of(operator), 0.0) + operator.typical_ms
    return {node: _value(round(ms, 6)) for node, ms in spent.items()}


def _saved(pair: PairReport, node_of: Callable[[Operator], Node]) -> Values:
    saved: dict[Node, list[OperatorPair]] = {}
    for found in pair.side_by_side.operators if pair.side_by_side else ():
        if found.main.method:
            saved.setdefault(node_of(found.main), []).append(found)
    values = {}
    for node, pairs in saved.items():
        largest = max(pairs, key=lambda found: max(found.baseline_ms, found.candidate_ms))
        colour = _VERDICTS.get(largest.speedup.verdict, _UNSURE) if largest.speedup else _UNSURE
        values[node] = _value(round(-sum(found.delta_ms for found in pairs), 6), colour)
    return values


def _arithmetic(program: Program, ran: Container[str]) -> Iterator[tuple[Node, Json]]:
    for method in program.methods:
        for step in method.instructions if method.name in ran else ():
            call = instruction_node(method.name, step.chain_index, step.instruction_id)
            if step.flops:
                yield call, _value(step.flops / 1e6)
            for node in method.delegates[step.delegate].nodes if step.delegate >= 0 else ():
                if node.flops:
                    yield delegated_node(program.source, call, node.index), _value(node.flops / 1e6)


def _node_data(name: str, values: Values, gradient: Sequence[Json] = ()) -> Json:
    graphs: dict[str, dict[str, Json]] = {}
    for (graph, node), value in values.items():
        graphs.setdefault(graph, {})[node] = value
    return {
        graph: {"name": name, "results": results, **({"gradient": list(gradient)} if gradient else {})}
        for graph, results in graphs.items()
    }


def _value(value: float | str, colour: str = "") -> Json:
    """A number or a word on a node, and its colour if the number does not decide it."""
    return {"value": value, **({"bgColor": colour} if colour else {})}
