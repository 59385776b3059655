"""Findings of a run: the causes looked for in each series, and what comparisons of series show."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from model_profiling.analysis.causes.avoidable import conversions, repacked_weights, same_each_time
from model_profiling.analysis.causes.context import (
    FindingContext,
    WalkedMethods,
    between_operators,
    flows_of,
    reaching,
)
from model_profiling.analysis.causes.matrix import (
    below_roof,
    depthwise_as_igemm,
    matrix_bound,
    packing_dominates,
)
from model_profiling.analysis.causes.movement import cancelling_transposes, copies, layout_changes
from model_profiling.analysis.causes.outside import outside
from model_profiling.analysis.causes.sme2 import LARGE_KERNEL_ISSUE, ONE_ROW_ISSUE, is_large_kernel
from model_profiling.analysis.coverage import Coverage
from model_profiling.analysis.findings import WORTH, Concern, Finding, percent, where
from model_profiling.analysis.matching import rows_of
from model_profiling.analysis.pairing import OperatorPair, Pairing, SideBySide, how_measured
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.core.formatting import listing, plural
from model_profiling.program.category import MATRIX
from model_profiling.program.delegates import describe
from model_profiling.statistics.speedup import Verdict

# Causes to look for. An earlier cause takes its operators from later ones, so that bounds do not overlap.

CAUSES: tuple[Callable[[FindingContext], Finding | None], ...] = (
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
    matrix_bound,
)


def keeps_state(series: SeriesAnalysis) -> bool:
    return series.graph is not None and any(method.state for method in series.graph.program.methods)


def _causes(series: SeriesAnalysis) -> tuple[Callable[[FindingContext], Finding | None], ...]:
    """The causes to look for in a series: those of language models only in programs with a cache."""
    if not keeps_state(series):
        return CAUSES
    from model_profiling.analysis.causes import language

    known = list(CAUSES)
    known[known.index(outside) : known.index(outside)] = language.cache_copies, language.unused_scores
    known.insert(known.index(below_roof), language.weights_bound)
    return tuple(known)


def about_series(
    series: SeriesAnalysis,
    *,
    timed: bool,
    claimed: Collection[tuple[str, int, int]] = (),
    repacking: Mapping[str, int] | None = None,
    walked: WalkedMethods | None = None,
    coverage: Coverage | None = None,
    threads: Collection[int] = (),
    executorch: str = "",
    beside: Mapping[str, float] | None = None,
    memory_rate: float | None = None,
) -> Iterator[Finding]:
    """Findings in a series; if `timed`, only those that could save enough."""
    context = FindingContext(
        series,
        timed,
        frozenset(claimed),
        repacking or {},
        flows_of(series, walked),
        coverage,
        frozenset(threads),
        executorch,
        beside or {},
        memory_rate,
    )
    for cause in _causes(series):
        found = cause(context)
        if found is not None and (not timed or found.could_bring >= 100 * WORTH):
            yield found
            taken = (operator.identity for operator in found.operators)
            context = replace(context, claimed=context.claimed.union(taken))


def about_names(series: SeriesAnalysis) -> Finding | None:
    unknown = [operator for operator in series.operators if not operator.known]
    if not unknown:
        return None
    counts = Counter(operator.type for operator in unknown)
    share = percent(series.spent_by(unknown).share) if series.times.are_latencies else None
    return Finding(
        "unknown-operators",
        f"{plural(len(counts), 'operator name')} without a category, counted as Other",
        f"{listing(counts)}: the times are right, only the category is not known",
        series,
        evidence={"names": dict(counts), "share_pct": share},
        has_cure=False,
    )


# Findings from comparisons: matrix operators that SME2 did not speed up, threads that do not pay.

_NO_FASTER = 1.05
_SLOWER = 0.97
_JUDGED_WORTH = 0.005
"""Share of end-to-end time from which a loss with a verdict is reported."""
_REPORT = "or report these numbers to google/XNNPACK: it chooses the kernel without looking at shapes"
_MORE_ROWS = "compute more than one row at a time (a larger batch, several steps at once)"
_OFF_THE_PATH = {
    "fp16": ", or write it as a 1x1 convolution, which keeps fp16 off the packed path",
    "int8": ", or quantize its weights with one scale for all channels, which keeps int8 off the packed path",
}
"""What the rules of XNNPACK's packed paths allow; for fp32 nothing."""
_SWITCH_OFF = (
    "SME2 does not make this model faster: an ExecuTorch built with XNNPACK_ENABLE_ARM_SME=OFF and "
    "XNNPACK_ENABLE_ARM_SME2=OFF does not use it"
)


def compares_sme2(pairing: Pairing) -> bool:
    """Whether both sides differ only in SME2, and their times may be compared."""
    ours, theirs = pairing.baseline, pairing.candidate
    switched = ours.sme2 is False and bool(theirs.sme2)
    return switched and pairing.comparable and ours.series.threads == theirs.series.threads


def about_pairing(pairing: Pairing, executorch: str = "") -> Iterable[Finding]:
    if not compares_sme2(pairing):
        return
    in_both = (pair for pair in pairing.operators if pair.ratio is not None and pair.candidate)
    matrix = [pair for pair in in_both if pair.category in MATRIX]
    slower = [pair for pair in matrix if _is_slower(pair)]
    same = [
        pair
        for pair in matrix
        if pair not in slower and (_verdict(pair) is Verdict.NO_CHANGE or (pair.ratio or 1) < _NO_FASTER)
    ]
    for id_, did, pairs in (
        ("sme2-slower", "slowed down", slower),
        ("sme2-no-faster", "did not speed up", same),
    ):
        chosen = sorted(pairs, key=lambda pair: -pair.candidate_ms)
        spent = pairing.candidate.spent_by([operator for pair in chosen for operator in pair.candidate])
        lost_ms = sum(pair.delta_ms for pair in chosen)
        lost = lost_ms / pairing.candidate.e2e_ms
        gain = pairing.candidate.gain_pct(max(0.0, lost_ms) if id_ == "sme2-slower" else spent.ms)
        worth = _JUDGED_WORTH if id_ == "sme2-slower" and all(map(_verdict, chosen)) else WORTH
        if not chosen or gain < 100 * worth:
            continue
        ways = dict.fromkeys(_reason_and_cure(pair, executorch)[1] for pair in chosen)
        if id_ == "sme2-slower" and pairing.e2e.verdict in (Verdict.SLOWER, Verdict.NO_CHANGE):
            ways[_SWITCH_OFF] = None
        yield Finding(
            id_,
            f"Look at {plural(len(chosen), 'matrix operator')} that {did} with SME2",
            "; ".join(ways),
            pairing.candidate,
            tuple(_concern(pairing, pair, executorch) for pair in chosen),
            {"share_pct": percent(spent.share), "lost_pct": percent(lost)},
            gain,
            about=pairing.label,
        )


def _verdict(pair: OperatorPair) -> Verdict | None:
    """None if there is no verdict: a single dump on each side only shows large changes."""
    found = pair.speedup.verdict if pair.speedup else None
    return None if found is Verdict.NOT_COMPARABLE else found


def _is_slower(pair: OperatorPair) -> bool:
    return (pair.ratio or 1) < _SLOWER if (found := _verdict(pair)) is None else found is Verdict.SLOWER


def _concern(pairing: Pairing, pair: OperatorPair, executorch: str) -> Concern:
    """The cost is given only for an operator that lost time; otherwise the ratio says all."""
    reason, ratio = _reason_and_cure(pair, executorch)[0], pair.ratio or 0.0
    share = pair.delta_ms / pairing.candidate.e2e_ms
    cost = f", {pair.delta_ms:.3f} ms or {100 * share:.1f}% of an inference more" if share > 0 else ""
    once = min(len(pairing.baseline.rounds), len(pairing.candidate.rounds)) < 2
    why_not = f"one {pairing.baseline.unit} only" if once else "shorter than the clock can measure"
    facts = {
        "ms_before": round(pair.baseline_ms, 6),
        "ms_after": round(pair.candidate_ms, 6),
        "lost_ms": round(pair.delta_ms, 6),
        "lost_share_pct": percent(share),
        "ratio": round(ratio, 3),
        "verdict": pair.speedup.verdict.value if pair.speedup else f"not judged: {why_not}",
        "kernel_before": pair.families[0],
        "kernel_after": pair.families[1],
        "may_be_because": reason,
    }
    note = f"{ratio:.2f}x with SME2{cost}, perhaps because {reason}"
    return Concern(pair.candidate, where(pair.main), note, facts)


def _reason_and_cure(pair: OperatorPair, executorch: str) -> tuple[str, str]:
    """Why an operator may not profit (a guess, and worded as one), and what to do instead."""
    operator, source = pair.main, pair.main.source
    if any(member.packed for member in pair.candidate):
        if operator.kind in ("linear", "pointwise convolution") and rows_of(operator) == 1:
            reason = f"one row is too little work to repay the packing (also reported in {ONE_ROW_ISSUE})"
            return reason, _MORE_ROWS + _OFF_THE_PATH.get(operator.precision, "")
        window = (source.kernel_size or ()) if operator.kind == "convolution" else ()
        if is_large_kernel(window):
            return (
                f"packing copies each input value for each of {math.prod(window)} taps (also reported for "
                f"another runtime, in {LARGE_KERNEL_ISSUE})",
                f"try several smaller kernels one after another, {_REPORT}",
            )
        flops = source.flops or 0
        reason = "packing its input may cost as much as the faster kernel saves"
        if 0 < flops < 2_000_000:
            reason = f"too small to repay the packing: {flops / 1000000.0:.2f} million operations"
        return reason, f"make the matrices larger, which repays the packing of their input, {_REPORT}"
    depthwise = operator.kind == "depthwise convolution"
    known = (reaching(executorch, kind) for kind in (operator.kind, *(("convolution",) if depthwise else ())))
    cure = ", ".join(filter(None, known)) or (
        "another number format may reach SME2 kernels (`sme2prof profile MODEL --dtype all`)"
    )
    if not operator.delegated:
        reason = "it runs outside the backend that has SME2 kernels"
        return reason, "operators in the delegate reach SME2 kernels"
    path = (source.described or describe(operator.name, operator.backend)).matrix
    if path is not None and path.miss is not None:
        return path.miss.words, cure
    return f"no SME2 kernel was chosen for {operator.family or operator.type}", cure


def about_threads(series: Sequence[SeriesAnalysis]) -> Iterable[Finding]:
    """Thread counts of one experiment that cost more than they gain."""
    sweeps: dict[str, list[SeriesAnalysis]] = {}
    for found in series:
        if found.series.threads and found.times.are_latencies:
            sweeps.setdefault(found.series.experiment, []).append(found)
    for sweep in sweeps.values():
        ordered = sorted(sweep, key=lambda found: found.series.threads or 0)
        most = ordered[-1]
        enough = next(found for found in ordered if found is most or not _pays(found, most))
        if enough is most:
            continue
        fewer, more = enough.untraced_ms, most.untraced_ms
        if fewer is None or more is None:
            fewer, more = enough.e2e_ms, most.e2e_ms
        yield Finding(
            "too-many-threads",
            f"Run with {plural(enough.series.threads or 1, 'thread')} instead of {most.series.threads}",
            f"{most.series.threads} threads are not faster: leave the other cores to the application",
            most,
            evidence={
                "ms_by_threads": {str(found.series.threads): round(found.e2e_ms, 6) for found in ordered},
                "rounds": min(len(enough.rounds), len(most.rounds)),
                "best_threads": enough.series.threads,
            },
            max_gain_pct=most.gain_pct(max(0.0, more - fewer)),
        )


def _pays(fewer: SeriesAnalysis, more: SeriesAnalysis) -> bool:
    """Whether more threads are faster: by verdict if rounds or launches allow one, else by 3% or more."""
    found = SideBySide(fewer, more, how_measured(fewer, more)).end_to_end()
    if found.verdict is not Verdict.NOT_COMPARABLE:
        return found.verdict is Verdict.FASTER
    return fewer.e2e_ms > 1.03 * more.e2e_ms
