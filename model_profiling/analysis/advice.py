"""What to do next: findings with their evidence and the most that acting on each can gain.

The most is Amdahl's bound on measured time: if what the finding is about took no time at all. Shares are of
median end-to-end time, so that a slow first run does not decide. No finding is made without a number, and
none about time from runs whose times are not latencies.
"""

from __future__ import annotations

from collections.abc import Sequence

from model_profiling.analysis.dump_findings import about_dump, about_structure
from model_profiling.analysis.findings import Finding, Severity
from model_profiling.analysis.pair_findings import about_pairing, about_threads
from model_profiling.analysis.pairing import Pairing
from model_profiling.analysis.roofline import Roofline
from model_profiling.analysis.summary import DumpAnalysis

__all__ = ["Finding", "Severity", "advise"]


def advise(
    series: Sequence[Sequence[DumpAnalysis]], pairings: Sequence[Pairing] = (), roof: Roofline | None = None
) -> tuple[Finding, ...]:
    """Everything found in a run and the pairs compared in it, the largest gain first.

    `series` holds the rounds of each experiment and thread count; the first dump of each is looked into.
    """
    found: list[Finding] = []
    for dump in (rounds[0] for rounds in series):
        found.extend(about_structure(dump))
        if dump.timings_are_latency:
            found.extend(about_dump(dump, roof))
    for pairing in pairings:
        if not pairing.not_comparable:
            found.extend(about_pairing(pairing))
    found.extend(about_threads(series))
    return tuple(sorted(found, key=lambda finding: -finding.max_gain_pct))
