"""What each step brings, and which kernels ran how often."""

from __future__ import annotations

from collections.abc import Sequence

from model_profiling.analysis.evidence import PlaceEvidence
from model_profiling.analysis.kernel_names import Kernel
from model_profiling.core.formatting import MISSING, milliseconds, plural
from model_profiling.report.charts.drawing import (
    MOST_SERIES,
    ROW,
    About,
    Row,
    across,
    box,
    colours,
    down,
    make_chart,
    named,
    row_labels,
    series_colour,
    series_legend,
    tooltips,
)
from model_profiling.report.data import ExperimentReport, ReportData
from model_profiling.report.document import Chart
from model_profiling.run import names
from model_profiling.statistics.latency import LatencySummary

# What each step brings: more threads, or one CPU feature more.

_FEWEST_RUNGS = 3


def threads_chart(data: ReportData) -> Chart | None:
    """Latency over the number of threads, for every experiment that has several."""
    import altair as alt

    members: dict[str, list[tuple[int, LatencySummary]]] = {}
    for found in data.experiments:
        if found.series.threads and found.summary is not None:
            members.setdefault(named(found.series.experiment), []).append(
                (found.series.threads, found.summary)
            )
    several = {
        name: sorted(known, key=lambda each: each[0]) for name, known in members.items() if len(known) > 1
    }
    several = dict(list(several.items())[:MOST_SERIES])
    if not several:
        return None
    rows: list[Row] = [
        {
            "experiment": name,
            "threads": threads,
            "median": round(summary.median, 5),
            "p5": round(summary.p5, 5),
            "p95": round(summary.p95, 5),
            "_text": f"{milliseconds(summary.median)} ms",
        }
        for name, known in several.items()
        for threads, summary in known
    ]
    painted = colours(several)
    scale = alt.Scale(domain=list(painted), range=list(painted.values()))
    colour = alt.Color("experiment:N", scale=scale, legend=series_legend())
    shape = alt.Shape("experiment:N", scale=alt.Scale(domain=list(painted)), legend=series_legend())
    top = max(summary.p95 for known in several.values() for _, summary in known)
    x = alt.X(
        "threads:O", title="threads", axis=alt.Axis(labelAngle=0), scale=alt.Scale(type="point", padding=0.6)
    )

    def y(field: str) -> alt.Y:
        kept = alt.Scale(domain=[0, top * 1.08], nice=False)
        return alt.Y(f"{field}:Q", title="ms; line: nine in ten", scale=kept, axis=alt.Axis(tickCount=5))

    base = alt.Chart(alt.NamedData(name="rows"))
    tip = tooltips(experiment="experiment:N", threads="threads", median="median ms", p5="5% ms", p95="95% ms")
    drawn = alt.layer(
        base.mark_line(strokeWidth=2, opacity=0.6).encode(x=x, y=y("median"), color=colour),
        base.mark_rule(strokeWidth=2).encode(x=x, y=y("p5"), y2=alt.Y2("p95"), color=colour),
        base.mark_point(filled=True, size=90, opacity=1).encode(
            x=x, y=y("median"), color=colour, shape=shape, tooltip=tip
        ),
        base.mark_text(align="left", dx=10, baseline="middle").encode(
            x=x, y=y("median"), text=alt.Text("_text:N")
        ),
        height=220,
    )
    said = "; ".join(
        f"{name}: "
        + ", ".join(
            f"{milliseconds(summary.median)} ms on {plural(threads, 'thread')}" for threads, summary in known
        )
        for name, known in several.items()
    )
    about = About("threads", "What more threads bring", f"{said}.", f"{names.METRICS}: latencies")
    return make_chart(about, drawn, {"rows": rows})


def ladder_chart(data: ReportData) -> Chart | None:
    """The rungs of an ablation ladder, on the fewest threads: latency and what each rung's feature buys;
    without latencies, how many kinds of kernels ran there."""
    import altair as alt

    rungs = _rungs(data.experiments)
    if not rungs:
        return None
    rows = (_timed_rungs if data.timed else _kernel_rungs)(data, rungs)
    if not any(row["value"] for row in rows):
        return None
    measured = "ms; line: nine in ten"
    x = across(measured if data.timed else "kinds of KleidiAI kernels that ran; no time was measured")
    y, base = down(len(rows)), alt.Chart(alt.NamedData(name="rows"))
    layers = [
        base.mark_bar(color=series_colour(0), opacity=0.8).encode(
            **box(x, y, "_zero", "value"),
            tooltip=tooltips(rung="rung:N", value=measured if data.timed else "kernels"),
        ),
        row_labels(y),
    ]
    if data.timed:
        layers.append(base.mark_rule(strokeWidth=2).encode(x=x("p5"), x2=alt.X2("p95"), y=y("_middle")))
    drawn = alt.layer(*layers, height=ROW * len(rows))
    said = "; ".join(str(row["_label"]) for row in rows)
    source = f"{names.METRICS}: latencies, comparisons" if data.timed else f"the files *{names.KERNELS_CSV}"
    title = "The ladder: what each CPU feature brings"
    return make_chart(About("ladder", title, f"{said}.", source), drawn, {"rows": rows})


def _rungs(experiments: Sequence[ExperimentReport]) -> list[ExperimentReport]:
    """Experiments that differ in what is off, on the fewest threads; none where there is no ladder."""
    known = [found for found in experiments if found.result is not None and not found.problem]
    fewest = min((found.series.threads or 0 for found in known), default=0)
    rungs: dict[tuple[str, ...], ExperimentReport] = {}
    for found in known:
        if found.result and (found.series.threads or 0) == fewest:
            rungs.setdefault(found.result.disable, found)
    return list(rungs.values()) if len(rungs) >= _FEWEST_RUNGS else []


def _timed_rungs(data: ReportData, rungs: Sequence[ExperimentReport]) -> list[Row]:
    gains = {pair.pair.candidate: pair.speedup for pair in data.pairs if pair.comparable}
    rows: list[Row] = []
    for place, found in enumerate(rungs):
        summary, gain = found.summary, gains.get(found.series)
        bought = f", {gain.ratio:.2f}x the rung below" if gain and gain.ratio is not None else ""
        took = milliseconds(summary.median) if summary else MISSING
        label = f"{named(found.series.experiment)}: {took} ms{bought}"
        rows.append(_rung(place, found, label, summary.median if summary else 0.0))
    return rows


def _kernel_rungs(data: ReportData, rungs: Sequence[ExperimentReport]) -> list[Row]:
    ran = {found.series: found.instruction_sets for place in data.evidence[:1] for found in place.kernels}
    rows: list[Row] = []
    for place, found in enumerate(rungs):
        kernels = ran.get(found.series, {})
        text = ", ".join(f"{count} {isa}" for isa, count in kernels.items()) or "no KleidiAI kernel"
        rows.append(_rung(place, found, f"{named(found.series.experiment)}: {text}", sum(kernels.values())))
    return rows


def _rung(place: int, found: ExperimentReport, label: str, value: float) -> Row:
    summary = found.summary
    return {
        "rung": named(found.series.experiment),
        "_row": place,
        "_top": place + 0.48,
        "_bottom": place + 0.9,
        "_middle": place + 0.69,
        "_zero": 0,
        "value": round(value, 5),
        "p5": round(summary.p5, 5) if summary else None,
        "p95": round(summary.p95, 5) if summary else None,
        "_label": label,
    }


# Kernels that ran, by how often they were called, for each series that counted them.

_SHOWN = 8
_MOST_SERIES = 4
_LABEL, _BAR = 26, 15


def kernels_chart(place: PlaceEvidence, name: str, source: str) -> Chart | None:
    """The kernels called most; a bar for each series, so that what one of them lacks is seen."""
    import altair as alt

    counted = [found for found in place.kernels if found.counted][:_MOST_SERIES]
    series = [named(str(found.series)) for found in counted]
    calls: dict[Kernel, dict[str, int]] = {}
    for label, found in zip(series, counted, strict=True):
        for use in found.uses:
            if use.calls and use.evidence == "executed" and use.kernel.library != "operator":
                calls.setdefault(use.kernel, {})[label] = use.calls
    if not calls:
        return None
    most = sorted(calls, key=lambda kernel: -max(calls[kernel].values()))[:_SHOWN]
    height = _LABEL + _BAR * len(series)
    rows: list[Row] = []
    bars: list[Row] = []
    said: list[str] = []
    for row, kernel in enumerate(most):
        rows.append({"_row": row, "_label": f"{kernel.isa}: {named(kernel.name)}"})
        counts = [calls[kernel].get(label, 0) for label in series]
        spoken = ", ".join(
            f"{plural(count, 'call')} in {label}" for count, label in zip(counts, series, strict=True)
        )
        said.append(f"{named(kernel.name)} ({kernel.isa}): {spoken}")
        for lane, (label, count) in enumerate(zip(series, counts, strict=True)):
            top = (_LABEL - 4 + _BAR * lane) / height
            bars.append(
                {
                    "kernel": named(kernel.name),
                    "series": label,
                    "_zero": 0,
                    "calls": count,
                    "_top": round(row + top, 4),
                    "_bottom": round(row + top + (_BAR - 3) / height, 4),
                    "_middle": round(row + top + (_BAR - 3) / height / 2, 4),
                    "_text": f"{count:,}",
                }
            )
    painted = colours(series)
    longest = max(max(calls[kernel].values()) for kernel in most)
    scale = alt.Scale(domain=[0, longest * 1.15], nice=False)
    x, y = across("calls", scale, alt.Axis(format=",d", tickCount=5)), down(len(rows))
    base = alt.Chart(alt.NamedData(name="bars"))
    drawn = alt.layer(
        base.mark_bar().encode(
            **box(x, y, "_zero", "calls"),
            color=alt.Color(
                "series:N",
                scale=alt.Scale(domain=list(painted), range=list(painted.values())),
                legend=series_legend("bars, from top to bottom" if len(series) > 1 else None),
            ),
            tooltip=tooltips(kernel="kernel:N", series="series:N", calls="calls"),
        ),
        base.mark_text(align="left", dx=4, fontSize=10).encode(
            x=x("calls"), y=y("_middle"), text=alt.Text("_text:N")
        ),
        row_labels(y),
        height=height * len(rows),
    )
    title = f"Kernels that ran{' under emulation' if place.emulated else ''}, by calls"
    return make_chart(About(name, title, f"{'; '.join(said)}.", source), drawn, {"rows": rows, "bars": bars})
