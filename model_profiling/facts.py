"""Facts: every value that the kit can report, with its name, kind, meaning and how to read it from a record.

CSV and JSON files, Python tables, stores, assistants' answers and pages are built from these lists. A new
fact is one line here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from model_profiling.core.formatting import milliseconds, size, tokens_per_s

if TYPE_CHECKING:  # these need numpy and pydantic; querying a store does not
    from model_profiling.analysis.kernels import KernelUse
    from model_profiling.analysis.operators import Operator
    from model_profiling.analysis.pairing import CategoryPair, OperatorPair, Pairing
    from model_profiling.config.series import Series
    from model_profiling.runs import Latency, Result, Run, Times
    from model_profiling.runs.records import PairSpeedup
    from model_profiling.statistics.measure import LatencySummary

Value: TypeAlias = str | int | float | bool | None
ColumnKind = Literal["text", "whole", "number", "flag", "moment", "texts", "numbers"]
FactKind = Literal[ColumnKind, "shape", "shapes", "names", "record"]

_AS_TEXT: frozenset[FactKind] = frozenset({"shape", "shapes", "names"})

Row_contra = TypeVar("Row_contra", contravariant=True)
Known = TypeVar("Known")


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: FactKind
    meaning: str

    @property
    def column_kind(self) -> ColumnKind:
        return "text" if self.kind in _AS_TEXT else self.kind  # type: ignore[return-value]

    def as_cell(self, value: Any) -> Any:
        match self.kind:
            case "shape":
                return shape_text(value)
            case "shapes":
                return " ".join(map(shape_text, value))
            case "names":
                return " + ".join(value)
        return value


@dataclass(frozen=True, slots=True)
class Fact(Field, Generic[Row_contra]):
    of: Callable[[Row_contra], Any]
    label: str = ""
    """The name on a page; empty means `name`."""
    shown: Callable[[Any], str] | None = None
    """How to write the value on a page."""

    @property
    def called(self) -> str:
        return self.label or self.name.replace("_", " ")

    @property
    def timed(self) -> bool:
        """Whether the value is derived from times."""
        return self.kind == "number" or self.name == "runs"

    def cell(self, row: Row_contra) -> Any:
        return self.as_cell(self.of(row))

    def text(self, row: Row_contra) -> str:
        """Return the value as text for a page; empty if it is unknown."""
        value = self.of(row)
        if value is None or value == "":
            return ""
        if self.shown:
            return self.shown(value)
        match self.kind:
            case "shape":
                return shape_text(value, " x ")
            case "shapes":
                return ", ".join(shape_text(each, " x ") for each in value)
            case "number":
                return milliseconds(value) if self.name.endswith("ms") else f"{value:.4g}"
        return str(value)


def row_cells(facts: Iterable[Fact[Known]], row: Known) -> tuple[Any, ...]:
    return tuple(fact.cell(row) for fact in facts)


def row_json(facts: Iterable[Fact[Known]], row: Known) -> dict[str, Any]:
    return {fact.name: fact.of(row) for fact in facts}


def shape_text(shape: Sequence[int], sign: str = "x") -> str:
    return sign.join(map(str, shape))


# Operators.


@dataclass(frozen=True, slots=True)
class OperatorRow:
    operator: Operator
    ms: float
    share: float
    sme2: str = ""


OPERATOR_FACTS: tuple[Fact[OperatorRow], ...] = (
    Fact("name", "text", "its name, as ExecuTorch's Inspector shows it", lambda row: row.operator.name),
    Fact("type", "text", "its name without its number", lambda row: row.operator.type),
    Fact("category", "text", "Convolution, GEMM, Data Movement, Elementwise or Other",
         lambda row: row.operator.category.value),
    Fact("ms", "number", "its time in a typical inference; adds up to its category", lambda row: row.ms),
    Fact("share", "number", "of the time with the tracer on", lambda row: row.share,
         shown=lambda share: f"{100 * share:.1f}%"),
    Fact("sme2", "text", "whether SME2 kernels run it: yes, no and why, or not tested",
         lambda row: row.sme2, label="SME2"),
    Fact("kind", "text", "what it does", lambda row: row.operator.kind),
    Fact("family", "text", "the kernel family in its name", lambda row: row.operator.family, label="variant"),
    Fact("packed", "flag", "whether its kernel packs its operands", lambda row: row.operator.packed),
    Fact("precision", "text", "what it computed in", lambda row: row.operator.precision),
    Fact("runs", "whole", "how many inferences were traced", lambda row: row.operator.times.runs),
    Fact("median_ms", "number", "median", lambda row: row.operator.times.median_ns / 1e6),
    Fact("p10_ms", "number", "10% were faster", lambda row: row.operator.times.p10_ns / 1e6),
    Fact("p90_ms", "number", "10% were slower", lambda row: row.operator.times.p90_ns / 1e6),
    Fact("delegate_backend", "text", "what ran it", lambda row: row.operator.backend, label="backend"),
    Fact("delegated", "flag", "whether a delegate did", lambda row: row.operator.delegated),
    Fact("origin", "text", "model, or lowering where lowering put it in", lambda row: row.operator.origin),
    Fact("dtype", "text", "of its tensors", lambda row: row.operator.source.dtype, label="data type"),
    Fact("input_shapes", "shapes", "1x3x224x224 and so on", lambda row: row.operator.source.input_shapes,
         label="inputs"),
    Fact("output_shape", "shape", "of its result", lambda row: row.operator.source.output_shape,
         label="output"),
    Fact("kernel_size", "shape", "of a convolution", lambda row: row.operator.source.kernel_size or ()),
    Fact("groups", "whole", "of a convolution", lambda row: row.operator.source.groups or None),
    Fact("flops", "whole", "floating-point operations of one inference",
         lambda row: row.operator.source.flops, label="million operations",
         shown=lambda flops: f"{flops / 1e6:.3f}"),
    Fact("bytes_moved", "whole", "bytes read and written", lambda row: row.operator.source.bytes_moved,
         label="data", shown=size),
    Fact("gflops_per_s", "number", "how fast it computed", lambda row: row.operator.gflops,
         label="billion operations/s"),
    Fact("gbytes_per_s", "number", "how fast it moved bytes", lambda row: row.operator.gbytes_per_s,
         label="GB/s"),
    Fact("fused", "text", "what was fused into it", lambda row: " ".join(row.operator.source.fused),
         label="fused with", shown=lambda names: ", ".join(names.split())),
    Fact("graph_node", "text", "its node in the delegate's graph", lambda row: row.operator.source.node_kind),
    Fact("debug_handle", "whole", "ExecuTorch's handle",
         lambda row: None if row.operator.source.debug_handle < 0 else row.operator.source.debug_handle),
    Fact("method", "text", "the program's method", lambda row: row.operator.method),
    Fact("call", "whole", "which call of a delegate it belongs to", lambda row: row.operator.call),
    Fact("position", "whole", "its place in there", lambda row: row.operator.position),
    Fact("module_path", "text", "the module of the model",
         lambda row: row.operator.source.place.module_path, label="module"),
    Fact("module_class", "text", "its class", lambda row: row.operator.source.place.module_class),
    Fact("source", "text", "line of the model that makes it; empty where unknown",
         lambda row: row.operator.source.place.source_line),
    Fact("source_file", "text", "where the model's code says it", lambda row: row.operator.source.place.file),
    Fact("source_line", "whole", "the line", lambda row: row.operator.source.place.line or None),
    Fact("source_code", "text", "the code", lambda row: row.operator.source.place.code),
)  # fmt: skip


def json_facts(row: OperatorRow, *, timed: bool = True) -> dict[str, Any]:
    """Return every fact; those derived from times are left out unless `timed`."""
    return {fact.name: fact.of(row) for fact in OPERATOR_FACTS if timed or not fact.timed}


# Experiments, categories, kernels and comparisons.

_Self = TypeVar("_Self", bound="MeasuredSeries")


class WithSeries(Protocol):
    @property
    def series(self) -> Series: ...


class _Timed(WithSeries, Protocol):
    @property
    def times(self) -> Times: ...


SERIES_FACTS: tuple[Fact[WithSeries], ...] = (
    Fact("experiment", "text", "the experiment's name", lambda row: row.series.experiment),
    Fact("threads", "whole", "its number of threads", lambda row: row.series.threads),
)
TIMES: Fact[_Timed] = Fact(
    "times", "text", "what its times are: hardware, traced, emulated, unknown",
    lambda row: row.times.value,
)  # fmt: skip
TRACED_FACTS: tuple[Fact[_Timed], ...] = (*SERIES_FACTS, TIMES)


@dataclass(frozen=True, slots=True)
class MeasuredSeries:
    series: Series
    times: Times
    sme2: bool | None
    result: Result | None
    latency: Latency | None
    """None if the times are not latencies or nothing was measured without the tracer."""
    interval: tuple[float, float] | None = field(default=None, kw_only=True)
    """The 95% interval of the median over rounds, if it was asked for."""
    tokens: int | None = field(default=None, kw_only=True)
    position: int | None = field(default=None, kw_only=True)

    @classmethod
    def of(cls: type[_Self], run: Run, series: Series, **more: Any) -> _Self:
        times = run.times_of(series)
        latency = run.metrics.latency(series) if run.metrics and times.are_latencies else None
        of_run = run.whole.manifest
        if of_run is not None:
            more = {"tokens": of_run.tokens, "position": of_run.position, **more}
        return cls(series, times, run.sme2_of(series), run.result(series), latency, **more)

    @property
    def untraced(self) -> LatencySummary | None:
        return self.latency.end_to_end_ms if self.latency else None


EXPERIMENT_FACTS: tuple[Fact[MeasuredSeries], ...] = (
    *TRACED_FACTS,
    Fact("sme2", "flag", "whether SME2 was left on; null where nothing says", lambda row: row.sme2),
    Fact("disabled", "texts", "the CPU features that were switched off",
         lambda row: list(row.result.disable) if row.result else []),
    Fact("state", "text", "done or failed", lambda row: row.result.state if row.result else ""),
    Fact("problem", "text", "why it failed; empty where it did not",
         lambda row: (row.result and row.result.problem) or ""),
    Fact("measured", "text", "wall time (of inferences that nobody interrupted) or cpu time",
         lambda row: row.latency.measured if row.latency else ""),
    Fact("way", "text", "lockstep or rounds", lambda row: row.latency.way if row.latency else ""),
    Fact("rounds", "whole", "rounds, or launches in lockstep",
         lambda row: row.latency and row.latency.rounds),
    Fact("inferences", "whole", "how many counted", lambda row: row.untraced and row.untraced.count),
    Fact("median_ms", "number", "of all inferences without the tracer",
         lambda row: row.untraced and row.untraced.median),
    Fact("low_ms", "number", "the median's 95% interval over rounds; null with fewer than three",
         lambda row: row.untraced and row.interval and row.interval[0]),
    Fact("high_ms", "number", "its upper end",
         lambda row: row.untraced and row.interval and row.interval[1]),
    Fact("p5_ms", "number", "5% were faster", lambda row: row.untraced and row.untraced.p5),
    Fact("p95_ms", "number", "5% were slower", lambda row: row.untraced and row.untraced.p95),
    Fact("min_ms", "number", "the fastest", lambda row: row.untraced and row.untraced.minimum),
    Fact("max_ms", "number", "the slowest", lambda row: row.untraced and row.untraced.maximum),
    Fact("robust_cv", "number", "spread over the median, by the median absolute deviation",
         lambda row: row.untraced and row.untraced.robust_cv),
    Fact("traced_median_ms", "number", "the median with the tracer on",
         lambda row: row.latency and row.latency.traced_ms and row.latency.traced_ms.median),
    Fact("tracer_cost", "number", "how much longer the tracer makes it, as a share",
         lambda row: row.latency and row.latency.tracer_cost and row.latency.tracer_cost.share),
    Fact("load_ms", "number", "loading the program", lambda row: row.latency and row.latency.load_ms),
    Fact("first_inference_ms", "number", "the first inference",
         lambda row: row.latency and row.latency.first_inference_ms),
    Fact("peak_memory_bytes", "whole", "peak memory of the process",
         lambda row: row.latency and row.latency.peak_memory_bytes),
    Fact("packed_bytes", "whole", "of the peak, XNNPACK's packed weights; null where memory is not measured",
         lambda row: row.latency and row.latency.memory and row.latency.memory.packed),
    Fact("workspace_bytes", "whole", "of the peak, XNNPACK's workspace",
         lambda row: row.latency and row.latency.memory and row.latency.memory.workspace),
    Fact("cold_load_ms", "number", "loading with the program read from the disk; null if it could not be",
         lambda row: row.latency and row.latency.loading and row.latency.loading.cold
         and row.latency.loading.cold.load_ms),
    Fact("kernels_counted", "flag", "whether every KleidiAI call was listed: only then absence proves",
         lambda row: row.result is not None and row.result.counted_kernels),
    Fact("kernels_note", "text", "why they were not; empty where they were",
         lambda row: (row.result and row.result.kernels_note) or ""),
    Fact("tokens", "whole", "tokens in one inference of a language model; null for other programs",
         lambda row: row.tokens),
    Fact("position", "whole", "the first token's position in the cache; null if unknown",
         lambda row: row.position),
    Fact("tokens_per_s", "number", "tokens per second: `tokens` over `median_ms`",
         lambda row: tokens_per_s(row.tokens, row.untraced.median if row.untraced else None)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CategoryRow:
    """A category or overhead of one experiment; its figures are None if times mean nothing."""

    series: Series
    times: Times
    name: str
    ms: float | None
    share: float | None
    operators: int | None


CATEGORY_FACTS: tuple[Fact[CategoryRow], ...] = (
    *TRACED_FACTS,
    Fact("category", "text", "the category or overhead", lambda row: row.name),
    Fact("ms", "number", "its time in a typical inference", lambda row: row.ms),
    Fact("share", "number", "of the end-to-end time", lambda row: row.share),
    Fact("operators", "whole", "how many operators; null for overheads", lambda row: row.operators),
)


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A kernel that one experiment executed or only configured."""

    series: Series
    use: KernelUse
    proven_by: str
    counted: bool


KERNEL_FACTS: tuple[Fact[KernelRow], ...] = (
    *SERIES_FACTS,
    Fact("kernel", "text", "its name", lambda row: row.use.kernel.name),
    Fact("calls", "whole", "how often it was called; null where nothing was counted",
         lambda row: row.use.calls),
    Fact("is_sme2", "flag", "whether it is an SME2 kernel; null where its name does not tell",
         lambda row: row.use.kernel.has_sme2),
    Fact("is_sme", "flag", "whether it is an SME or SME2 kernel; null where its name does not tell",
         lambda row: row.use.kernel.has_sme),
    Fact("isa", "text", "its instruction set", lambda row: row.use.kernel.isa),
    Fact("role", "text", "matmul, packing and so on", lambda row: row.use.kernel.role),
    Fact("library", "text", "kleidiai, xnnpack; operator for a family of operators",
         lambda row: row.use.kernel.library),
    Fact("evidence", "text", "executed, or only configured", lambda row: row.use.evidence),
    Fact("proven_by", "text", "run, or evidence: an emulated run of the same program",
         lambda row: row.proven_by),
    Fact("counted", "flag", "whether every KleidiAI call of its experiment was listed",
         lambda row: row.counted),
)  # fmt: skip

SPEEDUP_FACTS: tuple[Fact[PairSpeedup], ...] = (
    Fact("comparison", "text", "what is compared, in words", lambda row: row.label),
    Fact("baseline", "text", "the experiment compared with", lambda row: row.baseline.experiment),
    Fact("baseline_threads", "whole", "its number of threads", lambda row: row.baseline.threads),
    Fact("candidate", "text", "the experiment that is judged", lambda row: row.candidate.experiment),
    Fact("candidate_threads", "whole", "its number of threads", lambda row: row.candidate.threads),
    Fact("verdict", "text", "faster, slower, no significant change, not comparable",
         lambda row: row.speedup.verdict.value),
    Fact("ratio", "number", "baseline over candidate: above 1 the candidate is faster",
         lambda row: row.speedup.ratio),
    Fact("low", "number", "the ratio's interval", lambda row: row.speedup.low),
    Fact("high", "number", "its upper end", lambda row: row.speedup.high),
    Fact("confidence", "number", "of the interval", lambda row: row.speedup.confidence),
    Fact("baseline_median", "number", "in milliseconds", lambda row: row.speedup.baseline_median),
    Fact("candidate_median", "number", "in milliseconds", lambda row: row.speedup.candidate_median),
    Fact("rounds", "whole", "how many rounds or launches it rests on", lambda row: row.speedup.rounds),
    Fact("unit", "text", "round or launch", lambda row: row.speedup.unit),
    Fact("with_tracer", "flag", "whether latencies without the tracer were missing",
         lambda row: row.with_tracer),
    Fact("reason", "text", "the answer in words", lambda row: row.speedup.reason),
)  # fmt: skip

Pair_co = TypeVar("Pair_co", bound="CategoryPair | OperatorPair", covariant=True)


@dataclass(frozen=True, slots=True)
class Change(Generic[Pair_co]):
    """A category or an operator before and after; without times if they mean nothing."""

    pair: Pair_co
    pairing: Pairing

    @property
    def timed(self) -> bool:
        return self.pairing.baseline.times.are_shown and self.pairing.candidate.times.are_shown


_COMPARISON: Fact[Change[CategoryPair | OperatorPair]] = Fact(
    "comparison", "text", "what is compared, in words", lambda row: row.pairing.label
)
_SIDE_BY_SIDE: tuple[Fact[Change[CategoryPair | OperatorPair]], ...] = (
    Fact("baseline_ms", "number", "its time before", lambda row: row.pair.baseline_ms if row.timed else None),
    Fact("candidate_ms", "number", "its time after",
         lambda row: row.pair.candidate_ms if row.timed else None),
    Fact("verdict", "text", "faster, slower, no significant change, not comparable; empty without an answer",
         lambda row: row.pair.speedup.verdict.value if row.pair.speedup else ""),
    Fact("ratio", "number", "before over after: above 1 it became faster", lambda row: row.pair.ratio),
    Fact("low", "number", "the ratio's interval", lambda row: row.pair.speedup and row.pair.speedup.low),
    Fact("high", "number", "its upper end", lambda row: row.pair.speedup and row.pair.speedup.high),
)  # fmt: skip
CATEGORY_CHANGE_FACTS: tuple[Fact[Change[CategoryPair]], ...] = (
    _COMPARISON,
    Fact("category", "text", "the category or overhead", lambda row: row.pair.name),
    *_SIDE_BY_SIDE,
    Fact("baseline_share", "number", "of the time before", lambda row: row.pair.baseline_share),
    Fact("candidate_share", "number", "of the time after", lambda row: row.pair.candidate_share),
)
OPERATOR_CHANGE_FACTS: tuple[Fact[Change[OperatorPair]], ...] = (
    _COMPARISON,
    Fact("operator", "text", "its name", lambda row: row.pair.main.name),
    Fact("baseline", "names", "the operators before",
         lambda row: [operator.name for operator in row.pair.baseline]),
    Fact("candidate", "names", "the operators after",
         lambda row: [operator.name for operator in row.pair.candidate]),
    Fact("change", "text", "same, or how it was matched", lambda row: row.pair.change),
    Fact("category", "text", "its category", lambda row: row.pair.category.value),
    Fact("place", "text", "its place in the model", lambda row: row.pair.main.place),
    Fact("kernel_before", "text", "its kernel family before", lambda row: row.pair.families[0]),
    Fact("kernel_after", "text", "its kernel family after", lambda row: row.pair.families[1]),
    *_SIDE_BY_SIDE,
)  # fmt: skip
