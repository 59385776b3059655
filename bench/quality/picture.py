"""Power curves: how often a method says "slower" over how much more work there is, a panel per condition."""

from __future__ import annotations

from pathlib import Path

from model_profiling.core.files import write_text
from quality.figures import Figures
from quality.methods import ADAPTIVE
from quality.pools import CONDITIONS

# Of each kind the better one, and the plainest; colours that differ in lightness too.
_LINES = {
    "naive: ratio of medians": ("#d08770", [2, 2]),
    "naive, rank test": ("#b5493b", [6, 2]),
    "hyperfine, Welch's test": ("#c9a227", [6, 2]),
    "google-benchmark: interleaved, U test": ("#5b8c5a", [6, 2]),
    "the kit's rounds": ("#7a8ba3", [1, 0]),
    "lockstep, 12 launches": ("#3b6ea8", [1, 0]),
    ADAPTIVE: ("#0b2545", [1, 0]),
}


def draw(path: Path, figures: dict[str, dict[str, Figures]]) -> None:
    """Write the picture as SVG."""
    import altair as alt
    import vl_convert

    rows = [
        {
            "condition": CONDITIONS[name].title,
            "method": title,
            "work": 100 * work,
            "share": 100 * share,
        }
        for name, methods in figures.items()
        for title in _LINES
        for work, share in methods[title].claimed.items()
    ]
    scale = alt.Scale(domain=list(_LINES), range=[colour for colour, _ in _LINES.values()])
    dashes = alt.Scale(domain=list(_LINES), range=[dash for _, dash in _LINES.values()])
    legend = alt.Legend(
        title=None, orient="bottom", columns=2, symbolType="stroke", symbolSize=500, labelLimit=300
    )
    curves = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_line(point=alt.OverlayMarkDef(size=25), strokeWidth=2)
        .encode(
            x=alt.X("work:Q", title="more work, %", axis=alt.Axis(values=[0, 1, 2, 3, 5], grid=False)),
            y=alt.Y("share:Q", title="trials that say it is slower, %", scale=alt.Scale(domain=[0, 100])),
            color=alt.Color("method:N", scale=scale, legend=legend),
            strokeDash=alt.StrokeDash("method:N", scale=dashes, legend=legend),
        )
        .properties(width=220, height=170)
        .facet(
            facet=alt.Facet(
                "condition:N",
                title=None,
                sort=[CONDITIONS[name].title for name in figures],
                header=alt.Header(labelFontSize=13, labelFontWeight="bold"),
            ),
            columns=3,
        )
        .configure(background="white", font="sans-serif", aria=False)
        .configure_axis(labelFontSize=11, titleFontSize=11, titleFontWeight="normal")
        .configure_legend(labelFontSize=12)
    )
    write_text(path, vl_convert.vegalite_to_svg(curves.to_json()))
