"""The columns of a run's tables (`run_tables.py`), for whoever only needs to know them."""

from __future__ import annotations

from model_profiling.report.operator_columns import DETAILS
from model_profiling.report.records import Columns

_SERIES: Columns = {"experiment": "text", "threads": "whole"}
_TRACED: Columns = {**_SERIES, "times": "text"}
CATEGORIES: Columns = {
    **_TRACED, "category": "text", "ms": "number", "pct_of_e2e": "number", "operators": "whole",
}  # fmt: skip
OPERATORS: Columns = {**_TRACED, "ms": "number", **DETAILS}
LATENCIES: Columns = {
    **_SERIES, "sme2": "flag", "measured": "text", "rounds": "whole", "median_ms": "number",
    "mean_ms": "number", "p5_ms": "number", "p95_ms": "number", "min_ms": "number", "max_ms": "number",
    "robust_cv": "number", "traced_median_ms": "number", "tracer_cost": "number", "load_ms": "number",
    "first_inference_ms": "number", "peak_memory_bytes": "whole",
}  # fmt: skip
SAMPLES: Columns = {**_SERIES, "round": "whole", "sample": "whole", "ms": "number"}
_ANSWER: Columns = {"verdict": "text", "ratio": "number", "low": "number", "high": "number"}
SPEEDUPS: Columns = {
    "comparison": "text", "baseline": "text", "baseline_threads": "whole", "candidate": "text",
    "candidate_threads": "whole", **_ANSWER, "confidence": "number", "baseline_median": "number",
    "candidate_median": "number", "rounds": "whole", "unit": "text", "with_tracer": "flag", "reason": "text",
}  # fmt: skip
_BOTH_SIDES: Columns = {"baseline_ms": "number", "candidate_ms": "number", **_ANSWER}
CATEGORY_CHANGES: Columns = {
    "comparison": "text", "category": "text", **_BOTH_SIDES, "baseline_share": "number",
    "candidate_share": "number",
}  # fmt: skip
OPERATOR_CHANGES: Columns = {
    "comparison": "text", "operator": "text", "category": "text", "place": "text", "change": "text",
    **_BOTH_SIDES, "baseline": "text", "candidate": "text", "kernel_before": "text", "kernel_after": "text",
}  # fmt: skip
