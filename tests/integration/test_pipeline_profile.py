"""`sme2prof profile` and `model_profiling.profile`: from a model to a verdict, here and under emulation."""

from __future__ import annotations

import json
import linecache
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rendered_markdown import rendered
from said import says

import model_profiling
from model_profiling.core.errors import ExportError, InputError
from model_profiling.core.stdio import Progress, watching
from model_profiling.runner.features import host_features
from model_profiling.targets.host import HostTarget
from model_profiling.workflow.profile import QUICK, ProfileOptions, find_or_export, make_config


@pytest.mark.quick
@pytest.mark.usefixtures("emulated")
def test_emulation_proves_sme2_and_claims_no_latency(exported, cli, tmp_path: Path) -> None:
    model = exported("toy_cnn", "fp32").pte
    done = cli(
        *("profile", model, "--target", "emulated", "--outdir", tmp_path / "o", "--threads", "1,2"),
        *("--budget", 4),
    )
    assert done.ok, done.tail()
    # What cannot be followed is said; what can be is done.
    (said,) = [line for line in done.stderr.splitlines() if "has no effect" in line]
    says(said, "--budget 4")
    assert "SME2 kernels ran" in done.stdout
    assert "median" not in done.stdout and " ms" not in done.stdout
    run_dir = tmp_path / "o" / "runs" / "xnnpack_fp32" / "emulated"
    kernels = {path.name.split("_emulated_")[1]: path.read_text() for path in run_dir.rglob("*_kernels.csv")}
    assert {name for name, text in kernels.items() if "_sme2_" in text and ",executed" in text} == {
        "sme2_on_t1_kernels.csv",
        "sme2_on_t2_kernels.csv",
    }
    assert set(kernels) >= {"sme2_off_t1_kernels.csv", "sme2_off_t2_kernels.csv"}
    assert (run_dir / "report.md").is_file()
    metrics = json.loads((run_dir / "metrics.json").read_text())
    assert metrics["times"] == "emulated" and not metrics["latencies"] and not metrics["stability"]
    assert metrics["parity"][0]["parity"]["verdict"] in ("identical", "within tolerance")
    assert metrics["comparisons"][0]["speedup"]["verdict"] == "not comparable"
    assert metrics["comparisons"][0]["speedup"]["ratio"] is None
    assert not list(run_dir.rglob("*_robust_stats.json"))
    for name in ("manifest.json", f"{model.stem}_pipeline_summary.json", f"{model.stem}_pipeline_summary.md"):
        said = (run_dir / name).read_text()
        said = said.replace("not latencies", "")
        assert not re.search("end_to_end_ms|median_ms|latencies", said), name


@pytest.mark.usefixtures("emulated")
def test_quick_sets_less_of_everything_and_says_what_that_costs(exported, cli, tmp_path: Path) -> None:
    model = exported("toy_cnn", "int8").pte
    done = cli("profile", model, "--target", "emulated", "--quick", "--outdir", tmp_path / "o")
    assert done.ok, done.tail()
    run_dir = tmp_path / "o" / "runs" / "xnnpack_int8" / "emulated"
    says(done.stderr, lost := "--quick does not compare outputs")
    says((run_dir / "report.md").read_text(), lost)
    says(done.stdout, "SME2 kernels ran")
    assert json.loads((run_dir / "manifest.json").read_text())["experiments"] == ["emulated_sme2_on"]
    # On hardware both are measured; what the user gives wins.
    asked = ProfileOptions(quick=True, budget_s=9)
    config = make_config(HostTarget(), model, tmp_path / "host", asked)
    assert (config.schedule.rounds, config.schedule.budget_s) == (QUICK["rounds"], 9)
    assert [(each.sme2, each.runs) for each in config.experiments] == [("on", 5), ("off", 5)]


def test_the_ladder_shows_what_each_feature_buys(exported, cli, tmp_path: Path) -> None:
    present = host_features()
    pte, words = exported("toy_cnn", "fp16").pte, ("--quick", "--budget", 3)
    done = cli("profile", pte, "--target", "host", "--ladder", *words, "--outdir", tmp_path / "o")
    if not present:
        assert done.returncode == 2 and "ladder" in done.stderr
        return
    assert done.ok, done.tail()
    rows = [line.split() for line in done.stdout.splitlines() if "_upto_" in line.partition(" ")[0]]
    assert len(rows) == len(present) + 1 and rows[-1][0].endswith("_upto_neon")
    # Without half-precision arithmetic the same program takes longer.
    medians = {row[0].partition("_upto_")[2]: row for row in rows}
    if "fp16" in present:
        assert any("x" in cell for cell in medians["fp16"])


def test_a_program_that_is_not_what_pytorch_computes_is_profiled_with_a_word(exported, cli, tmp_path) -> None:
    made = exported("toy_cnn", "fp32")
    program = tmp_path / made.pte.name
    for path in (made.pte, made.etrecord, made.summary):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    record = json.loads(made.summary.read_text())
    record["accuracy"]["lowering"].update(max_rel=0.25, tolerance=1e-4, verdict="mismatch", outputs=[])
    (tmp_path / made.summary.name).write_text(json.dumps(record))
    words = ("--target", "host", "--quick", "--budget", 1, "--outdir", tmp_path / "o")
    done = cli("profile", program, *words)
    assert done.ok, done.tail()
    said = ("outputs differ from PyTorch's in fp32", "0.25 of", "0.0001")
    (first, *_) = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    says(first, *said)
    (report,) = (tmp_path / "o").rglob("report.md")
    says(report.read_text(), *said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing.pte"], "no program nothing.pte;"),
        (["toy_cnnn", "--target", "host"], "'toy_cnn'"),
        (["{pte}", "--dtype", "int8"], "; --dtype "),
        (["toy_cnn", "--outdir", "{pte}"], ".pte is not a folder"),
        (["toy_cnn", "--target", "andriod"], "'andriod'; choose from auto, host, emulated"),
        (["toy_cnn", "--target", "moon"], "'moon'; choose from auto, host, emulated"),
        (["toy_cnn", "--threads", "1,one"], "such as 1,2,4"),
        (["toy_cnn", "--precision", "5"], "--precision"),
    ],
)
def test_a_wrong_word_ends_in_one_line(sme2prof, exported, words, said, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    pte = exported("toy_cnn", "fp32").pte
    done = sme2prof("profile", *(word.format(pte=pte) for word in words))
    assert done.returncode == 2
    *_, last = done.stderr.splitlines()
    assert last.startswith("error: ") and said in last and "Traceback" not in done.stderr


def test_a_registered_model_is_exported_once(exported, tmp_path: Path) -> None:
    made = exported("toy_cnn", "fp32")
    artifacts = tmp_path / "artifacts"
    artifacts.mkdir()
    for path in (made.pte, made.etrecord, made.summary):
        (artifacts / path.name).write_bytes(path.read_bytes())
    stages: list[str] = []

    class Noted(Progress):
        def stage(self, text: str) -> None:
            stages.append(text)

    with watching(Noted()):
        found = find_or_export("toy_cnn", ProfileOptions(outdir=tmp_path))
        assert found == artifacts / made.pte.name and stages == [f"using {found}"]
        found.write_bytes(found.read_bytes() + b"\0")
        again = find_or_export("toy_cnn", ProfileOptions(outdir=tmp_path))
    assert again.read_bytes() == made.pte.read_bytes()
    steps = [stage for stage in stages if "fp32" in stage and not stage.startswith("using")]
    assert [step.split()[0] for step in steps] == ["tracing", "lowering", "checking"], "each names the format"


def _toy() -> tuple[torch.nn.Module, torch.Tensor]:
    """A module of a class that nothing can import, in the middle of its training."""

    class Toy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = torch.nn.Conv2d(3, 32, 3)
            self.norm = torch.nn.BatchNorm2d(32)
            self.head = torch.nn.Linear(32, 10)

        def forward(self, image: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
            found = torch.nn.functional.dropout(self.norm(self.stem(image)).relu(), training=self.training)
            made: torch.Tensor = self.head(found.mean((2, 3)))
            return made if scale is None else made * scale

    toy = Toy()
    toy(torch.rand(4, 3, 32, 32)).sum().backward()
    toy.norm.eval()
    return toy, torch.rand(1, 3, 32, 32)


SHORT = {"target": "host", "quick": True, "budget_s": 1}


@pytest.mark.usefixtures("host")
def test_a_module_in_memory_is_profiled_silently_and_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    toy, image = _toy()
    before = {name: value.clone() for name, value in toy.state_dict().items()}
    drawn = torch.get_rng_state()
    several = model_profiling.profile(toy, image, dtype=["fp32", "int8"], **SHORT)
    assert capfd.readouterr() == ("", "")
    assert toy.training and not toy.norm.training and toy.head.training
    assert toy.stem.weight.grad is not None and torch.equal(torch.get_rng_state(), drawn)
    assert all(torch.equal(value, before[name]) for name, value in toy.state_dict().items())
    assert isinstance(several, model_profiling.DtypesOutcome) and len(repr(several)) < 300
    assert several.report == Path("out_Toy/runs/dtypes.md") and several.report.is_file()
    assert several.verdict[0].partition(": ")[2] in rendered(several._repr_markdown_()).text
    outcome = several.outcomes["fp32"]
    assert outcome.main.run_dir == tmp_path / "out_Toy" / "runs" / "xnnpack_fp32" / outcome.main.run_dir.name
    assert outcome.report.is_file() and outcome.analysis is not None
    operators = outcome.analysis.operators.to_pandas()
    (line,) = operators.query("module_path == 'head'")["source_code"].unique()
    assert line == "made: torch.Tensor = self.head(found.mean((2, 3)))"
    assert outcome.analysis.samples.to_pandas()["ms"].gt(0).all()


@pytest.mark.usefixtures("emulated")
def test_a_module_with_keyword_inputs_is_proven_by_emulation(tmp_path: Path) -> None:
    toy, image = _toy()
    inputs = {"scale": torch.tensor(2.0), "image": image}
    outcome = model_profiling.profile(toy, inputs, target="emulated", name="scaled", outdir=tmp_path)
    assert outcome.program == tmp_path / "artifacts" / "scaled_xnnpack_fp32.pte"
    assert "SME2 kernels ran 2 of 2" in " ".join(outcome.verdict)


@pytest.mark.parametrize(
    ("inputs", "accepted"),
    [
        (None, "a tensor, a tuple of positional inputs, or a dict"),
        (3, "a tensor, a tuple of positional inputs, or a dict"),
        (np.zeros((1, 3, 32, 32)), "a tensor, a tuple of positional inputs, or a dict"),
        ((np.zeros((1, 3, 32, 32)),), "torch.Tensor"),
        ({"image": np.zeros((1, 3, 32, 32))}, "torch.Tensor"),
    ],
)
def test_inputs_of_another_type_are_a_type_error(inputs: Any, accepted: str) -> None:
    with pytest.raises(TypeError, match=accepted):
        model_profiling.export(_toy()[0], inputs)


def test_inputs_that_do_not_fit_and_tensors_elsewhere_say_so(tmp_path: Path) -> None:
    toy, image = _toy()
    for inputs, said in ((image[0, 0], "fails on its example inputs"), ({"picture": image}, "'picture'")):
        with pytest.raises(InputError, match=said):
            model_profiling.export(toy, inputs, outdir=tmp_path)
    assert toy.training, "also after a failure"
    with pytest.raises(InputError, match="tensors on meta"):
        model_profiling.export(toy.to("meta"), image, outdir=tmp_path)
    assert not list(tmp_path.iterdir())


CELL = """
class Branching(torch.nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x
"""


def test_what_prevents_an_export_is_quoted_from_a_notebook_s_cell(tmp_path: Path) -> None:
    name, made = "/nowhere/ipykernel_1/cell.py", {"torch": torch, "__name__": "__main__"}
    linecache.cache[name] = (len(CELL), None, CELL.splitlines(keepends=True), name)
    exec(compile(CELL, name, "exec"), made)
    with pytest.raises(ExportError) as caught:
        model_profiling.export(made["Branching"](), torch.rand(2), outdir=tmp_path)
    says(str(caught.value), "cell.py:4 in forward: return x if x.sum() > 0 else -x")
