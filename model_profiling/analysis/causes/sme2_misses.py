"""Matrix operators that were proven to miss SME2, and why.

There is no bound: what an operator would gain on SME2 was not measured. So it takes no operators from causes
that have one.
"""

from __future__ import annotations

from collections.abc import Sequence

from model_profiling.analysis.causes.places import by_place, place_of
from model_profiling.analysis.coverage import Coverage, MissingOperator
from model_profiling.analysis.findings import WORTH, Concern, Finding, percent, where
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.wording import plural

_INSTEAD = {
    "dtype": "another number format may reach SME2 kernels (`sme2prof profile MODEL --dtype all`)",
    "quantization scheme": "quantize weights per output channel and inputs ahead of time, both to 8 bits",
    "dynamic weight": "leave products of two activations in fp32 or fp16",
    "portable": "bring what runs outside into the delegate",
    "depthwise": "depthwise convolution has no other path: a plain one of fewer channels has",
}
"""What helps against each cause; of others nothing is known to."""
_POINTWISE_FP16 = (
    "in fp16 write a 1x1 convolution as a linear layer over the channels: its weights are stored as fp16"
)


def misses_sme2(series: SeriesAnalysis, coverage: Coverage) -> Finding | None:
    missing = coverage.missing
    share = sum(each.share or 0.0 for each in missing)
    if not missing or (share < WORTH and all(each.share is not None for each in missing)):
        return None
    ran = by_place(series)
    every = plural(len(coverage.operators), "matrix operator")
    return Finding(
        "misses-sme2",
        f"Know why {len(missing)} of {every} {'misses' if len(missing) == 1 else 'miss'} SME2",
        "; ".join(dict.fromkeys(filter(None, map(_instead, missing)))) or "nothing is known to help",
        series,
        tuple(
            Concern(tuple(found), where(found[0]), each.reason, _facts(each))
            for each in missing
            if (found := ran.get(place_of(each.operator)))
        ),
        {
            "matrix_operators": len(coverage.operators),
            "missing": len(missing),
            "arithmetic_share_pct": percent(share),
            "by_cause": _by_cause(missing),
            "proven": "under emulation" if coverage.emulated else "on a CPU with SME2",
        },
    )


def _instead(missing: MissingOperator) -> str:
    pointwise = missing.operator.kind == "pointwise convolution"
    if pointwise and missing.cause == "dtype" and missing.operator.precision == "fp16":
        return _POINTWISE_FP16
    return _INSTEAD.get(missing.cause, "")


def _facts(missing: MissingOperator) -> dict[str, object]:
    return {
        "cause": missing.cause,
        "reason": missing.reason,
        "precision": missing.operator.precision,
        "arithmetic_share_pct": None if missing.share is None else percent(missing.share),
    }


def _by_cause(missing: Sequence[MissingOperator]) -> dict[str, dict[str, object]]:
    causes: dict[str, list[MissingOperator]] = {}
    for each in missing:
        causes.setdefault(each.cause, []).append(each)
    return {
        cause: {
            "operators": len(members),
            "arithmetic_share_pct": percent(sum(each.share or 0.0 for each in members)),
        }
        for cause, members in causes.items()
    }
