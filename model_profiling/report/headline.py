"""What a report speaks of: which pair and series stand for the run, and whether outputs differ."""

from __future__ import annotations

from collections.abc import Iterator

from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.report.data import PairReport, ReportData
from model_profiling.runs.metrics import PairParity


def sme2_pair(data: ReportData) -> PairReport | None:
    return next((pair for pair in sme2_pairs(data) if pair.comparable), None)


def headline_pair(data: ReportData) -> PairReport | None:
    """Return the headline comparison: the SME2 one, or else the first."""
    if not data.timed:
        return None
    return sme2_pair(data) or next((pair for pair in data.pairs if pair.comparable), None)


def sme2_pairs(data: ReportData) -> list[PairReport]:
    """Return the pairs that differ only in SME2, the headline first."""
    run = data.run
    pairs = [pair for pair in data.pairs if run.switches_sme2(pair.pair)]
    return sorted(pairs, key=lambda pair: (not pair.comparable, run.spoken_order(pair.pair.candidate)))


def headline_series(data: ReportData) -> SeriesAnalysis | None:
    """Return the one series to show: the headline experiment's, or else preferably one with SME2 on."""
    if data.headline is not None and data.headline.dumps is not None:
        return data.headline.dumps
    analysed = [experiment for experiment in data.experiments if experiment.dumps is not None]
    first = min(analysed, key=lambda experiment: experiment.sme2 is False, default=None)
    return first.dumps if first else None


def mismatched(data: ReportData) -> Iterator[tuple[str, PairParity]]:
    for place in data.evidence:
        for found in place.parity:
            if found.parity is not None and not found.parity.agrees:
                yield place.source, found


def outputs_differ(data: ReportData, pair: PairReport) -> bool:
    """Whether outputs differ by more than rounding; a speedup then means nothing."""
    sides = {pair.pair.baseline, pair.pair.candidate}
    return any({found.baseline, found.candidate} == sides for _, found in mismatched(data))
