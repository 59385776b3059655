"""Matrix operators whose input takes longer to pack than to multiply."""

from __future__ import annotations

from math import prod

from model_profiling.analysis.causes.seen import Seen
from model_profiling.analysis.findings import Concern, Finding, percent, where
from model_profiling.analysis.operators import Operator
from model_profiling.wording import plural

_FEW_USES = 16
"""Columns of the result: how often each packed element is used. With so few, packing is most of the work."""


def packing_dominates(seen: Seen) -> Finding | None:
    """By the times of the packing events, or by shape where times say nothing."""
    pairs = [
        (pack, product)
        for pack, product in _packed(seen)
        if (pack.typical_ms > product.typical_ms if seen.timed else 0 < _columns(product) <= _FEW_USES)
    ]
    if not pairs or not seen.matters([product for _, product in pairs]):
        return None
    pairs.sort(key=lambda pair: -seen.weight(pair[0] if seen.timed else pair[1]))
    packs = [pack for pack, _ in pairs]
    return Finding(
        "packing-dominates",
        f"Make {plural(len(pairs), 'matrix operator')} larger, or keep "
        f"{'it' if len(pairs) == 1 else 'them'} off the packed path: packing "
        f"{'its' if len(pairs) == 1 else 'their'} input "
        + ("takes longer than multiplying" if seen.timed else "is most of the work"),
        "each packed element is used once for every column of the result: join layers that read the same "
        "input into one with all their outputs",
        seen.series,
        tuple(_concern(seen, pack, product) for pack, product in pairs),
        {},
        seen.gain_pct(seen.series.spent_by(packs).ms),
    )


def _packed(seen: Seen) -> list[tuple[Operator, Operator]]:
    """Each packing step with the operator that it is for."""
    products = {
        (operator.method, operator.call, operator.source.node_index): operator
        for operator in seen.series.operators
        if operator.delegated and operator.origin != "backend" and operator.packed
    }
    pairs = []
    for operator in seen.series.operators:
        product = products.get((operator.method, operator.call, operator.source.node_index))
        if operator.origin != "backend" or operator.kind != "pack" or product is None:
            continue
        if operator.identity not in seen.claimed and product.identity not in seen.claimed:
            pairs.append((operator, product))
    return pairs


def _columns(operator: Operator) -> int:
    return operator.source.output_shape[-1] if operator.source.output_shape else 0


def _concern(seen: Seen, pack: Operator, product: Operator) -> Concern:
    rows, columns = prod(product.source.output_shape[:-1]), _columns(product)
    facts: dict[str, object] = {"rows": rows, "columns": columns}
    if seen.timed:
        both = pack.typical_ms + product.typical_ms
        facts["packing_share_pct"] = percent(pack.typical_ms / both if both else 0.0)
    shape = f", {rows} x {columns}" if columns else ""
    return Concern((pack,), where(product), f"for {product.name}{shape}", facts)
