"""A language model's two phases, reading the prompt and writing the answer: the records behind `llm.json`,
the answers, and the page `llm.md` with its table in the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from model_profiling.analysis.causes.matrix import limited_by_memory
from model_profiling.analysis.causes.sme2 import ONE_ROW_ISSUE
from model_profiling.core.formatting import MISSING, listing, milliseconds, percent, plural, short_rate, size
from model_profiling.report import charts as draw
from model_profiling.report import document as doc
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

    @property
    def side(self) -> tuple[str, int]:
        return self.experiment, self.threads

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
class LanguageCase:
    """A number of tokens at a position in the cache, as one inference."""

    phase: PhaseName
    method: str
    tokens: int
    position: int
    run: str = ""
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
    findings: tuple[CaseFinding, ...] = ()

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
    cases: tuple[LanguageCase, ...]
    read: ReadPerToken
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
    def sides(self) -> Mapping[tuple[str, int], str]:
        """Every series with what tells it from the others, such as `SME2 on, 2 threads`; empty if alone."""
        known = {latency.side: latency.sme2 for case in self.cases for latency in case.latencies}
        words: dict[bool | None, str] = {True: "SME2 on", False: "SME2 off"}
        several = len({threads for _, threads in known}) > 1
        return {
            (name, threads): f"{words.get(sme2, name)}{f', {threads} threads' if several else ''}"
            if len(known) > 1
            else ""
            for (name, threads), sme2 in known.items()
        }

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
                f"The first token comes {milliseconds(case.first.median_ms)} ms{case.first.mark} after a "
                f"prompt of {plural(case.tokens, 'token')}: {case.first.rate(case.tokens)}."
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
        measured = case.speedup is not None and case.speedup.verdict is not Verdict.NOT_COMPARABLE
        if case.speedup is not None and measured:
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
        # A single row, as each token of an answer has.
        one_row = [name for name in case.kernels if _ONE_ROW.search(name)]
        if case.phase == "answer" and one_row and not measured:
            yield (
                f"Risk: kernels for a single row ({listing(one_row)}) were slower than those without SME2 on "
                f"a phone ({ONE_ROW_ISSUE}); not measured here, so compare SME2 off and on before you ship."
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


# The page, and its table in the terminal.


def language_document(found: Language) -> list[doc.Block]:
    chart = _rate_chart(found)
    return [
        doc.Heading(f"{found.model}: prompt and answer", 1),
        doc.Answers(found.answers),
        *([chart] if chart else []),
        doc.Heading("Prompt and answer side by side"),
        language_table(found),
        *doc.make_list(_notes(found)),
        doc.Heading("Runs"),
        doc.make_table(
            ("case", "method", "report", "first finding"),
            [
                (
                    case.name,
                    case.method,
                    doc.PageLink("report", f"{case.run}/report.html"),
                    case.findings[0].text if case.findings else MISSING,
                )
                for case in found.cases
            ],
        ),
    ]


def language_table(found: Language) -> doc.Block:
    """One row for each case; SME2 on and off are columns if both were measured."""
    headers = [
        f"{what}, {name}" if name else what for name in found.sides.values() for what in ("ms", "tokens/s")
    ]
    rows = []
    for case in found.cases:
        row, known = [case.name], {latency.side: latency for latency in case.latencies}
        for latency in map(known.get, found.sides):
            row += (
                [milliseconds(latency.median_ms), latency.rate(case.tokens, "")]
                if latency
                else [MISSING, MISSING]
            )
        rows.append([*row, _sme2_cell(case)])
    return doc.make_table(["case", *headers, "SME2"], rows, numbers=range(1, len(headers) + 1))


def _sme2_cell(case: LanguageCase) -> str:
    if case.speedup is not None and case.speedup.ratio is not None:
        return case.speedup.in_short
    told = []
    if case.projected:
        told.append(f"projected {case.projected[0]:.2f}x to {case.projected[1]:.2f}x")
    if case.sme2_operators:
        told.append(f"{case.sme2_operators[0]} of {case.sme2_operators[1]} matrix operators")
    return "; ".join(told) or "not tested"


def _notes(found: Language) -> Iterator[str]:
    if found.timed:
        yield f"Measured on {found.cpu}. The brackets are 95% intervals."
    yield "The time of a prompt is the time to the first token. " + NOT_PART
    yield (
        f"The KV cache holds {found.context} tokens. Every inference starts with a cache of zeros and is "
        "told how many tokens came before: times depend on that number, not on what the cache contains."
    )
    for why in found.left_out:
        yield f"Left out: {why}."
    yield from found.warnings


def _rate_chart(found: Language) -> doc.Chart | None:
    """Tokens per second of the answer over the position in the cache."""
    places = {side: place for place, side in enumerate(found.sides)}
    rows: list[draw.Row] = []
    for case in found.of("answer"):
        for each in case.latencies:
            name = draw.named(found.sides[each.side] or found.cpu)
            rows.append(
                {
                    "series": name,
                    "position": case.position,
                    "value": each.tokens_per_s(1),
                    "low": 1e3 / (each.high_ms or each.median_ms),
                    "high": 1e3 / (each.low_ms or each.median_ms),
                    "_colour": draw.series_colour(places[each.side]),
                    "_label": f"{short_rate(each.tokens_per_s(1))} tokens/s at {case.position} ({name})",
                }
            )
    if len({row["position"] for row in rows}) < 2:
        return None
    tip = {"series": "series", "position": "tokens before it", "low": "from", "high": "to"}
    interval = draw.layer("rows", "rule", x="low", x2="high", y="_middle", strokeWidth=2)
    title, unit = "Tokens per second over the context", "tokens per second; line: its interval"
    return draw.bars(
        rows, "tokens", title, unit, "llm.json", colour=draw.OWN_COLOUR, tip=tip, over=[interval]
    )
