"""Data movement in delegates that the model asks for: concatenations, permutes, slices, copies."""

from __future__ import annotations

from model_profiling.analysis.causes.seen import KINDS_NAMED, Seen
from model_profiling.analysis.findings import Finding, concerns_of
from model_profiling.wording import plural

_A_TENTH = 0.1
"""Of what they cost together: kinds that cost less are worth no sentence."""
_COPIES = {
    "concatenate": "`torch.cat` copies all that it joins: a linear layer or 1x1 convolution of a "
    "concatenation is the sum of one for each part",
    "transpose": "a permute copies its whole tensor: keep one order of dimensions from layer to layer",
    "copy": "drop `clone` and `contiguous` that nothing needs",
    "reshape": "keep one shape from layer to layer: a reshape in a delegate copies",
    "slice": "slices copy: layers of their own for the parts make them without one",
    "pad": "drop pads of nothing, which copy all the same, and leave padding that is alike on both sides to "
    "the convolution or pooling that follows",
    "rearrange": "do the rearranging once, at the model's edge",
}
"""What helps against each kind of data movement in delegates; of others nothing is known to help."""

_SEVERAL = {"concatenate": "concatenations", "copy": "copies", "rearrange": "rearrangements"}


def copies(seen: Seen) -> Finding | None:
    """Data movement in delegates that is neither lowering's nor a conversion nor a kernel's packing."""
    series = seen.series
    moving = seen.largest(
        lambda operator: (
            operator.delegated
            and operator.origin != "backend"
            and operator.kind in _COPIES
            and not (operator.origin == "lowering" and operator.kind == "transpose")
            and (operator.typical_ms > 0 if seen.timed else bool(operator.source.bytes_moved))
        ),
    )
    if not moving or not seen.matters(moving):
        return None
    kinds = seen.kinds(moving)
    by_kind: dict[str, object] = {"by_kind": {kind: len(members) for kind, members in kinds.items()}}
    if seen.timed:
        by_kind["by_kind_ms"] = {
            kind: round(series.spent_by(members).ms, 6) for kind, members in kinds.items()
        }
    whole = sum(map(seen.weight, moving))
    costly = [kind for kind, members in kinds.items() if sum(map(seen.weight, members)) >= _A_TENTH * whole]
    mostly = f", mostly {_SEVERAL.get(costly[0], f'{costly[0]}s')}" if len(costly) == 1 < len(moving) else ""
    return Finding(
        "data-movement",
        f"Avoid {plural(len(moving), 'operator')} that only {'moves' if len(moving) == 1 else 'move'} data"
        f"{mostly}",
        "; ".join(_COPIES[kind] for kind in costly[:KINDS_NAMED]),
        series,
        concerns_of(moving),
        by_kind,
        seen.gain_pct(series.spent_by(moving).ms),
    )
