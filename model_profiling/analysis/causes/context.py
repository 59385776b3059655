"""The context in which causes are looked for, with helpers that all causes share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from model_profiling.analysis.coverage import Coverage
from model_profiling.analysis.findings import WORTH, Concern, Finding, by_kind, percent, where
from model_profiling.analysis.operators import CUT, Operator
from model_profiling.analysis.series import SeriesAnalysis, Spent
from model_profiling.core.formatting import listing, plural, several
from model_profiling.program.delegates.reach import reach_in
from model_profiling.program.flow import Flow, Place, Step, flow_of, input_independent

KINDS_NAMED = 3
NOUNS = {
    "linear": "linear layer",
    "matmul": "matrix product",
    "pointwise convolution": "1x1 convolution",
    "convolution": "convolution",
    "depthwise convolution": "depthwise convolution",
    "transposed convolution": "transposed convolution",
}
"""Kinds of matrix operators in words."""
ANY_NOUN = "matrix operator"
CONVERSIONS = ("quantize", "dequantize", "convert")


@dataclass(frozen=True, slots=True)
class MethodFlow:
    """The data flow of a method, and the operator that each step ran as."""

    flow: Flow
    independent: frozenset[int]
    """Steps with results that do not depend on the method's input."""
    operators: Mapping[int, Operator]
    """By step; one that the backend fused into another or left out has none."""

    def ran_as(self, steps: Sequence[Step]) -> list[Operator]:
        places = (self.flow.at[step.place] for step in steps)
        return [self.operators[place] for place in places if place in self.operators]


@dataclass(frozen=True, slots=True)
class FindingContext:
    """A series, and the operators that earlier findings have claimed."""

    series: SeriesAnalysis
    timed: bool
    """Its times are latencies of a CPU that the advice is for, so bounds can be given."""
    claimed: frozenset[tuple[str, int, int]] = frozenset()
    """Operators of causes found before, not available to others."""
    repacking: Mapping[str, int] = field(default_factory=dict)
    """Kernels that packed weights while the program ran, with their calls, where calls were counted."""
    flows: Mapping[str, MethodFlow] = field(default_factory=dict)
    """By method; empty without a program."""
    coverage: Coverage | None = None
    """What is proven to run on SME2."""
    threads: frozenset[int] = frozenset()
    """The thread counts of the run; 0 for one that is not known."""
    executorch: str = ""
    beside: Mapping[str, float] = field(default_factory=dict)
    """Other number formats of the model, measured beside this run: milliseconds."""
    memory_rate: float | None = None
    """Bytes per second that the memory was measured to give to as many threads."""

    def finding(
        self,
        id: str,
        title: str,
        action: str,
        about: Sequence[Operator | Concern],
        evidence: Mapping[str, object] | None = None,
        *,
        saved_ms: float | None = None,
        besides: Spent | None = None,
        besides_what: str = "",
        first_step: str = "",
        parts: tuple[str, ...] = (),
        has_cure: bool = True,
        slower: float = 1.0,
    ) -> Finding:
        """A finding about operators that may save `saved_ms`, by default all of their time, and `besides`.

        Without latencies, they are known to take about `slower` times as long as their work suggests.
        """
        concerns = tuple(
            each if isinstance(each, Concern) else Concern((each,), where(each)) for each in about
        )
        if saved_ms is None:
            saved_ms = self.series.spent_by([one for each in concerns for one in each.operators]).ms
        beside_ms = besides.ms if besides else 0.0
        return Finding(
            id,
            title,
            action,
            self.series,
            concerns,
            evidence or {},
            self.series.gain_pct(saved_ms, beside_ms) if self.timed else None,
            besides if beside_ms else None,
            besides_what,
            first_step=first_step,
            parts=parts,
            has_cure=has_cure,
            weight_pct=0.0 if self.timed else self._work_pct(concerns, slower),
        )

    def _work_pct(self, concerns: Sequence[Concern], slower: float) -> float:
        """Their share of all work, for the order of findings without a bound."""
        if self.series.times.are_latencies:
            slower = 1.0  # of another CPU, but measured
        own = sum(self.weight(operator) for concern in concerns for operator in concern.operators)
        whole = sum(map(self.weight, self.series.operators)) + (slower - 1) * own
        return percent(slower * own / whole) if whole else 0.0

    def largest(self, wanted: Callable[[Operator], bool]) -> list[Operator]:
        """Operators that no other cause has, heaviest first."""
        chosen = (each for each in self.series.operators if each.identity not in self.claimed)
        return sorted(filter(wanted, chosen), key=self.weight, reverse=True)

    def weight(self, operator: Operator) -> float:
        """Sort key of operators: time, or arithmetic and bytes where times say nothing."""
        if self.series.times.are_latencies:
            return operator.typical_ms
        return (operator.source.flops or 0) + (operator.source.bytes_moved or 0)

    def matters(self, operators: Sequence[Operator]) -> bool:
        """Whether operators do or move enough to be worth advice. With times, the bound decides."""
        every = self.series.operators
        flops, all_flops = (sum(each.source.flops or 0 for each in some) for some in (operators, every))
        moved, all_moved = (sum(each.source.bytes_moved or 0 for each in some) for some in (operators, every))
        return self.timed or flops >= WORTH * max(1, all_flops) or moved >= WORTH * max(1, all_moved)

    def step(self, operator: Operator) -> tuple[MethodFlow, int] | None:
        """The operator's step in the flow of its method; None if unknown."""
        known = self.flows.get(operator.method)
        index = known.flow.at.get(_place(operator)) if known else None
        return None if known is None or index is None else (known, index)

    def does_not_depend_on_input(self, operator: Operator) -> bool:
        found = self.step(operator)
        return found is not None and found[1] in found[0].independent


WalkedMethods = dict[int, tuple[Flow, frozenset[int]]]
"""By the `id` of a method, what all series with it share: its flow, and the steps that no input reaches."""


def flows_of(series: SeriesAnalysis, walked: WalkedMethods | None = None) -> dict[str, MethodFlow]:
    walked = {} if walked is None else walked
    program = series.graph.program if series.graph else None
    flows: dict[str, MethodFlow] = {}
    for name in dict.fromkeys(operator.method for operator in series.operators):
        method = program.method(name) if program and name else None
        if method is None:
            continue
        if id(method) not in walked:
            flow = flow_of(method)
            walked[id(method)] = flow, input_independent(flow)
        flow, independent = walked[id(method)]
        if not flow.known:
            continue
        operators: dict[int, Operator] = {}
        for operator in series.operators:
            index = flow.at.get(_place(operator)) if operator.method == name else None
            if index is not None and operator.origin != "backend":
                operators.setdefault(index, operator)
        flows[name] = MethodFlow(flow, independent, operators)
    return flows


def _place(operator: Operator) -> Place:
    """The flow's key for an operator; one that the program does not explain gets a key that no step has."""
    explained = operator.source.node_index >= 0 if operator.delegated else bool(operator.source.operator)
    return operator.chain_index, operator.instruction_id, operator.source.node_index if explained else -2


def reaching(executorch: str, kind: str, path: str = "") -> str:
    """`linear layers reach SME2 in fp16 with ExecuTorch 1.5.1`, as probes showed; empty if none was tried."""
    reach = reach_in(executorch)
    if reach is None or not reach.tried(path or kind):
        return ""
    formats = listing(reach.formats(path or kind) or ("no number format",))
    return f"{several(NOUNS.get(kind, ANY_NOUN))} reach SME2 in {formats} with ExecuTorch {reach.executorch}"


def counted(operators: Sequence[Operator]) -> str:
    """`3 operators`, `1 reduction operator`."""
    kinds = list(by_kind(operators))
    return plural(len(operators), f"{kinds[0]} operator" if len(kinds) == 1 else "operator")


def some_of(names: Sequence[str], most: int = KINDS_NAMED) -> str:
    """`conv1d, weight_norm, gelu and others`."""
    return listing((*names[:most], "others") if len(names) > most else names)


def between_operators(context: FindingContext) -> Finding | None:
    """Time of a single delegate call beside its operators; `outside` covers the edges of several calls."""
    series = context.series
    spent = series.spent(series.breakdown.delegate_overhead)
    if not context.timed or series.first.delegate_calls != 1 or spent.share < 0.10:
        return None
    inside, short = sum(operator.delegated for operator in series.operators), short_operators(series)
    cut = (
        "XNNPACK's clock counts whole microseconds only, so this time includes about half a microsecond of "
        "each operator"
    )
    tracer = (
        "the percentage does not include the tracer's own time"
        if series.tracing.ms
        else "the tracer adds a little to each, so check the latency without it first"
    )
    return Finding(
        "delegate-overhead",
        "Merge small operators: the delegate spends time between them",
        f"{inside} operators run in one delegate call, {short} of them in less than a microsecond"
        f"{f'; {cut}' if is_cut(series) else ''}; {tracer}",
        series,
        evidence={
            "ms": round(spent.ms, 6),
            "share_pct": percent(spent.share),
            "operators_in_call": inside,
            "operators_below_1us": short,
            "tracer_ms": round(series.tracing.ms, 6),
        },
        max_gain_pct=series.gain_pct(0.0, spent.ms),
    )


def short_operators(series: SeriesAnalysis) -> int:
    return sum(operator.delegated and operator.times.median_ns < 1000 for operator in series.operators)


def is_cut(series: SeriesAnalysis) -> bool:
    """Whether operator times are truncated to microseconds: the rest then shows between operators."""
    return CUT in series.clock
