"""What an operator is, in terms that hold for every backend: category, kind, and what its name proves."""

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
        """The short name in tables for people."""
        return "CONV" if self is Category.CONV else self.value


MATRIX = (Category.CONV, Category.GEMM)
SCALAR_READ, SIZE = "scalar read", "size"
"""Kinds of operators that give numbers, not tensors."""


@dataclass(frozen=True, slots=True)
class Miss:
    """Why a backend has no SME path for an operator."""

    cause: str
    """In a word or two: `dtype`, `depthwise`, `quantization scheme`, `dynamic weight`, `not told` ..."""
    words: str


@dataclass(frozen=True, slots=True)
class MatrixPath:
    """The path of a matrix operator through its backend's kernels."""

    operation: str
    """`Convolution`, `Fully Connected` ..."""
    path: str
    """`GEMM`, `IGEMM`, `DWConv` ...; empty if the name does not say."""
    role: str
    takes_sme: bool | None
    """True: this path runs on SME or SME2 only; False: never; None: the name proves neither."""
    miss: Miss | None = None
    """Why the backend has no SME path for it; None if it takes one or the reason is not known."""


@dataclass(frozen=True, slots=True)
class OperatorClass:
    """What is known about an operator from its name and, if there is one, its graph node."""

    category: Category
    kind: str
    """Finer than the category: `depthwise convolution`, `transpose`, `quantize` ..."""
    family: str = ""
    """The kernel's data types in the backend's words: `F16`, `PF16`, `QS8, QC8W`; empty if unknown."""
    known: bool = True
    packed: bool = False
    preparation: bool = False
    """Whether the backend added it at run time, to rearrange or convert data for another operator."""
    ends_node: bool = False
    """Whether it is only the activation at the end of its graph node, split off from the rest."""
    precision: str = ""
    """The type its kernel computes in, such as `fp16` or `int8`; empty if the name does not say."""
    dtype: str = ""
    """The type its graph node computes in, if this is the node that ran; empty if nothing proves one."""
    matrix: MatrixPath | None = None


UNKNOWN = OperatorClass(Category.OTHER, "unknown", known=False)


def rows(category: Category, kind: str, names: str) -> dict[str, tuple[Category, str]]:
    """Rows of a backend's operator table: category and kind by name."""
    return {name.strip(): (category, kind) for name in names.split(",")}


def operator_type(name: str) -> str:
    """The name without the counter that distinguishes equal operators: `Transpose (ND, X32)`."""
    head, mark, counter = name.rpartition(" #")
    return head if mark and counter.isdigit() else name


# The cost of work, from shapes alone: a multiply and an add are two operations, data movement none.
# Element-wise work counts one per element, even if it takes several instructions: its rates are lower bounds.

Tensors = Sequence[Tensor]
Rule = Callable[[Tensors, Tensors], int]


def bytes_moved(inputs: Tensors, outputs: Tensors) -> int:
    """Every input, weight and output once: the least that must be moved."""
    return sum(each.nbytes for each in (*inputs, *outputs))


_TAKES_ROWS = ("embedding", "index_select", "gather", "slice_copy", "select_copy")


def bytes_of_operator(name: str, inputs: Tensors, outputs: Tensors) -> int:
    """The same by an operator's name: one that takes rows of a table does not read the others."""
    if not inputs or not any(word in name for word in _TAKES_ROWS):
        return bytes_moved(inputs, outputs)
    taken = sum(each.nbytes for each in outputs)
    return min(inputs[0].nbytes, taken) + bytes_moved(inputs[1:], outputs)


def per_output(operations: int) -> Rule:
    return lambda _, outputs: operations * outputs[0].elements


EACH_OUTPUT = per_output(1)
SOFTMAX = per_output(5)
"""Maximum, subtract, exponential, sum, divide."""
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
