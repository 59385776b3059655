"""Which operators ran on SME or SME2 kernels, and which are the same: in a series, in what was proven of a
program, in the program itself.

A graph node is the same under any name. A label such as PF16 is chosen on SME and SME2 only; it proves
nothing without a called kernel of its type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from model_profiling.analysis.kernels import KernelUse, SmeVerdict
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.program.category import MATRIX, Miss
from model_profiling.program.delegates import describe
from model_profiling.program.matrix_work import MatrixWork, rows_of_result
from model_profiling.program.records import OperatorKey
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
    called = [use for use in uses if _computes_on_sme(use)]
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


def _computes(use: KernelUse) -> bool:
    kernel = use.kernel
    return use.evidence == "executed" and kernel.library != "operator" and kernel.role != "packing"


def _computes_on_sme(use: KernelUse) -> bool:
    return _computes(use) and use.kernel.isa in ("SME2", "SME")


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
    called = [use for use in uses if _computes_on_sme(use)]
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
    called = [use for use in uses if starts and _computes(use) and use.kernel.dtype.startswith(starts)]
    return bool(called) and all(map(_computes_on_sme, called))
