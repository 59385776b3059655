"""A model's latencies over days and commits: records, facts for programs, sentences and the page."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime

from model_profiling.config.names import spoken_backend
from model_profiling.core.formatting import (
    MISSING,
    milliseconds,
    plural,
    short_rate,
    span,
    tokens_per_s,
    with_threads,
)
from model_profiling.report import charts as draw
from model_profiling.report import document as doc
from model_profiling.runs.times import NOT_ARM
from model_profiling.statistics.change_points import (
    FEWEST_RUNS,
    ChangePoint,
    ChangePoints,
    find_changes,
)

METHOD = (
    "change-point model of Hawkins, Qiu and Kang (2003) with Huber's scores, applied after every run; "
    f"it needs at least {FEWEST_RUNS} runs"
)
_WATCHED = {
    "kit": "kit",
    "executorch": "ExecuTorch",
    "runner_build": "runner",
    "os": "system",
    "program_sha256": "program",
}
"""The fields of a point to name when they change, as they are called. The device is fixed in a series."""
_SHORT_HASH = 10


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
    tokens: int | None = None
    """In one inference of a language model."""
    commit: str = ""
    branch: str = ""
    kit: str = ""
    executorch: str = ""
    runner_build: str = ""
    os: str = ""
    program_sha256: str = ""
    run_dir: str = ""

    @property
    def error(self) -> float:
        """The relative standard error of the median; 0 if unknown."""
        if self.low_ms is None or self.high_ms is None:
            return 0.0
        return max(0.0, self.high_ms - self.low_ms) / (2 * 1.96 * self.median_ms)

    @property
    def date(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M}"

    @property
    def short_commit(self) -> str:
        return self.commit[:_SHORT_HASH]


POINT = tuple(point.name for point in fields(HistoryPoint))


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


@dataclass(frozen=True, slots=True)
class HistorySeries:
    """Runs in the order they were measured; changes and news refer to them by index."""

    key: SeriesKey
    points: tuple[HistoryPoint, ...]
    change_points: ChangePoints
    news: tuple[tuple[int, str], ...]
    """What is new in a run's surroundings, such as a version, with the first run that has it."""

    @property
    def changes(self) -> tuple[ChangePoint, ...]:
        return self.change_points.changes

    @property
    def is_arm(self) -> bool | None:
        return self.points[-1].is_arm

    def news_at(self, change: ChangePoint) -> list[str]:
        """Return what else changed where the level may have changed."""
        return [text for first, text in self.news if change.earliest <= first <= change.latest]


@dataclass(frozen=True, slots=True)
class History:
    model: str
    series: tuple[HistorySeries, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many runs are left out, by reason."""


def make_series(points: Mapping[SeriesKey, Sequence[HistoryPoint]]) -> list[HistorySeries]:
    """`points` are in the order they were measured."""
    latencies = [
        ([point.median_ms for point in own], [point.error for point in own]) for own in points.values()
    ]
    return [
        HistorySeries(key, tuple(own), changes, tuple(_news(own)))
        for (key, own), changes in zip(points.items(), find_changes(latencies), strict=True)
    ]


def _news(points: Sequence[HistoryPoint]) -> Iterator[tuple[int, str]]:
    for place, (before, after) in enumerate(itertools.pairwise(points), start=1):
        for name, label in _WATCHED.items():
            old, new = getattr(before, name), getattr(after, name)
            if old != new and old and new:
                length = _SHORT_HASH if name == "program_sha256" else None
                yield place, f"{label} {old[:length]} -> {new[:length]}"


def history_facts(history: History) -> dict[str, object]:
    return {
        "schema_version": 1,
        "model": history.model,
        "method": METHOD,
        "series": [_series_facts(series) for series in history.series],
        "left_out": [{"reason": reason, "runs": runs} for reason, runs in history.left_out.items()],
    }


def _series_facts(series: HistorySeries) -> dict[str, object]:
    def run(place: int) -> dict[str, str]:
        point = series.points[place]
        return {"run_id": point.run_id, "name": point.name, "commit": point.commit}

    return {
        **asdict(series.key),
        "is_arm": series.is_arm,
        "runs": len(series.points),
        "too_few_to_tell": series.change_points.too_few,
        "noise": series.change_points.noise,
        "false_alarms": series.change_points.false_alarms,
        "changes": [
            {
                **asdict(change),
                "run": run(change.first),
                "run_before": run(change.first - 1),
                "also_changed": series.news_at(change),
            }
            for change in series.changes
        ],
        "levels": [asdict(level) for level in series.change_points.levels],
        "points": [
            {
                **{name: getattr(point, name) for name in POINT},  # `asdict` takes ten times as long
                "at": point.at.isoformat(),
                "tokens_per_s": tokens_per_s(point.tokens, point.median_ms),
            }
            for point in series.points
        ],
    }


# A history in sentences.


def series_title(key: SeriesKey) -> str:
    """Return `toy_cnn XNNPACK fp16: linux_sme2_on, 1 thread, on Neoverse-N1, 2 cores`."""
    program = " ".join(filter(None, (key.model, spoken_backend(key.backend), key.dtype)))
    return f"{program}: {with_threads(key.experiment, key.threads)}, on {key.device_name or '?'}"


def change_text(change: ChangePoint) -> str:
    """Return `3.2% slower (2.1% to 4.3%)`, relative to the time before."""
    ends = sorted((abs(change.low), abs(change.high)))
    interval = span(f"{ends[0]:.1%}", f"{ends[1]:.1%}")
    if change.low < 0 < change.high:  # later runs made the change doubtful
        interval = f"{change.low:+.1%} to {change.high:+.1%}"
    return f"{abs(change.change):.1%} {'slower' if change.change > 0 else 'faster'} ({interval})"


def change_sentence(series: HistorySeries, change: ChangePoint) -> str:
    """Describe a change: size, place, commits, when it became visible, and what else changed there."""
    first, before = series.points[change.first], series.points[change.first - 1]
    where = f" since run {change.first + 1} ({first.date}"
    where += f", commit {first.short_commit}" if first.commit else ""
    if first.commit and before.commit and first.commit != before.commit:
        where += f", after commit {before.short_commit}"
    where += ")"
    if change.earliest != change.latest:
        where += f"; it may have begun at any of runs {change.earliest + 1} to {change.latest + 1}"
    news = ", ".join(series.news_at(change))
    also = f"; also changed there: {news}" if news else ""
    return f"{change_text(change)}{where}; first seen after run {change.found + 1}{also}."


def series_sentences(series: HistorySeries) -> Iterator[str]:
    """Every output of a history includes these: the last one states the rate of false alarms."""
    judged, newest = series.change_points, series.points[-1]
    level = judged.levels[-1]
    since = f" since run {level.first + 1}" if series.changes else ""
    run = f"; newest run {_latency(newest.median_ms, newest.tokens)}" if len(series.points) > 1 else ""
    noise = "" if judged.noise is None else f"; runs of one level vary by {judged.noise:.1%} (robust spread)"
    yield f"Typical latency{since}: {_latency(level.typical, newest.tokens)}{run}{noise}."
    if series.is_arm is False:
        yield NOT_ARM
    for change in series.changes:
        yield change_sentence(series, change)
    runs = plural(judged.runs, "run")
    if judged.too_few:
        yield f"{runs}: too few to tell a change from noise, which takes at least {FEWEST_RUNS}."
        return
    if not series.changes:
        yield "No change was found."
    yield (
        f"False alarms: at most {judged.false_alarms:.1%} of histories without a change ({runs}) show one, "
        "if noise is independent from run to run."
    )


def _latency(ms: float, tokens: int | None) -> str:
    """Return `3.21 ms`, of a language model with `(312 tokens/s)`."""
    per_s = f" ({short_rate(tokens_per_s(tokens, ms))} tokens/s)" if tokens else ""
    return f"{milliseconds(ms)} ms{per_s}"


# The page: a table of the series, then a chart of each. A terminal shows it without charts.

MOST_RUNS = 400
"""In a chart, the newest."""
_SLOWER = "#c0392b"


def history_title(history: History) -> str:
    longest = max((len(series.points) for series in history.series), default=0)
    return f"{history.model}: latency over {plural(longest, 'run')}"


def history_document(history: History) -> list[doc.Block]:
    headers = ("series", "runs", "typical ms", "last change", "since")
    table = doc.make_table(headers, map(_summary, history.series), numbers=(1, 2))
    blocks: list[doc.Block] = [doc.Heading(history_title(history), 1), table]
    for number, series in enumerate(history.series, start=1):
        chart = history_chart(series, number)
        blocks += [doc.Heading(series_title(series.key)), chart, *doc.make_list(series_sentences(series))]
    left_out = (f"{plural(runs, 'run')} left out: {reason}." for reason, runs in history.left_out.items())
    return [*blocks, doc.Heading("Method"), *doc.make_list([f"Changes: {METHOD}.", *left_out])]


def _summary(series: HistorySeries) -> tuple[str, ...]:
    changes = series.change_points
    last, since = "too few runs" if changes.too_few else "none found", MISSING
    if series.changes:
        last, since = change_text(series.changes[-1]), series.points[series.changes[-1].first].date
    typical = milliseconds(changes.levels[-1].typical)
    return series_title(series.key), str(len(series.points)), typical, last, since


def history_chart(series: HistorySeries, number: int = 1) -> doc.Chart:
    """`number` distinguishes the charts of a page, in which runs are numbered from 1."""
    runs = len(series.points)
    left = max(0, runs - MOST_RUNS)
    newest = series.points[left:]
    data: dict[str, list[draw.Row]] = {
        "points": [
            {
                "run": place,
                "ms": round(point.median_ms, 6),
                "low": round(point.low_ms or point.median_ms, 6),
                "high": round(point.high_ms or point.median_ms, 6),
                "date": point.date,
                "commit": draw.named(point.short_commit),
                "run_id": point.run_id[:12],
            }
            for place, point in enumerate(newest, start=left + 1)
        ],
        "levels": [
            {"first": level.first + 0.6, "last": level.last + 1.4, "ms": level.typical}
            for level in series.change_points.levels
        ],
        "changes": [
            {
                "run": change.first + 0.5,
                "change": change_text(change),
                "_colour": _SLOWER if change.change > 0 else draw.AFTER,
                "_text": f"{100 * change.change:+.1f}%",
            }
            for change in series.changes
            if change.first >= left
        ],
    }
    # Show every median; cut an interval that goes far beyond.
    least, most = (pick(point.median_ms for point in newest) for pick in (min, max))
    room = max(0.15 * (most - least), 0.02 * most)
    y = draw.axis("ms, median with its interval", draw.span(max(0.0, least - room), most + room))
    order = f"runs in the order they were measured{f', the newest {MOST_RUNS}' if left else ''}"
    x = draw.axis(
        order, draw.span(left + 0.5, runs + 0.5), tickMinStep=1, format="d", tickCount=8, grid=False
    )
    tip = {"run": "run", "ms": "ms", "low": "from ms", "high": "to ms", "date": "date", "commit": "commit"}
    own: draw.Layer = {"x": "run", "color": draw.series_colour(0), "clip": True}
    layers = [
        draw.layer(
            "changes", "rule", x="run", tip={"change": "change"}, color=draw.OWN_COLOUR, strokeWidth=2,
        ),
        draw.layer(
            "levels", "rule", x="first", x2="last", y="ms", clip=True,
            strokeWidth=2.5, opacity=0.7, color=draw.BEFORE,
        ),
        draw.layer("points", "rule", y="low", y2="high", opacity=0.45, **own),
        draw.layer("points", "point", y="ms", tip=tip, filled=True, size=34, opacity=1, **own),
        draw.layer(
            "changes", "text", x="run", y={"value": 0}, text="_text",
            align="left", baseline="top", dx=4, dy=2, fontWeight="bold",
        ),
    ]  # fmt: skip
    summary = f"{plural(runs, 'run')} between {milliseconds(least)} and {milliseconds(most)} ms."
    spec = draw.layered(data, layers, x, y)
    return doc.Chart(f"history_{number}", "Latency of each run", summary, spec, "the store")
