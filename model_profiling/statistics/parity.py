"""Do two runs of one program compute the same thing? Compares raw outputs in their own number type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from model_profiling.errors import FormatError, InputError

Verdict = Literal["identical", "within tolerance", "mismatch"]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """An element agrees when |a - b| <= absolute + relative * |a|."""

    absolute: float
    relative: float


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A raw output on disk and how to read it; `dim_order` is the order its dimensions lie in memory."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    dim_order: tuple[int, ...] = ()

    @property
    def type_name(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclass(frozen=True, slots=True)
class OutputParity:
    """How two versions of one output differ. `top1_agrees` is over the last dimension, None without one."""

    index: int
    dtype: str
    shape: tuple[int, ...]
    elements: int
    differing: int
    beyond_tolerance: int
    max_abs: float
    max_rel: float
    """Relative to the larger of the two values, or to a hundredth of the output's largest where that is more:
    beside it, values near zero are rounding."""
    cosine: float
    top1_agrees: bool | None
    tolerance: Tolerance
    verdict: Verdict
    note: str = ""


@dataclass(frozen=True, slots=True)
class Parity:
    """All outputs of two runs together."""

    outputs: tuple[OutputParity, ...]
    verdict: Verdict

    @property
    def agrees(self) -> bool:
        return self.verdict != "mismatch"


# Sums are taken in another order with other kernels, so the last bits differ: about a hundred units in the
# last place of values near one, and as much relative to larger ones. Whole numbers come from quantized
# kernels whose rounding may differ by one step.
_TOLERANCES = {
    "float64": Tolerance(1e-10, 1e-10),
    "float32": Tolerance(1e-4, 1e-4),
    "float16": Tolerance(2e-2, 2e-2),
    "bfloat16": Tolerance(1e-1, 1e-1),
    **dict.fromkeys(("int8", "uint8", "int16"), Tolerance(1, 0)),
    **dict.fromkeys(("int32", "int64", "bool"), Tolerance(0, 0)),
}
_ORDER: tuple[Verdict, ...] = ("identical", "within tolerance", "mismatch")

# The outputs of an int8 program are floats on a quantization grid: kernels that round one step apart differ
# by a whole step, far more than floats do. The step is not in the output, so it is taken from its range.
_QUANTIZED_STEPS = 2 / 255
_RELATIVE_FLOOR = 0.01


def tolerance_for(dtype: str) -> Tolerance:
    """How far outputs of this type may differ before it is a finding."""
    if dtype not in _TOLERANCES:
        raise InputError(f"outputs of type {dtype} cannot be compared", f"known: {', '.join(_TOLERANCES)}")
    return _TOLERANCES[dtype]


def compare_outputs(
    reference: Sequence[OutputFile], candidate: Sequence[OutputFile], *, quantized: bool = False
) -> Parity:
    """Compare the outputs of two runs, one by one. `quantized` allows two steps of an 8-bit grid."""
    fix = "compare runs of one program"
    if len(reference) != len(candidate):
        raise InputError(f"{len(reference)} outputs cannot be compared with {len(candidate)}", fix)
    outputs = []
    for index, (left, right) in enumerate(zip(reference, candidate, strict=True)):
        if left.type_name != right.type_name:
            what = f"output {index} is {left.type_name} in one run and {right.type_name} in the other"
            raise InputError(what, fix)
        arrays = read_output(left), read_output(right)
        outputs.append(compare_arrays(*arrays, left.dtype, index=index, quantized=quantized))
    worst = max((_ORDER.index(output.verdict) for output in outputs), default=0)
    return Parity(tuple(outputs), _ORDER[worst])


def read_output(output: OutputFile) -> npt.NDArray[np.generic]:
    """The tensor in `output`, in its logical order; bfloat16 comes as float32, which holds it exactly."""
    try:
        raw = output.path.read_bytes()
    except OSError as problem:
        fix = "run it again with its outputs saved"
        raise InputError(f"cannot read the output {output.path}", fix) from problem
    stored = np.dtype("uint16" if output.dtype == "bfloat16" else output.dtype)
    if len(raw) != math.prod(output.shape) * stored.itemsize:
        what = f"{output.path} has {len(raw)} bytes, not those of {output.type_name}"
        raise FormatError(what, "run it again")
    values = np.frombuffer(raw, dtype=stored)
    if output.dtype == "bfloat16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    order = output.dim_order or tuple(range(len(output.shape)))
    in_memory = values.reshape([output.shape[axis] for axis in order])
    return in_memory.transpose(np.argsort(order))


def compare_arrays(
    reference: npt.NDArray[np.generic],
    candidate: npt.NDArray[np.generic],
    dtype: str,
    *,
    index: int = 0,
    quantized: bool = False,
) -> OutputParity:
    """Compare two arrays that are one output; NaN agrees with NaN, an infinity with the same infinity."""
    a, b = reference.astype(np.float64), candidate.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    tolerance = tolerance_for(dtype)
    if quantized and finite.any():
        step = float(np.ptp(a[finite])) * _QUANTIZED_STEPS
        tolerance = Tolerance(max(tolerance.absolute, step), tolerance.relative)
    with np.errstate(over="ignore"):
        gap = np.abs(np.where(finite, a, 0) - np.where(finite, b, 0))
    gap = np.minimum(gap, np.finfo(np.float64).max)  # a figure has to be one that JSON can hold
    far = gap > tolerance.absolute + tolerance.relative * np.abs(np.where(finite, a, 0))
    beyond = int(np.count_nonzero(~same & (~finite | far)))
    scale = np.where(finite, np.maximum(np.abs(a), np.abs(b)), 0)
    scale = np.maximum(scale, _RELATIVE_FLOOR * scale.max(initial=0.0))
    relative = np.divide(gap, scale, out=np.zeros_like(gap), where=finite & (scale > 0))
    differing = int(np.count_nonzero(~same))
    verdict: Verdict = "identical" if differing == 0 else "mismatch" if beyond else "within tolerance"
    odd = int(np.count_nonzero(~same & ~finite))
    return OutputParity(
        index=index,
        dtype=dtype,
        shape=tuple(reference.shape),
        elements=int(a.size),
        differing=differing,
        beyond_tolerance=beyond,
        max_abs=float(gap.max(initial=0.0)),
        max_rel=float(relative.max(initial=0.0)),
        cosine=_cosine(a[finite], b[finite]),
        top1_agrees=_top1(a, b),
        tolerance=tolerance,
        verdict=verdict,
        note=f"{odd} element{' is' if odd == 1 else 's are'} NaN or infinite in one run only" if odd else "",
    )


def _cosine(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    if np.array_equal(a, b):
        return 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
        return 0.0 if lengths == 0.0 else float(min(1.0, max(-1.0, np.dot(a, b) / lengths)))


def _top1(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> bool | None:
    if a.ndim == 0 or a.shape[-1] < 2 or a.size == 0:
        return None
    first, second = (np.argmax(np.where(np.isnan(values), -np.inf, values), axis=-1) for values in (a, b))
    return bool(np.array_equal(first, second))
