"""The tables of a store, with the kind and meaning of each column.

Files are written with these columns, checked against them when they are read, and documented from them
(`docs/store.md`). A column may be added, with None in older files; no column changes its kind or meaning.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from model_profiling.facts.fact import Column
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
        Column("run_id", "text", "told from what was measured, wherever the run lies"),
        Column("name", "text", "what people call it: the program and the place, toy_cnn_xnnpack_fp16/linux"),
        Column("added_at", "moment", "when it was added, in UTC"),
        Column("measured_at", "moment", "when its measuring began, in UTC; null where nothing says"),
        Column("model", "text", "the model's name; unknown where nothing tells"),
        Column("dtype", "text", "fp32, fp16 or int8; empty where neither name nor record tells"),
        Column("backend", "text", "xnnpack or portable; empty where the program's name does not tell"),
        Column("program_sha256", "text", "of the .pte file; empty where it is not known"),
        Column("program_bytes", "whole", "its size"),
        Column("device", "text", "names one device: what histories and baselines go by"),
        Column("device_name", "text", "the device in words"),
        Column("target", "text", "where it ran, as `--target` names it; a phone without its serial"),
        Column("platform", "text", "linux, mac, android or emulated"),
        Column("cpu", "text", "the CPU"),
        Column("cores", "whole", "how many"),
        Column("has_sme2", "flag", "whether the CPU has SME2, real or emulated; null where nothing says"),
        TIMES,
        Column("state", "text", "finished, or how far it came: running, interrupted, partial, failed"),
        Column("executorch", "text", "the version of ExecuTorch"),
        Column("kit", "text", "the version of the kit that measured"),
        Column("runner_build", "text", "the runner's build"),
        Column("os", "text", "the operating system"),
        Column("commit", "text", "of the code that was measured; empty where it is not known"),
        Column("branch", "text", "its branch"),
        Column("dirty", "flag", "whether it had changes that are in no commit"),
        Column("sweep", "text", "the sweep that it belongs to; empty for none"),
        Column("run_dir", "text", "where it lay when it was added"),
        Column("report", "text", "its report's file name in there; empty where there was none"),
        Column("supersedes", "text", "the run_id that it had before it was continued; empty for none"),
        Column("warnings", "texts", "what its report warns of"),
        Column("begun", "text", "the same for a run and what it was before it was continued"),
        Column("processes", "whole", "how many processes had ended in it"),
        Column("row_count", "whole", "how many rows it has in the other tables, tags left out"),
        Column("run_dir_from_store", "text", "where it lay, seen from the store: they may be moved together"),
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
SPEEDUPS = Table("speedups", "a row for every comparison that a run makes", (_RUN, *SPEEDUP_FACTS))
ENVIRONMENT = Table(
    "environment",
    "a row for every fact of the machine, before and after measuring",
    (
        _RUN,
        Column("taken", "text", "before or after"),
        Column("name", "text", "governor, versions.compiler, device.battery.percent and so on"),
        Column("value", "text", "as text"),
        Column("number", "number", "as a number; null where it is none"),
    ),
)
TAGS = Table(
    "tags",
    "what people call runs; the newest row of a run and a tag counts, `-tag` takes it away",
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
