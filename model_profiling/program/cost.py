"""What work costs, whoever does it: arithmetic operations and bytes moved, from shapes alone.

A multiply and an add count as two operations, whatever the type. Data movement counts none. Everything
that works element by element counts one per element, also where the hardware needs several instructions,
so that achieved rates of such operators are lower bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from model_profiling.program.records import Tensor

Tensors = Sequence[Tensor]
Rule = Callable[[Tensors, Tensors], int]


def bytes_moved(inputs: Tensors, outputs: Tensors) -> int:
    """Every input, weight and output once: the least that has to travel."""
    return sum(each.nbytes for each in (*inputs, *outputs))


def per_output(operations: int) -> Rule:
    return lambda _, outputs: operations * outputs[0].elements


EACH_OUTPUT = per_output(1)
SOFTMAX = per_output(5)
"""Largest element, subtract, exponential, sum, divide."""
BILINEAR = per_output(8)
"""Four neighbours, a multiply and an add each."""


def per_input(inputs: Tensors, outputs: Tensors) -> int:
    del outputs
    return inputs[0].elements


def product(inputs: Tensors, outputs: Tensors) -> int:
    """A matrix product: each output is a sum as long as the first input's last dimension."""
    return 2 * outputs[0].elements * last_size(inputs[0]) if inputs else 0


def last_size(tensor: Tensor) -> int:
    return tensor.shape[-1] if tensor.shape else 1
