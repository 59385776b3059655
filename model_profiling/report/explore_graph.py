"""The model as a graph: boxes are operators, or modules if there are too many; lines carry results down.

    {texts, timed, unit, lead, note, sme2: words, kinds: [word...], wide, rows,
     boxes: [[label, where, module, row, x, index in kinds, [name, value...]]...],
     lines: [[from box, [to box...], [x in each row that it passes...]]...],
     views: [{label, values: [[operators, amount, share]...], note}...]}

Labels, places, modules, names, values, operators, amounts and shares are indices into texts.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean as mean

from model_profiling.analysis.coverage import NO_MATRICES, Coverage
from model_profiling.analysis.matching import REASON_NOT_KNOWN
from model_profiling.analysis.operators import LOWERING, THE_MODEL, Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.analysis.series_views import UNKNOWN, ProgramStep, program_steps
from model_profiling.config import names
from model_profiling.core.formatting import MISSING, percent, plural
from model_profiling.facts import shape_text
from model_profiling.report.breakdown import break_down
from model_profiling.report.cells import work_cells
from model_profiling.report.data import ReportData
from model_profiling.report.document import Block, Explorer, Paragraph
from model_profiling.report.explore_operators import GRAPH_BYTES, Data, Texts, fit
from model_profiling.report.operator_sections import headline_series
from model_profiling.runs.evidence import MatrixOperator

BOXES = 300
"""The most boxes: nobody follows more with their eyes."""
_FEW = 10
"""A level of modules that has fewer than a tenth of the boxes that fit shows too little."""
_DEEPEST = 40
_NAMED = 3
_NO_EVENT = "part of another operator, or not at all: it has no event of its own"
_KINDS = _USED, _IN_PART, _NOT_USED, _NOT_TESTED, _NO_MATRIX = (
    "used", "used in part", "not used", "not tested", "no matrix work",
)  # fmt: skip


def explore_graph(data: ReportData) -> list[Block]:
    """Return nothing if no program says how its data flows."""
    first = headline_series(data)
    steps = program_steps(first) if first else ()
    if first is None or first.graph is None or data.analysis is None or not steps:
        return []
    timed, program = first.times.are_shown, first.graph.program
    alike = (each for each in data.analysis.series if each.graph and each.graph.program == program)
    others = [each for each in alike if each is not first and each.times.are_shown]
    # Arithmetic is the same in every series.
    views = [_View(each, steps) for each in (first, *(others if timed else ()))]
    shown = fit(lambda limit: _data(steps, views, data.outlook.coverage, limit), BOXES, GRAPH_BYTES)
    what = "time" if timed else "arithmetic"
    instead = Paragraph(f"The HTML report draws the model as a graph, coloured by {what} and by SME2.")
    return [Explorer("graph", "", shown, (instead,), names.ANALYSIS)]


class _View:
    """What a series spent in each step: time or, if times mean nothing, arithmetic."""

    def __init__(self, series: SeriesAnalysis, steps: Sequence[ProgramStep]) -> None:
        self.timed = series.times.are_shown
        self._series = series
        ran: dict[object, list[Operator]] = defaultdict(list)
        for operator in series.operators:
            ran[operator.key.in_program].append(operator)
        self._ran = [ran[step.key] for step in steps]
        self._flops = sum(operator.source.flops or 0 for operator in series.operators)

    def json(self, groups: Sequence[Group], texts: Texts) -> dict[str, object]:
        inside = [[each for step in group.steps for each in self._ran[step]] for group in groups]
        note = ""
        if self.timed:
            share = break_down(self._series).of(itertools.chain(*inside)).cells[1]
            note = (
                f"The boxes cover {share} of the time with the tracer on; the rest is overhead, and "
                "operators that the program does not explain."
            )
        values = [texts.numbers((_named(each), *self._cells(each))) for each in inside]
        return {"label": self._series.name, "values": values, "note": note}

    def _cells(self, operators: Sequence[Operator]) -> tuple[str, str]:
        if not operators:
            return MISSING, MISSING
        if self.timed:
            return break_down(self._series).of(operators).cells
        flops = sum(operator.source.flops or 0 for operator in operators)
        return work_cells(operators)[0], percent(flops / self._flops) if self._flops else MISSING


def _named(operators: Sequence[Operator]) -> str:
    if len(operators) <= _NAMED:
        return ", ".join(operator.name for operator in operators) or _NO_EVENT
    return f"{len(operators)}: {_most(operator.type for operator in operators)}"


def _most(words: Iterable[str]) -> str:
    """`12 x Convolution, 4 x Add and others`; a single word without its count."""
    counts = Counter(words)
    most = counts.most_common(_NAMED)
    some = ", ".join(f"{count} x {word}" if counts.total() > 1 else word for word, count in most)
    return f"{some} and others" if len(counts) > _NAMED else some


def _data(steps: Sequence[ProgramStep], views: Sequence[_View], coverage: Coverage, limit: int) -> Data:
    groups, texts = group_steps(steps, limit), Texts()
    box_of = {step: box for box, group in enumerate(groups) for step in group.steps}
    edges = {(box_of[read], box_of[step]) for step, each in enumerate(steps) for read in each.reads}
    layout = lay_out(len(groups), [(above, below) for above, below in edges if above != below])
    known = {each.key.in_program: each for each in coverage.operators}
    boxes = []
    for group, row, x in zip(groups, layout.rows, layout.x, strict=True):
        inside = [steps[step] for step in group.steps]
        matrix = [known[step.key] for step in inside if step.key in known]
        kind, facts = _facts(inside, matrix, coverage)
        told = [word for fact in facts.items() if fact[1] for word in fact]
        words = texts.numbers((group.label, group.where, group.module))
        boxes.append([*words, row, x, _KINDS.index(kind), texts.numbers(told)])
    what = "Each box is an operator."
    if len(groups) < len(steps):
        what = f"Each box is a module: {len(steps):,} operators are too many to draw one by one."
    return {
        "timed": views[0].timed,
        "unit": "ms" if views[0].timed else "million operations",
        "lead": f"{what} Data flows from top to bottom.",
        "note": f"{plural(layout.left, 'long line')} not drawn, to keep this page small."
        if layout.left
        else "",
        "sme2": "SME2, in emulation" if coverage.emulated else "SME2, when it is on",
        "kinds": _KINDS,
        "wide": layout.wide,
        "rows": max(layout.rows) + 1,
        "boxes": boxes,
        "lines": layout.lines,
        "views": [view.json(groups, texts) for view in views],
        "texts": texts.all,
    }


def _facts(
    steps: Sequence[ProgramStep], matrix: Sequence[MatrixOperator], coverage: Coverage
) -> tuple[str, dict[str, str]]:
    kind, sme2 = _sme2(matrix, coverage, unseen=any(step.opaque for step in steps))
    if len(steps) > 1:
        return kind, {"SME2": sme2}
    (step,) = steps
    of_class = step.place.module_class.rpartition(".")[2]
    inputs, output = (
        ", ".join(f"{shape_text(each.shape, ' x ')} {each.dtype}" for each in side)
        for side in (step.inputs, step.outputs)
    )
    layer = f"{step.where} ({of_class})" if of_class else step.where
    return kind, {"layer": layer, "inputs": inputs, "output": output, "SME2": sme2}


def _sme2(matrix: Sequence[MatrixOperator], coverage: Coverage, *, unseen: bool) -> tuple[str, str]:
    """One of `_KINDS`, and the answer with its reason."""
    if not matrix:
        return (
            (_NOT_TESTED, "not known: this delegate cannot be read") if unseen else (_NO_MATRIX, NO_MATRICES)
        )
    if not coverage.tested:
        return _NOT_TESTED, f"not tested: {coverage.reason}"
    used = sum(each.on_sme for each in matrix)
    why = _most(each.why_not or REASON_NOT_KNOWN for each in matrix if not each.on_sme)
    if used == len(matrix):
        return _USED, coverage.yes
    return (
        (_IN_PART, f"{coverage.yes}: {used} of {len(matrix)}; no: {why}")
        if used
        else (_NOT_USED, f"no: {why}")
    )


# Boxes of neighbours in running order: so no box waits for its own result.


@dataclass(frozen=True, slots=True)
class Group:
    label: str
    where: str
    module: str
    """Empty if its steps are of several modules, or of none."""
    steps: Sequence[int]


def group_steps(steps: Sequence[ProgramStep], limit: int) -> list[Group]:
    """One group for each step or, if that makes more than `limit`, for modules as deep as possible. If one
    level of modules has too few and the next too many, several modules of the next make a group."""
    alone = [
        Group(step.name, step.where, step.place.module_path, [place]) for place, step in enumerate(steps)
    ]
    if len(alone) <= limit:
        return alone
    # What lowering inserted has no module: it goes with what ran before it.
    parts, path = list[tuple[str, ...]](), ""
    for step in steps:
        path = path if step.where in (LOWERING, UNKNOWN) else step.place.module_path
        parts.append(tuple(path.split(".", _DEEPEST)))
    levels = [[*_by_module(parts, depth)] for depth in range(1, max(map(len, parts)) + 1)]
    fits = next((level for level in reversed(levels) if len(level) <= limit), [])
    if len(fits) * _FEW >= limit:
        return fits
    more = next((level for level in levels if len(level) > limit), alone)
    size = -(-len(more) // limit)
    return [_merged(more[at : at + size]) for at in range(0, len(more), size)]


def _by_module(parts: Sequence[tuple[str, ...]], depth: int) -> Iterator[Group]:
    for head, members in itertools.groupby(range(len(parts)), lambda step: parts[step][:depth]):
        path = ".".join(head)
        steps = [*members]
        yield Group(path or THE_MODEL, plural(len(steps), "operator"), path, steps)


def _merged(groups: Sequence[Group]) -> Group:
    first, last = groups[0], groups[-1]
    if first is last:
        return first
    steps = [step for group in groups for step in group.steps]
    return Group(f"{first.label} to {last.label}", plural(len(steps), "operator"), "", steps)


# A layered layout: rows by the longest way from the top; in each row, boxes and the lines that pass them in
# an order that crosses little, each as near as possible to what it is connected with.

_BOX, _LINE, _APART = 196, 8, 14
_HEAVY = 24.0
"""How much more a box resists being moved aside than a line that passes it."""
_SWEEPS = 8
_PASSES = 6_000
"""The most places where a line passes a row; the longest lines beyond that are not drawn."""

Edge = tuple[int, int]
"""From a box to one with a higher number."""
_Spot = tuple[int, int]
"""A box and its row, or a box and a row that the line from it passes."""
_Near = defaultdict[_Spot, list[_Spot]]


@dataclass(frozen=True, slots=True)
class Layout:
    rows: Sequence[int]
    x: Sequence[int]
    """The left edge of each box."""
    lines: Sequence[tuple[int, list[int], list[int]]]
    """A box, those that take its result, and where the line passes each row between them."""
    wide: int
    left: int
    """How many edges are not drawn."""


def lay_out(count: int, edges: Iterable[Edge]) -> Layout:
    edges = sorted(edges)
    rows = _rows(count, edges)
    reach, takers, passes = list(rows), defaultdict[int, list[int]](list), 0
    for box, taker in sorted(edges, key=lambda edge: rows[edge[1]] - rows[edge[0]]):
        further = max(0, rows[taker] - 1 - reach[box])
        if passes + further <= _PASSES:
            passes += further
            reach[box] += further
            takers[box].append(taker)
    layers: list[list[_Spot]] = [[] for _ in range(max(rows) + 1)]
    above, below = _Near(list), _Near(list)
    for box, row in enumerate(rows):
        for passed in range(row, reach[box] + 1):
            layers[passed].append((box, passed))
        links = [((box, passed), (box, passed + 1)) for passed in range(row, reach[box])]
        links += [((box, rows[taker] - 1), (taker, rows[taker])) for taker in takers[box]]
        for one, other in links:
            below[one].append(other)
            above[other].append(one)
    wide = {spot: _BOX if rows[spot[0]] == spot[1] else _LINE for layer in layers for spot in layer}
    _order(layers, above, below)
    x = _centres(layers, above, below, wide)
    start = min(x[spot] - wide[spot] / 2 for spot in x)
    return Layout(
        rows,
        [round(x[box, row] - _BOX / 2 - start) for box, row in enumerate(rows)],
        [
            (box, found, [round(x[box, row] - start) for row in range(rows[box] + 1, reach[box] + 1)])
            for box, found in takers.items()
            if found
        ],
        round(max(x[spot] + wide[spot] / 2 for spot in x) - start),
        len(edges) - sum(map(len, takers.values())),
    )


def _rows(count: int, edges: Sequence[Edge]) -> list[int]:
    """The longest way from the top; what takes nothing stands right above what takes its result."""
    rows, takers = [0] * count, defaultdict[int, list[int]](list)
    for box, taker in edges:
        rows[taker] = max(rows[taker], rows[box] + 1)
        takers[box].append(taker)
    for box in takers.keys() - {taker for _, taker in edges}:
        rows[box] = min(rows[taker] for taker in takers[box]) - 1
    return rows


def _sweeps(layers: list[list[_Spot]], above: _Near, below: _Near) -> Iterator[tuple[list[_Spot], _Near]]:
    """Every layer with its neighbours above, then every layer with those below, and so on."""
    for sweep in range(_SWEEPS):
        yield from (
            ((layer, below) for layer in layers[::-1]) if sweep % 2 else ((layer, above) for layer in layers)
        )


def _order(layers: list[list[_Spot]], above: _Near, below: _Near) -> None:
    """Sort each layer by the middle of its neighbours."""
    place = {spot: float(number) for layer in layers for number, spot in enumerate(layer)}
    for layer, near in _sweeps(layers, above, below):
        middle = {spot: mean(place[each] for each in near[spot] or [spot]) for spot in layer}
        layer.sort(key=middle.__getitem__)
        place.update((spot, float(number)) for number, spot in enumerate(layer))


def _centres(
    layers: list[list[_Spot]], above: _Near, below: _Near, wide: Mapping[_Spot, int]
) -> dict[_Spot, float]:
    x = {spot: 0.0 for layer in layers for spot in layer}
    # A box stays where much is computed for it; what stands beside it moves, lines before boxes.
    weight = {spot: _HEAVY * (1 + spot[1]) if wide[spot] == _BOX and above[spot] else 1.0 for spot in wide}
    for layer, near in _sweeps(layers, above, below):
        wanted = []
        for spot in layer:
            found = near[spot] or [spot]
            wanted.append(sum(weight[each] * x[each] for each in found) / sum(weight[each] for each in found))
        weights, widths = [weight[spot] for spot in layer], [wide[spot] for spot in layer]
        x.update(zip(layer, _apart(wanted, weights, widths), strict=True))
    return x


def _apart(wanted: Sequence[float], weights: Sequence[float], wide: Sequence[int]) -> list[float]:
    """The places nearest to `wanted` at which nothing overlaps: those that would are moved together."""
    offsets = [0.0, *itertools.accumulate((a + b) / 2 + _APART for a, b in itertools.pairwise(wide))]
    blocks: list[tuple[float, float, int]] = []
    for want, weight, offset in zip(wanted, weights, offsets, strict=True):
        total, mass, size = weight * (want - offset), weight, 1
        while blocks and blocks[-1][0] * mass >= total * blocks[-1][1]:
            more, heavy, several = blocks.pop()
            total, mass, size = total + more, mass + heavy, size + several
        blocks.append((total, mass, size))
    bases = (total / mass for total, mass, size in blocks for _ in range(size))
    return [base + offset for base, offset in zip(bases, offsets, strict=True)]
