"""Views over the tables of a store: the joins that most queries begin with.

`sme2prof query --views` and `docs/store.md` describe them from these definitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from model_profiling.facts.fact import Column, ColumnKind
from model_profiling.store.tables import TABLES, Table


@dataclass(frozen=True, slots=True)
class Shown:
    made_of: str
    column: Column


@dataclass(frozen=True, slots=True)
class View:
    name: str
    meaning: str
    shown: tuple[Shown, ...]
    source: str
    """The SQL after the columns of its SELECT."""

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(shown.column for shown in self.shown)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(shown.column.name for shown in self.shown)

    @property
    def sql(self) -> str:
        columns = ", ".join(f'{shown.made_of} AS "{shown.column.name}"' for shown in self.shown)
        return f"SELECT {columns} {self.source}"


def _of(table: str, *names: str) -> tuple[Shown, ...]:
    known = {column.name: column for column in TABLES[table].columns}
    return tuple(Shown(f'{table}."{name}"', known[name]) for name in names)


def _made(name: str, kind: ColumnKind, meaning: str, made_of: str) -> Shown:
    return Shown(made_of, Column(name, kind, meaning))


def _rest_of(table: str, *without: str) -> tuple[Shown, ...]:
    return _of(table, *(name for name in TABLES[table].names if name not in ("run_id", *without)))


_WHOSE = _of("runs", "run_id", "measured_at", "model", "dtype", "backend", "device", "device_name")
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
        "joules",
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
    View(
        "latencies",
        "every latency that was measured: an experiment at a number of threads in a run",
        _LATENCIES,
        _TIMED,
    ),
    View(
        "latest_latencies",
        "the same, of each model, dtype, backend, device, experiment and number of threads the newest",
        _LATENCIES,
        f"{_TIMED} QUALIFY row_number() OVER (PARTITION BY {_SAME}, experiments.experiment, "
        f"experiments.threads {_NEWEST}) = 1",
    ),
    View(
        "latest_runs",
        "of each model, dtype, backend and device the newest run that is finished",
        _of("runs", *TABLES["runs"].names),
        f"FROM runs WHERE runs.state = 'finished' "
        f"QUALIFY row_number() OVER (PARTITION BY {_SAME} {_NEWEST}) = 1",
    ),
    View(
        "sme2_gains",
        "what SME2 brought: every comparison of an experiment without SME2 with one that had it",
        _GAINS,
        f"{_JOINED.format('speedups')} "
        "JOIN experiments without_it ON without_it.run_id = runs.run_id AND NOT without_it.sme2 "
        "AND without_it.experiment = speedups.baseline AND without_it.threads = speedups.baseline_threads "
        "JOIN experiments with_it ON with_it.run_id = runs.run_id AND with_it.sme2 "
        "AND with_it.experiment = speedups.candidate AND with_it.threads = speedups.candidate_threads "
        "WHERE speedups.baseline_threads = speedups.candidate_threads",
    ),
    View(
        "operator_times",
        "every operator, with the run that it is of; where times mean nothing it has none",
        (
            *_WHOSE,
            *_of("operators", "experiment", "threads"),
            _made(
                "place",
                "whole",
                "1 for the one that takes longest in its experiment; null without times",
                "CASE WHEN operators.ms IS NOT NULL THEN row_number() OVER (PARTITION BY operators.run_id, "
                "operators.experiment, operators.threads ORDER BY operators.ms DESC NULLS LAST) END",
            ),
            *(
                Shown(shown.made_of, Column("operator_dtype", "text", shown.column.meaning))
                if shown.column.name == "dtype"
                else shown
                for shown in _rest_of("operators", "experiment", "threads")
            ),
            *_of("runs", "commit", "branch"),
        ),
        _JOINED.format("operators"),
    ),
    View(
        "category_times",
        "where the time goes: every category and overhead, with the run that it is of",
        (*_WHOSE, *_rest_of("categories"), *_of("runs", "commit", "branch")),
        _JOINED.format("categories"),
    ),
    View(
        "kernels_seen",
        "which kernels a program ran (or only configured) where, since when and until when",
        (
            *_of("runs", "model", "dtype", "backend", "device"),
            *_of("kernels", "experiment", "threads", "kernel", "is_sme2", "evidence", "proven_by"),
            _RUNS,
            *_WHEN,
        ),
        f"{_JOINED.format('kernels')} GROUP BY ALL",
    ),
    View(
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
    View(
        "devices",
        "every device that something was measured on",
        (
            *_of("runs", "device", "device_name", "platform", "cpu", "cores", "has_sme2"),
            _RUNS,
            _made("models", "whole", "how many models", "count(DISTINCT runs.model)"),
            *_WHEN,
        ),
        "FROM runs GROUP BY ALL",
    ),
    View(
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
TABLES_AND_VIEWS: Mapping[str, Table | View] = {**TABLES, **VIEWS}
"""Everything that a query may name."""
