"""What a comparison says, in words: the ratio with its interval, and where the bottleneck went."""

from __future__ import annotations

from dataclasses import replace

from model_profiling.analysis.pairing import CategoryPair, Pairing
from model_profiling.report.breakdown import break_down
from model_profiling.report.data import PairReport
from model_profiling.statistics.speedup import Speedup, Verdict
from model_profiling.wording import milliseconds, percent


def speedup_text(found: Speedup) -> str:
    """A ratio with its interval, as a person says it."""
    if found.ratio is None:
        return found.verdict.value
    if found.low is None or found.high is None:
        return f"about {found.ratio:.2f}x, without a verdict"
    return f"{found.ratio:.2f}x ({found.confidence:.0%} interval {found.low:.2f} to {found.high:.2f})"


def largest_parts(pairing: Pairing) -> tuple[CategoryPair, CategoryPair]:
    """What takes most of the time before, and what does after, with the shares that the tables show."""
    parts = _shown_parts(pairing)
    return (
        max(parts, key=lambda part: part.baseline_share),
        max(parts, key=lambda part: part.candidate_share),
    )


def _shown_parts(pairing: Pairing) -> list[CategoryPair]:
    before, after = break_down(pairing.baseline).parts, break_down(pairing.candidate).parts
    return [
        replace(
            part,
            baseline_share=before[part.name].percent / 100,
            candidate_share=after[part.name].percent / 100,
        )
        for part in pairing.categories
    ]


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


def bottleneck_shift(pairing: Pairing) -> str:
    """How the time divides before and after: the bottleneck, and what took the room that it left."""
    before, after = largest_parts(pairing)
    if before.name != after.name:
        return shift_text(before, after)
    grown = max(_shown_parts(pairing), key=lambda part: part.candidate_share - part.baseline_share)
    if grown.candidate_share - grown.baseline_share < 0.01:
        return shift_text(before, after)
    shares = f"{percent(before.baseline_share)} of the time to {percent(before.candidate_share)}"
    said = f"{before.name} goes from {shares}"
    if grown.name != before.name:
        said += f", {grown.name} from {percent(grown.baseline_share)} to {percent(grown.candidate_share)}"
    return f"{said}."


def change_text(pair: PairReport) -> str:
    """What SME2 did to the latency, the ratio first."""
    found = pair.speedup
    tracer = ", with the event tracer on" if pair.with_tracer else ""
    times = (
        f"{milliseconds(found.baseline_median)} ms without SME2, {milliseconds(found.candidate_median)} ms "
        f"with it{tracer}"
    )
    ratio = "" if found.ratio is None else f"{found.ratio:.2f}x"
    if found.low is not None and found.high is not None:
        times += f" ({found.confidence:.0%} interval {found.low:.2f} to {found.high:.2f})"
    if found.verdict is Verdict.NO_CHANGE:
        return f"No significant change ({ratio}): {times}."
    return f"{'Slower, ' if found.verdict is Verdict.SLOWER else ''}{ratio} as fast: {times}."


def pair_text(pair: PairReport) -> str:
    """`threads (faster, 1.71x, 95% interval 1.69 to 1.76; 0.666 to 0.390 ms)`."""
    found = pair.speedup
    said = [found.verdict.value, *([f"{found.ratio:.2f}x"] if found.ratio is not None else [])]
    if found.low is not None and found.high is not None:
        said.append(f"{found.confidence:.0%} interval {found.low:.2f} to {found.high:.2f}")
    times = f"{milliseconds(found.baseline_median)} to {milliseconds(found.candidate_median)} ms"
    return f"{pair.label} ({', '.join(said)}; {times})"
