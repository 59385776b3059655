"""The report's tables of categories and operators.

Times come from dumps, with the event tracer on. If times mean nothing, the same tables show work instead:
the number of operators, operations and bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from model_profiling.analysis.coverage import IN_EMULATION
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import OperatorPair, Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.core.formatting import MISSING, listing, milliseconds, percent, plural
from model_profiling.program.category import Category
from model_profiling.report import document as doc
from model_profiling.report.breakdown import (
    EXPLAINED,
    TRACER_SAID,
    ShownTimes,
    break_down,
    compared_pairs,
    explain_overheads,
    pair_table,
    series_table,
)
from model_profiling.report.cells import (
    NAME_HEADERS,
    PLACE_HEADERS,
    VARIANT_NOTE,
    change_cells,
    layer_cell,
    place_cells,
    sme2_cell,
    variant_cell,
    verdict_of,
    work_cells,
)
from model_profiling.report.charts.categories import categories_of, category_shift, work_by_category
from model_profiling.report.charts.operators import (
    arithmetic_of_operators,
    longest_operators,
    operators_before_after,
    roofline_chart,
)
from model_profiling.report.data import PairReport, ReportData
from model_profiling.report.explore_modules import explore_modules, explore_timeline
from model_profiling.report.explore_operators import explore_operators
from model_profiling.report.pair_text import largest_parts, shift_text
from model_profiling.report.verdict import headline_pair

SHOWN = 20


def first_picture(data: ReportData) -> doc.Chart | None:
    """Return the chart beside the answers: the headline's time by category, or its work."""
    if compared := _in_order(data):
        return category_shift(compared[0][1], "categories_1")
    series = headline_series(data)
    if series is None:
        return None
    return categories_of(series, "categories") if series.times.are_shown else work_by_category(series, "work")


def categories(data: ReportData) -> list[doc.Block]:
    """Show categories before and after for every comparable pair, or else for one experiment. The first
    picture is not repeated."""
    if compared := _in_order(data):
        return [
            block
            for place, (pair, pairing) in enumerate(compared, start=1)
            for block in _category_change(pair, pairing, place, len(compared) > 1)
        ]
    series = headline_series(data)
    if series is None:
        return []
    if not series.times.are_shown:
        return _work_by_category(series)
    return [
        doc.Paragraph(
            f"{f'{series.label}, with' if series.label else 'With'} the tracer on: {series.taken_from}."
        ),
        series_table(series),
        doc.Paragraph(_about_clock([series])),
        *doc.make_list(explain_overheads(series)),
    ]


def _in_order(data: ReportData) -> list[tuple[PairReport, Pairing]]:
    told = headline_pair(data)
    return sorted(compared_pairs(data), key=lambda found: found[0] is not told)


def _category_change(pair: PairReport, pairing: Pairing, place: int, named: bool) -> Iterator[doc.Block]:
    if named:
        yield doc.Heading(pair.label, 3)
    sides = list(zip(pairing.sides, (pairing.baseline, pairing.candidate), strict=True))
    taken_from = {series.taken_from: side for side, series in sides}
    alone = len(taken_from) == 1
    said = (f"{'each side' if alone else side}: {taken}" for taken, side in taken_from.items())
    yield doc.Paragraph(f"With the tracer on; {'; '.join(said)}.")
    shift = shift_text(*largest_parts(pairing), pairing.sides)
    if place > 1:
        yield category_shift(pairing, f"categories_{place}")
    yield pair_table(pairing, pairing.sides)
    yield doc.Paragraph(doc.Strong(shift))
    yield doc.Paragraph(_about_clock([pairing.baseline, pairing.candidate]))
    yield from doc.make_list(
        f"{side}: {text}" for side, series in sides for text in explain_overheads(series)
    )


def _about_clock(series: Sequence[SeriesAnalysis]) -> str:
    """Say which clock the operator times come from, and how much overhead the tracer causes."""
    clocks = "; ".join(dict.fromkeys(found.clock for found in series))
    # Where overheads are explained, that text already says it.
    told = [
        found.spent(found.breakdown.tracing)
        for found in series
        if found.spent(found.breakdown.framework).share <= EXPLAINED
    ]
    if max((spent.share for spent in told), default=0.0) < TRACER_SAID:
        return f"Operator times: {clocks}."
    parts = listing(f"{milliseconds(spent.ms)} ms ({percent(spent.share)})" for spent in told)
    return (
        f"Operator times: {clocks}. Of framework overhead, {parts} went to telling the tracer of operators: "
        "an inference without the tracer does not take that."
    )


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


def operators(data: ReportData) -> list[doc.Block]:
    """Show charts of the longest operators, then explorers of operators, modules and one run; without a
    browser, tables of the longest operators."""
    return [
        *(chart for chart in _charts(data) if chart),
        *explore_operators(data, _operators(data)),
        *_about_columns(data),
        *explore_modules(data),
        *explore_timeline(data),
    ]


def _about_columns(data: ReportData) -> Iterator[doc.Block]:
    """Say what the columns of the operators are that do not say it themselves."""
    if data.analysis is None:
        return
    turns = "Speedups compare turn by turn, so they may differ from the ratio of the two times. "
    elsewhere = (
        f"SME2 {IN_EMULATION}: this CPU has no SME2, so this run did not use it; an emulated run of the same "
        "program did. "
    )
    coverage = data.outlook.coverage
    emulated = coverage.isa and coverage.emulated and data.has_sme2 is False
    yield doc.Paragraph(
        f"{turns if compared_pairs(data) else ''}{elsewhere if emulated else ''}{VARIANT_NOTE}"
    )


def _charts(data: ReportData) -> Iterator[doc.Chart | None]:
    """Yield charts of the operators in the tables, and the roofline of the headline series."""
    series = headline_series(data)
    structural = _structural(data)
    if compared := compared_pairs(data):
        for place, (_, pairing) in enumerate(compared, start=1):
            yield operators_before_after(pairing, _longest_pairs(pairing), f"operators_{place}")
    elif structural is not None:
        changes = [(found.main, variant_cell(found)) for found in _most_work_pairs(structural)]
        yield arithmetic_of_operators(changes, structural.label, "operators")
    elif series is not None and not series.times.are_shown:
        families = [(found, found.family) for found in _largest(series)]
        yield arithmetic_of_operators(families, series.label, "operators")
    elif series is not None:
        yield longest_operators(series, _largest(series), "operators")
    if series is not None and series.times.are_shown:
        yield roofline_chart(series)


def _structural(data: ReportData) -> Pairing | None:
    """Return a pair that shows which kernels changed, if times mean nothing."""
    if data.times.are_shown:
        return None
    return next((pair.pairing for pair in data.pairs if pair.pairing is not None), None)


def _largest(series: SeriesAnalysis) -> list[Operator]:
    """Return the longest operators or, if times mean nothing, those with most arithmetic."""
    timed = series.times.are_shown
    return sorted(
        series.operators, key=lambda found: -(found.typical_ms if timed else found.source.flops or 0)
    )[:SHOWN]


def _longest_pairs(pairing: Pairing) -> list[OperatorPair]:
    return sorted(pairing.operators, key=lambda found: -max(found.candidate_ms, found.baseline_ms))[:SHOWN]


def _most_work_pairs(pairing: Pairing) -> list[OperatorPair]:
    return sorted(pairing.operators, key=lambda found: -(found.main.source.flops or 0))[:SHOWN]


def _operators(data: ReportData) -> list[doc.Block]:
    if compared := compared_pairs(data):
        return [
            block
            for pair, pairing in compared
            for block in _operator_changes(data, pair, pairing, len(compared) > 1)
        ]
    if structural := _structural(data):
        return _kernel_changes(data, structural)
    series = headline_series(data)
    if series is None:
        return []
    sme2 = data.sme2_of(series)
    if not series.times.are_shown:
        return [_work_table([(found, (sme2[series.place(found)],)) for found in _largest(series)], "SME2")]
    longest = _largest(series)
    shown = break_down(series)
    rows: list[tuple[doc.Text, ...]] = [
        (*_named(found), *shown.of([found]).cells, sme2[series.place(found)], *place_cells(found))
        for found in longest
    ]
    rows += [
        (name, MISSING, category, *cells, *(MISSING,) * 3) for name, category, cells in _rest(shown, longest)
    ]
    headers = (*NAME_HEADERS, "ms", "share", "SME2", *PLACE_HEADERS)
    return [*_how_many(len(longest), len(series.operators)), doc.make_table(headers, rows, numbers=(3, 4))]


def _named(operator: Operator) -> tuple[doc.Text, doc.Text, doc.Text]:
    return layer_cell(operator), doc.Code(operator.name), operator.category.value


def _rest(shown: ShownTimes, listed: Sequence[Operator]) -> Iterator[tuple[str, str, tuple[str, str]]]:
    """Yield the time of the operators not listed, so that the table adds up: name, category, cells."""
    places = {shown.series.place(operator) for operator in listed}
    for category in Category:
        members = [operator for operator in shown.series.operators if operator.category is category]
        named = [operator for operator in members if shown.series.place(operator) in places]
        if len(named) < len(members):
            rest = shown.parts[category.value] - shown.of(named)
            yield f"{len(members) - len(named)} more", category.value, rest.cells


def _operator_changes(
    data: ReportData, pair: PairReport, pairing: Pairing, named: bool
) -> Iterator[doc.Block]:
    longest = _longest_pairs(pairing)
    if named:
        yield doc.Heading(pair.label, 3)
    yield from _how_many(len(longest), len(pairing.operators))
    yield changes_table(pairing, longest, pairing.sides, data, rest=True)
    yield from _tally(pairing)


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
    for found in listed:
        ours = before.of(found.baseline).cells[0] if timed and found.baseline else MISSING
        theirs = after.of(found.candidate).cells if timed and found.candidate else (MISSING, MISSING)
        rows.append(
            (
                *_named(found.main),
                ours,
                *theirs,
                change_cells(ours, theirs[0], found.ratio, found.speedup)[1] if timed else MISSING,
                verdict_of(found.speedup),
                *((sme2_cell(found, pairing, *on_sme2),) if on_sme2 else ()),
                variant_cell(found),
                *place_cells(found.main),
            )
        )
    if rest:
        shown = (each for found in listed for each in found.baseline)
        left = {category: (name, cells) for name, category, cells in _rest(before, list(shown))}
        shown = (each for found in listed for each in found.candidate)
        right = {category: (name, cells) for name, category, cells in _rest(after, list(shown))}
        for category in (found.value for found in Category if found.value in left | right):
            name, cells = right.get(category) or (left[category][0], (MISSING, MISSING))
            spent = left[category][1][0] if category in left else MISSING
            rows.append((name, MISSING, category, spent, *cells, *(MISSING,) * (6 if on_sme2 else 5)))
    headers = (
        *NAME_HEADERS, f"{sides[0]} ms", f"{sides[1]} ms", f"share {sides[1]}", "speedup", "verdict",
        *(("SME2",) if on_sme2 else ()), "variant", *PLACE_HEADERS,
    )  # fmt: skip
    return doc.make_table(headers, rows, numbers=(3, 4, 5, 6))


def _tally(pairing: Pairing) -> Iterator[doc.Block]:
    counts = [
        (len(pairing.changed("kernel changed")), "changed their kernel"),
        (len(pairing.changed("appeared")), "appeared"),
        (len(pairing.changed("vanished")), "vanished"),
        (len(pairing.changed("split", "merged")), "were split or merged"),
    ]
    said = [f"{count} {what}" for count, what in counts if count]
    if said:
        yield doc.Paragraph(f"Of {plural(len(pairing.operators), 'operator')}, {', '.join(said)}.")


def _kernel_changes(data: ReportData, pairing: Pairing) -> list[doc.Block]:
    """Show kernel changes for runs without times, most arithmetic first."""
    first, second = pairing.sides
    title = doc.Paragraph(f"The column variant shows {first} → {second} where they differ.")
    on_sme2 = data.sme2_of(pairing.baseline), data.sme2_of(pairing.candidate)
    rows = [
        (found.main, (sme2_cell(found, pairing, *on_sme2), variant_cell(found)))
        for found in _most_work_pairs(pairing)
    ]
    return [title, _work_table(rows, "SME2", "variant"), *_tally(pairing)]


def _work_table(rows: Sequence[tuple[Operator, tuple[str, ...]]], *headers: str) -> doc.Table:
    cells = [(*_named(found), work_cells((found,))[0], *more, *place_cells(found)) for found, more in rows]
    named = (*NAME_HEADERS, "million operations", *headers, *PLACE_HEADERS)
    return doc.make_table(named, cells, numbers=(3,))


def headline_series(data: ReportData) -> SeriesAnalysis | None:
    """Return the one series to show: the headline experiment's, or else preferably one with SME2 on."""
    if data.headline is not None and data.headline.dumps is not None:
        return data.headline.dumps
    known = [found for found in data.experiments if found.dumps is not None]
    first = min(known, key=lambda found: found.sme2 is False, default=None)
    return first.dumps if first else None


def _how_many(shown: int, total: int) -> list[doc.Block]:
    return [doc.Paragraph(f"The {shown} longest of {total}; the rest by category.")] if shown < total else []
