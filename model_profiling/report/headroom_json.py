"""The keys `sme2_coverage`, `sme2_headroom` and `headroom_reason`: the same in every file and command."""

from __future__ import annotations

import math
from dataclasses import asdict

from model_profiling.analysis.coverage import Coverage, MissingOperator
from model_profiling.analysis.headroom import Outlook, Part, Projection

Json = dict[str, object]


def outlook_facts(outlook: Outlook) -> Json:
    projections = [_projection(found) for found in outlook.projections]
    headroom: Json | None = None
    if projections:
        headroom = {
            "kind": "projection",
            **projections[0],
            "inputs": {
                "factors": outlook.factors.origin,
                "time_share": "typical times with the event tracer on, measured on an Arm CPU without SME2",
                "latency_ms": "median without the tracer",
                "operators": outlook.coverage.reason,
            },
            "per_series": projections,
        }
    return {
        "sme2_coverage": _coverage(outlook.coverage),
        "sme2_headroom": headroom,
        "headroom_reason": outlook.reason or None,
    }


def _coverage(found: Coverage) -> Json:
    tested = found.tested
    return {
        "evidence": found.evidence,
        "reason": found.reason,
        "next": found.next_command or None,
        "instruction_set": found.isa or None,
        "emulated": found.emulated if tested else None,
        "operators": len(found.proven) if tested else None,
        "operators_total": len(found.operators) if tested or found.work else None,
        "flops": found.flops if tested else None,
        "flops_total": found.flops_total if tested or found.work else None,
        "arithmetic_share": found.arithmetic_share,
        "operators_uncounted": found.uncounted if tested or found.work else None,
        "counted_from": "the program" if found.work else "what ran" if tested else None,
        "delegates_unseen": list(found.unseen),
        "missing": [_missing(each) for each in found.missing],
    }


def _missing(found: MissingOperator) -> Json:
    operator = found.operator
    return {
        "name": operator.name,
        "method": operator.method,
        "chain_index": operator.chain_index,
        "instruction_id": operator.instruction_id,
        "node": operator.node if operator.node >= 0 else None,
        "category": operator.category.value,
        "kind": operator.kind,
        "delegate_backend": operator.backend,
        "module_path": operator.module_path,
        "source": operator.source,
        "flops": operator.flops,
        "share": found.share,
        "cause": found.cause,
        "reason": found.reason,
        "precision": operator.precision,
    }


def _projection(found: Projection) -> Json:
    return {
        **asdict(found.series),
        "low": found.low,
        "high": found.high,
        "ceiling": _bound(found.ceiling),
        "factors": [
            {
                "operators": group.name,
                "count": group.operators,
                "time_share": group.time_share,
                "low": group.factor.low,
                "high": group.factor.high,
            }
            for group in found.groups
        ],
        "time_share": found.time_share,
        "bottleneck_before": _part(found.before),
        "bottleneck_after": {"low": _part(found.after_low), "high": _part(found.after_high)},
        "latency_ms": found.latency_ms,
        "projected_ms": {
            name: found.ms(speedup)
            for name, speedup in (("low", found.low), ("high", found.high), ("ceiling", found.ceiling))
        },
        "taken_from": found.taken_from,
        "unmatched": list(found.unmatched),
    }


def _part(part: Part) -> Json:
    return {"category": part.name, "share": part.share}


def _bound(speedup: float) -> float | None:
    """None where there is no bound: JSON has no infinity."""
    return speedup if math.isfinite(speedup) else None
