"""Decides whether two sets of outputs agree, for runs of a program and for exports.

Differences are judged by the output's own scale: the largest difference against the largest magnitude, and
the root mean square of all differences against that of the output. Probabilities near 0.001 are then judged
as strictly as logits near 10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from model_profiling.core.errors import InputError
from model_profiling.core.formatting import plural

Verdict = Literal["identical", "within tolerance", "mismatch"]
WORST_LAST: tuple[Verdict, ...] = ("identical", "within tolerance", "mismatch")
Values = npt.NDArray[np.generic]
_Reals = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """An element agrees when it differs by at most `absolute` plus `relative` of the output's largest."""

    absolute: float
    relative: float
    rms: float | None = None
    """Allowed root mean square of all differences, as a share of the output's."""

    @property
    def text(self) -> str:
        """`0.02 of the largest value, 0.08 RMS`; `0` where values must be equal."""
        if not self.relative:
            return f"{self.absolute:g}"
        absolute = f"{self.absolute:.2g} + " if self.absolute else ""
        rms = "" if self.rms is None else f", {self.rms:g} RMS"
        return f"{absolute}{self.relative:g} of the largest value{rms}"


@dataclass(frozen=True, slots=True)
class OutputParity:
    """How two versions of one output differ."""

    index: int
    dtype: str
    shape: tuple[int, ...]
    elements: int
    differing: int
    max_abs: float
    tolerance: Tolerance
    verdict: Verdict
    note: str = ""
    largest: float = 0.0
    """Largest magnitude of the reference."""
    of_largest: float | None = None
    """`max_abs` as a share of `largest`: the tolerance applies to this; None in records of version 0.1.0."""
    rms_of_rms: float | None = None
    """Root mean square of the differences, as a share of the reference's; None for whole numbers."""
    top1_rows: int = 0
    """Rows of scores; 0 if the output has none."""
    top1_differs: int = 0
    """Rows where another score is highest."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What figures alone do not say."""
        rows = f" in {self.top1_differs} of {self.top1_rows} rows" if self.top1_rows > 1 else ""
        return tuple(filter(None, (f"another top-1{rows}" if self.top1_differs else "", self.note)))

    @property
    def text(self) -> str:
        return "; ".join((self.verdict, *self.remarks))


@dataclass(frozen=True, slots=True)
class Parity:
    outputs: tuple[OutputParity, ...]
    verdict: Verdict

    @property
    def another_top1(self) -> bool:
        """Whether anywhere another score is now the highest."""
        return any(output.top1_differs for output in self.outputs)

    @property
    def remarks(self) -> str:
        """What figures alone do not say about the outputs that decide; empty if they say all."""
        return "; ".join(
            f"{f'output {output.index}: ' if len(self.outputs) > 1 else ''}{'; '.join(output.remarks)}"
            for output in self.outputs
            if output.verdict == self.verdict and output.remarks
        )

    @property
    def text(self) -> str:
        return "; ".join(filter(None, (self.verdict, self.remarks)))


def together(outputs: tuple[OutputParity, ...]) -> Parity:
    """Combine outputs; the worst verdict decides."""
    worst = max((WORST_LAST.index(output.verdict) for output in outputs), default=0)
    return Parity(outputs, WORST_LAST[worst])


# Other kernels sum in another order, so the last bits differ: a thousand units in the last place of the
# largest value in float32, twenty in float16, whose sums lose more.
_RELATIVE = {"float64": 1e-10, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
# Integers of 8 and 16 bits come from quantized kernels, whose rounding may differ by one step; others are
# answers: a class, a token, a mask.
_STEPS = {**dict.fromkeys(("int8", "uint8", "int16"), 1.0), **dict.fromkeys(("int32", "int64", "bool"), 0.0)}
# Among many answers (the class of each pixel), a few near-ties fall the other way.
_FEW_ANSWERS = 1e-3

# Rounding errors scatter: their RMS, relative to the output's, is seldom more than a few times the tolerance
# for the largest one, even with few large values. At half, it is another output (cosine below 0.87).
_RMS_FACTOR, _RMS_AT_MOST = 4.0, 0.5

# Outputs of an int8 program are floats on a quantization grid: kernels that round one step apart differ by a
# whole step, far more than floats do. The output does not contain the step, so it is derived from the range.
_QUANTIZED_STEPS = 2 / 255


def compare_arrays(
    reference: Values,
    candidate: Values,
    dtype: str,
    *,
    index: int = 0,
    quantized: bool = False,
    relative: float | None = None,
    of_tokens: bool = False,
) -> OutputParity:
    """Compare two versions of one output; NaN agrees with NaN, an infinity with the same infinity.

    `dtype` is the reference's number type. `quantized` allows two steps of an 8-bit grid. `relative` is the
    share of the largest magnitude by which floats may differ. Of a language model (`of_tokens`), an output of
    three dimensions has scores too.
    """
    whole = dtype in _STEPS
    if not whole and dtype not in _RELATIVE:
        known = ", ".join((*_RELATIVE, *_STEPS))
        raise InputError(f"outputs of type {dtype} cannot be compared", f"known: {known}")
    a, b = reference.astype(np.float64), candidate.astype(np.float64)
    same = np.asarray(reference == candidate) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    a_finite, b_finite = np.where(finite, a, 0.0), np.where(finite, b, 0.0)
    with np.errstate(over="ignore"):
        gap = np.minimum(np.abs(a_finite - b_finite), np.finfo(np.float64).max)
    if whole:  # a float cannot tell neighbours among large ones
        gap = np.where(same, 0.0, np.maximum(gap, 1.0))
        tolerance = Tolerance(_STEPS[dtype], 0.0)
    else:
        share = _RELATIVE[dtype] if relative is None else relative
        grid = float(np.ptp(a[finite])) * _QUANTIZED_STEPS if quantized and finite.any() else 0.0
        tolerance = Tolerance(grid, share, min(_RMS_FACTOR * share, _RMS_AT_MOST))
    largest = _largest(a_finite)
    allowed = tolerance.absolute + tolerance.relative * largest
    differing = int(np.count_nonzero(~same))
    beyond = int(np.count_nonzero(~same & (~finite | (gap > allowed))))
    rms, rms_of_gap = _rms(a_finite, largest), _rms(gap, largest)
    spread = tolerance.rms is not None and rms_of_gap > tolerance.rms * rms + tolerance.absolute
    answers = whole and not tolerance.absolute  # a few of many may be near-ties
    too_many = beyond > (_FEW_ANSWERS * same.size if answers else 0)
    verdict: Verdict = (
        "identical" if not differing else "mismatch" if too_many or spread else "within tolerance"
    )
    odd = int(np.count_nonzero(~same & ~finite))
    notes = {
        f"{differing} of {plural(same.size, 'whole number')} differ": answers and differing,
        f"{plural(odd, 'element')} NaN or infinite in only one of the runs": odd,
        "every value is 0 in both": a.size and verdict == "identical" and not a.any(),
    }
    scores = not whole and (a.ndim == 2 or (of_tokens and a.ndim == 3))
    rows, differs = _top1(a, b) if scores else (0, 0)
    return OutputParity(
        index=index,
        dtype=dtype,
        shape=tuple(reference.shape),
        elements=int(a.size),
        differing=differing,
        max_abs=_largest(gap),
        largest=largest,
        of_largest=_capped(_largest(gap) / largest) if largest else float(differing > 0),
        rms_of_rms=None if whole else _capped(rms_of_gap / rms) if rms else float(differing > 0),
        tolerance=tolerance,
        verdict=verdict,
        note="; ".join(words for words, applies in notes.items() if applies),
        top1_rows=rows,
        top1_differs=differs,
    )


def _largest(values: _Reals) -> float:
    return float(np.abs(values).max(initial=0.0))


def _capped(number: float) -> float:
    """JSON cannot hold infinity."""
    return min(number, float(np.finfo(np.float64).max))


def _rms(values: _Reals, scale: float) -> float:
    """Scaled to about one first: squares of small numbers underflow, those of large ones overflow."""
    if not values.size or not scale:
        return 0.0
    with np.errstate(over="ignore", under="ignore"):
        return _capped(float(np.sqrt(np.mean(np.square(values / scale)))) * scale)


def _top1(a: _Reals, b: _Reals) -> tuple[int, int]:
    """Rows of scores, and in how many another is highest. The coordinates of boxes are no scores."""
    if a.shape[-1] < 2 or a.size == 0 or (a.shape[-1] == 4 and a.size > 4):
        return 0, 0
    first, second = (np.where(np.isnan(side), -np.inf, side).reshape(-1, a.shape[-1]) for side in (a, b))
    moved = first.argmax(axis=-1) != second.argmax(axis=-1)
    return len(moved), int(np.count_nonzero(moved))
