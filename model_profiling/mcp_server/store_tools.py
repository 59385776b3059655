"""The tools that read a store of many runs inside the root."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import Path
from typing import Annotated, Any, Literal

from model_profiling.core.formatting import plural
from model_profiling.mcp_server.answers import Answer, Chosen, Cuts, Number, answer, fact, first
from model_profiling.mcp_server.confinement import Root
from model_profiling.mcp_server.tools import arg, limit, tool
from model_profiling.report.history import HistorySeries, history_facts, series_sentences, series_title
from model_profiling.store.database import Limits
from model_profiling.store.store import Store
from model_profiling.store.tables import TABLES_AND_VIEWS, View
from model_profiling.workflow.history import HistoryQuestion, load_history

_SECONDS, _MEMORY = 20.0, 512 << 20
_LONGEST_CELL, _MOST_TEXT = 500, 40_000
"""Characters shown of one value, and of all rows."""


class StoreColumn(Chosen):
    name: str
    type: str = fact("The type; empty in an answer.", "sql_type")
    meaning: str = fact("The meaning of a column of the store; empty in an answer.", default="")


class StoreTable(Chosen):
    name: str
    kind: Literal["table", "view"]
    meaning: str
    columns: list[StoreColumn]


class StoreAnswer(Answer):
    store: str
    columns: list[StoreColumn]
    rows: list[list[Any]] = fact("A value for each column; null if unknown.")
    tables: list[StoreTable] = fact("The tables and views; only if no `sql` was given.")


class HistoryChange(Chosen):
    """A change of level, named by the first run at the new one."""

    at: str = fact("When that run was measured, in UTC.")
    run_id: str = fact(path="run.run_id")
    commit: str = fact(path="run.commit")
    commit_before: str = fact(path="run_before.commit")
    change: float = fact("Change of the typical latency: 0.03 is 3% slower.")
    low: float
    high: float
    drift: bool = fact("Whether it was gradual, from that run on.")
    also_changed: list[str] = fact("What else changed: kit, ExecuTorch, ...")


class HistoryOfSeries(Chosen):
    name: str
    device: str
    runs: int
    first_at: str = fact(path="points.0.at")
    last_at: str = fact(path="points.-1.at")
    last_ms: float = fact(path="points.-1.median_ms")
    last_low_ms: Number = fact(path="points.-1.low_ms")
    last_high_ms: Number = fact(path="points.-1.high_ms")
    last_tokens_per_s: Number = fact("Of a language model; null for any other.", "points.-1.tokens_per_s")
    too_few_to_tell: bool = fact("Whether there are too few runs to see a change.")
    false_alarm_rate: float = fact(
        "One in at least this many histories without a change shows a false one.", "false_alarms"
    )
    changes: Annotated[list[HistoryChange], first("changes of a series, the newest", most=10)]
    said: Annotated[list[str], first("sentences of a series", most=13)] = fact("The same in sentences.")


class HistoryAnswer(Answer):
    store: str
    model: str
    method: str = fact("How changes are found.")
    series: Annotated[
        list[HistoryOfSeries], first("series", "give `device`, `experiment` or a larger `limit`")
    ]
    without_latency: list[str] = fact("Runs that are in no series, and why.")


StorePath = Annotated[str, arg("The store's file, relative to the root, as `sme2prof store add` made it.")]


@dataclass(frozen=True, slots=True)
class StoreTools:
    root: Root

    @tool("Query a store of runs", on_error="`query_store` without `sql` lists tables and columns")
    def query_store(
        self,
        store: StorePath = "sme2prof.db",
        sql: Annotated[
            str | None,
            arg(
                "One SELECT in SQLite's SQL; it can only read the store. Without it, the answer lists the "
                "tables and views with the meaning of their columns.",
                max_length=20_000,
                examples=[
                    "SELECT model, dtype, device, experiment, median_ms, low_ms, high_ms FROM "
                    "latest_latencies",
                    "SELECT name, ms, share, source FROM operator_times "
                    "WHERE model = 'toy_cnn' AND place <= 5 AND age = 1",
                ],
            ),
        ] = None,
        limit: Annotated[int, limit(500, "Return at most this many rows.")] = 50,
    ) -> StoreAnswer:
        """Query a store of runs with SQL: which dtype, device or thread count is fastest, which operators
        or kernels changed, what failed. Without `sql` it lists the tables and views with their columns: start
        with that. It only reads; a query is stopped after 20 s. For one run use `summary`."""
        opened = Store.open(self.root.place(store))
        name = self.root.shown(Path(opened.address))
        if sql is None:
            tables = [
                {
                    "name": found.name,
                    "kind": "view" if isinstance(found, View) else "table",
                    "meaning": found.meaning,
                    "columns": found.columns,
                }
                for found in TABLES_AND_VIEWS.values()
            ]
            begin = (
                "query with `sql`; views answer the usual questions, so begin with latest_latencies, "
                "sme2_gains, operator_times or kernels_seen"
            )
            return answer(StoreAnswer, store=name, columns=[], rows=[], tables=tables, next=begin)
        found = opened.query(sql, Limits(rows=limit, seconds=_SECONDS, memory=_MEMORY))
        rows = [[_short(value) for value in row] for row in found.rows]
        cuts = Cuts(said=[f"there are more than {limit} rows; give a larger `limit`"] if found.more else [])
        shown = cuts.cut(rows, _fitting(rows), "rows", "they are too long: select fewer columns")
        return answer(
            StoreAnswer,
            store=name,
            columns=[{"name": name, "sql_type": ""} for name in found.columns],
            rows=shown,
            tables=[],
            left_out=". ".join(cuts.said) or None,
            next="the median lies between low_ms and high_ms; times are null if the run was emulated",
        )

    @tool(
        "A model's latency over time",
        on_error="`query_store` with `SELECT * FROM programs` lists the models of a store",
    )
    def history(
        self,
        *,
        model: Annotated[str, arg("The model's name in the store.", examples=["toy_cnn"])],
        store: StorePath = "sme2prof.db",
        dtype: Annotated[str | None, arg("Only this number format.")] = None,
        backend: Annotated[str | None, arg("Only this backend.")] = None,
        device: Annotated[
            str | None, arg("Only this device, by its name in the store or a part of its name.")
        ] = None,
        experiment: Annotated[str | None, arg("Only this experiment.")] = None,
        threads: Annotated[int | None, arg("Only this number of threads.", ge=1)] = None,
        since: Annotated[date | None, arg("Only runs since this day, in UTC.")] = None,
        limit: Annotated[int, limit(50, "List at most this many series.")] = 10,
    ) -> HistoryAnswer:
        """A model's latency over all runs of a store, separately for each device, format, experiment and
        thread count, with the runs and commits where it changed. The rate of false alarms is stated. Call it
        when the user asks whether or since when something became slower."""
        opened = Store.open(self.root.place(store))
        question = HistoryQuestion(
            model=model,
            dtype=dtype,
            backend=backend,
            device=device,
            experiment=experiment,
            threads=threads,
            since=datetime.combine(since, time()) if since else None,
        )
        found = load_history(opened, question)
        facts: dict[str, Any] = history_facts(found)
        facts["series"] = list(map(_series, found.series, facts["series"]))
        facts["store"] = self.root.shown(Path(opened.address))
        facts["without_latency"] = [
            f"{plural(runs, 'run')}: {reason}" for reason, runs in found.left_out.items()
        ]
        facts["next"] = (
            "`also_changed` may be the cause rather than the model; `compare` two of the runs to see which "
            "operators moved"
        )
        del facts["left_out"]
        return answer(HistoryAnswer, limit, **facts)


def _series(found: HistorySeries, facts: Mapping[str, Any]) -> dict[str, Any]:
    newest = [{**each, "at": facts["points"][each["first"]]["at"]} for each in reversed(facts["changes"])]
    return {**facts, "name": series_title(found.key), "changes": newest, "said": series_sentences(found)}


def _short(value: object) -> object:
    text = value if isinstance(value, str) else json.dumps(value)
    return value if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}..."


def _fitting(rows: list[list[object]]) -> int:
    """How many of the rows fit into `_MOST_TEXT`."""
    left = _MOST_TEXT
    for number, row in enumerate(rows):
        left -= len(json.dumps(row))
        if left < 0:
            return number
    return len(rows)
