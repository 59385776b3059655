"""The type in which XNNPACK ran each operator.

Where the CPU has no half-precision arithmetic, or that was switched off, XNNPACK runs a graph that is written
in fp16 in fp32, and converts where values come in and go out.
"""

from __future__ import annotations

from collections.abc import Sequence

from model_profiling.program.delegates.xnnpack.operators import describe
from model_profiling.program.records import GraphNode

_WIDE = frozenset({"F32", "PF32"})
_STILL_HALF = "X16"
"""What only moves values may do so before they are converted."""


def ran_in(events: Sequence[str], mains: Sequence[GraphNode | None]) -> tuple[str, ...]:
    labels = [describe(event).family.split(", ")[0] for event in events]
    widened = any(event.startswith("Convert") for event in events) and any(
        node is not None and node.dtype == "fp16" and label in _WIDE
        for label, node in zip(labels, mains, strict=True)
    )
    return tuple(
        "fp32"
        if widened and node is not None and node.dtype == "fp16" and label != _STILL_HALF
        else node.dtype
        if node
        else ""
        for label, node in zip(labels, mains, strict=True)
    )
