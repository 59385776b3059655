"""The tools that read a store of many runs, which lies in the root as everything else."""

from __future__ import annotations

import json
from datetime import datetime, time

from model_profiling.mcp_server import answers, questions
from model_profiling.mcp_server.bounds import Cuts
from model_profiling.mcp_server.confinement import Root
from model_profiling.report.history import METHOD, HistorySeries
from model_profiling.report.history_words import by_name, series_sentences
from model_profiling.statistics.change_points import ChangePoint
from model_profiling.store.opened import Store
from model_profiling.store.plain_values import Plain, json_value
from model_profiling.store.query import Limits
from model_profiling.store.tables import Table
from model_profiling.store.views import TABLES_AND_VIEWS, View
from model_profiling.wording import plural
from model_profiling.workflow.history import HistoryQuestion, load_history

_SECONDS, _MEMORY = 20.0, 512 << 20
_CHANGES = 10
_LONGEST_CELL, _MOST_TEXT = 500, 40_000
"""Characters that a model reads of one value, and of all rows."""


def query_store(root: Root, asked: questions.AskStore) -> answers.StoreAnswer:
    store = Store.open(root.place(asked.store))
    if asked.sql is None:
        return answers.StoreAnswer(
            store=root.shown(store.root),
            columns=[],
            rows=[],
            tables=[_table(found) for found in TABLES_AND_VIEWS.values()],
            next="ask with `sql`; views join what is usually asked for, so begin with latest_latencies, "
            "sme2_gains, operator_times or kernels_seen",
        )
    found = store.query(asked.sql, limits=Limits(rows=asked.limit, seconds=_SECONDS, memory=_MEMORY))
    rows = [[_short(json_value(value)) for value in row] for row in found.rows]
    cuts = Cuts()
    shown = cuts.cut(rows, _fitting(rows), "rows", "they are too long: ask for fewer columns")
    left_out = [f"there are more than {asked.limit} rows; give a larger `limit`"] if found.more else []
    return answers.StoreAnswer(
        store=root.shown(store.root),
        columns=[
            answers.StoreColumn(name=name, type=kind)
            for name, kind in zip(found.columns, found.types, strict=True)
        ],
        rows=shown,
        tables=[],
        left_out=". ".join([*left_out, *([cuts.left_out] if cuts.left_out else [])]) or None,
        next="a median is known no better than low_ms to high_ms; null times were emulated and mean nothing",
    )


def history(root: Root, asked: questions.AskHistory) -> answers.HistoryAnswer:
    store, cuts = Store.open(root.place(asked.store)), Cuts()
    question = HistoryQuestion(
        model=asked.model,
        dtype=asked.dtype,
        backend=asked.backend,
        device=asked.device,
        experiment=asked.experiment,
        threads=asked.threads,
        since=datetime.combine(asked.since, time()) if asked.since else None,
    )
    found = load_history(store, question)
    return answers.HistoryAnswer(
        store=root.shown(store.root),
        model=found.model,
        method=METHOD,
        series=[
            _series(series, cuts)
            for series in cuts.cut(
                found.series, asked.limit, "series", "give `device`, `experiment` or a larger `limit`"
            )
        ],
        without_latency=[f"{plural(each.runs, 'run')}: {each.reason}" for each in found.left_out],
        left_out=cuts.left_out,
        next="`also_changed` may be the cause rather than the model; `compare` two of the runs to see which "
        "operators moved",
    )


def _series(found: HistorySeries, cuts: Cuts) -> answers.HistoryOfSeries:
    first, last = found.points[0], found.points[-1]
    newest = cuts.cut(reversed(found.changes), _CHANGES, "changes of a series, the newest")
    return answers.HistoryOfSeries(
        name=by_name(found.key),
        device=found.key.device,
        runs=len(found.points),
        first_at=first.at.isoformat(),
        last_at=last.at.isoformat(),
        last_ms=last.median_ms,
        last_low_ms=last.low_ms,
        last_high_ms=last.high_ms,
        too_few_to_tell=found.found.too_few,
        false_alarm_rate=found.found.false_alarms,
        changes=[_change(found, change) for change in newest],
        said=cuts.cut(series_sentences(found), _CHANGES + 3, "sentences of a series"),
    )


def _change(found: HistorySeries, change: ChangePoint) -> answers.HistoryChange:
    run, before = found.points[change.first], found.points[change.first - 1]
    return answers.HistoryChange(
        at=run.at.isoformat(),
        run_id=run.run_id,
        commit=run.commit,
        commit_before=before.commit,
        change=change.change,
        low=change.low,
        high=change.high,
        drift=change.drift,
        also_changed=[mark.text for mark in found.marks_at(change)],
    )


def _table(found: Table | View) -> answers.StoreTable:
    return answers.StoreTable(
        name=found.name,
        kind="view" if isinstance(found, View) else "table",
        meaning=found.meaning,
        columns=[
            answers.StoreColumn(name=column.name, type=column.sql_type, meaning=column.meaning)
            for column in found.columns
        ],
    )


def _short(value: Plain) -> Plain:
    text = value if isinstance(value, str) else json.dumps(value)
    return value if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}..."


def _fitting(rows: list[list[Plain]]) -> int:
    """How many of them have no more characters than a model is given."""
    left = _MOST_TEXT
    for number, row in enumerate(rows):
        left -= len(json.dumps(row))
        if left < 0:
            return number
    return len(rows)
