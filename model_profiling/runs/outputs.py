"""Compares the outputs that two processes wrote, tensor by tensor."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.safe_read import read_bytes
from model_profiling.runner.result import OutputFacts
from model_profiling.statistics.parity import Parity, Values, compare_arrays, together


def compare_outputs(
    reference: Sequence[OutputFacts],
    candidate: Sequence[OutputFacts],
    *,
    quantized: bool = False,
    half: bool = False,
    of_tokens: bool = False,
) -> Parity:
    """Compare the outputs of two runs one by one. `quantized` allows two steps of an 8-bit grid, `half`
    float16 precision for float32 outputs too: a program may compute in float16 and end with `.float()`;
    `of_tokens` says that it is a language model."""
    fix = "compare runs of the same program"
    if len(reference) != len(candidate):
        raise InputError(f"{len(reference)} outputs cannot be compared with {len(candidate)}", fix)
    outputs = []
    for index, (left, right) in enumerate(zip(reference, candidate, strict=True)):
        if _type_of(left) != _type_of(right):
            what = f"output {index} is {_type_of(left)} in one run and {_type_of(right)} in the other"
            raise InputError(what, fix)
        arrays = read_output(left), read_output(right)
        dtype = "float16" if half and left.dtype == "float32" else left.dtype
        found = compare_arrays(*arrays, dtype, index=index, quantized=quantized, of_tokens=of_tokens)
        outputs.append(replace(found, dtype=left.dtype))
    return together(tuple(outputs))


def read_output(output: OutputFacts) -> Values:
    """Read the tensor in logical order; bfloat16 becomes float32, which holds it exactly."""
    assert output.file is not None
    stored = None
    with contextlib.suppress(TypeError):
        stored = np.dtype("uint16" if output.dtype == "bfloat16" else output.dtype)
    if stored is None or stored.kind not in "biufc":
        raise FormatError(f"{output.file}: {output.dtype!r} is not a number type", "run it again")
    raw = read_bytes(output.file)
    if len(raw) != math.prod(output.shape) * stored.itemsize:
        what = f"{output.file} has {len(raw)} bytes, which is not the size of {_type_of(output)}"
        raise FormatError(what, "run it again")
    values = np.frombuffer(raw, dtype=stored)
    if output.dtype == "bfloat16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    order = output.dim_order or tuple(range(len(output.shape)))
    if sorted(order) != list(range(len(output.shape))):
        raise FormatError(f"{output.file}: {list(order)} is not an order of its dimensions", "run it again")
    in_memory = values.reshape([output.shape[axis] for axis in order])
    return in_memory.transpose(np.argsort(order))


def _type_of(output: OutputFacts) -> str:
    return f"{output.dtype}{list(output.shape)}"
