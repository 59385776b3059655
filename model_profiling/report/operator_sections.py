"""The report's section on operators: categories, the longest operators, one run.

Times come from dumps, with the event tracer on. If times mean nothing, the same tables show work instead:
the number of operators, operations and bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from model_profiling.analysis.coverage import IN_EMULATION
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import OperatorPair, Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.core.formatting import MISSING
from model_profiling.program.category import Category
from model_profiling.report import document as doc
from model_profiling.report.breakdown import (
    NAME_HEADERS,
    PLACE_HEADERS,
    VARIANT_NOTE,
    break_down,
    compared_pairs,
    explain_overheads,
    name_cells,
    pair_table,
    place_cells,
    series_table,
    variant_cell,
    work_cells,
)
from model_profiling.report.data import ReportData, headline_series
from model_profiling.report.evidence_sections import inside_operators
from model_profiling.report.explorers import (
    explore_operators,
    explore_timeline,
    pair_figures,
    pair_headers,
    views_of,
)
from model_profiling.report.run_charts import (
    categories_of,
    category_shift,
    longest_operators,
    operators_before_after,
)

SHOWN = 10


def first_picture(data: ReportData) -> doc.Chart | None:
    """Return the chart beside the answers: the headline's time by category."""
    if compared := compared_pairs(data):
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
        *explore_operators(data, longest_operators_table(data)),
        *_about_columns(data),
        *explore_timeline(data),
        *([doc.Folded("Inside the operators", inside)] if inside else []),
    ]


# Categories: on both sides of the headline comparison, the others folded; or of one experiment.


def categories(data: ReportData) -> list[doc.Block]:
    if compared := compared_pairs(data):
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


def _category_change(pairing: Pairing) -> Iterator[doc.Block]:
    yield pair_table(pairing, pairing.sides)
    yield from _about_times(list(zip(pairing.sides, (pairing.baseline, pairing.candidate), strict=True)))


def _about_times(sides: Sequence[tuple[str, SeriesAnalysis]]) -> Iterator[doc.Block]:
    """Say what the times are, which clock they come from, and what overheads consist of."""
    taken_from = {series.taken_from: side for side, series in sides}
    each = taken_from if len(taken_from) == 1 else [f"{side}: {text}" for text, side in taken_from.items()]
    clocks = "; ".join(dict.fromkeys(series.clock for _, series in sides))
    yield doc.Paragraph(f"With the tracer on; {'; '.join(each)}. Operator times: {clocks}.")
    yield from doc.make_list(
        f"{f'{side}: ' if side else ''}{text}" for side, series in sides for text in explain_overheads(series)
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
    if compared := compared_pairs(data):
        pairing = compared[0][1]
        return operators_before_after(pairing, _longest_pairs(pairing), "operators")
    series = headline_series(data)
    timed = series is not None and series.times.are_shown
    return longest_operators(series, _largest(series), "operators") if series and timed else None


def _largest(series: SeriesAnalysis) -> list[Operator]:
    """Return the longest operators or, if times mean nothing, those with most arithmetic."""
    timed = series.times.are_shown
    return sorted(
        series.operators, key=lambda operator: -(operator.typical_ms if timed else operator.source.flops or 0)
    )[:SHOWN]


def _longest_pairs(pairing: Pairing) -> list[OperatorPair]:
    return sorted(pairing.operators, key=lambda pair: -max(pair.candidate_ms, pair.baseline_ms))[:SHOWN]


def longest_operators_table(data: ReportData) -> list[doc.Block]:
    """The longest operators for pages without scripts, then all others as one: the table adds up."""
    views = views_of(data)
    if not views:
        return []
    view = views[0]
    lines = view.lines(data.sme2_of)
    rows = [line.cells for line in lines[:SHOWN]]
    if view.timed and (rest := lines[SHOWN:]):
        sides = [
            break_down(series).sum_of(
                operator for line in rest for owner, operator in line.inside if owner is series
            )
            for series in view.series
        ]
        figures = (*(side.cells[0] for side in sides), sides[-1].cells[1])
        row = (f"{len(rest)} more", MISSING, MISSING, *figures)
        rows.append((*row, *(MISSING,) * (len(view.headers) - len(row))))
    return [doc.make_table(view.headers, rows, numbers=view.numbers)]


def changes_table(
    pairing: Pairing, listed: Sequence[OperatorPair], sides: tuple[str, str], *, timed: bool = True
) -> doc.ShownTable:
    """Return operators before and after."""
    rows = [
        (
            *name_cells(pair.main),
            *pair_figures(pairing, pair, timed=timed),
            variant_cell(pair),
            *place_cells(pair.main),
        )
        for pair in listed
    ]
    headers = (*NAME_HEADERS, *pair_headers(*sides), "variant", *PLACE_HEADERS)
    return doc.make_table(headers, rows, numbers=(3, 4, 5, 6))
