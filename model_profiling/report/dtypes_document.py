"""The page `dtypes.md` and its table in the terminal, with one column per number format."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from model_profiling.config import names
from model_profiling.core.formatting import MISSING, listing, milliseconds, percent, plural, size
from model_profiling.program.graph_file import described
from model_profiling.report import document as doc
from model_profiling.report.cells import number_cell, speedup_text
from model_profiling.report.dtypes import Accuracy, DtypePair, Dtypes, DtypeSide, OnSme2
from model_profiling.report.terms import with_terms
from model_profiling.statistics.speedup import Verdict


def dtypes_document(found: Dtypes) -> list[doc.Block]:
    first, end, rest = found.verdict.partition(". ")
    blocks = [
        doc.Heading(f"Which number format for {found.model}?", 1),
        doc.Paragraph((doc.Strong(f"{first}{end}".rstrip()), f" {rest}")),
        dtypes_table(found),
        *_meaning(found),
        *_outside(found),
        *_sme2(found),
        *_compared(found),
    ]
    return list(with_terms(blocks))


def dtypes_table(found: Dtypes) -> doc.Block:
    """Formats are columns, so that the table fits a terminal of usual width."""
    headers = ("number format", *(side.dtype for side in found.sides))
    rows = [
        (name, *(MISSING if side.problem and not side.program else cell(side) for side in found.sides))
        for name, cell in _rows(found)
    ]
    return doc.make_table(headers, rows, numbers=range(1, len(headers)))


_Cell = Callable[[DtypeSide], str]


def _rows(found: Dtypes) -> Iterator[tuple[str, _Cell]]:
    if any(side.latency for side in found.sides):
        yield (
            "latency, median ms",
            lambda side: milliseconds(side.latency.median_ms) if side.latency else "not measured",
        )
        yield (
            "latency, 5% to 95% ms",
            lambda side: _range(side.latency.p5_ms, side.latency.p95_ms) if side.latency else MISSING,
        )
    if any(side.projected for side in found.sides):
        yield (
            "with SME2, projected ms",
            lambda side: _range(side.projected.low_ms, side.projected.high_ms) if side.projected else MISSING,
        )
    yield (
        "arithmetic, million operations",
        lambda side: f"{side.work.flops / 1e6:,.1f}" if side.work else MISSING,
    )
    yield "data moved", lambda side: size(side.work.bytes_moved) if side.work else MISSING
    yield "program size", lambda side: size(side.size_bytes)
    yield (
        "matrix operators on SME2",
        lambda side: _tested(side, lambda on: f"{on.operators} of {on.operators_total}"),
    )
    yield "matrix arithmetic on SME2", lambda side: _tested(side, lambda on: percent(on.arithmetic_share))
    yield "operators in delegates", lambda side: number_cell(side.operators_inside)
    yield "delegates", lambda side: number_cell(side.delegates)
    yield "operators outside", lambda side: str(side.operators_outside)
    if any(side.outside_time_share is not None for side in found.sides):
        yield "time outside", lambda side: percent(side.outside_time_share)
    yield "error against float32", lambda side: _error(side.accuracy) if side.accuracy else MISSING
    if any(side.accuracy and side.accuracy.top1 for side in found.sides):
        yield "same top-1 as float32", lambda side: (side.accuracy and side.accuracy.top1) or MISSING


def _range(low: float, high: float) -> str:
    return f"{milliseconds(low)} to {milliseconds(high)}"


def _tested(side: DtypeSide, cell: Callable[[OnSme2], str]) -> str:
    return cell(side.sme2) if side.sme2 and side.sme2.evidence != "not tested" else "not tested"


def _error(found: Accuracy) -> str:
    return f"{found.error:.2g}{'' if found.ok else ' (too large)'}"


def _meaning(found: Dtypes) -> Iterator[doc.Block]:
    where = {
        "sme2": f"Latencies were measured on {found.cpu}, with SME2 on.",
        "arm": f"Latencies were measured on {found.cpu}, an Arm CPU without SME2: a baseline.",
        "other": f"Latencies were measured on {found.cpu}. It is not an Arm CPU: they say nothing about Arm.",
    }
    lines = [where.get(found.machine, "No latency was measured: nothing here says which format is faster.")]
    if any(side.projected for side in found.sides):
        lines.append(
            "Projected, not measured: the time of operators that SME2 runs, divided by a range of factors."
        )
    real = max((side.accuracy.real_inputs for side in found.sides if side.accuracy), default=0)
    lines.append(
        "The error is the largest difference from eager PyTorch in float32, as a share of the output range,"
        f" on {plural(real, 'calibration input') if real else 'the example inputs'}."
    )
    for side in found.sides:
        if side.keep:
            lines.append(f"{side.dtype}: {', '.join(side.keep)} in fp32.")
        if side.accuracy and side.accuracy.calibration:
            lines.append(f"{side.dtype}: ranges come from {side.accuracy.calibration}.")
    lines += [f"{dtype} was left out: {reason}." for dtype, reason in found.left_out.items()]
    yield from doc.make_list(lines)


def _outside(found: Dtypes) -> Iterator[doc.Block]:
    if not any(side.outside for side in found.sides):
        if found.worked:
            yield doc.Paragraph("No operator stays outside the delegates.")
        return
    yield doc.Heading("What stays outside the delegates, and why")
    for side in found.sides:
        if side.outside:
            yield doc.Paragraph((doc.Strong(side.dtype), f": {plural(side.operators_outside, 'operator')}"))
            yield doc.Items(tuple(doc.Item(text, details) for text, details in described(side.outside)))


def _sme2(found: Dtypes) -> Iterator[doc.Block]:
    known = [(side.dtype, side.sme2) for side in found.sides if side.sme2]
    if known:
        yield doc.Heading("What runs on SME2, and what does not")
        alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for dtype, sme2 in known:
            missing = (
                f"not on SME2: {plural(each.operators, 'operator')}, {percent(each.arithmetic_share)} of the "
                f"arithmetic: {each.reason}"
                for each in sme2.missing
            )
            alike.setdefault((sme2.reason, tuple(missing)), []).append(dtype)
        yield doc.Items(
            tuple(
                doc.Item(f"{listing(dtypes)}: {reason}", missing)
                for (reason, missing), dtypes in alike.items()
            )
        )
    if found.failed:
        yield doc.Heading("What failed")
        yield from doc.make_list(f"{side.dtype}: {side.problem}; {side.fix}" for side in found.failed)


def _compared(found: Dtypes) -> Iterator[doc.Block]:
    yield doc.Heading("What was compared")
    for side in found.worked:
        runs = (("run ", doc.Link(run, f"{run}/{names.REPORT_PAGE}")) for run in side.runs)
        program = ("program ", doc.Code(side.program), f", SHA-256 {side.sha256[:16]}")
        yield doc.Items((doc.Item(side.dtype, (program, *runs)),))
    yield from doc.make_list(map(_pair, found.pairs))


def _pair(pair: DtypePair) -> str:
    found = pair.speedup
    said = f"{pair.dtype} compared with {pair.against}: {found.verdict.value}"
    if found.ratio is not None:
        said += f", {speedup_text(found)}"
    return f"{said}, because {found.reason}" if found.verdict is Verdict.NOT_COMPARABLE else said
