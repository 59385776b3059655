"""The public API is what `__all__` says, it loads lazily, and it does not change by accident."""

from __future__ import annotations

import subprocess
import sys

import pytest

import model_profiling

PUBLIC = {
    "AnalysedRun", "Answer", "Comparison", "EagerModelBase", "EventTable", "ExportResult", "Labels", "Limits",
    "ProfileOptions", "ProfileOutcome", "ProfilingError", "Records", "RunAnalysis", "RunOptions",
    "RunOutcome", "Store", "TargetChoice", "analyse", "compare",
    "export_model", "profile", "read_etdump", "register_model", "write_analysis",
}  # fmt: skip


def test_the_api_is_this_and_nothing_else() -> None:
    assert set(model_profiling.__all__) == PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_name_is_there_and_documented(name: str) -> None:
    assert getattr(model_profiling, name).__doc__


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, model_profiling; print([m for m in ('numpy', 'torch', 'pandas') if m in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = model_profiling.nothing
