"""Which operators of a series ran on SME kernels, in words, by what the run or an emulated one proved."""

from __future__ import annotations

from collections.abc import Mapping

from model_profiling.analysis.coverage import Coverage
from model_profiling.analysis.headroom import match_proven
from model_profiling.analysis.series import SeriesAnalysis


def proven_on_sme(series: SeriesAnalysis, coverage: Coverage) -> Mapping[int, str]:
    """For each operator of `series` that was proven to: what was. Keys are places in `series.operators`.

    With SME2 switched off nothing of it holds; what only emulation proved says so.
    """
    if not coverage.tested or series.sme2 is False:
        return {}
    where = " under emulation" if coverage.emulated else ""
    matched, _ = match_proven(series, coverage.ran)
    return {
        series.place(operator): f"{coverage.isa}{where}" for match in matched for operator in match.measured
    }
