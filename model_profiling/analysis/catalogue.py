"""The catalogue of causes that are looked for in a series, and which of them an operator belongs to.

A cause that stands earlier takes its operators from those that follow, so that bounds do not overlap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from model_profiling.analysis.causes.between_operators import between_operators
from model_profiling.analysis.causes.conversions import conversions
from model_profiling.analysis.causes.grouped import depthwise_as_igemm
from model_profiling.analysis.causes.layout import cancelling_transposes, layout_changes
from model_profiling.analysis.causes.movement import copies
from model_profiling.analysis.causes.outside import outside
from model_profiling.analysis.causes.packing import packing_dominates
from model_profiling.analysis.causes.roof import below_roof
from model_profiling.analysis.causes.seen import ProgramFlows, Seen, flows_of
from model_profiling.analysis.causes.unchanging import repacked_weights, same_each_time
from model_profiling.analysis.findings import WORTH, Finding, percent
from model_profiling.analysis.roofline import Roofline
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.wording import listing, plural

CAUSES: tuple[Callable[[Seen], Finding | None], ...] = (
    same_each_time,
    cancelling_transposes,
    outside,
    layout_changes,
    conversions,
    repacked_weights,
    depthwise_as_igemm,
    packing_dominates,
    copies,
    between_operators,
    below_roof,
)


def about_series(
    series: SeriesAnalysis,
    *,
    timed: bool,
    roof: Roofline | None = None,
    claimed: Collection[tuple[str, int, int]] = (),
    repacking: Mapping[str, int] | None = None,
    walked: ProgramFlows | None = None,
) -> Iterator[Finding]:
    """What is found in a series; where it is `timed`, only what could save enough. `claimed` operators are
    those of findings about it that were made elsewhere, `repacking` the kernels that packed weights while it
    ran; `walked` keeps the flows of programs for the next series."""
    seen = Seen(series, timed, roof, frozenset(claimed), repacking or {}, flows_of(series, walked))
    for cause in CAUSES:
        found = cause(seen)
        if found is not None and (not timed or (found.max_gain_pct or 0.0) >= 100 * WORTH):
            yield found
            taken = (operator.identity for operator in found.operators)
            seen = replace(seen, claimed=seen.claimed.union(taken))


def about_names(series: SeriesAnalysis) -> Iterator[Finding]:
    """Names the table of categories does not know."""
    unknown = [operator for operator in series.operators if not operator.known]
    if unknown:
        counts = Counter(operator.type for operator in unknown)
        share = percent(series.spent_by(unknown).share) if series.times.are_latencies else None
        yield Finding(
            "unknown-operators",
            f"Report {plural(len(counts), 'operator name')} that no category has: counted as Other",
            f"tell the kit's authors, so that its table of categories learns {listing(counts)}",
            series,
            evidence={"names": dict(counts), "share_pct": share},
        )
