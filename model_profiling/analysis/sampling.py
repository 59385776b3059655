"""Divides the time inside operators among kernels, by sampling where threads are at random moments."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from model_profiling.analysis.attribution import Share
from model_profiling.analysis.kernels import classify
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config.series import Series
from model_profiling.runner.samples import SampledFunction, Samples

FEWEST = 30
"""With fewer samples, an operator's time is not divided."""
# C library functions in which a thread waits for others; the pool calls a futex through `syscall`.
_WAITING = re.compile(
    r"syscall|sched_yield|__?(?:futex|lll_lock)\w*|(?:__)?pthread_cond_\w+|(?:clock_)?nanosleep"
)
_INDIRECTION = re.compile(r"xnn_(?:indirection|compute_\w*indirection)\w*|kai_\w+_imatmul_pack_\w+")


class SampledPart(str, Enum):
    MULTIPLICATION = "multiplication"
    """A matrix kernel."""
    PACKING = "packing"
    """Copies an operand into the order that a kernel needs."""
    INDIRECTION = "indirection"
    """Gathers a convolution's input through a table of pointers, and packs it."""
    OTHER = "other"
    UNNAMED = "unnamed"
    """Functions without a name: distinguishable but unknown."""
    WAITING = "waiting"
    """In the thread pool, which hands out work and waits, or in the C library waiting for another thread."""


_PART_OF_ROLE = {
    "packing": SampledPart.PACKING,
    **dict.fromkeys(("matmul", "depthwise", "convolution"), SampledPart.MULTIPLICATION),
}


@dataclass(frozen=True, slots=True)
class SampledKernel:
    """A function that samples hit; `name` is its own, or `libxnnpack.so+0x12340` if it has none."""

    name: str
    part: SampledPart
    samples: int


@dataclass(frozen=True, slots=True)
class InsideOperator:
    """One operator, divided; `operator` is None if unknown. `call` counts only delegate calls."""

    call: int
    position: int
    operator: Operator | None
    kernels: tuple[SampledKernel, ...]
    """Most samples first."""

    @property
    def samples(self) -> int:
        return sum(kernel.samples for kernel in self.kernels)

    @property
    def parts(self) -> Mapping[SampledPart, float]:
        """Shares of the parts that samples hit; they add up to the whole."""
        counts: Counter[SampledPart] = Counter()
        for kernel in self.kernels:
            counts[kernel.part] += kernel.samples
        return {part: counts[part] / self.samples for part in SampledPart if counts[part]}

    @property
    def enough(self) -> bool:
        return self.samples >= FEWEST

    @property
    def name(self) -> str:
        return self.operator.name if self.operator else f"call {self.call}, operator {self.position}"


@dataclass(frozen=True, slots=True)
class InsideSeries:
    series: Series
    hz: int
    executions: int
    threads: int
    samples: int
    outside: int
    """Samples while no operator of a delegate ran."""
    operators: tuple[InsideOperator, ...]
    """Operators with samples, in the order they run."""
    shown: bool
    """Whether shares are shares of time: not under an emulator."""
    notes: tuple[str, ...] = ()
    """What could not be determined."""


def inside_series(series: Series, samples: Samples, analysed: SeriesAnalysis | None) -> InsideSeries:
    """What `samples` show about `series`; the dumps say which operators they belong to."""
    calls = _delegate_calls(analysed) if analysed else []
    unnamed = ""
    if samples.unknown_operators:
        unnamed = f"it is not known which operators the threads worked for: {samples.unknown_operators}"
    elif analysed and [len(found) for found in calls] != list(samples.operators_of_calls):
        unnamed = "the operators in the dumps differ from those of the sampled run, so no operator is named"
    by_operator: dict[tuple[int, int], Counter[int]] = {}
    for call, position, _, function, count in samples.seen:
        by_operator.setdefault((call, position), Counter())[function] += count
    divided = []
    for (call, position), functions in sorted(by_operator.items()):
        if position >= 0:
            operator = None if unnamed or call >= len(calls) else calls[call][position]
            divided.append(InsideOperator(call, position, operator, _kernels(samples, functions)))
    notes = [samples.unavailable or "", unnamed]
    notes += [
        f"the functions of {file.name} are unknown: {file.problem}" for file in samples.files if file.problem
    ]
    return InsideSeries(
        series=series,
        hz=samples.hz,
        executions=samples.executions,
        threads=len({row[2] for row in samples.seen}),
        samples=samples.kept,
        outside=sum(count for _, position, _, _, count in samples.seen if position < 0),
        operators=tuple(divided),
        shown=analysed is not None and analysed.times.are_shown,
        notes=tuple(filter(None, notes)),
    )


def _delegate_calls(analysed: SeriesAnalysis) -> list[list[Operator | None]]:
    known = {(operator.call, operator.position): operator for operator in analysed.operators}
    nodes = analysed.first.attribution.groups[0].nodes
    calls = sorted(node.call for node in nodes if node.level == "call" and node.call_kind == "delegate")
    held: dict[int, list[int]] = {call: [] for call in calls}
    for node in nodes:
        if node.share is Share.OPERATOR and node.level == "operator" and node.call in held:
            held[node.call].append(node.position)
    return [[known.get((call, position)) for position in sorted(held[call])] for call in calls]


def _kernels(samples: Samples, functions: Mapping[int, int]) -> tuple[SampledKernel, ...]:
    hit: Counter[tuple[str, SampledPart]] = Counter()
    for number, count in functions.items():
        hit[_described(samples, samples.functions[number])] += count
    ordered = sorted(hit.items(), key=lambda item: (-item[1], item[0]))
    return tuple(SampledKernel(name, part, count) for (name, part), count in ordered)


def _described(samples: Samples, function: SampledFunction) -> tuple[str, SampledPart]:
    """The name of a function, and which part of an operator it is."""
    if function.name:
        if _WAITING.fullmatch(function.name):
            return function.name, SampledPart.WAITING
        if _INDIRECTION.fullmatch(function.name):
            return function.name, SampledPart.INDIRECTION
        return function.name, _PART_OF_ROLE.get(classify(function.name).role, SampledPart.OTHER)
    if function.file < 0:
        return "in no library", SampledPart.UNNAMED
    library = samples.files[function.file].name
    place = ": in no function" if function.start is None else f"+{function.start:#x}"
    return f"{library}{place}", SampledPart.WAITING if "threadpool" in library else SampledPart.UNNAMED
