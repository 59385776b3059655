"""What `analysis_summary.json` says about the operators and modules of a series and the modules of a pair:
the numbers behind the report's tables and what they open.
"""

from __future__ import annotations

from collections.abc import Sequence

from model_profiling.analysis.modules import module_tree
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import Pairing
from model_profiling.analysis.series import SeriesAnalysis


def operator_facts(series: SeriesAnalysis) -> list[dict[str, object]]:
    """Every operator in the order it runs; without times where they mean nothing."""
    timed = series.times.are_shown
    return [
        {
            "name": operator.name,
            "method": operator.method,
            "call": operator.call,
            "position": operator.position,
            "category": operator.category.value,
            "kind": operator.kind,
            "family": operator.family,
            "precision": operator.precision,
            "delegate_backend": operator.backend,
            "origin": operator.origin,
            "module_path": operator.source.module_path,
            "source": operator.source.place.source_line,
            "dtype": operator.source.dtype,
            "input_shapes": [list(shape) for shape in operator.source.input_shapes],
            "output_shape": list(operator.source.output_shape),
            "flops": operator.source.flops,
            "bytes_moved": operator.source.bytes_moved,
            **(_times(series, operator) if timed else {}),
        }
        for operator in series.operators
    ]


def _times(series: SeriesAnalysis, operator: Operator) -> dict[str, object]:
    times = operator.times
    return {
        "ms": operator.typical_ms,
        "share": series.spent_by([operator]).share,
        "runs": times.runs,
        "median_ms": operator.median_ms,
        "p10_ms": times.p10_ns / 1e6,
        "p90_ms": times.p90_ns / 1e6,
        "p99_ms": times.p99_ns / 1e6,
        "min_ms": times.min_ns / 1e6,
        "max_ms": times.max_ns / 1e6,
        "cv": times.cv,
        "gflops_per_s": operator.gflops,
        "gbytes_per_s": operator.gbytes_per_s,
    }


def series_modules(series: SeriesAnalysis) -> list[dict[str, object]]:
    """Every module with what is inside it, however deep; the first is the whole model."""
    found: list[dict[str, object]] = []
    for module in module_tree(series.operators).every():
        (inside,) = module.operators
        spent = series.spent_by(inside)
        found.append(
            {
                "module": module.path,
                "operators": len(inside),
                "flops": _known(inside, "flops"),
                "bytes_moved": _known(inside, "bytes_moved"),
                **({"ms": spent.ms, "share": spent.share} if series.times.are_shown else {}),
            }
        )
    return found


def pair_modules(pairing: Pairing) -> list[dict[str, object]]:
    """Every module on both sides; the ratio is of the times shown, without confidence."""
    found: list[dict[str, object]] = []
    for module in module_tree(pairing.baseline.operators, pairing.candidate.operators).every():
        before, after = (sum(each.typical_ms for each in side) for side in module.operators)
        found.append(
            {
                "module": module.path,
                "baseline_ms": before,
                "candidate_ms": after,
                "ratio": before / after if before and after and not pairing.not_comparable else None,
            }
        )
    return found


def _known(operators: Sequence[Operator], what: str) -> int:
    return sum(getattr(operator.source, what) or 0 for operator in operators)
