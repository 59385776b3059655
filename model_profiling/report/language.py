"""A language model's two phases: reading the prompt and writing the answer. The records behind `llm.json`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from model_profiling.analysis.causes.language import limited_by_memory
from model_profiling.analysis.causes.sme2 import ONE_ROW_ISSUE
from model_profiling.core.formatting import listing, milliseconds, percent, plural, short_rate, size
from model_profiling.report.breakdown import speedup_text
from model_profiling.statistics.measure import MARKS, Measure
from model_profiling.statistics.speedup import Speedup, Verdict

PhaseName = Literal["prompt", "answer"]
NOT_PART = "Sampling and tokenizing are not part of these times."
_ONE_ROW = re.compile(r"(?<!\d)1x\d+(?:vl)?_sme2?_")
"""Matches the name of an SME2 kernel that makes one row."""
_TOLD = 3
"""The most findings of a phase that the answers name."""


@dataclass(frozen=True, slots=True)
class PhaseLatency:
    """One series of a case; the interval is None with too few launches."""

    experiment: str
    threads: int
    sme2: bool | None
    median_ms: float
    low_ms: float | None = None
    high_ms: float | None = None
    measured: Measure = "wall time, unchecked"

    def tokens_per_s(self, tokens: int) -> float:
        return tokens * 1e3 / self.median_ms

    def rate(self, tokens: int, unit: str = " tokens/s") -> str:
        """`41.2 tokens/s (40.9 to 41.5) of CPU time`"""
        told = f"{short_rate(self.tokens_per_s(tokens))}{unit}"
        if self.low_ms is None or self.high_ms is None:
            return f"{told}{self.mark}"
        slow, fast = (short_rate(tokens * 1e3 / ms) for ms in (self.high_ms, self.low_ms))
        return f"{told} ({slow} to {fast}){self.mark}"

    @property
    def mark(self) -> str:
        return MARKS.get(self.measured, "")


@dataclass(frozen=True, slots=True)
class LayerTime:
    """Operators of one purpose in a case; the interval is None with too few launches."""

    ms: float
    share: float
    """Of the time, from 0 to 1."""
    low_ms: float | None = None
    high_ms: float | None = None
    nbytes: int | None = None
    """Bytes of its weights; of copies, what they write."""


LAYERS = {
    "attention": "attention over the cache",
    "cache_copies": "copies of the whole cache",
    "embedding": "embedding",
    "scores": "last linear layer",
}


@dataclass(frozen=True, slots=True)
class OneRow:
    """Products of a single row, measured with SME2 off and on; `slower` and `faster` have a verdict."""

    operators: int
    slower: int
    faster: int
    off_ms: float
    on_ms: float


@dataclass(frozen=True, slots=True)
class CaseFinding:
    id: str
    title: str
    action: str
    max_gain_pct: float | None

    @property
    def text(self) -> str:
        gain = self.max_gain_pct
        return f"{self.title}{'' if gain is None else f' (at most {gain:.1f}% less time)'}"


@dataclass(frozen=True, slots=True)
class Growth:
    """What more context costs, in milliseconds for 1,000 tokens, with its 95% interval; all None if it is
    within the noise."""

    first: int
    last: int
    step_ms: float | None
    step_low_ms: float | None
    step_high_ms: float | None
    attention_ms: float | None


@dataclass(frozen=True, slots=True)
class LanguageCase:
    """A number of tokens at a position in the cache, as one inference."""

    phase: PhaseName
    method: str
    tokens: int
    position: int
    run: str
    """Its run directory, relative to the folder of this record."""
    latencies: tuple[PhaseLatency, ...] = ()
    """SME2 on first, fewest threads first; empty if times are not latencies."""
    speedup: Speedup | None = None
    """SME2 on over off, on a CPU that has it."""
    projected: tuple[float, float] | None = None
    """The speedup that SME2 could bring, on a CPU without it; never a measurement."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Share of each category in the time, from 0 to 1."""
    sme2_operators: tuple[int, int] | None = None
    """Matrix operators that ran on SME2 kernels, and all of them; None if not tested."""
    kernels: tuple[str, ...] = ()
    """SME2 kernels that ran, those called most often first."""
    load_ms: float | None = None
    peak_memory_bytes: int | None = None
    next: str = ""
    findings: tuple[CaseFinding, ...] = ()
    layers: Mapping[str, LayerTime] = field(default_factory=dict)
    """By the names in LAYERS, if times are latencies."""
    one_row: OneRow | None = None

    @property
    def first(self) -> PhaseLatency | None:
        return self.latencies[0] if self.latencies else None

    @property
    def name(self) -> str:
        return case_name(self.phase, self.tokens, self.position)


def case_name(phase: PhaseName, tokens: int, position: int) -> str:
    return (
        f"prompt of {plural(tokens, 'token')}"
        if phase == "prompt"
        else f"answer after {plural(position, 'token')}"
    )


@dataclass(frozen=True, slots=True)
class ReadPerToken:
    """What one step of the answer reads from memory."""

    weights: int
    cache: int
    """The whole cache: attention that is not a custom operator reads all of it at every step."""
    smaller: Mapping[str, int] = field(default_factory=dict)
    """Bytes of weights in formats with smaller ones."""

    @property
    def total(self) -> int:
        return self.weights + self.cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    model: str
    program: str
    sha256: str
    size_bytes: int
    cpu: str
    has_sme2: bool | None
    is_arm: bool | None
    context: int
    vocabulary: int | None
    cases: tuple[LanguageCase, ...]
    read: ReadPerToken
    slope: tuple[float, float, float] | None = None
    """Milliseconds that a token of the answer takes longer for every 1,000 tokens of context: a line through
    the positions of each launch, with its 95% interval; None if the positions did not take turns."""
    bandwidth: float | None = None
    """Bytes per second that this machine's memory was measured to give; None if it was not measured."""
    left_out: tuple[str, ...] = ()
    """Lengths and positions without a case, with the reason."""
    warnings: tuple[str, ...] = ()
    """What to know before trusting the figures, with the cases that each is about."""
    schema_version: Literal[1] = 1

    def of(self, phase: PhaseName) -> tuple[LanguageCase, ...]:
        return tuple(case for case in self.cases if case.phase == phase)

    @property
    def spoken_of(self) -> tuple[LanguageCase, ...]:
        """What the answers speak of: the longest prompt, and the answer's first token."""
        return (*self.of("prompt")[-1:], *self.of("answer")[:1])

    @property
    def growth(self) -> Growth | None:
        """Between the shortest and the longest context; None with fewer than two, or without times."""
        timed = [(case, case.first) for case in self.of("answer") if case.first]
        if len(timed) < 2:
            return None
        ends = timed[0], timed[-1]
        (first, _), (last, _) = ends
        thousands = (last.position - first.position) / 1000
        step, low, high = self.slope if self.slope and self.slope[1] > 0 else (None, None, None)
        layers = [case.layers["attention"] for case, _ in ends if "attention" in case.layers]
        attention = _longer([(each.ms, each.low_ms, each.high_ms) for each in layers], thousands)
        return Growth(first.position, last.position, step, low, high, attention)

    @property
    def timed(self) -> bool:
        return any(case.latencies for case in self.cases)

    @property
    def answers(self) -> tuple[tuple[str, str], ...]:
        return (
            ("Where does the time go?", " ".join(_rates(self))),
            ("What does SME2 change?", " ".join(_changes(self))),
            ("What next?", " ".join(_next(self))),
        )

    def facts(self) -> dict[str, object]:
        """The content of `llm.json`, with the rates that pages show."""
        cases = []
        for case in self.cases:
            rates = [
                {**asdict(each), "tokens_per_s": each.tokens_per_s(case.tokens)} for each in case.latencies
            ]
            told = asdict(case) | {"latencies": rates, "speedup": case.speedup and case.speedup.as_dict()}
            cases.append(told)
        growth = asdict(self.growth) if self.growth else None
        return {**asdict(self), "cases": cases, "growth": growth, "answers": dict(self.answers)}


def _longer(ends: Sequence[tuple[float, float | None, float | None]], thousands: float) -> float | None:
    """Milliseconds that the last of two takes longer, for each of `thousands`; None if the intervals meet."""
    if len(ends) < 2:
        return None
    (first, _, high), (last, low, _) = ends
    return (last - first) / thousands if high is not None and low is not None and low > high else None


def _rates(found: Language) -> Iterator[str]:
    prompts, answers = found.of("prompt"), found.of("answer")
    for case in prompts[-1:]:
        if case.first:
            yield (
                f"The first token comes {milliseconds(case.first.median_ms)} ms{case.first.mark} after a "
                f"prompt of {plural(case.tokens, 'token')}: {case.first.rate(case.tokens)}."
            )
    if not prompts:
        yield "The program reads a prompt token by token: it has no method for several tokens at once."
    rates = [(case.position, case.first.rate(1)) for case in answers if case.first]
    if rates:
        after = [f"{rate} after {plural(place, 'token')}" for place, rate in rates]
        yield f"The answer comes at {listing(after)}."
    yield from _growth(found)
    for phase in (prompts[-1:], answers[-1:]):
        for case in phase:
            largest = sorted(case.parts.items(), key=lambda part: -part[1])[:2]
            if largest:
                shares = " and ".join(f"{name} {percent(share)}" for name, share in largest)
                yield f"Largest parts of the {case.name}: {shares}."
    if not found.timed:
        yield "No latency was measured: emulation shows kernels, not times."
    elif found.is_arm is False:
        yield f"Measured on {found.cpu}, which is not an Arm CPU: it says nothing about Arm."


def _growth(found: Language) -> Iterator[str]:
    growth = found.growth
    if growth is None:
        return
    told = f"for every 1,000 tokens of context (seen from {growth.first} to {growth.last})"
    more = "" if growth.attention_ms is None else f"{milliseconds(growth.attention_ms)} ms"
    if growth.step_ms is not None:
        part = f", {more} of it in attention" if more else ""
        interval = f"{milliseconds(growth.step_low_ms)} to {milliseconds(growth.step_high_ms)}"
        yield f"A token takes {milliseconds(growth.step_ms)} ms ({interval}) longer {told}{part}."
    elif more:
        yield f"Attention takes {more} longer {told}."


def _changes(found: Language) -> Iterator[str]:
    for case in found.spoken_of:
        if case.speedup is not None and case.speedup.verdict is not Verdict.NOT_COMPARABLE:
            yield f"{case.name.capitalize()}: {speedup_text(case.speedup)} with SME2 on."
        elif case.projected:
            low, high = case.projected
            about = "SME2 would not help: projected" if high <= 1 else "projected"
            yield f"{case.name.capitalize()}: {about}, not measured, {low:.2f}x to {high:.2f}x as fast."
        if case.sme2_operators:
            ran, total = case.sme2_operators
            kernels = f"In emulation, SME2 kernels ran {ran} of the {plural(total, 'matrix operator')}"
            yield f"{kernels} of the {case.name}."
        else:
            yield f"{case.name.capitalize()}: not tested which operators run on SME2."
        yield from _one_row(case)


def _one_row(case: LanguageCase) -> Iterator[str]:
    """A single row, as each token of an answer has: measured, or what others saw."""
    kernels = [name for name in case.kernels if _ONE_ROW.search(name)]
    if case.one_row:
        seen = case.one_row
        yield (
            f"Its {plural(seen.operators, 'product')} of a single row took {milliseconds(seen.off_ms)} ms "
            f"with SME2 off and {milliseconds(seen.on_ms)} ms with it on: {seen.slower} of them were slower, "
            f"{seen.faster} faster."
        )
    elif case.phase == "answer" and kernels:
        yield (
            f"Risk: kernels for a single row ({listing(kernels)}) were slower than those without SME2 on a "
            f"phone ({ONE_ROW_ISSUE}); not measured here, so compare SME2 off and on before you ship."
        )


def _next(found: Language) -> Iterator[str]:
    advice: dict[str, list[str]] = {}
    for case in found.spoken_of:
        named = [each.text for each in case.findings][:_TOLD]
        if named:
            advice.setdefault("; then ".join(named), []).append(case.name)
    for text, cases in advice.items():
        yield f"{listing(cases).capitalize()}: {text}."
    for case in found.of("answer")[:1]:
        if case.first is not None:
            yield _memory(found, case, case.first)


def _memory(found: Language, case: LanguageCase, step: PhaseLatency) -> str:
    """What the answer reads for each token, and what that leaves to gain."""
    read = found.read
    rate = read.total * 1e3 / step.median_ms
    told = (
        f"Each token of the answer reads {size(read.weights)} of weights and {size(read.cache)} of KV cache"
    )
    if found.bandwidth is None:
        return f"{told}, {size(rate)} per second."
    share = rate / found.bandwidth
    limited = limited_by_memory(read.total, share)
    largest = max(case.parts.items(), key=lambda part: part[1], default=None)
    instead = f", {largest[0]} is the largest part ({percent(largest[1])})" if largest else ""
    told += (
        f": {size(rate)} per second, {percent(share)} of what this memory gives ({size(found.bandwidth)})."
    )
    if limited is None:
        return f"{told} Caches may hold that much, so whether memory is the limit is not known{instead}."
    if not limited:
        return f"{told} Memory is not the limit here{instead}."
    formats = " and ".join(f"{size(weights)} with {name}" for name, weights in read.smaller.items())
    cure = f"smaller weights help ({formats} in place of {size(read.weights)})" if formats else ""
    return f"{told} Memory is the limit: {cure or 'only a smaller model reads less'}, SME2 does not help."
