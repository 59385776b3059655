"""A history in sentences: its name, its level, each change, and how far to trust that there is one."""

from __future__ import annotations

from collections.abc import Iterator

from model_profiling.report.history import HistoryPoint, HistorySeries, SeriesKey
from model_profiling.statistics.change_points import FEWEST_RUNS, ChangePoint
from model_profiling.wording import milliseconds, plural, span, with_threads


def by_name(key: SeriesKey) -> str:
    """`toy_cnn xnnpack fp16: linux_sme2_on, 1 thread, on Neoverse-N1, 2 cores`."""
    what = " ".join(word for word in (key.model, key.backend, key.dtype) if word)
    return f"{what}: {with_threads(key.experiment, key.threads)}, on {key.device_name or key.device or '?'}"


def change_in_short(change: ChangePoint) -> str:
    """`3.2% slower (2.1% to 4.3%)`."""
    way = f"{'slower' if change.change > 0 else 'faster'}{' little by little' if change.drift else ''}"
    ends = sorted((abs(change.low), abs(change.high)))
    if change.low < 0 < change.high:  # a change that later runs made doubtful
        return f"{abs(change.change):.1%} {way} ({change.low:+.1%} to {change.high:+.1%})"
    return f"{abs(change.change):.1%} {way} ({span(f'{ends[0]:.1%}', f'{ends[1]:.1%}')})"


def change_sentence(series: HistorySeries, change: ChangePoint) -> str:
    """What changed, where, between which commits, since when it can be seen, and what else changed there."""
    if change.drift:
        said = f"{change_in_short(change)} from run {change.first} to run {change.latest + 1}, on a line"
        said += f" rather than in steps; {_seen(series, change)}"
        return f"{said}."
    first, before = series.points[change.first], series.points[change.first - 1]
    said = f"{change_in_short(change)} from run {change.first + 1} on, of {_when(first)}"
    if first.commit and before.commit and first.commit != before.commit:
        said += f", after commit {before.short_commit}"
    if change.earliest != change.latest:
        said += f"; it may be any of runs {change.earliest + 1} to {change.latest + 1}"
    return f"{said}; {_seen(series, change)}."


def _seen(series: HistorySeries, change: ChangePoint) -> str:
    marks = ", ".join(mark.text for mark in series.marks_at(change))
    return f"seen first after run {change.found + 1}{marks and f'; changed there too: {marks}'}"


def series_sentences(series: HistorySeries) -> Iterator[str]:
    """What is to be said of a series below its picture."""
    found, last = series.found, series.points[-1]
    level = found.levels[-1]
    since = f" since run {level.first + 1}" if series.changes else ""
    since = " at the end of a drift" if level.drifts else since
    noise = "" if found.noise is None else f"; runs of one level differ by {found.noise:.1%} (robust spread)"
    yield f"{milliseconds(level.typical)} ms{since}, newest {milliseconds(last.median_ms)} ms{noise}."
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


def rate_sentence(series: HistorySeries) -> str:
    """The rate of false alarms, which every telling of a history states."""
    return (
        f"False alarms: of histories of {plural(series.found.runs, 'run')} without a change at most "
        f"{series.found.false_alarms:.1%} show one, where noise is independent from run to run."
    )


def _when(point: HistoryPoint) -> str:
    commit = f", commit {point.short_commit}" if point.commit else ""
    return f"{point.at:%Y-%m-%d %H:%M}{commit}"
