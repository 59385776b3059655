"""Data movement in delegates that is no layout change: copies and conversions between number formats."""

from __future__ import annotations

from model_profiling.analysis.causes.seen import KINDS_NAMED, Seen
from model_profiling.analysis.findings import Finding, by_kind, concerns_of
from model_profiling.wording import plural

_CONVERSIONS = ("quantize", "dequantize", "convert")
_COPIES = {
    "copy": "drop copies and concatenations that the next layer could do without",
    "concatenate": "drop concatenations that the next layer could take apart",
    "reshape": "keep one shape from layer to layer: a reshape in a delegate copies",
    "slice": "compute only what the slices keep",
    "pad": "leave the padding to the convolution or pooling that follows",
    "rearrange": "do the rearranging once, at the model's edge",
}
"""What helps against each kind of data movement in delegates; of others nothing is known to help."""
"""What helps against each kind of data movement in delegates; of others nothing is known to help."""


def copies(seen: Seen) -> Finding | None:
    """Data movement in delegates that is neither a layout change nor a conversion nor a kernel's packing."""
    if not seen.timed:
        return None
    series = seen.series
    moving = seen.largest(
        lambda operator: operator.delegated and operator.origin != "lowering" and operator.kind in _COPIES,
    )
    moving = [operator for operator in moving if operator.typical_ms > 0]
    if not moving:
        return None
    kinds = by_kind(moving)
    return Finding(
        "data-movement",
        f"Avoid {plural(len(moving), 'operator')} that only {'moves' if len(moving) == 1 else 'move'} data",
        "; ".join(_COPIES[kind] for kind in list(kinds)[:KINDS_NAMED]),
        series,
        concerns_of(moving),
        {"by_kind_ms": {kind: round(series.spent_by(members).ms, 6) for kind, members in kinds.items()}},
        seen.gain_pct(series.spent_by(moving).ms),
    )


def conversions(seen: Seen) -> Finding | None:
    converting = seen.largest(lambda operator: operator.delegated and operator.kind in _CONVERSIONS)
    if not converting:
        return None
    return Finding(
        "quantize-dequantize",
        f"Drop {plural(len(converting), 'conversion')} between number formats",
        "quantize the operators between the conversions too, so that data stays in one format; feed "
        "quantized input if the application has it",
        seen.series,
        concerns_of(converting),
        {},
        seen.gain_pct(seen.series.spent_by(converting).ms),
    )
