"""Recorded runs are small, name no machine and are marked where they are made; pages that quote figures take
each from its record."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator

import pytest
from recorded_runs import ARM, DATA, EMULATED, SME2, X86_64, Json
from working_tree import ROOT

from model_profiling.analysis.coverage import speedup_of
from model_profiling.runs import Run

RUNS = {path.name: path for path in (ARM, EMULATED, X86_64, SME2)}
FIGURE = re.compile(r"\d+ of \d+|\d+,\d{3}|(?<![\w.])\d+\.\d+(?:e-\d+)?(?![\w.]*\d)")


def test_they_are_small_and_name_no_place_of_the_machine_that_made_them() -> None:
    paths = [path for path in DATA.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in paths) < 4_500_000
    private = re.compile(rb"/(?:w[o]rk|r[o]ot|t[m]p)/|/home/(?!user\b)")
    assert [path for path in paths if private.search(path.read_bytes())] == []


@pytest.mark.parametrize("name", RUNS)
def test_only_what_is_made_says_so(name: str) -> None:
    manifest = Run.open(RUNS[name]).manifest
    assert manifest is not None
    made = name in ("x86_64", "sme2_hardware")
    assert (RUNS[name] / "MADE_FROM").is_file() is made
    assert manifest.cpu.startswith("made ") is made
    assert str(manifest.settings["notes"]).startswith("Made, not measured") is made
    assert name in (DATA / "README.md").read_text()


def _derived(record: Json) -> Iterator[str]:
    """What follows from recorded figures: the time that a speedup saves, and the speedup of a projection."""
    for entry in record.values():
        if isinstance(entry, dict):
            yield from _derived(entry)
    yield from (f"{1 - 1 / float(record[key]):.1%}" for key in ("ratio", "low", "high") if key in record)
    for projected in record.get("projected_ms", ()):
        yield f"{float(record['median_ms']) / float(projected):.2f}"


def test_the_case_study_takes_its_figures_from_its_record() -> None:
    page, name = "docs/learn/case-study.md", "mobilenet_v3_small.json"
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = set(FIGURE.findall(re.sub(r"```(?:bash|python)\n.*?```", "", text, flags=re.DOTALL)))
    record = (ROOT / "tests/data/figures" / name).read_text(encoding="utf-8")
    recorded = set(FIGURE.findall(record))
    derived = {figure.rstrip("%") for figure in _derived(json.loads(record, parse_float=str))}
    assert not shown - recorded - derived, f"tests/data/figures/{name} has no such figure"
    assert not recorded - shown, f"{page} no longer shows them"


def test_the_readme_takes_its_figures_from_the_benches() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(r"^Seen on (.*?all figures)", readme, re.DOTALL | re.MULTILINE)
    benches = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "bench").rglob("*.md"))
    figures = re.findall(r"\d[\d,.]*\d (?:s|times)|\d+,\d{3}", sentence)
    assert figures and [figure for figure in figures if figure not in benches] == []


def share_for(speedup: float, factor: float) -> float | None:
    """The share of the time that must get `factor` times faster to make the whole `speedup` times faster."""
    share = (1 - 1 / speedup) / (1 - 1 / factor)
    return share if share <= 1 else None


def test_the_published_cases_are_worked_out_right() -> None:
    page = (ROOT / "bench" / "figures" / "headroom.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| SqueezeSAM (\w+), (\d+) to (\d+) ms \| ([\d.]+)x \|(.+)\|$", page, re.MULTILINE)
    assert [row[:3] for row in rows] == [("fp16", "1163", "298"), ("int8", "556", "304")]
    for _, before, after, ratio, cells in rows:
        speedup = int(before) / int(after)
        assert f"{speedup:.2f}" == ratio
        for factor, cell in zip((3, 5, 10, 15, math.inf), cells.split("|"), strict=True):
            share = share_for(speedup, factor)
            assert cell.strip() == ("none" if share is None else f"{100 * share:.1f}%")
            if share is not None:
                assert speedup_of([(share, factor)]) == pytest.approx(speedup)
    speedup = 1163 / 298
    assert share_for(speedup, speedup * 0.999) is None
    assert share_for(speedup, speedup) == pytest.approx(1)
    assert f"{speedup:.1f} times" in page
