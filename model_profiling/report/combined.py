"""Several runs in one Markdown page, side by side: number formats, platforms, or before and after a change.

Nothing is judged across runs here: they were made at different times or places. `sme2prof compare` does that.
"""

from __future__ import annotations

from collections.abc import Sequence

from model_profiling.report.data import ReportData
from model_profiling.report.markdown_operators import headline_series
from model_profiling.report.markdown_text import MISSING, bullets, code, ms, percent, table
from model_profiling.report.verdict import speedup_text, verdict


def render_combined(runs: Sequence[ReportData], title: str) -> str:
    """The whole page; `runs` are columns, in the order given."""
    names = _names(runs)
    parts = [
        f"# {title}",
        "Runs side by side. Differences between runs are not judged here: they were measured at different "
        "times or places (`sme2prof compare` judges two of them).",
        "## Verdicts",
        "\n\n".join(
            f"**{name}** ({code(run.run_dir)}). {' '.join(verdict(run))}"
            for name, run in zip(names, runs, strict=True)
        ),
        "## Latency",
        _latency(names, runs),
        "## Speedups",
        _speedups(names, runs),
    ]
    if shares := _shares(names, runs):
        parts += ["## Where the time goes", shares]
    parts += ["## Kernels and numerics", _evidence(names, runs)]
    if advice := _advice(names, runs):
        parts += ["## First thing to do", advice]
    return "\n\n".join(parts) + "\n"


def _names(runs: Sequence[ReportData]) -> list[str]:
    """The shortest names that tell the runs apart."""
    for fields in (("model",), ("model", "platform"), ("model", "platform", "run_dir")):
        names = [", ".join(str(getattr(run, field)) for field in fields) for run in runs]
        if len(set(names)) == len(names) and all(names):
            return names
    return [f"{number}: {run.model} {run.run_dir}" for number, run in enumerate(runs, start=1)]


def _latency(names: Sequence[str], runs: Sequence[ReportData]) -> str:
    rows = []
    for name, run in zip(names, runs, strict=True):
        if not run.timings_are_latency:
            rows.append((name, run.cpu, MISSING, MISSING, "no latency: not measured on hardware", MISSING))
            continue
        for one in run.experiments:
            found = one.end_to_end
            threads = MISSING if one.series.threads is None else str(one.series.threads)
            middle = ms(found.median) if found else MISSING
            spread = f"{ms(found.p5)} to {ms(found.p95)}" if found else MISSING
            rows.append((name, run.cpu or MISSING, one.series.experiment, threads, middle, spread))
    headers = ("run", "CPU", "experiment", "threads", "median ms without tracer", "5% to 95%")
    return table(headers, rows, numbers=(3, 4))


def _speedups(names: Sequence[str], runs: Sequence[ReportData]) -> str:
    rows = [
        (
            name,
            pair.label,
            speedup_text(pair.speedup) if pair.speedup.ratio is not None else MISSING,
            pair.speedup.verdict.value,
            "" if pair.comparable else pair.speedup.reason,
        )
        for name, run in zip(names, runs, strict=True)
        for pair in run.pairs
    ]
    return (
        table(("run", "comparison", "speedup", "verdict", "why not"), rows)
        if rows
        else "Nothing was compared."
    )


def _shares(names: Sequence[str], runs: Sequence[ReportData]) -> str:
    """What every category takes in a typical run, one column per run directory that has times."""
    timed = [
        (name, series)
        for name, run in zip(names, runs, strict=True)
        if run.timings_are_latency and (series := headline_series(run)) is not None
    ]
    if not timed:
        return ""
    spent = [{part: series.spent(ns) for part, ns in series.parts.items()} for _, series in timed]
    rows = [
        (part, *(f"{ms(one[part].ms)} ({percent(one[part].share)})" for one in spent)) for part in spent[0]
    ]
    rows.append(("End to end, traced", *(ms(series.latency.median) for _, series in timed)))
    headers = ("median ms (share)", *(f"{name}: {series.name}" for name, series in timed))
    return table(headers, rows, numbers=range(1, len(headers)))


def _evidence(names: Sequence[str], runs: Sequence[ReportData]) -> str:
    rows = [
        (name, evidence.source, str(kernels.series), kernels.sme.text)
        for name, run in zip(names, runs, strict=True)
        for evidence in run.evidence
        for kernels in evidence.kernels
    ]
    parity = [
        f"{name}: outputs of {report.candidate} against {report.baseline} ({evidence.source}): "
        f"{report.parity.verdict if report.parity else f'not compared, {report.reason}'}"
        for name, run in zip(names, runs, strict=True)
        for evidence in run.evidence
        for report in evidence.parity
    ]
    shown = (
        table(("run", "from", "experiment", "what the evidence says"), rows)
        if rows
        else "No kernel evidence."
    )
    return "\n\n".join(part for part in (shown, bullets(parity)) if part)


def _advice(names: Sequence[str], runs: Sequence[ReportData]) -> str:
    return bullets(
        f"{name}: {run.findings[0].title} ({run.findings[0].subject}). {run.findings[0].action}."
        for name, run in zip(names, runs, strict=True)
        if run.findings and run.timings_are_latency
    )
