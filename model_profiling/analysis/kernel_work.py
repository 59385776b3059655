"""What counted kernels worked on: the sizes they were called with, told by their names and as one cell of
text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from model_profiling.analysis.kernel_names import classify
from model_profiling.run.evidence import KernelWork

_SHOWN = 3
_CELL = re.compile(
    r"(?:m=(?P<m>\d{1,19}) ?)?(?:n=(?P<n>\d{1,19}) ?)?(?:k=(?P<k>\d{1,19}))?: (?P<calls>\d{1,19})"
)
_NO_ROOM = (0, 0, 0)


def work_of(symbol: str, sizes: Iterable[Sequence[int]]) -> tuple[KernelWork, ...]:
    """What `symbol` worked on, most calls first. Its kind tells what its first arguments are: KleidiAI's
    headers have m, n, k for a product; m, k or groups, n, k for packing; and in place of k, where rows are
    gathered through pointers, how many pieces of what length. Those of a product are then four, and k is not
    among the three that were kept; what depthwise kernels are given is none of the three."""
    operation = classify(symbol).operation
    found: Counter[tuple[int | None, int | None, int | None]] = Counter()
    for first, second, third, calls in (size for size in sizes if len(size) == 4):
        if (first, second, third) == _NO_ROOM:
            key: tuple[int | None, int | None, int | None] = (None, None, None)
        elif operation == "matmul":
            key = (first, second, third)
        elif operation == "imatmul":
            key = (first, second, None)
        elif operation == "lhs_imatmul_pack":
            key = (first, None, second * third)
        elif operation in ("rhs_imatmul_pack", "imatmul_pack_rhs"):
            key = (None, first, second * third)
        elif operation in ("lhs_pack", "lhs_quant_pack"):
            key = (first, None, second)
        elif operation in ("rhs_pack", "rhs_quant_pack"):
            key = (None, second, third)
        else:
            key = (None, None, None)
        found[key] += calls
    return tuple(KernelWork(m, n, k, calls) for (m, n, k), calls in found.most_common())


def multiply_adds(work: Iterable[KernelWork]) -> int | None:
    """How many a matrix kernel made by these calls; None where a size is not known."""
    total = 0
    for each in work:
        if each.m is None or each.n is None or each.k is None:
            return None
        total += each.m * each.n * each.k * each.calls
    return total


def work_cell(work: Iterable[KernelWork]) -> str:
    """`m=16 n=128 k=576: 49; m=...`: sizes, each with its calls."""
    return "; ".join(f"{size_text(each)}: {each.calls}" for each in work)


def read_work_cell(text: str) -> tuple[KernelWork, ...]:
    """What `work_cell` wrote; anything else is nothing."""
    cells = [_CELL.fullmatch(cell.strip()) for cell in text.split(";")] if text.strip() else []
    return tuple(
        KernelWork(_size(cell["m"]), _size(cell["n"]), _size(cell["k"]), int(cell["calls"]))
        for cell in cells
        if cell
    )


def _size(text: str | None) -> int | None:
    return int(text) if text else None


def size_text(work: KernelWork) -> str:
    sizes = (("m", work.m), ("n", work.n), ("k", work.k))
    return " ".join(f"{name}={size}" for name, size in sizes if size is not None)


def work_in_short(work: Sequence[KernelWork]) -> str:
    """The sizes with most calls, for people; empty where none is known."""
    told = [f"{size_text(each)} ({each.calls})" for each in work if size_text(each)]
    more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    return f"{', '.join(told[:_SHOWN])}{more}"
