"""The table of tools: what each is for, what it takes and gives, and whether it changes anything.

A new tool is one row here, its arguments in `questions.py` and its answer in `answers.py`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, time
from typing import Any

from pydantic import BaseModel

from model_profiling.core.formatting import plural
from model_profiling.mcp_server import answers, questions, reading
from model_profiling.mcp_server.confinement import Cuts, Root
from model_profiling.mcp_server.jobs import Told, Workshop
from model_profiling.report.history import METHOD, HistorySeries, by_name, series_sentences
from model_profiling.statistics.change_points import ChangePoint
from model_profiling.store.plain_values import Plain, json_value
from model_profiling.store.query import Limits
from model_profiling.store.store import Store
from model_profiling.store.tables import Table
from model_profiling.store.views import TABLES_AND_VIEWS, View
from model_profiling.workflow.history import HistoryQuestion, load_history

# The tools that read a store of many runs, which lies in the root as everything else.

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


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool; it has either `read` or `do`."""

    name: str
    title: str
    description: str
    question: type[questions.Question]
    answer: type[answers.Answer]
    read: Callable[[Root, Any], BaseModel] | None = None
    """Reads files and changes nothing."""
    do: Callable[[Workshop, Any, Told], Awaitable[BaseModel]] | None = None
    """A job: writes into the root, takes seconds to minutes, reports progress, can be cancelled."""
    on_error: str = ""
    """Which tool to call when this one fails and the error names none."""

    @property
    def read_only(self) -> bool:
        return self.read is not None

    @property
    def input_schema(self) -> dict[str, Any]:
        return _lean(self.question.model_json_schema())

    @property
    def output_schema(self) -> dict[str, Any]:
        return _lean(self.answer.model_json_schema(mode="serialization"))


def _lean(schema: dict[str, Any]) -> dict[str, Any]:
    """Without the titles that only repeat names: a model reads all of it."""
    lean: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            lean[key] = {name: _lean(inside) for name, inside in value.items()}
        elif isinstance(value, dict):
            lean[key] = _lean(value)
        elif isinstance(value, list):
            lean[key] = [_lean(inside) if isinstance(inside, dict) else inside for inside in value]
        elif key != "title":
            lean[key] = value
    return lean


_SEE_DOCTOR = "`doctor` says whether this machine lacks something"
_SEE_RUNS = "`runs` lists the run directories there are"

TOOLS: tuple[Tool, ...] = (
    Tool(
        "doctor",
        "Check this machine",
        "What this machine can measure and what is missing, each with its fix. Call it first in a session, "
        "and when `export` or `profile` fails for want of something. Takes seconds, changes nothing.",
        questions.AskDoctor,
        answers.DoctorAnswer,
        read=reading.doctor,
    ),
    Tool(
        "models",
        "List known models",
        "The models that `export` and `profile` know by name, with their inputs and number formats. Not "
        "needed for a model of the user's own, which is named path/file.py:factory.",
        questions.AskModels,
        answers.ModelsAnswer,
        read=reading.models,
    ),
    Tool(
        "export",
        "Export a model to ExecuTorch",
        "Lower a PyTorch model to a .pte program, run it once and compare it with PyTorch: what was "
        "delegated, what stayed outside and why, whether outputs agree. Use it to see how a model lowers; "
        "`profile` exports by itself. Takes 10 s to minutes. Runs the factory's code. Writes into the root "
        "and replaces an earlier export of the same name.",
        questions.AskExport,
        answers.ExportAnswer,
        do=Workshop.export,
        on_error=_SEE_DOCTOR,
    ),
    Tool(
        "profile",
        "Measure a model",
        "Measure a model: latency, where the time goes, and SME2 on against off where the CPU has it; "
        "elsewhere a baseline, with SME2 kernels proven under emulation. Exports first where needed. Takes "
        "about a minute (budget_s), longer under emulation; one job at a time. Do not use the machine for "
        "anything else meanwhile. An earlier finished run is kept under its date. Then call `summary`.",
        questions.AskProfile,
        answers.ProfileAnswer,
        do=Workshop.profile,
        on_error=_SEE_DOCTOR,
    ),
    Tool(
        "runs",
        "List runs",
        "The run directories in the root, the latest first, each with model, device, latency and verdict. "
        "Call it to find the `run` that the other tools ask for.",
        questions.AskRuns,
        answers.RunsAnswer,
        read=reading.runs,
    ),
    Tool(
        "summary",
        "What a run says",
        "The three answers of a run (where the time goes, what SME2 changes, what next), its experiments "
        "with the time in each category, its comparisons, and what was not tested. Start here for any "
        "question about a run.",
        questions.AskSummary,
        answers.SummaryAnswer,
        read=reading.summary,
        on_error=_SEE_RUNS,
    ),
    Tool(
        "compare",
        "Compare two runs",
        "What changed from one run to another, with confidence intervals and verdicts, down to operators. "
        "Use it after a change of the model, or to look for a regression. Measures nothing. For SME2 on "
        "against off within one run use `summary`.",
        questions.AskCompare,
        answers.CompareAnswer,
        read=reading.compare,
        on_error=_SEE_RUNS,
    ),
    Tool(
        "top_operators",
        "The longest operators",
        "The operators that take longest in one experiment of a run, with share, shapes, arithmetic, module "
        "and source line. Use it to say where in the model the time goes. Where times mean nothing "
        "(emulated), they are ordered by arithmetic and have no times.",
        questions.AskOperators,
        answers.OperatorsAnswer,
        read=reading.top_operators,
        on_error=_SEE_RUNS,
    ),
    Tool(
        "kernel_evidence",
        "Which kernels ran",
        "Which kernels ran in a run, whether that proves SME2, which matrix operators ran without it and "
        "why, and whether outputs with SME2 on and off agree. Call it before claiming that SME2 was or was "
        "not used.",
        questions.AskEvidence,
        answers.EvidenceAnswer,
        read=reading.kernel_evidence,
        on_error=_SEE_RUNS,
    ),
    Tool(
        "headroom",
        "What SME2 could bring",
        "What SME2 could bring to a model measured on an Arm CPU without it: a projection with its range "
        "and the next bottleneck, or why there is none. Never present it as a measurement.",
        questions.AskHeadroom,
        answers.HeadroomAnswer,
        read=reading.headroom,
        on_error=_SEE_RUNS,
    ),
    Tool(
        "advice",
        "What to change",
        "What to change in the model or its export, the largest possible gain first, with operators, source "
        "lines and the most it could save. Call it when the user asks how to make the model faster.",
        questions.AskAdvice,
        answers.AdviceAnswer,
        read=reading.advice,
        on_error=_SEE_RUNS,
    ),
    Tool(
        "query_store",
        "Ask a store of runs",
        "Ask a store of many runs in SQL: which dtype, device or thread count is fastest, which operators or "
        "kernels changed, what failed. Without `sql` it lists the tables and views with their columns: call "
        "it so first. It only reads; what takes longer than 20 s is ended. For one run use `summary`.",
        questions.AskStore,
        answers.StoreAnswer,
        read=query_store,
        on_error="`query_store` without `sql` lists tables and columns",
    ),
    Tool(
        "history",
        "A model's latency over time",
        "A model's latency over all runs of a store, each device, format, experiment and thread count by "
        "itself, with the runs and commits where its level changed, found by a method with a stated rate of "
        "false alarms. Call it when the user asks whether or since when something became slower.",
        questions.AskHistory,
        answers.HistoryAnswer,
        read=history,
        on_error="`query_store` with `FROM programs` lists the models of a store",
    ),
)
