"""Several runs on one page, side by side: number formats, platforms, or before and after a change.

Nothing is judged across runs here: they were made at different times or places. `sme2prof compare` does that.
"""

from __future__ import annotations

from collections.abc import Sequence

from model_profiling.report.breakdown import break_down
from model_profiling.report.data import ReportData
from model_profiling.report.document import Block, Code, Heading, Paragraph, Strong, make_list, make_table
from model_profiling.report.operator_sections import headline_series
from model_profiling.report.verdict import speedup_text, verdict
from model_profiling.wording import MISSING, milliseconds

_Named = Sequence[tuple[str, ReportData]]


def combined_document(runs: Sequence[ReportData], title: str) -> list[Block]:
    """The whole page; `runs` are columns, in the order given."""
    named = list(zip(_names(runs), runs, strict=True))
    return [
        Heading(title, 1),
        Paragraph(
            "Runs side by side. Differences between runs are not judged here: they were measured at "
            "different times or places (`sme2prof compare` judges two of them)."
        ),
        Heading("Verdicts"),
        *(
            Paragraph((Strong(name), " (", Code(str(data.run.path)), f"). {' '.join(verdict(data))}"))
            for name, data in named
        ),
        Heading("Latency"),
        _latency(named),
        Heading("Speedups"),
        _speedups(named),
        *_shares(named),
        Heading("Kernels and numerics"),
        *_evidence(named),
        *_advice(named),
    ]


def _names(runs: Sequence[ReportData]) -> list[str]:
    """The shortest names that tell the runs apart."""
    for count in (1, 2, 3):
        names = [", ".join((data.model, data.run.platform, str(data.run.path))[:count]) for data in runs]
        if len(set(names)) == len(names) and all(names):
            return names
    return [f"{number}: {data.model} {data.run.path}" for number, data in enumerate(runs, start=1)]


def _latency(named: _Named) -> Block:
    rows = []
    for name, data in named:
        if not data.timed:
            rows.append((name, data.cpu, MISSING, MISSING, "no latency: not measured on hardware", MISSING))
            continue
        for experiment in data.experiments:
            found = experiment.latency.end_to_end_ms if experiment.latency else None
            threads = MISSING if experiment.series.threads is None else str(experiment.series.threads)
            middle = milliseconds(found.median) if found else MISSING
            spread = f"{milliseconds(found.p5)} to {milliseconds(found.p95)}" if found else MISSING
            rows.append((name, data.cpu or MISSING, experiment.series.experiment, threads, middle, spread))
    headers = ("run", "CPU", "experiment", "threads", "median ms without tracer", "5% to 95%")
    return make_table(headers, rows, numbers=(3, 4))


def _speedups(named: _Named) -> Block:
    rows = [
        (
            name,
            pair.label,
            speedup_text(pair.speedup) if pair.speedup.ratio is not None else MISSING,
            pair.speedup.verdict.value,
            "" if pair.comparable else pair.speedup.reason,
        )
        for name, data in named
        for pair in data.pairs
    ]
    if not rows:
        return Paragraph("Nothing was compared.")
    return make_table(("run", "comparison", "speedup", "verdict", "why not"), rows)


def _shares(named: _Named) -> list[Block]:
    """What every category takes in the typical runs, one column per run directory that has times."""
    timed = [
        (name, break_down(series))
        for name, data in named
        if data.timed and (series := headline_series(data)) is not None
    ]
    if not timed:
        return []
    rows = [
        (part, *("{} ({})".format(*shown.parts[part].cells) for _, shown in timed))
        for part in timed[0][1].parts
    ]
    rows.append(("End to end, traced", *(shown.end_to_end.cells[0] for _, shown in timed)))
    headers = ("ms (share)", *(f"{name}: {shown.series.name}" for name, shown in timed))
    return [Heading("Where the time goes"), make_table(headers, rows, numbers=range(1, len(headers)))]


def _evidence(named: _Named) -> list[Block]:
    rows = [
        (name, place.source, str(kernels.series), kernels.sme.text)
        for name, data in named
        for place in data.evidence
        for kernels in place.kernels
    ]
    parity = [
        f"{name}: outputs of {found.candidate} against {found.baseline} ({place.source}): "
        f"{found.verdict if found.parity else f'not compared, {found.reason}'}"
        for name, data in named
        for place in data.evidence
        for found in place.parity
    ]
    headers = ("run", "from", "experiment", "what the evidence says")
    shown: Block = make_table(headers, rows) if rows else Paragraph("No kernel evidence.")
    return [shown, *make_list(parity)]


def _advice(named: _Named) -> list[Block]:
    lines = make_list(
        f"{name}: {data.findings[0].title} ({data.findings[0].subject}). {data.findings[0].action}."
        for name, data in named
        if data.findings and data.timed
    )
    return [Heading("First thing to do"), *lines] if lines else []
