"""A finding, and what all findings are built from: shares, places and the operators shown as evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from model_profiling.analysis.attribution import Int64
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.summary import DumpAnalysis

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


def largest(dump: DumpAnalysis, wanted: Callable[[Operator], bool]) -> list[Operator]:
    chosen = [operator for operator in dump.operators if wanted(operator)]
    return sorted(chosen, key=lambda operator: -operator.times.median_ns)


def share_of(dump: DumpAnalysis, operator: Operator) -> float:
    """Of median end-to-end time, from 0 to 1."""
    whole = dump.latency.median
    return operator.median_ms / whole if whole else 0.0


def part_share(dump: DumpAnalysis, part: Int64) -> float:
    """The same for something known in every run, such as a category."""
    whole = dump.latency.median
    return max(0.0, float(np.median(part)) / 1e6 / whole) if whole else 0.0


def by_kind(operators: Iterable[Operator]) -> dict[str, float]:
    """Milliseconds of each kind, the largest first."""
    total: dict[str, float] = {}
    for operator in operators:
        total[operator.kind] = total.get(operator.kind, 0.0) + operator.median_ms
    return {kind: round(spent, 6) for kind, spent in sorted(total.items(), key=lambda item: -item[1])}


def shown(dump: DumpAnalysis, operators: Sequence[Operator]) -> list[dict[str, object]]:
    return [described(dump, operator) for operator in operators[:SHOWN]]


def described(dump: DumpAnalysis, operator: Operator) -> dict[str, object]:
    return {
        "operator": operator.name,
        "place": operator.place,
        "ms": round(operator.median_ms, 6),
        "share_pct": percent(share_of(dump, operator)),
    }


def subject(dump: DumpAnalysis) -> str:
    name = dump.experiment or dump.stem
    return f"{name}, {dump.threads} thread{'s' if dump.threads != 1 else ''}" if dump.threads else name


def severity(share: float) -> Severity:
    """By the most that could be gained."""
    if share >= 0.20:
        return "high"
    return "medium" if share >= 0.05 else "low"


def percent(share: float) -> float:
    return round(100 * share, 2)


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
