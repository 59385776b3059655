"""`sme2prof history`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from model_profiling.cli import frame

if TYPE_CHECKING:
    from model_profiling.report.history import History

_MOST_PRINTED = 12
_NARROWEST, _WIDEST = 20, 100
_DATES = "%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"


@frame.command(
    "history",
    example="""sme2prof history toy_cnn
    sme2prof history toy_cnn --dtype fp16 --threads 1 --since 2026-09-01
    sme2prof history toy_cnn --device "Pixel 10" --out toy_history.html""",
    facts=True,
)
@click.argument("model")
@click.option("--dtype", help="Only this number format.")
@click.option("--backend", help="Only this backend.")
@click.option("--device", help="Only this device, by its name in the store or a part of its name in words.")
@click.option("--threads", type=frame.IntRange(1), help="Only this number of threads.")
@click.option("--experiment", help="Only this experiment.")
@click.option(
    "--since",
    type=click.DateTime(_DATES),
    help="Only runs measured since this day (UTC); the rest is not looked at.",
)
@frame.store_option
@click.option(
    "--out",
    type=frame.FILE,
    help="Also write a page: .html, or .md with SVG pictures and the .html beside it.",
)
def command(
    *,
    store: str | None,
    out: Path | None,
    as_json: bool,
    **asked: Any,  # click has typed them; they are the fields of HistoryQuestion
) -> None:
    """Show a model's latency over all runs of a store, and where its level changed.

    Each device, number format, experiment and thread count is a series of its own. Changes are found by a
    method with a known rate of false alarms, which is printed; docs/history.md has its figures.
    """
    from model_profiling.report.history import history_facts
    from model_profiling.report.history_document import history_document, history_title
    from model_profiling.store.store import Store
    from model_profiling.workflow.history import HistoryQuestion, load_history
    from model_profiling.workflow.report import write_page

    found = load_history(Store.open(store), HistoryQuestion(**asked))
    if out is not None:
        write_page(history_document(found), out, history_title(found))
    if as_json:
        frame.facts(history_facts(found))
        return
    _print(found)
    if out is not None:
        frame.say_wrote(out)


def _print(found: History) -> None:
    from model_profiling.report.history import by_name, series_sentences, text_chart
    from model_profiling.report.history_document import left_out
    from model_profiling.report.text import render_terminal

    width = min(_WIDEST, max(_NARROWEST, shutil.get_terminal_size().columns - 12))
    for series in found.series[:_MOST_PRINTED]:
        frame.say(by_name(series.key))
        for line in text_chart(series, width):
            frame.say(f"  {line}")
        for sentence in series_sentences(series):
            frame.say(f"- {sentence}")
        frame.say()
    if len(found.series) > _MOST_PRINTED:
        frame.say(
            f"{len(found.series) - _MOST_PRINTED} more series: narrow it with --dtype, --device, "
            "--experiment or --threads, or take --out or --json"
        )
    if not found.series:
        frame.say(f"no latency of {found.model} was measured on hardware")
    if rest := render_terminal(left_out(found)).strip():
        frame.say(rest)
