"""Comparisons in words, and names for several runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from model_profiling.analysis.pairing import CategoryPair, Pairing
from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core.formatting import milliseconds, percent, plural
from model_profiling.report.breakdown import break_down
from model_profiling.report.data import PairReport, ReportData
from model_profiling.runs import Times
from model_profiling.runs.comparability import Origin, Timed, timed, way_of, why_not_comparable
from model_profiling.statistics.speedup import Speedup, Verdict


def speedup_text(found: Speedup, of: str = "") -> str:
    """Return `1.84x (95% interval 1.80 to 1.88)`, with `of` after the ratio."""
    if found.ratio is None:
        return found.verdict.value
    interval = _interval(found)
    by = " by CPU time" if found.measured == "cpu time" else ""
    ratio = f"{found.ratio:.2f}x{of}{by}"
    return f"{ratio} ({interval})" if interval else f"about {ratio}, without a verdict"


def _interval(found: Speedup) -> str:
    if found.low is None or found.high is None:
        return ""
    return f"{found.confidence:.0%} interval {found.low:.2f} to {found.high:.2f}"


def largest_parts(pairing: Pairing) -> tuple[CategoryPair, CategoryPair]:
    """Return the largest part before and the largest after, with the shares that the tables show."""
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


def shift_text(before: CategoryPair, after: CategoryPair, sides: tuple[str, str]) -> str:
    first, second = sides
    if before.name == after.name:
        return (
            f"{before.name} is the largest part of the time with {first} ({percent(before.baseline_share)}) "
            f"and with {second} ({percent(after.candidate_share)})."
        )
    shares = f"{percent(after.baseline_share)} with {first}, {percent(after.candidate_share)} with {second}"
    was = f"{before.name} ({percent(before.baseline_share)} of the time with {first})"
    return f"The bottleneck moves from {was} to {after.name} ({shares})."


def bottleneck_shift(pairing: Pairing) -> str:
    """Say whether the bottleneck moved or, if it did not, which part's share grew most."""
    before, after = largest_parts(pairing)
    if before.name != after.name:
        return shift_text(before, after, pairing.sides)
    grown = max(_shown_parts(pairing), key=lambda part: part.candidate_share - part.baseline_share)
    if grown.candidate_share - grown.baseline_share < 0.01:
        return shift_text(before, after, pairing.sides)
    shares = f"{percent(before.baseline_share)} of the time to {percent(before.candidate_share)}"
    said = f"{before.name} goes from {shares}"
    if grown.name != before.name:
        said += f", {grown.name} from {percent(grown.baseline_share)} to {percent(grown.candidate_share)}"
    return f"{said}."


def change_text(pair: PairReport) -> str:
    """Return the effect of SME2 on the latency, ratio first."""
    found = pair.speedup
    tracer = ", with the event tracer on" if pair.with_tracer else ""
    times = (
        f"{milliseconds(found.baseline_median)} ms without SME2, {milliseconds(found.candidate_median)} ms "
        f"with it{found.mark}{tracer}"
    )
    ratio = "" if found.ratio is None else f"{found.ratio:.2f}x"
    threads = pair.pair.candidate.threads
    on = f" on {plural(threads, 'thread')}" if threads else ""
    if interval := _interval(found):
        times += f" ({interval})"
    if found.verdict is Verdict.NO_CHANGE:
        return f"No significant change{on} ({ratio}): {times}."
    return f"{'Slower, ' if found.verdict is Verdict.SLOWER else ''}{ratio} as fast{on}: {times}."


def pair_text(pair: PairReport) -> str:
    """Return `threads (faster, 1.71x, 95% interval 1.69 to 1.76; 0.666 to 0.390 ms)`."""
    found = pair.speedup
    said = (found.verdict.value, "" if found.ratio is None else f"{found.ratio:.2f}x", _interval(found))
    times = f"{milliseconds(found.baseline_median)} to {milliseconds(found.candidate_median)} ms{found.mark}"
    return f"{pair.label} ({', '.join(filter(None, said))}; {times})"


# Names for several runs, and what they have in common.

_NAMED_BY = ("model", "format", "platform", "device", "measured")
"""The facts that make a name, in this order; `measured` is a date and a time."""


@dataclass(frozen=True, slots=True)
class NamedRun:
    name: str
    data: ReportData
    facts: dict[str, str]


def model_and_format(data: ReportData) -> tuple[str, str]:
    """Return the model's name and export format; the format is empty for a program from elsewhere."""
    model, variant = names.spoken_variant(data.model or data.run.path.name)
    return model, " ".join(variant)


def what_times_are(data: ReportData) -> str:
    if data.times is Times.UNKNOWN:
        return "recorded on a machine that nothing names"
    if data.times is Times.EMULATED:
        return "emulated: kernels and outputs, no times"
    if data.times is Times.TRACED:
        return "traced for kernels: no latencies"
    if data.is_arm is False:
        return "measured on a CPU that is not Arm: says nothing about Arm"
    known = {True: " with SME2", False: " without SME2", None: ""}[data.has_sme2]
    return f"measured on {'an Arm CPU' if data.is_arm else 'hardware'}{known}"


def name_runs(runs: Sequence[ReportData]) -> list[NamedRun]:
    """Name each run by the fewest facts that distinguish it, or by its model if all are alike. If models
    differ, the name includes the model: a platform and a date alone would say nothing."""
    facts = [_facts(data) for data in runs]
    # The CPU name that an emulator reports is not a real device.
    short = [
        {**known, "device": "emulated"} if data.times is Times.EMULATED else known
        for data, known in zip(runs, facts, strict=True)
    ]
    telling = [key for key in _NAMED_BY if len({known[key] for known in short}) > 1] or ["model"]
    choices = (
        keys
        for count in range(1, len(telling) + 1)
        for keys in combinations(telling, count)
        if "model" in keys or "model" not in telling
    )
    unique = (keys for keys in choices if len({_joined(known, keys) for known in short}) == len(runs))
    keys = next(unique, tuple(telling))
    shown = [_joined(known, keys) or data.run.path.name for known, data in zip(short, runs, strict=True)]
    taken: Counter[str] = Counter()
    shared = Counter(shown)
    named = []
    for name, known, data in zip(shown, facts, runs, strict=True):
        taken[name] += 1
        numbered = name if shared[name] == 1 else f"{name}, run {taken[name]}"
        named.append(NamedRun(numbered, data, known))
    return named


def _joined(facts: dict[str, str], keys: Sequence[str]) -> str:
    return ", ".join(facts[key] for key in keys if facts[key])


def _facts(data: ReportData) -> dict[str, str]:
    model, exported = model_and_format(data)
    manifest = data.run.manifest
    return {
        "model": model,
        "format": exported,
        "platform": data.run.platform,
        "device": data.device,
        "measured": data.date,
        "times": what_times_are(data),
        "ExecuTorch": (manifest.executorch.version or "") if manifest else "",
        "runner build": (manifest.runner.build_id or "") if manifest else "",
        "kit": manifest.kit_version if manifest else "",
    }


def shared_and_differing(runs: Sequence[NamedRun]) -> tuple[dict[str, str], list[str]]:
    """Return the facts that all runs share, and the names of those that differ."""
    keys = list(runs[0].facts)
    alike = {key: runs[0].facts[key] for key in keys if len({run.facts[key] for run in runs}) == 1}
    return {key: value for key, value in alike.items() if value}, [key for key in keys if key not in alike]


def against_the_first(runs: Sequence[NamedRun]) -> tuple[NamedRun, dict[str, list[str]]]:
    """Return the first run with latencies (else the first), and the others grouped by why their times cannot
    be compared with its own; the reason is empty if they can."""
    first = next((run for run in runs if run.data.timed), runs[0])
    found: dict[str, list[str]] = {}
    for other in runs:
        if other is not first:
            found.setdefault(_why_not(first, other), []).append(other.name)
    return first, found


def in_turns(runs: Sequence[NamedRun]) -> list[list[str]]:
    """Return the names of runs that took turns in the same launches, by group."""
    groups: list[list[NamedRun]] = []
    for run in runs:
        group = next((found for found in groups if _took_turns(found[0], run)), None)
        groups.append([run]) if group is None else group.append(run)
    return [[run.name for run in found] for found in groups if len(found) > 1]


def _took_turns(*sides: NamedRun) -> bool:
    a, b = (
        timed(run.data.run.journal, series) if run.data.run.journal and series else Timed()
        for run in sides
        for series in (_spoken(run),)
    )
    return way_of(a, b, same_run=False) == "lockstep"


def _why_not(first: NamedRun, other: NamedRun) -> str:
    sides = _origin(first), _origin(other)
    if sides[0] is None or sides[1] is None:
        return "one of them has no series"
    return why_not_comparable(sides[0], sides[1]) or ""


def _origin(run: NamedRun) -> Origin | None:
    series = _spoken(run)
    return replace(run.data.run.origin(series), name=run.name) if series else None


def _spoken(run: NamedRun) -> Series | None:
    """Return the series that stands for a run."""
    return run.data.headline.series if run.data.headline else next(iter(run.data.run.series), None)
