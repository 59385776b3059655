"""A store of runs as one HTML file: the answers, what changed, models and devices, a small chart for each
latency over the runs, every run with its report. Links are relative, nothing comes from a network.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files as resources
from urllib.parse import quote

from model_profiling.core.formatting import MISSING, milliseconds
from model_profiling.report.html.page import block_html, framed, json_text, static_text, with_top
from model_profiling.report.store_index.records import (
    COLUMNS,
    ROWS,
    Change,
    Kernels,
    SeriesHistory,
    StoreContents,
    StoredRun,
    answers,
    change_text,
    fitted,
    kernel_states,
    program_of,
)

# A store's contents as the data that the page's script draws: columns of numbers, each text once.


class _Texts:
    """Each text once, known by its place."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    def place(self, text: str) -> int:
        return self.places.setdefault(text, len(self.places))


def page_data(contents: StoreContents) -> dict[str, object]:
    """The runs in their order; histories name them by their place."""
    texts = _Texts()
    places = {run.id: place for place, run in enumerate(contents.runs)}
    latency = {
        point.run: point.ms for history in contents.histories if history.headline for point in history.points
    }
    return {
        "runs": [_run_values(run, latency.get(run.id), texts) for run in contents.runs],
        "histories": [_history(history, places) for history in contents.histories],
        "texts": list(texts.places),
    }


def _run_values(run: StoredRun, latency: float | None, texts: _Texts) -> list[object]:
    """In the order that `store.js` names."""
    told = (run.model, run.format, run.device, run.kernels.value, _state(run), run.commit, run.branch)
    return [
        run.id,
        run.measured[:16].replace("T", " "),
        _short(latency),
        quote(run.report),
        *(texts.place(text) for text in (*told, ", ".join(run.tags), run.no_report)),
    ]


def _state(run: StoredRun) -> str:
    """What became of it, and what its times are where they are no latencies."""
    return run.state if run.times.are_latencies else f"{run.state}, {run.times.value}: no latencies"


def _history(history: SeriesHistory, places: dict[str, int]) -> dict[str, object]:
    at = {point.run: place for place, point in enumerate(history.points)}
    return {
        "model": history.model,
        "format": history.format,
        "device": history.device,
        "experiment": history.experiment,
        "threads": history.threads,
        "headline": history.headline,
        "judged": history.judged,
        "left": history.left_out,
        "runs": [places[point.run] for point in history.points],
        "ms": [_short(point.ms) for point in history.points],
        "low": [_short(point.low_ms) for point in history.points],
        "high": [_short(point.high_ms) for point in history.points],
        "changes": [
            [
                at[change.drawn_from[0] if change.drawn_from else change.run],
                _short(change.drawn_from[1] if change.drawn_from else change.before_ms),
                _short(change.after_ms),
                _short(change.share),
                at[change.until] if change.until else None,
            ]
            for change in history.changes
        ],
        "marks": [[at[mark.run], mark.text] for mark in history.marks],
    }


def _short(value: float | None) -> float | None:
    """With the digits that can be seen."""
    return None if value is None else float(f"{value:.5g}")


_STYLES = ("page.css", "blocks.css", "explorers.css")
_SCRIPTS = ("dom.js", "page.js")
_OWN = ("store.js", "filters.js", "charts.js", "runs.js")
_CHANGES = 8
_CHANGE = ("change", "model and device", "before", "after", "since", "report")
_NEWEST = 20
"""How many runs a page without a script lists."""


def render_store(contents: StoreContents) -> str:
    title = f"Runs in {contents.name}"
    shown, note = fitted(contents)
    sections = [
        ("devices", "Models and devices", _matrix(shown)),
        ("histories", "Latency over the runs", _histories(shown)),
        ("runs", "Runs", _runs(shown)),
    ]
    lead = block_html(answers(contents)) + (f'<p class="note">{escape(note)}</p>' if note else "")
    main = (
        f'<section class="lead" aria-label="In short">{lead}</section>\n'
        + _section("changes", "What changed", _changes(shown))
        + (_CONTROLS if contents.runs else "")
        + "".join(_section(*section) for section in sections)
        + f'\n<script type="application/json" id="store">{json_text(page_data(shown))}</script>'
    )
    return framed(
        title,
        with_top(title, main),
        style=f"{static_text(_STYLES)}\n{_static(('store.css',))}",
        scripts=[f"{static_text(_SCRIPTS)}\n{_static(_OWN)}"],
    )


_SME2 = {
    Kernels.RAN: "ran",
    Kernels.RAN_EMULATED: "ran, emulated",
    Kernels.SME_RAN: "SME or SME2 ran",
    Kernels.NONE_RAN: "none ran",
    Kernels.NOT_TESTED: "not tested",
}
_CONTROLS = '<section id="filters" class="filters" aria-label="What is shown" hidden></section>\n'


def _section(name: str, heading: str, body: str) -> str:
    """Nothing where there is nothing to show."""
    title = f'<h2 id="{name}-h">{heading}</h2>'
    return f'<section id="{name}" aria-labelledby="{name}-h">{title}\n{body}</section>\n' if body else ""


def _changes(contents: StoreContents) -> str:
    """The last change of each series that is told, the latest first."""
    runs = {run.id: run for run in contents.runs}
    found = [
        (history, place, history.changes[-1])
        for place, history in enumerate(contents.histories)
        if history.headline and history.changes
    ]
    if not found:
        return ""
    found.sort(key=lambda each: runs[each[2].run].measured, reverse=True)
    rows = "".join(
        _change(history, place, change, runs[change.run]) for history, place, change in found[:_CHANGES]
    )
    left = len(found) - _CHANGES
    more = f" {left} older ones are not listed here, but marked in the charts." if left > 0 else ""
    told = sum(history.headline for history in contents.histories)
    note = (
        "A change is a latency that went to another level and stayed there, or goes there little by little. "
        "By chance alone one would be "
        f"found in at most {contents.method.by_chance:.1f} of {told:,} histories, where noise is "
        f"independent from run to run.{more}"
    )
    head = "".join(f'<th scope="col"{_number(name)}>{name}</th>' for name in _CHANGE)
    return (
        f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
        f'<p class="note">{escape(note)}</p>'
    )


def _change(history: SeriesHistory, place: int, change: Change, run: StoredRun) -> str:
    also = f'<span class="below">also changed: {escape(", ".join(change.also))}</span>' if change.also else ""
    commit = f'<code class="nowrap">{escape(run.commit)}</code>' if run.commit else ""
    cells = (
        f'<td class="nowrap">{_badge(change)}</td>',
        f'<td><a href="#history-{place}">{escape(program_of(history))}</a>'
        f'<span class="below">{escape(history.device)}</span></td>',
        f'<td class="number">{milliseconds(change.before_ms)} ms</td>',
        f'<td class="number">{milliseconds(change.after_ms)} ms</td>',
        f'<td><span class="nowrap">{escape(run.measured[:10])}</span> {commit}{also}</td>',
        f"<td>{_report(run)}</td>",
    )
    return f"<tr>{''.join(cells)}</tr>\n"


def _badge(change: Change) -> str:
    """The direction in a sign, a word and a colour."""
    slower = change.share > 0
    return (
        f'<span class="{"slower" if slower else "faster"}"><span aria-hidden="true">'
        f"{'▲' if slower else '▼'}</span> {change_text(change)}</span>"
    )


def _matrix(contents: StoreContents) -> str:
    """The newest latency of each model on each device; a click leads to its chart."""
    newest: dict[tuple[str, str, str], StoredRun] = {}
    for run in reversed(contents.runs):
        newest[run.model, run.format, run.device] = run
    told = {
        (history.model, history.format, history.device): (place, history)
        for place, history in enumerate(contents.histories)
        if history.headline
    }
    rows = sorted({(model, exported) for model, exported, _ in newest})
    devices = sorted({device for _, _, device in newest})
    if not rows:
        return ""
    states = kernel_states(contents.runs)
    head = "".join(
        f'<th scope="col" class="number" data-device="{escape(device)}">{escape(device)}</th>'
        for device in devices[:COLUMNS]
    )
    body = "".join(
        f'<tr data-model="{escape(model)}" data-format="{escape(exported)}">'
        f'<th scope="row">{escape(model).replace("_", "_<wbr>")} '
        f'<span class="soft">{escape(exported)}</span></th>'
        + "".join(
            f'<td class="number" data-device="{escape(device)}">'
            f"{_cell(newest.get((model, exported, device)), told.get((model, exported, device)))}</td>"
            for device in devices[:COLUMNS]
        )
        + f"<td>{_SME2[states[f'{model} {exported}'.strip()]]}</td></tr>\n"
        for model, exported in rows[:ROWS]
    )
    left = [
        f"{len(every) - most} more {what}"
        for every, most, what in ((rows, ROWS, "models"), (devices, COLUMNS, "devices"))
        if len(every) > most
    ]
    note = f" {' and '.join(left)} are found with the filters." if left else ""
    return (
        '<div class="table"><table class="matrix"><thead><tr><th scope="col">model</th>'
        f'{head}<th scope="col">SME2 kernels</th></tr></thead><tbody>{body}</tbody></table></div>'
        f'<p class="note">The newest median of each, with its last change.{note}</p>'
    )


def _cell(run: StoredRun | None, told: tuple[int, SeriesHistory] | None) -> str:
    if told is not None:
        place, history = told
        change = f"<br>{_badge(history.changes[-1])}" if history.changes else ""
        return f'<a href="#history-{place}">{milliseconds(history.points[-1].ms)} ms</a>{change}'
    if run is None:
        return '<span class="soft">-</span>'
    why = run.state if run.times.are_latencies and run.state != "finished" else "no latency"
    return f'<span class="soft">{escape(why)}</span>'


def _histories(contents: StoreContents) -> str:
    if not contents.histories:
        return ""
    return (
        '<div id="charts"><p class="instead">The charts are drawn by a script of this page; the newest '
        "latencies stand in the table above.</p></div>"
    )


def _runs(contents: StoreContents) -> str:
    if not contents.runs:
        return ""
    latency = {
        point.run: point.ms for history in contents.histories if history.headline for point in history.points
    }
    head = "".join(
        f'<th scope="col"{_number(name)}>{name}</th>'
        for name in ("measured", "model", "device", "latency", "kernels", "commit", "report")
    )
    rows = "".join(_run(run, latency.get(run.id)) for run in contents.runs[:_NEWEST])
    return (
        '<div id="runs-table"><div class="table"><table><thead><tr>'
        f"{head}</tr></thead><tbody>{rows}</tbody></table></div></div>"
    )


def _run(run: StoredRun, latency: float | None) -> str:
    cells = (
        f"<td>{escape(run.measured[:16].replace('T', ' '))}</td><td>{escape(program_of(run))}</td>"
        f"<td>{escape(run.device)}</td>"
        f'<td class="number">{f"{milliseconds(latency)} ms" if latency is not None else MISSING}</td>'
        f"<td>{escape(run.kernels.value)}</td><td>{escape(run.commit) or MISSING}</td><td>{_report(run)}</td>"
    )
    return f"<tr>{cells}</tr>\n"


def _report(run: StoredRun) -> str:
    if run.report:
        return f'<a href="{escape(quote(run.report))}">report</a>'
    return f'<span class="soft">{escape(run.no_report or "no report")}</span>'


def _number(name: str) -> str:
    return ' class="number"' if name in ("before", "after", "latency") else ""


def _static(files: Sequence[str] | Iterable[str]) -> str:
    folder = resources(__package__)
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in files)
