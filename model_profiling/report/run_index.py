"""The page that lists many runs: a table for each model and format, with a row and a link for each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.core.formatting import milliseconds, plural
from model_profiling.report.data import ReportData
from model_profiling.report.document import (
    Block,
    Code,
    Heading,
    Link,
    Paragraph,
    Table,
    Text,
    make_list,
)
from model_profiling.report.html.page import render_html
from model_profiling.report.pair_text import (
    date_of,
    device_of,
    model_and_format,
    speedup_text,
    what_times_are,
)
from model_profiling.report.verdict import headline_pair, outputs_differ

_HEADERS = ("run", "device", "measured", "latency", "of", "speedup", "verdict")


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
        device=device_of(data),
        date=date_of(data),
        latency_value=headline.median if headline else None,
        measured=str(data.headline.series) if data.headline and headline else "",
        speedup=speedup_text(pair.speedup) if pair else "",
        verdict=f"{verdict} ({state})" if state else verdict,
    )


def damaged_row(place: str, problem: str) -> IndexRow:
    return IndexRow(place=place, model=Path(place).name, problem=problem)


def render_index(rows: Sequence[IndexRow], title: str) -> str:
    groups: dict[str, list[IndexRow]] = {}
    for row in sorted(rows, key=lambda row: (row.model, row.format, row.date, row.place)):
        if not row.problem:
            groups.setdefault(f"{row.model}, {row.format}" if row.format else row.model, []).append(row)
    damaged = make_list(
        (Code(row.place), f": {row.problem}")
        for row in sorted(rows, key=lambda row: row.place)
        if row.problem
    )
    blocks: list[Block] = [
        Heading(title, 1),
        Paragraph(f"{plural(len(rows), 'run')}. A click on a column's name sorts by it."),
        *(block for heading, members in groups.items() for block in (Heading(heading), _table(members))),
        *([Heading("Cannot be read"), *damaged] if damaged else []),
    ]
    return render_html(blocks, title)


def _table(rows: Sequence[IndexRow]) -> Table:
    return Table(_HEADERS, tuple(map(_cells, rows)), numbers=(3, 5), sortable=True)


def _cells(row: IndexRow) -> tuple[Text, ...]:
    name = Link(row.place, row.link) if row.link else f"{row.place} (no report yet)"
    latency = "" if row.latency_value is None else f"{milliseconds(row.latency_value)} ms"
    return name, row.device, row.date, latency, row.measured, row.speedup, row.verdict
