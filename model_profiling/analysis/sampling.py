"""Divides the time inside operators among kernels, by sampling where threads are at random moments."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from model_profiling.analysis.attribution import Share
from model_profiling.analysis.kernel_names import classify
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config.series import Series
from model_profiling.core.errors import FormatError
from model_profiling.program.category import MATRIX
from model_profiling.runner.samples import SampledFunction, Samples
from model_profiling.runs.evidence import read_samples
from model_profiling.runs.run import Run

FEWEST = 30
"""With fewer samples, an operator's time is not divided."""
_CONFIDENCE_Z = 1.959964
_POOL = "threadpool"
# C library functions in which a thread waits for others; the pool calls a futex through `syscall`.
_WAITING = re.compile(
    r"syscall|sched_yield|__?(?:futex|lll_lock)\w*|(?:__)?pthread_cond_\w+|(?:clock_)?nanosleep"
)
_INDIRECTION = re.compile(r"xnn_(?:indirection|compute_\w*indirection)\w*|kai_\w+_imatmul_pack_\w+")
_KLEIDIAI = re.compile(r"kai_(?:run|kernel)_\w+")


class SampledPart(str, Enum):
    MULTIPLICATION = "multiplication"
    """A matrix kernel, or a nameless function that multiplies and adds in a matrix operator."""
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
class Portion:
    """A share of samples with its 95% interval, and the operator's time it stands for."""

    samples: int
    share: float
    low: float
    high: float
    ms: float | None = None
    """None where times are not shown."""


@dataclass(frozen=True, slots=True)
class SampledKernel:
    """A function that samples hit; `name` is its own, or `xnnpack+0x12340` if it has none."""

    name: str
    part: SampledPart
    samples: int
    isa: str = ""


@dataclass(frozen=True, slots=True)
class InsideOperator:
    """One operator, divided; `operator` is None if unknown. `call` counts only delegate calls."""

    call: int
    position: int
    operator: Operator | None
    samples: int
    parts: Mapping[SampledPart, Portion]
    """The parts that samples hit; they add up to the whole."""
    kernels: tuple[SampledKernel, ...]

    @property
    def enough(self) -> bool:
        return self.samples >= FEWEST

    @property
    def name(self) -> str:
        return self.operator.name if self.operator else f"call {self.call}, operator {self.position}"


@dataclass(frozen=True, slots=True)
class Moving:
    """Time of packing and indirection in `operators` that multiply matrices, per inference."""

    ms: float
    share: float
    operators: int


@dataclass(frozen=True, slots=True)
class InsideSeries:
    series: Series
    hz: int
    executions: int
    threads: int
    samples: int
    lost: int
    """Samples that no longer fitted into memory."""
    outside: int
    """Samples while no operator of a delegate ran."""
    operators: tuple[InsideOperator, ...]
    """Operators with samples, in the order they run."""
    kernels: tuple[SampledKernel, ...]
    """Of the whole run, most samples first."""
    shown: bool
    """Whether shares are shares of time: not under an emulator."""
    files: Mapping[str, str]
    """Files whose functions could not be distinguished, and why."""
    problem: str = ""
    note: str = ""
    """What could not be determined."""

    @property
    def moving(self) -> Moving | None:
        """Data movement inside operators that multiply matrices; None with too few samples of them."""
        chosen = [
            found
            for found in self.operators
            if found.enough and found.operator is not None and found.operator.category in MATRIX
        ]
        whole = sum(found.operator.typical_ms for found in chosen if found.operator)
        if not chosen or whole <= 0:
            return None
        parts = [
            found.parts.get(part)
            for found in chosen
            for part in (SampledPart.PACKING, SampledPart.INDIRECTION)
        ]
        ms = sum(part.ms or 0.0 for part in parts if part)
        return Moving(ms, ms / whole, len(chosen))

    @property
    def unnamed_share(self) -> float:
        """Share of the samples, without waiting, in functions without a name."""
        worked = [kernel for kernel in self.kernels if kernel.part is not SampledPart.WAITING]
        unnamed = sum(kernel.samples for kernel in worked if kernel.part is SampledPart.UNNAMED)
        return unnamed / (sum(kernel.samples for kernel in worked) or 1)


def inside_series(series: Series, samples: Samples, analysed: SeriesAnalysis | None) -> InsideSeries:
    """What `samples` show about `series`; the dumps say which operators they belong to."""
    calls = _delegate_calls(analysed) if analysed else []
    note = ""
    if samples.unknown_operators:
        note = f"it is not known which operators the threads worked for: {samples.unknown_operators}"
    elif analysed and [len(found) for found in calls] != list(samples.operators_of_calls):
        note = "the operators in the dumps differ from those of the sampled run, so no operator is named"
    named = {
        (call, position): operator
        for call, operators in enumerate(() if note else calls)
        for position, operator in enumerate(operators)
    }
    shown = analysed.times.are_shown if analysed else False
    by_operator: dict[tuple[int, int], Counter[int]] = {}
    total: Counter[SampledKernel] = Counter()
    outside = 0
    for call, position, _, function, count in samples.seen:
        if position < 0:
            outside += count
        by_operator.setdefault((call, position), Counter())[function] += count
    divided = []
    for (call, position), functions in sorted(by_operator.items()):
        operator = named.get((call, position))
        hit: Counter[tuple[str, SampledPart, str]] = Counter()
        for number, count in functions.items():
            hit[_described(samples, samples.functions[number], operator)] += count
        ordered = sorted(hit.items(), key=lambda item: (-item[1], item[0]))
        kernels = tuple(SampledKernel(name, part, count, isa) for (name, part, isa), count in ordered)
        for kernel in kernels:
            total[SampledKernel(kernel.name, kernel.part, 0, kernel.isa)] += kernel.samples
        if position >= 0:
            divided.append(_inside(call, position, operator, kernels, shown))
    return InsideSeries(
        series=series,
        hz=samples.hz,
        executions=samples.executions,
        threads=len({row[2] for row in samples.seen}),
        samples=samples.kept,
        lost=max(0, samples.taken - samples.kept),
        outside=outside,
        operators=tuple(divided),
        kernels=tuple(
            SampledKernel(each.name, each.part, count, each.isa)
            for each, count in sorted(total.items(), key=lambda item: (-item[1], item[0].name))
        ),
        shown=shown,
        files={file.name: file.problem for file in samples.files if file.problem},
        problem=samples.unavailable or "",
        note=note,
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


def _inside(
    call: int, position: int, operator: Operator | None, kernels: tuple[SampledKernel, ...], shown: bool
) -> InsideOperator:
    counts: Counter[SampledPart] = Counter()
    for kernel in kernels:
        counts[kernel.part] += kernel.samples
    total = sum(counts.values())
    parts = {}
    for part in (part for part in SampledPart if counts[part]):
        share = counts[part] / total
        ms = share * operator.typical_ms if operator and shown else None
        parts[part] = Portion(counts[part], share, *wilson_interval(counts[part], total), ms)
    return InsideOperator(call, position, operator, total, parts, kernels)


def wilson_interval(count: int, total: int) -> tuple[float, float]:
    """95% interval of a share when `count` of `total` independent samples show it."""
    if total <= 0:
        return 0.0, 1.0
    share, square = count / total, _CONFIDENCE_Z**2
    centre = (share + square / (2 * total)) / (1 + square / total)
    reach = share * (1 - share) / total + square / (4 * total**2)
    half = _CONFIDENCE_Z * math.sqrt(reach) / (1 + square / total)
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))


def _described(
    samples: Samples, function: SampledFunction, operator: Operator | None
) -> tuple[str, SampledPart, str]:
    library = short_name(samples.files[function.file].name) if 0 <= function.file < len(samples.files) else ""
    if not function.name:
        place = "" if function.start is None else f"+{function.start:#x}"
        name = f"{library}{place or ': in no function'}" if library else "in no library"
        if library == _POOL:
            return name, SampledPart.WAITING, ""
        multiplies = function.multiplies and operator is not None and operator.category in MATRIX
        return name, SampledPart.MULTIPLICATION if multiplies else SampledPart.UNNAMED, ""
    if _WAITING.fullmatch(function.name):
        return function.name, SampledPart.WAITING, ""
    kernel = classify(function.name)
    part = _PART_OF_ROLE.get(kernel.role, SampledPart.OTHER)
    if _INDIRECTION.fullmatch(function.name):
        part = SampledPart.INDIRECTION
    return function.name, part, kernel.isa if kernel.known else ""


def short_name(file: str) -> str:
    """`libexecutorch_backend_xnnpack.so` becomes `xnnpack`."""
    stem = file.partition(".")[0].removeprefix("lib")
    return stem.removeprefix("executorch_").removeprefix("backend_") or file


def sampled_entries(samples: Samples) -> Mapping[str, int]:
    """Number of samples in each KleidiAI entry: it ran, counted or not."""
    seen: Counter[str] = Counter()
    for *_, function, count in samples.seen:
        name = samples.functions[function].name
        if _KLEIDIAI.fullmatch(name):
            # The entry point (`kai_run_...` for `kai_kernel_...`), which variants for blocks of 32 share.
            seen[name.replace("kai_kernel_", "kai_run_", 1).replace("_opt32_", "_")] += count
    return seen


def gather_inside(run: Run, analysed: Sequence[SeriesAnalysis]) -> tuple[InsideSeries, ...]:
    """Sampling results of each sampled series; a file that cannot be read affects only its series."""
    known = {found.series: found for found in analysed}
    found = []
    for series in run.series:
        try:
            samples = read_samples(run.path, run.result(series))
        except FormatError as damaged:
            nothing = Samples(hz=1, executions=0, threads=0, taken=0, unavailable=damaged.problem)
            found.append(inside_series(series, nothing, None))
            continue
        if samples is not None:
            found.append(inside_series(series, samples, known.get(series)))
    return tuple(found)
