"""What to do next: findings with their evidence and the most that acting on each can gain.

The most is Amdahl's bound on measured time: if what the finding is about took no time at all. Shares are
those of a series' typical runs, so that neither a slow run nor a slow process decides. No finding is
made without a number, and none about time from runs whose times are not latencies.
"""

from __future__ import annotations

from collections.abc import Sequence

from model_profiling.analysis.findings import Finding, Severity
from model_profiling.analysis.pair_findings import about_pairing, about_threads
from model_profiling.analysis.pairing import Pairing
from model_profiling.analysis.roofline import Roofline
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.analysis.series_findings import about_series, about_structure

__all__ = ["Finding", "Severity", "advise"]


def advise(
    series: Sequence[SeriesAnalysis], pairings: Sequence[Pairing] = (), roof: Roofline | None = None
) -> tuple[Finding, ...]:
    """Everything found in a run and the pairs compared in it, the largest gain first."""
    found: list[Finding] = []
    for rounds in series:
        found.extend(about_structure(rounds))
        if rounds.times.are_latencies:
            found.extend(about_series(rounds, roof))
    for pairing in pairings:
        if pairing.comparable:
            found.extend(about_pairing(pairing))
    found.extend(about_threads(series))
    return tuple(sorted(found, key=lambda finding: -finding.max_gain_pct))
