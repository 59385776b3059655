"""Programs of known work: stacks of equal layers, from 0.3 to 300 ms on a Neoverse-N1.

Layers of three kinds feel a neighbour differently: `conv` fits into the second-level cache, `linear` reads
its weights from beyond it, `large` computes for long with little data.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from model_profiling.core.files import write_text
from model_profiling.export import export_model

_MODELS = """
import torch
from torch import nn

LAYERS = {
    "conv": (lambda: nn.Conv2d(16, 16, 3, padding=1), (1, 16, 14, 14)),
    "linear": (lambda: nn.Linear(768, 768), (16, 768)),
    "large": (lambda: nn.Linear(768, 768), (768, 768)),
}


def stack(kind, count):
    torch.manual_seed(0)
    layer, shape = LAYERS[kind]
    return nn.Sequential(*[layer() for _ in range(count)]).eval(), (torch.randn(*shape),)

"""


class Program(NamedTuple):
    kind: str
    layers: int

    @property
    def name(self) -> str:
        return f"{self.kind}_{self.layers}"


class Pair(NamedTuple):
    baseline: Program
    candidate: Program

    @property
    def title(self) -> str:
        twin = self.baseline == self.candidate
        return f"{self.baseline.name} against {'itself' if twin else self.candidate.name}"

    @property
    def more_work(self) -> float | None:
        """How much more the candidate computes; None for layers of another kind."""
        alike = self.baseline.kind == self.candidate.kind
        return self.candidate.layers / self.baseline.layers - 1 if alike else None


def _pair(kind: str, layers: int, other: int, other_kind: str = "") -> Pair:
    return Pair(Program(kind, layers), Program(other_kind or kind, other))


PAIRS = {
    pair.title: pair
    for pair in (
        _pair("conv", 10, 10),
        _pair("linear", 50, 50),
        _pair("conv", 100, 101),
        _pair("linear", 50, 51),
        _pair("conv", 100, 200),
        _pair("linear", 2, 40),
        _pair("conv", 10, 600),
        _pair("linear", 8, 10, "large"),
    )
}
"""1, 1.01, 1.02, 2, 20 and 60 times the work; the last compares layers of different kinds."""


def exported(folder: Path, programs: set[Program]) -> dict[Program, Path]:
    """The file of each program, made in `folder` unless it is there."""
    source = folder / "equal.py"
    made = (
        f"def {each.name}():\n    return stack({each.kind!r}, {each.layers})\n" for each in sorted(programs)
    )
    write_text(source, _MODELS + "\n\n".join(made))
    found = {}
    for each in sorted(programs):
        outdir = folder / each.name
        kept = sorted(outdir.glob("*.pte"))
        pte = kept[0] if kept else export_model(f"{source}:{each.name}", dtype="fp32", outdir=outdir).pte
        found[each] = pte
    return found
