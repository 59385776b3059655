"""The answer first: what a run showed and what to do next, in a few sentences made from the records.

Every renderer opens with these. A latency appears only where times are latencies, a speedup only with its
interval, and SME2 only as far as kernels prove it.
"""

from __future__ import annotations

from collections.abc import Iterator

from model_profiling.analysis.pairing import CategoryPair, Pairing
from model_profiling.analysis.series import OVERHEADS, SeriesAnalysis
from model_profiling.report.data import ExperimentReport, PairReport, ReportData
from model_profiling.report.headroom_section import outlook_sentences
from model_profiling.run import Times
from model_profiling.statistics.latency import LatencySummary
from model_profiling.statistics.speedup import Speedup, Verdict
from model_profiling.wording import milliseconds, percent, plural

_WIDE_SPREAD = 1.5
"""How many times the slowest of nine in ten inferences may be the fastest before a median says little."""
_WIDE_INTERVAL = 0.10
"""How far to either side a speedup may be uncertain before that belongs into the sentence."""


def verdict(data: ReportData) -> tuple[str, ...]:
    """Sentences in order: the result, where the time goes, the proof, the next step."""
    return tuple(_sentences(data))


def _sentences(data: ReportData) -> Iterator[str]:
    if data.timed:
        yield from _timed(data)
    elif data.times is Times.UNKNOWN:
        yield (
            "Nothing says on what machine these dumps were made: their times are shown as recorded, and none "
            "is called a latency."
        )
        if data.headline and data.headline.dumps:
            yield _largest_sentence(data.headline.dumps)
    else:
        was = "was emulated" if data.times is Times.EMULATED else "gathered kernel evidence"
        yield f"This run {was}: it proves which kernels run and what they compute, not how fast that is."
    yield from outlook_sentences(data)
    yield from _proof(data)
    for question in data.not_tested:
        yield f"{question}."
    yield from _mismatches(data)
    yield from _next_step(data)


def speedup_text(found: Speedup) -> str:
    """A ratio with its interval, as a person says it."""
    if found.ratio is None:
        return found.verdict.value
    if found.low is None or found.high is None:
        return f"about {found.ratio:.2f}x, without a verdict"
    return f"{found.ratio:.2f}x ({found.confidence:.0%} interval {found.low:.2f} to {found.high:.2f})"


def largest_parts(pairing: Pairing) -> tuple[CategoryPair, CategoryPair]:
    """The category that takes most of the time before, and the one that does after."""
    parts = [part for part in pairing.categories if part.name not in OVERHEADS]
    return (
        max(parts, key=lambda part: part.baseline_share),
        max(parts, key=lambda part: part.candidate_share),
    )


def shift_text(before: CategoryPair, after: CategoryPair) -> str:
    """Whether the bottleneck moved: what SME2 speeds up makes room for what it does not."""
    if before.name == after.name:
        return (
            f"{before.name} is the largest part of the time before ({percent(before.baseline_share)}) "
            f"and after ({percent(after.candidate_share)})."
        )
    return (
        f"The bottleneck moved from {before.name} ({percent(before.baseline_share)} of the time before) "
        f"to {after.name} ({percent(after.baseline_share)} before, {percent(after.candidate_share)} after)."
    )


def _timed(data: ReportData) -> Iterator[str]:
    if data.is_arm is False:
        yield f"These latencies are of a CPU that is not Arm ({data.cpu}): they say nothing about Arm."
    yield from (f"{text}." for text in data.merged)
    shown = next((pair for pair in data.pairs if pair.comparable), None)
    if data.has_sme2 is False:
        yield from _baseline(data)
    yield from _pair_sentences(data)
    if shown is not None:
        if shown.side_by_side:
            yield shift_text(*largest_parts(shown.side_by_side))
    elif data.has_sme2 is not False:
        yield from _baseline(data)


def _baseline(data: ReportData) -> Iterator[str]:
    """How long one experiment takes, and what takes most of that."""
    experiment = data.headline
    if experiment is None or experiment.summary is None:
        yield "No experiment finished with a latency."
        return
    yield _latency_sentence(data, experiment, experiment.summary)
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
    times = (
        f"{milliseconds(found.baseline_median)} ms before, {milliseconds(found.candidate_median)} ms after"
    )
    tail = f"{times}, {plural(found.rounds, found.unit)}"
    if found.half_width is not None and found.half_width > _WIDE_INTERVAL:
        tail += f"; the times spread so widely that the ratio is only known to {percent(found.half_width)}"
    if found.verdict is Verdict.NO_CHANGE:
        return f"{pair.label}: no significant change for {name}, {speedup_text(found)}; {tail}."
    return f"{pair.label}: {name} is {found.verdict.value}, speedup {speedup_text(found)}; {tail}."


def _latency_sentence(data: ReportData, experiment: ExperimentReport, summary: LatencySummary) -> str:
    name = data.model or "The model"
    if experiment.latency is None or experiment.latency.end_to_end_ms is None:
        return (
            f"{name} takes {milliseconds(summary.median)} ms with the event tracer on ({experiment.series}); "
            "its latency without the tracer was not measured."
        )
    spread = f"{milliseconds(summary.p5)} to {milliseconds(summary.p95)} ms for nine in ten"
    if summary.p95 > _WIDE_SPREAD * summary.p5:
        took_turns = experiment.latency.measured == "lockstep"
        what = "what did not take turns with it" if took_turns else "anything"
        spread += f", a spread too wide to compare it with {what}"
    return (
        f"{name} takes {milliseconds(summary.median)} ms end to end ({experiment.series}; median, {spread})."
    )


def _largest_sentence(series: SeriesAnalysis) -> str:
    spent = {category: series.spent(part) for category, part in series.breakdown.categories.items()}
    category = max(spent, key=lambda found: spent[found].share)
    return f"{category.value} is the largest part of it: {percent(spent[category].share)}."


def _proof(data: ReportData) -> Iterator[str]:
    """What the kernels prove about SME2: the strongest answer of any place."""
    left_on = [
        (place, kernels) for place in data.evidence for kernels in place.kernels if kernels.sme2 is not False
    ]
    proven = [(place, kernels) for place, kernels in left_on if kernels.sme.proves_sme]
    if proven:
        strength = ("sme2", "sme", "sme-or-sme2")
        place, kernels = min(proven, key=lambda found: strength.index(found[1].sme.answer))
        where = " under emulation" if place.emulated else ""
        yield f"Kernel evidence{where}: {kernels.sme.text} ({kernels.series}, {place.source})."
        return
    tested = [(place, kernels) for place, kernels in left_on if kernels.sme.answer == "none"]
    if tested and (tested[0][0].emulated or data.has_sme2):
        where = " under emulation" if tested[0][0].emulated else ""
        yield f"Kernel evidence{where}: no SME or SME2 kernel ran although SME2 was on."
    elif tested:
        yield "No SME or SME2 kernel ran, and nothing says whether this CPU has SME2."


def _mismatches(data: ReportData) -> Iterator[str]:
    for place in data.evidence:
        for found in place.parity:
            if found.parity is not None and not found.parity.agrees:
                yield (
                    f"The outputs of {found.candidate} differ from those of {found.baseline} by more than "
                    f"rounding ({place.source}): do not trust its speed before that is understood."
                )


def _next_step(data: ReportData) -> Iterator[str]:
    if data.timed and data.findings:
        yield f"Next: {_clause(data.findings[0].title)}."


def _clause(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
