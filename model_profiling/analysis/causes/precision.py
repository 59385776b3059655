"""Matrix operators that ran in another precision than the program was exported in.

There is no bound: how fast they would be in the precision asked for was not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from model_profiling.analysis.findings import Concern, Finding, percent, where
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.program.category import MATRIX
from model_profiling.program_name import exported_dtype
from model_profiling.wording import listing, plural


def precision_not_as_asked(series: SeriesAnalysis) -> Finding | None:
    asked = exported_dtype(PurePath(series.graph.program.source).stem) if series.graph else ""
    matrix = [operator for operator in series.operators if operator.category in MATRIX and operator.precision]
    other = [operator for operator in matrix if asked in ("fp16", "int8") and _is_wider(operator, asked)]
    if not other:
        return None
    if series.times.are_latencies:
        other.sort(key=lambda operator: -operator.typical_ms)
    ran_in = list(dict.fromkeys(operator.precision for operator in other))
    share = _arithmetic(other) / (_arithmetic(matrix) or 1)
    spent = series.spent_by(other).share if series.times.are_latencies else None
    return Finding(
        "precision-not-as-asked",
        f"Expect less of {asked}: {len(other)} of {plural(len(matrix), 'matrix operator')} ran in "
        f"{listing(ran_in)}",
        "; ".join(dict.fromkeys(_why(operator, asked)[1] for operator in other)),
        series,
        tuple(_concern(series, operator, asked) for operator in other),
        {
            "asked": asked,
            "matrix_operators": len(matrix),
            "not_as_asked": len(other),
            "arithmetic_share_pct": percent(share),
            "time_share_pct": None if spent is None else percent(spent),
        },
    )


def _is_wider(operator: Operator, asked: str) -> bool:
    return operator.precision == "fp32" if asked == "fp16" else not operator.precision.startswith("int")


def _arithmetic(operators: Sequence[Operator]) -> int:
    return sum(operator.source.flops or 0 for operator in operators)


def _concern(series: SeriesAnalysis, operator: Operator, asked: str) -> Concern:
    facts: dict[str, object] = {"precision": operator.precision, "reason": _why(operator, asked)[0]}
    if series.times.are_latencies:
        spent = series.spent_by([operator])
        facts |= {"ms": round(spent.ms, 6), "share_pct": percent(spent.share)}
    return Concern((operator,), where(operator), f"{operator.precision}: {facts['reason']}", facts)


def _why(operator: Operator, asked: str) -> tuple[str, str]:
    """Why it did not run as asked, and what to do about it."""
    if operator.ran_wider:
        return (
            "the CPU has no fp16 arithmetic for it, so XNNPACK ran it in fp32",
            "measure fp16 on a CPU that computes in fp16: here it says nothing about it",
        )
    if asked == "fp16":
        return (
            "the program has it in fp32",
            "drop casts to float32 around it in the model, or the fp32 tensors it is fed with",
        )
    if operator.kind in ("matmul", "attention"):
        return (
            "the quantizer annotates linear layers and convolutions, no products of two activations",
            "products of two activations (attention, decomposed cells) stay in fp32 with XNNPACKQuantizer: "
            "count on int8 for linear layers and convolutions only, or compare with fp16",
        )
    return (
        "the quantizer did not annotate it",
        "let the quantizer see it: it annotates `linear` and convolutions that stand in the exported graph, "
        "not those inside nn.LSTM or nn.GRU, which are taken apart later; write such cells with nn.Linear",
    )
