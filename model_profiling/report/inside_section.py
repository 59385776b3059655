"""The report's view inside operators: which kernels their time goes to, from a run that was sampled."""

from __future__ import annotations

from collections.abc import Iterator

from model_profiling.analysis.inside import FEWEST, InsideOperator, InsideSeries, Part, Portion, SeenKernel
from model_profiling.report.data import ReportData
from model_profiling.report.document import Block, Code, Heading, Paragraph, Text, make_list, make_table
from model_profiling.wording import MISSING, milliseconds, percent, plural

_OPERATORS_SHOWN = 15
_KERNELS_SHOWN = 12
_NAMED_OF_OPERATOR = 3


def inside_operators(data: ReportData) -> list[Block]:
    """Of each series that was sampled; empty where none was."""
    return [block for found in data.inside for block in _series(found, alone=len(data.inside) == 1)]


def _series(found: InsideSeries, *, alone: bool) -> Iterator[Block]:
    if not alone:
        yield Heading(str(found.series), 3)
    if found.problem:
        yield Paragraph(f"{found.series}: nothing is known of what its threads did: {found.problem}.")
        return
    yield Paragraph(_how(found))
    if found.note:
        yield Paragraph(f"{found.note[0].upper()}{found.note[1:]}.")
    if found.operators:
        yield from _divided(found) if found.shown else _seen(found)
    if sentence := _moving(found):
        yield Paragraph(sentence)
    yield from _kernel_table(found)
    yield from make_list(
        f"The functions of {name} are not told apart: {why}." for name, why in found.files.items()
    )


def _how(found: InsideSeries) -> str:
    lost = f" {found.lost} more found no memory." if found.lost else ""
    outside = percent(found.outside / found.samples) if found.samples else MISSING
    return (
        f"{found.series}: {plural(found.samples, 'sample')} of where {plural(found.threads, 'thread')} "
        f"{'was' if found.threads == 1 else 'were'}, {found.hz} in a second at most, in a run of its own "
        f"({plural(found.executions, 'inference')}, never part of a latency). {outside} of them lie outside "
        f"delegates' operators; {percent(found.unnamed_share)} of the work is in functions that nothing "
        f"names.{lost}"
    )


def _divided(found: InsideSeries) -> Iterator[Block]:
    """Operators by time, each with its parts."""
    parts = [part for part in Part if any(part in each.parts for each in found.operators)]
    ordered = sorted(found.operators, key=lambda each: -_ms(each))
    rows = [_row(each, parts) for each in ordered[:_OPERATORS_SHOWN]]
    yield make_table(
        ("operator", "ms", "samples", *(part.value for part in parts), "mostly in"),
        rows,
        numbers=tuple(range(1, 3 + len(parts))),
    )
    yield Paragraph(
        "A part's share is its share of the operator's samples, so parts add up to the operator; the 95% "
        "interval in brackets takes samples as independent. Times are the operator's, divided by these "
        f"shares. Below {FEWEST} samples nothing is divided."
    )


def _row(each: InsideOperator, parts: list[Part]) -> tuple[Text, ...]:
    shares = [_share(each.parts.get(part)) if each.enough else MISSING for part in parts]
    mostly = Code(each.kernels[0].name) if each.enough and each.kernels else "too few samples"
    ms = milliseconds(each.operator.typical_ms) if each.operator else MISSING
    return each.name, ms, str(each.samples), *shares, mostly


def _share(portion: Portion | None) -> str:
    if portion is None:
        return "0%"
    return f"{percent(portion.share)} ({100 * portion.low:.0f} to {100 * portion.high:.0f})"


def _ms(each: InsideOperator) -> float:
    return each.operator.typical_ms if each.operator else 0.0


def _seen(found: InsideSeries) -> Iterator[Block]:
    """Which kernels each operator was seen in; where time passes otherwise, shares of it mean nothing."""
    yield Paragraph(
        "These samples prove which kernels ran in which operator. How often says nothing: the time they were "
        "taken in is not the hardware's."
    )
    rows: list[tuple[Text, ...]] = []
    for each in found.operators[:_OPERATORS_SHOWN]:
        named = [kernel for kernel in each.kernels if kernel.part is not Part.WAITING][:_NAMED_OF_OPERATOR]
        rows.append((each.name, str(each.samples), *_kernels_cell(named)))
    yield make_table(("operator", "samples", "seen in", "which is"), rows, numbers=(1,))


def _kernels_cell(kernels: list[SeenKernel]) -> tuple[Text, Text]:
    return (
        Code(", ".join(kernel.name for kernel in kernels)) if kernels else MISSING,
        ", ".join(dict.fromkeys(kernel.part.value for kernel in kernels)) or MISSING,
    )


def _moving(found: InsideSeries) -> str:
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


def _kernel_table(found: InsideSeries) -> Iterator[Block]:
    worked = [kernel for kernel in found.kernels if kernel.part is not Part.WAITING]
    if not worked:
        return
    total = sum(kernel.samples for kernel in found.kernels)
    headers = ("function", "part", "instruction set", "samples")
    rows: list[tuple[Text, ...]] = [
        (
            Code(kernel.name),
            kernel.part.value,
            kernel.isa or MISSING,
            str(kernel.samples),
            *([percent(kernel.samples / total)] if found.shown else []),
        )
        for kernel in worked[:_KERNELS_SHOWN]
    ]
    yield make_table(
        (*headers, "of all") if found.shown else headers, rows, numbers=(3, 4)[: len(rows[0]) - 3]
    )
    if len(worked) > _KERNELS_SHOWN:
        rest = sum(kernel.samples for kernel in worked[_KERNELS_SHOWN:])
        more = plural(len(worked) - _KERNELS_SHOWN, "function")
        yield Paragraph(f"{more} more, with {plural(rest, 'sample')}.")
