"""Inside operators: which kernels take their time, from a sampled run."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from model_profiling.analysis.sampling import FEWEST, InsideOperator, InsideSeries, SampledKernel, SampledPart
from model_profiling.core.formatting import MISSING, capitalized, milliseconds, percent, plural
from model_profiling.report import document as doc
from model_profiling.report.data import ReportData

_OPERATORS_SHOWN = 15
_KERNELS_SHOWN = 12
_NAMED_OF_OPERATOR = 3


def inside_operators(data: ReportData) -> list[doc.Block]:
    return [block for found in data.inside for block in _series(found, alone=len(data.inside) == 1)]


def _series(found: InsideSeries, *, alone: bool) -> Iterator[doc.Block]:
    if not alone:
        yield doc.Heading(str(found.series), 3)
    if found.problem:
        yield doc.Paragraph(f"Nothing is known of what its threads did: {found.problem}.")
        return
    yield doc.Paragraph(_how_sampled(found))
    if found.note:
        yield doc.Paragraph(f"{capitalized(found.note)}.")
    if found.operators:
        yield from _operator_parts(found) if found.shown else _kernels_seen(found)
    if sentence := _data_movement_text(found):
        yield doc.Paragraph(sentence)
    yield from _kernel_table(found)
    yield from doc.make_list(
        f"The functions of {name} are not told apart: {why}." for name, why in found.files.items()
    )


def _how_sampled(found: InsideSeries) -> str:
    lost = f" {found.lost} more were lost because memory ran out." if found.lost else ""
    outside = percent(found.outside / found.samples) if found.samples else MISSING
    return (
        f"{plural(found.samples, 'sample')} of what {plural(found.threads, 'thread')} did, at most "
        f"{found.hz} per second, from a separate run ({plural(found.executions, 'inference')}; no latency "
        f"comes from it). {outside} of the samples are outside delegates' operators; "
        f"{percent(found.unnamed_share)} of the work is in functions without a name.{lost}"
    )


def _operator_parts(found: InsideSeries) -> Iterator[doc.Block]:
    parts = [part for part in SampledPart if any(part in each.parts for each in found.operators)]
    ordered = sorted(found.operators, key=lambda each: -(each.operator.typical_ms if each.operator else 0.0))
    columns: tuple[doc.Column[InsideOperator], ...] = (
        doc.Column("operator", lambda each: each.name),
        doc.Number("ms", lambda each: milliseconds(each.operator.typical_ms if each.operator else None)),
        doc.Number("samples", lambda each: str(each.samples)),
        *(doc.Number(part.value, functools.partial(_share, part)) for part in parts),
        doc.Column(
            "mostly in",
            lambda each: (
                doc.Code(each.kernels[0].name) if each.enough and each.kernels else "too few samples"
            ),
        ),
    )
    yield doc.table_of(ordered[:_OPERATORS_SHOWN], columns)
    yield doc.Paragraph(
        "A part's share is its share of the operator's samples, so parts add up to the operator; the 95% "
        "interval in brackets takes samples as independent. Times are the operator's, divided by these "
        f"shares. Below {FEWEST} samples nothing is divided."
    )


def _share(part: SampledPart, each: InsideOperator) -> str:
    portion = each.parts.get(part)
    if not each.enough:
        return MISSING
    if portion is None:
        return "0%"
    return f"{percent(portion.share)} ({100 * portion.low:.0f} to {100 * portion.high:.0f})"


def _kernels_seen(found: InsideSeries) -> Iterator[doc.Block]:
    """Show which kernels each operator was seen in; without shares, because the times mean nothing."""
    yield doc.Paragraph(
        "These samples prove which kernels ran in which operator. How often says nothing: the time they were "
        "taken in is not the hardware's."
    )
    rows: list[tuple[doc.Text, ...]] = []
    for each in found.operators[:_OPERATORS_SHOWN]:
        worked = [kernel for kernel in each.kernels if kernel.part is not SampledPart.WAITING]
        named = worked[:_NAMED_OF_OPERATOR]
        names = doc.Code(", ".join(kernel.name for kernel in named)) if named else MISSING
        which = ", ".join(dict.fromkeys(kernel.part.value for kernel in named)) or MISSING
        rows.append((each.name, str(each.samples), names, which))
    yield doc.make_table(("operator", "samples", "seen in", "which is"), rows, numbers=(1,))


def _data_movement_text(found: InsideSeries) -> str:
    moving = found.moving
    if moving is None or not found.shown:
        return ""
    many = plural(moving.operators, "operator")
    if moving.ms <= 0:
        return f"No packing and no indirection by name was seen inside the {many} that multiply matrices."
    return (
        f"Inside the {many} that multiply matrices, packing and indirection take {percent(moving.share)} of "
        f"the time ({milliseconds(moving.ms)} ms of an inference): data movement that CONV and GEMM hide."
    )


def _kernel_table(found: InsideSeries) -> Iterator[doc.Block]:
    worked = [kernel for kernel in found.kernels if kernel.part is not SampledPart.WAITING]
    if not worked:
        return
    total = sum(kernel.samples for kernel in found.kernels)
    columns: list[doc.Column[SampledKernel]] = [
        doc.Column("function", lambda kernel: doc.Code(kernel.name)),
        doc.Column("part", lambda kernel: kernel.part.value),
        doc.Column("instruction set", lambda kernel: kernel.isa or MISSING),
        doc.Number("samples", lambda kernel: str(kernel.samples)),
    ]
    if found.shown:
        columns.append(doc.Number("of all", lambda kernel: percent(kernel.samples / total)))
    yield doc.table_of(worked[:_KERNELS_SHOWN], columns)
    if len(worked) > _KERNELS_SHOWN:
        rest = sum(kernel.samples for kernel in worked[_KERNELS_SHOWN:])
        more = plural(len(worked) - _KERNELS_SHOWN, "function")
        yield doc.Paragraph(f"{more} more, with {plural(rest, 'sample')}.")
