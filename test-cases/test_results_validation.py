#!/usr/bin/env python3
"""The results of a run make sense: latencies, operators and categories, and all that validating checks.

Takes the run that test_pipeline_execution.py made, or makes one.

example:
  python test-cases/test_results_validation.py
"""

from __future__ import annotations

import sys
from math import isclose

from made_once import facts, finished_run, main, table

from model_profiling.validation.validate import validate

_CATEGORIES = {"Convolution", "GEMM", "Data Movement", "Elementwise", "Other"}
_COLUMNS = {"model_id", "name", "type", "delegate_backend", "count", "total_ms", "avg_ms", "pct_total"}


def test_the_run_is_valid() -> None:
    validation = validate(finished_run().path)
    assert validation.ok, validation.as_text()


def test_latency_metrics() -> None:
    latencies = facts(finished_run(), "metrics.json")["latencies"]
    assert latencies
    for each in latencies:
        found = each["end_to_end_ms"]
        order = [found[key] for key in ("minimum", "p5", "median", "p95", "maximum")]
        assert order == sorted(order) and order[0] > 0, found
        assert found["minimum"] <= found["mean"] <= found["maximum"] < 600_000, found
        assert found["count"] > 0


def test_operator_analysis() -> None:
    run = finished_run()
    dumps = facts(run, "analysis_summary.json")["per_etdump"]
    assert dumps
    for dump in dumps:
        assert set(dump["categories_ms"]) == _CATEGORIES
        parts = [*dump["categories_ms"].values(), dump["framework_overhead_ms"], dump["unattributed_ms"]]
        assert all(part >= 0 for part in parts) and isclose(sum(parts), dump["e2e_ms"], rel_tol=1e-6)
        operators = table(run.path / dump["csv_stats"])
        assert operators and set(operators[0]) >= _COLUMNS
        assert all(row["name"] and float(row["avg_ms"]) >= 0 for row in operators)


if __name__ == "__main__":
    sys.exit(main(globals(), __doc__))
