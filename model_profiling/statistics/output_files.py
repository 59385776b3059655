"""Raw outputs that runs left on disk: how they are read, and two runs' held against each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from model_profiling.errors import FormatError, InputError
from model_profiling.reading import read_bytes, size_of
from model_profiling.statistics.parity import Parity, Values, compare_arrays, together


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


def compare_outputs(
    reference: Sequence[OutputFile],
    candidate: Sequence[OutputFile],
    *,
    quantized: bool = False,
    half: bool = False,
) -> Parity:
    """Compare the outputs of two runs, one by one. `quantized` allows two steps of an 8-bit grid, `half` what
    float16 can hold also where float32 comes out: a program may compute in one and end with `.float()`."""
    fix = "compare runs of one program"
    if len(reference) != len(candidate):
        raise InputError(f"{len(reference)} outputs cannot be compared with {len(candidate)}", fix)
    outputs = []
    for index, (left, right) in enumerate(zip(reference, candidate, strict=True)):
        if left.type_name != right.type_name:
            what = f"output {index} is {left.type_name} in one run and {right.type_name} in the other"
            raise InputError(what, fix)
        arrays = read_output(left), read_output(right)
        dtype = "float16" if half and left.dtype == "float32" else left.dtype
        found = compare_arrays(*arrays, dtype, index=index, quantized=quantized)
        outputs.append(replace(found, dtype=left.dtype))
    return together(tuple(outputs))


def read_output(output: OutputFile) -> Values:
    """The tensor in `output`, in its logical order; bfloat16 comes as float32, which holds it exactly."""
    stored = _stored(output)
    expected, found = math.prod(output.shape) * stored.itemsize, size_of(output.path)
    if found != expected:
        what = f"{output.path} has {found} bytes, not those of {output.type_name}"
        raise FormatError(what, "run it again")
    raw = read_bytes(output.path)
    values = np.frombuffer(raw, dtype=stored)
    if output.dtype == "bfloat16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    order = output.dim_order or tuple(range(len(output.shape)))
    if sorted(order) != list(range(len(output.shape))):
        raise FormatError(f"{output.path}: {list(order)} is no order of its dimensions", "run it again")
    in_memory = values.reshape([output.shape[axis] for axis in order])
    return in_memory.transpose(np.argsort(order))


def _stored(output: OutputFile) -> np.dtype[np.generic]:
    """How its numbers lie in the file; only numbers do."""
    try:
        found = np.dtype("uint16" if output.dtype == "bfloat16" else output.dtype)
    except TypeError as problem:
        raise FormatError(
            f"{output.path}: {output.dtype!r} is no type of numbers", "run it again"
        ) from problem
    if found.kind not in "biufc":
        raise FormatError(f"{output.path}: {output.dtype!r} is no type of numbers", "run it again")
    return found
