"""Sections of a run's page: what to do next, operators, SME2, whether outputs agree.

Times come from dumps, with the event tracer on. If times mean nothing, the same tables show work instead:
the number of operators, operations and bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from model_profiling.analysis.coverage import FACTORS_FROM, IN_EMULATION, Outlook, Projection, Sme2Coverage
from model_profiling.analysis.evidence import PlaceEvidence, SeriesEvidence
from model_profiling.analysis.findings import Finding, where
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import OperatorPair, Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core.formatting import (
    MISSING,
    as_code,
    capitalized,
    decimals_for,
    milliseconds,
    percent,
    plural,
    span,
)
from model_profiling.program.category import Category
from model_profiling.report import breakdown
from model_profiling.report import document as doc
from model_profiling.report.costs import inside_operators
from model_profiling.report.data import ReportData, headline_series
from model_profiling.report.explorers import explore_operators, explore_timeline, pair_figures, pair_headers
from model_profiling.report.run_charts import (
    categories_of,
    category_shift,
    headroom_chart,
    ladder_chart,
    longest_operators,
    operators_before_after,
)
from model_profiling.runs.records import PairParity


def first_picture(data: ReportData) -> doc.Chart | None:
    """Return the chart beside the answers: the headline's time by category."""
    if compared := breakdown.compared_pairs(data):
        return category_shift(compared[0][1], "categories")
    series = headline_series(data)
    return categories_of(series, "categories") if series and series.times.are_shown else None


def operators(data: ReportData) -> list[doc.Block]:
    """Show categories, then the longest operators; in a browser all of them, and one run."""
    chart = _chart(data)
    inside = tuple(inside_operators(data))
    return [
        *categories(data),
        *([chart] if chart else []),
        *explore_operators(data),
        *_about_columns(data),
        *explore_timeline(data),
        *([doc.Folded("Inside the operators", inside)] if inside else []),
    ]


# Categories: on both sides of the headline comparison, the others folded; or of one experiment.


def categories(data: ReportData) -> list[doc.Block]:
    if compared := breakdown.compared_pairs(data):
        (_, first), *others = compared
        return [
            *_category_change(first),
            *(doc.Folded(pair.label, tuple(_category_change(pairing))) for pair, pairing in others),
        ]
    series = headline_series(data)
    if series is None:
        return []
    if not series.times.are_shown:
        return _work_by_category(series)
    return [breakdown.series_table(series), *_about_times([("", series)])]


def _category_change(pairing: Pairing) -> Iterator[doc.Block]:
    yield breakdown.pair_table(pairing, pairing.sides)
    yield from _about_times(list(zip(pairing.sides, (pairing.baseline, pairing.candidate), strict=True)))


def _about_times(sides: Sequence[tuple[str, SeriesAnalysis]]) -> Iterator[doc.Block]:
    """Say what the times are, which clock they come from, and what overheads consist of."""
    taken_from = {series.taken_from: side for side, series in sides}
    each = taken_from if len(taken_from) == 1 else [f"{side}: {text}" for text, side in taken_from.items()]
    clocks = "; ".join(dict.fromkeys(series.clock for _, series in sides))
    yield doc.Paragraph(f"With the tracer on; {'; '.join(each)}. Operator times: {clocks}.")
    yield from doc.make_list(
        f"{f'{side}: ' if side else ''}{text}"
        for side, series in sides
        for text in breakdown.explain_overheads(series)
    )


def _work_by_category(series: SeriesAnalysis) -> list[doc.Block]:
    rows = []
    for category in Category:
        members = [operator for operator in series.operators if operator.category is category]
        rows.append((category.value, str(len(members)), *breakdown.work_cells(members)))
    whose = f" ({series.label})" if series.label else ""
    return [
        doc.Paragraph(
            f"Times of {series.times.origin} mean nothing, so this table shows the work{whose} instead: "
            "arithmetic operations (a multiplication and an addition are two), and bytes of all tensors "
            "counted once."
        ),
        doc.make_table(("category", "operators", "million operations", "data"), rows, numbers=(1, 2, 3)),
    ]


# The longest operators.


def _about_columns(data: ReportData) -> Iterator[doc.Block]:
    """Say what the columns of the operators are that do not say it themselves."""
    if data.analysis is None:
        return
    coverage = data.outlook.coverage
    notes = ["Speedups compare turn by turn, unlike the two times."] if breakdown.compared_pairs(data) else []
    if coverage.isa and coverage.emulated and data.has_sme2 is False:
        notes.append(f"SME2 {IN_EMULATION}: an emulated run of this program used it; this CPU has none.")
    yield doc.Paragraph(" ".join((*notes, breakdown.VARIANT_NOTE)))


def _chart(data: ReportData) -> doc.Chart | None:
    if compared := breakdown.compared_pairs(data):
        pairing = compared[0][1]
        pairs = sorted(pairing.operators, key=lambda pair: -max(pair.candidate_ms, pair.baseline_ms))
        return operators_before_after(pairing, pairs, "operators")
    series = headline_series(data)
    if series is None or not series.times.are_shown:
        return None
    longest = sorted(series.operators, key=lambda operator: -operator.typical_ms)
    return longest_operators(series, longest, "operators")


def changes_table(
    pairing: Pairing, listed: Sequence[OperatorPair], sides: tuple[str, str], *, timed: bool = True
) -> doc.ShownTable:
    """Return operators before and after."""
    rows = [
        (
            *breakdown.name_cells(pair.main),
            *pair_figures(pairing, pair, timed=timed),
            breakdown.variant_cell(pair),
            *breakdown.place_cells(pair.main),
        )
        for pair in listed
    ]
    headers = (*breakdown.NAME_HEADERS, *pair_headers(*sides), "variant", *breakdown.PLACE_HEADERS)
    return doc.make_table(headers, rows, numbers=(3, 4, 5, 6))


# Advice and proof.

_FINDINGS_SHOWN = 12
_OPERATORS_SHOWN = 5


def sme2(data: ReportData) -> list[doc.Block]:
    chart = ladder_chart(data)
    return [
        *what_sme2_could_bring(data),
        *([chart] if chart else []),
        *(block for place in data.evidence for block in _kernels(place, data)),
    ]


def what_sme2_could_bring(data: ReportData) -> list[doc.Block]:
    outlook = data.outlook
    coverage = outlook.coverage
    if not coverage.tested:
        words = f"It was not tested which operators run on SME2: {coverage.reason}. Next: "
        return [doc.Paragraph(f"{words}{as_code(coverage.next_command)}.")]
    ran = breakdown.proven_text(coverage) if coverage.operators else "Nothing"
    said = doc.Paragraph(f"{ran}{'; ' if coverage.operators else ': '}{coverage.reason}.")
    return [said, *_projections(outlook, data.run.series), *_missing(coverage)]


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
    yield doc.table_of(outlook.projections, (*breakdown.series_columns(every), *_PROJECTIONS))


_PROJECTIONS: tuple[doc.TableColumn[Projection], ...] = (
    doc.Number("share of time", lambda found: percent(found.time_share)),
    doc.Number("lowest speedup", lambda found: breakdown.times_faster(found.low)),
    doc.Number("highest speedup", lambda found: breakdown.times_faster(found.high)),
    doc.Number("limit", lambda found: breakdown.times_faster(found.ceiling)),
    doc.Number("latency ms", lambda found: milliseconds(found.latency_ms)),
    doc.TableColumn(
        "projected ms",
        lambda found: span(milliseconds(found.ms(found.high)), milliseconds(found.ms(found.low))),
    ),
)


def _missing(coverage: Sme2Coverage) -> Iterator[doc.Block]:
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


def _kernels(place: PlaceEvidence, data: ReportData) -> Iterator[doc.Block]:
    if not place.kernels:
        return
    emulated = " (emulated kernels are real, emulated times are not)" if place.emulated else ""
    listed = f"the files *{names.KERNELS_CSV}" if place is data.evidence[0] else names.EVIDENCE
    absent = data.has_sme2 is False and not place.emulated
    columns: tuple[doc.TableColumn[SeriesEvidence], ...] = (
        *breakdown.series_columns(place.series),
        doc.TableColumn("SME2", lambda found: breakdown.sme2_switch(found.sme2, absent=absent)),
        doc.TableColumn(
            "what the evidence says",
            lambda found: f"{'not proven: ' if found.sme.answer == 'unknown' else ''}{found.sme.text}",
        ),
    )
    notes = doc.make_list(
        f"{found.series.spoken(place.series)}: kernels were not counted, {found.note}"
        for found in place.kernels
        if found.note
    )
    about = f"Kernels, from {place.source}{emulated}; each by name in {listed}"
    yield doc.Folded(about, (doc.table_of(place.kernels, columns), *notes))


def parity(data: ReportData) -> list[doc.Block]:
    rows = [
        row for place in data.evidence for found in place.parity for row in _parity_rows(found, place.source)
    ]
    if not rows:
        return []
    headers = (
        "outputs of", "against", "from", "output", "verdict", "largest difference", "relative", "RMS",
        "allowed", "same top-1",
    )  # fmt: skip
    verdicts = ", ".join(dict.fromkeys(row[4] for row in rows))
    table = doc.make_table(headers, rows)
    relative = doc.Paragraph("Relative: over the output's largest value; RMS: over the output's own.")
    return [doc.Folded(f"Outputs of the experiments: {verdicts}", (table, relative))]


def _parity_rows(found: PairParity, source: str) -> Iterator[tuple[str, ...]]:
    named = str(found.candidate), str(found.baseline), source
    if found.parity is None or not found.parity.outputs:
        verdict = found.parity.verdict if found.parity else "not compared"
        yield (*named, MISSING, f"{verdict}: {found.reason}", *(MISSING,) * 5)
        return
    for output in found.parity.outputs:
        yield (
            *named,
            f"{output.index}: {output.dtype}{list(output.shape)}",
            output.text,
            f"{output.max_abs:.3g}",
            MISSING if output.of_largest is None else f"{output.of_largest:.2g}",
            MISSING if output.rms_of_rms is None else f"{output.rms_of_rms:.2g}",
            output.tolerance.text,
            ("no" if output.top1_differs else "yes") if output.top1_rows else MISSING,
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
    gain = f"{breakdown.gain_text(finding)}{elsewhere}."
    operators = tuple(_operator_lines(finding))
    steps = [capitalized(step).rstrip(".") for step in finding.steps]
    if len(steps) == 1:
        return doc.Item((doc.Strong(finding.title), f"{gain} {steps[0]}."), operators)
    to_do = doc.Item("What to do:", tuple(f"{step}." for step in steps))
    listed = (doc.Item("The operators:", operators),) if operators else ()
    return doc.Item((doc.Strong(finding.title), gain), (to_do, *listed))


def _operator_lines(finding: Finding) -> Iterator[doc.Text]:
    """Yield a finding's operators, longest first; those made by one line of the model share a line."""
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
            f"{_spent(finding, group.operators)}{f'; {note}' if note else ''}",
        )
    rest = [operator for group in groups[_OPERATORS_SHOWN:] for operator in group.operators]
    if rest:
        yield f"{plural(len(rest), 'more operator')}, in {names.ANALYSIS}{_spent(finding, rest)}"
    if finding.besides is not None:
        ms = f"{finding.besides.ms:.{decimals_for(finding.found_in.e2e_ms)}f} ms"
        tracing = finding.found_in.tracing
        own = "; the tracer's part of it does not count" if tracing.share >= breakdown.TRACER_SAID else ""
        yield f"{finding.besides_what}: {ms}{own}"


def _spent(finding: Finding, operators: Sequence[Operator]) -> str:
    """Return `: 0.093 ms`. No share: it would be of another time than the bound's."""
    if finding.max_gain_pct is None:
        return ""
    return f": {breakdown.break_down(finding.found_in).of(operators).cells[0]} ms"


# One series in short, for a terminal.


def series_blocks(series: SeriesAnalysis, most: int = 5) -> Iterator[doc.Block]:
    yield doc.Heading(f"{series.name}: {plural(series.runs, 'run')} with the tracer on")
    longest = sorted(series.operators, key=lambda operator: -operator.typical_ms)[:most]
    if series.times.are_shown:
        yield doc.Paragraph(f"times are the {series.taken_from}")
        yield breakdown.series_table(series)
        shown = breakdown.break_down(series)
        rows = [
            (operator.name, *shown.of([operator]).cells, where(operator) or operator.place)
            for operator in longest
        ]
        yield doc.make_table(("operator", "ms", "share", "where"), rows, numbers=(1, 2))
    else:
        yield doc.Paragraph(
            f"from {series.times.origin}: its times are not valid latencies and are not shown"
        )
        counts = ((name, str(count)) for name, count in series.operator_counts.items())
        yield doc.make_table(("category", "operators"), counts, numbers=(1,))
    portable = [operator for operator in series.operators if not operator.delegated]
    if portable and series.times.are_shown:
        share = percent(series.spent_by(portable).share)
        yield doc.Paragraph(
            f"portable: {len(portable)} of {plural(len(series.operators), 'operator')}, {share}"
        )
    if unknown := sorted({operator.type for operator in series.operators if not operator.known}):
        yield doc.Paragraph(f"unknown operators, counted as Other: {', '.join(unknown)}")
