"""Findings of a run: the causes looked for in each series, what comparisons show, and their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from model_profiling.analysis.causes.avoidable import (
    cancelling_transposes,
    conversions,
    copies,
    layout_changes,
    same_each_time,
)
from model_profiling.analysis.causes.language import cache_copies, unused_scores
from model_profiling.analysis.causes.matrix import depthwise_as_igemm, matrix_bound, precision_not_as_asked
from model_profiling.analysis.causes.outside import outside
from model_profiling.analysis.causes.sme2 import misses_sme2, sme2_no_faster, sme2_slower, wrong_layer_norms
from model_profiling.analysis.coverage import Coverage
from model_profiling.analysis.findings import Case, Finding, Free, WalkedMethods, identities
from model_profiling.analysis.pairing import Pairing, SideBySide, how_measured
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config.series import Series
from model_profiling.core.formatting import plural
from model_profiling.runs.run import Run
from model_profiling.statistics.speedup import Verdict


def findings_of(
    run: Run, series: Sequence[SeriesAnalysis], pairings: Sequence[Pairing], coverage: Coverage
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
    """All findings of series and pairs, first the one that could bring most; `known` are fields of `Case`.

    The gain is Amdahl's bound on measured time. Where times are not latencies, or not of a CPU the advice is
    for, findings describe structure and have no gain: they are ordered by the work they are about.
    """
    walked: WalkedMethods = {}
    every = {each.series: each for each in series}
    switched: dict[Series, list[Pairing]] = {}
    for pairing in pairings:
        if pairing.compares_sme2:
            switched.setdefault(pairing.candidate.series, []).append(pairing)
    found = [
        finding
        for each in series
        for finding in _in_case(Case(each, every, switched, walked=walked, **known))
    ]
    return tuple(sorted(found, key=lambda finding: finding.order))


def _in_case(case: Case) -> Iterator[Finding]:
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


def too_many_threads(case: Case, _free: Free) -> Finding | None:
    """A thread count of an experiment that costs more than it gains."""
    most, experiment = case.series, case.series.series.experiment
    counted = [each for known, each in case.every.items() if known.experiment == experiment and known.threads]
    sweep = sorted(
        (each for each in counted if each.times.are_latencies), key=lambda each: each.series.threads or 0
    )
    if not case.timed or not sweep or sweep[-1] is not most:
        return None
    enough = next(each for each in sweep if each is most or not _pays(each, most))
    if enough is most:
        return None
    fewer, more = enough.untraced_ms, most.untraced_ms
    if fewer is None or more is None:
        fewer, more = enough.e2e_ms, most.e2e_ms
    return Finding(
        "too-many-threads",
        f"Run with {plural(enough.series.threads or 1, 'thread')} instead of {most.series.threads}",
        (f"{most.series.threads} threads are not faster: leave the other cores to the application",),
        most,
        evidence={
            "ms_by_threads": {str(each.series.threads): each.e2e_ms for each in sweep},
            "rounds": min(len(enough.rounds), len(most.rounds)),
            "best_threads": enough.series.threads,
        },
        max_gain_pct=most.gain_pct(max(0.0, more - fewer)),
    )


def _pays(fewer: SeriesAnalysis, more: SeriesAnalysis) -> bool:
    """Whether more threads are faster: by verdict if rounds or launches allow one, else by 3% or more."""
    compared = SideBySide(fewer, more, how_measured(fewer, more)).end_to_end()
    if compared.verdict is not Verdict.NOT_COMPARABLE:
        return compared.verdict is Verdict.FASTER
    return fewer.e2e_ms > 1.03 * more.e2e_ms


Cause = Callable[[Case, Free], Finding | None]

CAUSES: tuple[Cause, ...] = (
    sme2_slower,
    sme2_no_faster,
    same_each_time,
    cancelling_transposes,
    cache_copies,
    unused_scores,
    outside,
    layout_changes,
    conversions,
    depthwise_as_igemm,
    copies,
    matrix_bound,
)
"""Causes of lost time. An earlier cause takes its operators from later ones."""

OBSERVATIONS: tuple[Cause, ...] = (
    precision_not_as_asked,
    wrong_layer_norms,
    misses_sme2,
    too_many_threads,
)
"""What takes no operators from others: nothing bounds it, or it is about the whole."""
