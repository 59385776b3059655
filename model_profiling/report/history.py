"""A model's latencies over days and commits: records, sentences, facts for programs and a text chart."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from model_profiling.core.formatting import milliseconds, plural, short_rate, span, tokens_per_s, with_threads
from model_profiling.run.names import spoken_backend
from model_profiling.run.times import NOT_ARM
from model_profiling.statistics.change_points import FEWEST_RUNS, ChangePoint, ChangePoints, find_changes

SHORT_COMMIT = 10


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    run_id: str
    name: str
    at: datetime
    """When it was measured, in UTC; if unknown, when it was added."""
    median_ms: float
    low_ms: float | None
    high_ms: float | None
    """The 95% interval of the median; None with fewer than three rounds."""
    is_arm: bool | None = None
    """Whether it was measured on an Arm CPU; None if unknown."""
    tokens: int | None = None
    """In one inference of a language model."""
    commit: str = ""
    branch: str = ""
    dirty: bool | None = None
    kit: str = ""
    executorch: str = ""
    runner_build: str = ""
    os: str = ""
    program_sha256: str = ""
    run_dir: str = ""
    report: str = ""

    @property
    def error(self) -> float:
        """The relative standard error of the median; 0 if unknown."""
        if self.low_ms is None or self.high_ms is None or self.median_ms <= 0:
            return 0.0
        return max(0.0, self.high_ms - self.low_ms) / (2 * 1.96 * self.median_ms)

    @property
    def tokens_per_s(self) -> float | None:
        return tokens_per_s(self.tokens, self.median_ms)

    @property
    def short_commit(self) -> str:
        return f"{self.commit[:SHORT_COMMIT]}{'+' if self.commit and self.dirty else ''}"


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """What comparable runs share: model, program form, device and experiment."""

    model: str
    dtype: str
    backend: str
    device: str
    device_name: str
    """In words; marked if the device is not Arm."""
    experiment: str
    threads: int | None

    @property
    def format(self) -> str:
        return f"{spoken_backend(self.backend)} {self.dtype}".strip()

    @property
    def program(self) -> str:
        return f"{self.model} {self.format}".strip()


@dataclass(frozen=True, slots=True)
class Mark:
    """A change in the run's surroundings, such as a new version, compared with the run before."""

    first: int
    """The index of the first run that has it."""
    what: str
    before: str
    after: str

    @property
    def telling(self) -> bool:
        """Whether to show it always; a new program is normal, so it is shown only where the level changed."""
        return self.what != "program"

    @property
    def text(self) -> str:
        return f"{self.what} {self.before or 'not known'} -> {self.after or 'not known'}"


@dataclass(frozen=True, slots=True)
class HistorySeries:
    """Runs in the order they were measured; changes and marks refer to them by index."""

    key: SeriesKey
    points: tuple[HistoryPoint, ...]
    found: ChangePoints
    marks: tuple[Mark, ...]

    @property
    def changes(self) -> tuple[ChangePoint, ...]:
        return self.found.changes

    @property
    def is_arm(self) -> bool | None:
        return self.points[-1].is_arm

    def marks_at(self, change: ChangePoint) -> tuple[Mark, ...]:
        """Return what else changed where the level may have changed; for a drift, without new programs."""
        return tuple(
            mark
            for mark in self.marks
            if change.earliest <= mark.first <= change.latest and (mark.telling or not change.drift)
        )


@dataclass(frozen=True, slots=True)
class LeftOut:
    reason: str
    runs: int


@dataclass(frozen=True, slots=True)
class History:
    model: str
    series: tuple[HistorySeries, ...]
    left_out: tuple[LeftOut, ...] = ()


_WATCHED = {
    "kit": "kit",
    "executorch": "ExecuTorch",
    "runner_build": "runner",
    "os": "system",
    "program_sha256": "program",
}
"""The fields of a point to mark when they change, with the names shown. The device is fixed in a series."""
_SHORT_HASH = 10


def make_series(key: SeriesKey, points: Sequence[HistoryPoint]) -> HistorySeries:
    ordered = tuple(sorted(points, key=lambda point: (point.at, point.run_id)))
    found = find_changes([point.median_ms for point in ordered], [point.error for point in ordered])
    return HistorySeries(key, ordered, found, tuple(_marks(ordered)))


def _marks(points: Sequence[HistoryPoint]) -> Iterator[Mark]:
    for place, (before, after) in enumerate(itertools.pairwise(points), start=1):
        for field, called in _WATCHED.items():
            old, new = getattr(before, field), getattr(after, field)
            if old != new and old and new:
                length = _SHORT_HASH if field == "program_sha256" else None
                yield Mark(place, called, old[:length], new[:length])


def history_facts(history: History) -> dict[str, object]:
    return {
        "schema_version": 1,
        "model": history.model,
        "method": METHOD,
        "series": [
            {
                **asdict(series.key),
                "is_arm": series.is_arm,
                "runs": len(series.points),
                "too_few_to_tell": series.found.too_few,
                "noise": series.found.noise,
                "false_alarms": series.found.false_alarms,
                "changes": [
                    {
                        **asdict(change),
                        "run": _named(series.points[change.first]),
                        "run_before": _named(series.points[change.first - 1]),
                        "also_changed": [mark.text for mark in series.marks_at(change)],
                    }
                    for change in series.changes
                ],
                "levels": [asdict(level) for level in series.found.levels],
                "marks": [{**asdict(mark), "text": mark.text} for mark in series.marks],
                "points": [
                    {**asdict(point), "at": point.at.isoformat(), "tokens_per_s": point.tokens_per_s}
                    for point in series.points
                ],
            }
            for series in history.series
        ],
        "left_out": [asdict(each) for each in history.left_out],
    }


METHOD = (
    "change-point model of Hawkins, Qiu and Kang (2003) with Huber's scores, applied after every run; "
    f"it needs at least {FEWEST_RUNS} runs"
)


def _named(point: HistoryPoint) -> dict[str, str]:
    return {"run_id": point.run_id, "name": point.name, "commit": point.commit}


# A history in sentences.


def series_title(key: SeriesKey) -> str:
    """Return `toy_cnn XNNPACK fp16: linux_sme2_on, 1 thread, on Neoverse-N1, 2 cores`."""
    device = key.device_name or key.device or "?"
    return f"{key.program}: {with_threads(key.experiment, key.threads)}, on {device}"


def change_text(change: ChangePoint) -> str:
    """Return `3.2% slower`, or `3.2% gradually slower`, relative to the time before."""
    way = "slower" if change.change > 0 else "faster"
    return f"{abs(change.change):.1%} {'gradually ' if change.drift else ''}{way}"


def change_in_short(change: ChangePoint) -> str:
    """Return `3.2% slower (2.1% to 4.3%)`."""
    ends = sorted((abs(change.low), abs(change.high)))
    if change.low < 0 < change.high:  # later runs made the change doubtful
        return f"{change_text(change)} ({change.low:+.1%} to {change.high:+.1%})"
    return f"{change_text(change)} ({span(f'{ends[0]:.1%}', f'{ends[1]:.1%}')})"


def change_sentence(series: HistorySeries, change: ChangePoint) -> str:
    """Describe a change: size, place, commits, when it became visible, and what else changed there."""
    if change.drift:
        runs = f"from run {change.first} to run {change.latest + 1}"
        return f"{change_in_short(change)} {runs}, not in steps; {_seen(series, change)}."
    first, before = series.points[change.first], series.points[change.first - 1]
    said = f"{change_in_short(change)} since run {change.first + 1} ({_when(first)}"
    if first.commit and before.commit and first.commit != before.commit:
        said += f", after commit {before.short_commit}"
    said += ")"
    if change.earliest != change.latest:
        said += f"; it may have begun at any of runs {change.earliest + 1} to {change.latest + 1}"
    return f"{said}; {_seen(series, change)}."


def _seen(series: HistorySeries, change: ChangePoint) -> str:
    marks = ", ".join(mark.text for mark in series.marks_at(change))
    return f"first seen after run {change.found + 1}{marks and f'; also changed there: {marks}'}"


def series_sentences(series: HistorySeries) -> Iterator[str]:
    found, last = series.found, series.points[-1]
    level = found.levels[-1]
    since = f" since run {level.first + 1}" if series.changes else ""
    since = " at the end of a drift" if level.drifts else since
    noise = "" if found.noise is None else f"; runs of one level vary by {found.noise:.1%} (robust spread)"
    newest = f"; newest run {_latency(last.median_ms, last.tokens)}" if len(series.points) > 1 else ""
    yield f"Typical latency{since}: {_latency(level.typical, last.tokens)}{newest}{noise}."
    if series.is_arm is False:
        yield NOT_ARM
    for change in series.changes:
        yield change_sentence(series, change)
    if found.too_few:
        yield (
            f"{plural(found.runs, 'run')}: too few to tell a change from noise, "
            f"which takes at least {FEWEST_RUNS}."
        )
        return
    if not series.changes:
        yield "No change was found."
    yield rate_sentence(series)


def _latency(ms: float, tokens: int | None) -> str:
    """Return `3.21 ms`, of a language model with `(312 tokens/s)`."""
    per_s = f" ({short_rate(tokens_per_s(tokens, ms))} tokens/s)" if tokens else ""
    return f"{milliseconds(ms)} ms{per_s}"


def rate_sentence(series: HistorySeries) -> str:
    """State the rate of false alarms; every output of a history must include it."""
    return (
        f"False alarms: at most {series.found.false_alarms:.1%} of histories without a change "
        f"({plural(series.found.runs, 'run')}) show one, if noise is independent from run to run."
    )


def _when(point: HistoryPoint) -> str:
    commit = f", commit {point.short_commit}" if point.commit else ""
    return f"{point.at:%Y-%m-%d %H:%M}{commit}"


# A history as a text chart for a terminal.

_ROWS = 8
_LEAST_RANGE = 0.01
"""The smallest range of the chart, as a share of the level, so that it does not magnify tiny noise."""


def text_chart(series: HistorySeries, width: int = 72) -> list[str]:
    """Draw runs from left to right as `o`, levels as `-`, changes as `|`; below, `^` marks other changes.
    With more runs than columns, a column shows the median of several."""
    medians = [point.median_ms for point in series.points]
    columns = min(width, len(medians))
    column_of = [place * columns // len(medians) for place in range(len(medians))]
    least, most = min(medians), max(medians)
    room = max(0.0, _LEAST_RANGE * most - (most - least)) / 2
    low, high = least - room, most + room

    def row_of(ms: float) -> int:
        return round((high - ms) / (high - low) * (_ROWS - 1)) if high > low else _ROWS // 2

    grid = [[" "] * columns for _ in range(_ROWS)]
    for level in series.found.levels:
        begin, end = column_of[level.first], column_of[level.last]
        for column in range(begin, end + 1):
            way = (column - begin) / max(1, end - begin)
            grid[row_of(level.at_first + way * (level.typical - level.at_first))][column] = "-"
    for row in grid:
        for change in series.changes:
            if not change.drift:
                row[column_of[change.first]] = "|"
    for column in range(columns):
        inside = sorted(ms for ms, at in zip(medians, column_of, strict=True) if at == column)
        grid[row_of(inside[len(inside) // 2])][column] = "o"
    labels = {0: milliseconds(high), _ROWS - 1: milliseconds(low)}
    edge = max(map(len, labels.values()))
    lines = [f"{labels.get(number, ''):>{edge}} {''.join(row)}" for number, row in enumerate(grid)]
    if marked := {column_of[mark.first] for mark in series.marks if mark.telling}:
        lines.append(" " * (edge + 1) + "".join("^" if at in marked else " " for at in range(columns)))
    first, last = (f"{series.points[at].at:%Y-%m-%d}" for at in (0, -1))
    dates = first if first == last else f"{first}{last:>{max(columns - len(first), len(last) + 1)}}"
    return [line.rstrip() for line in [*lines, f"{' ' * (edge + 1)}{dates}"]]
