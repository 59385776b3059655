"""`sme2prof history`: a model's latency over all runs of a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from model_profiling.cli import frame

if TYPE_CHECKING:
    from model_profiling.report.history import History

_MOST_PRINTED = 12
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
@click.option("--device", metavar="NAME", help="Only this device: its name in the store, or a part of it.")
@click.option("--threads", type=click.IntRange(1, 512), help="Only this number of threads.")
@click.option("--experiment", help="Only this experiment.")
@click.option(
    "--since",
    type=click.DateTime(_DATES),
    metavar="DATE",
    help="Only runs measured since this day or time (UTC), such as 2026-09-01 or 2026-09-01T08:30.",
)
@frame.store_option
@click.option(
    "--out",
    type=frame.FILE,
    help="Also write a page: .html, or .md with an .html beside it.",
)
def history_command(
    *,
    store: str | None,
    out: Path | None,
    as_json: bool,
    **question: Any,
) -> None:
    """Show a model's latency over all runs of a store, and when it changed.

    Each combination of device, number format, experiment and thread count is a series. The rate of false
    alarms is known and printed (docs/explanation/history.md). For a list of runs, use `sme2prof view STORE`.
    """
    from model_profiling.report.history import history_facts
    from model_profiling.store.store import Store
    from model_profiling.workflow.history import load_history

    history = load_history(Store.open(store), **question)
    if out is not None:
        from model_profiling.report.history_document import history_document, history_title
        from model_profiling.workflow.report import write_page

        write_page(history_document(history), out, history_title(history), pictures=True)
    if as_json:
        frame.facts(history_facts(history))
        return
    _print(history)
    if out is not None:
        frame.say_wrote(out)


def _print(history: History) -> None:
    from model_profiling.report.history import left_out_sentences, series_sentences, series_title

    for series in history.series[:_MOST_PRINTED]:
        frame.say(series_title(series.key))
        for sentence in series_sentences(series):
            frame.say(f"- {sentence}")
        frame.say()
    if (more := len(history.series) - _MOST_PRINTED) > 0:
        frame.say(f"{more} more series: select some with --dtype, --device, --experiment or --threads")
    if not history.series:
        frame.say(f"no latency of {history.model} was measured on hardware")
    for sentence in left_out_sentences(history):
        frame.say(f"- {sentence}")
