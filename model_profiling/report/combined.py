"""Several runs on one page: side by side (number formats, platforms, models, commits), or as a list.

The pages do not judge differences between runs; `sme2prof compare` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config import names
from model_profiling.core.formatting import MISSING, milliseconds, plural, speedup
from model_profiling.report import document as doc
from model_profiling.report.breakdown import break_down, median_cell, series_columns, sme2_switch, spread_cell
from model_profiling.report.charts import named as drawn_name
from model_profiling.report.data import (
    ExperimentReport,
    ReportData,
    headline_pair,
    headline_series,
    outputs_differ,
)
from model_profiling.report.html import render_html
from model_profiling.report.run_charts import stacked
from model_profiling.report.verdict import answers
from model_profiling.runs import Times
from model_profiling.runs.times import marked


@dataclass(frozen=True, slots=True)
class NamedRun:
    name: str
    data: ReportData
    link: str = ""
    """Its report, relative to the page; empty if the page does not link to it."""


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
    """Name each run by few facts that distinguish it, or by its model if all are alike. If models differ, the
    name includes the model: a platform and a date alone would say nothing."""
    facts = []
    for data in runs:
        # The CPU name that an emulator reports is not a real device.
        device = "emulated" if data.times is Times.EMULATED else data.device
        facts.append((*model_and_format(data), device, data.run.platform, data.date))

    def named_by(places: Sequence[int]) -> list[str]:
        return [", ".join(known[place] for place in places if known[place]) for known in facts]

    chosen: tuple[int, ...] = ()
    for place in range(len(facts[0])):
        if len(set(named_by((*chosen, place)))) > len(set(named_by(chosen))):
            chosen = (*chosen, place)
    shown = [name or data.run.path.name for name, data in zip(named_by(chosen or (0,)), runs, strict=True)]
    named = []
    for number, (name, data) in enumerate(zip(shown, runs, strict=True), start=1):
        numbered = f"{name}, run {shown[:number].count(name)}"
        named.append(NamedRun(numbered if shown.count(name) > 1 else name, data))
    return named


_Runs = Sequence[NamedRun]


def combined_title(runs: Sequence[ReportData]) -> str:
    models = dict.fromkeys(model_and_format(data)[0] for data in runs)
    of = next(iter(models)) if len(models) == 1 else plural(len(models), "model")
    return f"{of}: {plural(len(runs), 'run')} side by side"


def combined_document(runs: Sequence[ReportData], title: str) -> list[doc.Block]:
    named = name_runs(runs)
    return [
        doc.Heading(title, 1),
        doc.Heading("Latency"),
        *latency_blocks(named),
        *_where_time_goes(named),
        doc.Heading("What each run says"),
        *(block for run in named for block in _run_answers(run)),
        doc.Paragraph(
            (doc.Code("sme2prof compare"), " says which of two is faster, or why they cannot be compared.")
        ),
    ]


def latency_blocks(runs: _Runs) -> Iterator[doc.Block]:
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


def _latency_rows(
    run: NamedRun, named: Sequence[doc.TableColumn[ExperimentReport]]
) -> Iterator[tuple[doc.Text, ...]]:
    name = doc.PageLink(run.name, run.link) if run.link else run.name
    device = marked(run.data.device or MISSING, run.data.is_arm)
    if not run.data.timed:
        unknown = (MISSING,) * (len(named) + 2)
        yield name, device, *unknown, "no latency: not measured on hardware", MISSING
        return
    for found in run.data.experiments:
        switch = sme2_switch(found.sme2, absent=run.data.has_sme2 is False)
        cells = (*(column.cell(found) for column in named), switch)
        measured = found.latency.measured if found.latency else MISSING
        yield name, device, *cells, median_cell(found.untraced), spread_cell(found.untraced), measured


def _pictured_series(run: NamedRun) -> list[tuple[str, SeriesAnalysis]]:
    """Return the series to chart, with names: both sides of the headline comparison, or else one series."""
    pair = headline_pair(run.data)
    if pair is not None and (pairing := pair.side_by_side) is not None:
        return list(zip(pairing.sides, (pairing.baseline, pairing.candidate), strict=True))
    series = headline_series(run.data)
    return [(series.series.among(run.data.run.series), series)] if series is not None else []


def _where_time_goes(runs: _Runs) -> Iterator[doc.Block]:
    """Each run is a row and a bar, so that any number of runs fits."""
    shown = {
        ", ".join(filter(None, (_label(run), side))): break_down(series)
        for run in runs
        for side, series in _pictured_series(run)
        if series.times.are_shown
    }
    if not shown:
        return
    yield doc.Heading("Where the time goes")
    bars = {drawn_name(name): found for name, found in shown.items()}
    yield stacked(bars, "categories", "Where the time goes")
    rows = [
        (name, *("{} ({})".format(*part.cells) for part in found.parts.values()), found.end_to_end.cells[0])
        for name, found in shown.items()
    ]
    parts = next(iter(shown.values())).parts
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


# The runs of a folder or of a store as a list.

_OF_FOLDER = ("run", "model", "device", "measured", "latency", "experiment", "speedup", "verdict")
_OF_STORE = ("run", "model", "device", "measured", "latency", "commit", "tags")


def listed_run(data: ReportData, place: str, link: str) -> tuple[doc.Text, ...]:
    """The row of a run in the list of a folder, made without reading dumps. `place` is the run directory and
    `link` its report, both relative to the page; without a report, `link` is empty."""
    headline = data.headline.summary if data.headline else None
    pair = headline_pair(data)
    said = [f"{pair.label}: {pair.speedup.verdict.value}"] if pair else []
    if pair and outputs_differ(data, pair):
        said.append("outputs differ by more than rounding")
    if not pair or data.is_arm is False:
        said.append(what_times_are(data))
    verdict = "; ".join(said)
    state = data.run.manifest.unfinished if data.run.manifest else None
    return (
        doc.PageLink(place, link) if link else f"{place} (no report yet)",
        " ".join(filter(None, model_and_format(data))),
        data.device,
        data.date,
        f"{milliseconds(headline.median)} ms" if headline else "",
        str(data.headline.series) if data.headline and headline else "",
        speedup(pair.speedup.ratio) if pair else "",
        f"{verdict} ({state})" if state else verdict,
    )


def render_folder(runs: Sequence[Sequence[doc.Text]], damaged: Sequence[tuple[str, str]], title: str) -> str:
    """The page of a folder; `damaged` are the places of runs that cannot be read, each with the problem."""
    contents = f"{plural(len(runs) + len(damaged), 'run')}. Click a column's name to sort by it."
    problems = doc.make_list((doc.Code(place), f": {problem}") for place, problem in damaged)
    more = [doc.Heading("Cannot be read"), *problems] if problems else []
    return _render_list(_OF_FOLDER, runs, title, contents, more)


def render_store(runs: Sequence[Sequence[doc.Text]], title: str, count: int) -> str:
    """The page of the newest runs of a store, which has `count`."""
    if not runs:
        contents = "No runs yet: add one with `sme2prof store add RUN_DIR`."
    elif len(runs) < count:
        contents = f"The newest {len(runs):,} of {count:,} runs; `sme2prof query` and `store list` have all."
    else:
        contents = f"{plural(count, 'run')}, newest first. Click a column's name to sort by it."
    return _render_list(_OF_STORE, runs, title, contents)


def _render_list(
    headers: tuple[str, ...],
    runs: Sequence[Sequence[doc.Text]],
    title: str,
    contents: str,
    more: Sequence[doc.Block] = (),
) -> str:
    blocks: list[doc.Block] = [doc.Heading(title, 1), doc.Answers((("What is here?", contents),))]
    if runs:
        table = doc.ShownTable(headers, tuple(map(tuple, runs)), numbers=(3, 4), sortable=True)
        blocks += [doc.Heading("Runs"), table]
    return render_html([*blocks, *more], title)
