"""How long emulation of a program is going to take: half precision is computed in software there, and a large
image keeps it busy for an hour."""

from __future__ import annotations

from pathlib import Path

from model_profiling.errors import FormatError
from model_profiling.program import GraphNode, Instruction, read_program

_PER_SECOND = {"fp16": 30e6, "int8": 400e6}
_PER_SECOND_FP32 = 110e6
"""Operations that QEMU did on a Neoverse-N1 for the toy CNN and MobileNetV3-small: within a factor of 2."""


def emulated_seconds(program: Path) -> float:
    """About how long one inference takes under emulation; 0 for a program that cannot be read, which
    whoever runs it says."""
    try:
        methods = read_program(program).methods
    except (FormatError, OSError):
        return 0.0
    steps: list[Instruction | GraphNode] = []
    for method in methods:
        steps += (step for step in method.instructions if step.kind == "operator")
        steps += (node for delegate in method.delegates for node in delegate.nodes)
    return sum(step.flops / _per_second(step) for step in steps)


def _per_second(step: Instruction | GraphNode) -> float:
    dtype = step.inputs[0].dtype if step.inputs else ""
    return _PER_SECOND["int8"] if "int8" in dtype else _PER_SECOND.get(dtype, _PER_SECOND_FP32)
