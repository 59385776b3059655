"""Operators outside delegates, by the line of the model that creates them, with the partitioner's reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from model_profiling.analysis.findings import by_kind, source_line
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.analysis.series_views import Calls
from model_profiling.program.graph_file import Undelegated

REASON_NOT_KNOWN = (
    "why is not known, since no record of this kit's export lies beside the program: `sme2prof export` says "
    "why each was not taken, and what to write instead where something is known"
)


@dataclass(frozen=True, slots=True)
class OutsideCall:
    """The operators that one call of the model leaves outside: a `hardsigmoid` becomes several."""

    operators: tuple[Operator, ...]
    reasons: tuple[Undelegated, ...]
    """One for each operator; empty if unknown."""

    @property
    def why(self) -> str:
        """The partitioner's own words; empty if unknown."""
        return _why(self.reasons)


@dataclass(frozen=True, slots=True)
class OutsideLine:
    """What one line of the model leaves outside, in any number of modules, with one remedy."""

    calls: tuple[OutsideCall, ...]

    @property
    def operators(self) -> tuple[Operator, ...]:
        return tuple(operator for call in self.calls for operator in call.operators)

    @property
    def reasons(self) -> tuple[Undelegated, ...]:
        return tuple(reason for call in self.calls for reason in call.reasons)

    @property
    def numbers(self) -> frozenset[int]:
        return frozenset(operator.call for operator in self.operators)

    @property
    def helped(self) -> bool:
        """Whether something is known to help, or no reason is known at all."""
        return not self.reasons or bool(self.reasons[0].replacement)

    @property
    def called(self) -> str:
        """The function the model calls, if known: `hardsigmoid`."""
        return self.reasons[0].call if self.reasons else ""

    @property
    def name(self) -> str:
        return self.called or next(iter(by_kind(self.operators)))

    @property
    def place(self) -> str:
        """`model.py:31`, without folders; empty if unknown."""
        return source_line(self.operators[0], short=True) or (self.reasons[0].source if self.reasons else "")

    @property
    def why(self) -> str:
        return _why(self.reasons)

    @property
    def remedy(self) -> str:
        """`instead: ...`, or that nothing is known to help; empty without a reason."""
        return self.reasons[0].remedy if self.reasons else ""


def _why(reasons: Sequence[Undelegated]) -> str:
    return "; ".join(dict.fromkeys(each.reason for each in reasons))


def outside_lines(series: SeriesAnalysis, outside: Sequence[Operator]) -> list[OutsideLine]:
    found: dict[tuple[str, ...], dict[tuple[str, str], list[tuple[Operator, Undelegated | None]]]] = {}
    for operator in outside:
        why = why_outside(series, operator)
        if why is None:
            # Only their kind distinguishes them, and all need the same remedy.
            line: tuple[str, ...] = (operator.kind, source_line(operator))
        else:
            line = (why.call or why.operator, why.remedy, source_line(operator) or why.source)
        found.setdefault(line, {}).setdefault(_call_of(operator, why), []).append((operator, why))
    return [OutsideLine(tuple(map(_call, calls.values()))) for calls in found.values()]


def _call(members: Sequence[tuple[Operator, Undelegated | None]]) -> OutsideCall:
    return OutsideCall(tuple(operator for operator, _ in members), tuple(why for _, why in members if why))


def joined_calls(series: SeriesAnalysis, lines: Sequence[OutsideLine], calls: Calls) -> int:
    """How many delegate calls would merge with another if all lines with a possible remedy were inside."""
    helped = [line for line in lines if line.helped]
    # Operators that no model input reaches wait for no delegate, wherever they are written.
    aside = {
        operator.call
        for operator in series.operators
        if not operator.delegated and (why := why_outside(series, operator)) and why.constant
    }
    return calls.joined(frozenset[int]().union(*(line.numbers for line in helped)), aside)


def joining_words(calls: int, joined: int) -> str:
    """`the 19 delegate calls would become one`."""
    if joined + 1 < calls:
        return f"{joined + 1} of the {calls} delegate calls would join"
    return f"the {calls} delegate calls would become one"


def why_outside(series: SeriesAnalysis, operator: Operator) -> Undelegated | None:
    graph = series.graph
    return graph.why_outside(operator.method, operator.instruction_id) if graph and operator.method else None


def _call_of(operator: Operator, why: Undelegated | None) -> tuple[str, str]:
    """The call of a line that an operator belongs to: its module's; itself if the module is unknown."""
    module = operator.source.module_path or why.module_path if why else ""
    return (module, "") if module else ("", str(operator.identity))
