"""Lists of runs as a page: those of a folder, and those of a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.core.formatting import milliseconds, plural, span, speedup
from model_profiling.report import document as doc
from model_profiling.report.combined import model_and_format, what_times_are
from model_profiling.report.data import ReportData, headline_pair, outputs_differ
from model_profiling.report.html import render_html

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
    model, exported = model_and_format(data)
    headline = data.headline.summary if data.headline else None
    pair = headline_pair(data)
    said = [f"{pair.label}: {pair.speedup.verdict.value}"] if pair else []
    if pair and outputs_differ(data, pair):
        said.append("outputs differ by more than rounding")
    if not pair or data.is_arm is False:
        said.append(what_times_are(data))
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
