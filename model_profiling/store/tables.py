"""The tables and views of a store, with the kind and meaning of each column.

The database is created from these lists and documented from them (`sme2prof query --views`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from model_profiling.facts import Column, FactKind
from model_profiling.facts.operators import facts_for
from model_profiling.facts.runs import (
    EXPERIMENT_FACTS,
    SERIES_FACTS,
    SPEEDUP_FACTS,
    TIMES,
)

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    meaning: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


_RUN = Column("run_id", "text", "the run")
_TOKENS = ("tokens", "position", "tokens_per_s")

RUNS = Table(
    "runs",
    "a row for every run",
    (
        Column("run_id", "text", "computed from how it began: the same wherever it is, and when continued"),
        Column("name", "text", "its name: the program and the place, toy_cnn_xnnpack_fp16/linux"),
        Column("added_at", "moment", "when it was added, in UTC"),
        Column("measured_at", "moment", "when its measuring began, in UTC; null if unknown"),
        Column("model", "text", "the model's name; `unknown` if not recorded"),
        Column("dtype", "text", "fp32, fp16, int8, int8-dynamic, int4 and so on; empty if unknown"),
        Column("backend", "text", "xnnpack or portable; empty if unknown"),
        Column("method", "text", "the method that ran; empty if unknown"),
        Column("inputs", "text", "sizes and values of inputs that were asked for; empty for the usual ones"),
        Column("program_sha256", "text", "of the .pte file; empty if unknown"),
        Column("program_bytes", "whole", "its size"),
        Column("device", "text", "identifies one device: histories and baselines use it"),
        Column("device_name", "text", "the device in words"),
        Column("target", "text", "where it ran, as in `--target`; a phone without its serial"),
        Column("platform", "text", "linux, mac, android or emulated"),
        Column("cpu", "text", "the CPU"),
        Column("cores", "whole", "how many"),
        Column("has_sme2", "flag", "whether the CPU has SME2, real or emulated; null if unknown"),
        Column("is_arm", "flag", "whether it is an Arm CPU, real or emulated; null where nothing says"),
        TIMES,
        Column("state", "text", "finished, running, interrupted, partial or failed"),
        Column("processes", "whole", "how many of its processes had ended"),
        Column("executorch", "text", "the version of ExecuTorch"),
        Column("kit", "text", "the version of the kit that measured"),
        Column("runner_build", "text", "the runner's build"),
        Column("os", "text", "the operating system"),
        Column("commit_hash", "text", "the commit of the measured code; empty if unknown"),
        Column("branch", "text", "its branch"),
        Column("dirty", "flag", "whether it had uncommitted changes"),
        Column("sweep", "text", "the sweep that it belongs to; empty if none"),
        Column("run_dir", "text", "its folder when it was added"),
        Column("warnings", "texts", "the warnings of its report"),
        Column("kernels", "record", "the kernels that ran or were only configured; the view `kernels_seen`"),
        Column("tags", "record", "its tags, each with a note"),
    ),
)
EXPERIMENTS = Table(
    "experiments",
    "a row for every experiment at every number of threads; milliseconds only where times are latencies",
    (
        _RUN,
        *(fact for fact in EXPERIMENT_FACTS if fact.name not in _TOKENS),
        Column("latencies_ms", "record", "every inference that counts: a list for each round or launch"),
        Column("sessions", "record", "for each round, which start of the pipeline measured it"),
    ),
)
OPERATOR_FACTS = facts_for("json")
OPERATORS = Table(
    "operators",
    "a row for every operator of every experiment, from traced runs; no times if they are not latencies",
    (
        _RUN,
        *SERIES_FACTS,
        Column("place", "whole", "1 for the longest in its experiment; null without times"),
        *OPERATOR_FACTS,
    ),
)
COMPARISONS = Table("comparisons", "a row for every comparison in a run", (_RUN, *SPEEDUP_FACTS))
TOKENS = Table(
    "tokens",
    "a row for every experiment of a language model",
    (
        _RUN,
        *SERIES_FACTS,
        Column("phase", "text", "prompt, or answer: one token at a time"),
        *(fact for fact in EXPERIMENT_FACTS if fact.name in _TOKENS),
    ),
)
TABLES: Mapping[str, Table] = {
    table.name: table for table in (RUNS, EXPERIMENTS, OPERATORS, COMPARISONS, TOKENS)
}

_JSON = sa.JSON().with_variant(JSONB(), "postgresql")
_TYPES: Mapping[str, sa.types.TypeEngine[object]] = {
    "text": sa.Text(),
    "whole": sa.BigInteger(),
    "number": sa.Double(),
    "flag": sa.Boolean(),
    "moment": sa.DateTime(),
}
METADATA = sa.MetaData()
VERSION = sa.Table("store_version", METADATA, sa.Column("version", sa.Integer, primary_key=True))
IN_DATABASE: Mapping[str, sa.Table] = {
    table.name: sa.Table(
        table.name,
        METADATA,
        *(
            sa.Column(
                column.name,
                _TYPES.get(column.column_kind, _JSON),
                primary_key=column.name == "run_id" and table is RUNS,
                index=column.name == "run_id" and table is not RUNS,
            )
            for column in table.columns
        ),
    )
    for table in TABLES.values()
}
sa.Index("runs_of_a_model", *(IN_DATABASE["runs"].c[name] for name in ("model", "device")))
JSON_COLUMNS = frozenset(
    column.name for table in TABLES.values() for column in table.columns if column.column_kind not in _TYPES
)
FLAGS = frozenset(
    column.name for table in TABLES.values() for column in table.columns if column.kind == "flag"
)


# Views: the joins that most questions begin with.

_Shown = tuple[str, Column]
"""A column of a view, after the SQL that makes it."""


@dataclass(frozen=True, slots=True)
class View(Table):
    source: str
    """The SQL after the columns of its SELECT."""
    made_of: tuple[str, ...]
    """The SQL of each column."""

    def sql(self, dialect: str) -> str:
        shown = ", ".join(f"{sql} AS {name}" for sql, name in zip(self.made_of, self.names, strict=True))
        text = f"SELECT {shown} {self.source}"
        for portable, own in _DIALECTS[dialect].items():
            text = text.replace(portable, own)
        return text


_DIALECTS = {
    "sqlite": {
        "EACH_KERNEL": "JOIN json_each(runs.kernels) each_kernel",
        "FIELD(": "json_extract(value, '$.' || ",
    },
    "postgresql": {
        "EACH_KERNEL": "CROSS JOIN LATERAL jsonb_array_elements(runs.kernels) each_kernel",
        "FIELD(": "(value ->> ",
    },
}
"""How each database takes the objects out of a list in JSON, and a field out of an object."""


def _view(name: str, meaning: str, shown: tuple[_Shown, ...], source: str) -> View:
    return View(name, meaning, tuple(column for _, column in shown), source, tuple(sql for sql, _ in shown))


def _of(table: str, *names: str) -> tuple[_Shown, ...]:
    columns = {column.name: column for column in TABLES[table].columns}
    return tuple((f"{table}.{name}", columns[name]) for name in names)


def _made(name: str, kind: FactKind, meaning: str, sql: str) -> _Shown:
    return sql, Column(name, kind, meaning)


_WHAT = _of("runs", "run_id", "measured_at", "model", "dtype", "backend", "device", "device_name", "is_arm")
_VERSION = _of("runs", "commit_hash", "branch", "dirty", "executorch", "kit", "sweep", "name")
_SAME = "runs.model, runs.dtype, runs.backend, runs.device"
"""Runs with the same values here measure the same thing in the same place."""
_NEWEST = "ORDER BY coalesce(runs.measured_at, runs.added_at) DESC, runs.added_at DESC, runs.run_id"
_SPAN = (
    _made("runs", "whole", "in how many runs", "count(DISTINCT runs.run_id)"),
    _made("first_at", "moment", "when it was first measured, in UTC", "min(runs.measured_at)"),
    _made("last_at", "moment", "when it was last measured, in UTC", "max(runs.measured_at)"),
)
_LATENCIES = (
    *_WHAT,
    *_of(
        "experiments", "experiment", "threads", "sme2", "disabled", "median_ms", "low_ms", "high_ms", "p5_ms",
        "p95_ms", "robust_cv", "rounds", "inferences", "load_ms", "first_inference_ms", "peak_memory_bytes",
        "joules",
    ),
    *_of("tokens", *_TOKENS),
    *_VERSION,
)  # fmt: skip
_TIMED = (
    "FROM experiments JOIN runs ON runs.run_id = experiments.run_id LEFT JOIN tokens ON "
    "tokens.run_id = experiments.run_id AND tokens.experiment = experiments.experiment "
    "AND tokens.threads = experiments.threads WHERE experiments.median_ms IS NOT NULL"
)
_AGE = _made(
    "age",
    "whole",
    "1 in the newest finished run of its model, dtype, backend and device, 2 in the one before it, ...",
    "ages.age",
)
_AGES = (
    f"(SELECT runs.run_id, row_number() OVER (PARTITION BY {_SAME} {_NEWEST}) AS age "  # noqa: S608
    "FROM runs WHERE runs.state = 'finished')"
)
_ALL_LATENCIES = _view(
    "latencies",
    "every latency that was measured: an experiment at a number of threads in a run",
    _LATENCIES,
    _TIMED,
)


def _latest_latencies() -> View:
    """The newest row of `latencies` for each program, device, experiment and number of threads."""
    newest = f"experiments.experiment, experiments.threads {_NEWEST}) AS newest"
    names = ", ".join(f"{sql} AS {column.name}" for sql, column in _LATENCIES)
    inner = f"SELECT {names}, row_number() OVER (PARTITION BY {_SAME}, {newest} {_TIMED}"
    return _view(
        "latest_latencies",
        "the same, but only the newest of each program, device, experiment and number of threads",
        tuple((column.name, column) for _, column in _LATENCIES),
        f"FROM ({inner}) AS ranked WHERE newest = 1",
    )


_KERNEL = "EACH_KERNEL WHERE runs.kernels IS NOT NULL"
_ALL = (
    _ALL_LATENCIES,
    _latest_latencies(),
    _view(
        "sme2_gains",
        "what SME2 gained: every comparison of an experiment without SME2 with one that has it",
        (
            *_WHAT,
            *_of("comparisons", "comparison", "baseline", "candidate"),
            _made("threads", "whole", "their number of threads", "comparisons.candidate_threads"),
            *_of(
                "comparisons", "verdict", "ratio", "low", "high", "confidence", "baseline_median",
                "candidate_median", "rounds", "reason",
            ),
            *_VERSION,
        ),
        "FROM comparisons JOIN runs ON runs.run_id = comparisons.run_id "
        "JOIN experiments without_it ON without_it.run_id = runs.run_id AND NOT without_it.sme2 "
        "AND without_it.experiment = comparisons.baseline "
        "AND without_it.threads = comparisons.baseline_threads "
        "JOIN experiments with_it ON with_it.run_id = runs.run_id AND with_it.sme2 "
        "AND with_it.experiment = comparisons.candidate AND with_it.threads = comparisons.candidate_threads "
        "WHERE comparisons.baseline_threads = comparisons.candidate_threads",
    ),
    _view(
        "operator_times",
        "every operator, with its run; without times if they are not latencies",
        (
            *_WHAT,
            _AGE,
            *(
                (sql, Column("operator_dtype", "text", column.meaning) if column.name == "dtype" else column)
                for sql, column in _of("operators", *OPERATORS.names[1:])
            ),
            *_of("runs", "commit_hash", "branch"),
        ),
        f"FROM operators JOIN runs ON runs.run_id = operators.run_id "
        f"LEFT JOIN {_AGES} AS ages ON ages.run_id = runs.run_id",
    ),
    _view(
        "kernels_seen",
        "which kernels each program ran (or only configured), on which device, first and last seen",
        (
            *_of("runs", "model", "dtype", "backend", "device"),
            _made("experiment", "text", "the experiment", "FIELD('experiment')"),
            _made("kernel", "text", "its name", "FIELD('kernel')"),
            _made("is_sme2", "text", "yes, no; null where its name does not tell",
                  "CASE CAST(FIELD('is_sme2') AS TEXT) WHEN 'true' THEN 'yes' WHEN '1' THEN 'yes' "
                  "WHEN 'false' THEN 'no' WHEN '0' THEN 'no' END"),
            _made("evidence", "text", "executed, or only configured", "FIELD('evidence')"),
            _made("proven_by", "text", "run, or evidence: an emulated run of the same program",
                  "FIELD('proven_by')"),
            *_SPAN,
        ),
        f"FROM runs {_KERNEL} GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9",
    ),
    _view(
        "failures",
        "every experiment without a result, with its reason, and every run that did not finish",
        (
            *_WHAT,
            *_of("runs", "state"),
            *_of("experiments", "experiment", "threads", "problem"),
            *_of("runs", "run_dir"),
        ),
        "FROM runs LEFT JOIN experiments ON experiments.run_id = runs.run_id "
        "AND (experiments.state = 'failed' OR experiments.problem <> '') "
        "WHERE runs.state <> 'finished' OR experiments.run_id IS NOT NULL",
    ),
    _view(
        "devices",
        "every device with measurements",
        (
            *_of("runs", "device", "device_name", "platform", "cpu", "cores", "has_sme2", "is_arm"),
            _made("models", "whole", "how many models", "count(DISTINCT runs.model)"),
            *_SPAN,
        ),
        "FROM runs GROUP BY 1, 2, 3, 4, 5, 6, 7",
    ),
    _view(
        "programs",
        "every model, dtype and backend that was measured",
        (
            *_of("runs", "model", "dtype", "backend"),
            _made("devices", "whole", "on how many devices", "count(DISTINCT runs.device)"),
            *_SPAN,
        ),
        "FROM runs GROUP BY 1, 2, 3",
    ),
)  # fmt: skip
VIEWS: Mapping[str, View] = {view.name: view for view in _ALL}
TABLES_AND_VIEWS: Mapping[str, Table] = {**TABLES, **VIEWS}
"""Everything that a query may name."""
