"""The sections on memory and loading of a run that measured them; without, they are left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from recorded_runs import Json, copied, edit

pytestmark = pytest.mark.usefixtures("elsewhere")
PARTS = [
    ("XNNPACK's packed weights", 9_000_000),
    ("the program, mapped", 8_000_000),
    ("not explained", 1_000),
]
LOADING = {
    "load_ms": 4.0,
    "parts": [{"what": "reading the file", "ms": 1.0}, {"what": "XNNPACK packing weights", "ms": 3.0}],
    "page_faults": 400,
    "pages_from_disk": 0,
}


def test_memory_and_loading_are_shown_where_they_were_measured(
    arm_home: Path, tmp_path: Path, sme2prof
) -> None:
    run = copied(arm_home, tmp_path / "b") / "runs" / "xnnpack_fp16" / "linux"
    page, summary = tmp_path / "page.md", tmp_path / "summary"
    assert sme2prof("report", run, "--out", page).returncode == 0
    assert "## Memory" not in page.read_text() and "## Loading" not in page.read_text()

    def measured(metrics: Json) -> None:
        parts = [{"what": what, "bytes": number} for what, number in PARTS]
        peak = sum(number for _, number in PARTS)
        for latency in metrics["latencies"]:
            latency["memory"] = {"peak_bytes": peak, "while_loading": True, "parts": parts}
            cold = {**LOADING, "load_ms": 9.0, "pages_from_disk": 7}
            cache = {"load_ms": 0.25, "without_ms": 4.125, "bytes": 900_000}
            latency["loading"] = {**LOADING, "cold": cold, "weights_cache": cache}

    edit(run / "metrics.json", measured)
    done = sme2prof("report", run, "--out", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert "in memory twice" in text and "9.000 ms from the disk" in text
    assert "loading takes 0.250 ms, not 4.125 ms" in text
    assert all(what in text for what, _ in PARTS)
    done = sme2prof("analyze", run, "--out", summary)
    assert done.returncode == 0, done.stderr
    (found,) = summary.rglob("analysis_summary.json")
    facts = json.loads(found.read_text())
    assert facts["loading"]["weights_cache"]["bytes"] == 900_000
    assert {(part["what"], part["bytes"]) for part in facts["memory"]["parts"]} == set(PARTS)
    assert sum(part["ms"] for part in facts["loading"]["parts"]) == facts["loading"]["load_ms"]
