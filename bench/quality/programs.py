"""Programs that differ by a known amount of work: stacks of equal layers.

An inference takes about three milliseconds, which is about as long as a scheduler lets a process run before
another has its turn: much shorter ones hardly meet a busy neighbour, whatever they are measured with.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from model_profiling.core.files import write_text
from model_profiling.export import export_model

TWIN = "100 again"
LAYERS = {"100": 100, TWIN: 100, "101": 101, "103": 103, "105": 105}
"""The programs of a launch, by name. The twin is the first once more, in a process of its own."""


class Pair(NamedTuple):
    baseline: str
    candidate: str

    @property
    def more_work(self) -> float:
        return LAYERS[self.candidate] / LAYERS[self.baseline] - 1


EFFECTS = {
    0.00: Pair("100", TWIN),
    0.01: Pair("100", "101"),
    0.02: Pair("101", "103"),  # 1.98%, and one process less than with 102 layers
    0.03: Pair("100", "103"),
    0.05: Pair("100", "105"),
}

_MODELS = """
import torch


class Stack(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Sequential(*[torch.nn.Conv2d(16, 16, 3, padding=1) for _ in range(layers)])

    def forward(self, x):
        return self.body(x)


class Model:
    layers = 0

    def get_eager_model(self):
        return Stack(self.layers).eval()

    def get_example_inputs(self):
        return (torch.randn(1, 16, 14, 14),)

"""


def exported(folder: Path, names: list[str]) -> dict[str, Path]:
    """The program of each name, made in `folder` unless it is there."""
    source = folder / "equal.py"
    counts = sorted({LAYERS[name] for name in names})
    classes = (f"\nclass Layers{count}(Model):\n    layers = {count}\n" for count in counts)
    write_text(source, _MODELS + "\n".join(classes))
    made: dict[int, Path] = {}
    for count in counts:
        outdir = folder / f"{count}_layers"
        kept = sorted(outdir.glob("*.pte"))
        made[count] = (
            kept[0] if kept else export_model(f"{source}:Layers{count}", dtype="fp32", outdir=outdir).pte
        )
    return {name: made[LAYERS[name]] for name in names}
