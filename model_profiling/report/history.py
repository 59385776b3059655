"""One thing measured again and again: its latencies over days and commits, and where their level changed.

Records for whoever draws or tells a history. `workflow/history.py` fills them from a store of runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from model_profiling.statistics.change_points import (
    FEWEST_RUNS,
    ChangePoint,
    ChangePoints,
    find_changes,
)

SHORT_COMMIT = 10


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """One run of a series."""

    run_id: str
    name: str
    at: datetime
    """When it was measured, in UTC; where that is not known, when it was added."""
    median_ms: float
    low_ms: float | None
    high_ms: float | None
    """The median's 95% interval; None with fewer than three rounds."""
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
        """The median's standard error, relative; 0 where it is not known."""
        if self.low_ms is None or self.high_ms is None or self.median_ms <= 0:
            return 0.0
        return max(0.0, self.high_ms - self.low_ms) / (2 * 1.96 * self.median_ms)

    @property
    def short_commit(self) -> str:
        return f"{self.commit[:SHORT_COMMIT]}{'+' if self.commit and self.dirty else ''}"


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """What makes runs comparable: one model and program form, on one device, in one experiment."""

    model: str
    dtype: str
    backend: str
    device: str
    device_name: str
    experiment: str
    threads: int | None


@dataclass(frozen=True, slots=True)
class Mark:
    """Something around the model that is not as it was in the run before."""

    first: int
    """The first run that has it."""
    what: str
    before: str
    after: str

    @property
    def telling(self) -> bool:
        """That a new program came is usual, and told only where the level changed."""
        return self.what != "program"

    @property
    def text(self) -> str:
        return f"{self.what} {self.before or 'not known'} -> {self.after or 'not known'}"


@dataclass(frozen=True, slots=True)
class HistorySeries:
    """Runs in the order they were measured; changes and marks name them by their place, from 0."""

    key: SeriesKey
    points: tuple[HistoryPoint, ...]
    found: ChangePoints
    marks: tuple[Mark, ...]

    @property
    def changes(self) -> tuple[ChangePoint, ...]:
        return self.found.changes

    def marks_at(self, change: ChangePoint) -> tuple[Mark, ...]:
        """What else changed where the level may have changed; of a drift, new programs are not told."""
        return tuple(
            mark
            for mark in self.marks
            if change.earliest <= mark.first <= change.latest and (mark.telling or not change.drift)
        )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Runs that are in no series, and why."""

    reason: str
    runs: int


@dataclass(frozen=True, slots=True)
class History:
    """What was asked for, all series of it."""

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
"""Fields of a point that are marked where they change, by what they are called. A device cannot change
within a series."""
_SHORT_HASH = 10


def make_series(key: SeriesKey, points: Sequence[HistoryPoint]) -> HistorySeries:
    """A series of `points`, put into the order they were measured in, with its changes."""
    ordered = tuple(sorted(points, key=lambda point: (point.at, point.run_id)))
    found = find_changes([point.median_ms for point in ordered], [point.error for point in ordered])
    return HistorySeries(key, ordered, found, tuple(_marks(ordered)))


def _marks(points: Sequence[HistoryPoint]) -> Iterator[Mark]:
    for place, (before, after) in enumerate(itertools.pairwise(points), start=1):
        for field, called in _WATCHED.items():
            old, new = getattr(before, field), getattr(after, field)
            if old != new and old and new:
                yield Mark(place, called, _short(field, old), _short(field, new))


def _short(field: str, value: str) -> str:
    return value[:_SHORT_HASH] if field == "program_sha256" else value


def history_facts(history: History) -> dict[str, object]:
    """For programs."""
    return {
        "schema_version": 1,
        "model": history.model,
        "method": METHOD,
        "series": [
            {
                **asdict(series.key),
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
                "points": [{**asdict(point), "at": point.at.isoformat()} for point in series.points],
            }
            for series in history.series
        ],
        "left_out": [asdict(each) for each in history.left_out],
    }


METHOD = (
    "change-point model of Hawkins, Qiu and Kang (2003) with Huber's scores, looked at after every run; "
    f"{FEWEST_RUNS} runs at least"
)


def _named(point: HistoryPoint) -> dict[str, str]:
    return {"run_id": point.run_id, "name": point.name, "commit": point.commit}
