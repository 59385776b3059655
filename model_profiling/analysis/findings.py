"""A finding: one cause of avoidable time, its operators, and what to do about it.

An operator belongs to one cause, so the bounds of one series' findings do not overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis, Spent
from model_profiling.core.formatting import plural

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
            line = concern.line or source_line(concern.operator) or concern.where
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
            "source_line": source_line(operator),
            "origin": operator.origin,
            "ms": spent.ms if timed else None,
            "share": spent.share if timed else None,
            **concern.facts,
        }


def source_line(operator: Operator) -> str:
    """`/folder/model.py:12`; empty if unknown."""
    return operator.source.place.source_line


def line_or_layer(operator: Operator) -> str:
    """What has to change: `/folder/model.py:12`, or else the layer."""
    return operator.source.place.source_line or operator.source.place.layer


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


def percent(share: float) -> float:
    return round(100 * share, 2)


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
