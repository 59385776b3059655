"""Runs a fresh program once on the ExecuTorch runtime and holds its outputs against PyTorch's."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.errors import ExportError, InputError
from model_profiling.export.not_finite import first_not_finite
from model_profiling.export.quietly import quietly
from model_profiling.export.records import Accuracy, Deviation
from model_profiling.export.tracing import Eager, Traced
from model_profiling.statistics.parity import OutputParity, compare_arrays, together

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
    """Compare the program with eager PyTorch. One that does not run, or gives what cannot be compared, has a
    `problem` instead of figures; NaN and infinity that are not meant are one beside them."""
    same_dtype, float32 = traced.eager.run(), eager.run()
    try:
        produced = _run_program(name, pte, traced.eager)[written_inputs:]
        got, want = ([tuple(t.shape) for t in side] for side in (produced, same_dtype))
        if got != want:
            raise ExportError(
                f"the exported program of '{name}' returns shapes {got} where PyTorch returns {want}",
                "return plain tensors from forward(), in a fixed order",
            )
        # Where PyTorch overflows and the backend, with wider sums, does not, PyTorch is no measure.
        overflowed = _odd(same_dtype) and not _odd(produced)
        compared = Accuracy(
            lowering=deviation(produced, float32, PRECISION_TOLERANCE[dtype])
            if overflowed
            else deviation(produced, same_dtype, LOWERING_TOLERANCE[dtype]),
            precision=deviation(produced, float32, PRECISION_TOLERANCE[dtype]),
        )
    except (ExportError, InputError) as found:
        return Accuracy(problem=found.problem, fix=found.fix)
    problem, fix = _not_finite(name, dtype, traced, produced=produced, same_dtype=same_dtype, float32=float32)
    return replace(compared, problem=problem, fix=fix)


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


def _odd(tensors: Tensors) -> int:
    return sum(int((~t.isfinite()).sum()) for t in tensors if t.is_floating_point())


def _not_finite(
    name: str, dtype: str, traced: Traced, *, produced: Tensors, same_dtype: Tensors, float32: Tensors
) -> tuple[str, str]:
    """What is wrong, and what to do, where outputs are NaN, or infinite though they are not in float32."""
    if any(bool(t.isnan().any()) for t in float32 if t.is_floating_point()):
        return (
            f"'{name}' itself returns NaN on its example inputs{_first(traced)}",
            "give example inputs the model is meant for",
        )
    count = _odd(produced) - _odd(float32)
    if count > 0 and _odd(same_dtype) > _odd(float32):
        values = "1 output value is" if count == 1 else f"{count} output values are"
        return (
            f"'{name}' overflows in {dtype}: {values} NaN or infinite{_first(traced)}",
            "export fp32, or scale the activations down",
        )
    if count > 0:
        return (
            f"the exported program of '{name}' returns {count} NaN or infinite values where PyTorch does not",
            "export with --backend portable to see whether the backend is at fault",
        )
    return "", ""


def _first(traced: Traced) -> str:
    found = first_not_finite(traced)
    return f", first in {found}" if found else ""


def deviation(produced: Tensors, wanted: Tensors, tolerance: float) -> Deviation:
    """How far outputs are from those that were wanted."""
    outputs = tuple(
        _compared(got, want, tolerance, index)
        for index, (got, want) in enumerate(zip(produced, wanted, strict=True))
    )
    with_fraction = [
        output.largest
        for output, want in zip(outputs, wanted, strict=True)
        if want.is_floating_point() and want.numel() and output.largest is not None
    ]
    return Deviation(
        max_abs=max((output.max_abs for output in outputs), default=0.0),
        max_rel=max(map(_relative, outputs), default=0.0),
        cosine=min((output.cosine for output in outputs if output.elements), default=1.0),
        tolerance=tolerance,
        largest=max(with_fraction, default=None),
        verdict=together(outputs).verdict,
        outputs=outputs,
    )


def _compared(got: torch.Tensor, want: torch.Tensor, tolerance: float, index: int) -> OutputParity:
    import torch

    got, want = got.detach().cpu(), want.detach().cpu()
    dtype = str(want.dtype).removeprefix("torch.")
    if dtype == "bfloat16":  # numpy has none, and float32 holds it exactly
        got, want = got.to(torch.float32), want.to(torch.float32)
    return compare_arrays(want.numpy(), got.numpy(), dtype, index=index, relative=tolerance)


def _relative(output: OutputParity) -> float:
    if output.dtype.startswith(("int", "uint", "bool")):
        return output.differing / max(output.elements, 1)
    return output.max_abs if output.verdict == "not judged" else output.of_largest or 0.0
