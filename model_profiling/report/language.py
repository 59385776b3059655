"""A language model's two phases: reading the prompt and writing the answer. The records behind `llm.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from model_profiling.core.formatting import listing, milliseconds, percent, plural, short_rate, size
from model_profiling.report.pair_text import speedup_text
from model_profiling.statistics.speedup import Speedup, Verdict

PhaseName = Literal["prompt", "answer"]
NOT_PART = "Sampling and tokenizing are not part of these times."
_FITS_CACHES = 64 << 20
"""Less than this may stay in the caches of a large CPU from one token to the next."""
_NEARLY_ALL = 0.5
"""From this share of the memory's rate on, the answer is said to be bound by memory."""


@dataclass(frozen=True, slots=True)
class PhaseLatency:
    """One series of a case; the interval is None with too few launches."""

    experiment: str
    threads: int
    sme2: bool | None
    median_ms: float
    low_ms: float | None = None
    high_ms: float | None = None

    def tokens_per_s(self, tokens: int) -> float:
        return tokens * 1e3 / self.median_ms

    def rate(self, tokens: int) -> str:
        """`41.2 tokens/s (40.9 to 41.5)`"""
        told = f"{short_rate(self.tokens_per_s(tokens))} tokens/s"
        if self.low_ms is None or self.high_ms is None:
            return told
        return (
            f"{told} ({short_rate(tokens * 1e3 / self.high_ms)} to {short_rate(tokens * 1e3 / self.low_ms)})"
        )


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

    @property
    def first(self) -> PhaseLatency | None:
        return self.latencies[0] if self.latencies else None

    @property
    def name(self) -> str:
        if self.phase == "prompt":
            return f"prompt of {plural(self.tokens, 'token')}"
        return f"answer after {plural(self.position, 'token')}"


@dataclass(frozen=True, slots=True)
class ReadPerToken:
    """What one step of the answer reads from memory."""

    weights: int
    cache: int
    """The whole cache: attention that is not a custom operator reads all of it at every step."""

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
    bandwidth: float | None = None
    """Bytes per second that this machine's memory was measured to give; None if it was not measured."""
    left_out: tuple[str, ...] = ()
    """Lengths and positions that were asked for and do not fit, with the reason."""
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
        return {**asdict(self), "cases": cases, "answers": dict(self.answers)}


def _rates(found: Language) -> Iterator[str]:
    prompts, answers = found.of("prompt"), found.of("answer")
    for case in prompts[-1:]:
        if case.first:
            yield (
                f"The first token comes {milliseconds(case.first.median_ms)} ms after a prompt of "
                f"{plural(case.tokens, 'token')}: {case.first.rate(case.tokens)}."
            )
    if not prompts:
        yield "The program reads a prompt token by token: it has no method for several tokens at once."
    rates = [(case.position, case.first.rate(1)) for case in answers if case.first]
    if rates:
        after = [f"{rate} after {plural(place, 'token')}" for place, rate in rates]
        yield f"The answer comes at {listing(after)}."
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
            yield f"In emulation, SME2 kernels ran {ran} of its {plural(total, 'matrix operator')}."
        else:
            yield f"{case.name.capitalize()}: not tested which operators run on SME2."


def _next(found: Language) -> Iterator[str]:
    advice: dict[str, list[str]] = {}
    for case in found.spoken_of:
        if case.next:
            advice.setdefault(case.next, []).append(case.name)
    for text, cases in advice.items():
        yield f"{listing(cases).capitalize()}: {text}."
    step = next((case.first for case in found.of("answer")[:1]), None)
    if step is not None:
        yield _memory(found, step)


def _memory(found: Language, step: PhaseLatency) -> str:
    """What the answer reads for each token, and what that leaves to gain."""
    read = found.read
    rate = read.total * 1e3 / step.median_ms
    told = (
        f"Each token of the answer reads {size(read.weights)} of weights and {size(read.cache)} of KV cache"
    )
    if found.bandwidth is None:
        return f"{told}, {size(rate)} per second."
    share = rate / found.bandwidth
    if share > 1 or read.total < _FITS_CACHES:
        return f"{told}: so little that the CPU's caches may hold it."
    told += (
        f": {size(rate)} per second, {percent(share)} of what this memory gives ({size(found.bandwidth)})."
    )
    if share < _NEARLY_ALL:
        return f"{told} Memory is not the limit here."
    return f"{told} Memory is the limit: smaller weights (int8-dynamic, int4) help, SME2 does not."
