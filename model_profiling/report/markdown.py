"""report.md: the record of a run as Markdown, the answer first.

Sections that have nothing to show are left out, except where their absence is itself the news: no kernel
evidence, no latency. A picture for a section goes under its heading.
"""

from __future__ import annotations

from collections.abc import Callable

from model_profiling.report.data import ExperimentReport, PairReport, ReportData
from model_profiling.report.markdown_evidence import advice, kernels, parity
from model_profiling.report.markdown_operators import backends, categories, operators
from model_profiling.report.markdown_text import (
    MISSING,
    RATIO_NOTE,
    bullets,
    change,
    ms,
    percent,
    size,
    switch,
    table,
)
from model_profiling.report.verdict import verdict

Section = Callable[[ReportData], str]


def render_markdown(data: ReportData) -> str:
    """The whole report."""
    parts = [f"# {data.title}", " ".join(verdict(data))]
    for heading, section in _SECTIONS:
        if body := section(data):
            timed = data.timings_are_latency or section is not categories
            parts += [f"## {heading if timed else 'Where the work is'}", body]
    return "\n\n".join(parts) + "\n"


def latency(data: ReportData) -> str:
    if not data.timings_are_latency:
        place = "an emulator" if data.emulated else "a run that traces kernels"
        return f"None was measured: times on {place} are not latencies, so none are shown."
    parts = []
    if data.pairs:
        parts.append(speedup_table(data))
    measured = [one for one in data.experiments if one.end_to_end is not None]
    if measured:
        parts += [
            "End to end, without the tracer:",
            table(
                ("experiment", "threads", "SME2", "rounds", "median ms", "5% to 95%", "mean ms", "spread"),
                [_latency_row(one, data) for one in measured],
                numbers=(1, 3, 4, 6, 7),
            ),
            "The same runs with the event tracer on, which the operator times below need, and other costs:",
            table(
                (
                    "experiment",
                    "threads",
                    "traced median ms",
                    "tracer's cost",
                    "load ms",
                    "first ms",
                    "memory",
                ),
                [_cost_row(one) for one in measured],
                numbers=(1, 2, 3, 4, 5, 6),
            ),
        ]
    elif any(one.dumps is not None for one in data.experiments):
        parts.append(_from_dumps(data))
    return "\n\n".join(parts)


def speedup_table(data: ReportData) -> str:
    rows = [_speedup_row(pair) for pair in data.pairs]
    headers = ("comparison", "before ms", "after ms", "change", "speedup", "interval", "verdict")
    reasons = [f"{pair.label}: {pair.speedup.reason}." for pair in data.pairs if not pair.comparable]
    judged = RATIO_NOTE if any(pair.speedup.ratio is not None for pair in data.pairs) else ""
    parts = (table(headers, rows, numbers=(1, 2, 3, 4, 5)), bullets(reasons), judged)
    return "\n\n".join(part for part in parts if part)


def _speedup_row(pair: PairReport) -> tuple[str, ...]:
    found = pair.speedup
    interval = MISSING
    if found.low is not None and found.high is not None:
        interval = f"{found.low:.3f} to {found.high:.3f}"
    label = f"{pair.label} (with the tracer)" if pair.with_tracer else pair.label
    return (
        label,
        ms(found.baseline_median),
        ms(found.candidate_median),
        change(found.ratio),
        MISSING if found.ratio is None else f"{found.ratio:.3f}x",
        interval,
        found.verdict.value,
    )


def _latency_row(one: ExperimentReport, data: ReportData) -> tuple[str, ...]:
    summary = one.end_to_end
    assert summary is not None
    return (
        one.series.experiment,
        _threads(one),
        _switch(one, data),
        str(one.rounds),
        ms(summary.median),
        f"{ms(summary.p5)} to {ms(summary.p95)}",
        ms(summary.mean),
        percent(summary.robust_cv),
    )


def _cost_row(one: ExperimentReport) -> tuple[str, ...]:
    cost = MISSING
    if one.tracer_cost is not None:
        cost = f"{100 * one.tracer_cost.share:+.1f}%"
        if one.tracer_cost.low is not None and one.tracer_cost.high is not None:
            cost += f" ({100 * one.tracer_cost.low:+.1f}% to {100 * one.tracer_cost.high:+.1f}%)"
    return (
        one.series.experiment,
        _threads(one),
        ms(one.traced.median if one.traced else None),
        cost,
        ms(one.load_ms),
        ms(one.first_inference_ms),
        size(one.peak_memory_bytes),
    )


def _from_dumps(data: ReportData) -> str:
    rows = [
        (
            one.series.experiment,
            _threads(one),
            _switch(one, data),
            str(one.dumps.runs),
            ms(one.dumps.latency.median),
            f"{ms(one.dumps.latency.p5)} to {ms(one.dumps.latency.p95)}",
        )
        for one in data.experiments
        if one.dumps is not None and one.dumps.timings_are_latency
    ]
    return (
        "Only times with the event tracer on are known; the latency without it was not measured.\n\n"
        + table(("experiment", "threads", "SME2", "runs", "traced median ms", "5% to 95%"), rows, (1, 3, 4))
    )


def _threads(one: ExperimentReport) -> str:
    return MISSING if one.series.threads is None else str(one.series.threads)


def _switch(one: ExperimentReport, data: ReportData) -> str:
    rest = [name for name in one.disabled if name not in ("sme2", "sme")]
    found = switch(one.sme2, absent=data.has_sme2 is False)
    return f"{found} (without {', '.join(rest)})" if rest and one.sme2 is not None else found


def quality(data: ReportData) -> str:
    failed = [f"{one.series} failed: {one.problem}" for one in data.experiments if one.problem]
    if not failed and not data.quality:
        return "Nothing seen that would make the measurement doubtful." if data.timings_are_latency else ""
    return bullets((*failed, *data.quality))


def machine(data: ReportData) -> str:
    known = [fact for fact in data.facts if fact.value]
    return table(("what", "value"), [(fact.label, fact.value) for fact in known]) if known else ""


def reproduce(data: ReportData) -> str:
    return "\n".join(("```", *data.reproduce, "```"))


def remarks(data: ReportData) -> str:
    return bullets(data.remarks)


_SECTIONS: tuple[tuple[str, Section], ...] = (
    ("Latency", latency),
    ("Where the time goes", categories),
    ("Operators", operators),
    ("Portable and delegated", backends),
    ("Kernels", kernels),
    ("Numerical parity", parity),
    ("What to do next", advice),
    ("Measurement quality", quality),
    ("What this report cannot show", remarks),
    ("Machine and versions", machine),
    ("How to reproduce", reproduce),
)
