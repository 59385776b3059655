"""What is told of an operator: the columns of `_exec_operator_details.csv` and of `AnalysedRun.operators`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from model_profiling.report.records import Columns, Value

if TYPE_CHECKING:
    from model_profiling.analysis.operators import (
        Operator,  # needs numpy, which who asks a store does without
    )

DETAILS: Columns = {
    "method": "text", "call": "whole", "position": "whole", "name": "text", "type": "text",
    "category": "text", "kind": "text", "family": "text", "packed": "flag", "delegate_backend": "text",
    "delegated": "flag", "origin": "text", "runs": "whole", "mean_ms": "number", "median_ms": "number",
    "p10_ms": "number", "p90_ms": "number", "p99_ms": "number", "min_ms": "number", "max_ms": "number",
    "cv": "number", "pct_of_e2e": "number", "dtype": "text", "input_shapes": "text", "output_shape": "text",
    "kernel_size": "text", "groups": "whole", "flops": "whole", "bytes_moved": "whole",
    "gflops_per_s": "number", "gbytes_per_s": "number", "graph_node": "text", "fused": "text",
    "debug_handle": "whole", "module_path": "text", "module_class": "text", "source_file": "text",
    "source_line": "whole", "source_code": "text", "precision": "text",
}  # fmt: skip
_OF_TIME = frozenset(name for name, kind in DETAILS.items() if kind == "number")


def operator_details(operator: Operator, share: float, *, timed: bool = True) -> tuple[Value, ...]:
    """A value for each of `DETAILS`; `share` is that of end-to-end time. What follows from times is None
    where they are not `timed`."""
    source, place, times = operator.source, operator.source.place, operator.times
    values: tuple[Value, ...] = (
        operator.method, operator.call, operator.position, operator.name, operator.type,
        operator.category.value, operator.kind, operator.family, operator.packed, operator.backend,
        operator.delegated, operator.origin, times.runs, times.mean_ns / 1e6, times.median_ns / 1e6,
        times.p10_ns / 1e6, times.p90_ns / 1e6, times.p99_ns / 1e6, times.min_ns / 1e6, times.max_ns / 1e6,
        times.cv, 100 * share, source.dtype, " ".join(map(_shape, source.input_shapes)),
        _shape(source.output_shape), _shape(source.kernel_size or ()), source.groups or None, source.flops,
        source.bytes_moved, operator.gflops, operator.gbytes_per_s, source.node_kind, " ".join(source.fused),
        source.debug_handle if source.debug_handle >= 0 else None, place.module_path, place.module_class,
        place.file, place.line or None, place.code, operator.precision,
    )  # fmt: skip
    if timed:
        return values
    named = zip(DETAILS, values, strict=True)
    return tuple(None if name in _OF_TIME else value for name, value in named)


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
