"""A finding, and what all findings are built from: places and the operators shown as evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis

Severity = Literal["high", "medium", "low", "info"]
SHOWN = 5
"""Operators named in one finding's evidence."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing worth knowing, with the numbers it rests on."""

    id: str
    title: str
    severity: Severity
    subject: str
    """The experiment, and its threads, or the pair it is about."""
    evidence: Mapping[str, object]
    max_gain_pct: float
    """Of end-to-end time: what it would be shorter by at the very most."""
    action: str


def share_finding(  # noqa: PLR0917  in the order they are read
    id_: str, title: str, subject: str, share: float, evidence: Mapping[str, object], action: str
) -> Finding:
    """A finding about a share of the time, all of which could be gained at the very most."""
    return Finding(id_, title, severity(share), subject, evidence, percent(share), action)


def largest(series: SeriesAnalysis, wanted: Callable[[Operator], bool]) -> list[Operator]:
    chosen = [operator for operator in series.operators if wanted(operator)]
    return sorted(chosen, key=lambda operator: -operator.typical_ms)


def by_kind(operators: Iterable[Operator]) -> dict[str, float]:
    """Milliseconds of each kind, the largest first."""
    total: dict[str, float] = {}
    for operator in operators:
        total[operator.kind] = total.get(operator.kind, 0.0) + operator.typical_ms
    return {kind: round(spent, 6) for kind, spent in sorted(total.items(), key=lambda item: -item[1])}


def shown(series: SeriesAnalysis, operators: Sequence[Operator]) -> list[dict[str, object]]:
    return [described(series, operator) for operator in operators[:SHOWN]]


def described(series: SeriesAnalysis, operator: Operator) -> dict[str, object]:
    share = percent(series.spent_by([operator]).share)
    ms = round(operator.typical_ms, 6)
    return {"operator": operator.name, "place": operator.place, "ms": ms, "share_pct": share}


def severity(share: float) -> Severity:
    """By the most that could be gained."""
    if share >= 0.20:
        return "high"
    return "medium" if share >= 0.05 else "low"


def percent(share: float) -> float:
    return round(100 * share, 2)


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
