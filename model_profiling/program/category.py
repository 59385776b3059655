"""What an operator is, in words that hold for every backend: category, kind, and what its name proves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from model_profiling.program.records import Tensor


class Category(str, Enum):
    """The five categories; the value is the name used in files."""

    CONV = "Convolution"
    GEMM = "GEMM"
    DATA_MOVEMENT = "Data Movement"
    ELEMENTWISE = "Elementwise"
    OTHER = "Other"

    @property
    def label(self) -> str:
        """The short name used in tables for people."""
        return "CONV" if self is Category.CONV else self.value


MATRIX = (Category.CONV, Category.GEMM)
"""The categories of operators that multiply matrices."""


@dataclass(frozen=True, slots=True)
class Miss:
    """Why a backend has no SME path for an operator."""

    cause: str
    """In a word or two: `dtype`, `depthwise`, `quantization scheme`, `dynamic weight`, `not told` ..."""
    words: str


@dataclass(frozen=True, slots=True)
class MatrixPath:
    """Which way an operator that multiplies matrices takes through its backend's kernels."""

    operation: str
    """`Convolution`, `Fully Connected` ..."""
    path: str
    """`GEMM`, `IGEMM`, `DWConv` ...; empty where the name does not say."""
    role: str
    """matmul, depthwise or convolution."""
    takes_sme: bool | None
    """It is taken on SME or SME2 only, never there, or (None) the name proves neither."""
    miss: Miss | None = None
    """Why the backend has no SME path for it; None where it takes one or the reason is not known."""


@dataclass(frozen=True, slots=True)
class OperatorClass:
    """What is known about an operator from its name (and, where there is one, its graph node)."""

    category: Category
    kind: str
    """Finer than the category: `depthwise convolution`, `transpose`, `quantize` ..."""
    family: str = ""
    """The kernel's data types in the backend's own words: `F16`, `PF16`, `QS8, QC8W`; empty where not
    told."""
    known: bool = True
    """A table has a row for it."""
    packed: bool = False
    """It runs on kernels that want their inputs packed."""
    preparation: bool = False
    """The backend added it at run time, to rearrange or convert what another operator takes or gives."""
    ends_node: bool = False
    """It is only the activation that ends its graph node, split off from the rest."""
    precision: str = ""
    """What its kernel computes in, `fp16` or `int8` say; empty where the name does not tell."""
    dtype: str = ""
    """The type its graph node computes in if this is the node that ran; empty where nothing proves one."""
    matrix: MatrixPath | None = None
    """For an operator that multiplies matrices."""


UNKNOWN = OperatorClass(Category.OTHER, "unknown", known=False)


def rows(category: Category, kind: str, names: str) -> dict[str, tuple[Category, str]]:
    """Rows of a table by which a backend knows its operators: category and kind of each name."""
    return {name.strip(): (category, kind) for name in names.split(",")}


def operator_type(name: str) -> str:
    """The name without the counter that tells equal operators apart: `Transpose (ND, X32)`."""
    head, mark, counter = name.rpartition(" #")
    return head if mark and counter.isdigit() else name


# What work costs, whoever does it: arithmetic operations and bytes moved, from shapes alone.
# A multiply and an add count as two operations, whatever the type. Data movement counts none. Everything
# that works element by element counts one per element, also where the hardware needs several instructions,
# so that achieved rates of such operators are lower bounds.

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
