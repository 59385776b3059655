"""One series in short, for a terminal: where its time goes and its longest operators."""

from __future__ import annotations

from collections.abc import Iterator

from model_profiling.analysis.findings import where
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.report.breakdown import break_down, series_table
from model_profiling.report.document import Block, Heading, Paragraph, make_table
from model_profiling.wording import percent, plural


def series_blocks(series: SeriesAnalysis, most: int = 5) -> Iterator[Block]:
    yield Heading(f"{series.name}: {plural(series.runs, 'run')} with the tracer on")
    longest = sorted(series.operators, key=lambda operator: -operator.typical_ms)[:most]
    if series.times.are_shown:
        yield Paragraph(f"times are the {series.taken_from}")
        yield series_table(series)
        shown = break_down(series)
        rows = [
            (operator.name, *shown.of([operator]).cells, where(operator) or operator.place)
            for operator in longest
        ]
        yield make_table(("operator", "ms", "share", "where"), rows, numbers=(1, 2))
    else:
        yield Paragraph(f"from {series.times.origin}: its times mean nothing and are not shown")
        counts = [
            (category.value, str(sum(operator.category is category for operator in series.operators)))
            for category in series.breakdown.categories
        ]
        yield make_table(("category", "operators"), counts, numbers=(1,))
    portable = [operator for operator in series.operators if not operator.delegated]
    if portable and series.times.are_shown:
        share = percent(series.spent_by(portable).share)
        yield Paragraph(f"portable: {len(portable)} of {plural(len(series.operators), 'operator')}, {share}")
    if names := series.first.unknown_names:
        yield Paragraph(f"unknown operators, counted as Other: {', '.join(names)}")
