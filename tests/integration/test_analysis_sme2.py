"""SME2 on and off, for real under QEMU: what changed its name is paired, and no time is called a latency."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from said import says

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="QEMU's user mode runs on Linux only")


LAYERS = """
import torch
from torch import nn
from torch.nn.functional import pad

class SecondChannel(nn.Module):
    # The same convolution of one channel, with a second channel of zeros.
    def __init__(self, plain):
        super().__init__()
        self.plain = type(plain)(2, plain.out_channels, plain.kernel_size, stride=plain.stride)
        self.plain.weight = nn.Parameter(torch.cat((plain.weight, torch.zeros_like(plain.weight)), 1))
        self.plain.bias = plain.bias

    def forward(self, x):
        return self.plain(pad(x, (0, 0) * (x.dim() - 2) + (0, 1)))

torch.manual_seed(0)
SOUND, IMAGE = torch.randn(1, 1, 4096), torch.randn(1, 1, 16, 16)
AUDIO, GREY = nn.Conv1d(1, 32, 64, stride=32), nn.Conv2d(1, 16, 3)
for plain, given in ((AUDIO, SOUND), (GREY, IMAGE)):
    assert torch.allclose(SecondChannel(plain)(given), plain(given), atol=1e-5)

def audio():
    return AUDIO, (SOUND,)

def audio_of_two():
    return SecondChannel(AUDIO), (SOUND,)

def grey():
    return GREY, (IMAGE,)

def grey_of_two():
    return SecondChannel(GREY), (IMAGE,)

def depthwise():
    return nn.Conv2d(16, 16, 3, groups=16), (torch.randn(1, 16, 16, 16),)

def linear():
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)), (torch.randn(16, 64),)
"""


@pytest.fixture
def summary(emulated, tmp_path, sme2prof) -> Callable[[str, str], dict[str, Any]]:
    """Profiles a layer in a number format under emulation; returns its `analysis_summary.json`."""
    del emulated
    (tmp_path / "layers.py").write_text(LAYERS)

    def profile(name: str, dtype: str) -> dict[str, Any]:
        words = ("--dtype", dtype, "--target", "emulated", "--quick", "--outdir", tmp_path / name)
        done = sme2prof("profile", f"{tmp_path / 'layers.py'}:{name}", *words)
        assert done.returncode == 0, done.stderr
        return json.loads(next((tmp_path / name).rglob("analysis_summary.json")).read_text())

    return profile


def reached(summary: dict[str, Any]) -> tuple[int, int]:
    return summary["sme2_coverage"]["operators"], summary["sme2_coverage"]["operators_total"]


def advice(summary: dict[str, Any]) -> dict[str, Any] | None:
    return next((each for each in summary["findings"] if each["id"] == "misses-sme2"), None)


@pytest.mark.parametrize(("layer", "dtype"), [("audio", "fp32"), ("grey", "int8")])
def test_a_convolution_of_one_channel_reaches_sme2_with_a_second_one(summary, layer: str, dtype: str) -> None:
    before, after = summary(layer, dtype), summary(f"{layer}_of_two", dtype)
    assert (reached(before), reached(after)) == ((0, 1), (1, 1))
    found = advice(before)
    assert found is not None and advice(after) is None
    says(found["title"], "1 of 1 convolution", "reach SME2", "a second input channel of zeros")
    says(" ".join(found["steps"]), "one input channel is lowered as a depthwise one")
    assert "fewer channels" not in " ".join(found["steps"])
    # Nothing reaches SME2, so the cure comes first, and hardware is no advice.
    says(before["answers"]["what_sme2_changes"], "only matrix operator did not use SME2", "one input channel")
    assert before["answers"]["what_next"].startswith("To reach SME2: give the convolution a second input")
    assert "machine that has SME2" not in before["answers"]["what_next"]


def test_4_bit_weights_with_a_scale_per_block_are_sent_to_int8_dynamic(summary) -> None:
    blocks, dynamic = summary("linear", "int4:32"), summary("linear", "int8-dynamic")
    found = advice(blocks)
    assert found is not None and advice(dynamic) is None
    says(found["title"], "2 of 2 linear layers reach SME2: export them as int8-dynamic")
    says(" ".join(found["steps"]), "4-bit weights with a scale per block")
    assert blocks["answers"]["what_next"].startswith(
        "To reach SME2: export the 2 linear layers as int8-dynamic"
    )
    assert "machine that has SME2" not in blocks["answers"]["what_next"]
    assert reached(dynamic) == (2, 2)
