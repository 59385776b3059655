"""Findings from runs side by side: matrix operators that SME2 did not speed up, threads that do not pay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from model_profiling.analysis.categories import Category
from model_profiling.analysis.findings import WORTH, Concern, Finding, percent, where
from model_profiling.analysis.pairing import OperatorPair, Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.analysis.side_by_side import SideBySide, how_measured
from model_profiling.statistics.speedup import Verdict
from model_profiling.wording import plural

_NO_FASTER = 1.05
_SLOWER = 0.97


def about_pairing(pairing: Pairing) -> Iterable[Finding]:
    """Findings from two series that differ in SME2: what became of the operators it is for."""
    if pairing.baseline.sme2 is not False or not pairing.candidate.sme2:
        return
    if pairing.baseline.series.threads != pairing.candidate.series.threads:
        return
    matrix = [
        pair
        for pair in pairing.operators
        if pair.category in (Category.CONV, Category.GEMM) and pair.ratio is not None and pair.candidate
    ]
    slower = [pair for pair in matrix if _is_slower(pair)]
    same = [pair for pair in matrix if not _is_slower(pair) and _is_no_faster(pair)]
    for id_, did, pairs in (
        ("sme2-slower", "slowed down", slower),
        ("sme2-no-faster", "did not speed up", same),
    ):
        chosen = sorted(pairs, key=lambda pair: -pair.candidate_ms)
        share = pairing.candidate.spent_by([operator for pair in chosen for operator in pair.candidate]).share
        lost = sum(pair.delta_ms for pair in chosen) / pairing.candidate.e2e_ms
        gain = max(0.0, lost) if id_ == "sme2-slower" else share
        if gain < WORTH:
            continue
        yield Finding(
            id_,
            f"Look at {plural(len(chosen), 'matrix operator')} that {did} with SME2",
            "; ".join(dict.fromkeys(_instead(pair) for pair in chosen)),
            pairing.candidate,
            tuple(_concern(pair, _not_judged(pairing)) for pair in chosen),
            {"share_pct": percent(share)},
            percent(gain),
            about=pairing.label,
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


def _concern(pair: OperatorPair, not_judged: str) -> Concern:
    reason = _reason(pair)
    ratio = pair.ratio or 0.0
    return Concern(
        pair.candidate,
        where(pair.main),
        f"{ratio:.2f}x with SME2, perhaps because {reason}",
        {
            "ms_before": round(pair.baseline_ms, 6),
            "ms_after": round(pair.candidate_ms, 6),
            "ratio": round(ratio, 3),
            "verdict": pair.speedup.verdict.value if pair.speedup else not_judged,
            "kernel_before": pair.families[0],
            "kernel_after": pair.families[1],
            "may_be_because": reason,
        },
    )


def _instead(pair: OperatorPair) -> str:
    """What may help an operator of this kind."""
    operator = pair.main
    if operator.kind == "depthwise convolution" or operator.source.groups > 1:
        return "plain convolutions reach SME2 kernels, depthwise and grouped ones do not"
    if not operator.delegated:
        return "operators in the delegate reach SME2 kernels"
    if any(member.packed for member in pair.candidate):
        return "larger matrices pay for the packing of their input"
    return "another number format may reach SME2 kernels (`sme2prof profile MODEL --dtype all`)"


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
    for sweep in sweeps.values():
        ordered = sorted(sweep, key=lambda found: found.series.threads or 0)
        most = ordered[-1]
        enough = next(found for found in ordered if not _pays(found, most))
        if enough is most:
            continue
        gain = percent(max(0.0, 1 - enough.e2e_ms / most.e2e_ms))
        yield Finding(
            "too-many-threads",
            f"Run with {plural(enough.series.threads or 1, 'thread')} instead of {most.series.threads}",
            f"{most.series.threads} threads are no faster: leave the other cores to the application",
            most,
            evidence={
                "ms_by_threads": {str(found.series.threads): round(found.e2e_ms, 6) for found in ordered},
                "rounds": min(len(enough.rounds), len(most.rounds)),
                "best_threads": enough.series.threads,
            },
            max_gain_pct=gain,
        )


def _pays(fewer: SeriesAnalysis, more: SeriesAnalysis) -> bool:
    """Whether more threads are faster: by verdict where rounds or launches allow one, else by 3% or more."""
    if fewer is more:
        return False
    found = SideBySide(fewer, more, how_measured(fewer, more)).end_to_end()
    if found.verdict is not Verdict.NOT_COMPARABLE:
        return found.verdict is Verdict.FASTER
    return fewer.e2e_ms > 1.03 * more.e2e_ms
