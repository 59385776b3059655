"""Findings of a run: the causes looked for in each series, what comparisons show, and their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from model_profiling.analysis.causes import avoidable, language, matrix, sme2
from model_profiling.analysis.causes.outside import outside
from model_profiling.analysis.coverage import Sme2Coverage
from model_profiling.analysis.findings import Finding, Free, SeriesCase, identities
from model_profiling.analysis.pairing import Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config.series import Series
from model_profiling.runs.run import Run


def findings_of(
    run: Run, series: Sequence[SeriesAnalysis], pairings: Sequence[Pairing], coverage: Sme2Coverage
) -> tuple[Finding, ...]:
    manifest = run.whole.manifest
    found = advise(
        series,
        pairings,
        about_time=manifest is None or manifest.is_arm is not False,
        coverage=coverage,
        executorch=(manifest.executorch.version or "") if manifest else "",
    )
    return tuple(_once(run, found, pairings))


def advise(
    series: Sequence[SeriesAnalysis], pairings: Sequence[Pairing] = (), **known: Any
) -> tuple[Finding, ...]:
    """All findings of series and pairs, first what could bring most; `known` are fields of `SeriesCase`.

    The gain is Amdahl's bound on measured time. Where times are not latencies, or not of a CPU the advice is
    for, findings describe structure and have no gain: they are ordered by the work they are about.
    """
    every = {each.series: each for each in series}
    switched: dict[Series, list[Pairing]] = {}
    for pairing in pairings:
        if pairing.compares_sme2:
            switched.setdefault(pairing.candidate.series, []).append(pairing)
    found = [finding for each in series for finding in _in_case(SeriesCase(each, every, switched, **known))]
    return tuple(sorted(found, key=lambda finding: finding.order))


def _in_case(case: SeriesCase) -> Iterator[Finding]:
    """Each cause gets the operators that earlier ones left, so that bounds do not overlap."""
    free: Free = case.series.operators
    for cause in CAUSES:
        if finding := cause(case, free):
            yield finding
            taken = identities(finding.operators)
            free = [operator for operator in free if operator.identity not in taken]
    for observe in OBSERVATIONS:
        if finding := observe(case, free):
            yield finding


def _once(run: Run, findings: Sequence[Finding], pairings: Sequence[Pairing]) -> Iterator[Finding]:
    """Each cause once, in the series mentioned first; what only a baseline shows is already solved."""
    solved = {pairing.baseline.series for pairing in pairings if pairing.comparable}
    solved -= {pairing.candidate.series for pairing in pairings}
    alike: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.found_in.series not in solved:
            alike.setdefault(finding.id, []).append(finding)

    def order(finding: Finding) -> tuple[object, ...]:
        return finding.max_gain_pct is None, *run.spoken_order(finding.found_in.series)

    chosen = [min(members, key=order) for members in alike.values()]
    yield from sorted(chosen, key=lambda finding: finding.order)


Cause = Callable[[SeriesCase, Free], Finding | None]

CAUSES: tuple[Cause, ...] = (
    sme2.sme2_slower,
    sme2.sme2_no_faster,
    avoidable.same_each_time,
    avoidable.cancelling_transposes,
    language.cache_copies,
    language.unused_scores,
    outside,
    avoidable.layout_changes,
    avoidable.conversions,
    matrix.depthwise_as_igemm,
    avoidable.copies,
    matrix.matrix_bound,
)
"""Causes of lost time. An earlier cause takes its operators from later ones."""

OBSERVATIONS: tuple[Cause, ...] = (matrix.precision_not_as_asked, sme2.wrong_layer_norms, sme2.misses_sme2)
"""What takes no operators from others: nothing bounds it, or it is about the whole."""
