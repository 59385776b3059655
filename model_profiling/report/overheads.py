"""What the time in no operator is: why it is there, and what of it the tracer takes."""

from __future__ import annotations

from collections.abc import Iterator

from model_profiling.analysis.causes.between_operators import is_cut, short_operators
from model_profiling.analysis.series import FRAMEWORK, UNATTRIBUTED, SeriesAnalysis
from model_profiling.report.breakdown import break_down
from model_profiling.wording import milliseconds, percent, plural

EXPLAINED = 0.10
"""Of end-to-end time: overheads that are more are explained wherever they are shown."""
TRACER_SAID = 0.01
"""Of end-to-end time: what the tracer must take for it to be said."""


def explained(series: SeriesAnalysis) -> Iterator[str]:
    """A sentence for each overhead that is more than a tenth, and one where tracing distorts."""
    if distorted := distortion_text(series):
        yield distorted
    for name, part in ((UNATTRIBUTED, "unattributed"), (FRAMEWORK, "framework")):
        if series.spent(getattr(series.breakdown, part)).share > EXPLAINED:
            share = break_down(series).parts[name].cells[1]
            yield f"{name} ({share}) is {why(series, name)}."


def distortion_text(series: SeriesAnalysis) -> str:
    """That shares of the traced time are not those of the time without the tracer; empty where they are."""
    if not series.distorted or series.untraced_ms is None:
        return ""
    return (
        f"Tracing distorts {series.name}: an inference takes {cost_text(series)} longer with the tracer on "
        f"({milliseconds(series.e2e_ms)} instead of {milliseconds(series.untraced_ms)} ms). Operators' own "
        f"times hold, but {percent(series.tracing.share)} of what shares are of is the tracer's."
    )


def cost_text(series: SeriesAnalysis) -> str:
    return f"{100 * (series.tracer_cost or 0.0):.0f}%"


def why(series: SeriesAnalysis, name: str) -> str:
    """What an overhead is made of, as the rest of a sentence."""
    calls = plural(series.first.delegate_calls, "delegate call")
    inside = sum(operator.delegated for operator in series.operators)
    if name == FRAMEWORK:
        text = f"the runtime's own work around {_all_calls(series)}"
        if not is_cut(series) and inside:
            text += ", and the delegates' around their operators"
    elif not inside:
        text = f"{calls} of backends that tell of no operators"
    else:
        short = short_operators(series)
        text = f"time of {calls} in none of their {plural(inside, 'operator')}"
        if is_cut(series):
            text += (
                f", of which {short} take less than a microsecond: XNNPACK's clock cuts each down to whole "
                "microseconds, so about half a microsecond of each is here"
            )
    tracing = series.tracing
    if tracing.share >= TRACER_SAID:
        text += (
            f"; of all overheads, {milliseconds(tracing.ms)} ms ({percent(tracing.share)}) are the tracer's"
        )
    elif series.untraced_ms is None:
        text += "; what the tracer takes of it was not measured"
    return text


def _all_calls(series: SeriesAnalysis) -> str:
    first = series.first
    return plural(first.delegate_calls + first.operator_calls, "call")
