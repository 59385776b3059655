"""Which layer a number format ruins, and that keeping it in float32 restores the outputs."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn

from model_profiling.export.records import read_export
from model_profiling.program.graph_file import make_graph


class Uneven(nn.Module):
    """The inputs of one layer have very different sizes, which 8 bits with one scale cannot hold."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.wide = nn.Linear(16, 32), nn.Linear(32, 32)
        self.ruined, self.last = nn.Linear(32, 32), nn.Linear(32, 8)
        self.relu = nn.ReLU()
        scale = torch.ones(32)
        scale[0] = 3000.0
        with torch.no_grad():
            self.wide.weight.mul_(scale[:, None])
            self.wide.bias.mul_(scale)
            self.ruined.weight.div_(scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.first(x))
        return self.last(self.ruined(self.wide(x)))


def make() -> tuple[nn.Module, tuple[torch.Tensor]]:
    return Uneven(), (torch.randn(64, 16, generator=torch.Generator().manual_seed(1)),)


def test_int8_names_the_badly_scaled_layer_and_keeping_it_restores_the_outputs(
    sme2prof, tmp_path: Path
) -> None:
    """And what the layers to keep cost in time is measured."""
    asked = ("export", f"{__file__}:make", "--dtype", "int8", "--by-layer", "--outdir", tmp_path, "--json")
    done = sme2prof(*asked)
    assert done.ok, done.stderr
    speedup = json.loads(done.stdout)["kept_speedup"]
    assert 0 < speedup["low"] <= speedup["ratio"] <= speedup["high"] and speedup["rounds"] >= 6
    (pte,) = tmp_path.glob("*.pte")
    made = read_export(pte)
    noise = made.accuracy.layers
    assert noise is not None and noise.first is not None and noise.suggested is not None
    assert noise.worst[0].path == noise.first.path == "ruined" and noise.worst[0].own_db < 10
    assert noise.worst[0].line.startswith("test_accuracy_layers.py:")
    assert {layer.path for layer in noise.layers} >= {"first", "wide", "ruined", "last"}
    assert min(layer.own_db for layer in noise.layers if layer.path != "ruined") > 30
    assert noise.suggested.layers[0] == "ruined" and "last" not in noise.suggested.layers
    assert noise.kept[0].snr_db < 10 and noise.suggested.snr_db > 25
    graph = make_graph(made.pte, made.etrecord)
    assert graph.noise == noise
