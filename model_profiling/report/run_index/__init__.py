"""A page that lists many runs: one table for each model and format, a line and a link for each run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files as resources
from pathlib import Path
from urllib.parse import quote

from model_profiling.core.formatting import MISSING, milliseconds, plural
from model_profiling.report.data import ReportData
from model_profiling.report.html.page import framed
from model_profiling.report.pair_text import (
    date_of,
    device_of,
    model_and_format,
    speedup_text,
    what_times_are,
)
from model_profiling.report.verdict import outputs_differ, told_pair

# What one run is in a list of many: its answer from the files that are there, without reading a dump.


@dataclass(frozen=True, slots=True)
class IndexRow:
    """Texts are as shown; `*_value` is what they are sorted by, None where there is nothing."""

    place: str
    """The run directory, relative to the page."""
    link: str = ""
    """Its report, relative to the page; empty where there is none."""
    model: str = ""
    format: str = ""
    device: str = ""
    date: str = ""
    latency: str = ""
    latency_value: float | None = None
    measured: str = ""
    """Which series the latency is of."""
    speedup: str = ""
    speedup_value: float | None = None
    verdict: str = ""
    problem: str = ""
    """Why the run cannot be read."""


def index_row(data: ReportData, place: str, link: str) -> IndexRow:
    model, exported = model_and_format(data)
    headline = data.headline.summary if data.headline else None
    pair = told_pair(data)
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
        latency=f"{milliseconds(headline.median)} ms" if headline else "",
        latency_value=headline.median if headline else None,
        measured=str(data.headline.series) if data.headline and headline else "",
        speedup=speedup_text(pair.speedup) if pair else "",
        speedup_value=pair.speedup.ratio if pair else None,
        verdict=f"{verdict} ({state})" if state else verdict,
    )


def damaged_row(place: str, problem: str) -> IndexRow:
    return IndexRow(place=place, model=Path(place).name, problem=problem)


# The list of runs as one HTML file: sorted by a click, links relative, nothing from a network.

_HEADERS = ("run", "device", "measured", "latency", "of", "speedup", "verdict")
_NUMBERS = (3, 5)


def render_index(rows: Sequence[IndexRow], title: str) -> str:
    style, script = (_static(name) for name in ("index.css", "index.js"))
    groups: dict[tuple[str, str], list[IndexRow]] = {}
    for row in sorted(rows, key=lambda row: (bool(row.problem), row.model, row.format, row.date, row.place)):
        groups.setdefault(("", "") if row.problem else (row.model, row.format), []).append(row)
    body = "\n".join(_group(*named, members) for named, members in groups.items())
    told = f"{plural(len(rows), 'run')}. A click on a column's name sorts by it."
    shown = f"<main>\n<h1>{escape(title)}</h1>\n<p>{told}</p>\n{body}\n</main>\n"
    return framed(title, shown, style=style, scripts=[script])


def _group(model: str, exported: str, rows: Iterable[IndexRow]) -> str:
    if not model:
        return f"<h2>Cannot be read</h2>\n<ul>{''.join(map(_damaged, rows))}</ul>"
    heading = f"{model}, {exported}" if exported else model
    head = "".join(
        f'<th scope="col"{_number(column)}><button type="button">{escape(name)}</button></th>'
        for column, name in enumerate(_HEADERS)
    )
    return (
        f'<h2>{escape(heading)}</h2>\n<div class="table"><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{''.join(map(_row, rows))}</tbody></table></div>"
    )


def _row(row: IndexRow) -> str:
    name = escape(row.place)
    linked = f'<a href="{escape(quote(row.link))}">{name}</a>' if row.link else f"{name} (no report yet)"
    cells = (
        (linked, row.place),
        (escape(row.device), row.device),
        (escape(row.date), row.date),
        (escape(row.latency), _sorted_by(row.latency_value)),
        (escape(row.measured), row.measured),
        (escape(row.speedup), _sorted_by(row.speedup_value)),
        (escape(row.verdict), row.verdict),
    )
    shown = "".join(
        f'<td{_number(column)} data-value="{escape(value)}">{text or MISSING}</td>'
        for column, (text, value) in enumerate(cells)
    )
    return f"<tr>{shown}</tr>\n"


def _damaged(row: IndexRow) -> str:
    return f"<li><code>{escape(row.place)}</code>: {escape(row.problem)}</li>"


def _sorted_by(value: float | None) -> str:
    return "" if value is None else repr(value)


def _number(column: int) -> str:
    return ' class="number"' if column in _NUMBERS else ""


def _static(name: str) -> str:
    return resources(__package__).joinpath(name).read_text(encoding="utf-8")


__all__ = ["IndexRow", "damaged_row", "index_row", "render_index"]
