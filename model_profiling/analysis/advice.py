"""Findings of a run: the causes looked for in each series, what comparisons show, and their order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from model_profiling.analysis.causes.avoidable import conversions, same_each_time
from model_profiling.analysis.causes.case import (
    Case,
    Free,
    WalkedMethods,
    identities,
    reaching,
)
from model_profiling.analysis.causes.language import cache_copies, unused_scores, weights_bound
from model_profiling.analysis.causes.matrix import (
    depthwise_as_igemm,
    matrix_bound,
    precision_not_as_asked,
)
from model_profiling.analysis.causes.misses import misses_sme2
from model_profiling.analysis.causes.movement import cancelling_transposes, copies, layout_changes
from model_profiling.analysis.causes.outside import outside
from model_profiling.analysis.causes.sme2 import (
    LARGE_KERNEL_ISSUE,
    ONE_ROW_ISSUE,
    is_large_kernel,
    sme2_risks,
    wrong_layer_norms,
)
from model_profiling.analysis.coverage import Coverage
from model_profiling.analysis.findings import WORTH, Concern, Finding, where
from model_profiling.analysis.matching import rows_of
from model_profiling.analysis.pairing import OperatorPair, Pairing, SideBySide, how_measured
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core.errors import ProfilingError
from model_profiling.core.formatting import listing, plural
from model_profiling.core.number_formats import format_of_name
from model_profiling.program.category import MATRIX
from model_profiling.program.delegates import describe
from model_profiling.runs.manifest import read_manifest
from model_profiling.runs.metrics import read_metrics
from model_profiling.runs.run import Run
from model_profiling.statistics.speedup import Verdict


def findings_of(
    run: Run, series: Sequence[SeriesAnalysis], pairings: Sequence[Pairing], coverage: Coverage
) -> tuple[Finding, ...]:
    manifest = run.whole.manifest
    keeps_state = any(method.state for each in series if each.graph for method in each.graph.program.methods)
    found = advise(
        series,
        pairings,
        about_time=manifest is None or manifest.is_arm is not False,
        coverage=coverage,
        executorch=(manifest.executorch.version or "") if manifest else "",
        beside=_beside(run.whole),
        memory_rates=run.whole.memory_rates if keeps_state else {},
    )
    return tuple(_once(run, found, pairings))


def _beside(run: Run) -> dict[Series, dict[str, float]]:
    """What other number formats of the model took in the runs beside this one, on the same CPU."""
    found: dict[Series, dict[str, float]] = {}
    model, own = names.variant_of(Path(f"{run.model_name}.pte"))
    if run.manifest is None or own == model:
        return found
    here = model, run.manifest.cpu, run.manifest.executorch
    for folder in sorted(run.path.resolve().parent.parent.glob(f"*/{run.path.name}")):
        try:
            manifest, metrics = read_manifest(folder), read_metrics(folder / names.METRICS)
        except ProfilingError:
            continue  # another run's damage says nothing about this one
        if manifest is None or metrics is None or not metrics.times.are_latencies:
            continue
        name, variant = names.variant_of(Path(f"{manifest.model_stem}.pte"))
        format, there = format_of_name(variant), (name, manifest.cpu, manifest.executorch)
        if there != here or format in ("", format_of_name(own)):
            continue
        for each in metrics.latencies:
            if each.end_to_end_ms:
                series = Series(each.experiment, each.threads)
                found.setdefault(series, {})[format] = each.end_to_end_ms.median
    return found


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


# Matrix operators that SME2 did not speed up.

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


def sme2_slower(case: Case, _free: Free) -> Finding | None:
    for pairing in _sme2_pairings(case):
        slower = [pair for pair in _matrix_pairs(pairing) if _is_slower(pair)]
        saved_ms = max(0.0, sum(pair.delta_ms for pair in slower))
        gain = pairing.candidate.gain_pct(saved_ms)
        if slower and gain >= 100 * (_JUDGED_WORTH if all(map(_verdict, slower)) else WORTH):
            more = [_SWITCH_OFF] if pairing.e2e.verdict in (Verdict.SLOWER, Verdict.NO_CHANGE) else []
            return _lost(case, pairing, slower, id_="sme2-slower", did="slowed down", gain=gain, more=more)
    return None


def sme2_no_faster(case: Case, _free: Free) -> Finding | None:
    for pairing in _sme2_pairings(case):
        same = [
            pair
            for pair in _matrix_pairs(pairing)
            if not _is_slower(pair)
            and (_verdict(pair) is Verdict.NO_CHANGE or (pair.ratio or 1) < _NO_FASTER)
        ]
        spent = pairing.candidate.spent_by([operator for pair in same for operator in pair.candidate])
        gain = pairing.candidate.gain_pct(spent.ms)
        if same and gain >= 100 * WORTH:
            return _lost(case, pairing, same, id_="sme2-no-faster", did="did not speed up", gain=gain)
    return None


def _sme2_pairings(case: Case) -> Iterator[Pairing]:
    yield from case.sme2_pairings.get(case.series.series, ()) if case.about_time else ()


def _matrix_pairs(pairing: Pairing) -> list[OperatorPair]:
    in_both = (pair for pair in pairing.operators if pair.ratio is not None and pair.candidate)
    return [pair for pair in in_both if pair.category in MATRIX]


def _lost(
    case: Case,
    pairing: Pairing,
    pairs: Sequence[OperatorPair],
    *,
    id_: str,
    did: str,
    gain: float,
    more: Sequence[str] = (),
) -> Finding:
    longest = sorted(pairs, key=lambda pair: -pair.candidate_ms)
    spent = pairing.candidate.spent_by([operator for pair in longest for operator in pair.candidate])
    cures = dict.fromkeys(_reason_and_cure(pair, case.executorch)[1] for pair in longest)
    lost_ms = sum(pair.delta_ms for pair in longest)
    return Finding(
        id_,
        f"Look at {plural(len(longest), 'matrix operator')} that {did} with SME2",
        (*cures, *more),
        pairing.candidate,
        tuple(_concern(pairing, pair, case.executorch) for pair in longest),
        {"share": spent.share, "lost_share": lost_ms / pairing.candidate.e2e_ms},
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
        "baseline_ms": pair.baseline_ms,
        "candidate_ms": pair.candidate_ms,
        "lost_ms": pair.delta_ms,
        "lost_share": share,
        "ratio": ratio,
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


def unknown_operators(case: Case, _free: Free) -> Finding | None:
    unknown = [operator for operator in case.series.operators if not operator.known]
    if not unknown:
        return None
    counts = Counter(operator.type for operator in unknown)
    share = case.series.spent_by(unknown).share if case.series.times.are_latencies else None
    return Finding(
        "unknown-operators",
        f"{plural(len(counts), 'operator name')} without a category, counted as Other",
        (f"{listing(counts)}: the times are right, only the category is not known",),
        case.series,
        evidence={"names": dict(counts), "share": share},
        has_cure=False,
    )


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
    weights_bound,
    matrix_bound,
)
"""Causes of lost time. An earlier cause takes its operators from later ones."""

OBSERVATIONS: tuple[Cause, ...] = (
    unknown_operators,
    precision_not_as_asked,
    wrong_layer_norms,
    misses_sme2,
    sme2_risks,
    too_many_threads,
)
"""What takes no operators from others: nothing bounds it, or it is about the whole."""
