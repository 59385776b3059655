"""What a cause is looked for in, and what every cause may ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from model_profiling.analysis.findings import by_kind
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.roofline import Roofline
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.wording import listing, plural

KINDS_NAMED = 3


@dataclass(frozen=True, slots=True)
class Seen:
    """A series, and what is already said about it."""

    series: SeriesAnalysis
    timed: bool
    """Its times are latencies of a CPU that the advice is for: bounds can be told."""
    roof: Roofline | None = None
    """As supplied; None where the fastest operators have to do."""
    claimed: frozenset[tuple[str, int, int]] = frozenset()
    """Operators that belong to a cause found before: no other may have them."""

    def largest(self, wanted: Callable[[Operator], bool]) -> list[Operator]:
        """Those no other cause has, the longest first where times mean something, else as they run."""
        chosen = [
            operator
            for operator in self.series.operators
            if operator.identity not in self.claimed and wanted(operator)
        ]
        if not self.series.times.are_latencies:
            return chosen
        return sorted(chosen, key=lambda operator: -operator.typical_ms)

    def gain_pct(self, ms: float, overhead_ms: float = 0.0) -> float | None:
        """What saving `ms` of operators, and `overhead_ms` around them, would shorten an inference by at the
        very most, in percent; None untimed."""
        return self.series.gain_pct(ms, overhead_ms) if self.timed else None


def counted(operators: Sequence[Operator]) -> str:
    """`3 operators`, `1 reduction operator`."""
    kinds = list(by_kind(operators))
    return plural(len(operators), f"{kinds[0]} operator" if len(kinds) == 1 else "operator")


def kinds_named(operators: Sequence[Operator]) -> str:
    kinds = list(by_kind(operators))
    return listing((*kinds[:KINDS_NAMED], "others") if len(kinds) > KINDS_NAMED else kinds)
