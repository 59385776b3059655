"""What of a run with very many series a page shows: a browser has to draw it, and a person has to read it.

A page of 1,000 series would hold 1,500 pictures and tell nobody anything. It shows those that its answers
speak of and the first of the others, and says where all of them are: JSON and CSV files leave nothing out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from model_profiling.analysis.evidence import PlaceEvidence
from model_profiling.analysis.run import RunAnalysis
from model_profiling.report.data import PairReport, ReportData
from model_profiling.report.document import Block, Paragraph
from model_profiling.report.verdict import told_pair
from model_profiling.run import Series, names

SERIES = 32
PAIRS = 12


def fitted(data: ReportData) -> tuple[ReportData, list[Block]]:
    """What a page has room for, and what it says of the rest: nothing where everything fits."""
    if len(data.experiments) <= SERIES and len(data.pairs) <= PAIRS:
        return data, []
    pairs = _pairs(data)
    series = _series(data, pairs)
    short = replace(
        data,
        experiments=tuple(found for found in data.experiments if found.series in series),
        pairs=tuple(pairs),
        evidence=tuple(_evidence(place, pairs, series) for place in data.evidence),
        inside=tuple(found for found in data.inside if found.series in series),
        analysis=_analysis(data.analysis, pairs, series) if data.analysis else None,
        whole=data,
    )
    shown = [
        f"{len(some)} of {len(every):,} {what}"
        for some, every, what in (
            (short.experiments, data.experiments, "series"),
            (short.pairs, data.pairs, "comparisons"),
        )
        if len(some) < len(every)
    ]
    return short, [
        Paragraph(
            f"This page shows {' and '.join(shown)}, those that the answers speak of first; all of them are "
            f"in {names.METRICS}, {names.ANALYSIS} and the CSV files beside each dump."
        )
    ]


def _pairs(data: ReportData) -> list[PairReport]:
    """The one that the answers tell of, and the first of the others, in their order."""
    told = told_pair(data)
    others = [pair for pair in data.pairs if pair is not told]
    chosen = {id(pair) for pair in ([told] if told else []) + others[: PAIRS - bool(told)]}
    return [pair for pair in data.pairs if id(pair) in chosen]


def _series(data: ReportData, pairs: Sequence[PairReport]) -> set[Series]:
    compared = (series for pair in pairs for series in (pair.pair.baseline, pair.pair.candidate))
    headline = [data.headline.series] if data.headline else []
    proven = data.outlook.coverage.proven_by
    known = {found.series for found in data.experiments}
    ordered = (*compared, *headline, *([proven] if proven in known and proven else []))
    chosen = dict.fromkeys((*ordered, *(found.series for found in data.experiments)))
    return set(list(chosen)[:SERIES])


def _evidence(place: PlaceEvidence, pairs: Sequence[PairReport], series: set[Series]) -> PlaceEvidence:
    """Another run's series have names of their own: of those the first."""
    own = [found for found in place.kernels if found.series in series]
    compared = {(pair.pair.baseline, pair.pair.candidate) for pair in pairs}
    parity = [found for found in place.parity if (found.baseline, found.candidate) in compared]
    return replace(
        place,
        kernels=tuple(own or place.kernels[:SERIES]),
        parity=tuple(parity or place.parity[:PAIRS]),
    )


def _analysis(analysis: RunAnalysis, pairs: Sequence[PairReport], series: set[Series]) -> RunAnalysis:
    pairings = {id(pair.pairing) for pair in pairs}
    return replace(
        analysis,
        series=tuple(found for found in analysis.series if found.series in series),
        pairings=tuple(found for found in analysis.pairings if id(found) in pairings),
    )
