"""Findings from one series: what runs outside delegates, what only moves data, what is far below the roof.

What is there is told of any dump; what it costs only where times are latencies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from math import prod

from model_profiling.analysis.categories import Category
from model_profiling.analysis.findings import (
    WORTH,
    Concern,
    Finding,
    by_kind,
    concerns_of,
    largest,
    percent,
    rounded,
    source_line,
    where,
)  # fmt: skip
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.roofline import RoofGap, Roofline, roof_gaps, seen_roofline
from model_profiling.analysis.series import SeriesAnalysis, Spent
from model_profiling.wording import listing, plural

_FAR_BELOW = 0.25
_CONVERSIONS = ("quantize", "dequantize", "convert")
_MATRIX = (Category.CONV, Category.GEMM)
_KINDS_NAMED = 3

_COPIES = {
    "copy": "drop copies and concatenations that the next layer could do without",
    "concatenate": "drop concatenations that the next layer could take apart",
    "reshape": "keep one shape from layer to layer: a reshape in a delegate copies",
    "slice": "compute only what the slices keep",
    "pad": "leave the padding to the convolution or pooling that follows",
    "rearrange": "do the rearranging once, at the model's edge",
}
"""What helps against each kind of data movement in delegates; of others nothing is known to help."""


def about_series(
    series: SeriesAnalysis, roof: Roofline | None = None, claimed: Collection[tuple[str, int, int]] = ()
) -> Iterator[Finding]:
    """What acting on each cause could save in a series whose times are latencies; `claimed` operators are
    those of findings about it that were made elsewhere."""
    found = (
        _outside(series, timed=True),
        _conversions(series, timed=True),
        _layout(series, timed=True),
        _copies(series),
        _inside_delegate(series),
        _below_roof(series, roof, claimed),
    )
    for finding in found:
        if finding is not None and (finding.max_gain_pct or 0.0) >= 100 * WORTH:
            yield finding


def about_structure(series: SeriesAnalysis) -> Iterator[Finding]:
    """The causes that are seen without a clock, the ones that cost most as a rule first."""
    for finding in (_outside(series), _layout(series), _conversions(series)):
        if finding is not None:
            yield finding


def about_names(series: SeriesAnalysis) -> Iterator[Finding]:
    """Names the table of categories does not know."""
    unknown = [operator for operator in series.operators if not operator.known]
    if unknown:
        counts = Counter(operator.type for operator in unknown)
        share = percent(series.spent_by(unknown).share) if series.times.are_latencies else None
        yield Finding(
            "unknown-operators",
            f"Report {plural(len(counts), 'operator name')} that no category has: counted as Other",
            f"tell the kit's authors, so that its table of categories learns {listing(counts)}",
            series,
            evidence={"names": dict(counts), "share_pct": share},
        )


def _outside(series: SeriesAnalysis, *, timed: bool = False) -> Finding | None:
    """What no delegate took, and what entering more than one delegate call costs."""
    calls = series.first.delegate_calls
    outside = largest(series, lambda operator: not operator.delegated)
    if not outside and calls < 2:
        return None
    edges = _edges(series) if calls > 1 and timed else None
    own = series.spent_by(outside)
    evidence: dict[str, object] = {
        "delegate_calls": calls,
        "operator_calls": series.first.operator_calls,
        "outside_by_kind": {kind: len(members) for kind, members in by_kind(outside).items()},
    }
    if timed:
        evidence |= {
            "operators_share_pct": percent(own.share),
            "boundary_ms": round(edges.ms, 6) if edges else 0.0,
            "boundary_share_pct": percent(edges.share) if edges else 0.0,
        }
    return Finding(
        "outside-delegates",
        f"Bring {_counted(outside)} into the delegate"
        if outside
        else f"Join {plural(calls, 'delegate call')} into fewer",
        _into_delegates(outside, calls),
        series,
        concerns_of(outside),
        evidence,
        percent(own.share + (edges.share if edges else 0.0)) if timed else None,
        besides=edges,
    )


def _into_delegates(outside: Sequence[Operator], calls: int) -> str:
    if not outside:
        return (
            "every call has a price: one backend for all of the model, or operators that neighbouring parts "
            "share, join them"
        )
    if not calls:
        return "no delegate took anything: export with --backend xnnpack"
    joined = (
        f"; the model runs as {plural(calls, 'delegate call')}, and fewer cost less to enter"
        if calls > 1
        else ""
    )
    return (
        f"portable kernels ({_kinds(outside)}) run on one thread without SIMD tuning; `sme2prof export` says "
        f"why each was not taken, and what to write instead where something is known{joined}"
    )


def _counted(operators: Sequence[Operator]) -> str:
    """`3 operators`, `1 reduction operator`."""
    kinds = list(by_kind(operators))
    return plural(len(operators), f"{kinds[0]} operator" if len(kinds) == 1 else "operator")


def _kinds(operators: Sequence[Operator]) -> str:
    kinds = list(by_kind(operators))
    return listing((*kinds[:_KINDS_NAMED], "others") if len(kinds) > _KINDS_NAMED else kinds)


def _edges(series: SeriesAnalysis) -> Spent:
    """What is around delegate calls and in none of their operators."""
    cost = series.spent(series.breakdown.framework + series.breakdown.delegate_overhead)
    # Delegates with a clock of their own may report more than their call took.
    return Spent(max(0.0, cost.ms), max(0.0, cost.share))


def _layout(series: SeriesAnalysis, *, timed: bool = False) -> Finding | None:
    """Layout changes in delegates: those that lowering put there and, where they are timed, the model's."""
    moving = largest(
        series,
        lambda operator: (
            operator.delegated
            and operator.category is Category.DATA_MOVEMENT
            and (operator.origin == "lowering" or (timed and operator.kind == "transpose"))
        ),
    )
    if not moving:
        return None
    concerns = tuple(_layout_change(series, operator) for operator in moving)
    inserted = [concern for concern in concerns if concern.operator.origin == "lowering"]
    added = f", {len(inserted)} of them added by lowering" if 0 < len(inserted) < len(moving) else ""
    all_added = " that lowering added" if len(inserted) == len(moving) else ""
    return Finding(
        "layout-changes",
        f"Remove {plural(len(moving), 'layout change')}{all_added}{added}",
        _one_layout(inserted, len(moving)),
        series,
        concerns,
        {"added_by_lowering": len(inserted)},
        percent(series.spent_by(moving).share) if timed else None,
    )


def _layout_change(series: SeriesAnalysis, operator: Operator) -> Concern:
    if operator.origin != "lowering":
        return Concern((operator,), where(operator))
    before, after = _between(series, operator)
    return Concern((operator,), f"between {before} and {after}", "", {"between": [before, after]})


def _one_layout(inserted: Sequence[Concern], count: int) -> str:
    ways = []
    if any(concern.where.startswith(f"between {_INPUT}") for concern in inserted):
        ways.append("export with channels-last input")
    if inserted:
        ways.append(
            "replace an operator that wants channels-first data between convolutions, or move it to the "
            "model's edge"
        )
    if count > len(inserted):
        ways.append("drop permutes and transposes of the model that undo each other")
    return "keep one layout through the model: " + "; ".join(ways)


def _copies(series: SeriesAnalysis) -> Finding | None:
    """Data movement in delegates that is neither a layout change nor a conversion nor a kernel's packing."""
    moving = largest(
        series,
        lambda operator: operator.delegated and operator.origin != "lowering" and operator.kind in _COPIES,
    )
    moving = [operator for operator in moving if operator.typical_ms > 0]
    if not moving:
        return None
    kinds = by_kind(moving)
    return Finding(
        "data-movement",
        f"Avoid {plural(len(moving), 'operator')} that only {'moves' if len(moving) == 1 else 'move'} data",
        "; ".join(_COPIES[kind] for kind in list(kinds)[:_KINDS_NAMED]),
        series,
        concerns_of(moving),
        {"by_kind_ms": {kind: round(series.spent_by(members).ms, 6) for kind, members in kinds.items()}},
        percent(series.spent_by(moving).share),
    )


def _conversions(series: SeriesAnalysis, *, timed: bool = False) -> Finding | None:
    converting = largest(series, lambda operator: operator.delegated and operator.kind in _CONVERSIONS)
    if not converting:
        return None
    return Finding(
        "quantize-dequantize",
        f"Drop {plural(len(converting), 'conversion')} between number formats",
        "quantize the operators between the conversions too, so that data stays in one format; feed "
        "quantized input if the application has it",
        series,
        concerns_of(converting),
        {},
        percent(series.spent_by(converting).share) if timed else None,
    )


def _inside_delegate(series: SeriesAnalysis) -> Finding | None:
    """What a single delegate call takes beside its operators; several calls are a matter of their edges."""
    spent = series.spent(series.breakdown.delegate_overhead)
    if series.first.delegate_calls != 1 or spent.share < 0.10:
        return None
    inside = [operator for operator in series.operators if operator.delegated]
    # Delegates count whole microseconds: what shorter operators took shows here.
    short = sum(operator.times.median_ns < 1000 for operator in inside)
    return Finding(
        "delegate-overhead",
        "Merge small operators: the delegate spends time between them",
        f"{len(inside)} operators run in one delegate call, {short} of them in less than a microsecond, "
        "which counts as none; the tracer costs a little at each, so look at the latency without it first",
        series,
        evidence={
            "ms": round(spent.ms, 6),
            "share_pct": percent(spent.share),
            "operators": len(inside),
            "operators_below_1us": short,
        },
        max_gain_pct=percent(spent.share),
    )


def _below_roof(
    series: SeriesAnalysis, supplied: Roofline | None, claimed: Collection[tuple[str, int, int]]
) -> Finding | None:
    """Matrix operators in delegates that use the machine badly."""
    roof = supplied or seen_roofline(series.operators)
    if roof is None:
        return None
    low = [
        gap
        for gap in roof_gaps(series.operators, roof)
        if gap.efficiency < _FAR_BELOW
        and gap.operator.delegated
        and gap.operator.category in _MATRIX
        and gap.operator.identity not in claimed
        and series.spent_by([gap.operator]).share >= WORTH
    ]
    if not low:
        return None
    low.sort(key=lambda gap: -gap.operator.typical_ms * gap.most_saved)
    gain = sum(series.spent_by([gap.operator]).share * gap.most_saved for gap in low)
    ways = dict.fromkeys(_faster(gap.operator) for gap in low)
    return Finding(
        "below-roofline",
        f"Reshape {plural(len(low), 'matrix operator')} that {'uses' if len(low) == 1 else 'use'} the "
        "machine badly",
        "; ".join(ways),
        series,
        tuple(_below(gap, roof) for gap in low),
        {
            "roof_gflops": round(roof.gflops, 3),
            "roof_gbytes_per_s": round(roof.gbytes_per_s, 3),
            "roof_source": roof.source,
        },
        percent(gain),
    )


def _below(gap: RoofGap, roof: Roofline) -> Concern:
    return Concern(
        (gap.operator,),
        where(gap.operator),
        f"{100 * gap.efficiency:.1f}% of the roof ({roof.source})",
        {
            "efficiency_pct": percent(gap.efficiency),
            "gflops": rounded(gap.operator.gflops),
            "gbytes_per_s": rounded(gap.operator.gbytes_per_s),
        },
    )


def _faster(operator: Operator) -> str:
    """What may bring a matrix operator nearer to the roof."""
    shape = operator.source.output_shape
    if operator.kind == "depthwise convolution":
        return (
            "a depthwise convolution does little arithmetic for each byte: a plain one of fewer channels may "
            "be faster"
        )
    if operator.source.groups > 1:
        return f"{operator.source.groups} groups make small matrices: use fewer"
    if shape and prod(shape[:-1]) == 1 and operator.category is Category.GEMM:
        return "a single row is bound by reading the weights: a smaller number format reads less"
    return "small or odd shapes leave vectors empty: make channels multiples of 16, or batch small matrices"


_INPUT, _OUTPUT = "the call's input", "the call's output"


def _between(series: SeriesAnalysis, operator: Operator) -> tuple[str, str]:
    """Where the nearest operators before and after it in its call come from that the model has."""
    place = operator.method, operator.call
    call = [near for near in series.operators if (near.method, near.call) == place and near.origin == "model"]
    before = [near for near in call if near.position < operator.position]
    after = [near for near in call if near.position > operator.position]
    return (
        _named(before[-1]) if before else _INPUT,
        _named(after[0]) if after else _OUTPUT,
    )


def _named(operator: Operator) -> str:
    """`features.0 (model.py:12)`, `the reshape at model.py:12`."""
    module, line = operator.source.module_path, source_line(operator, short=True)
    if module:
        return f"{module} ({line})" if line else module
    return f"the {operator.kind} at {line}" if line else operator.name
