"""A case: a series in which causes of lost time are looked for, and what is known about its run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from model_profiling.analysis.coverage import Coverage
from model_profiling.analysis.findings import WORTH, Concern, Finding, by_kind, percent
from model_profiling.analysis.operators import CUT, Operator
from model_profiling.analysis.pairing import Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config.series import Series
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

Free = Sequence[Operator]
"""Operators of a series that no earlier cause has taken, in the order they run."""


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


WalkedMethods = dict[tuple[str, str], tuple[Flow, frozenset[int]]]
"""By program and method, what all series with it share: its flow, and the steps that no input reaches."""


@dataclass(frozen=True)
class Case:
    series: SeriesAnalysis
    every: Mapping[Series, SeriesAnalysis] = field(default_factory=dict)
    """All series of the run."""
    sme2_pairings: Mapping[Series, Sequence[Pairing]] = field(default_factory=dict)
    """SME2 on and off, by the series with SME2 on."""
    about_time: bool = True
    """Whether the run's CPU is one that the advice is for."""
    coverage: Coverage | None = None
    """What is proven to run on SME2."""
    executorch: str = ""
    beside: Mapping[Series, Mapping[str, float]] = field(default_factory=dict)
    """Other number formats of the model, measured beside this run: milliseconds."""
    memory_rates: Mapping[int, float] = field(default_factory=dict)
    """Bytes per second that the memory was measured to give, by number of threads."""
    walked: WalkedMethods = field(default_factory=dict, repr=False)

    @property
    def timed(self) -> bool:
        """Its times are latencies of a CPU that the advice is for, so bounds can be given."""
        return self.about_time and self.series.times.are_latencies

    @cached_property
    def flows(self) -> Mapping[str, MethodFlow]:
        """By method; empty without a program."""
        program = self.series.graph.program if self.series.graph else None
        flows: dict[str, MethodFlow] = {}
        for name in dict.fromkeys(operator.method for operator in self.series.operators):
            method = program.method(name) if program and name else None
            if program is None or method is None:
                continue
            if (program.source, name) not in self.walked:
                flow = flow_of(method)
                self.walked[program.source, name] = flow, input_independent(flow)
            flow, independent = self.walked[program.source, name]
            if not flow.known:
                continue
            operators: dict[int, Operator] = {}
            for operator in self.series.operators:
                index = flow.at.get(_place(operator)) if operator.method == name else None
                if index is not None and operator.origin != "backend":
                    operators.setdefault(index, operator)
            flows[name] = MethodFlow(flow, independent, operators)
        return flows

    def bounded(
        self, finding: Finding, saved_ms: float | None = None, *, slower: float = 1.0
    ) -> Finding | None:
        """The finding with the bound of saving `saved_ms`, by default all of its operators' time, and what is
        `besides` them; None if that is too little. Without latencies it gets its share of the work, where its
        operators are known to take about `slower` times as long as their work suggests."""
        if not self.timed:
            return replace(finding, weight_pct=self._work_pct(finding.concerns, slower))
        if saved_ms is None:
            saved_ms = self.series.spent_by(finding.operators).ms
        gain = self.series.gain_pct(saved_ms, finding.besides.ms if finding.besides else 0.0)
        return replace(finding, max_gain_pct=gain) if gain >= 100 * WORTH else None

    def _work_pct(self, concerns: Sequence[Concern], slower: float) -> float:
        """Their share of all work, for the order of findings without a bound."""
        if self.series.times.are_latencies:
            slower = 1.0  # of another CPU, but measured
        own = sum(self.weight(operator) for concern in concerns for operator in concern.operators)
        whole = sum(map(self.weight, self.series.operators)) + (slower - 1) * own
        return percent(slower * own / whole) if whole else 0.0

    def largest(self, free: Free, wanted: Callable[[Operator], bool]) -> list[Operator]:
        """Those of the free operators, heaviest first."""
        return sorted(filter(wanted, free), key=self.weight, reverse=True)

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
        known = self.step(operator)
        return known is not None and known[1] in known[0].independent


def identities(operators: Free) -> frozenset[tuple[str, int, int]]:
    return frozenset(operator.identity for operator in operators)


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


def short_operators(series: SeriesAnalysis) -> int:
    return sum(operator.delegated and operator.times.median_ns < 1000 for operator in series.operators)


def is_cut(series: SeriesAnalysis) -> bool:
    """Whether operator times are truncated to microseconds: the rest then shows between operators."""
    return CUT in series.clock
