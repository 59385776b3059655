"""The tables and views of a store, with the kind and meaning of each column.

The database is created from these lists and documented from them (`sme2prof query --views`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from model_profiling.facts import (
    EXPERIMENT_FACTS,
    KERNEL_FACTS,
    OPERATOR_FACTS,
    SERIES_FACTS,
    SPEEDUP_FACTS,
    TIMES,
    Field,
)

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class StoreTable:
    name: str
    meaning: str
    columns: tuple[Field, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


_RUN = Field("run_id", "text", "the run")
_ALL_TABLES = (
    StoreTable(
        "runs",
        "a row for every run",
        (
            Field("run_id", "text", "computed from how it began: the same wherever it is, and if continued"),
            Field("name", "text", "its name: the program and the place, toy_cnn_xnnpack_fp16/linux"),
            Field("added_at", "moment", "when it was added, in UTC"),
            Field("measured_at", "moment", "when its measuring began, in UTC; null if unknown"),
            Field("model", "text", "the model's name, with the method and inputs that were asked for"),
            Field("dtype", "text", "fp32, fp16, int8, int8-dynamic, int4 and so on; empty if unknown"),
            Field("backend", "text", "xnnpack or portable; empty if unknown"),
            Field("method", "text", "the method that ran; empty if unknown"),
            Field("inputs", "text", "sizes and values of inputs that were asked for; empty if usual"),
            Field("program_sha256", "text", "of the .pte file; empty if unknown"),
            Field("program_bytes", "whole", "its size"),
            Field("device", "text", "identifies one device: histories and baselines use it"),
            Field("device_name", "text", "the device in words"),
            Field("target", "text", "where it ran, as in `--target`; a phone without its serial"),
            Field("platform", "text", "linux, mac, android or emulated"),
            Field("cpu", "text", "the CPU"),
            Field("cores", "whole", "how many"),
            Field("has_sme2", "flag", "whether the CPU has SME2, real or emulated; null if unknown"),
            Field("is_arm", "flag", "whether it is an Arm CPU, real or emulated; null where nothing says"),
            TIMES,
            Field("state", "text", "finished, running, interrupted, partial or failed"),
            Field("processes", "whole", "how many of its processes had ended"),
            Field("executorch", "text", "the version of ExecuTorch"),
            Field("kit", "text", "the version of the kit that measured"),
            Field("runner_build", "text", "the runner's build"),
            Field("os", "text", "the operating system"),
            Field("commit_hash", "text", "the commit of the measured code; empty if unknown"),
            Field("branch", "text", "its branch"),
            Field("sweep", "text", "the sweep that it belongs to; empty if none"),
            Field("run_dir", "text", "its folder when it was added"),
            Field("tags", "record", "its tags, each with a note"),
        ),
    ),
    StoreTable(
        "experiments",
        "a row for every experiment at every number of threads; milliseconds only where times are latencies",
        (
            _RUN,
            *EXPERIMENT_FACTS,
            Field("phase", "text", "of a language model: prompt, or answer, which is one token at a time"),
            Field("latencies_ms", "record", "every inference that counts: a list for each round or launch"),
        ),
    ),
    StoreTable(
        "operators",
        "a row for every operator of every experiment; without times if they are not latencies",
        (
            _RUN,
            *SERIES_FACTS,
            Field("place", "whole", "1 for the longest in its experiment; null without times"),
            *OPERATOR_FACTS,
        ),
    ),
    StoreTable("comparisons", "a row for every comparison in a run", (_RUN, *SPEEDUP_FACTS)),
    StoreTable(
        "kernels",
        "a row for every kernel that an experiment ran or only configured",
        (_RUN, *KERNEL_FACTS),
    ),
)
TABLES: Mapping[str, StoreTable] = {table.name: table for table in _ALL_TABLES}

_TYPES: Mapping[str, sa.types.TypeEngine[Any]] = {
    "text": sa.Text(),
    "whole": sa.BigInteger(),
    "number": sa.Double(),
    "flag": sa.Boolean(),
    "moment": sa.DateTime(),
}
_JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def sql_type(column: Field) -> sa.types.TypeEngine[Any]:
    return _TYPES.get(column.column_kind, _JSON)


METADATA = sa.MetaData()
VERSION = sa.Table("store_version", METADATA, sa.Column("version", sa.Integer, primary_key=True))
IN_DATABASE: Mapping[str, sa.Table] = {
    name: sa.Table(
        name,
        METADATA,
        *(sa.Column(column.name, sql_type(column)) for column in table.columns),
        sa.PrimaryKeyConstraint("run_id") if name == "runs" else sa.Index(f"{name}_of_run", "run_id"),
    )
    for name, table in TABLES.items()
}
sa.Index("runs_of_model", IN_DATABASE["runs"].c.model)
_COLUMNS = {column.name: column for table in reversed(_ALL_TABLES) for column in table.columns}


# Views: the joins that most questions begin with.


@dataclass(frozen=True, slots=True)
class StoreView(StoreTable):
    select: str


_COLUMNS |= {
    column.name: column
    for column in (
        Field("age", "whole", "1 in the newest finished run of its program and device, then 2, ..."),
        Field("operator_dtype", "text", "the data type of its tensors"),
    )
}
FLAGS = frozenset(name for name, column in _COLUMNS.items() if column.kind == "flag")
COLUMN_TYPES = {name: sql_type(column) for name, column in _COLUMNS.items() if name not in FLAGS}
"""By a column's name, which says its type everywhere; but `sme2` is a flag here, and a text there."""


def _view(name: str, meaning: str, chosen: Sequence[str], source: str) -> StoreView:
    """`chosen` are columns: `table.name`, or the SQL for it with `AS name`; `source` is the rest."""
    names = [sql.rpartition(" AS ")[2].rpartition(".")[2] for sql in chosen]
    columns = tuple(_COLUMNS[column] for column in names)
    return StoreView(name, meaning, columns, f"SELECT {', '.join(chosen)} {source}")


def _of(table: str, names: str) -> list[str]:
    return [f"{table}.{name}" for name in names.split()]


_WHAT = _of("runs", "run_id measured_at model dtype backend device device_name is_arm")
_VERSION = _of("runs", "commit_hash branch executorch kit sweep name")
_SAME = "runs.model, runs.dtype, runs.backend, runs.device"
"""Runs with the same values here measure the same thing in the same place."""
_NEWEST = "ORDER BY coalesce(runs.measured_at, runs.added_at) DESC, runs.added_at DESC, runs.run_id"
_LATENCIES = [
    *_WHAT,
    *_of("experiments", "experiment threads sme2 disabled median_ms low_ms high_ms p5_ms p95_ms robust_cv"),
    *_of("experiments", "rounds inferences load_ms first_inference_ms peak_memory_bytes"),
    *_of("experiments", "phase tokens position tokens_per_s"),
    *_VERSION,
]
_TIMED = """
    FROM experiments JOIN runs ON runs.run_id = experiments.run_id WHERE experiments.median_ms IS NOT NULL"""
_RANKED = f"""
    FROM (SELECT {", ".join(_LATENCIES)}, row_number() OVER (
        PARTITION BY {_SAME}, experiments.experiment, experiments.threads {_NEWEST}) AS newest {_TIMED}
    ) AS ranked WHERE newest = 1"""
_ALL_VIEWS = (
    _view(
        "latencies",
        "every latency that was measured: an experiment at a number of threads in a run",
        _LATENCIES,
        _TIMED,
    ),
    _view(
        "latest_latencies",
        "the same, but only the newest of each program, device, experiment and number of threads",
        [sql.rpartition(".")[2] for sql in _LATENCIES],
        _RANKED,
    ),
    _view(
        "sme2_gains",
        "what SME2 gained: every comparison of an experiment without SME2 with one that has it",
        [
            *_WHAT,
            *_of("comparisons", "comparison baseline candidate"),
            "comparisons.candidate_threads AS threads",
            *_of("comparisons", "verdict ratio low high confidence baseline_median candidate_median rounds"),
            *_of("comparisons", "reason"),
            *_VERSION,
        ],
        """FROM comparisons JOIN runs ON runs.run_id = comparisons.run_id
        JOIN experiments without_it ON without_it.run_id = runs.run_id AND NOT without_it.sme2
            AND without_it.experiment = comparisons.baseline
            AND without_it.threads = comparisons.baseline_threads
        JOIN experiments with_it ON with_it.run_id = runs.run_id AND with_it.sme2
            AND with_it.experiment = comparisons.candidate
            AND with_it.threads = comparisons.candidate_threads
        WHERE comparisons.baseline_threads = comparisons.candidate_threads""",
    ),
    _view(
        "operator_times",
        "every operator, with its run; without times if they are not latencies",
        [
            *_WHAT,
            "ages.age",
            *(
                "operators.dtype AS operator_dtype" if name == "dtype" else f"operators.{name}"
                for name in TABLES["operators"].names[1:]
            ),
            *_of("runs", "commit_hash branch"),
        ],
        f"""FROM operators JOIN runs ON runs.run_id = operators.run_id LEFT JOIN (
            SELECT runs.run_id, row_number() OVER (PARTITION BY {_SAME} {_NEWEST}) AS age
            FROM runs WHERE runs.state = 'finished') AS ages ON ages.run_id = runs.run_id""",  # noqa: S608  our own
    ),
    _view(
        "failures",
        "every experiment without a result, with its reason, and every run that did not finish",
        [*_WHAT, "runs.state", *_of("experiments", "experiment threads problem"), "runs.run_dir"],
        """FROM runs LEFT JOIN experiments ON experiments.run_id = runs.run_id
        AND (experiments.state = 'failed' OR experiments.problem <> '')
        WHERE runs.state <> 'finished' OR experiments.run_id IS NOT NULL""",
    ),
)
VIEWS: Mapping[str, StoreView] = {view.name: view for view in _ALL_VIEWS}
TABLES_AND_VIEWS: Mapping[str, StoreTable] = {**TABLES, **VIEWS}
"""Everything that a query may name."""
