"""Decides which operators ran on SME or SME2 kernels, from their names and the kernels called.

A label such as PF16 is chosen on SME and SME2 only; it proves nothing without a called kernel of its type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from model_profiling.analysis.attribution import Share
from model_profiling.analysis.kernels import KernelUse, SmeVerdict
from model_profiling.analysis.matching import NOT_DELEGATED, NOT_KNOWN, matrix_operators, orders_in_calls
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.program.category import MatrixPath, Miss
from model_profiling.program.delegates import describe
from model_profiling.program.matrix_work import rows_of_result
from model_profiling.run.evidence import MatrixOperator, OperatorProof

REASON_NOT_KNOWN = "reason not known"
_NOT_KNOWN = Miss(NOT_KNOWN, REASON_NOT_KNOWN)
_NOT_CALLED = Miss(
    NOT_KNOWN, "its label is chosen on SME only, but no SME kernel of its data type was seen to run"
)

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
    operators = tuple(_matrix_operators(series, uses))
    unseen = tuple(_unseen(series))
    if called:
        isa = "SME2" if any(use.kernel.isa == "SME2" for use in called) else "SME"
        return OperatorProof(series.series, operators, isa, unseen=unseen)
    if verdict.answer == "none":
        return OperatorProof(series.series, operators, unseen=unseen)
    if verdict.answer == "sme-or-sme2":
        reason = "operators have labels that are chosen on SME or SME2 only, but no kernel call was counted"
    else:
        reason = verdict.text
    return OperatorProof(series.series, operators, not_tested=reason, unseen=unseen)


def _computes(use: KernelUse) -> bool:
    kernel = use.kernel
    return use.evidence == "executed" and kernel.library != "operator" and kernel.role != "packing"


def _computes_on_sme(use: KernelUse) -> bool:
    return _computes(use) and use.kernel.isa in ("SME2", "SME")


def _matrix_operators(series: SeriesAnalysis, uses: Sequence[KernelUse]) -> Iterator[MatrixOperator]:
    called = [use for use in uses if _computes_on_sme(use)]
    operators = matrix_operators(series)
    orders = orders_in_calls(operator.key for operator in operators)
    for operator, (_, order, of) in zip(operators, orders, strict=True):
        source = operator.source
        path = (source.described or describe(operator.name, operator.backend)).matrix
        labelled = path is not None and path.takes_sme is True
        on_sme = labelled and any(_same_dtype(operator.family, use) for use in called)
        on_sme = on_sme or _only_on_sme(operator.family, uses)
        miss = None if on_sme else _NOT_CALLED if labelled else _miss(operator, path)
        yield MatrixOperator(
            **operator.key._asdict(),
            order=order,
            of=of,
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


def _miss(operator: Operator, path: MatrixPath | None) -> Miss:
    if not operator.delegated:
        return NOT_DELEGATED
    return (path.miss if path else None) or _NOT_KNOWN


def _unseen(series: SeriesAnalysis) -> Iterator[str]:
    """Names of delegate calls that reported no operators."""
    method = (
        series.graph.program.method(series.operators[0].method) if series.graph and series.operators else None
    )
    for node in series.first.attribution.groups[0].nodes:
        if node.call_kind == "delegate" and node.share is Share.OPAQUE and node.level == "call":
            step = method.instruction(node.chain_index, node.instruction_id) if method else None
            yield step.name if step else "delegate"
