"""The tools that read a store of many runs, which lies in the root as everything else."""

from __future__ import annotations

import json

from model_profiling.mcp_server import answers, questions
from model_profiling.mcp_server.bounds import Cuts
from model_profiling.mcp_server.confinement import Root
from model_profiling.store.opened import Store
from model_profiling.store.plain_values import Plain, json_value
from model_profiling.store.query import Limits
from model_profiling.store.tables import Table
from model_profiling.store.views import TABLES_AND_VIEWS, View

_SECONDS, _MEMORY = 20.0, 512 << 20
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
