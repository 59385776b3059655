"""The model's modules by time, or by arithmetic where times mean nothing: a flame graph and its table.

    {unit, categories: [[name, colour]...],
     views: [{label, place, sides: [name...], tree, note}...]}

A tree is [name, [value for each side], [share for each side], operators, index in categories, speedup,
[tree...]]; values and shares are as shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from model_profiling.analysis.attribution import RunGroup
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import OperatorPair
from model_profiling.analysis.series import OVERHEADS, SeriesAnalysis
from model_profiling.analysis.series_views import Module, module_tree
from model_profiling.config import names
from model_profiling.core.formatting import MISSING, milliseconds, percent
from model_profiling.program.category import Category
from model_profiling.report.breakdown import ShownTime, ShownTimes, View, break_down, views_of
from model_profiling.report.cells import change_cells
from model_profiling.report.charts import PARTS
from model_profiling.report.data import ReportData
from model_profiling.report.document import Block, Code, Explorer, Folded, Paragraph, Table, Text, make_table
from model_profiling.report.explore_operators import MODULES_BYTES, TIMELINE_BYTES, Data, Texts, fit

_TITLE = "By module"
_SHOWN = 15


@dataclass(frozen=True, slots=True)
class _Node:
    path: str
    name: str
    values: tuple[str, ...]
    shares: tuple[str, ...]
    weight: float
    operators: int
    category: str
    speedup: str
    children: tuple[_Node, ...]

    def every(self) -> Iterator[_Node]:
        yield self
        for child in self.children:
            yield from child.every()


def explore_modules(data: ReportData) -> list[Block]:
    """Return nothing if no module is known."""
    views = [
        view
        for view in views_of(data)
        if any(operator.source.module_path for side in view.sides for operator in side)
    ]
    if not views:
        return []
    trees = [_tree(view) for view in views]
    most = max(sum(1 for _ in tree.every()) for tree in trees)
    shown = fit(lambda limit: _data(views, trees, limit), most, MODULES_BYTES)
    instead = _instead(views[0], trees[0])
    return [Explorer("modules", _TITLE, shown, instead, names.ANALYSIS)]


def _unit(view: View) -> str:
    return "ms" if view.timed else "million operations"


def _sides(view: View) -> tuple[str, ...]:
    """One side is enough for work, which is the same on both."""
    return view.pairing.sides if view.pairing is not None and view.timed else ("",)


def _tree(view: View) -> _Node:
    if view.timed:
        pairs = view.pairing.operators if view.pairing else ()
        alone = {id(pair.candidate[0]): pair for pair in pairs if len(pair.candidate) == 1}
        return _by_time(module_tree(*view.sides), [break_down(series) for series in view.series], view, alone)
    whole = sum(operator.source.flops or 0 for operator in view.series[-1].operators)
    return _by_work(module_tree(view.series[-1].operators), whole)


def _by_time(
    module: Module, shown: Sequence[ShownTimes], view: View, alone: Mapping[int, OperatorPair]
) -> _Node:
    """`alone` are the pairs with one operator after, by its identity."""
    children = [_by_time(child, shown, view, alone) for child in module.children]
    times = [found.of(side) for found, side in zip(shown, module.operators, strict=True)]
    if not module.path:
        times = [found.end_to_end for found in shown]
        children += [_overhead(name, [found.parts[name] for found in shown]) for name in OVERHEADS]
    comparable = len(times) == 2 and view.pairing is not None and not view.pairing.not_comparable
    return _Node(
        module.path,
        module.name or "whole model",
        tuple(time.cells[0] for time in times),
        tuple(time.cells[1] for time in times),
        max(time.ms for time in times),
        len(module.operators[-1]),
        _main_category(module.operators[-1] or module.operators[0]),
        _speedup(module, times, view, alone) if comparable else MISSING,
        tuple(children),
    )


def _speedup(
    module: Module, times: Sequence[ShownTime], view: View, alone: Mapping[int, OperatorPair]
) -> str:
    """As in the table of operators if it holds one, else from its two times."""
    before, after = (sum(operator.typical_ms for operator in side) for side in module.operators)
    if not module.path:
        before, after = (series.e2e_ms for series in view.series)
    ratio, found = before / after if before and after else None, None
    ours, theirs = module.operators
    pair = alone.get(id(theirs[0])) if len(theirs) == 1 else None
    if pair is not None and [*map(id, pair.baseline)] == [*map(id, ours)]:
        ratio, found = pair.ratio, pair.speedup
    return change_cells(times[0].cells[0], times[1].cells[0], ratio, found)[1]


def _overhead(name: str, times: Sequence[ShownTime]) -> _Node:
    values, shares = zip(*(time.cells for time in times), strict=True)
    return _Node("", name, values, shares, max(time.ms for time in times), 0, name, MISSING, ())


def _by_work(module: Module, whole: int) -> _Node:
    (operators,) = module.operators
    flops = sum(operator.source.flops or 0 for operator in operators)
    return _Node(
        module.path,
        module.name or "whole model",
        (f"{flops / 1e6:.1f}",),
        (percent(flops / whole) if whole else MISSING,),
        flops,
        len(operators),
        _main_category(operators),
        MISSING,
        tuple(_by_work(child, whole) for child in module.children),
    )


def _main_category(operators: Sequence[Operator]) -> str:
    """The category of most of its time or, without times, of most of its operators."""
    spent = {
        category.value: (
            sum(operator.typical_ms for operator in operators if operator.category is category),
            sum(operator.category is category for operator in operators),
        )
        for category in Category
    }
    return max(spent, key=lambda name: spent[name])


def _data(views: Sequence[View], trees: Sequence[_Node], limit: int) -> Data:
    return {
        "unit": _unit(views[0]),
        "categories": [list(part) for part in PARTS.items()],
        "views": [
            {
                "label": view.label,
                "place": view.place,
                "sides": _sides(view),
                "tree": _json(tree, _smallest(tree, limit)),
                "note": _note(tree, _smallest(tree, limit)),
            }
            for view, tree in zip(views, trees, strict=True)
        ],
    }


def _smallest(tree: _Node, limit: int) -> float:
    """The weight of the smallest of the `limit` largest modules."""
    weights = sorted((node.weight for node in tree.every()), reverse=True)
    return weights[min(limit, len(weights)) - 1]


def _json(node: _Node, smallest: float) -> list[object]:
    children = [_json(child, smallest) for child in node.children if child.weight >= smallest]
    category = list(PARTS).index(node.category)
    return [node.name, node.values, node.shares, node.operators, category, node.speedup, children]


def _note(tree: _Node, smallest: float) -> str:
    weights = [node.weight for node in tree.every()]
    left = sum(weight < smallest for weight in weights)
    if not left:
        return ""
    return (
        f"To keep this page small, the {left:,} smallest of {len(weights):,} modules are not shown by "
        f"themselves; all are in {names.ANALYSIS}."
    )


def _instead(view: View, tree: _Node) -> tuple[Block, ...]:
    longest = sorted((node for node in tree.every() if node.path), key=lambda node: -node.weight)
    count = len(longest)
    lead = f"The {_SHOWN} largest of {count}, each" if count > _SHOWN else "Each"
    note = Paragraph(f"{f'{view.label}. ' if view.label else ''}{lead} with everything inside it.")
    return (Folded(_TITLE, (note, _table(view, longest[:_SHOWN]))),)


def _table(view: View, nodes: Sequence[_Node]) -> Table:
    sides = _sides(view)
    headers = [
        "module",
        "operators",
        *(header for side in sides for header in (f"{side} {_unit(view)}".strip(), "share")),
    ]
    if len(sides) == 2:
        headers.append("speedup")
    rows: list[tuple[Text, ...]] = []
    for node in nodes:
        times = [cell for pair in zip(node.values, node.shares, strict=True) for cell in pair]
        ratio = (node.speedup,) if len(sides) == 2 else ()
        rows.append((Code(node.path), str(node.operators), *times, *ratio))
    return make_table(headers, rows, numbers=range(1, len(headers)))


# One typical run of each series over time: execute holds calls, calls hold operators.
#     {texts, categories: [[name, colour]...],
#      views: [{label, file, run, lead, note,
#               events: [[name, category, depth, start ns, duration ns]...]}...]}
# Names are indices into texts; the category is -1 for what is not an operator. The run is of the first dump,
# so that its timeline file holds the same.

_CALLS = {
    "delegate": "delegate call", "operator": "operator call", "move": "move", "jump": "jump", "free": "free",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Event:
    name: str
    category: str
    depth: int
    start_ns: int
    duration_ns: int


@dataclass(frozen=True, slots=True)
class _Run:
    series: SeriesAnalysis
    number: int
    """As the timeline file counts it."""
    events: Sequence[_Event]
    """Ordered by start."""


def explore_timeline(data: ReportData) -> list[Block]:
    """Return nothing where times mean nothing."""
    if data.analysis is None or not data.times.are_shown:
        return []
    runs = [_typical(series) for series in data.analysis.series if series.times.are_shown]
    if not runs:
        return []
    most = max(len(run.events) for run in runs)
    shown = fit(lambda limit: _timeline_data(runs, limit), most, TIMELINE_BYTES)
    return [Explorer("timeline", "One run from start to end", shown, (), f"*{names.TIMELINE_CSV}")]


def _typical(series: SeriesAnalysis) -> _Run:
    """The run of the first dump that is nearest to the median of all."""
    dump = series.first
    number = int(np.argmin(np.abs(dump.attribution.e2e_ns() - series.latency.median * 1e6)))
    for group, owners in zip(dump.attribution.groups, dump.operator_of_event, strict=True):
        rows = np.flatnonzero(group.runs == number)
        if len(rows):
            found = [dump.operators[owner] if owner >= 0 else None for owner in owners.tolist()]
            return _Run(series, number, _events(group, int(rows[0]), found))
    raise AssertionError("every run is in a group")


def _events(group: RunGroup, row: int, operators: Sequence[Operator | None]) -> list[_Event]:
    start, duration = group.start_ns[row].tolist(), group.duration_ns[row].tolist()
    found = []
    for node in group.nodes:
        operator, name, depth, above = operators[node.column], node.name, 0, node.parent
        if node.level == "call":
            name = operator.name if operator else _CALLS.get(node.call_kind, node.name)
        while above >= 0:
            depth, above = depth + 1, group.nodes[above].parent
        category = operator.category.value if operator else ""
        found.append(_Event(name, category, depth, start[node.column] - start[-1], duration[node.column]))
    return sorted(found, key=lambda event: (event.start_ns, event.depth))


def _timeline_data(runs: Sequence[_Run], limit: int) -> Data:
    texts = Texts()
    return {
        "categories": [list(part) for part in PARTS.items()],
        "views": [_timeline_view(run, limit, texts) for run in runs],
        "texts": texts.all,
    }


def _timeline_view(run: _Run, limit: int, texts: Texts) -> dict[str, object]:
    by_length = sorted(run.events, key=lambda event: -event.duration_ns)
    kept = {id(event) for event in by_length[:limit]}
    whole, dump, parts = by_length[0].duration_ns, run.series.first, list(PARTS)
    file = f"{dump.path.parent.name}/{dump.stem}{names.TIMELINE_CSV}"
    note = ""
    if left := by_length[limit:]:
        share = sum(event.duration_ns for event in left if event.category) / (whole or 1)
        note = (
            f"To keep this page small, the {len(left):,} shortest of {len(run.events):,} events are not "
            f"drawn; their operators take {percent(share)} of the run. All are in {file}."
        )
    return {
        "label": run.series.name,
        "file": file,
        "run": run.number,
        "lead": (
            f"Run {run.number} of {file}, the most typical one in this file: "
            f"{milliseconds(whole / 1e6)} ms with the tracer on."
        ),
        "events": [
            [
                texts.number(event.name),
                parts.index(event.category) if event.category else -1,
                event.depth,
                event.start_ns,
                event.duration_ns,
            ]
            for event in run.events
            if id(event) in kept
        ],
        "note": note,
    }
