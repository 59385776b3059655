"""A history as a small picture of letters, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from model_profiling.report.history import HistorySeries
from model_profiling.wording import milliseconds

_ROWS = 8
_LEAST_RANGE = 0.01
"""Of the level: below it a picture would blow up noise that nobody cares about."""


def text_chart(series: HistorySeries, width: int = 72) -> list[str]:
    """Runs from left to right as `o`, levels as `-`, changes as `|`; below, `^` where something else changed.

    Where there are more runs than columns, a column stands for several, with their median.
    """
    medians = [point.median_ms for point in series.points]
    columns = min(width, len(medians))
    least, most = min(medians), max(medians)
    room = max(0.0, _LEAST_RANGE * most - (most - least)) / 2
    low, high = least - room, most + room

    def row_of(ms: float) -> int:
        return round((high - ms) / (high - low) * (_ROWS - 1)) if high > low else _ROWS // 2

    grid = [[" "] * columns for _ in range(_ROWS)]
    for level in series.found.levels:
        begin, end = (_column(place, columns, medians) for place in (level.first, level.last))
        for column in range(begin, end + 1):
            way = (column - begin) / max(1, end - begin)
            grid[row_of(level.at_first + way * (level.typical - level.at_first))][column] = "-"
    for change in series.changes:
        if change.drift:
            continue
        for row in grid:
            row[_column(change.first, columns, medians)] = "|"
    for column, inside in enumerate(_groups(medians, columns)):
        grid[row_of(sorted(inside)[len(inside) // 2])][column] = "o"
    labels = {0: milliseconds(high), _ROWS - 1: milliseconds(low)}
    edge = max(map(len, labels.values()))
    lines = [f"{labels.get(number, ''):>{edge}} {''.join(row)}" for number, row in enumerate(grid)]
    marked = {_column(mark.first, columns, medians) for mark in series.marks if mark.telling}
    below = (
        [" " * (edge + 1) + "".join("^" if at in marked else " " for at in range(columns))] if marked else []
    )
    first, last = (f"{series.points[at].at:%Y-%m-%d}" for at in (0, -1))
    dates = first if first == last else f"{first}{last:>{max(columns - len(first), len(last) + 1)}}"
    return [line.rstrip() for line in [*lines, *below, f"{' ' * (edge + 1)}{dates}"]]


def _column(place: int, columns: int, values: Sequence[float]) -> int:
    return place * columns // len(values)


def _groups(values: Sequence[float], columns: int) -> list[list[float]]:
    groups: list[list[float]] = [[] for _ in range(columns)]
    for place, value in enumerate(values):
        groups[_column(place, columns, values)].append(value)
    return groups
