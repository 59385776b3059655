"""Node data for Model Explorer: colours and numbers on the graph that its adapter makes of the same program.

`pte-adapter-model-explorer` calls the graph of a method by the method's name and its nodes
`<method>_<chain>_<instruction>`. Each instruction that calls a delegate has a graph of its own, called
`<file>.pte::<node>`, whose nodes are numbered as in the delegate's payload. A test holds both against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from model_profiling.analysis.event_views import instruction_ms
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import OperatorPair
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.core import files
from model_profiling.report.charts.drawing import PARTS
from model_profiling.report.data import PairReport, ReportData
from model_profiling.report.tools import NothingToShow, file_word, no_dumps, write_json
from model_profiling.statistics.speedup import Verdict

FOLDER = "model_explorer"
_HEAT = (
    {"stop": 0, "bgColor": "#fff5eb"},
    {"stop": 0.3, "bgColor": "#fdae6b"},
    {"stop": 1, "bgColor": "#d94801"},
)
_VERDICTS = {Verdict.FASTER: "#a1d99b", Verdict.SLOWER: "#fc9272"}
_UNSURE = "#d9d9d9"

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class NodeId:
    """A node of the adapter's graphs."""

    graph: str
    node: str


@dataclass(frozen=True, slots=True)
class Value:
    """A number or a word on a node, and its colour where the number does not decide it."""

    value: float | str
    colour: str = ""

    def json(self) -> Json:
        return {"value": self.value, **({"bgColor": self.colour} if self.colour else {})}


class NodeNames:
    """How the adapter names what the kit knows by its place in the program."""

    def __init__(self, program: str) -> None:
        self._file = Path(program).name

    def instruction(self, method: str, chain: int, instruction: int) -> NodeId:
        return NodeId(method, f"{method}_{chain}_{instruction}")

    def delegated(self, method: str, chain: int, instruction: int, index: int) -> NodeId:
        call = self.instruction(method, chain, instruction)
        return NodeId(f"{self._file}::{call.node}", str(index))

    def of(self, operator: Operator) -> NodeId:
        place = operator.method, operator.chain_index, operator.instruction_id
        index = operator.source.node_index
        return self.delegated(*place, index) if index >= 0 else self.instruction(*place)


def write(data: ReportData, folder: Path) -> tuple[Path, ...]:
    if data.analysis is None:
        raise no_dumps(data)
    series = [found for found in data.analysis.series if found.graph]
    explained = [found for found in series if found.operators and found.operators[0].method]
    if not explained:
        raise NothingToShow(
            f"no program (.pte) explains the dumps of {data.run.path}", "put it beside them and analyse again"
        )
    assert explained[0].graph is not None
    names = NodeNames(explained[0].graph.program.source)
    home = files.real_folder(folder, folder / FOLDER)
    written = {}
    for file, content in _sets(data, explained, names):
        written[home / f"{file}.json"] = content
    for path, content in written.items():
        write_json(path, content)
    for old in home.glob("*.json"):
        if old not in written:
            old.unlink()
    return tuple(written)


def _sets(
    data: ReportData, explained: Iterable[SeriesAnalysis], names: NodeNames
) -> Iterator[tuple[str, Json]]:
    """Every set of node data with the name of its file."""
    explained = tuple(explained)
    for series in explained:
        if series.times.are_shown:
            found = _times(series, names)
            title = f"ms: {series.name}"
            yield f"time_{file_word(str(series.series))}", _node_data(title, found, _HEAT)
    for pair in data.pairs:
        if saved := _saved(pair, names):
            yield f"saved_{file_word(pair.label)}", _node_data(f"ms saved: {pair.label}", saved)
    categories = {
        names.of(operator): Value(operator.category.value, PARTS[operator.category.value])
        for operator in _by_importance(explained[0].operators)
    }
    yield "category", _node_data("category", categories)
    yield "arithmetic", _node_data("million arithmetic operations", _arithmetic(explained[0], names), _HEAT)


def _times(series: SeriesAnalysis, names: NodeNames) -> dict[NodeId, Value]:
    """Instructions whole; inside delegates each node with all operators that ran for it."""
    spent = {names.instruction(*place): ms for place, ms in instruction_ms(series).items() if place[0]}
    for operator in series.operators:
        if operator.source.node_index >= 0:
            spent[names.of(operator)] = spent.get(names.of(operator), 0.0) + operator.typical_ms
    return {node: Value(_ms(ms)) for node, ms in spent.items()}


def _saved(pair: PairReport, names: NodeNames) -> dict[NodeId, Value]:
    found = pair.side_by_side
    if found is None:
        return {}
    saved: dict[NodeId, list[OperatorPair]] = {}
    for operators in found.operators:
        if operators.main.method:
            saved.setdefault(names.of(operators.main), []).append(operators)
    return {node: _saved_value(pairs) for node, pairs in saved.items()}


def _saved_value(pairs: list[OperatorPair]) -> Value:
    largest = max(pairs, key=lambda found: max(found.baseline_ms, found.candidate_ms))
    verdict = largest.speedup.verdict if largest.speedup else None
    colour = _VERDICTS.get(verdict, _UNSURE) if verdict else _UNSURE
    return Value(_ms(-sum(found.delta_ms for found in pairs)), colour)


def _by_importance(operators: Iterable[Operator]) -> list[Operator]:
    """Preparation before the work itself, so that the work names the node they share."""
    return sorted(operators, key=lambda operator: (operator.origin != "backend", operator.times.typical_ns))


def _arithmetic(series: SeriesAnalysis, names: NodeNames) -> dict[NodeId, Value]:
    assert series.graph is not None
    found = {}
    ran = {operator.method for operator in series.operators}
    for method in series.graph.program.methods:
        for step in method.instructions if method.name in ran else ():
            place = method.name, step.chain_index, step.instruction_id
            if step.flops:
                found[names.instruction(*place)] = Value(step.flops / 1e6)
            if step.delegate >= 0:
                for node in method.delegates[step.delegate].nodes:
                    if node.flops:
                        found[names.delegated(*place, node.index)] = Value(node.flops / 1e6)
    return found


def _node_data(name: str, values: Mapping[NodeId, Value], gradient: Iterable[Json] = ()) -> Json:
    graphs: dict[str, dict[str, Json]] = {}
    for node, value in values.items():
        graphs.setdefault(node.graph, {})[node.node] = value.json()
    shades = list(gradient)
    return {
        graph: {"name": name, "results": results, **({"gradient": shades} if shades else {})}
        for graph, results in graphs.items()
    }


def _ms(value: float) -> float:
    return round(value, 6)
