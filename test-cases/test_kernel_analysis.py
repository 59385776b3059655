#!/usr/bin/env python3
"""Kernels come out of a run in xnntrace mode: a list for each experiment, with what ran and how often.

Takes the run that test_pipeline_execution.py made, or makes one.

example:
  python test-cases/test_kernel_analysis.py
"""

from __future__ import annotations

import sys

from made_once import finished_run, main, table

from model_profiling.runs.manifest import Result

_COLUMNS = {"kernel_name", "category", "count", "has_sme", "has_sme2", "evidence"}


def _traced() -> list[Result]:
    return [result for result in finished_run().results if result.mode == "xnntrace"]


def test_kernel_extraction() -> None:
    run, traced = finished_run(), _traced()
    assert traced, "no experiment ran in xnntrace mode"
    for result in traced:
        assert result.kernels is not None, result.kernels_note
        assert result.xnntrace_log is not None and (run.path / result.xnntrace_log).is_file()
        rows = table(run.path / result.kernels)
        assert rows and set(rows[0]) >= _COLUMNS
        executed = [row for row in rows if row["evidence"] == "executed"]
        assert executed, "the list names nothing that ran"
        assert all(row["kernel_name"] and int(row["count"]) > 0 for row in executed)


def test_what_is_switched_off_does_not_run() -> None:
    run = finished_run()
    assert run.manifest is not None
    for result in _traced():
        assert result.kernels is not None
        sme2 = [row["kernel_name"] for row in table(run.path / result.kernels) if row["has_sme2"] == "1"]
        if result.sme2 == "off" or not run.manifest.has_sme2:
            assert sme2 == [], f"{result.experiment} lists {sme2}"


def test_a_trace_is_no_latency() -> None:
    for result in _traced():
        assert result.latency is None, f"{result.experiment} was traced, its times are no latencies"


if __name__ == "__main__":
    sys.exit(main(globals(), __doc__))
