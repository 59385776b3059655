"""Finds out which layers reach SME2 kernels in which number format with the installed ExecuTorch.

    python bench/sme2_probe.py

Exports programs of one layer, runs them under emulation and records the kernels that ran. The analysis reads
the record of the release that a run used.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.analysis.kernels import executed_kernels
from model_profiling.core.errors import SetupError
from model_profiling.core.number_formats import FORMATS
from model_profiling.core.records import write_record
from model_profiling.core.stdio import checked_output, current_progress
from model_profiling.etdump import read_etdump
from model_profiling.export import export_model
from model_profiling.models.registry import FormatNotForModel
from model_profiling.program.category import MATRIX, operator_type
from model_profiling.program.delegates import delegate_named, describe
from model_profiling.program.matrix_work import ProbedLayer, Reach, probe_file
from model_profiling.program.pte import read_program
from model_profiling.runner.__main__ import make_ready
from model_profiling.targets import Job
from model_profiling.targets.emulated import EmulatedTarget
from model_profiling.targets.job import Outcome

if TYPE_CHECKING:
    from torch import Tensor, nn

_FORMATS = (*FORMATS, "int4:32")
_TOGETHER = 2
"""Programs that run at a time, while the next ones are exported."""


def probe(folder: Path) -> Reach:
    """Try every layer in every number format; the programs are kept in `folder`."""
    target = EmulatedTarget()
    target.prepare()
    assert target.build is not None
    with ThreadPoolExecutor(_TOGETHER) as pool:
        running = [
            (name, dtype, pte, pool.submit(target.execute, job, folder, pte.stem))
            for dtype in _FORMATS
            for name, pte in _programs(dtype, folder)
            for job in (Job(pte, warmup=0, kernels=True, etdump=True),)
        ]
    layers = tuple(_probed(name, dtype, pte, ran.result()) for name, dtype, pte, ran in running)
    return Reach(executorch=target.build.executorch_version.partition("+")[0], layers=layers)


def _layers() -> dict[str, tuple[nn.Module, tuple[Tensor, ...]]]:
    """By name, a module and its inputs: small, but with more than one tile of a kernel where it has rows."""
    import torch
    from torch import nn

    class Product(nn.Module):
        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            return left @ right

    line, image = torch.rand(1, 16, 32), torch.rand(1, 16, 8, 8)
    return {
        "linear layer": (nn.Linear(64, 64), (torch.rand(16, 64),)),
        "linear layer, one row": (nn.Linear(64, 64), (torch.rand(1, 64),)),
        "3x3 convolution": (nn.Conv2d(16, 16, 3), (image,)),
        "1x1 convolution": (nn.Conv2d(16, 16, 1), (image,)),
        "convolution of one channel": (nn.Conv2d(1, 16, 3), (image[:, :1],)),
        "depthwise convolution": (nn.Conv2d(16, 16, 3, groups=16), (image,)),
        "grouped convolution": (nn.Conv2d(16, 16, 3, groups=4), (image,)),
        "1-D convolution": (nn.Conv1d(16, 16, 3), (line,)),
        "transposed convolution": (nn.ConvTranspose2d(16, 16, 2, stride=2), (image,)),
        "product of two activations": (Product(), (line, torch.rand(1, 32, 16))),
    }


def _programs(dtype: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """Export each layer; a format that does not change a layer has no program of it."""
    for number, (name, (module, inputs)) in enumerate(_layers().items()):
        current_progress().stage(f"{name} as {dtype}")
        try:
            yield name, export_model(module, inputs, dtype=dtype, name=f"layer_{number}", outdir=folder).pte
        except FormatNotForModel:
            continue


def _probed(name: str, dtype: str, pte: Path, ran: Outcome) -> ProbedLayer:
    delegates = [each for method in read_program(pte).methods for each in method.delegates]
    matrix = [
        (delegate_named(each.backend), node)
        for each in delegates
        for node in each.nodes
        if delegate_named(each.backend).multiplies(node)
    ]
    events = read_etdump(ran.etdump).names if ran.etdump else ()
    ((backend, node),) = matrix
    (event,) = {operator_type(each) for each in events if describe(each).category in MATRIX}
    kernels = [
        use.kernel.name
        for use in executed_kernels(ran.result.kernels)
        if use.kernel.isa == "SME2" and use.kernel.role != "packing"
    ]
    return ProbedLayer(name, dtype, backend.path_of(node), node.types, event, tuple(kernels))


def _record() -> list[str]:
    with tempfile.TemporaryDirectory(prefix="sme2prof-probe-") as folder:
        found = probe(Path(folder))
    path = probe_file(found.executorch)
    if path is None:
        raise SetupError(f"ExecuTorch {found.executorch} is not a release", "install a release of ExecuTorch")
    write_record(path, found)
    reached = sum(bool(each.kernels) for each in found.layers)
    return [f"{reached} of {len(found.layers)} layers and formats reach SME2; recorded in {path}"]


@checked_output
def main() -> int:
    return make_ready(_record)


if __name__ == "__main__":
    sys.exit(main())
