"""The kit's own image encoder, made small, in every dtype: exported whole, checked against PyTorch,
and run. At full size: `python bench/zoo_campaign.py edgetam_image_encoder ...`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from edgetam_weights import checkpoint_weights

from model_profiling.core.errors import InputError
from model_profiling.export import export_model
from model_profiling.models import register_model
from model_profiling.models.edgetam_image_encoder.model import ImageEncoder, settle_encoder
from model_profiling.targets.host import HostTarget
from model_profiling.targets.job import Job
from model_profiling.workflow.profile import ProfileOptions, find_or_export


def edgetam() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """One block a stage, the first gated: what one export of each kind costs seconds."""
    network = ImageEncoder(depths=(1, 1, 1, 1))
    settle_encoder(network)
    return network, (torch.randn(1, 3, 64, 64),)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8"])
def test_exported_whole_and_run(dtype: str, exported, tmp_path: Path) -> None:
    made = exported(f"{__file__}:edgetam", dtype)
    record = json.loads(made.summary.read_text())
    assert record["accuracy"]["lowering"]["ok"]
    assert record["coverage"]["partitions"] == 1 and not record["coverage"]["undelegated"]
    target = HostTarget()
    target.prepare()
    outcome = target.execute(Job(made.pte, runs=2, warmup=0), tmp_path, "run")
    assert len(outcome.result.iterations_ns) == 2


def test_an_export_with_a_checkpoint_is_made_again_when_the_checkpoint_changes(tmp_path: Path) -> None:
    checkpoint = tmp_path / "edgetam.pt"
    torch.save({"model": checkpoint_weights()}, checkpoint)
    spec = f"edgetam_image_encoder@size=64,checkpoint={checkpoint}"
    asked = ProfileOptions(dtype="fp32", outdir=tmp_path)
    first = find_or_export(spec, asked)
    assert first.name == "edgetam_image_encoder_size64_checkpoint_edgetam_xnnpack_fp32.pte"
    made = first.stat().st_mtime_ns
    assert find_or_export(spec, asked).stat().st_mtime_ns == made
    held = checkpoint_weights()
    held["image_encoder.neck.convs.0.conv.bias"] += 1.0
    torch.save({"model": held}, checkpoint)
    assert find_or_export(spec, asked).stat().st_mtime_ns > made


def test_a_dtype_the_model_does_not_support_is_said_before_anything_is_loaded(own_models: None) -> None:
    del own_models
    register_model("only_floats", "nowhere:Model", not_supported={"int8": "its answers are angles"})
    with pytest.raises(InputError, match=r"'only_floats' .*int8: its answers are angles; .*--dtype fp32"):
        export_model("only_floats", dtype="int8")
    with pytest.raises(InputError, match=r"'edgetam_image_encoder' .*int8: "):
        export_model("edgetam_image_encoder@size=64", dtype="int8")
