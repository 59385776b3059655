"""Findings: one cause of avoidable time each, its operators, and what to do about it; and the case in which
causes are looked for: a series, and what is known about its run.

An operator belongs to one cause, so the bounds of one series' findings do not overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from model_profiling.analysis.coverage import Sme2Coverage
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import Pairing
from model_profiling.analysis.series import SeriesAnalysis, Spent
from model_profiling.config.series import Series
from model_profiling.core.formatting import listing, plural, several
from model_profiling.program.flow import Flow, Place, Step
from model_profiling.program.matrix_work import reach_in

WORTH = 0.02
"""Share of end-to-end time that advice must be able to save."""
_IN_FILES = 20
"""Most operators listed in the JSON form of a finding."""


@dataclass(frozen=True, slots=True)
class Concern:
    """An operator that a finding is about, or several that do one operator's work."""

    operators: tuple[Operator, ...]
    where: str
    """Place in the model, for people: `features.0, model.py:12`; empty if unknown."""
    note: str = ""
    """What is special about it, for people."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """The same for machines."""
    named: str = ""
    """Name for people, if not the operator's name."""
    line: str = ""
    """Source line to show it under, if not its operator's own."""
    between: bool = False
    """Whether `where` names what it is between, because lowering added it."""

    @property
    def operator(self) -> Operator:
        return self.operators[0]


@dataclass(frozen=True, slots=True)
class Group:
    """Operators of one type that one line of the model creates, in any number of modules."""

    concerns: tuple[Concern, ...]
    where: str

    @property
    def operators(self) -> tuple[Operator, ...]:
        return tuple(operator for concern in self.concerns for operator in concern.operators)

    @property
    def is_between(self) -> bool:
        return self.concerns[0].between

    @property
    def note(self) -> str:
        return self.concerns[0].note

    @property
    def name(self) -> str:
        first = self.concerns[0]
        return first.named or (first.operator.type if len(self.concerns) > 1 else first.operator.name)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Finding:
    id: str
    title: str
    """What to do, in a few words; figures are shown beside it."""
    steps: tuple[str, ...]
    """What to do, one thing each."""
    found_in: SeriesAnalysis
    """The series the operators and the bound belong to."""
    concerns: tuple[Concern, ...] = ()
    evidence: Mapping[str, object] = field(default_factory=dict)
    max_gain_pct: float | None = None
    """Upper bound on how much shorter an inference would be; None where times do not tell."""
    besides: Spent | None = None
    """Time in the bound that belongs to none of the operators."""
    besides_what: str = ""
    about: str = ""
    """The experiment or pair, if not the series."""
    first_step: str = ""
    """How to begin, in a few words, if the title does not say it."""
    has_cure: bool = True
    """Whether `steps` say what to do, not only that nothing is known to help."""
    weight_pct: float = 0.0
    """Its place among the others if it has no bound: the share of the time or work that it is about."""

    def __repr__(self) -> str:
        gain = "" if self.max_gain_pct is None else f", at most {self.max_gain_pct:.1f}% less time"
        return f"<Finding {self.id}: {self.title}{gain}>"

    @property
    def subject(self) -> str:
        return self.about or self.found_in.name

    @property
    def action(self) -> str:
        """All steps in one line."""
        return "; ".join(self.steps)

    @property
    def could_bring(self) -> float:
        """What findings are compared by, in percent; 0 if nothing shows that they matter."""
        return self.weight_pct if self.max_gain_pct is None else self.max_gain_pct

    @property
    def order(self) -> tuple[bool, float]:
        """Sort key: what has a cure first, then by what it could bring."""
        return not self.has_cure, -self.could_bring

    @property
    def operators(self) -> tuple[Operator, ...]:
        return tuple(operator for concern in self.concerns for operator in concern.operators)

    @property
    def groups(self) -> tuple[Group, ...]:
        """The concerns grouped by what has to change, longest first."""
        alike: dict[tuple[str, ...], list[Concern]] = {}
        for concern in self.concerns:
            # An operator that lowering added has no line: use its place between others.
            line = concern.line or concern.operator.line or concern.where
            alike.setdefault((concern.named or concern.operator.type, line, concern.note), []).append(concern)
        groups = [Group(tuple(members), _where_all(members)) for members in alike.values()]
        if self.max_gain_pct is not None:
            groups.sort(key=lambda group: -self.found_in.spent_by(group.operators).ms)
        return tuple(groups)

    def as_dict(self) -> dict[str, object]:
        """The form in `analysis_summary.json`."""
        shown = [self._described(concern) for concern in self.concerns[:_IN_FILES]]
        listed: dict[str, object] = {"count": len(self.concerns), "operators": shown} if shown else {}
        return {
            "id": self.id,
            "title": self.title,
            "subject": self.subject,
            "max_gain_pct": self.max_gain_pct,
            "max_gain_of": None if self.max_gain_pct is None else self.found_in.bounds_are_of,
            "steps": list(self.steps),
            "evidence": {**listed, **self.evidence},
        }

    def _described(self, concern: Concern) -> dict[str, object]:
        operator, spent = concern.operator, self.found_in.spent_by(concern.operators)
        timed = self.max_gain_pct is not None
        return {
            "operator": operator.name,
            "kind": operator.kind,
            "module": operator.source.module_path,
            "source_line": operator.line,
            "origin": operator.origin,
            "ms": spent.ms if timed else None,
            "share": spent.share if timed else None,
            **concern.facts,
        }


def line_or_layer(operator: Operator) -> str:
    """What has to change: `/folder/model.py:12`, or else the layer."""
    return operator.line or operator.source.place.layer


def where(operator: Operator) -> str:
    """Module and line, for people; without a line of the model, the layer: `Conv2d "features.0"`."""
    place = operator.source.place
    return ", ".join(filter(None, (place.module_path, place.short_line))) if place.short_line else place.layer


def concerns_of(operators: Sequence[Operator]) -> tuple[Concern, ...]:
    return tuple(Concern((each,), where(each)) for each in operators)


def _where_all(concerns: Sequence[Concern]) -> str:
    """The place of one concern; for several, the line and the number of modules."""
    first, places = concerns[0], {concern.where for concern in concerns}
    line = first.line.replace("\\", "/").rsplit("/", 1)[-1] or first.operator.source.place.short_line
    return first.where if len(places) == 1 or not line else f"{line} in {plural(len(places), 'module')}"


def by_kind(
    operators: Sequence[Operator], weight: Callable[[Operator], float] | None = None
) -> dict[str, list[Operator]]:
    """Operators of each kind, the kind with most time (or `weight`) first."""
    weigh = weight or (lambda operator: operator.typical_ms)
    kinds: dict[str, list[Operator]] = {}
    for operator in operators:
        kinds.setdefault(operator.kind, []).append(operator)
    weights = {kind: sum(weigh(each) for each in members) for kind, members in kinds.items()}
    return dict(sorted(kinds.items(), key=lambda item: -weights[item[0]]))


# The case.

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


@dataclass(frozen=True)
class SeriesCase:
    series: SeriesAnalysis
    every: Mapping[Series, SeriesAnalysis] = field(default_factory=dict)
    """All series of the run."""
    sme2_pairings: Mapping[Series, Sequence[Pairing]] = field(default_factory=dict)
    """SME2 on and off, by the series with SME2 on."""
    about_time: bool = True
    """Whether the run's CPU is one that the advice is for."""
    coverage: Sme2Coverage | None = None
    """What is proven to run on SME2."""
    executorch: str = ""

    @property
    def timed(self) -> bool:
        """Its times are latencies of a CPU that the advice is for, so bounds can be given."""
        return self.about_time and self.series.times.are_latencies

    @cached_property
    def flows(self) -> Mapping[str, MethodFlow]:
        """By method; empty without a program."""
        graph = self.series.graph
        flows: dict[str, MethodFlow] = {}
        for name in dict.fromkeys(operator.method for operator in self.series.operators):
            method = graph.program.method(name) if graph and name else None
            if graph is None or method is None:
                continue
            flow, independent = graph.flow(method)
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
        return round(100 * slower * own / whole, 2) if whole else 0.0

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

    def step(self, operator: Operator) -> tuple[MethodFlow, Step] | None:
        """The operator's step in the flow of its method; None if unknown."""
        known = self.flows.get(operator.method)
        index = known.flow.at.get(_place(operator)) if known else None
        return None if known is None or index is None else (known, known.flow.steps[index])

    def does_not_depend_on_input(self, operator: Operator) -> bool:
        found = self.step(operator)
        return found is not None and found[0].flow.at[found[1].place] in found[0].independent


def identities(operators: Free) -> frozenset[tuple[str, int, int]]:
    return frozenset(operator.identity for operator in operators)


def _place(operator: Operator) -> Place:
    """The flow's key for an operator; one that the program does not explain gets a key that no step has."""
    explained = operator.source.node_index >= 0 if operator.delegated else bool(operator.source.operator)
    return operator.chain_index, operator.instruction_id, operator.source.node_index if explained else -2


def reaching(executorch: str, kind: str) -> str:
    """`linear layers reach SME2 in fp16 with ExecuTorch 1.5.1`, as probes showed; empty if none was tried."""
    reach = reach_in(executorch)
    if reach is None or not reach.tried(kind):
        return ""
    formats = listing(reach.formats(kind) or ("no number format",))
    return f"{several(NOUNS.get(kind, ANY_NOUN))} reach SME2 in {formats} with ExecuTorch {reach.executorch}"


def counted(operators: Sequence[Operator]) -> str:
    """`3 operators`, `1 reduction operator`."""
    kinds = list(by_kind(operators))
    return plural(len(operators), f"{kinds[0]} operator" if len(kinds) == 1 else "operator")


def some_of(names: Sequence[str], most: int = KINDS_NAMED) -> str:
    """`conv1d, weight_norm, gelu and others`."""
    return listing((*names[:most], "others") if len(names) > most else names)
