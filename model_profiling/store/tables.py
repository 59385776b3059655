"""The tables and views of a store, with the kind and meaning of each column.

Files are written with these columns, checked against them when they are read, and documented from them
(docs/reference/store.md). A column may be added, with None in older files; no column changes kind or meaning.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from model_profiling.facts import Column, ColumnKind
from model_profiling.facts.operators import facts_for
from model_profiling.facts.runs import (
    CATEGORY_FACTS,
    EXPERIMENT_FACTS,
    KERNEL_FACTS,
    ROUND_FACTS,
    SPEEDUP_FACTS,
    TIMES,
    TRACED_FACTS,
    TYPICAL_MS,
)

SCHEMA_VERSION = 1

Value = str | int | float | bool | None | list[str] | list[float]
"""The value of a column; a time is microseconds since 1970, in UTC."""
Row = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    meaning: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


_RUN = Column("run_id", "text", "the run")

RUNS = Table(
    "runs",
    "a row for every run",
    (
        Column("run_id", "text", "computed from what was measured, independent of the folder"),
        Column("name", "text", "its name: the program and the place, toy_cnn_xnnpack_fp16/linux"),
        Column("added_at", "moment", "when it was added, in UTC"),
        Column("measured_at", "moment", "when its measuring began, in UTC; null if unknown"),
        Column("model", "text", "the model's name; `unknown` if not recorded"),
        Column("dtype", "text", "fp32, fp16, int8, int8-dynamic, int4 and so on; empty if unknown"),
        Column("backend", "text", "xnnpack or portable; empty if unknown"),
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
        Column("executorch", "text", "the version of ExecuTorch"),
        Column("kit", "text", "the version of the kit that measured"),
        Column("runner_build", "text", "the runner's build"),
        Column("os", "text", "the operating system"),
        Column("commit", "text", "of the measured code; empty if unknown"),
        Column("branch", "text", "its branch"),
        Column("dirty", "flag", "whether it had uncommitted changes"),
        Column("sweep", "text", "the sweep that it belongs to; empty if none"),
        Column("run_dir", "text", "its folder when it was added"),
        Column("report", "text", "its report's file name in that folder; empty if none"),
        Column("supersedes", "text", "the run_id that it had before it was continued; empty if none"),
        Column("warnings", "texts", "the warnings of its report"),
        Column("begun", "text", "the same for a run and what it was before it was continued"),
        Column("processes", "whole", "how many of its processes had ended"),
        Column("row_count", "whole", "how many rows it has in the other tables, without tags"),
        Column("run_dir_from_store", "text", "its folder relative to the store: both may be moved together"),
        Column("method", "text", "the method that ran; empty if unknown"),
        Column("inputs", "text", "sizes and values of inputs that were asked for; empty for the usual ones"),
    ),
)
EXPERIMENTS = Table(
    "experiments",
    "a row for every experiment at every number of threads; milliseconds only where times are latencies",
    (_RUN, *EXPERIMENT_FACTS),
)
ROUNDS = Table(
    "rounds",
    "a row for every round (or launch) of every experiment that has latencies",
    (_RUN, *ROUND_FACTS),
)

OPERATOR_COLUMNS = tuple(fact for fact in facts_for("csv") if fact.name != "mean_ms")
"""The columns that a run's files keep for all rounds."""
OPERATORS = Table(
    "operators",
    "a row for every operator of every experiment, from traced runs",
    (_RUN, *TRACED_FACTS, TYPICAL_MS, *OPERATOR_COLUMNS),
)
CATEGORIES = Table(
    "categories",
    "a row for every category and overhead of every experiment; they add up to its traced end-to-end time",
    (_RUN, *CATEGORY_FACTS),
)
KERNELS = Table(
    "kernels",
    "a row for every kernel or operator family that ran, or was only configured",
    (_RUN, *KERNEL_FACTS),
)
SPEEDUPS = Table("speedups", "a row for every comparison in a run", (_RUN, *SPEEDUP_FACTS))
ENVIRONMENT = Table(
    "environment",
    "a row for every fact of the machine, before and after measuring",
    (
        _RUN,
        Column("taken", "text", "before or after"),
        Column("name", "text", "governor, versions.compiler, device.battery.percent and so on"),
        Column("value", "text", "as text"),
        Column("number", "number", "as a number; null if it is not one"),
    ),
)
TAGS = Table(
    "tags",
    "tags of runs; the newest row of a run and a tag counts, `-tag` removes it",
    (
        _RUN,
        Column("tag", "text", "the tag"),
        Column("tagged_at", "moment", "when, in UTC"),
        Column("note", "text", "why"),
    ),
)

TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        RUNS, EXPERIMENTS, ROUNDS, OPERATORS, CATEGORIES, KERNELS, SPEEDUPS, ENVIRONMENT, TAGS,
    )
}  # fmt: skip


# Views: the joins that most queries begin with; `sme2prof query --views` describes them.


_Shown = tuple[str, Column]
"""A column of a view, after the SQL that makes it."""


@dataclass(frozen=True, slots=True)
class View(Table):
    sql: str


def _view(name: str, meaning: str, shown: tuple[_Shown, ...], source: str) -> View:
    """`source` is the SQL after the columns of its SELECT."""
    columns = ", ".join(f'{made_of} AS "{column.name}"' for made_of, column in shown)
    return View(name, meaning, tuple(column for _, column in shown), f"SELECT {columns} {source}")


def _of(table: str, *names: str) -> tuple[_Shown, ...]:
    known = {column.name: column for column in TABLES[table].columns}
    return tuple((f'{table}."{name}"', known[name]) for name in names)


def _made(name: str, kind: ColumnKind, meaning: str, made_of: str) -> _Shown:
    return made_of, Column(name, kind, meaning)


def _rest_of(table: str, *without: str) -> tuple[_Shown, ...]:
    return _of(table, *(name for name in TABLES[table].names if name not in ("run_id", *without)))


_WHOSE = _of("runs", "run_id", "measured_at", "model", "dtype", "backend", "device", "device_name", "is_arm")
_VERSION = _of("runs", "commit", "branch", "dirty", "executorch", "kit", "sweep", "name")
_SAME = "runs.model, runs.dtype, runs.backend, runs.device"
"""Runs with the same values here measure the same thing in the same place."""
_NEWEST = "ORDER BY runs.measured_at DESC NULLS LAST, runs.added_at DESC, runs.run_id"
_WHEN = (
    _made("first_at", "moment", "when it was first measured, in UTC", "min(runs.measured_at)"),
    _made("last_at", "moment", "when it was last measured, in UTC", "max(runs.measured_at)"),
)
_RUNS = _made("runs", "whole", "in how many runs", "count(DISTINCT runs.run_id)")
_LATENCIES = (
    *_WHOSE,
    *_of(
        "experiments", "experiment", "threads", "sme2", "disabled", "median_ms", "low_ms", "high_ms", "p5_ms",
        "p95_ms", "robust_cv", "rounds", "inferences", "load_ms", "first_inference_ms", "peak_memory_bytes",
        "joules", "tokens", "position", "tokens_per_s",
    ),
    *_VERSION,
)  # fmt: skip
_GAINS = (
    *_WHOSE,
    *_of("speedups", "comparison", "baseline", "candidate"),
    _made("threads", "whole", "their number of threads", "speedups.candidate_threads"),
    *_of(
        "speedups", "verdict", "ratio", "low", "high", "confidence", "baseline_median", "candidate_median",
        "rounds", "reason",
    ),
    *_VERSION,
)  # fmt: skip
_JOINED = "FROM {0} JOIN runs ON runs.run_id = {0}.run_id"
_TIMED = f"{_JOINED.format('experiments')} WHERE experiments.median_ms IS NOT NULL"

_ALL = (
    _view(
        "latencies",
        "every latency that was measured: an experiment at a number of threads in a run",
        _LATENCIES,
        _TIMED,
    ),
    _view(
        "latest_latencies",
        (
            "the same, but only the newest of each model, dtype, backend, device, experiment and number of "
            "threads"
        ),
        _LATENCIES,
        f"{_TIMED} QUALIFY row_number() OVER (PARTITION BY {_SAME}, experiments.experiment, "
        f"experiments.threads {_NEWEST}) = 1",
    ),
    _view(
        "latest_runs",
        "the newest finished run of each model, dtype, backend and device",
        _of("runs", *TABLES["runs"].names),
        f"FROM runs WHERE runs.state = 'finished' "
        f"QUALIFY row_number() OVER (PARTITION BY {_SAME} {_NEWEST}) = 1",
    ),
    _view(
        "sme2_gains",
        "what SME2 gained: every comparison of an experiment without SME2 with one that has it",
        _GAINS,
        f"{_JOINED.format('speedups')} "
        "JOIN experiments without_it ON without_it.run_id = runs.run_id AND NOT without_it.sme2 "
        "AND without_it.experiment = speedups.baseline AND without_it.threads = speedups.baseline_threads "
        "JOIN experiments with_it ON with_it.run_id = runs.run_id AND with_it.sme2 "
        "AND with_it.experiment = speedups.candidate AND with_it.threads = speedups.candidate_threads "
        "WHERE speedups.baseline_threads = speedups.candidate_threads",
    ),
    _view(
        "operator_times",
        "every operator, with its run; without times if they are not latencies",
        (
            *_WHOSE,
            *_of("operators", "experiment", "threads"),
            _made(
                "place",
                "whole",
                "1 for the longest in its experiment; null without times",
                "CASE WHEN operators.ms IS NOT NULL THEN row_number() OVER (PARTITION BY operators.run_id, "
                "operators.experiment, operators.threads ORDER BY operators.ms DESC NULLS LAST) END",
            ),
            *(
                (
                    made_of,
                    Column("operator_dtype", "text", column.meaning) if column.name == "dtype" else column,
                )
                for made_of, column in _rest_of("operators", "experiment", "threads")
            ),
            *_of("runs", "commit", "branch"),
        ),
        _JOINED.format("operators"),
    ),
    _view(
        "category_times",
        "where the time goes: every category and overhead, with its run",
        (*_WHOSE, *_rest_of("categories"), *_of("runs", "commit", "branch")),
        _JOINED.format("categories"),
    ),
    _view(
        "kernels_seen",
        "which kernels each program ran (or only configured), on which device, first and last seen",
        (
            *_of("runs", "model", "dtype", "backend", "device"),
            *_of("kernels", "experiment", "threads", "kernel", "is_sme2", "evidence", "proven_by"),
            _RUNS,
            *_WHEN,
        ),
        f"{_JOINED.format('kernels')} GROUP BY ALL",
    ),
    _view(
        "failures",
        "every experiment without a result, with its reason, and every run that did not finish",
        (
            *_WHOSE,
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
            _RUNS,
            _made("models", "whole", "how many models", "count(DISTINCT runs.model)"),
            *_WHEN,
        ),
        "FROM runs GROUP BY ALL",
    ),
    _view(
        "programs",
        "every model, dtype and backend that was measured",
        (
            *_of("runs", "model", "dtype", "backend"),
            _RUNS,
            _made("devices", "whole", "on how many devices", "count(DISTINCT runs.device)"),
            *_WHEN,
        ),
        "FROM runs GROUP BY ALL",
    ),
)
VIEWS: Mapping[str, View] = {view.name: view for view in _ALL}
TABLES_AND_VIEWS: Mapping[str, Table] = {**TABLES, **VIEWS}
"""Everything that a query may name."""


# PyArrow without numpy and pandas, for short-lived processes that somebody waits for.


class OnlyArrow:
    """An import finder for `sys.meta_path` that hides numpy and pandas. Where they are installed, pyarrow
    loads them for nothing, which takes as long as a query."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        del path, target
        if name in ("numpy", "pandas"):
            raise ModuleNotFoundError("not needed here", name=name)


@contextlib.contextmanager
def only_arrow() -> Iterator[None]:
    """Import pyarrow without numpy and pandas in this block. Not for a library: pyarrow never tries again,
    and `to_pandas` fails from then on."""
    finder = OnlyArrow()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
