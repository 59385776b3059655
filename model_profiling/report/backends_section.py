"""The report's section on delegates: how much they took, what they left to portable kernels, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from model_profiling.analysis.calls import calls_of
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.outside_lines import (
    REASON_NOT_KNOWN,
    OutsideLine,
    joined_calls,
    joining_words,
    outside_lines,
)
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.report.breakdown import Breakdown, break_down
from model_profiling.report.data import ReportData
from model_profiling.report.document import Block, Code, Inline, Paragraph, Table, Text, make_list, make_table
from model_profiling.report.operator_cells import module_cell
from model_profiling.report.operator_sections import headline_series
from model_profiling.run import names
from model_profiling.wording import MISSING, plural

_PORTABLE_SHOWN = 10


def backends(data: ReportData) -> list[Block]:
    """How much of the work the delegates took, and which operators they left to portable kernels."""
    series = headline_series(data)
    if series is None:
        return []
    shown = break_down(series)
    rows: list[tuple[Text, ...]] = []
    for name in dict.fromkeys(operator.backend for operator in series.operators):
        members = [operator for operator in series.operators if operator.backend == name]
        kind = "delegate" if members[0].delegated else "portable kernels"
        rows.append((name, kind, str(len(members)), *shown.of(members).cells))
    blocks: list[Block] = [
        Paragraph(
            f"{series.name}: {plural(series.first.delegate_calls, 'delegate call')} and "
            f"{plural(series.first.operator_calls, 'operator call')} outside them in each run."
        ),
        _timed_table(series, ("backend", "kind", "operators", "ms", "share"), rows),
    ]
    portable = [operator for operator in series.operators if not operator.delegated]
    if not portable:
        return [*blocks, Paragraph("Every operator was delegated.")]
    portable.sort(key=lambda operator: -operator.typical_ms)
    lines = outside_lines(series, portable)
    if any(line.reasons for line in lines):
        advised = any(one.id == "outside-delegates" and one.found_in is series for one in data.findings)
        return [*blocks, *_by_line(series, shown, lines, advised=advised)]
    headers = ("outside delegates", "how many", "modules", "ms", "share")
    not_known = Paragraph(f"{REASON_NOT_KNOWN[:1].upper()}{REASON_NOT_KNOWN[1:]}.")
    return [*blocks, _timed_table(series, headers, _by_type(shown, portable)), not_known]


def _by_line(
    series: SeriesAnalysis, shown: Breakdown, lines: Sequence[OutsideLine], *, advised: bool
) -> Iterator[Block]:
    """What each line of the model leaves outside and why, the longest first; then what to write instead,
    where no advice below says it."""
    ordered = sorted(lines, key=lambda line: -series.spent_by(line.operators).ms)[:_PORTABLE_SHOWN]
    everyone = [operator for line in lines for operator in line.operators]
    times = shown.within(shown.of(everyone), everyone, [line.operators for line in ordered])
    rows: list[tuple[Text, ...]] = [
        (
            line.name,
            ", ".join(f"{count} x {name}" for name, count in _counted(line)),
            line.place or MISSING,
            line.why or "not known",
            *spent.cells,
        )
        for line, spent in zip(ordered, times, strict=True)
    ]
    yield _timed_table(series, ("left outside by", "operators", "source", "why", "ms", "share"), rows)
    left = len(lines) - len(ordered)
    if left:
        yield Paragraph(f"{plural(left, 'more line')}, in {names.ANALYSIS} and beside the program.")
    if joined := joined_calls(series, lines, calls_of(series)):
        words = joining_words(series.first.delegate_calls, joined)
        yield Paragraph(f"They part the delegates: with what may be written instead, {words}.")
    if advised:
        return
    said = dict.fromkeys((line.name, line.remedy) for line in ordered if line.remedy)
    yield from make_list(f"{name}: {remedy}" for name, remedy in said)


def _counted(line: OutsideLine) -> list[tuple[str, int]]:
    return Counter(operator.type for operator in line.operators).most_common()


def _by_type(shown: Breakdown, portable: Sequence[Operator]) -> list[tuple[Text, ...]]:
    """Operators of one name together, the longest first, with the modules that most of their time is in."""
    groups: dict[str, list[Operator]] = {}
    for operator in portable:
        groups.setdefault(operator.type, []).append(operator)
    rows: list[tuple[Text, ...]] = []
    for name, members in list(groups.items())[:_PORTABLE_SHOWN]:
        places = list(dict.fromkeys(module_cell(operator) for operator in members))
        where: list[Inline] = []
        for place in places[:3]:
            where += [", ", place] if where else [place]
        if len(places) > 3:
            where.append(f" and {len(places) - 3} more")
        rows.append((Code(name), str(len(members)), tuple(where), *shown.of(members).cells))
    return rows


def _timed_table(series: SeriesAnalysis, headers: Sequence[str], rows: Sequence[Sequence[Text]]) -> Table:
    """A table whose last two columns are times; they are left out where times mean nothing."""
    if series.times.are_shown:
        return make_table(headers, rows, numbers=(len(headers) - 2, len(headers) - 1))
    return make_table(headers[:-2], [row[:-2] for row in rows])
