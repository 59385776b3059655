"""Charts of what threads and CPU features bring, and of how often kernels ran."""

from __future__ import annotations

from collections.abc import Sequence

from model_profiling.analysis.evidence import PlaceEvidence
from model_profiling.analysis.kernel_names import Kernel
from model_profiling.config import names
from model_profiling.core.formatting import MISSING, milliseconds, plural
from model_profiling.report import charts as draw
from model_profiling.report.data import ExperimentReport, ReportData
from model_profiling.report.document import Chart
from model_profiling.statistics.latency import LatencySummary

_FEWEST_RUNGS = 3
_MOST_EXPERIMENTS = 6
_KERNELS_SHOWN = 8
_MOST_COUNTED = 4
_LABEL, _BAR = 26, 15
"""Pixels for a kernel's name, and for each bar below it."""


def threads_chart(data: ReportData) -> Chart | None:
    """Latency over the number of threads, for every experiment with several."""
    members: dict[str, list[tuple[int, LatencySummary]]] = {}
    for found in data.experiments:
        if found.series.threads and found.summary is not None:
            members.setdefault(draw.named(found.series.experiment), []).append(
                (found.series.threads, found.summary)
            )
    several = [
        (name, sorted(known, key=lambda each: each[0])) for name, known in members.items() if len(known) > 1
    ][:_MOST_EXPERIMENTS]
    if not several:
        return None
    rows: list[draw.Row] = [
        {
            "experiment": name,
            "threads": threads,
            **draw.spread(summary),
            "_text": f"{milliseconds(summary.median)} ms",
        }
        for name, known in several
        for threads, summary in known
    ]
    colour = draw.series_colours("experiment", (name for name, _ in several))
    shape = {**colour, "scale": {"domain": [name for name, _ in several]}}
    x: draw.Channel = {
        "type": "ordinal",
        "title": "threads",
        "axis": {"labelAngle": 0},
        "scale": {"type": "point", "padding": 0.6},
    }
    top = max(summary.p95 for _, known in several for _, summary in known)
    y = draw.axis("ms; line: nine in ten", {"domain": [0, top * 1.08], "nice": False}, tickCount=5)
    tip = {"experiment": "experiment", "threads": "threads", **draw.SPREAD_TIP}
    layers = draw.measured_line("threads", ("median", "p5", "p95"), colour=colour, tip=tip, shape=shape)
    said = "; ".join(
        f"{name}: "
        + ", ".join(
            f"{milliseconds(summary.median)} ms on {plural(threads, 'thread')}" for threads, summary in known
        )
        for name, known in several
    )
    spec = draw.layered({"rows": rows}, layers, x, y)
    return Chart("threads", "What more threads bring", f"{said}.", spec, f"{names.METRICS}: latencies")


def ladder_chart(data: ReportData) -> Chart | None:
    """The rungs of an ablation ladder, on the fewest threads: latency and what each rung's feature brings;
    without latencies, how many kinds of kernels ran."""
    found = _rungs(data.experiments)
    said = (_timed_rungs if data.timed else _kernel_rungs)(data, found)
    if not any(value for _, value in said):
        return None
    rows: list[draw.Row] = [
        {
            **draw.band(place, 0.48, 0.9),
            "rung": draw.named(rung.series.experiment),
            "value": round(value, 5),
            **(draw.spread(rung.summary) if rung.summary else {}),
            "_label": f"{draw.named(rung.series.experiment)}: {text}",
        }
        for place, (rung, (text, value)) in enumerate(zip(found, said, strict=True))
    ]
    measured = "ms; line: nine in ten"
    bars: draw.Layer = {"tip": {"rung": "rung", "value": measured if data.timed else "kernels"}, **draw.BOX}
    layers = [
        draw.layer("rows", "bar", x="_zero", x2="value", color=draw.series_colour(0), opacity=0.8, **bars)
    ]
    if data.timed:
        layers.append(draw.layer("rows", "rule", x="p5", x2="p95", y="_middle", strokeWidth=2))
    x = draw.axis(measured if data.timed else "kinds of KleidiAI kernels that ran; no time was measured")
    source = f"{names.METRICS}: latencies, comparisons" if data.timed else f"the files *{names.KERNELS_CSV}"
    spec = draw.labelled({"rows": rows}, layers, x)
    return Chart("ladder", "The ladder: what each CPU feature brings", draw.sentence(rows), spec, source)


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


def _kernel_rungs(data: ReportData, rungs: Sequence[ExperimentReport]) -> list[tuple[str, float]]:
    ran = {found.series: found.instruction_sets for place in data.evidence[:1] for found in place.kernels}
    kernels = [ran.get(found.series, {}) for found in rungs]
    return [
        (
            ", ".join(f"{count} {isa}" for isa, count in each.items()) or "no KleidiAI kernel",
            sum(each.values()),
        )
        for each in kernels
    ]


def kernels_chart(place: PlaceEvidence, name: str, source: str) -> Chart | None:
    """The kernels called most, with a bar for each series, so that a missing one shows."""
    counted = [found for found in place.kernels if found.counted][:_MOST_COUNTED]
    series = [draw.named(found.series.spoken(place.series)) for found in counted]
    calls: dict[Kernel, dict[str, int]] = {}
    for label, found in zip(series, counted, strict=True):
        for use in found.uses:
            if use.calls and use.evidence == "executed" and use.kernel.library != "operator":
                calls.setdefault(use.kernel, {})[label] = use.calls
    if not calls:
        return None
    most = sorted(calls, key=lambda kernel: -max(calls[kernel].values()))[:_KERNELS_SHOWN]
    height = _LABEL + _BAR * len(series)
    rows: list[draw.Row] = [
        {"_row": row, "_label": f"{kernel.isa}: {draw.named(kernel.name)}"} for row, kernel in enumerate(most)
    ]
    bars: list[draw.Row] = []
    said: list[str] = []
    for row, kernel in enumerate(most):
        counts = {label: calls[kernel].get(label, 0) for label in series}
        spoken = ", ".join(
            f"{plural(count, 'call')}{f' in {label}' if len(series) > 1 else ''}"
            for label, count in counts.items()
        )
        said.append(f"{draw.named(kernel.name)} ({kernel.isa}): {spoken}")
        for lane, (label, count) in enumerate(counts.items()):
            top = (_LABEL - 4 + _BAR * lane) / height
            bars.append(
                {
                    **draw.band(row, top, top + (_BAR - 3) / height),
                    "kernel": draw.named(kernel.name),
                    "series": label,
                    "calls": count,
                    "_text": f"{count:,}",
                }
            )
    colour = draw.series_colours(
        "series", series, title="bars, from top to bottom" if len(series) > 1 else None
    )
    tip = {"kernel": "kernel", "series": "series", "calls": "calls"}
    layers = [
        draw.layer("bars", "bar", x="_zero", x2="calls", **draw.BOX, color=colour, tip=tip),
        draw.layer("bars", "text", x="calls", y="_middle", text="_text", align="left", dx=4, fontSize=10),
    ]
    longest = max(max(calls[kernel].values()) for kernel in most)
    x = draw.axis("calls", {"domain": [0, longest * 1.15], "nice": False}, format=",d", tickCount=5)
    title = f"Kernels that ran{' under emulation' if place.emulated else ''}, by calls"
    spec = draw.labelled({"rows": rows, "bars": bars}, layers, x, height)
    return Chart(name, title, f"{'; '.join(said)}.", spec, source)
