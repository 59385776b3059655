#!/usr/bin/env python3
"""The pipeline works on this installation: a minimal config is valid, runs, and leaves what is documented.

example:
  python test-cases/test_pipeline_execution.py
"""

from __future__ import annotations

import sys

from made_once import config, facts, main, run_anew

from model_profiling.config.reading import load_config

_FILES = (
    "manifest.json",
    "metrics.json",
    "analysis_summary.json",
    "report.md",
    "report.html",
    "journal.jsonl",
)


def test_the_config_is_valid() -> None:
    assert load_config(config()).pairs


def test_pipeline_basic() -> None:
    run = run_anew()
    assert run.manifest is not None and run.manifest.unfinished is None
    for name in _FILES:
        assert (run.path / name).is_file(), f"{name} is missing"
    for result in run.results:
        assert result.state == "done", f"{result.experiment}: {result.problem}; {result.fix}"
        assert result.etdump and result.log
        assert (run.path / result.etdump).stat().st_size > 0 and (run.path / result.log).is_file()
    latencies = facts(run, "metrics.json")["latencies"]
    assert latencies and all(0 < each["end_to_end_ms"]["median"] < 600_000 for each in latencies)


def test_sme2_comparison() -> None:
    """On and off are compared where the CPU has SME2; elsewhere they are one baseline."""
    run = run_anew()
    assert run.manifest is not None
    timed = {result.experiment for result in run.results if result.mode == "timing"}
    comparisons = facts(run, "metrics.json")["comparisons"]
    if run.manifest.has_sme2:
        assert len(timed) == 2 and len(comparisons) == 1
        ratio = comparisons[0]["speedup"]["ratio"]  # none where so short a run is not comparable
        assert ratio is None or 0.2 < ratio < 20, comparisons[0]
    else:
        assert len(timed) == 1 and comparisons == []


if __name__ == "__main__":
    sys.exit(main(globals(), __doc__))
