"""Findings from runs side by side: what SME2 did not speed up, where the time went instead, threads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from model_profiling.analysis.categories import Category
from model_profiling.analysis.findings import SHOWN, Finding, percent, share_finding
from model_profiling.analysis.pairing import OperatorPair, Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.analysis.side_by_side import SideBySide, how_measured
from model_profiling.statistics.speedup import Verdict
from model_profiling.wording import plural

_NO_FASTER = 1.05
_SLOWER = 0.97


def about_pairing(pairing: Pairing) -> Iterable[Finding]:
    """Findings from two series side by side."""
    if pairing.baseline.sme2 is False and pairing.candidate.sme2:
        yield from _shift_to_data_movement(pairing)
        yield from _matrix_operators(pairing)


def _shift_to_data_movement(pairing: Pairing) -> Iterable[Finding]:
    moving = next(part for part in pairing.categories if part.name == Category.DATA_MOVEMENT.value)
    if moving.candidate_share < 0.10 or moving.candidate_share < 1.2 * moving.baseline_share:
        return
    before, after = percent(moving.baseline_share), percent(moving.candidate_share)
    yield share_finding(
        "data-movement-after-sme2",
        f"SME2 moved the bottleneck: data movement grew from {before}% to {after}% of the time",
        pairing.label,
        moving.candidate_share,
        {
            "share_before_pct": before,
            "share_after_pct": after,
            "ms_before": round(moving.baseline_ms, 6),
            "ms_after": round(moving.candidate_ms, 6),
        },
        "the arithmetic is no longer what costs: work on transposes, copies and conversions next",
    )


def _matrix_operators(pairing: Pairing) -> Iterable[Finding]:
    matrix = [
        pair
        for pair in pairing.operators
        if pair.category in (Category.CONV, Category.GEMM) and pair.ratio is not None
    ]
    slower = [pair for pair in matrix if _is_slower(pair)]
    same = [pair for pair in matrix if not _is_slower(pair) and _is_no_faster(pair)]
    for id_, title, pairs in (
        ("sme2-slower", "slowed down with SME2", slower),
        ("sme2-no-faster", "did not speed up with SME2", same),
    ):
        chosen = sorted(pairs, key=lambda pair: -pair.candidate_ms)
        share = pairing.candidate.spent_by([operator for pair in chosen for operator in pair.candidate]).share
        if share < 0.01:
            continue
        lost = sum(pair.delta_ms for pair in chosen) / pairing.candidate.e2e_ms
        gain = max(0.0, lost) if id_ == "sme2-slower" else share
        operators = [_pair_evidence(pair, _not_judged(pairing)) for pair in chosen[:SHOWN]]
        yield share_finding(
            id_,
            f"{plural(len(chosen), 'matrix operator')} ({percent(share)}% of the time) {title}",
            pairing.label,
            gain,
            {"count": len(chosen), "share_pct": percent(share), "operators": operators},
            "see the reason given for each: another number format, plain instead of depthwise or grouped "
            "convolutions, or larger matrices reach SME2 kernels; the rest is bound by memory",
        )


def _is_slower(pair: OperatorPair) -> bool:
    """By the verdict where there is one; a single dump on each side only shows large changes."""
    if pair.speedup is not None and pair.speedup.verdict is not Verdict.NOT_COMPARABLE:
        return pair.speedup.verdict is Verdict.SLOWER
    return (pair.ratio or 1) < _SLOWER


def _is_no_faster(pair: OperatorPair) -> bool:
    unchanged = pair.speedup is not None and pair.speedup.verdict is Verdict.NO_CHANGE
    return unchanged or (pair.ratio or 1) < _NO_FASTER


def _not_judged(pairing: Pairing) -> str:
    """Why an operator of the pairing has no verdict."""
    sides = pairing.baseline, pairing.candidate
    if min(len(side.rounds) for side in sides) < 2:
        return f"not judged: one {sides[0].unit} only"
    return "not judged: shorter than the clock can tell"


def _pair_evidence(pair: OperatorPair, not_judged: str) -> dict[str, object]:
    return {
        "operator": pair.main.name,
        "place": pair.main.place,
        "ms_before": round(pair.baseline_ms, 6),
        "ms_after": round(pair.candidate_ms, 6),
        "ratio": round(pair.ratio or 0.0, 3),
        "verdict": pair.speedup.verdict.value if pair.speedup else not_judged,
        "kernel_before": pair.families[0],
        "kernel_after": pair.families[1],
        "may_be_because": _reason(pair),
    }


def _reason(pair: OperatorPair) -> str:
    """Why an operator may not profit, from what is known about it; a guess, and worded as one."""
    operator = pair.main
    if any(operator.packed for operator in pair.candidate):
        return _packed_reason(operator.source.flops or 0, operator.source.bytes_moved or 0)
    if operator.kind == "depthwise convolution":
        return "XNNPACK has no SME2 kernel for depthwise convolution"
    if operator.source.groups > 1:
        return f"a grouped convolution ({operator.source.groups} groups) keeps the NEON path"
    if not operator.delegated:
        return "it runs outside the backend that has SME2 kernels"
    return f"no SME2 kernel was chosen for {operator.family or operator.type}"


def _packed_reason(flops: int, bytes_moved: int) -> str:
    if flops and bytes_moved and flops < 10 * bytes_moved:
        return f"bound by memory: {flops / bytes_moved:.1f} operations per byte"
    if 0 < flops < 2_000_000:
        return f"too small to pay for packing: {flops / 1e6:.2f} million operations"
    return "packing its input may cost what the faster kernel saves"


def about_threads(series: Sequence[SeriesAnalysis]) -> Iterable[Finding]:
    """Thread counts of one experiment that cost more than they give."""
    sweeps: dict[str, list[SeriesAnalysis]] = {}
    for found in series:
        if found.series.threads and found.times.are_latencies:
            sweeps.setdefault(found.series.experiment, []).append(found)
    for experiment, sweep in sweeps.items():
        ordered = sorted(sweep, key=lambda found: found.series.threads or 0)
        most = ordered[-1]
        enough = next(found for found in ordered if not _pays(found, most))
        if enough is most:
            continue
        lost = max(0.0, 1 - enough.e2e_ms / most.e2e_ms)
        yield share_finding(
            "too-many-threads",
            f"{most.series.threads} threads are no faster than {enough.series.threads}",
            experiment,
            lost,
            {
                "ms_by_threads": {str(found.series.threads): round(found.e2e_ms, 6) for found in ordered},
                "rounds": min(len(enough.rounds), len(most.rounds)),
                "best_threads": enough.series.threads,
            },
            f"run with {plural(enough.series.threads or 1, 'thread')} and leave the other cores to the "
            "application",
        )


def _pays(fewer: SeriesAnalysis, more: SeriesAnalysis) -> bool:
    """Whether more threads are faster: by verdict where rounds or launches allow one, else by 3% or more."""
    if fewer is more:
        return False
    found = SideBySide(fewer, more, how_measured(fewer, more)).end_to_end()
    if found.verdict is not Verdict.NOT_COMPARABLE:
        return found.verdict is Verdict.FASTER
    return fewer.e2e_ms > 1.03 * more.e2e_ms
