"""The list of runs as one HTML file: sorted by a click, links relative, nothing from a network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files as resources
from urllib.parse import quote

from model_profiling.report.html.frame import framed
from model_profiling.report.run_index.rows import IndexRow
from model_profiling.wording import MISSING, plural

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
