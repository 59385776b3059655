"""What `expected.toml` says an expert expects of each model of the zoo, and which words it may use."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Outside:
    """Operators that the partitioner leaves, at one line of the model, for one reason."""

    operators: str
    """Names without namespace and overload, separated by spaces."""
    line: str
    """A part of the line that makes them."""
    reason: str
    """A part of what the partitioner says."""
    instead: str
    """A part of what to write instead; empty where nothing better is known."""


@dataclass(frozen=True)
class Advice:
    """A finding, and a part of a line among those it is about; an empty one says nothing of lines."""

    id: str
    line: str = ""


@dataclass(frozen=True)
class Expected:
    """A table of `expected.toml`, whose first lines say what each part is."""

    model: str
    dtype: str
    found: tuple[Advice, ...]
    worth: frozenset[str]
    may: frozenset[str]
    outside: tuple[Outside, ...]
    matrix_dtypes: frozenset[str]

    @property
    def name(self) -> str:
        return f"{self.model.replace('.py:', '_')}_{self.dtype}"


# The category of every operator of the zoo, by what it does: those of delegates by XNNPACK's name for them,
# those outside by ExecuTorch's, without `_copy`.
CATEGORIES = {
    name: category
    for category, names in (
        ("Convolution", "Convolution, convolution"),
        ("GEMM", "Fully Connected, Batch Matrix Multiply, Dynamic Fully Connected"),
        ("Data Movement", "Transpose, Copy, Slice, Static Reshape, Convert, Pack LH"),
        ("Data Movement", "expand, squeeze, unsqueeze, view, select, slice, split_with_sizes, copy"),
        ("Data Movement", "slice_scatter, index, index_select, embedding, _to_dim_order, full, full_like"),
        ("Data Movement", "arange, scalar_tensor"),
        ("Elementwise", "Add, Multiply, Divide, Negate, Square, Reciprocal Square Root"),
        ("Elementwise", "Clamp, Sigmoid, TanH, GELU, HardSwish, Invalid Unary Op"),
        ("Elementwise", "where, eq, le, logical_not, logical_and, add, sub, mul, fmod, pow, gelu"),
        ("Other", "Softmax, Mean, Max Pooling, Resize Bilinear"),
        ("Other", "native_layer_norm, native_group_norm, mean, sum, any"),
    )
    for name in names.split(", ")
}

# What `expected.toml` says in one word.
_REASONS = {
    "": "no rule for this operator",
    "TRAILING": "unsqueeze_copy only supported on the trailing dimension",
    "KEEPDIM": "mean.dim only supports keepdim=True",
}
_FUSED_ATTENTION = "expand mul eq full_like logical_not any where"
# Whether a matrix operator could take SME2 is known of the CPU that has it; whether its shape is one that
# pays, too.
_ALWAYS_MAY = frozenset({"misses-sme2"})


def _outside(operators: str, line: str, reason: str = "", instead: str = "") -> Outside:
    operators = operators.replace("ATTENTION", _FUSED_ATTENTION)
    return Outside(operators, line, _REASONS.get(reason, reason), instead)


def _expectations() -> Iterator[Expected]:
    rows = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    for name, own in rows.items():
        model, dtype = name.split()
        row = {**rows.get(own.pop("like", None), {}), **own}
        yield Expected(
            model,
            dtype,
            found=tuple(Advice(*each) for each in row.pop("found", ())),
            worth=frozenset(row.pop("worth", ())),
            may=_ALWAYS_MAY | {*row.pop("may", ())},
            outside=tuple(_outside(*each) for each in row.pop("outside", ())),
            matrix_dtypes=frozenset(row.pop("matrix_dtypes", ["fp32"])),
        )
        assert not row, f"{name}: {row}"


EXPECTED = tuple(_expectations())
