"""The report's section on operators: categories, the longest operators, modules, what delegates left out.

Times come from dumps, with the event tracer on. If times mean nothing, the same tables show work instead:
the number of operators, operations and bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from model_profiling.analysis.causes.outside import (
    REASON_NOT_KNOWN,
    OutsideLine,
    joined_calls,
    outside_lines,
)
from model_profiling.analysis.coverage import IN_EMULATION
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import OperatorPair, Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.analysis.series_views import calls_of
from model_profiling.config import names
from model_profiling.core.formatting import MISSING, capitalized, listing, milliseconds, percent, plural
from model_profiling.program.category import Category
from model_profiling.report import document as doc
from model_profiling.report.breakdown import (
    EXPLAINED,
    NAME_HEADERS,
    PLACE_HEADERS,
    TRACER_SAID,
    VARIANT_NOTE,
    ShownTimes,
    break_down,
    change_cells,
    compared_pairs,
    explain_overheads,
    layer_cell,
    pair_table,
    place_cells,
    series_table,
    sme2_cell,
    variant_cell,
    verdict_of,
    work_cells,
)
from model_profiling.report.charts.categories import categories_of, category_shift, work_by_category
from model_profiling.report.charts.operators import longest_operators, operators_before_after
from model_profiling.report.data import PairReport, ReportData, headline_pair, headline_series
from model_profiling.report.evidence_sections import inside_operators
from model_profiling.report.explorers import explore_operators, explore_timeline

SHOWN = 10
_PORTABLE_SHOWN = 10


def first_picture(data: ReportData) -> doc.Chart | None:
    """Return the chart beside the answers: the headline's time by category, or its work."""
    if compared := _in_order(data):
        return category_shift(compared[0][1], "categories")
    series = headline_series(data)
    if series is None:
        return None
    return categories_of(series, "categories") if series.times.are_shown else work_by_category(series, "work")


def operators(data: ReportData) -> list[doc.Block]:
    """Show categories, then the longest operators; in a browser all of them, and one run."""
    chart = _chart(data)
    delegates, inside = tuple(backends(data)), tuple(inside_operators(data))
    return [
        *categories(data),
        *([chart] if chart else []),
        *explore_operators(data, longest_operators_table(data)),
        *_about_columns(data),
        *explore_timeline(data),
        *([doc.Folded("Portable and delegated", delegates)] if delegates else []),
        *([doc.Folded("Inside the operators", inside)] if inside else []),
    ]


# Categories: on both sides of the headline comparison, the others folded; or of one experiment.


def categories(data: ReportData) -> list[doc.Block]:
    if compared := _in_order(data):
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
    return [series_table(series), *_about_times([("", series)])]


def _in_order(data: ReportData) -> list[tuple[PairReport, Pairing]]:
    headline = headline_pair(data)
    return sorted(compared_pairs(data), key=lambda compared: compared[0] is not headline)


def _category_change(pairing: Pairing) -> Iterator[doc.Block]:
    yield pair_table(pairing, pairing.sides)
    yield from _about_times(list(zip(pairing.sides, (pairing.baseline, pairing.candidate), strict=True)))


def _about_times(sides: Sequence[tuple[str, SeriesAnalysis]]) -> Iterator[doc.Block]:
    """Say what the times are, which clock they come from, and what overheads consist of."""
    taken_from = {series.taken_from: side for side, series in sides}
    each = taken_from if len(taken_from) == 1 else [f"{side}: {text}" for text, side in taken_from.items()]
    clocks = "; ".join(dict.fromkeys(series.clock for _, series in sides))
    yield doc.Paragraph(f"With the tracer on; {'; '.join(each)}. Operator times: {clocks}.{_tracing(sides)}")
    yield from doc.make_list(
        f"{f'{side}: ' if side else ''}{text}" for side, series in sides for text in explain_overheads(series)
    )


def _tracing(sides: Sequence[tuple[str, SeriesAnalysis]]) -> str:
    """Say how much overhead the tracer causes; where overheads are explained, that text already says it."""
    spent = [
        series.spent(series.breakdown.tracing)
        for _, series in sides
        if series.spent(series.breakdown.framework).share <= EXPLAINED
    ]
    if max((part.share for part in spent), default=0.0) < TRACER_SAID:
        return ""
    parts = listing(f"{milliseconds(part.ms)} ms ({percent(part.share)})" for part in spent)
    return f" Of framework overhead, {parts} is the tracer's own."


def _work_by_category(series: SeriesAnalysis) -> list[doc.Block]:
    rows = []
    for category in Category:
        members = [operator for operator in series.operators if operator.category is category]
        rows.append((category.value, str(len(members)), *work_cells(members)))
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
    notes = ["Speedups compare turn by turn, unlike the two times."] if compared_pairs(data) else []
    if coverage.isa and coverage.emulated and data.has_sme2 is False:
        notes.append(f"SME2 {IN_EMULATION}: an emulated run of this program used it; this CPU has none.")
    yield doc.Paragraph(" ".join((*notes, VARIANT_NOTE)))


def _chart(data: ReportData) -> doc.Chart | None:
    if compared := _in_order(data):
        pairing = compared[0][1]
        return operators_before_after(pairing, _longest_pairs(pairing), "operators")
    series = headline_series(data)
    timed = series is not None and series.times.are_shown
    return longest_operators(series, _largest(series), "operators") if series and timed else None


def _largest(series: SeriesAnalysis) -> list[Operator]:
    """Return the longest operators or, if times mean nothing, those with most arithmetic."""
    timed = series.times.are_shown
    return sorted(
        series.operators,
        key=lambda operator: -(operator.typical_ms if timed else operator.source.flops or 0),
    )[:SHOWN]


def _longest_pairs(pairing: Pairing) -> list[OperatorPair]:
    return sorted(pairing.operators, key=lambda pair: -max(pair.candidate_ms, pair.baseline_ms))[:SHOWN]


def longest_operators_table(data: ReportData) -> list[doc.Block]:
    """The longest operators for pages without scripts."""
    if compared := _in_order(data):
        pairing = compared[0][1]
        longest = _longest_pairs(pairing)
        return [changes_table(pairing, longest, pairing.sides, data, rest=True)]
    series = headline_series(data)
    if series is None:
        return []
    sme2, largest = data.sme2_of(series), _largest(series)
    if not series.times.are_shown:
        worked = [(one, (sme2[series.place(one)], one.family or MISSING)) for one in largest]
        return [_work_table(worked, "SME2", "variant")]
    shown = break_down(series)
    rows: list[tuple[doc.Text, ...]] = [
        (*_named(one), *shown.of([one]).cells, sme2[series.place(one)], *place_cells(one)) for one in largest
    ]
    rows += [
        (name, MISSING, category, *cells, *(MISSING,) * 3) for name, category, cells in _rest(shown, largest)
    ]
    headers = (*NAME_HEADERS, "ms", "share", "SME2", *PLACE_HEADERS)
    return [doc.make_table(headers, rows, numbers=(3, 4))]


def _named(operator: Operator) -> tuple[doc.Text, doc.Text, doc.Text]:
    return layer_cell(operator), doc.Code(operator.name), operator.category.value


def _rest(shown: ShownTimes, listed: Sequence[Operator]) -> Iterator[tuple[str, str, tuple[str, str]]]:
    """Yield the time of the operators not listed, so that the table adds up: name, category, cells."""
    for category in Category:
        members = sum(operator.category is category for operator in shown.series.operators)
        named = [operator for operator in listed if operator.category is category]
        if len(named) < members:
            rest = shown.rest(category.value, named)
            yield f"{members - len(named)} more", category.value, rest.cells


def changes_table(
    pairing: Pairing,
    listed: Sequence[OperatorPair],
    sides: tuple[str, str],
    data: ReportData | None = None,
    *,
    timed: bool = True,
    rest: bool = False,
) -> doc.Table:
    """Return operators before and after; `data` adds what runs on SME2, and `rest` the others by category, so
    that the table adds up."""
    before, after = break_down(pairing.baseline), break_down(pairing.candidate)
    on_sme2 = (data.sme2_of(pairing.baseline), data.sme2_of(pairing.candidate)) if data else None
    rows: list[tuple[doc.Text, ...]] = []
    for pair in listed:
        ours = before.of(pair.baseline).cells[0] if timed and pair.baseline else MISSING
        theirs = after.of(pair.candidate).cells if timed and pair.candidate else (MISSING, MISSING)
        rows.append(
            (
                *_named(pair.main),
                ours,
                *theirs,
                change_cells(ours, theirs[0], pair.ratio, pair.speedup)[1] if timed else MISSING,
                verdict_of(pair.speedup),
                *((sme2_cell(pair, pairing, *on_sme2),) if on_sme2 else ()),
                variant_cell(pair),
                *place_cells(pair.main),
            )
        )
    if rest:
        left, right = (
            {category: (name, cells) for name, category, cells in _rest(shown, operators)}
            for shown, operators in (
                (before, [operator for pair in listed for operator in pair.baseline]),
                (after, [operator for pair in listed for operator in pair.candidate]),
            )
        )
        for category in (each.value for each in Category if each.value in left | right):
            name, cells = right.get(category) or (left[category][0], (MISSING, MISSING))
            spent = left[category][1][0] if category in left else MISSING
            rows.append((name, MISSING, category, spent, *cells, *(MISSING,) * (6 if on_sme2 else 5)))
    headers = (
        *NAME_HEADERS, f"{sides[0]} ms", f"{sides[1]} ms", f"share {sides[1]}", "speedup", "verdict",
        *(("SME2",) if on_sme2 else ()), "variant", *PLACE_HEADERS,
    )  # fmt: skip
    return doc.make_table(headers, rows, numbers=(3, 4, 5, 6))


def _work_table(rows: Sequence[tuple[Operator, tuple[str, ...]]], *headers: str) -> doc.Table:
    cells = [(*_named(one), work_cells((one,))[0], *more, *place_cells(one)) for one, more in rows]
    named = (*NAME_HEADERS, "million operations", *headers, *PLACE_HEADERS)
    return doc.make_table(named, cells, numbers=(3,))


# Delegates: how much they took, what they left to portable kernels, and why.


def backends(data: ReportData) -> list[doc.Block]:
    series = headline_series(data)
    if series is None:
        return []
    if not series.operators:
        return [doc.Paragraph(_calls_text(series))]
    shown = break_down(series)
    rows: list[tuple[doc.Text, ...]] = []
    for name in dict.fromkeys(operator.backend for operator in series.operators):
        members = [operator for operator in series.operators if operator.backend == name]
        kind = "delegate" if members[0].delegated else "portable kernels"
        rows.append((name, kind, str(len(members)), *shown.of(members).cells))
    blocks: list[doc.Block] = [
        doc.Paragraph(_calls_text(series)),
        _timed_table(series, ("backend", "kind", "operators", "ms", "share"), rows),
    ]
    portable = [operator for operator in series.operators if not operator.delegated]
    if not portable:
        return [*blocks, doc.Paragraph("Every operator was delegated.")]
    lines = outside_lines(series, portable)
    blocks += _by_line(series, shown, lines)
    if not any(line.reasons for line in lines):
        blocks.append(doc.Paragraph(f"{capitalized(REASON_NOT_KNOWN)}."))
    return blocks


def _calls_text(series: SeriesAnalysis) -> str:
    """For example `Each inference calls delegates 3 times and portable kernels once.`"""
    kinds = {"delegates": series.first.delegate_calls, "portable kernels": series.first.operator_calls}
    times = {1: "once", 2: "twice"}
    calls = [f"{kind} {times.get(count, f'{count} times')}" for kind, count in kinds.items() if count]
    whose = f" ({series.label})" if series.label else ""
    return f"Each inference{whose} calls {listing(calls) if calls else 'no operator'}."


def _by_line(series: SeriesAnalysis, shown: ShownTimes, lines: Sequence[OutsideLine]) -> Iterator[doc.Block]:
    """Show what each line of the model leaves outside delegates, and why, longest first."""
    ordered = sorted(lines, key=lambda line: -series.spent_by(line.operators).ms)[:_PORTABLE_SHOWN]
    rows: list[tuple[doc.Text, ...]] = [
        (
            line.name,
            ", ".join(
                f"{count} x {name}"
                for name, count in Counter(one.type for one in line.operators).most_common()
            ),
            line.place or MISSING,
            line.why or "not known",
            *shown.of(line.operators).cells,
        )
        for line in ordered
    ]
    yield _timed_table(series, ("left outside by", "operators", "source", "why", "ms", "share"), rows)
    if left := len(lines) - len(ordered):
        yield doc.Paragraph(f"{plural(left, 'more line')}, in {names.ANALYSIS} and beside the program.")
    if joined := joined_calls(series, lines, calls_of(series)):
        calls = series.first.delegate_calls
        would = f"there would be {plural(calls - joined, 'delegate call')} instead of {calls}"
        yield doc.Paragraph(f"They split the delegate: with these changes {would}.")


def _timed_table(
    series: SeriesAnalysis, headers: Sequence[str], rows: Sequence[Sequence[doc.Text]]
) -> doc.Table:
    """Return a table without its last two columns, which are times, if times mean nothing."""
    if series.times.are_shown:
        return doc.make_table(headers, rows, numbers=(len(headers) - 2, len(headers) - 1))
    return doc.make_table(headers[:-2], [row[:-2] for row in rows])
