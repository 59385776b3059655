"""What others have reported of SME2 in ExecuTorch and its XNNPACK, by release and by what a program has.

Each row was read in the public report or the sources it names; none was measured here. XNNPACK comes with
ExecuTorch, so its defects are told by ExecuTorch's release: 1.0 to 1.2 have one state of it, 1.3 and 1.4
another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from model_profiling.program.matrix_work import MatrixWork

Release = tuple[int, int, int]
_LARGE_KERNEL = 7
ONE_ROW_ISSUE = "google/XNNPACK issue 10719"
LARGE_KERNEL_ISSUE = "microsoft/onnxruntime issue 27633"


@dataclass(frozen=True, slots=True)
class Defect:
    """Something that goes wrong in some releases for some operators."""

    what: str
    """What happens, as it was reported."""
    reported: str
    """Where it can be read."""
    first: Release
    last: Release | None
    """The last release that is known to have it; None where it is not known to be repaired."""
    concerns: Callable[[MatrixWork], bool]
    instead: str
    """What to do."""

    @property
    def repaired(self) -> str:
        """Since when it is, in words."""
        if self.last is None:
            return "not known to be repaired"
        return f"known up to {'.'.join(map(str, self.last))}"

    def is_in(self, release: Release) -> bool:
        return self.first <= release and (self.last is None or release <= self.last)


@dataclass(frozen=True, slots=True)
class Risk:
    """A shape that SME2 was reported to slow down or to crash on; that it does so here was not measured."""

    what: str
    reported: str
    concerns: Callable[[MatrixWork], bool]
    instead: str
    crashes: bool = False
    """What ran does not have it."""


def _is_one_row(work: MatrixWork) -> bool:
    return work.rows == 1 and work.node is not None and work.node.kind in ("FullyConnected", "Conv2d")


def is_large_kernel(kernel: Sequence[int]) -> bool:
    return bool(kernel) and min(kernel) >= _LARGE_KERNEL


def _is_large_kernel(work: MatrixWork) -> bool:
    window = work.node.window if work.node else None
    plain = work.kind == "convolution" and window is not None and window.groups == 1
    # Patches that do not overlap are read once, however large: what was reported are windows that do.
    return (
        plain
        and window is not None
        and is_large_kernel(window.kernel)
        and any(step < side for step, side in zip(window.stride, window.kernel, strict=True))
    )


def _is_grouped_int8(work: MatrixWork) -> bool:
    node = work.node
    return node is not None and node.kind == "Conv2d" and node.dtype == "qint8" and _groups(work) > 1


def _groups(work: MatrixWork) -> int:
    return work.node.window.groups if work.node and work.node.window else 1


def _is_float_convolution(work: MatrixWork) -> bool:
    node = work.node
    return node is not None and work.kind == "convolution" and node.dtype in ("fp16", "fp32")


_GROUPED_CRASH = "int8 grouped convolutions crash in KleidiAI's packing with SME2 on (seen on an Apple M4)"
_GROUPED_REPORT = "google/XNNPACK issue 9898"

DEFECTS: tuple[Defect, ...] = (
    Defect(
        _GROUPED_CRASH,
        f"{_GROUPED_REPORT}, with 1.0.1 and 1.1.0; 1.0.0 and 1.2.0 have the same XNNPACK",
        (1, 0, 0),
        (1, 2, 99),
        _is_grouped_int8,
        "use ExecuTorch 1.3 or later, or run with SME2 off",
    ),
    Defect(
        "fp32 and fp16 convolutions take no SME2 path: XNNPACK has it for int8 only",
        "XNNPACK's sources, `xnn_subgraph_optimize_packed_lhs`",
        (1, 0, 0),
        (1, 2, 99),
        _is_float_convolution,
        "use ExecuTorch 1.3 or later",
    ),
)

RISKS: tuple[Risk, ...] = (
    Risk(
        "one row (batch 1): packed SME2 paths were 1.4 to 3 times slower there than without",
        f"{ONE_ROW_ISSUE}, a Dimensity 9500",
        _is_one_row,
        "give it more rows at once (a larger batch, several steps together) if the application can",
    ),
    Risk(
        "a large kernel: 9x9 convolutions became slower with KleidiAI's SME path in another runtime",
        f"{LARGE_KERNEL_ISSUE}, an Apple M4",
        _is_large_kernel,
        "compare with several smaller kernels in a row",
    ),
    Risk(
        f"{_GROUPED_CRASH} in ExecuTorch 1.0.1 and 1.1.0",
        _GROUPED_REPORT,
        _is_grouped_int8,
        "run it once on such a CPU before shipping",
        crashes=True,
    ),
)


def release_of(version: str) -> Release | None:
    """`1.5.1+cpu` as numbers; None where it is no release."""
    parts = re.match(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?", version)
    return (int(parts[1]), int(parts[2]), int(parts[3] or 0)) if parts else None
