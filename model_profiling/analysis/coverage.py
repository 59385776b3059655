"""What SME2 runs of a program, by the kernels that ran; and what it could bring to a program measured on an
Arm CPU without it: a projection, never a measurement.

The program says which matrix operators there are, so shares have one base in every report. Without it, the
operators that ran are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from model_profiling.analysis import matching
from model_profiling.analysis.evidence import PlaceEvidence, kernels_not_tested, profile_command
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config.series import Series
from model_profiling.program.category import Category
from model_profiling.program.matrix_work import MatrixWork, matrix_work, unseen_delegates
from model_profiling.runs import Run, Times
from model_profiling.runs.records import MatrixOperator, OperatorProof

if TYPE_CHECKING:
    from model_profiling.analysis.run import RunAnalysis

LOW_SHARE = 0.25
"""A smaller share of the matrix arithmetic on SME2 is low: the rest matters more than what SME2 brings."""
NO_MATRICES = "no: not a matrix operator"
IN_EMULATION = "in emulation"
"""The answer about an operator that SME kernels ran in an emulated run."""
_ON_SME = ", on SME"
RAN = frozenset(f"{how}{isa}" for how in ("yes", IN_EMULATION) for isa in ("", _ON_SME))
"""Every answer about an operator that SME kernels ran."""


class MissingReason(NamedTuple):
    """Operators that miss SME2 for one reason."""

    reason: str
    cause: str
    operators: int
    share: float
    """Of all matrix arithmetic, as far as it is known."""


@dataclass(frozen=True, slots=True)
class Sme2Coverage:
    """What ran on SME2, by executed kernels; or why that was not tested."""

    evidence: Literal["executed", "not tested"]
    reason: str
    """The basis of the answer, or why there is none."""
    next_command: str = ""
    isa: str = ""
    """The strongest instruction set that ran: SME2, SME, or empty for neither."""
    operators: tuple[MatrixOperator, ...] = ()
    """Every operator of the program that multiplies matrices, tested or not."""
    work: tuple[MatrixWork, ...] = ()
    """The program's description of each of `operators`; empty without a program."""
    ran: tuple[MatrixOperator, ...] = ()
    """The operators as they ran with SME2 on: one that ran as several appears several times."""
    emulated: bool = False
    unseen: tuple[str, ...] = ()
    """Delegates with unknown operators, and so unknown arithmetic."""

    @property
    def tested(self) -> bool:
        return self.evidence == "executed"

    @property
    def yes(self) -> str:
        """The answer about an operator that SME kernels ran."""
        return f"{IN_EMULATION if self.emulated else 'yes'}{'' if self.isa == 'SME2' else _ON_SME}"

    @property
    def proven(self) -> tuple[MatrixOperator, ...]:
        return tuple(operator for operator in self.operators if operator.on_sme and self.tested)

    @property
    def uncounted(self) -> int:
        """Number of operators with unknown arithmetic, which no share includes."""
        return sum(operator.flops is None for operator in self.operators)

    @property
    def flops(self) -> int:
        return sum(operator.flops or 0 for operator in self.proven)

    @property
    def flops_total(self) -> int:
        return sum(operator.flops or 0 for operator in self.operators)

    @property
    def arithmetic_share(self) -> float | None:
        """Share of all known matrix arithmetic, from 0 to 1; None if none is known."""
        return self.flops / self.flops_total if self.tested and self.flops_total else None

    @property
    def is_low(self) -> bool:
        """Whether so little of the matrix work runs on SME2 that hardware with SME2 would hardly help."""
        share = self.arithmetic_share
        if share is None:
            return self.tested and bool(self.operators) and not self.proven
        return share < LOW_SHARE

    def share_of(self, operator: MatrixOperator) -> float | None:
        """Its share of all matrix arithmetic, from 0 to 1; None if unknown."""
        return operator.flops / self.flops_total if operator.flops is not None and self.flops_total else None

    @property
    def missing(self) -> tuple[MatrixOperator, ...]:
        """Those that SME2 did not run, most of the arithmetic first."""
        missing = [operator for operator in self.operators if self.tested and not operator.on_sme]
        return tuple(sorted(missing, key=lambda operator: -(operator.flops or 0)))

    @property
    def missing_reasons(self) -> tuple[MissingReason, ...]:
        """Why operators are missing, the reason of most of the arithmetic first."""
        shares: dict[tuple[str, str], list[float]] = {}
        for operator in self.missing:
            why = operator.why_not, operator.cause or matching.NOT_KNOWN
            shares.setdefault(why, []).append(self.share_of(operator) or 0.0)
        reasons = (MissingReason(*why, len(each), sum(each)) for why, each in shares.items())
        return tuple(sorted(reasons, key=lambda reason: -reason.share))


def coverage_of(
    run: Run, evidence: Sequence[PlaceEvidence], series: Sequence[SeriesAnalysis] = ()
) -> Sme2Coverage:
    """What the evidence proves about the operators of `run`, its own first; `series` provide the program."""
    work, unseen = _work(series)
    proofs = [(place, place.operators) for place in evidence if place.operators is not None]
    for place, proof in proofs:
        if not proof.not_tested:
            return _tested(proof, place, work, unseen)
    known = tuple(map(matching.unproven_work, work))
    if not proofs and (question := kernels_not_tested(run, evidence)):
        because, command = question.because, question.next
    else:
        unsaid = "the evidence in this run does not say which operators ran on SME2"
        because, command = proofs[0][1].not_tested if proofs else unsaid, profile_command(run)
    return Sme2Coverage("not tested", because, command, operators=known, work=work, unseen=unseen)


def sme2_by_operator(
    series: SeriesAnalysis, coverage: Sme2Coverage, *, can_switch: bool
) -> Mapping[int, str]:
    """For each operator of `series`, by its place, whether SME2 kernels run it: `yes`, `no` and why, or `not
    tested`. `can_switch` says whether the CPU has SME2, so that it may be off."""
    off = series.sme2 is False and can_switch
    said = "no: SME2 is off" if off else "not tested"
    if coverage.tested and not off:
        said = "no: no SME kernel was seen to run it"
    found = dict.fromkeys(map(series.place, series.operators), NO_MATRICES)
    found |= dict.fromkeys(map(series.place, matching.matrix_operators(series)), said)
    if off or not coverage.tested:
        return found
    places = matching.matrix_operators_by_key(series)
    for missing in coverage.missing:
        for each in places.get(missing.key.in_program, ()):
            found[series.place(each)] = f"no: {missing.why_not}"
    for _, measured in matching.match_proven(series, coverage.ran):
        found |= dict.fromkeys(map(series.place, measured), coverage.yes)
    return found


def _work(series: Sequence[SeriesAnalysis]) -> tuple[tuple[MatrixWork, ...], tuple[str, ...]]:
    graph = next((found.graph for found in series if found.graph), None)
    if graph is None:
        return (), ()
    ran = {operator.method for found in series for operator in found.operators}
    methods = [method for method in graph.program.methods if method.name in ran]
    work = tuple(each for method in methods for each in matrix_work(graph, method))
    return work, tuple(name for method in methods for name in unseen_delegates(method))


def _tested(
    proof: OperatorProof, place: PlaceEvidence, work: Sequence[MatrixWork], unseen: tuple[str, ...]
) -> Sme2Coverage:
    operators = tuple(matching.proven_work(work, proof.operators)) if work else proof.operators
    source = place.named(proof.series)
    if not operators:
        reason = f"the model has no matrix operators, as {source} shows"
    elif proof.isa:
        reason = f"confirmed by kernel calls counted in {source}"
    else:
        reason = f"no SME or SME2 kernel ran in {source}, although SME2 was on"
    return Sme2Coverage(
        "executed",
        reason,
        isa=proof.isa,
        operators=operators,
        work=tuple(work),
        ran=proof.operators,
        emulated=place.emulated,
        unseen=unseen,
    )


# The projection: Amdahl's law on measured shares. Operators proven on SME2 kernels are divided by a range of
# factors, the rest stays as measured. Times of other CPUs and of emulators are never used.


class Range(NamedTuple):
    low: float
    high: float


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


class Part(NamedTuple):
    category: str
    share: float


@dataclass(frozen=True, slots=True)
class FactorGroup:
    operators: str
    count: int
    time_share: float
    low: float
    high: float


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

    def ms(self, speedup: float) -> float | None:
        return self.latency_ms / speedup if self.latency_ms is not None else None


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is proven to run on SME2 and what that could bring; all files and commands use this record."""

    coverage: Sme2Coverage
    projections: tuple[Projection, ...]
    """Headline first; if empty, `reason` says why."""
    reason: str

    @property
    def headline(self) -> Projection | None:
        return self.projections[0] if self.projections else None


def outlook_of(run: Run, analysis: RunAnalysis | None, evidence: Sequence[PlaceEvidence]) -> Outlook:
    """The outlook for `run`, or for the run that its dumps lie in, from `evidence` about it."""
    run = run.whole
    series = analysis.series if analysis else ()
    proven = analysis.proven if analysis else None
    known = proven.coverage if proven and proven.evidence is evidence else None
    coverage = known or coverage_of(run, evidence, series)
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
    return "this CPU has SME2, so its effect is measured instead" if manifest.has_sme2 else ""


def _measured(run: Run, analysis: RunAnalysis | None) -> list[SeriesAnalysis]:
    """For each number of threads, the series that used most of the CPU's features: the best without SME2."""
    alike: dict[int | None, list[SeriesAnalysis]] = {}
    for found in analysis.series if analysis else ():
        if found.times.are_latencies:
            alike.setdefault(found.series.threads, []).append(found)
    best = [min(members, key=lambda each: run.spoken_order(each.series)) for members in alike.values()]
    return sorted(best, key=lambda found: found.series.threads or 0)


def _project(run: Run, series: SeriesAnalysis, coverage: Sme2Coverage) -> Projection:
    matched = matching.match_proven(series, coverage.ran)
    groups = tuple(
        FactorGroup(
            name,
            len(members),
            series.spent_by([operator for _, measured in members for operator in measured]).share,
            *FACTORS[name],
        )
        for name in FACTORS
        if (members := [match for match in matched if group_of(match[0]) == name])
    )
    latency = run.metrics.latency(series.series) if run.metrics else None
    measured = {name: series.spent(part).share for name, part in series.parts.items()}
    time_share = sum(group.time_share for group in groups)
    return Projection(
        series=series.series,
        low=speedup_of((group.time_share, group.low) for group in groups),
        high=speedup_of((group.time_share, group.high) for group in groups),
        ceiling=speedup_of([(time_share, float("inf"))]),
        time_share=time_share,
        groups=groups,
        before=_largest(measured),
        after_low=_largest(_after(series, matched, measured, lambda group: FACTORS[group].low)),
        after_high=_largest(_after(series, matched, measured, lambda group: FACTORS[group].high)),
        latency_ms=latency.end_to_end_ms.median if latency and latency.end_to_end_ms else None,
    )


def group_of(operator: MatrixOperator) -> str:
    """The factor group of an operator: one row counts as one row, in a linear layer or a convolution."""
    return ONE_ROW if operator.rows == 1 else operator.category.value


def _after(
    series: SeriesAnalysis,
    matched: matching.Matched,
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
    return Part(*max(shares.items(), key=lambda part: part[1]))
