"""What SME2 could gain: the report's section for people, and facts for machines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import asdict

from model_profiling.analysis.coverage import FACTORS_FROM, Coverage, Outlook, Part, Projection
from model_profiling.analysis.matching import NOT_KNOWN
from model_profiling.config.series import Series
from model_profiling.core.formatting import MISSING, as_code, capitalized, milliseconds, percent, plural, span
from model_profiling.report import document as doc
from model_profiling.report.breakdown import series_columns
from model_profiling.report.charts.operators import headroom_chart
from model_profiling.report.data import ReportData
from model_profiling.runs.evidence import MatrixOperator

# For people. A projection is always called one, and the text beside it says what it is based on.


def what_sme2_could_bring(data: ReportData) -> list[doc.Block]:
    outlook = data.outlook
    coverage = outlook.coverage
    blocks: list[doc.Block] = []
    if not coverage.tested:
        words = f"It was not tested which operators run on SME2: {coverage.reason}. Next: "
        return [doc.Paragraph(f"{words}{as_code(coverage.next_command)}.")]
    if coverage.operators:
        blocks.append(doc.Paragraph(f"{proven_text(coverage)}; {coverage.reason}."))
    else:
        blocks.append(doc.Paragraph(f"Nothing: {coverage.reason}."))
    blocks += _projections(outlook, data.run.series)
    blocks += _missing(coverage)
    return blocks


def _projections(outlook: Outlook, every: Collection[Series]) -> Iterator[doc.Block]:
    if not outlook.projections:
        yield doc.Paragraph(f"No projection: {outlook.reason}.")
        return
    yield doc.Paragraph(
        "This is a projection, not a measurement. It applies Amdahl's law to the times measured here: the "
        f"operators proven to run on SME2 become faster by a range of factors ({FACTORS_FROM}), "
        "everything else stays the same."
    )
    if chart := headroom_chart(outlook.projections, every):
        yield chart
    named = series_columns(every)
    yield doc.table_of(outlook.projections, (*named, *_PROJECTIONS))
    groups = [(found, group) for found in outlook.projections for group in found.groups]
    parts = doc.make_table(
        (*(column.header for column in named), "operators on SME2", "count", "share of time", "factors"),
        [
            (
                *(column.cell(found) for column in named),
                *(group.name, str(group.operators), percent(group.time_share), str(group.factor)),
            )
            for found, group in groups
        ],
        numbers=(len(named) + 1, len(named) + 2),
    )
    yield doc.Folded("What the projection is made of", (parts,))


def _projected(found: Projection) -> str:
    if found.latency_ms is None:
        return MISSING
    return f"{milliseconds(found.ms(found.high))} to {milliseconds(found.ms(found.low))}"


_PROJECTIONS: tuple[doc.Column[Projection], ...] = (
    doc.Number("share of time", lambda found: percent(found.time_share)),
    doc.Number("lowest speedup", lambda found: _times(found.low)),
    doc.Number("highest speedup", lambda found: _times(found.high)),
    doc.Number("limit", lambda found: _times(found.ceiling)),
    doc.Number("latency ms", lambda found: milliseconds(found.latency_ms)),
    doc.Column("projected ms", _projected),
)


def _missing(coverage: Coverage) -> Iterator[doc.Block]:
    if coverage.uncounted:
        words = "The arithmetic of {} is not known, so the shares do not include it."
        yield doc.Paragraph(words.format(plural(coverage.uncounted, "matrix operator")))
    for backend, calls in Counter(coverage.unseen).items():
        yield doc.Paragraph(
            f"{plural(calls, 'call')} of {backend} reported no operators, so the shares do not include it."
        )
    if not coverage.missing:
        return
    yield doc.Paragraph("Not on SME2, by reason:")
    rows = [(*each[:2], str(each.operators), percent(each.share)) for each in coverage.missing_reasons]
    yield doc.make_table(("why", "because of", "operators", "share of arithmetic"), rows, numbers=(2, 3))


def proven_text(coverage: Coverage) -> str:
    """Say how much of the matrix work ran on SME2."""
    every = plural(len(coverage.operators), "matrix operator")
    ran = f"{coverage.isa} kernels ran {len(coverage.proven)} of {every}"
    if coverage.arithmetic_share is not None:
        known = " that is known" if coverage.unseen or coverage.uncounted else ""
        ran += f", {percent(coverage.arithmetic_share)} of the matrix arithmetic{known}"
    if not coverage.isa:
        where = "Under emulation, " if coverage.emulated else ""
        one = len(coverage.operators) == 1
        none = "the only matrix operator did not use" if one else f"none of the {every} used"
        return capitalized(f"{where}{none} SME2")
    return f"Under emulation: {ran}" if coverage.emulated else ran


def range_text(found: Projection) -> str:
    """Rough, as the factors are: `about 2.7x to 9.6x`."""
    return f"about {span(_times(found.low, rough=True), _times(found.high, rough=True))}"


def _times(speedup: float, *, rough: bool = False) -> str:
    decimals = 1 if rough and speedup >= 2 else 2
    return f"{speedup:.{decimals}f}x" if math.isfinite(speedup) else "without a bound"


# For machines: `sme2_coverage`, `sme2_headroom` and `headroom_reason`, the same in every file and command.

Json = dict[str, object]


def outlook_facts(outlook: Outlook) -> Json:
    projections = [_projection(found) for found in outlook.projections]
    headroom: Json | None = None
    if projections:
        headroom = {
            "kind": "projection",
            **projections[0],
            "inputs": {
                "factors": FACTORS_FROM,
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
        "missing": [_missing_operator(found, each) for each in found.missing],
    }


def _missing_operator(coverage: Coverage, operator: MatrixOperator) -> Json:
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
        "share": coverage.share_of(operator),
        "cause": operator.cause or NOT_KNOWN,
        "reason": operator.why_not,
        "precision": operator.precision,
    }


def _projection(found: Projection) -> Json:
    return {
        **asdict(found.series),
        "low": found.low,
        "high": found.high,
        "ceiling": found.ceiling if math.isfinite(found.ceiling) else None,  # JSON has no infinity
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
    }


def _part(part: Part) -> Json:
    return {"category": part.name, "share": part.share}
