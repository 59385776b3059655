"""Which operators reach SME2 kernels in a release of ExecuTorch, as one-layer programs showed when emulated.

`bench/sme2_probe.py` makes the record of the installed release.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from model_profiling.core.records import read_record
from model_profiling.core.safe_read import is_there

PROBE = "python bench/sme2_probe.py"
"""In a clone of the kit."""
_FOLDER = Path(__file__).parent / "probed"


@dataclass(frozen=True, slots=True)
class ProbedLayer:
    """A program of one layer in one number format, run with SME2 on."""

    layer: str
    format: str
    path: str
    """What the backend sees of the layer, in the words of `Backend.path_of`."""
    types: tuple[str, ...]
    """Those of `GraphNode.types`."""
    event: str
    """The backend's name for the operator that ran."""
    kernels: tuple[str, ...]
    """The SME2 kernels that ran, without packing; empty if the layer does not reach SME2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    schema_version: Literal[1] = 1
    executorch: str
    layers: tuple[ProbedLayer, ...]

    def takes_sme(self, path: str, types: tuple[str, ...]) -> bool | None:
        """Whether an operator with these types runs on SME2 kernels; None if none like it was tried."""
        tried = {bool(each.kernels) for each in self.layers if (each.path, each.types) == (path, types)}
        return tried.pop() if len(tried) == 1 else None

    def tried(self, path: str) -> bool:
        return any(each.path == path for each in self.layers)

    def formats(self, path: str) -> tuple[str, ...]:
        """The number formats in which operators of this path run on SME2 kernels. Formats that leave them in
        the types of an earlier one are not repeated."""
        first: dict[tuple[str, ...], str] = {}
        for each in self.layers:
            if each.path == path:
                first.setdefault(each.types, each.format)
        return tuple(name for types, name in first.items() if self.takes_sme(path, types))


def probe_file(executorch: str) -> Path | None:
    """The record of a release such as `1.5.1+cpu`, whether it exists or not; None if it names no release."""
    release = re.match(r"\d{1,9}(?:\.\d{1,9}){1,3}(?=\+|$)", executorch)
    return _FOLDER / f"executorch-{release[0]}.json" if release else None


@cache
def reach_in(executorch: str) -> Reach | None:
    """What was tried with this ExecuTorch; None if nothing was."""
    path = probe_file(executorch)
    return read_record(Reach, path, f"make it again: {PROBE}") if path and is_there(path) else None
