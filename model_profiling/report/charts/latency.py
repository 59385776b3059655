"""End-to-end latency as pictures: what was compared, and every sample with the median and the usual range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from model_profiling.report.charts.drawing import (
    ROW,
    About,
    Row,
    across,
    box,
    down,
    make_chart,
    named,
    row_labels,
    series_colour,
    thinned,
    tooltips,
)
from model_profiling.report.charts.samples import MOST_SAMPLES, Sampled, files_of, usual_end
from model_profiling.report.data import PairReport
from model_profiling.report.document import Chart
from model_profiling.report.pair_words import speedup_text
from model_profiling.run import names
from model_profiling.wording import milliseconds, plural

_SAMPLED_ROW = 72


def speedups_chart(pairs: Sequence[PairReport]) -> Chart | None:
    """Every comparison's ratio with its interval; 1 is no change."""
    import altair as alt

    rows: list[Row] = []
    ends = [1.0]
    for pair in pairs:
        found, place = pair.speedup, len(rows)
        if not pair.comparable or found.ratio is None:
            continue
        low, high = (found.ratio if end is None else end for end in (found.low, found.high))
        ends += [low, high]
        said = f"{named(pair.label)}: {speedup_text(found)}"
        rows.append(
            {
                "_row": place,
                "_top": place + 0.5,
                "_middle": place + 0.74,
                "_bottom": place + 0.98,
                "_label": said if found.low is None else f"{said}, {found.verdict.value}",
                "_none": 1,
                "comparison": named(pair.label),
                "ratio": round(found.ratio, 4),
                "low": round(low, 4),
                "high": round(high, 4),
            }
        )
    if not rows:
        return None
    scale = alt.Scale(type="log", domain=[min(ends) / 1.04, max(ends) * 1.04], nice=False)
    title = "times as fast; 1 is no change, more is faster"
    x, y = across(title, scale, alt.Axis(format="~g", tickCount=5)), down(len(rows))
    base, colour = alt.Chart(alt.NamedData(name="rows")), series_colour(0)
    shown = tooltips(comparison="comparison:N", ratio="speedup", low="from", high="to")
    drawn = alt.layer(
        base.mark_rule(strokeDash=[3, 3]).encode(x=x("_none"), y=y("_top"), y2=alt.Y2("_bottom")),
        base.mark_bar(height=8, opacity=0.45, color=colour).encode(
            x=x("low"), x2=alt.X2("high"), y=y("_middle"), tooltip=shown
        ),
        base.mark_point(filled=True, size=110, shape="diamond", opacity=1, color=colour).encode(
            x=x("ratio"), y=y("_middle"), tooltip=shown
        ),
        row_labels(y),
        height=ROW * len(rows),
    )
    said = ". ".join(str(row["_label"]) for row in rows)
    title = "What was compared: speedup with its interval"
    return make_chart(
        About("speedups", title, f"{said}.", f"{names.METRICS}: comparisons"), drawn, {"rows": rows}
    )


def latency_chart(found: Sequence[Sampled], title: str, note: str = "") -> Chart | None:
    """Every series with its median, the middle nine in ten, and its samples: one row of dots for a launch."""
    import altair as alt

    if not found:
        return None
    last = usual_end(found)
    most = max(40, MOST_SAMPLES // len(found))
    samples = [row for place, each in enumerate(found) for row in _samples(place, each, most, last)]
    rows: list[Row] = [
        {
            "_row": place,
            "series": each.label,
            "_label": f"{each.label}: {milliseconds(each.summary.median)} ms "
            f"({milliseconds(each.summary.p5)} to {milliseconds(each.summary.p95)})",
            "median": round(each.summary.median, 5),
            "p5": round(each.summary.p5, 5),
            "p95": round(each.summary.p95, 5),
            "_top": place + 0.34,
            "_bottom": place + 0.94,
            "_colour": series_colour(place),
        }
        for place, each in enumerate(found)
    ]
    scale = alt.Scale(
        domain=[min(each.summary.minimum for each in found) * 0.98, last * 1.01], nice=False, zero=False
    )
    x, y = across(_axis_title(found, len(samples), last), scale), down(len(found))
    paint = alt.Color("_colour:N", scale=None)
    base = alt.Chart(alt.NamedData(name="rows"))
    drawn = alt.layer(
        base.mark_bar(opacity=0.22).encode(
            **box(x, y, "p5", "p95"),
            color=paint,
            tooltip=tooltips(series="series:N", median="median ms", p5="5% ms", p95="95% ms"),
        ),
        alt.Chart(alt.NamedData(name="samples"))
        .mark_point(filled=True, size=14, opacity=0.55)
        .encode(
            x=x("_at"),
            y=y("_y"),
            color=paint,
            tooltip=tooltips(series="series:N", launch=found[0].unit, ms="ms"),
        ),
        base.mark_rule(strokeWidth=2.5).encode(x=x("median"), y=y("_top"), y2=alt.Y2("_bottom")),
        row_labels(y),
        height=_SAMPLED_ROW * len(found),
    )
    said = "; ".join(
        f"{each.label}: median {milliseconds(each.summary.median)} ms, nine in ten between "
        f"{milliseconds(each.summary.p5)} and {milliseconds(each.summary.p95)} ms, "
        f"{plural(each.summary.count, 'inference')}"
        for each in found
    )
    about = About("latency", title, f"{note}{said}.", files_of(found))
    return make_chart(about, drawn, {"rows": rows, "samples": samples})


def _samples(place: int, found: Sampled, most: int, last: float) -> Iterator[Row]:
    """Of every launch as many, evenly by size, its fastest and slowest among them; of many launches some."""
    name, colour = found.label, series_colour(place)
    lanes = thinned(
        [(number, sorted(ms)) for number, ms in enumerate(found.rounds, start=1) if ms], most // 2
    )
    for lane, (number, values) in enumerate(lanes):
        for value in thinned(values, max(2, most // len(lanes))):
            yield {
                "series": name,
                "launch": number,
                "ms": round(value, 5),
                "_at": round(min(value, last), 5),
                "_y": round(place + 0.38 + 0.52 * (lane + 0.5) / len(lanes), 4),
                "_colour": colour,
            }


def _axis_title(found: Sequence[Sampled], shown: int, last: float) -> list[str]:
    said = []
    count = sum(each.count for each in found)
    if shown < count:
        said.append(f"{shown:,} of {count:,} inferences shown")
    if beyond := sum(value > last for each in found for values in each.rounds for value in values):
        said.append(f"{plural(beyond, 'slower one')} at the right edge")
    dots = f"; row of dots: {found[0].unit}" if shown else ""
    return [f"ms; line: median, band: nine in ten{dots}", *([", ".join(said)] if said else [])]
