"""Which operators ran on SME or SME2 kernels, and which are the same: in a series, in what was proven of a
program, in the program itself; and how samples divide an operator's time among kernels.

A graph node is the same under any name. A label such as PF16 is chosen on SME and SME2 only; it proves
nothing without a called kernel of its type.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from model_profiling.analysis.attribution import Share
from model_profiling.analysis.kernels import KernelUse, SmeVerdict, classify
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config.series import Series
from model_profiling.program.category import MATRIX, Miss
from model_profiling.program.delegates import describe
from model_profiling.program.matrix_work import MatrixWork, rows_of_result
from model_profiling.program.records import OperatorKey
from model_profiling.runner.samples import SampledFunction, Samples
from model_profiling.runs.records import MatrixOperator, OperatorProof

NOT_KNOWN = "not known"
NOT_DELEGATED = Miss("portable", "not delegated: it runs on ExecuTorch's own kernels")
_NOT_SEEN = Miss(NOT_KNOWN, "the run that shows which operators use SME2 has no event of this one")


def matrix_operators(series: SeriesAnalysis) -> list[Operator]:
    return [operator for operator in series.operators if operator.category in MATRIX]


def matrix_operators_by_key(series: SeriesAnalysis) -> Mapping[OperatorKey, Sequence[Operator]]:
    """Matrix operators with a known place in the program, by that place."""
    found: dict[OperatorKey, list[Operator]] = {}
    for operator in matrix_operators(series):
        if operator.source.node_index >= 0 or not operator.delegated:
            found.setdefault(operator.key.in_program, []).append(operator)
    return found


Matched = list[tuple[MatrixOperator, tuple[Operator, ...]]]
"""Operators proven on SME2, each with the operators that do its work in the measured series."""


def match_proven(series: SeriesAnalysis, operators: Sequence[MatrixOperator]) -> Matched:
    """Proven operators with their counterparts in `series`. A node that ran as more or fewer operators than
    here counts only if all of them were proven."""
    ours: dict[OperatorKey, list[Operator]] = {}
    for operator in matrix_operators(series):
        ours.setdefault(operator.key, []).append(operator)
    theirs: dict[OperatorKey, list[MatrixOperator]] = {}
    for proven in operators:
        theirs.setdefault(proven.key, []).append(proven)
    matched: Matched = []
    for key, members in theirs.items():
        here = ours.get(key, [])
        if len(here) == len(members):
            pairs = zip(members, here, strict=True)
            matched += [(proven, (operator,)) for proven, operator in pairs if proven.on_sme]
        elif here and all(proven.on_sme for proven in members):
            matched.append((members[0], tuple(here)))
    return matched


def proven_work(work: Sequence[MatrixWork], ran: Sequence[MatrixOperator]) -> Iterator[MatrixOperator]:
    """Each matrix operator of the program with its proof. One that ran as several is on SME if all of them
    are; the first that is not says why."""
    by_place: dict[OperatorKey, list[MatrixOperator]] = {}
    for operator in ran:
        by_place.setdefault(operator.key.in_program, []).append(operator)
    for each in work:
        if proofs := by_place.get(each.key):
            proof = next((operator for operator in proofs if not operator.on_sme), proofs[0])
            yield replace(proof, flops=each.flops, category=each.category, node=each.node_index)
        else:
            yield unproven_work(each)


def unproven_work(work: MatrixWork) -> MatrixOperator:
    miss = _NOT_SEEN if work.node else NOT_DELEGATED
    return MatrixOperator(
        **work.key._asdict(),
        name=work.name,
        category=work.category,
        kind=work.kind,
        backend=work.backend,
        flops=work.flops,
        rows=work.rows,
        on_sme=False,
        why_not=miss.words,
        module_path=work.place.module_path,
        source=work.place.source_line,
        cause=miss.cause,
    )


# Proof by the kernels that were called.

_NOT_CALLED = Miss(NOT_KNOWN, "its label is one that only SME uses, but no SME kernel of its data type ran")

# Data types in XNNPACK's labels, and prefixes of the kernels that compute on them.
_KERNEL_DTYPES = {"PF16": ("f16", "pf16"), "PF32": ("f32", "pf32"), "PQS8": ("qai8", "qsi8", "pqs8")}

# Prefixes of the kernels of QP8 operators, by how the weights are quantized.
_QP8_KERNELS = {
    "QC8W": ("f32_qai8dx_qsi8cx",),
    "QC4W": ("f32_qai8dx_qsi4cx",),
    "QB4W": ("f32_qai8dx_qsi4c32", "f32_qsi8d32"),
}


def prove_operators(series: SeriesAnalysis, uses: Sequence[KernelUse], verdict: SmeVerdict) -> OperatorProof:
    called = [use for use in uses if use.computes_on_sme]
    operators = tuple(_matrix_operators(series, uses, called))
    if called:
        isa = "SME2" if any(use.kernel.isa == "SME2" for use in called) else "SME"
        return OperatorProof(series.series, operators, isa)
    if verdict.answer == "none":
        return OperatorProof(series.series, operators)
    reason = verdict.text
    if verdict.answer == "sme-or-sme2":
        reason = "operators have labels that only SME and SME2 use, but no kernel call was counted"
    return OperatorProof(series.series, operators, not_tested=reason)


def _matrix_operators(
    series: SeriesAnalysis, uses: Sequence[KernelUse], called: Sequence[KernelUse]
) -> Iterator[MatrixOperator]:
    for operator in matrix_operators(series):
        source = operator.source
        path = (source.described or describe(operator.name, operator.backend)).matrix
        labelled = path is not None and path.takes_sme is True
        on_sme = labelled and any(_same_dtype(operator.family, use) for use in called)
        on_sme = on_sme or _only_on_sme(operator.family, uses)
        miss = None
        if not on_sme:
            known = path.miss if path else None
            outside = None if operator.delegated else NOT_DELEGATED
            miss = _NOT_CALLED if labelled else outside or known or Miss(NOT_KNOWN, "reason not known")
        yield MatrixOperator(
            **operator.key._asdict(),
            name=operator.name,
            category=operator.category,
            kind=operator.kind,
            backend=operator.backend,
            flops=source.flops,
            rows=rows_of(operator),
            on_sme=on_sme,
            why_not=miss.words if miss else "",
            module_path=source.module_path,
            source=source.place.source_line,
            cause=miss.cause if miss else "",
            precision=operator.precision,
        )


def kernels_for(operator: Operator, uses: Sequence[KernelUse]) -> list[str]:
    """The SME kernels called in a run that compute on the operator's data type: one of them ran it."""
    called = [use for use in uses if use.computes_on_sme]
    return [use.kernel.name for use in called if _same_dtype(operator.family, use)]


def rows_of(operator: Operator) -> int | None:
    """Rows of the result as one matrix; only delegates have a known layout."""
    return rows_of_result(operator.kind, operator.source.output_shape) if operator.delegated else None


def _same_dtype(family: str, use: KernelUse) -> bool:
    wanted = [start for label in family.split(", ") for start in _KERNEL_DTYPES.get(label, ())]
    return use.kernel.dtype.startswith(tuple(wanted)) if wanted else False


def _only_on_sme(family: str, uses: Sequence[KernelUse]) -> bool:
    """A QP8 operator has one label for all instruction sets, but each set has its own kernels: if only those
    for SME were called, one of them ran it."""
    labels = family.split(", ")
    starts = _QP8_KERNELS.get(labels[-1], ()) if "QP8" in labels else ()
    called = [use for use in uses if starts and use.computes and use.kernel.dtype.startswith(starts)]
    return bool(called) and all(use.computes_on_sme for use in called)


# Divides the time inside operators among kernels, by sampling where threads are at random moments.

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
