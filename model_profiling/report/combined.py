"""Several runs on one page: number formats, platforms, devices, models, commits; or a list of runs.

The page shows each run's latency, then where its time goes, and says which runs took turns. It does not judge
differences between runs; `sme2prof compare` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config.series import Series
from model_profiling.core.formatting import MISSING, listing, milliseconds, plural, span, speedup
from model_profiling.program.category import Category
from model_profiling.report import document as doc
from model_profiling.report import pair_text
from model_profiling.report.breakdown import break_down
from model_profiling.report.cells import median_cell, series_columns, sme2_switch, spread_cell
from model_profiling.report.charts.categories import latency_bars, parts_bars
from model_profiling.report.data import ExperimentReport, ReportData
from model_profiling.report.html import render_html
from model_profiling.report.operator_sections import headline_series
from model_profiling.report.terms import with_terms
from model_profiling.report.verdict import answers, headline_pair, outputs_differ
from model_profiling.runs import Times
from model_profiling.runs.times import marked

_Runs = Sequence[pair_text.NamedRun]


def combined_title(runs: Sequence[ReportData]) -> str:
    models = dict.fromkeys(run.facts["model"] for run in pair_text.name_runs(runs))
    of = next(iter(models)) if len(models) == 1 else plural(len(models), "model")
    return f"{of}: {plural(len(runs), 'run')} side by side"


def combined_document(runs: Sequence[ReportData], title: str) -> list[doc.Block]:
    named = pair_text.name_runs(runs)
    blocks = [
        doc.Heading(title, 1),
        *_opening(named),
        doc.Heading("Latency"),
        *_latency(named),
        *_speedups(named),
        *_where_time_goes(named),
        *_where_work_is(named),
        doc.Heading("What each run says"),
        *(block for run in named for block in _run_answers(run)),
        doc.Heading("Kernels and numerics"),
        *_evidence(named),
        doc.Heading("The runs"),
        *_differences(named),
    ]
    return list(with_terms(blocks))


def _opening(runs: _Runs) -> Iterator[doc.Block]:
    shifts = [_shift(run) for run in runs]
    yield from doc.make_list(text for text in shifts if text)
    if len(runs) > 1:
        told = (doc.Code("sme2prof compare"), " says which of two runs is faster, and how sure that is.")
        yield doc.Paragraph((f"{_how_made(runs)} ", *told))


def _how_made(runs: _Runs) -> str:
    """Say which runs took turns, so that their latencies were measured under the same conditions."""
    groups = pair_text.in_turns(runs)
    if len(groups) == 1 and len(groups[0]) == len(runs):
        return "These runs took turns on one machine."
    turns = "".join(f"{listing(group)} took turns on one machine. " for group in groups)
    return f"{turns}{'All other' if groups else 'These'} runs were made at different times or places."


def _shift(run: pair_text.NamedRun) -> str:
    """Describe what SME2, or whatever the first comparison is about, changed in one run."""
    pair = headline_pair(run.data)
    if pair is None:
        return ""
    said = (
        f"{_label(run)}: {pair.label} {pair_text.speedup_text(pair.speedup)}, {pair.speedup.verdict.value}."
    )
    if outputs_differ(run.data, pair):
        return f"{said} But the outputs differ by more than rounding: do not trust this speed."
    return (
        f"{said} {pair_text.shift_text(*pair_text.largest_parts(pair.side_by_side), pair.side_by_side.sides)}"
        if pair.side_by_side
        else said
    )


def _latency(runs: _Runs) -> Iterator[doc.Block]:
    bars = [
        (_of_run(run, found.series), _switch(found, run.data), found.untraced)
        for run in runs
        for found in run.data.experiments
        if found.untraced
    ]
    if bars:
        yield latency_bars(bars)
    named = series_columns({series for run in runs for series in run.data.run.series})
    rows = [row for run in runs for row in _latency_rows(run, named)]
    headers = [column.header for column in named]
    headers = ["run", "device", *headers, "SME2", "median ms without tracer", "5% to 95%", "measured"]
    numbers = [place for place, header in enumerate(headers) if header == "threads" or " ms " in header]
    yield doc.make_table(headers, rows, numbers)
    yield from doc.make_list(
        f"{run.name}: {pair_text.what_times_are(run.data)}."
        for run in runs
        if not run.data.timed or run.data.is_arm is False
    )


def _label(run: pair_text.NamedRun) -> str:
    """Return the run's name, marked if its times are not from known Arm hardware."""
    if run.data.times is Times.UNKNOWN:
        return f"{run.name} (unknown machine)"
    return marked(run.name, run.data.is_arm)


def _of_run(run: pair_text.NamedRun, series: Series) -> str:
    """Return the run's name, and the series if the run has several."""
    return ", ".join(filter(None, (_label(run), series.among(run.data.run.series))))


def _latency_rows(
    run: pair_text.NamedRun, named: Sequence[doc.Column[ExperimentReport]]
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


def _speedups(runs: _Runs) -> list[doc.Block]:
    rows = [
        (
            run.name,
            pair.label,
            pair_text.speedup_text(pair.speedup) if pair.speedup.ratio is not None else MISSING,
            pair.speedup.verdict.value,
            "" if pair.comparable else pair.speedup.reason,
        )
        for run in runs
        for pair in run.data.pairs
    ]
    headers = ("run", "comparison", "speedup", "verdict", "why not")
    return [doc.Heading("Speedups"), doc.make_table(headers, rows)] if rows else []


def _pictured_series(run: pair_text.NamedRun) -> list[tuple[str, SeriesAnalysis]]:
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
    bars = [(f"{_label(run)}{f', {side}' if side else ''}", found) for run, side, found in shown]
    yield parts_bars(bars, shares=False)
    yield parts_bars(bars, shares=True)
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


def _where_work_is(runs: _Runs) -> Iterator[doc.Block]:
    """Show runs without meaningful times by the amount of work they do."""
    rows = [
        (run.name, series.name, *(_work(series, category) for category in Category))
        for run in runs
        for _, series in _pictured_series(run)
        if not series.times.are_shown
    ]
    if rows:
        yield doc.Heading("Where the work is")
        yield doc.Paragraph(
            "Runs without latencies: operators, and in brackets million arithmetic operations."
        )
        headers = ("run", "experiment", *(category.value for category in Category))
        yield doc.make_table(headers, rows, numbers=range(2, len(headers)))


def _work(series: SeriesAnalysis, category: Category) -> str:
    members = [operator for operator in series.operators if operator.category is category]
    known = [found.source.flops for found in members if found.source.flops is not None]
    return f"{len(members)} ({sum(known) / 1e6:.1f})" if known else str(len(members))


def _run_answers(run: pair_text.NamedRun) -> list[doc.Block]:
    told = answers(run.data)
    notes = doc.make_list(told.notes)
    return [
        doc.Heading(run.name, 3),
        doc.Paragraph(doc.Code(run.data.run.called)),
        told.block,
        *([doc.Folded("Also to know", tuple(notes))] if notes else []),
    ]


def _evidence(runs: _Runs) -> list[doc.Block]:
    rows = [
        (run.name, place.named(kernels.series), kernels.sme.text)
        for run in runs
        for place in run.data.evidence
        for kernels in place.kernels
    ]
    parity = [
        f"{run.name}: outputs of {found.candidate} and {found.baseline} in {place.source}: {found.text}"
        for run in runs
        for place in run.data.evidence
        for found in place.parity
    ]
    headers = ("run", "source", "kernel evidence")
    shown: doc.Block = doc.make_table(headers, rows) if rows else doc.Paragraph("No kernel evidence.")
    return [shown, *doc.make_list(parity)]


def _differences(runs: _Runs) -> Iterator[doc.Block]:
    alike, differing = pair_text.shared_and_differing(runs)
    if alike:
        yield doc.Paragraph(f"All of them: {'; '.join(f'{key} {value}' for key, value in alike.items())}.")
    # A run's name may say all of it.
    differing = [key for key in differing if any(run.facts[key] != run.name for run in runs)]
    if differing:
        rows = [(run.name, *(run.facts[key] or MISSING for key in differing)) for run in runs]
        yield doc.make_table(("run", *differing), rows)
    first, others = pair_text.against_the_first(runs)
    for reason, names in others.items():
        sides = f"{listing(names)} and {first.name}"
        if reason:
            yield doc.Paragraph(f"Times of {sides} are not comparable: {reason}.")
        else:
            yield doc.Paragraph((doc.Code("sme2prof compare"), f" can compare {sides}."))


# A list of many runs.

_HEADERS = ("run", "device", "measured", "latency", "experiment", "speedup", "verdict")


@dataclass(frozen=True, slots=True)
class IndexRow:
    """A run in a list of many, made from existing files without reading dumps. Texts are as shown."""

    place: str
    """The run directory, relative to the page."""
    link: str = ""
    """Its report, relative to the page; empty if there is none."""
    model: str = ""
    format: str = ""
    device: str = ""
    date: str = ""
    latency_value: float | None = None
    """The median in milliseconds."""
    measured: str = ""
    """The series that the latency belongs to."""
    speedup: str = ""
    verdict: str = ""
    problem: str = ""


def index_row(data: ReportData, place: str, link: str) -> IndexRow:
    model, exported = pair_text.model_and_format(data)
    headline = data.headline.summary if data.headline else None
    pair = headline_pair(data)
    said = [f"{pair.label}: {pair.speedup.verdict.value}"] if pair else []
    if pair and outputs_differ(data, pair):
        said.append("outputs differ by more than rounding")
    if not pair or data.is_arm is False:
        said.append(pair_text.what_times_are(data))
    verdict = "; ".join(said)
    state = data.run.manifest.unfinished if data.run.manifest else None
    return IndexRow(
        place=place,
        link=link,
        model=model,
        format=exported,
        device=data.device,
        date=data.date,
        latency_value=headline.median if headline else None,
        measured=str(data.headline.series) if data.headline and headline else "",
        speedup=speedup(pair.speedup.ratio) if pair else "",
        verdict=f"{verdict} ({state})" if state else verdict,
    )


def damaged_row(place: str, problem: str) -> IndexRow:
    return IndexRow(place=place, model=Path(place).name, problem=problem)


def render_index(rows: Sequence[IndexRow], title: str, pages: Iterable[tuple[str, str]] = ()) -> str:
    """The page of `rows`; `pages` are links to pages about several runs, each with what it answers."""
    groups: dict[str, list[IndexRow]] = {}
    for row in sorted(rows, key=lambda row: (row.model, row.format, row.date, row.place)):
        if not row.problem:
            groups.setdefault(f"{row.model}, {row.format}" if row.format else row.model, []).append(row)
    damaged = doc.make_list(
        (doc.Code(row.place), f": {row.problem}")
        for row in sorted(rows, key=lambda row: row.place)
        if row.problem
    )
    links: dict[str, list[doc.Inline]] = {}
    for what, file in pages:
        links[what] = [*links.get(what, ()), *([", "] if what in links else []), doc.Link(file, file)]
    blocks: list[doc.Block] = [
        doc.Heading(title, 1),
        doc.Answers(
            (
                ("What is here?", _contents(rows)),
                *((what, tuple(parts)) for what, parts in links.items()),
            )
        ),
        *(
            block
            for heading, members in groups.items()
            for block in (
                doc.Heading(heading),
                doc.Table(_HEADERS, tuple(map(_cells, members)), numbers=(2, 3, 5), sortable=True),
            )
        ),
        *([doc.Heading("Cannot be read"), *damaged] if damaged else []),
    ]
    return render_html(blocks, title)


def _contents(rows: Sequence[IndexRow]) -> str:
    known = [row for row in rows if not row.problem]
    models, devices = {row.model for row in known}, {row.device for row in known if row.device}
    days = sorted(row.date[:10] for row in known if row.date)
    where = f" on {plural(len(devices), 'device')}" if devices else ""
    when = f", {span(days[0], days[-1])}" if days else ""
    return (
        f"{plural(len(rows), 'run')} of {plural(len(models), 'model')}{where}{when}. "
        "Click a column's name to sort by it."
    )


def _cells(row: IndexRow) -> tuple[doc.Text, ...]:
    name = doc.Link(row.place, row.link) if row.link else f"{row.place} (no report yet)"
    latency = "" if row.latency_value is None else f"{milliseconds(row.latency_value)} ms"
    return name, row.device, row.date, latency, row.measured, row.speedup, row.verdict


# The list of a store.

_STORED = ("run", "model", "device", "measured", "latency", "SME2 kernels", "commit", "tags")


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run in the list of a store. Texts are as shown."""

    name: str
    report: str
    """Its report, relative to the page; empty if there is none."""
    model: str
    device: str
    date: str
    latency: str
    sme2: str
    commit: str
    tags: str


def render_store(runs: Sequence[StoredRun], title: str, count: int) -> str:
    """The page of the newest runs of a store, which has `count`."""
    if not runs:
        contents = "No runs yet: add one with `sme2prof store add RUN_DIR`."
    elif len(runs) < count:
        contents = f"The newest {len(runs):,} of {count:,} runs; `sme2prof query` and `store list` have all."
    else:
        contents = f"{plural(count, 'run')}, newest first. Click a column's name to sort by it."
    rows = tuple(
        (
            doc.Link(run.name, run.report) if run.report else f"{run.name} (no report)",
            run.model, run.device, run.date, run.latency, run.sme2, run.commit, run.tags,
        )
        for run in runs
    )  # fmt: skip
    blocks: list[doc.Block] = [doc.Heading(title, 1), doc.Answers((("What is here?", contents),))]
    if rows:
        blocks += [doc.Heading("Runs"), doc.Table(_STORED, rows, numbers=(3, 4), sortable=True)]
    return render_html(blocks, title)
