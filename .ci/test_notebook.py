"""The example notebook of the learning path: it runs, and its figures are those of the run that it shows."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest
from conftest import missing
from recorded_runs import SME2, Json, load
from rendered_markdown import rendered

from model_profiling.config import names
from model_profiling.core import process

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
NOTEBOOK = DOCS / "learn" / "example.ipynb"
FIGURE = re.compile(r"-?\d+\.\d+")


def _shown(cell: Json, kind: str) -> str:
    return "".join("".join(output.get("data", {}).get(kind, "")) for output in cell.get("outputs", ()))


@pytest.fixture(scope="module")
def stored() -> Json:
    return load(NOTEBOOK)


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Json:
    for package in ("ipykernel", "nbclient", "nbformat"):
        if importlib.util.find_spec(package) is None:
            missing(f"the package {package}")
    folder = tmp_path_factory.mktemp("notebook")
    made = folder / "made.ipynb"
    words = [sys.executable, DOCS / "make_notebook.py", made]
    settings = {"IPYTHONDIR": str(folder / "ipython"), "PYTHONPATH": str(DOCS.parent)}
    done = process.run(words, timeout=120, cwd=folder, env=settings)
    assert done.returncode == 0, done.stderr[-3000:]
    return load(made)


@pytest.mark.slow
def test_it_runs_and_shows_what_is_stored(stored: Json, again: Json) -> None:
    """Cells are the script's, and every figure of a table comes out again."""
    assert [cell["source"] for cell in stored["cells"]] == [cell["source"] for cell in again["cells"]]
    for kept, made in zip(stored["cells"], again["cells"], strict=True):
        assert FIGURE.findall(_shown(kept, "text/plain")) == FIGURE.findall(_shown(made, "text/plain"))
        assert [output["output_type"] for output in made.get("outputs", ())] in ([], ["execute_result"])


def test_stored_figures_are_the_run_s_own(stored: Json) -> None:
    report = next(cell for cell in stored["cells"] if "analyse(RUN)" in "".join(cell["source"]))
    words = " ".join(rendered(_shown(report, "text/markdown")).everything)
    tables = " ".join(_shown(cell, "text/plain") for cell in stored["cells"])
    comparisons = load(SME2 / names.METRICS)["comparisons"]
    assert comparisons
    for found in (entry["speedup"] for entry in comparisons):
        assert f"{found['ratio']:.3f}x" in words
        assert f"{found['low']:.3f} to {found['high']:.3f}" in words
        assert f"{found['ratio']:.6f}" in tables and f"{found['baseline_median']:.6f}" in tables
    series = load(SME2 / names.ANALYSIS)["series"][0]
    for category, ms in series["ms"].items():
        assert re.search(rf"{category}.*{ms:.3f}", tables), category


def test_it_is_small_and_of_no_machine(stored: Json) -> None:
    text = json.dumps(stored)
    assert NOTEBOOK.stat().st_size < 300_000
    assert not re.search(r"/(?:home(?!/user/small_cnn)|tmp|usr|opt|Users)/", text)
    assert '"output_type": "stream"' not in text
