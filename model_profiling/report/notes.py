"""Notes below a report's answers: other comparisons, doubts, kernel evidence, outputs that differ."""

from __future__ import annotations

from collections.abc import Iterator

from model_profiling.analysis.findings import Finding
from model_profiling.config import names
from model_profiling.config.series import Weight
from model_profiling.core.formatting import capitalized, milliseconds, percent
from model_profiling.report.breakdown import interval_text
from model_profiling.report.data import PARITY, PairReport, ReportData, mismatched, sme2_pair
from model_profiling.report.headroom import proven_text

_WIDE_INTERVAL = 0.10
"""A speedup with a wider interval than this on either side is called uncertain."""
_TOLD = 12
"""The most comparisons in one sentence."""


def notes(data: ReportData) -> Iterator[str]:
    """Yield what to know before trusting the answers, and what they do not say."""
    if data.timed:
        yield from (f"{text}." for text in data.merged)
        yield from _doubts(data)
        yield from _other_pairs(data)
    yield from _evidence(data)
    yield from _mismatches(data)
    yield from wrong_outputs(data)


def wrong_outputs(data: ReportData) -> list[str]:
    """Return other signs that the program computes wrong outputs."""
    parity_differs = any(mismatched(data))
    return [
        f"{capitalized(clause(line.text))}."
        for line in data.warnings
        if line.weight is Weight.OUTPUTS and not (parity_differs and line.kind == PARITY)
    ]


def _doubts(data: ReportData) -> Iterator[str]:
    pair = sme2_pair(data)
    if pair and (width := pair.speedup.half_width) is not None and width > _WIDE_INTERVAL:
        yield (f"{pair.label}: the times are noisy, so the speedup is known only to within {percent(width)}.")


def _other_pairs(data: ReportData) -> Iterator[str]:
    """Yield one sentence about the comparisons in no answer, then why some have no result."""
    told = sme2_pair(data)
    others = [pair for pair in data.pairs if pair is not told and pair.comparable]
    if others:
        word = "Also compared" if told else "Compared"
        yield f"{word}: {_first_of(list(map(_pair_text, others[:_TOLD])), len(others))}."
    reasons: dict[str, list[str]] = {}
    for pair in data.pairs:
        if not pair.comparable:
            reasons.setdefault(clause(pair.speedup.reason), []).append(pair.label)
    for reason, labels in reasons.items():
        yield f"{_first_of(labels[:_TOLD], len(labels))}: not comparable, because {reason}."


def _evidence(data: ReportData) -> Iterator[str]:
    coverage = data.outlook.coverage
    if sme2_pair(data) is not None and data.timed and coverage.tested and coverage.operators:
        yield f"{proven_text(coverage)}."
    if proven := proof(data):
        yield proven


def proof(data: ReportData) -> str:
    """Return the strongest kernel evidence for SME2, and its source; empty if there is none."""
    found = [
        (place, kernels)
        for place in data.evidence
        for kernels in place.kernels
        if kernels.sme2 is not False and kernels.sme.proves_sme
    ]
    if not found:
        return ""
    strength = ("sme2", "sme", "sme-or-sme2")
    place, kernels = min(found, key=lambda each: strength.index(each[1].sme.answer))
    return f"In {place.named(kernels.series)}, {kernels.sme.text}."


def _pair_text(pair: PairReport) -> str:
    """Return `threads (faster, 1.71x, 95% interval 1.69 to 1.76; 0.666 to 0.390 ms)`."""
    found = pair.speedup
    said = (found.verdict.value, "" if found.ratio is None else f"{found.ratio:.2f}x", interval_text(found))
    times = f"{milliseconds(found.baseline_median)} to {milliseconds(found.candidate_median)} ms{found.mark}"
    return f"{pair.label} ({', '.join(filter(None, said))}; {times})"


def _first_of(told: list[str], count: int) -> str:
    left = count - len(told)
    return "; ".join([*told, *([f"and {left} more, all in {names.METRICS}"] if left else [])])


def _mismatches(data: ReportData) -> Iterator[str]:
    for source, found in mismatched(data):
        top1 = ", in their top-1 too" if found.parity and found.parity.another_top1 else ""
        yield (
            f"The outputs of {found.candidate} differ from those of {found.baseline} by more than "
            f"rounding{top1}, in {source}: find out why before you rely on its speed."
        )


def clause(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


def finding_text(found: Finding) -> str:
    groups = [group for group in found.groups if group.where]
    step = f" {capitalized(found.first_step)}." if found.first_step else ""
    named = groups and groups[0].concerns[0].operator.source.place.short_line
    if not groups or (named and named in found.title):
        return f"{found.title}{gain_text(found)}.{step}"
    between = groups[0].is_between
    several = "the longest " + ("" if between else "at ") if found.max_gain_pct else "such as "
    first = f"{several if len(found.groups) > 1 else ''}{groups[0].where}"
    return f"{found.title}{f', {first}' if between else f' ({first})'}{gain_text(found)}.{step}"


def gain_text(found: Finding) -> str:
    """Return `: at most 16.8% less time`, rounded as in the tables; empty if unknown."""
    return f": at most {found.max_gain_pct:.1f}% less time" if found.max_gain_pct else ""
