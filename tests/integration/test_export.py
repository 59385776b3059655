"""Exports that must come out right, for the zoo and for models the kit has never seen."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from said import says

from model_profiling.cli.main import main
from model_profiling.core import process
from model_profiling.core.errors import ExportError
from model_profiling.core.number_formats import parse_format
from model_profiling.export import export_model, lowering
from model_profiling.export.accuracy import deviation
from model_profiling.export.exporter import accuracy_warnings
from model_profiling.export.records import Accuracy, read_export
from model_profiling.program.pte import read_program

ROOT = Path(__file__).resolve().parents[2]
UNSEEN = Path(__file__).parents[1] / "models" / "unseen.py"
ZOO = ROOT / "tests" / "zoo"
Run = Callable[..., process.Completed]


@pytest.mark.parametrize(
    ("model", "dtype"),
    [
        *(pytest.param("toy_cnn", dtype, marks=pytest.mark.quick) for dtype in ("fp32", "fp16", "int8")),
        *(("mobilenet_v3_small", dtype) for dtype in ("fp32", "fp16", "int8")),
    ],
)
def test_the_zoo_exports_within_tolerance(model: str, dtype: str, exported: Callable[..., object]) -> None:
    artifact = exported(model, dtype)
    facts = json.loads(artifact.summary.read_text())
    lowering, precision = facts["accuracy"]["lowering"], facts["accuracy"]["precision"]
    assert lowering["max_rel"] <= lowering["tolerance"] == {"fp32": 1e-4, "fp16": 3e-2, "int8": 0.1}[dtype]
    assert precision["ok"]
    assert facts["sha256"] == hashlib.sha256(artifact.pte.read_bytes()).hexdigest()
    method = read_program(artifact.pte).methods[0]
    assert len(method.operators) == len(facts["coverage"]["undelegated"])
    assert len(method.delegates) == facts["coverage"]["partitions"] >= 1
    assert facts["coverage"]["share"] >= (1.0 if model == "toy_cnn" or dtype == "fp16" else 0.8)
    assert facts["coverage"]["inserted_transposes"] >= 2, "NCHW comes in, NHWC is computed"
    assert artifact.etrecord.stat().st_size > 0
    assert facts["versions"]["executorch"]


@pytest.mark.parametrize("factory", ["unet", "keyword"])
def test_a_model_the_kit_has_never_seen(factory: str, exported: Callable[..., object]) -> None:
    facts = json.loads(exported(f"{UNSEEN}:{factory}").summary.read_text())
    assert facts["model"] == f"unseen_{factory}"
    assert facts["accuracy"]["lowering"]["ok"]


def test_what_is_not_delegated_is_listed_with_a_reason(exported: Callable[..., object]) -> None:
    facts = json.loads(exported(f"{ZOO / 'distilbert.py'}:model").summary.read_text())
    outside = {entry["operator"]: entry for entry in facts["coverage"]["undelegated"]}
    assert outside["aten.embedding.default"]["why"] == "no rule"
    assert outside["aten.view_copy.default"]["reason"] == "invalid dtype (bool)"
    assert all(entry["reason"] for entry in outside.values())
    assert facts["coverage"]["operators"] == facts["coverage"]["delegated"] + len(
        facts["coverage"]["undelegated"]
    )


def test_outputs_that_vanish_are_no_mismatch_but_tell_nothing() -> None:
    """Random weights may damp a deep model to 1e-41: PyTorch keeps such numbers, backends take them for 0."""
    import torch

    gone = deviation([torch.zeros(2)], [torch.tensor([1e-41, -3e-42])], 1e-4)
    assert gone.ok and gone.vanished
    (said,) = accuracy_warnings(parse_format("fp32"), Accuracy(gone, gone), calibrated=False)
    assert "1e-41" in said and "differ" not in said
    small = deviation([torch.zeros(2)], [torch.tensor([1e-30, 0.0])], 1e-4)
    assert not small.ok and not small.vanished and small.max_rel == 1
    chosen = deviation([torch.tensor([0])], [torch.tensor([0])], 1e-4)
    assert chosen.ok and not chosen.vanished, "the first class is an answer"
    other = deviation([torch.tensor([501])], [torch.tensor([500])], 0.1)
    assert not other.ok and other.max_rel == 1, "the next class is another answer"


@pytest.mark.parametrize(
    ("factory", "inputs"),
    [
        ("counter", ("3 float32",)),
        ("in_place", ("3 float32",)),
        ("nested", ("2 float32", "2 float32", "scalar float32")),
    ],
)
def test_state_and_inputs_of_any_form_are_pytorchs(factory: str, inputs: tuple[str, ...], tmp_path) -> None:
    """ExecuTorch leaves buffers that are written to as garbage unless told; the count begins at 5."""
    result = export_model(f"{UNSEEN}:{factory}", outdir=tmp_path)
    assert result.inputs == inputs and result.accuracy.lowering.max_abs == 0.0


def test_fp32_is_fp32_whatever_the_model_was_made_in(tmp_path: Path) -> None:
    result = export_model(f"{UNSEEN}:double", outdir=tmp_path)
    assert result.inputs == ("2x8 float32",)
    assert result.coverage.delegated == 1


def test_the_portable_backend_delegates_nothing(exported: Callable[..., object]) -> None:
    facts = json.loads(exported("toy_cnn", "fp32", "portable").summary.read_text())
    assert facts["coverage"]["delegated"] == facts["coverage"]["partitions"] == 0
    assert len(facts["coverage"]["undelegated"]) > 5
    assert {each["replacement"] for each in facts["coverage"]["undelegated"]} == {""}, "it takes nothing"
    assert facts["accuracy"]["lowering"]["ok"]


def test_the_same_seed_gives_the_same_bytes(sme2prof, exported, tmp_path: Path) -> None:
    first = exported("toy_cnn", "fp16")
    done = sme2prof("export", "toy_cnn", "--dtype", "fp16", "--outdir", tmp_path, "--save-graph")
    assert done.returncode == 0, done.stderr
    again = tmp_path / "toy_cnn_xnnpack_fp16.pte"
    assert again.read_bytes() == first.pte.read_bytes()
    nodes = json.loads((tmp_path / "toy_cnn_xnnpack_fp16.graph.json").read_text())["nodes"]
    convolutions = [node for node in nodes if node["operator"] == "aten.convolution.default"]
    assert [node["module_path"] for node in convolutions] == ["features.0", "features.2", "features.4"]
    assert convolutions[0]["outputs"] == [{"shape": [1, 32, 112, 112], "dtype": "float16"}]
    assert convolutions[0]["source"].startswith("model.py:")
    assert len({node["debug_handle"] for node in convolutions}) == 3


def test_int8_is_calibrated_on_what_the_user_gives(tmp_path: Path) -> None:
    def accuracy(name: str, batches: str | None) -> Accuracy:
        options = {"dtype": "int8", "outdir": tmp_path, "name": name, "calibration": batches}
        return export_model(f"{UNSEEN}:linear", **options).accuracy

    own, wide = (
        accuracy(name, batches) for name, batches in (("own", None), ("wide", f"{UNSEEN}:wide_batches"))
    )
    assert wide.precision.max_abs > 2 * own.precision.max_abs, "a range ten times too wide costs precision"
    assert accuracy("lists", f"{UNSEEN}:list_batches").lowering.ok, "batches may be lists"


@pytest.mark.quick
@pytest.mark.parametrize(
    "dtype, word, weights",
    [
        ("int8-dynamic", "int8-dynamic", {"qcint8"}),
        ("int4", "int4", {"qbint4"}),
        ("int4:32", "int4-32", {"qbint4"}),
        (f"{UNSEEN}:only_linear", "own-only_linear", {"qcint8"}),
    ],
)
def test_formats_that_the_field_ships(dtype: str, word: str, weights: set[str], tmp_path: Path) -> None:
    """The linear layers change; of a convolution and a ReLU, nobody quantizes the input at run time."""
    result = export_model("toy_cnn", dtype=dtype, outdir=tmp_path)
    assert result.pte.name == f"toy_cnn_xnnpack_{word}.pte"
    assert result.accuracy.lowering.ok and result.accuracy.precision.ok
    nodes = [node for part in read_program(result.pte).methods[0].delegates for node in part.nodes]
    assert {node.inputs[1].dtype for node in nodes if node.kind == "FullyConnected"} == weights
    assert {node.inputs[1].dtype for node in nodes if node.kind == "Conv2d"} == {"fp32"}
    assert result.coverage.operators == 9, "quantizing adds no operator"


@pytest.mark.parametrize(
    "dtype, kept, other", [("int8", "fp32", "qcint8"), ("int4", "fp32", "qbint4"), ("fp16", "fp32", "fp16")]
)
def test_layers_are_kept_in_float32(dtype: str, kept: str, other: str, tmp_path: Path) -> None:
    result = export_model(f"{UNSEEN}:two_linear", dtype=dtype, outdir=tmp_path, keep=("0",))
    nodes = [node for part in read_program(result.pte).methods[0].delegates for node in part.nodes]
    assert [node.inputs[1].dtype for node in nodes if node.kind == "FullyConnected"] == [kept, other]
    assert result.keep == ("0",) and result.pte.stem.endswith(f"{dtype}-kept")


def test_a_program_that_does_not_run_is_refused_with_a_cure_that_helps(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"does not run: .* 0x1") as found:
        export_model(f"{UNSEEN}:padded", dtype="int8-dynamic", outdir=tmp_path)
    says(found.value.fix, "--keep Conv2d=fp32")
    kept = export_model(f"{UNSEEN}:padded", dtype="int8-dynamic", outdir=tmp_path, keep=("Conv2d",))
    assert kept.accuracy.ok
    said = RuntimeError("required rank 4 tensor to use channels_last format")
    assert "--keep Conv2d=fp32" in lowering.cure(said)


def test_scores_of_a_vocabulary_have_a_top1_and_features_do_not(tmp_path: Path) -> None:
    import torch

    llama = Path(__file__).parents[1] / "zoo" / "llama.py"
    result = export_model(f"{llama}:model", dtype="fp32", outdir=tmp_path)
    (output,) = result.accuracy.precision.outputs
    assert output.shape[-1] == 200 and output.top1_rows == output.shape[1]
    features = [torch.randn(1, 7, 64)]
    assert deviation(features, features, 1e-4, 200).outputs[0].top1_rows == 0


def test_accuracy_is_that_of_real_inputs(tmp_path: Path) -> None:
    import numpy as np

    real = tmp_path / "real.npz"
    np.savez(real, np.random.default_rng(1).standard_normal((5, 2, 8)))
    for dtype in ("int8", "int8-dynamic"):
        result = export_model(f"{UNSEEN}:linear", dtype=dtype, outdir=tmp_path, calibration=str(real))
        (output,) = result.accuracy.precision.outputs
        assert (result.accuracy.real_inputs, output.shape) == (5, (10, 8))
        assert output.top1_rows == 10, "scores in two dimensions, of two rows each"
        assert result.calibration == (str(real) if dtype == "int8" else "")


@pytest.mark.parametrize(
    "words, error",
    [
        (["branching"], r"torch\.export .*'unseen_branching'.* at unseen\.py:\d+ in forward: if doubled"),
        (["word_beside"], r"'unseen_word_beside' returns a str\b"),
        (
            ["singular"],
            r"linalg_svd.* Core ATen .* at unseen\.py:\d+ in forward: return self\.compute",
        ),
        (["spectrum"], r"aten\.abs\.default .*complex64.* at unseen\.py:\d+ in forward.*; "),
        (["total"], r"ETRecord .*item.* at unseen\.py:\d+ in forward: return self\.compute"),
        (["mixed_dtype", "--dtype", "fp16"], r"\bfp16: .* at unseen\.py:\d+ in forward"),
        (["wrong_inputs"], r"example inputs: RuntimeError"),
        (["raises"], r"ValueError: the weights are not here at unseen\.py:\d+"),
        (["leaves"], r"unseen\.py:leaves .*SystemExit: 0 at unseen\.py:\d+ in leaves"),
        (["broken"], r"'unseen_broken' returned str; .*torch\.nn\.Module"),
        (["caching_unregistered"], r"mutated .*register_buffer.*TorchExportableModuleWithStaticCache"),
        (["growing"], r"outside its buffers; .*TorchExportableModuleWithStaticCache"),
        (["returns_cache"], r"returns a Cache\b.*TorchExportableModuleWithStaticCache"),
        (["linear", "--dtype", "int4:32"], r"no linear layer of a multiple of 32 inputs"),
        (["linear", "--dtype", "int4:30"], r"no groups of 30; .*int4:32"),
        (["linear", "--dtype", "int5"], r"no number format 'int5'; .*int8-dynamic"),
        (["linear", "--dtype", f"{UNSEEN}:returns_a_number"], r"returns_a_number gives a int; .*Quantizer"),
        (["two_linear", "--dtype", "int8", "--keep", "2=fp32"], r"no module '2' to keep; it has 0, 1"),
        (["linear", "--dtype", "fp16", "--keep", "weight"], r"'weight' does not say what to keep"),
        (["linear", "--dtype", "int8", "--calibrate", f"{ZOO}/none.npz"], r"none\.npz cannot be read"),
        (["linear", "--dtype", "int8", "--calibrate", f"{UNSEEN}:no_iterator"], r"the data is not here at"),
        (["linear", "--dtype", "int8", "--backend", "portable"], r"portable .*int8;"),
        (["linear", "--name", "a/b"], r"'a/b' is not a valid model name"),
        (["linear", "--dtype", "int8", "--calibrate", f"{UNSEEN}:misshapen_batches"], r"failed at batch 0"),
        (["linear", "--dtype", "int8", "--calibrate", f"{UNSEEN}:no_batches"], r"calibration .* no inputs"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_file(words: list[str], error: str, tmp_path, capfd) -> None:
    """In this process: loading torch and ExecuTorch anew for each would take longer than the rest."""
    out = tmp_path / "out"
    assert main(["export", f"{UNSEEN}:{words[0]}", *words[1:], "--outdir", str(out)]) == 2
    said = capfd.readouterr().err
    assert re.search(error, said), said
    assert said.count("\n") == 1
    assert not any(path.is_file() for path in out.rglob("*"))


@pytest.mark.parametrize(
    "factory, dtype, error",
    [
        ("logarithm", "fp32", r"NaN .*example inputs, .*aten\.log\.default at unseen"),
        ("masked", "fp32", r"aten\.softmax\.int at unseen\.py:\d+ in forward: return self\.compute"),
        (
            "large",
            "fp16",
            r"fp16: 4 output values .*aten\.mul\.Tensor in scale at"
            r" unseen\.py:\d+ in forward: return x \* 10\.0; .*fp32"
            r".*without success: --optimize and --keep scale=fp32",
        ),
    ],
)
def test_a_program_that_gives_no_numbers_is_left_with_its_verdict(
    factory: str, dtype: str, error: str, tmp_path: Path, sme2prof: Run
) -> None:
    done = sme2prof("export", f"{UNSEEN}:{factory}", "--dtype", dtype, "--outdir", tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    pte = tmp_path / f"unseen_{factory}_xnnpack_{dtype}.pte"
    assert re.search(error, done.stderr), done.stderr
    assert done.stderr.endswith(f" {pte}\n")
    kept = read_export(pte)
    assert kept.accuracy.problem in done.stderr and not kept.accuracy.ok
    assert kept.accuracy.lowering and kept.accuracy.lowering.verdict == "identical"


@pytest.mark.parametrize(
    "factory, fine, error, flag, cure",
    [
        (
            "loud",
            "quiet",
            r"overflows in fp16: .*aten\.mul\.Tensor in loud at unseen",
            "--keep loud=fp32",
            {"keep": ["loud"]},
        ),
        (
            "wide_norm",
            "narrow_norm",
            r"though PyTorch does: .*aten\.layer_norm\.default in norm at",
            "--optimize",
            {"optimize": True},
        ),
    ],
)
def test_what_helps_is_named_after_it_was_tried(
    factory: str, fine: str, error: str, flag: str, cure: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(ExportError) as raised:
        export_model(f"{UNSEEN}:{factory}", dtype="fp16", outdir=tmp_path)
    assert re.search(error, raised.value.problem), raised.value.problem
    says(raised.value.fix, f"export with {flag} (this was tried: the outputs then agree with PyTorch)")
    assert export_model(f"{UNSEEN}:{factory}", dtype="fp16", outdir=tmp_path, **cure).accuracy.ok
    assert export_model(f"{UNSEEN}:{fine}", dtype="fp16", outdir=tmp_path).accuracy.ok


def test_layers_that_compute_something_else_than_pytorch_are_named(tmp_path: Path) -> None:
    """ExecuTorch 1.5.1 reads a row of 256 or more fp16 values as fp32 values in LayerNorm."""
    wrong = export_model(f"{UNSEEN}:norms", dtype="fp16", outdir=tmp_path)
    (said,) = wrong.warnings
    assert not wrong.accuracy.ok and not wrong.accuracy.problem
    says(said, "differ from PyTorch in fp16", "aten.layer_norm.default in 0", "export with --optimize")
    for cure in ({"keep": ("LayerNorm",)}, {"optimize": True}):
        right = export_model(f"{UNSEEN}:norms", dtype="fp16", outdir=tmp_path, **cure)
        assert right.accuracy.ok and not right.warnings
    fine = export_model(f"{UNSEEN}:narrow_norms", dtype="fp16", outdir=tmp_path)
    assert fine.accuracy.ok and not fine.accuracy.where


@pytest.mark.parametrize(
    ("factory", "dtype"),
    [
        ("again", "fp16"),
        ("again", "int8"),
        ("positions", "int8"),
        ("positions", "int8-dynamic"),
        ("caching", "fp32"),
    ],
)
def test_what_exporting_used_to_spoil_agrees_with_pytorch(factory: str, dtype: str, tmp_path: Path) -> None:
    """ExecuTorch changes the weights of a layer that is called `again`; indexes stay integers when a model is
    quantized; of transformers' static cache tracing sees each tensor twice, in buffers and in the cache."""
    made = export_model(f"{UNSEEN}:{factory}", dtype=dtype, outdir=tmp_path)
    assert made.accuracy.ok
    assert factory != "again" or len(made.coverage.undelegated) == 1, "the slice of a dimension"


def test_answers_and_infinities_that_are_meant(tmp_path: Path) -> None:
    result = export_model(f"{UNSEEN}:choice", outdir=tmp_path)
    assert result.accuracy.ok and result.accuracy.lowering
    assert [output.dtype for output in result.accuracy.lowering.outputs] == ["int64", "bool", "float32"]
    assert replace(read_export(result.pte), graph=None) == result


def test_a_full_disk_is_said_and_nothing_half_written_stays(sme2prof: Run, tiny_disk: Path) -> None:
    done = sme2prof("export", "toy_cnn", "--outdir", tiny_disk / "artifacts")
    assert done.returncode == 2
    assert "no space left on device" in done.stderr
    assert not any(path.is_file() for path in tiny_disk.rglob("*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_export_leaves_no_half_file(number: signal.Signals, tmp_path, warm_words) -> None:
    """The program is stopped the moment its first part file appears, between making and renaming it."""
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        child = subprocess.Popen(
            [*warm_words, "-m", "model_profiling", "export", "toy_cnn", "--outdir", str(folder)],
            cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        deadline = time.monotonic() + 200
        while not any(path.name.startswith(".toy_cnn") for path in folder.iterdir()):
            assert child.poll() is None, "it ended before a part file was seen"
            assert time.monotonic() < deadline
            time.sleep(0.002)
        os.kill(child.pid, number)
        _, said = child.communicate(timeout=60)
        if child.returncode:  # a busy machine may send the signal when all is done
            break
    assert child.returncode == 130, said
    assert said.decode().startswith("error: interrupted")
    assert list(folder.iterdir()) == []
