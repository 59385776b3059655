"""Runs a fresh program once on the ExecuTorch runtime and holds its outputs against PyTorch's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.errors import ExportError
from model_profiling.export.quietly import quietly
from model_profiling.export.records import Accuracy, Deviation
from model_profiling.export.tracing import Eager, Traced

if TYPE_CHECKING:
    import torch

    Tensors = list[torch.Tensor]

LOWERING_TOLERANCE = {"fp32": 1e-4, "fp16": 3e-2, "int8": 0.1}
"""Against PyTorch in the same dtype: rounding order may differ, the computation may not. In fp16 a sound
MobileNetV3-small differs by 0.015 on aarch64 and by 0.0235 on x86_64."""
PRECISION_TOLERANCE = {"fp32": 1e-4, "fp16": 5e-2, "int8": 0.25}
"""Against float32: beyond this the dtype is likely to hurt the model's answers."""
_MISSING_OPERATOR = re.compile(r"Missing operator: \[\d+\] (?P<operator>\S+)")


def check_outputs(
    name: str, pte: Path, traced: Traced, eager: Eager, *, dtype: str, written_inputs: int
) -> Accuracy:
    """Compare the program with eager PyTorch; wrong shapes, NaN and refusals to run are failures."""
    same_dtype, float32 = traced.eager.run(), eager.run()
    produced = _run_program(name, pte, traced.eager)[written_inputs:]
    got, want = [tuple(t.shape) for t in produced], [tuple(t.shape) for t in same_dtype]
    if got != want:
        raise ExportError(
            f"the exported program of '{name}' returns shapes {got} where PyTorch returns {want}",
            "return plain tensors from forward(), in a fixed order",
        )
    _check_finite(name, dtype, produced, same_dtype, float32)
    return Accuracy(
        lowering=deviation(produced, same_dtype, LOWERING_TOLERANCE[dtype]),
        precision=deviation(produced, float32, PRECISION_TOLERANCE[dtype]),
    )


def _run_program(name: str, pte: Path, eager: Eager) -> Tensors:
    import torch
    from executorch.runtime import Runtime

    try:
        with quietly() as said:
            method = Runtime.get().load_program(pte).load_method("forward")
            outputs = method.execute(eager.inputs())
    except Exception as failure:
        if missing := _MISSING_OPERATOR.search(said.text):
            raise ExportError(
                f"the ExecuTorch runtime has no kernel for {missing['operator']}, which '{name}' needs",
                "replace that operator in the model, or register a kernel for it",
            ) from failure
        last = [line for line in said.text.splitlines() if line.strip()][-1:]
        raise ExportError(
            f"the exported program of '{name}' does not run: {failure} {' '.join(last)}".strip(),
            "--debug shows where it stopped",
        ) from failure
    return [output for output in outputs if isinstance(output, torch.Tensor)]


def _check_finite(name: str, dtype: str, produced: Tensors, same_dtype: Tensors, float32: Tensors) -> None:
    def broken(tensors: Tensors) -> int:
        return sum(int((~t.isfinite()).sum()) for t in tensors if t.is_floating_point())

    count = broken(produced)
    if broken(float32):
        raise ExportError(
            f"'{name}' itself returns NaN or infinity on its example inputs",
            "give example inputs the model is meant for",
        )
    if count and broken(same_dtype):
        raise ExportError(
            f"'{name}' overflows in {dtype}: {count} output values are NaN or infinite",
            "export fp32, or scale the activations down",
        )
    if count:
        raise ExportError(
            f"the exported program of '{name}' returns {count} NaN or infinite values where PyTorch does not",
            "export with --backend portable to see whether the backend is at fault",
        )


def deviation(produced: Tensors, wanted: Tensors, tolerance: float) -> Deviation:
    """How far outputs are from those that were wanted."""
    import torch

    outputs = [(got, want) for got, want in zip(produced, wanted, strict=True) if got.numel()]
    pairs = [(got.double().flatten(), want.double().flatten()) for got, want in outputs]
    if not pairs:
        return Deviation(0.0, 0.0, 1.0, tolerance)
    errors = [(float((got - want).abs().max()), float(want.abs().max())) for got, want in pairs]
    # Below it a number format loses digits, and backends may take a number for zero.
    smallest = [torch.finfo(want.dtype).tiny if want.is_floating_point() else 1 for _, want in outputs]
    got, want = (torch.cat(side) for side in zip(*pairs, strict=True))
    norms = float(got.norm() * want.norm())
    return Deviation(
        max_abs=max(error for error, _ in errors),
        max_rel=max(
            error / scale if scale >= least else error
            for (error, scale), least in zip(errors, smallest, strict=True)
        ),
        cosine=float(got @ want) / norms if norms else 1.0,
        tolerance=tolerance,
        largest=max(
            (
                scale
                for (_, scale), (_, want) in zip(errors, outputs, strict=True)
                if want.is_floating_point()
            ),
            default=None,
        ),
    )
