"""The answer first: what a run showed and what to do next, in a few sentences made from the records.

Every renderer opens with these. A latency appears only where times are latencies, a speedup only with its
interval, and SME2 only as far as kernels prove it.
"""

from __future__ import annotations

from collections.abc import Iterator

from model_profiling.statistics.latency import LatencySummary
from model_profiling.analysis.pairing import CategoryPair
from model_profiling.analysis.series import OVERHEADS, SeriesAnalysis
from model_profiling.statistics.speedup import Speedup, Verdict
from model_profiling.report.data import ExperimentReport, KernelReport, PairReport, ReportData
from model_profiling.report.markdown_text import ms, percent, plural


def verdict(data: ReportData) -> tuple[str, ...]:
    """Sentences in order: the result, where the time goes, the proof, the next step."""
    return tuple(_sentences(data))


def _sentences(data: ReportData) -> Iterator[str]:
    if data.timings_are_latency:
        yield from _timed(data)
    else:
        where = "This run was emulated" if data.emulated else "This run gathered kernel evidence"
        yield f"{where}: it proves which kernels run and what they compute, and says nothing about time."
    yield from _proof(data)
    yield from _mismatches(data)
    yield from _next_step(data)


def speedup_text(found: Speedup) -> str:
    """A ratio with its interval, as a person says it."""
    if found.ratio is None:
        return found.verdict.value
    if found.low is None or found.high is None:
        return f"about {found.ratio:.2f}x, without a verdict"
    return f"{found.ratio:.2f}x ({found.confidence:.0%} interval {found.low:.2f} to {found.high:.2f})"


def largest_parts(pair: PairReport) -> tuple[CategoryPair, CategoryPair] | None:
    """The category that takes most of the time before, and the one that does after."""
    if pair.pairing is None or pair.pairing.not_comparable:
        return None
    parts = [part for part in pair.pairing.categories if part.name not in OVERHEADS]
    return (
        max(parts, key=lambda part: part.baseline_share),
        max(parts, key=lambda part: part.candidate_share),
    )


def shift_text(before: CategoryPair, after: CategoryPair) -> str:
    """Whether the bottleneck moved: what SME2 speeds up makes room for what it does not."""
    if before.name == after.name:
        return (
            f"{before.name} takes most of the time before ({percent(before.baseline_share)}) "
            f"and after ({percent(after.candidate_share)})."
        )
    return (
        f"The bottleneck moved from {before.name} ({percent(before.baseline_share)} of the time before) "
        f"to {after.name} ({percent(after.baseline_share)} before, {percent(after.candidate_share)} after)."
    )


def headline_experiment(data: ReportData) -> ExperimentReport | None:
    """The experiment to speak of where there is no pair: SME2 on, if there is one, on the fewest threads."""
    known = [one for one in data.experiments if _latency(one) is not None]
    return min(known, key=lambda one: (one.sme2 is False, one.series.threads or 0), default=None)


def _timed(data: ReportData) -> Iterator[str]:
    if data.pairs:
        yield from _pair_sentences(data)
        told = next((pair for pair in data.pairs if pair.comparable), None)
        if told is not None:
            if parts := largest_parts(told):
                yield shift_text(*parts)
            return
    experiment = headline_experiment(data)
    if experiment is None:
        yield "No experiment finished with a latency."
        return
    yield _latency_sentence(data, experiment)
    if experiment.dumps is not None:
        yield _largest_sentence(experiment.dumps)


def _pair_sentences(data: ReportData) -> Iterator[str]:
    """One for each comparison that has an answer, then one for each reason why others have none."""
    reasons: dict[str, list[str]] = {}
    for pair in data.pairs:
        if pair.comparable:
            yield _pair_sentence(data, pair)
        else:
            reasons.setdefault(_clause(pair.speedup.reason), []).append(pair.label)
    for reason, labels in reasons.items():
        yield f"{'; '.join(labels)}: not comparable, because {reason}."


def _pair_sentence(data: ReportData, pair: PairReport) -> str:
    found = pair.speedup
    name = data.model or "The model"
    times = f"{ms(found.baseline_median)} ms before, {ms(found.candidate_median)} ms after"
    rounds = plural(found.rounds, "round")
    if found.verdict is Verdict.NO_CHANGE:
        return f"{pair.label}: no significant change for {name}, {speedup_text(found)}; {times}, {rounds}."
    return f"{pair.label}: {name} is {found.verdict.value}, speedup {speedup_text(found)}; {times}, {rounds}."


def _latency_sentence(data: ReportData, experiment: ExperimentReport) -> str:
    name = data.model or "The model"
    summary = experiment.end_to_end
    if summary is not None:
        return (
            f"{name} takes {ms(summary.median)} ms end to end ({experiment.series}; median, "
            f"{ms(summary.p5)} to {ms(summary.p95)} ms for nine in ten)."
        )
    traced = _latency(experiment)
    assert traced is not None
    return (
        f"{name} takes {ms(traced.median)} ms with the event tracer on ({experiment.series}); "
        "its latency without the tracer was not measured."
    )


def _largest_sentence(series: SeriesAnalysis) -> str:
    spent = {category: series.spent(part) for category, part in series.breakdown.categories.items()}
    category = max(spent, key=lambda one: spent[one].share)
    return f"{category.value} takes most of it: {percent(spent[category].share)}."


def _latency(experiment: ExperimentReport) -> LatencySummary | None:
    if experiment.end_to_end or experiment.traced:
        return experiment.end_to_end or experiment.traced
    if experiment.dumps is not None and experiment.dumps.timings_are_latency:
        return experiment.dumps.latency
    return None


def _proof(data: ReportData) -> Iterator[str]:
    """What the kernels prove about SME2: the strongest answer of any place, and what is not known."""
    left_on = [
        (evidence.source, evidence.emulated, kernels)
        for evidence in data.evidence
        for kernels in evidence.kernels
        if kernels.sme2 is not False
    ]
    proven = [row for row in left_on if row[2].sme.answer in ("sme2", "sme", "sme-or-sme2")]
    if proven:
        source, emulated, kernels = min(proven, key=lambda row: _strength(row[2]))
        place = " under emulation" if emulated else ""
        yield f"Kernel evidence{place}: {kernels.sme.text} ({kernels.series}, {source})."
        return
    if any(kernels.sme.answer == "none" for _, _, kernels in left_on):
        why = " because this CPU has no SME2" if data.has_sme2 is False else ""
        yield f"Kernel evidence: no SME or SME2 kernel ran{why}."
        return
    yield "There is no kernel evidence: nothing here shows whether SME2 ran."


def _strength(kernels: KernelReport) -> int:
    return ("sme2", "sme", "sme-or-sme2").index(kernels.sme.answer)


def _mismatches(data: ReportData) -> Iterator[str]:
    for evidence in data.evidence:
        for report in evidence.parity:
            if report.parity is not None and not report.parity.agrees:
                yield (
                    f"The outputs of {report.candidate} differ from those of {report.baseline} by more than "
                    f"rounding ({evidence.source}): do not trust its speed before that is understood."
                )


def _next_step(data: ReportData) -> Iterator[str]:
    if data.timings_are_latency and data.findings:
        yield f"Next: {_clause(data.findings[0].title)}."
    if data.timings_are_latency and data.has_sme2 is False:
        yield "To see what SME2 brings, measure on a CPU that has it."
    if not data.timings_are_latency:
        yield "To see a speedup, measure on hardware with SME2."


def _clause(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
