"""Several runs on one page: number formats, platforms, devices, models, commits.

The page shows each run's latency, where its time goes, and what it says. It does not judge differences
between runs; `sme2prof compare` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core.formatting import MISSING, plural
from model_profiling.report import document as doc
from model_profiling.report.breakdown import break_down, median_cell, series_columns, sme2_switch, spread_cell
from model_profiling.report.charts import named as drawn_name
from model_profiling.report.charts.categories import several_runs
from model_profiling.report.data import ExperimentReport, ReportData, headline_pair, headline_series
from model_profiling.report.verdict import answers
from model_profiling.runs import Times
from model_profiling.runs.times import marked

# Names for several runs, and what they have in common.

_NAMED_BY = ("model", "format", "platform", "device", "measured")
"""The facts that make a name, in this order; `measured` is a date and a time."""


@dataclass(frozen=True, slots=True)
class NamedRun:
    name: str
    data: ReportData
    facts: dict[str, str]


def model_and_format(data: ReportData) -> tuple[str, str]:
    """Return the model's name and export format; the format is empty for a program from elsewhere."""
    model, variant = names.spoken_variant(data.model or data.run.path.name)
    return model, " ".join(variant)


def what_times_are(data: ReportData) -> str:
    if data.times is Times.UNKNOWN:
        return "recorded on a machine that nothing names"
    if data.times is Times.EMULATED:
        return "emulated: kernels and outputs, no times"
    if data.times is Times.TRACED:
        return "traced for kernels: no latencies"
    if data.is_arm is False:
        return "measured on a CPU that is not Arm: says nothing about Arm"
    known = {True: " with SME2", False: " without SME2", None: ""}[data.has_sme2]
    return f"measured on {'an Arm CPU' if data.is_arm else 'hardware'}{known}"


def name_runs(runs: Sequence[ReportData]) -> list[NamedRun]:
    """Name each run by the fewest facts that distinguish it, or by its model if all are alike. If models
    differ, the name includes the model: a platform and a date alone would say nothing."""
    facts = [_facts(data) for data in runs]
    # The CPU name that an emulator reports is not a real device.
    short = [
        {**known, "device": "emulated"} if data.times is Times.EMULATED else known
        for data, known in zip(runs, facts, strict=True)
    ]
    telling = [key for key in _NAMED_BY if len({known[key] for known in short}) > 1] or ["model"]
    choices = (
        keys
        for count in range(1, len(telling) + 1)
        for keys in combinations(telling, count)
        if "model" in keys or "model" not in telling
    )
    unique = (keys for keys in choices if len({_joined(known, keys) for known in short}) == len(runs))
    keys = next(unique, tuple(telling))
    shown = [_joined(known, keys) or data.run.path.name for known, data in zip(short, runs, strict=True)]
    taken: Counter[str] = Counter()
    shared = Counter(shown)
    named = []
    for name, known, data in zip(shown, facts, runs, strict=True):
        taken[name] += 1
        numbered = name if shared[name] == 1 else f"{name}, run {taken[name]}"
        named.append(NamedRun(numbered, data, known))
    return named


def _joined(facts: dict[str, str], keys: Sequence[str]) -> str:
    return ", ".join(facts[key] for key in keys if facts[key])


def _facts(data: ReportData) -> dict[str, str]:
    model, exported = model_and_format(data)
    manifest = data.run.manifest
    return {
        "model": model,
        "format": exported,
        "platform": data.run.platform,
        "device": data.device,
        "measured": data.date,
        "times": what_times_are(data),
        "ExecuTorch": (manifest.executorch.version or "") if manifest else "",
        "runner build": (manifest.runner.build_id or "") if manifest else "",
        "kit": manifest.kit_version if manifest else "",
    }


_Runs = Sequence[NamedRun]


def combined_title(runs: Sequence[ReportData]) -> str:
    models = dict.fromkeys(run.facts["model"] for run in name_runs(runs))
    of = next(iter(models)) if len(models) == 1 else plural(len(models), "model")
    return f"{of}: {plural(len(runs), 'run')} side by side"


def combined_document(runs: Sequence[ReportData], title: str) -> list[doc.Block]:
    named = name_runs(runs)
    return [
        doc.Heading(title, 1),
        doc.Heading("Latency"),
        *_latency(named),
        *_where_time_goes(named),
        doc.Heading("What each run says"),
        *(block for run in named for block in _run_answers(run)),
        doc.Heading("The runs"),
        *_differences(named),
    ]


def _latency(runs: _Runs) -> Iterator[doc.Block]:
    named = series_columns({series for run in runs for series in run.data.run.series})
    rows = [row for run in runs for row in _latency_rows(run, named)]
    headers = [column.header for column in named]
    headers = ["run", "device", *headers, "SME2", "median ms", "5% to 95%", "measured"]
    numbers = [place for place, header in enumerate(headers) if header in ("threads", "median ms")]
    yield doc.make_table(headers, rows, numbers)
    yield from doc.make_list(
        f"{run.name}: {what_times_are(run.data)}."
        for run in runs
        if not run.data.timed or run.data.is_arm is False
    )


def _label(run: NamedRun) -> str:
    """Return the run's name, marked if its times are not from known Arm hardware."""
    if run.data.times is Times.UNKNOWN:
        return f"{run.name} (unknown machine)"
    return marked(run.name, run.data.is_arm)


def _of_run(run: NamedRun, series: Series) -> str:
    """Return the run's name, and the series if the run has several."""
    return ", ".join(filter(None, (_label(run), series.among(run.data.run.series))))


def _latency_rows(
    run: NamedRun, named: Sequence[doc.Column[ExperimentReport]]
) -> Iterator[tuple[doc.Text, ...]]:
    device = run.data.device or MISSING
    if not run.data.timed:
        unknown = (MISSING,) * (len(named) + 2)
        yield run.name, device, *unknown, "no latency: not measured on hardware", MISSING
        return
    for found in run.data.experiments:
        cells = (*(column.cell(found) for column in named), _switch(found, run.data))
        measured = found.latency.measured if found.latency else MISSING
        yield run.name, device, *cells, median_cell(found.untraced), spread_cell(found.untraced), measured


def _switch(found: ExperimentReport, data: ReportData) -> str:
    return sme2_switch(found.sme2, absent=data.has_sme2 is False)


def _pictured_series(run: NamedRun) -> list[tuple[str, SeriesAnalysis]]:
    """Return the series to chart: both sides of the headline comparison, or else one series."""
    pair = headline_pair(run.data)
    if pair is not None and (pairing := pair.side_by_side) is not None:
        return list(zip(pairing.sides, (pairing.baseline, pairing.candidate), strict=True))
    series = headline_series(run.data)
    return [("", series)] if series is not None else []


def _where_time_goes(runs: _Runs) -> Iterator[doc.Block]:
    """Each run is a row and a bar, so that any number of runs fits."""
    shown = [
        (run, side, break_down(series))
        for run in runs
        for side, series in _pictured_series(run)
        if series.times.are_shown
    ]
    if not shown:
        return
    yield doc.Heading("Where the time goes")
    bars = {drawn_name(f"{_label(run)}{f', {side}' if side else ''}"): found for run, side, found in shown}
    yield several_runs(bars, names.ANALYSIS)
    parts = list(dict.fromkeys(part for _, _, found in shown for part in found.parts))
    rows = [
        (
            f"{_label(run)}, {side}" if side else _of_run(run, found.series.series),
            *(
                "{} ({})".format(*found.parts[part].cells) if part in found.parts else MISSING
                for part in parts
            ),
            found.end_to_end.cells[0],
        )
        for run, side, found in shown
    ]
    # Cells are texts, not numbers, so that a share may stand below its time and the table fits the page.
    yield doc.make_table(("run", *parts, "End to end"), rows)
    yield doc.Paragraph(
        "Milliseconds per inference with the tracer on, and in brackets the share of the run."
    )


def _run_answers(run: NamedRun) -> list[doc.Block]:
    told = answers(run.data)
    notes = doc.make_list(told.notes)
    return [
        doc.Heading(run.name, 3),
        doc.Paragraph(doc.Code(run.data.run.called)),
        told.block,
        *([doc.Folded("Also to know", tuple(notes))] if notes else []),
    ]


def _differences(runs: _Runs) -> Iterator[doc.Block]:
    known = {key: {run.facts[key] for run in runs} for key in runs[0].facts}
    alike = [
        f"{key} {runs[0].facts[key]}" for key, values in known.items() if len(values) == 1 and any(values)
    ]
    if alike:
        yield doc.Paragraph(f"All of them: {'; '.join(alike)}.")
    # A run's name may say all of it.
    differing = [
        key for key, values in known.items() if len(values) > 1 and values != {run.name for run in runs}
    ]
    if differing:
        rows = [(run.name, *(run.facts[key] or MISSING for key in differing)) for run in runs]
        yield doc.make_table(("run", *differing), rows)
    yield doc.Paragraph(
        (doc.Code("sme2prof compare"), " says which of two is faster, or why they cannot be compared.")
    )
