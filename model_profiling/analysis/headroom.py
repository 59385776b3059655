"""Projects what SME2 could bring to a program measured on an Arm CPU without it; never a measurement.

Amdahl's law on measured shares: operators proven on SME2 kernels are divided by a range of factors, the rest
stays as measured. Times of other CPUs and of emulators are never used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from model_profiling.analysis.coverage import Coverage, coverage_of
from model_profiling.analysis.evidence import PlaceEvidence, gather_evidence
from model_profiling.analysis.matching import Matched, match_proven
from model_profiling.analysis.run import RunAnalysis
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config.series import Series
from model_profiling.program.category import Category
from model_profiling.runs import Run, Times
from model_profiling.runs.evidence import MatrixOperator

MEASURED_INSTEAD = "this CPU has SME2, so its effect is measured instead"


@dataclass(frozen=True, slots=True)
class Range:
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


ONE_ROW = "GEMM with one row"
PUBLISHED = Range(3, 15)
"""Published for convolution and GEMM."""
FIELD = Range(0.33, 1)
"""Reported from the field for GEMM with one row, where SME2 is slower or at best no faster."""
FACTORS = {Category.CONV.value: PUBLISHED, Category.GEMM.value: PUBLISHED, ONE_ROW: FIELD}
"""How many times faster SME2 is assumed to make an operator."""
FACTORS_FROM = "published ranges"


def speedup_of(parts: Iterable[tuple[float, float]]) -> float:
    """Amdahl's law for shares of the time and their speedups; an infinite speedup removes a share."""
    known = list(parts)
    left = 1 - sum(share for share, _ in known) + sum(share / factor for share, factor in known)
    return 1 / left if left > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    share: float


@dataclass(frozen=True, slots=True)
class FactorGroup:
    name: str
    operators: int
    time_share: float
    factor: Range


@dataclass(frozen=True, slots=True)
class Projection:
    series: Series
    low: float
    """Speedup with the lowest factors; below 1 is slower."""
    high: float
    ceiling: float
    """With the proven operators taking no time at all."""
    time_share: float
    """Share of the proven operators, from 0 to 1, with the event tracer on."""
    groups: tuple[FactorGroup, ...]
    before: Part
    after_low: Part
    after_high: Part
    """The largest part of the time as measured, and with the lowest and the highest factors."""
    latency_ms: float | None
    """Median without the tracer; None if not measured."""
    taken_from: str
    unmatched: tuple[str, ...]
    """Proven operators that this series does not have: not counted as faster."""

    def ms(self, speedup: float) -> float | None:
        return self.latency_ms / speedup if self.latency_ms is not None else None


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is proven to run on SME2 and what that could bring; all files and commands use this record."""

    coverage: Coverage
    projections: tuple[Projection, ...]
    """Headline first; if empty, `reason` says why."""
    reason: str

    @property
    def headline(self) -> Projection | None:
        return self.projections[0] if self.projections else None


def outlook_of(
    run: Run, analysis: RunAnalysis | None, evidence: Sequence[PlaceEvidence] | None = None
) -> Outlook:
    """The outlook for `run`, or for the run that its dumps lie in."""
    run = run.whole
    series = analysis.series if analysis else ()
    proven = analysis.proven if analysis else None
    if proven and proven.run is run and evidence in (None, proven.evidence) and not proven.damaged:
        coverage = proven.coverage
    else:
        coverage = coverage_of(run, gather_evidence(run, series) if evidence is None else evidence, series)
    reason = unfit_times(run)
    if not reason and not coverage.tested:
        reason = f"it was not tested which operators run on SME2: {coverage.reason}"
    if not reason and not coverage.proven:
        reason = "no operator ran on SME2, so there is nothing to speed up"
    measured = _measured(run, analysis) if not reason else ()
    if not reason and not measured:
        reason = "no experiment has both latencies and dumps"
    found = tuple(_project(run, series, coverage) for series in measured)
    if found and not any(each.groups for each in found):
        found, reason = (), "the operators proven to run on SME2 were not found in the times measured here"
    return Outlook(coverage, found, reason)


def unfit_times(run: Run) -> str:
    """Why nothing can be projected from the run's times; empty for an Arm CPU without SME2."""
    manifest = run.manifest
    if run.times is Times.EMULATED:
        return "times of an emulated run are not latencies; measure on an Arm CPU to see what SME2 could save"
    if run.times is not Times.HARDWARE:
        return f"times are from {run.times.origin}; a projection needs latencies of an Arm CPU"
    if manifest is None or manifest.is_arm is None or manifest.has_sme2 is None:
        return "the CPU on which the times were measured is not recorded"
    if not manifest.is_arm:
        return "the times are not from an Arm CPU, so they do not show what SME2 could save"
    return MEASURED_INSTEAD if manifest.has_sme2 else ""


def _measured(run: Run, analysis: RunAnalysis | None) -> list[SeriesAnalysis]:
    """For each number of threads, the series that used most of the CPU's features: the best without SME2."""
    alike: dict[int | None, list[SeriesAnalysis]] = {}
    for found in analysis.series if analysis else ():
        if found.times.are_latencies:
            alike.setdefault(found.series.threads, []).append(found)
    best = [min(members, key=lambda each: run.spoken_order(each.series)) for members in alike.values()]
    return sorted(best, key=lambda found: found.series.threads or 0)


def _project(run: Run, series: SeriesAnalysis, coverage: Coverage) -> Projection:
    matched, unmatched = match_proven(series, coverage.ran)
    groups = tuple(
        FactorGroup(
            name,
            len(members),
            series.spent_by([operator for _, measured in members for operator in measured]).share,
            FACTORS[name],
        )
        for name in FACTORS
        if (members := [match for match in matched if group_of(match[0]) == name])
    )
    latency = run.metrics.latency(series.series) if run.metrics else None
    measured = {name: series.spent(part).share for name, part in series.parts.items()}
    time_share = sum(group.time_share for group in groups)
    return Projection(
        series=series.series,
        low=speedup_of((group.time_share, group.factor.low) for group in groups),
        high=speedup_of((group.time_share, group.factor.high) for group in groups),
        ceiling=speedup_of([(time_share, float("inf"))]),
        time_share=time_share,
        groups=groups,
        before=_largest(measured),
        after_low=_largest(_after(series, matched, measured, lambda group: FACTORS[group].low)),
        after_high=_largest(_after(series, matched, measured, lambda group: FACTORS[group].high)),
        latency_ms=latency.end_to_end_ms.median if latency and latency.end_to_end_ms else None,
        taken_from=series.taken_from,
        unmatched=unmatched,
    )


def group_of(operator: MatrixOperator) -> str:
    """The factor group of an operator: one row counts as one row, in a linear layer or a convolution."""
    return ONE_ROW if operator.rows == 1 else operator.category.value


def _after(
    series: SeriesAnalysis,
    matched: Matched,
    measured: Mapping[str, float],
    factor_of: Callable[[str], float],
) -> dict[str, float]:
    left = dict(measured)
    for proven, measured_as in matched:
        factor = factor_of(group_of(proven))
        for operator in measured_as:
            left[operator.category.value] -= series.spent_by([operator]).share * (1 - 1 / factor)
    whole = sum(left.values())
    return {name: share / whole if whole > 0 else 0.0 for name, share in left.items()}


def _largest(shares: Mapping[str, float]) -> Part:
    name = max(shares, key=lambda each: shares[each])
    return Part(name, shares[name])


def proven_on_sme(series: SeriesAnalysis, coverage: Coverage) -> Mapping[int, str]:
    """Instruction set of the operators proven on SME kernels, by place; empty with SME2 switched off."""
    if not coverage.tested or series.sme2 is False:
        return {}
    where = " under emulation" if coverage.emulated else ""
    matched, _ = match_proven(series, coverage.ran)
    return {
        series.place(operator): f"{coverage.isa}{where}" for _, measured in matched for operator in measured
    }
