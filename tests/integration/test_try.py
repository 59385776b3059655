"""`sme2prof try`: advice applied to a copy of the user's file, exported, measured in turns and compared."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from said import says

from model_profiling.cli.main import main
from model_profiling.config import names
from model_profiling.program.graph_file import ModelSource, read_graph_file, write_graph_file

MODEL = """import torch
from torch import nn
from pathlib import Path
from .gates import Gate

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        width = int((Path(__file__).parent / "width.txt").read_text())
        self.first, self.gate = nn.Conv1d(4, 2 * width, 1), Gate()
        self.second, self.last = nn.Linear(width, 3 * width), nn.Linear(width, 4)

    def forward(self, x):
        y = self.gate(self.first(x)).transpose(1, 2)
        q, k, v = self.second(y).chunk(3, dim=-1)  # stays
        return self.last(q * k + v)

def net():
    return Net(), (torch.linspace(-1, 1, 80).reshape(1, 4, 20),)
"""
GATE = """from torch import nn
import torch.nn.functional as F

class Gate(nn.Module):
    def forward(self, x):
        return F.glu(
            x.tanh(),
            dim=1,
        )
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that imports its neighbour and reads a file beside it."""
    folder = tmp_path_factory.mktemp("project") / "gated"
    folder.mkdir()
    for name, text in {"__init__": "", "model": MODEL, "gates": GATE}.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "width.txt").write_text("16")
    return folder


@pytest.fixture(scope="module")
def run_dir(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out")
    words = ["--dtype", "fp16", "--target", "host", "--quick", "--budget", "1", "--outdir", str(out)]
    assert main(["profile", f"{package / 'model.py'}:net", *words, "--input", "x=0.5"]) == 0
    (found,) = (path.parent for path in out.rglob(names.MANIFEST))
    return found


def test_a_gated_model_becomes_one_delegate(package, run_dir, sme2prof, tmp_path) -> None:
    before = {path: path.read_bytes() for path in package.rglob("*") if path.is_file()}
    # Moved, and without its program: what is needed is in the run.
    moved = tmp_path / "moved"
    shutil.copytree(run_dir, moved)
    home = tmp_path / "tried"
    done = sme2prof("try", moved, "outside", "--target", "host", "--budget", "1", "--outdir", home, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["before"]["delegate_calls"] > 1 and said["before"]["operators_outside"] == 3
    assert said["after"]["delegate_calls"] == 1 and said["after"]["operators_outside"] == 0
    assert said["outputs"]["agree"] and said["outputs"]["max_rel"] < 1e-6
    assert said["comparison"]["series"][0]["end_to_end"]["ratio"] > 0, "both were measured in turns"
    manifests = [json.loads(path.read_text()) for path in home.rglob(names.MANIFEST)]
    assert [each["fed"] for each in manifests] == ["x_0.5"] * 2, "as in the run"
    assert (
        "+        q, k, v = ((x_in := self.second(y))[..., :16], x_in[..., 16:32], x_in[..., 32:48])  # stays"
        in (said["diff"])
    )
    assert "+        return (x_in := x.tanh())[:, :16] * x_in[:, 16:].sigmoid()" in said["diff"]
    assert (home / "change.diff").read_text() == said["diff"]
    assert {path: path.read_bytes() for path in package.rglob("*.py")} == {
        path: text for path, text in before.items() if path.suffix == ".py"
    }
    # A later import has the user's own code.
    assert "glu" in sys.modules["gated.gates"].Gate.forward.__code__.co_names


def test_what_cannot_be_tried_is_one_line(package, run_dir, sme2prof, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = sme2prof("try", run_dir, "outsidedelegate")
    assert wrong.returncode == 2
    says(wrong.stderr, "no finding 'outsidedelegate'", "did you mean 'outside-delegates'?", "can be tried")
    assert sme2prof("try", run_dir).returncode == 2

    changed = package / "model.py"
    changed.write_text(MODEL.replace("import torch\n", "import torch\n\n", 1))
    try:
        found = sme2prof("try", run_dir, "outside-delegates", "--target", "host")
    finally:
        changed.write_text(MODEL)
    assert found.returncode == 2
    says(found.stderr, "model.py:", "has changed since the run")

    copied = tmp_path / "run"
    shutil.copytree(run_dir, copied)
    graph = read_graph_file(copied / names.GRAPH)
    assert graph.origin is not None and graph.undelegated
    outside = str(tmp_path / "other.py")
    (tmp_path / "other.py").write_text(MODEL)
    elsewhere = tuple(
        replace(each, rewrite=replace(each.rewrite, file=outside) if each.rewrite else None)
        for each in graph.undelegated
    )
    unwritten = tuple(replace(each, rewrite=None) for each in graph.undelegated)
    gone = replace(graph.origin, source=f"{tmp_path / 'gone.py'}:net")
    (copied / "evil.py").write_text("raise SystemExit('this must never be run')\n")
    sent = f"{copied / 'evil.py'}:make"
    for kept, code, words in (
        (replace(graph, undelegated=elsewhere), 2, ("other.py does not belong to the model",)),
        (replace(graph, origin=gone), 2, ("gone.py is not there",)),
        *(
            (replace(graph, origin=replace(graph.origin, **{key: value})), 2, ("not a file of yours",))
            for key, value in (
                ("source", sent),
                ("dtype", sent),
                ("dtype", "os:abort"),
                ("calibration", sent),
            )
        ),
        (
            replace(graph, origin=ModelSource("kit", "fp16", "xnnpack")),
            1,
            ("file.py:factory", ".pte AFTER.pte"),
        ),
        (replace(graph, undelegated=unwritten), 1, ("Not tried", "sme2prof compare")),
    ):
        write_graph_file(copied / names.GRAPH, kept)
        found = sme2prof("try", copied, "outside-delegates", "--target", "host")
        assert found.returncode == code, found.stderr
        says(found.stdout + found.stderr, *words)
    (copied / names.GRAPH).write_text("{")
    assert sme2prof("try", copied, "outside-delegates").returncode == 1
    assert not (tmp_path / "out_try").exists(), "nothing was begun"
