"""Files for other tools. A writer gets a report's data and a folder; it returns the files that it wrote, or
raises NothingToShow."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling._version import __version__
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.analysis.series_views import Slice, instruction_ms, slice_runs
from model_profiling.core import files
from model_profiling.core.errors import InputError
from model_profiling.core.formatting import plural
from model_profiling.facts import OPERATOR_FACTS, OperatorRow
from model_profiling.report.data import ReportData
from model_profiling.runs import Times

if TYPE_CHECKING:
    from model_profiling.program.records import Program

Json = dict[str, object]


class NothingToShow(InputError):
    """A run has nothing for a tool; says what is missing, and what to do."""


def write_for(tool: str, data: ReportData, folder: Path) -> tuple[Path, ...]:
    """Write a tool's files into `folder`."""
    if data.analysis is None:
        raise NothingToShow(f"{data.run.path} holds no dumps", "measure with the event tracer on")
    timed = [series for series in data.analysis.series if series.times.are_shown]
    if not timed:
        problem = f"the times of {data.run.path} mean nothing ({data.times.origin})"
        raise NothingToShow(problem, "measure on hardware")
    return _WRITERS[tool](data, timed, folder)


def _write_json(path: Path, content: Mapping[str, object], indent: int | None = 1) -> None:
    """Write plain ASCII, so that any reader can read any name."""
    files.write_text(path, json.dumps(content, indent=indent, allow_nan=False) + "\n")


def file_word(text: str) -> str:
    return re.sub(r"[^\w.-]+", "_", text, flags=re.ASCII).strip("._")[:100] or "unnamed"


# A trace in Chrome's JSON format, which Perfetto and other viewers open: a process for each experiment, a
# thread for each run, nested slices with what is known about every operator. Times are those of the dumps.

TRACE = "trace.json"
_MOST_SLICES = 20_000
"""A larger trace is slow to make and to view; then only some runs are chosen, and the trace says how many."""


def write_trace(data: ReportData, series: Sequence[SeriesAnalysis], folder: Path) -> tuple[Path, ...]:
    slices = sum(len(found.first.attribution.groups[0].nodes) * found.runs for found in series)
    share = min(1.0, _MOST_SLICES / max(1, slices))
    events: list[Json] = []
    for process, found in enumerate(series, start=1):
        events += _process(found, process, share, data.sme2_of(found))
    manifest = data.run.manifest
    about = {
        "title": data.title,
        "model": data.model,
        "cpu": data.cpu,
        "program SHA-256": manifest.model_sha256 if manifest else "",
        "times": f"from {data.times.origin}",
        "runs shown": "every run that counts" if share == 1.0 else f"one in {1 / share:.1f}, evenly chosen",
        "made by": f"sme2prof {__version__}",
    }
    content = {"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}
    _write_json(folder / TRACE, content, indent=None)
    return (folder / TRACE,)


def _process(series: SeriesAnalysis, process: int, share: float, sme2: Mapping[int, str]) -> Iterator[Json]:
    most = max(1, int(series.runs * share))
    runs = f"{most} of {plural(series.runs, 'run')}" if most < series.runs else plural(series.runs, "run")
    threads = plural(series.series.threads, "thread") if series.series.threads else ""
    widths = "times as recorded on an unknown machine" if series.times is Times.UNKNOWN else ""
    # Viewers show the process number after the name: brackets keep the two apart.
    details = "; ".join(filter(None, (threads, widths)))
    name = f"{series.series.experiment} ({details})" if details else series.series.experiment
    yield _named("process_name", process, 0, {"name": name})
    yield _named("process_labels", process, 0, {"labels": runs})
    about_node: dict[int, Json] = {}
    groups = (group for dump in series.rounds for group in dump.attribution.groups)
    zero = min(int(group.start_ns[:, -1].min()) for group in groups)
    for thread, (dump, run, slices) in enumerate(slice_runs(series, most), start=1):
        # Padded, because Perfetto's page sorts tracks by name.
        number = f"{series.unit} {dump.dump.round + 1:02}, run {run + 1:03}"
        yield _named("thread_name", process, thread, {"name": number})
        for slice_ in slices:
            begin, end = slice_.begin_ns, slice_.end_ns
            known = about_node.get(id(slice_.node))
            if known is None:
                known = about_node[id(slice_.node)] = _about_node(series, slice_, sme2)
            event: Json = {**known, "ph": "X", "pid": process, "tid": thread}
            event |= {"ts": (begin - zero) / 1e3, "dur": (end - begin) / 1e3}
            own = {"self time ns": slice_.self_ns}
            if slice_.duration_ns != end - begin:
                own["recorded duration ns"] = slice_.duration_ns
            event["args"] = {**known["args"], **own}  # type: ignore[dict-item]
            yield event


def _named(what: str, process: int, thread: int, name: Json) -> Json:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": name}


def _about_node(series: SeriesAnalysis, slice_: Slice, sme2: Mapping[int, str]) -> Json:
    """What is the same in every run."""
    operator, node = slice_.operator, slice_.node
    facts: Json = {}
    if operator is not None:
        facts = operator_arguments(operator, sme2[series.place(operator)])
    elif node.level == "method":
        facts = {"experiment": series.name, "times": f"from {series.times.origin}"}
    if node.call >= 0:
        facts["call"] = node.call
    return {"name": node.name, "cat": operator.category.value if operator else node.level, "args": facts}


def operator_arguments(operator: Operator, sme2: str = "") -> Json:
    row = OperatorRow(operator, 0.0, 0.0, sme2)
    facts = {fact.name.replace("_", " "): fact.cell(row) for fact in OPERATOR_FACTS if not fact.timed}
    return {name: value for name, value in facts.items() if value is not None and value != ""}


# Node data for Model Explorer: colours and numbers on the graph that its adapter makes of the same program.
# `pte-adapter-model-explorer` names the graph of a method after the method and its nodes
# `<method>_<chain>_<instruction>`. Each instruction that calls a delegate has its own graph,
# `<file>.pte::<node>`, whose nodes are numbered as in the delegate's payload.

NODE_DATA = "model_explorer"
_HEAT = (
    {"stop": 0, "bgColor": "#fff5eb"},
    {"stop": 0.3, "bgColor": "#fdae6b"},
    {"stop": 1, "bgColor": "#d94801"},
)

ExplorerNode = tuple[str, str]
"""A graph of the adapter, and a node in it."""


def write_node_data(data: ReportData, every: Sequence[SeriesAnalysis], folder: Path) -> tuple[Path, ...]:
    explained = [found for found in every if found.graph and found.operators and found.operators[0].method]
    if not explained or explained[0].graph is None:
        raise NothingToShow(
            f"no program (.pte) explains the dumps of {data.run.path}", "put it beside them and analyse again"
        )
    program = explained[0].graph.program
    written = []
    for series in explained:
        graphs: dict[str, dict[str, Json]] = {}
        for (graph, node), ms in _node_times(series, program).items():
            graphs.setdefault(graph, {})[node] = {"value": round(ms, 6)}
        shown = {
            graph: {"name": f"ms: {series.name}", "results": results, "gradient": list(_HEAT)}
            for graph, results in graphs.items()
        }
        written.append(folder / NODE_DATA / f"time_{file_word(str(series.series))}.json")
        _write_json(written[-1], shown)
    return tuple(written)


def _node_times(series: SeriesAnalysis, program: Program) -> Mapping[ExplorerNode, float]:
    """Instructions as a whole; inside delegates, each node with all operators that ran for it."""
    spent = {
        (method, f"{method}_{chain}_{instruction}"): ms
        for (method, chain, instruction), ms in instruction_ms(series).items()
        if method
    }
    for operator in series.operators:
        if operator.source.node_index >= 0:
            call = f"{operator.method}_{operator.chain_index}_{operator.instruction_id}"
            node = f"{Path(program.source).name}::{call}", str(operator.source.node_index)
            spent[node] = spent.get(node, 0.0) + operator.typical_ms
    return spent


_Writer = Callable[[ReportData, Sequence[SeriesAnalysis], Path], tuple[Path, ...]]
_WRITERS: dict[str, _Writer] = {
    "perfetto": write_trace,
    "model-explorer": write_node_data,
}
TOOLS = {
    "perfetto": "drop it on ui.perfetto.dev: it is read in the browser and sent nowhere",
    "model-explorer": (
        "model-explorer PROGRAM.pte --extensions=pte_adapter_model_explorer --node_data_paths=FILE,FILE"
    ),
}
"""Each tool, and how to open its files."""
