"""The report's advice and proof: what to do next, what runs on SME2, which kernels ran, if outputs agree."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

from model_profiling.analysis.evidence import PlaceEvidence, SeriesEvidence
from model_profiling.analysis.findings import Finding
from model_profiling.analysis.kernel_names import Kernel
from model_profiling.analysis.kernels import KernelUse
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.sampling import FEWEST, InsideOperator, InsideSeries, SampledPart
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config import names
from model_profiling.core.formatting import MISSING, capitalized, decimals_for, milliseconds, percent, plural
from model_profiling.report import document as doc
from model_profiling.report.breakdown import TRACER_SAID, break_down, series_columns, sme2_switch
from model_profiling.report.charts.latency import ladder_chart
from model_profiling.report.data import ReportData
from model_profiling.report.headroom import what_sme2_could_bring
from model_profiling.report.notes import gain_text
from model_profiling.runs.metrics import PairParity

_KERNELS_SHOWN = 12
_COLUMNS = 4
_FINDINGS_SHOWN = 12
_OPERATORS_SHOWN = 5


def sme2(data: ReportData) -> list[doc.Block]:
    chart = ladder_chart(data)
    return [
        *what_sme2_could_bring(data),
        *([chart] if chart else []),
        *(block for place in data.evidence for block in _kernels(place, data)),
    ]


def _kernels(place: PlaceEvidence, data: ReportData) -> Iterator[doc.Block]:
    if not place.kernels:
        return
    emulated = " (emulated kernels are real, emulated times are not)" if place.emulated else ""
    yield doc.Paragraph(f"Kernels, from {place.source}{emulated}:")
    absent = data.has_sme2 is False and not place.emulated
    columns: tuple[doc.Column[SeriesEvidence], ...] = (
        *series_columns(place.series),
        doc.Column("SME2", lambda found: sme2_switch(found.sme2, absent=absent)),
        doc.Column(
            "what the evidence says",
            lambda found: f"{'not proven: ' if found.sme.answer == 'unknown' else ''}{found.sme.text}",
        ),
    )
    yield doc.table_of(place.kernels, columns)
    yield from doc.make_list(
        f"{found.series.spoken(place.series)}: kernels were not counted, {found.note}"
        for found in place.kernels
        if found.note
    )
    if listed := tuple(_listing(place, data)):
        yield doc.Folded("The kernels", listed)


def _listing(place: PlaceEvidence, data: ReportData) -> Iterator[doc.Block]:
    """List the kernels: those that ran, then those that were only configured."""
    kernels: dict[Kernel, dict[str, KernelUse]] = {}
    for evidence in place.kernels:
        for use in evidence.uses:
            if use.kernel.library != "operator":
                kernels.setdefault(use.kernel, {})[evidence.series.among(place.series) or "calls"] = use
    if not kernels:
        return
    columns = [series.among(place.series) or "calls" for series in place.series]
    rows: list[tuple[doc.Text, ...]] = []
    for kernel, uses in list(kernels.items())[:_KERNELS_SHOWN]:
        cells = [_use(uses.get(column)) for column in columns]
        if len(columns) > _COLUMNS:
            cells = ["; ".join(f"{where}: {_use(use)}" for where, use in uses.items())]
        rows.append((doc.Code(kernel.name), kernel.isa, *cells))
    yield doc.make_table(
        ("kernel", "instruction set", *(columns if len(columns) <= _COLUMNS else ("where",))), rows
    )
    if len(kernels) > _KERNELS_SHOWN:
        where = f"the files *{names.KERNELS_CSV}" if place is data.evidence[0] else names.EVIDENCE
        yield doc.Paragraph(f"{len(kernels) - _KERNELS_SHOWN} more in {where}.")


def _use(use: KernelUse | None) -> str:
    if use is None:
        return MISSING
    if use.evidence == "configured":
        return "only configured"
    return "ran" if use.calls is None else plural(use.calls, "call")


def parity(data: ReportData) -> list[doc.Block]:
    rows = [
        _parity_row(found, place.source, number)
        for place in data.evidence
        for found in place.parity
        for number in range(max(1, len(found.parity.outputs) if found.parity else 1))
    ]
    if not rows:
        return []
    headers = (
        "outputs of", "against", "from", "output", "verdict", "largest difference", "relative", "RMS",
        "allowed", "same top-1",
    )  # fmt: skip
    how_judged = (
        "Relative: the largest difference over the output's largest value. RMS: that of the differences over "
        "the output's own. Another score may be highest where two are close together."
    )
    verdicts = ", ".join(dict.fromkeys(row[4] for row in rows))
    table = doc.make_table(headers, rows)
    return [doc.Folded(f"Outputs of the experiments: {verdicts}", (table, doc.Paragraph(how_judged)))]


def _parity_row(found: PairParity, source: str, number: int) -> tuple[str, ...]:
    named = str(found.candidate), str(found.baseline), source
    if found.parity is None:
        return (*named, MISSING, f"not compared: {found.reason}", *(MISSING,) * 5)
    if not found.parity.outputs:
        return (*named, MISSING, f"{found.parity.verdict}: {found.reason}", *(MISSING,) * 5)
    output = found.parity.outputs[number]
    top1 = MISSING
    if output.top1_rows:
        top1 = "no" if output.top1_differs else "yes"
    return (
        *named,
        f"{output.index}: {output.dtype}{list(output.shape)}",
        output.text,
        f"{output.max_abs:.3g}",
        MISSING if output.of_largest is None else f"{output.of_largest:.2g}",
        MISSING if output.rms_of_rms is None else f"{output.rms_of_rms:.2g}",
        output.tolerance.text,
        top1,
    )


def advice(data: ReportData) -> list[doc.Block]:
    """List what to do, largest possible saving first, each with its operators and where they are."""
    findings = data.findings[:_FINDINGS_SHOWN]
    if not findings:
        return []
    first = findings[0].found_in
    items = tuple(_finding(finding, first) for finding in findings)
    return [doc.Paragraph(_what_bounds_are(data, findings)), doc.Items(items, numbered=True)]


def _what_bounds_are(data: ReportData, findings: Sequence[Finding]) -> str:
    if all(finding.max_gain_pct is None for finding in findings):
        whose = data.times.origin if not data.timed else f"a CPU that is not Arm ({data.cpu})"
        if data.timed and data.is_arm is not False:
            return "How much each saves was not measured."
        return f"How much each saves is not known: these are times of {whose}."
    series = findings[0].found_in
    traced = (
        f" Operators have their times in a typical run with the tracer on ({milliseconds(series.e2e_ms)} ms)."
        if series.untraced_ms is not None
        else ""
    )
    whose = "; ".join(filter(None, (series.label, series.bounds_are_of)))
    return f"Percentages of an inference ({whose}) are upper limits, and they can be added.{traced}"


def _finding(finding: Finding, first: SeriesAnalysis) -> doc.Item:
    elsewhere = ""
    if finding.max_gain_pct and finding.found_in.series != first.series:
        elsewhere = f", of the time of {finding.found_in.label}, not to be added to the others"
    gain = f"{gain_text(finding)}{elsewhere}."
    operators = tuple(_operator_lines(finding))
    steps = [capitalized(step).rstrip(".") for step in finding.steps]
    if len(steps) == 1:
        return doc.Item((doc.Strong(finding.title), f"{gain} {steps[0]}."), operators)
    to_do = doc.Item("What to do:", tuple(f"{step}." for step in steps))
    listed = (doc.Item("The operators:", operators),) if operators else ()
    return doc.Item((doc.Strong(finding.title), gain), (to_do, *listed))


def _operator_lines(finding: Finding) -> Iterator[doc.Text]:
    """Yield a finding's operators, longest first; those made by one line of the model share a line."""
    spent = _spent_words(finding)
    groups = finding.groups
    told = ""
    for group in groups[:_OPERATORS_SHOWN]:
        count = len(group.concerns)
        where = group.where if group.is_between else f"({group.where})"
        note, told = "" if group.note == told else group.note, group.note
        yield (
            f"{count} x " if count > 1 else "",
            doc.Code(group.name),
            f" {where}" if group.where else "",
            f"{spent(group.operators)}{f'; {note}' if note else ''}",
        )
    rest = [operator for group in groups[_OPERATORS_SHOWN:] for operator in group.operators]
    if rest:
        yield f"{plural(len(rest), 'more operator')}, in {names.ANALYSIS}{spent(rest)}"
    if finding.besides is not None:
        ms = f"{finding.besides.ms:.{decimals_for(finding.found_in.e2e_ms)}f} ms"
        tracing = finding.found_in.tracing
        own = "; the tracer's part of it does not count" if tracing.share >= TRACER_SAID else ""
        yield f"{finding.besides_what}: {ms}{own}"


def _spent_words(finding: Finding) -> Callable[[Sequence[Operator]], str]:
    """Return a function that writes `: 0.093 ms`. No share: it would be of another time than the bound's."""
    if finding.max_gain_pct is None:
        return lambda _: ""
    shown = break_down(finding.found_in)
    return lambda operators: f": {shown.of(operators).cells[0]} ms"


# Inside operators: which kernels take their time, from a sampled run.


_SAMPLED_SHOWN = 15
_NAMED_OF_OPERATOR = 3


def inside_operators(data: ReportData) -> list[doc.Block]:
    return [block for found in data.inside for block in _sampled_series(found, alone=len(data.inside) == 1)]


def _sampled_series(found: InsideSeries, *, alone: bool) -> Iterator[doc.Block]:
    if not alone:
        yield doc.Heading(str(found.series), 3)
    yield from doc.make_list(f"{capitalized(note)}." for note in found.notes)
    if not found.samples:
        return
    outside = percent(found.outside / found.samples)
    yield doc.Paragraph(
        f"{plural(found.samples, 'sample')} of what {plural(found.threads, 'thread')} did, at most "
        f"{found.hz} per second, from a separate run ({plural(found.executions, 'inference')}; no latency "
        f"comes from it). {outside} of the samples are outside delegates' operators."
    )
    if found.operators:
        yield from _operator_parts(found) if found.shown else _kernels_seen(found)
    if sentence := _data_movement_text(found):
        yield doc.Paragraph(sentence)


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
    yield doc.table_of(ordered[:_SAMPLED_SHOWN], columns)
    yield doc.Paragraph(
        "A part's share is its share of the operator's samples, so parts add up to the operator. Times are "
        f"the operator's, divided by these shares. Below {FEWEST} samples nothing is divided."
    )


def _share(part: SampledPart, each: InsideOperator) -> str:
    portion = each.parts.get(part)
    if not each.enough:
        return MISSING
    return percent(portion.share if portion else 0.0)


def _kernels_seen(found: InsideSeries) -> Iterator[doc.Block]:
    """Show which kernels each operator was seen in; without shares, because the times mean nothing."""
    yield doc.Paragraph(
        "These samples prove which kernels ran in which operator. How often says nothing: the time they were "
        "taken in is not the hardware's."
    )
    rows: list[tuple[doc.Text, ...]] = []
    for each in found.operators[:_SAMPLED_SHOWN]:
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
