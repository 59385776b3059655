"""The tables of a store: each one list of columns with what they hold and mean.

Files are written by these columns, checked against them when they are read, and documented from them
(`docs/store.md`). A column may be added, with None in older files; none changes its kind or its meaning.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from model_profiling.facts.operators import facts_for
from model_profiling.report.columns import SPEEDUPS as SPEEDUP_COLUMNS

SCHEMA_VERSION = 1

Kind = Literal["text", "whole", "number", "flag", "moment", "texts", "numbers"]
Value = str | int | float | bool | None | list[str] | list[float]
"""What stands in a column; a moment as microseconds since 1970, in UTC."""
Row = tuple[Value, ...]

SQL_TYPES: Mapping[Kind, str] = {
    "text": "VARCHAR",
    "whole": "BIGINT",
    "number": "DOUBLE",
    "flag": "BOOLEAN",
    "moment": "TIMESTAMP",
    "texts": "VARCHAR[]",
    "numbers": "DOUBLE[]",
}


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: Kind
    meaning: str

    @property
    def sql_type(self) -> str:
        return SQL_TYPES[self.kind]


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    meaning: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


_RUN = Column("run_id", "text", "the run")
_SERIES = (
    Column("experiment", "text", "the experiment's name"),
    Column("threads", "whole", "its number of threads"),
)
_OF_RUN = (_RUN, *_SERIES)
_TIMES = Column("times", "text", "what its times are: hardware, traced, emulated, unknown")

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
        _TIMES,
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
    (
        *_OF_RUN,
        _TIMES,
        Column("sme2", "flag", "whether SME2 was left on; null where nothing says"),
        Column("disabled", "texts", "the CPU features that were switched off"),
        Column("state", "text", "done or failed"),
        Column("problem", "text", "why it failed; empty where it did not"),
        Column("measured", "text", "lockstep or rounds"),
        Column("rounds", "whole", "rounds, or launches in lockstep"),
        Column("inferences", "whole", "how many counted"),
        Column("median_ms", "number", "of all inferences without the tracer"),
        Column("low_ms", "number", "the median's 95% interval over rounds; null with fewer than three"),
        Column("high_ms", "number", "its upper end"),
        Column("mean_ms", "number", "the mean"),
        Column("p5_ms", "number", "5% were faster"),
        Column("p95_ms", "number", "5% were slower"),
        Column("min_ms", "number", "the fastest"),
        Column("max_ms", "number", "the slowest"),
        Column("robust_cv", "number", "spread over the median, by the median absolute deviation"),
        Column("traced_median_ms", "number", "the median with the tracer on"),
        Column("tracer_cost", "number", "how much longer the tracer makes it, as a share"),
        Column("load_ms", "number", "loading the program"),
        Column("first_inference_ms", "number", "the first inference"),
        Column("peak_memory_bytes", "whole", "peak memory of the process"),
        Column("joules", "number", "energy of one inference, of the whole phone"),
        Column("joules_low", "number", "its 95% interval"),
        Column("joules_high", "number", "its upper end"),
        Column("kernels_counted", "flag", "whether every KleidiAI call was listed: only then absence proves"),
        Column("kernels_note", "text", "why they were not; empty where they were"),
    ),
)
ROUNDS = Table(
    "rounds",
    "a row for every round (or launch) of every experiment that has latencies",
    (
        *_OF_RUN,
        Column("round", "whole", "counted from 0"),
        Column("launch", "text", "names the launch; empty where a process had the machine to itself"),
        Column("session", "whole", "which start of the pipeline measured it; null where nothing says"),
        Column("started_at", "moment", "when it began, in UTC"),
        Column("latencies_ms", "numbers", "every inference that counts, in order"),
        Column("median_ms", "number", "their median"),
    ),
)

OPERATOR_COLUMNS = tuple(fact for fact in facts_for("csv") if fact.name != "mean_ms")
"""Those that the files of a run keep for all rounds."""
OPERATORS = Table(
    "operators",
    "a row for every operator of every experiment, from traced runs",
    (
        *_OF_RUN,
        _TIMES,
        Column("ms", "number", "its time in a typical inference; adds up to its category"),
        *(Column(fact.name, fact.column_kind, fact.meaning) for fact in OPERATOR_COLUMNS),
    ),
)
CATEGORIES = Table(
    "categories",
    "a row for every category and overhead of every experiment; they add up to its traced end-to-end time",
    (
        *_OF_RUN,
        _TIMES,
        Column("category", "text", "the category or overhead"),
        Column("ms", "number", "its time in a typical inference"),
        Column("pct_of_e2e", "number", "percent of end-to-end time"),
        Column("operators", "whole", "how many operators; null for overheads"),
    ),
)
KERNELS = Table(
    "kernels",
    "a row for every kernel or operator family that ran, or was only configured",
    (
        *_OF_RUN,
        Column("kernel", "text", "its name"),
        Column("calls", "whole", "how often it was called; null where nothing was counted"),
        Column("is_sme2", "flag", "whether it is an SME2 kernel; null where its name does not tell"),
        Column("is_sme", "flag", "whether it is an SME or SME2 kernel; null where its name does not tell"),
        Column("isa", "text", "its instruction set"),
        Column("role", "text", "matmul, packing and so on"),
        Column("library", "text", "kleidiai, xnnpack; operator for a family of operators"),
        Column("evidence", "text", "executed, or only configured"),
        Column("proven_by", "text", "run, or evidence: an emulated run of the same program"),
        Column("counted", "flag", "whether every KleidiAI call of its experiment was listed"),
    ),
)
_SPEEDUP_MEANINGS = {
    "comparison": "what is compared, in words",
    "baseline": "the experiment it is held against",
    "baseline_threads": "its number of threads",
    "candidate": "the experiment looked at",
    "candidate_threads": "its number of threads",
    "verdict": "faster, slower, no significant change, not comparable",
    "ratio": "baseline over candidate: above 1 the candidate is faster",
    "low": "the ratio's interval",
    "high": "its upper end",
    "confidence": "of the interval",
    "baseline_median": "in milliseconds",
    "candidate_median": "in milliseconds",
    "rounds": "how many rounds or launches it rests on",
    "unit": "round or launch",
    "with_tracer": "whether latencies without the tracer were missing",
    "reason": "the answer in words",
}
SPEEDUPS = Table(
    "speedups",
    "a row for every comparison that a run makes",
    (_RUN, *(Column(name, kind, _SPEEDUP_MEANINGS[name]) for name, kind in SPEEDUP_COLUMNS.items())),
)
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


# PyArrow without numpy and pandas, for processes that only pass rows on and are waited for.


class OnlyArrow:
    """A finder of modules for `sys.meta_path`. Where numpy and pandas are installed, pyarrow loads them, for
    nothing: that takes as long as a question."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        del path, target
        if name in ("numpy", "pandas"):
            raise ModuleNotFoundError("not needed here", name=name)


@contextlib.contextmanager
def only_arrow() -> Iterator[None]:
    """What is loaded in the block is loaded so. Not for a library's callers: pyarrow never asks again, and
    `to_pandas` fails from then on."""
    finder = OnlyArrow()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
