"""Charts of end-to-end latency: every inference of each series, and the ladder of CPU features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from model_profiling.config import names
from model_profiling.core.formatting import MISSING, milliseconds, plural
from model_profiling.report import charts as draw
from model_profiling.report.data import ExperimentReport, ReportData
from model_profiling.report.document import Chart
from model_profiling.statistics.latency import LatencySummary

T = TypeVar("T")
_SAMPLED_ROW = 72
_FEWEST_RUNGS = 3


def thinned(values: Sequence[T], most: int) -> list[T]:
    """At most `most` of the values in even steps, with the first and the last."""
    if len(values) <= most:
        return list(values)
    return [values[round(place * (len(values) - 1) / (most - 1))] for place in range(most)]


MOST_SAMPLES = 600
"""In one chart: more cannot be told apart, and a page must stay small."""


@dataclass(frozen=True, slots=True)
class LatencySamples:
    """Latencies of one series, in milliseconds."""

    label: str
    """Its name among the series of its run, fit to be drawn."""
    summary: LatencySummary
    rounds: Sequence[Sequence[float]]
    """Every latency in the order of measuring, by launch or round; empty if none is kept."""
    unit: str
    """launch, or round."""

    @property
    def count(self) -> int:
        return sum(map(len, self.rounds))


def latency_samples(data: ReportData) -> list[LatencySamples]:
    """Latencies without the tracer if they were measured, else times of dumps, which have it on."""
    measured = [(found, found.latency.end_to_end_ms) for found in data.experiments if found.latency]
    known = [_measured(data, found, summary) for found, summary in measured if summary]
    return known or [
        LatencySamples(
            draw.named(found.series.spoken(data.run.series)),
            dumps.latency,
            dumps.by_round(dumps.breakdown.e2e),
            dumps.unit,
        )
        for found in data.experiments
        if (dumps := found.dumps) and found.times.are_shown
    ]


def _measured(data: ReportData, found: ExperimentReport, summary: LatencySummary) -> LatencySamples:
    kept = data.run.robust_stats(found.series)
    unit = "launch" if found.latency and found.latency.way == "lockstep" else "round"
    label = draw.named(found.series.spoken(data.run.series))
    return LatencySamples(label, summary, kept.end_to_end_rounds_ms if kept else (), unit)


def spread(summary: LatencySummary) -> draw.Row:
    return {name: round(getattr(summary, name), 5) for name in ("median", "p5", "p95")}


SPREAD_TIP = {"median": "median ms", "p5": "5% ms", "p95": "95% ms"}


def latency_chart(found: Sequence[LatencySamples], title: str, note: str = "") -> Chart | None:
    """Every series with its median, the middle nine in ten, and its samples in one row of dots per launch."""
    if not found:
        return None
    last = _usual_end(found)
    most = max(40, MOST_SAMPLES // len(found))
    samples = [row for place, each in enumerate(found) for row in _samples(place, each, most, last)]
    rows: list[draw.Row] = [
        {
            **draw.band(place, 0.34, 0.94),
            **spread(each.summary),
            "_colour": draw.series_colour(place),
            "_label": f"{each.label}: {milliseconds(each.summary.median)} ms "
            f"({milliseconds(each.summary.p5)} to {milliseconds(each.summary.p95)})",
            "series": each.label,
        }
        for place, each in enumerate(found)
    ]
    tips = {"series": "series", **SPREAD_TIP}, {"series": "series", "launch": found[0].unit, "ms": "ms"}
    layers = [
        draw.layer(
            "rows", "bar", x="p5", x2="p95", **draw.BOX, color=draw.OWN_COLOUR, tip=tips[0], opacity=0.22
        ),
        draw.layer(
            "samples", "point", x="_at", y="_y", color=draw.OWN_COLOUR, tip=tips[1],
            filled=True, size=14, opacity=0.55,
        ),
        draw.layer("rows", "rule", x="median", **draw.BOX, strokeWidth=2.5),
    ]  # fmt: skip
    said = "; ".join(
        f"{each.label}: median {milliseconds(each.summary.median)} ms, nine in ten between "
        f"{milliseconds(each.summary.p5)} and {milliseconds(each.summary.p95)} ms, "
        f"{plural(each.summary.count, 'inference')}"
        for each in found
    )
    x = draw.axis(
        _axis_title(found, len(samples), last),
        draw.span(min(each.summary.minimum for each in found) * 0.98, last * 1.01),
    )
    spec = draw.labelled({"rows": rows, "samples": samples}, layers, x, _SAMPLED_ROW)
    return Chart("latency", title, f"{note}{said}.", spec, f"*{names.ROBUST_STATS}")


def _samples(place: int, found: LatencySamples, most: int, last: float) -> Iterator[draw.Row]:
    """Equally many samples of every launch, evenly by size, with its extremes; of many launches, some."""
    lanes = thinned(
        [(number, sorted(ms)) for number, ms in enumerate(found.rounds, start=1) if ms], most // 2
    )
    for lane, (number, values) in enumerate(lanes):
        for value in thinned(values, max(2, most // len(lanes))):
            yield {
                "series": found.label,
                "launch": number,
                "ms": round(value, 5),
                "_at": round(min(value, last), 5),
                "_y": round(place + 0.38 + 0.52 * (lane + 0.5) / len(lanes), 4),
                "_colour": draw.series_colour(place),
            }


def _axis_title(found: Sequence[LatencySamples], shown: int, last: float) -> list[str]:
    said = []
    count = sum(each.count for each in found)
    if shown < count:
        said.append(f"{shown:,} of {count:,} inferences shown")
    if beyond := sum(value > last for each in found for values in each.rounds for value in values):
        said.append(f"{plural(beyond, 'slower one')} at the right edge")
    dots = f"; row of dots: {found[0].unit}" if shown else ""
    return [f"ms; line: median, band: nine in ten{dots}", *([", ".join(said)] if said else [])]


def _usual_end(found: Sequence[LatencySamples]) -> float:
    """The end of a latency axis: stragglers far away must not squeeze all others into a line."""
    far = max(each.summary.p95 + 1.5 * (each.summary.p95 - each.summary.p5) for each in found)
    return min(far, max(each.summary.maximum for each in found))


def ladder_chart(data: ReportData) -> Chart | None:
    """The rungs of an ablation ladder, on the fewest threads: latency and what each rung's feature brings."""
    found = _rungs(data.experiments) if data.timed else []
    said = _timed_rungs(data, found)
    if not any(value for _, value in said):
        return None
    rows: list[draw.Row] = [
        {
            **draw.band(place, 0.48, 0.9),
            "rung": draw.named(rung.series.experiment),
            "value": round(value, 5),
            **(spread(rung.summary) if rung.summary else {}),
            "_label": f"{draw.named(rung.series.experiment)}: {text}",
        }
        for place, (rung, (text, value)) in enumerate(zip(found, said, strict=True))
    ]
    measured = "ms; line: nine in ten"
    bars: draw.Layer = {"tip": {"rung": "rung", "value": measured}, **draw.BOX}
    layers = [
        draw.layer("rows", "bar", x="_zero", x2="value", color=draw.series_colour(0), opacity=0.8, **bars),
        draw.layer("rows", "rule", x="p5", x2="p95", y="_middle", strokeWidth=2),
    ]
    spec = draw.labelled({"rows": rows}, layers, draw.axis(measured))
    title = "The ladder: what each CPU feature brings"
    return Chart("ladder", title, draw.sentence(rows), spec, names.METRICS)


def _rungs(experiments: Sequence[ExperimentReport]) -> list[ExperimentReport]:
    """Experiments that differ in what is off, on the fewest threads; empty if there is no ladder."""
    known = [found for found in experiments if found.result is not None and not found.problem]
    fewest = min((found.series.threads or 0 for found in known), default=0)
    rungs: dict[tuple[str, ...], ExperimentReport] = {}
    for found in known:
        if found.result and (found.series.threads or 0) == fewest:
            rungs.setdefault(found.result.disable, found)
    return list(rungs.values()) if len(rungs) >= _FEWEST_RUNGS else []


def _timed_rungs(data: ReportData, rungs: Sequence[ExperimentReport]) -> list[tuple[str, float]]:
    gains = {pair.pair.candidate: pair.speedup for pair in data.pairs if pair.comparable}
    said = []
    for found in rungs:
        summary, gain = found.summary, gains.get(found.series)
        bought = f", {gain.ratio:.2f}x the rung below" if gain and gain.ratio is not None else ""
        took = milliseconds(summary.median) if summary else MISSING
        said.append((f"{took} ms{bought}", summary.median if summary else 0.0))
    return said
