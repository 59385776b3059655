"""How near each operator comes to what the machine can do, by arithmetic and by memory traffic.

The roof is either supplied or the best that operators of the same dump reached. The second is only what has
been seen: the machine may do better, so an operator near it is not proven fast, but one far below is slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from model_profiling.analysis.operators import Operator
from model_profiling.program.category import MATRIX

_SHORTEST_NS = 20_000
"""Delegates count whole microseconds: below this a rate is mostly rounding."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Peak rates; `source` says how they are known."""

    gflops: float
    gbytes_per_s: float
    source: Literal["best seen in this dump", "supplied"]


@dataclass(frozen=True, slots=True)
class RoofGap:
    """One operator under the roof."""

    operator: Operator
    efficiency: float
    """Achieved over attainable, 1 is on the roof."""

    @property
    def most_saved(self) -> float:
        """The part of its time that would vanish on the roof, from 0 to 1."""
        return max(0.0, 1 - self.efficiency)


def seen_roofline(operators: Sequence[Operator]) -> Roofline | None:
    """The roof that the operators themselves show, or None where no program gives their cost."""
    long_enough = [operator for operator in operators if operator.times.median_ns >= _SHORTEST_NS]
    flops = [rate for operator in long_enough if _matrix(operator) and (rate := operator.gflops)]
    traffic = [rate for operator in long_enough if (rate := operator.gbytes_per_s)]
    if not flops or not traffic:
        return None
    return Roofline(max(flops), max(traffic), "best seen in this dump")


def roof_gaps(operators: Sequence[Operator], roof: Roofline) -> tuple[RoofGap, ...]:
    """Every operator whose rate is known, the furthest below the roof first."""
    gaps = []
    for operator in operators:
        if operator.times.median_ns < _SHORTEST_NS or not operator.source.bytes_moved:
            continue
        traffic = (operator.gbytes_per_s or 0.0) / roof.gbytes_per_s
        arithmetic = (operator.gflops or 0.0) / roof.gflops if _matrix(operator) else 0.0
        # The nearer roof is the one that binds.
        gaps.append(RoofGap(operator, efficiency=min(1.0, max(traffic, arithmetic))))
    return tuple(sorted(gaps, key=lambda gap: gap.efficiency))


def _matrix(operator: Operator) -> bool:
    return operator.category in MATRIX
