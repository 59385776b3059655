"""The report's tables of categories, operators and backends.

Times here come from dumps, with the event tracer on. Where times are not latencies the same tables show
work instead: how many operators, how many operations, how many bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from model_profiling.analysis.categories import Category
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import CategoryPair, OperatorPair, Pairing
from model_profiling.analysis.series import OVERHEADS, SeriesAnalysis
from model_profiling.statistics.speedup import Speedup
from model_profiling.report.data import PairReport, ReportData
from model_profiling.report.markdown_text import MISSING, change, code, ms, percent, plural, size, table
from model_profiling.report.verdict import headline_experiment, largest_parts, shift_text

SHOWN = 15
_PORTABLE_SHOWN = 10


def categories(data: ReportData) -> str:
    """Before and after for every comparable pair; otherwise one experiment's share of each category."""
    compared = [pair for pair in data.pairs if _shown_as_pair(pair)]
    if data.timings_are_latency and compared:
        return "\n\n".join(_category_change(pair, len(compared) > 1) for pair in compared)
    series = headline_series(data)
    if series is None:
        return ""
    if not series.timings_are_latency:
        return _work_by_category(series)
    rows = []
    for name, part in series.parts.items():
        spent = series.spent(part)
        count = MISSING if name in OVERHEADS else str(_count(series, name))
        rows.append((name, ms(spent.ms), percent(spent.share), count))
    rows.append(("End to end, traced", ms(series.latency.median), percent(1.0), str(len(series.operators))))
    return f"{_measured(series)}.\n\n" + table(
        ("category", "ms", "share", "operators"), rows, numbers=(1, 2, 3)
    )


def _measured(series: SeriesAnalysis) -> str:
    return (
        f"{series.name}: medians over {plural(series.runs, 'run')} in {plural(len(series.rounds), 'round')}, "
        "with the tracer on; a share is the median of each run's own"
    )


def _category_change(pair: PairReport, named: bool) -> str:
    pairing = pair.pairing
    assert pairing is not None
    rows = [_category_row(part) for part in pairing.categories]
    rows.append(
        (
            "End to end, traced",
            ms(pairing.baseline.latency.median),
            percent(1.0),
            ms(pairing.candidate.latency.median),
            percent(1.0),
            change(pairing.e2e.ratio),
            _ratio(pairing.e2e.ratio),
            _judged(pairing.e2e),
        )
    )
    headers = ("category", "before ms", "share", "after ms", "share", "change", "speedup", "verdict")
    title = f"Before: {_measured(pairing.baseline)}. After: {_measured(pairing.candidate)}."
    parts = largest_parts(pair)
    return "\n\n".join(
        (
            *((f"### {pair.label}",) if named else ()),
            title,
            table(headers, rows, numbers=(1, 2, 3, 4, 5, 6)),
            *((f"**{shift_text(*parts)}**",) if parts else ()),
        )
    )


def _category_row(part: CategoryPair) -> tuple[str, ...]:
    return (
        part.name,
        ms(part.baseline_ms),
        percent(part.baseline_share),
        ms(part.candidate_ms),
        percent(part.candidate_share),
        change(part.ratio),
        _ratio(part.ratio),
        _judged(part.speedup),
    )


def _work_by_category(series: SeriesAnalysis) -> str:
    rows = []
    for category in Category:
        members = [operator for operator in series.operators if operator.category is category]
        flops, moved = _work(members)
        rows.append((category.value, str(len(members)), flops, moved))
    return (
        f"Emulated or traced times mean nothing; this is the work of {series.name} instead of its time: "
        "arithmetic operations, and bytes of all tensors counted once.\n\n"
        + table(("category", "operators", "million operations", "data"), rows, numbers=(1, 2, 3))
    )


def _work(operators: Sequence[Operator]) -> tuple[str, str]:
    known = [one.source for one in operators if one.source.flops is not None]
    if operators and not known:
        return MISSING, MISSING
    flops = sum(source.flops or 0 for source in known)
    return f"{flops / 1e6:.1f}", size(float(sum(source.bytes_moved or 0 for source in known)))


def operators(data: ReportData) -> str:
    """The operators that take longest, with their place in the model; in pairs, what became of each."""
    compared = [pair for pair in data.pairs if _shown_as_pair(pair)]
    if data.timings_are_latency and compared:
        return "\n\n".join(_operator_changes(pair, len(compared) > 1) for pair in compared)
    structural = next((pair.pairing for pair in data.pairs if pair.pairing is not None), None)
    if not data.timings_are_latency and structural is not None:
        return _kernel_changes(structural)
    series = headline_series(data)
    if series is None:
        return ""
    if not series.timings_are_latency:
        return _operators_without_time(series)
    longest = sorted(series.operators, key=lambda one: -one.times.median_ns)[:SHOWN]
    rows = []
    for one in longest:
        spent = series.spent_by([one])
        cells = code(one.name), one.category.value, ms(spent.ms), percent(spent.share)
        rows.append((*cells, _place(one), _line(one)))
    return _how_many(len(longest), len(series.operators)) + table(
        ("operator", "category", "median ms", "share", "module", "source"), rows, numbers=(2, 3)
    )


def _operator_changes(pair: PairReport, named: bool) -> str:
    pairing = pair.pairing
    assert pairing is not None
    longest = sorted(pairing.operators, key=lambda one: -max(one.candidate_ms, one.baseline_ms))[:SHOWN]
    rows = []
    for one in longest:
        rows.append(
            (
                code(one.main.name),
                one.category.value,
                ms(one.baseline_ms if one.baseline else None),
                ms(one.candidate_ms if one.candidate else None),
                _ratio(one.ratio),
                _judged(one.speedup),
                _became(one),
                _place(one.main),
                _line(one.main),
            )
        )
    headers = (
        "operator",
        "category",
        "before ms",
        "after ms",
        "speedup",
        "verdict",
        "kernel",
        "module",
        "source",
    )
    return "\n\n".join(
        (
            *((f"### {pair.label}",) if named else ()),
            *(
                (f"The {len(longest)} longest of {len(pairing.operators)}.",)
                if len(longest) < len(pairing.operators)
                else ()
            ),
            table(headers, rows, numbers=(2, 3, 4)),
            *_tally(pairing),
        )
    )


def _tally(pairing: Pairing) -> Iterator[str]:
    counts = [
        (len(pairing.changed("kernel changed")), "changed their kernel"),
        (len(pairing.changed("appeared")), "appeared"),
        (len(pairing.changed("vanished")), "vanished"),
        (len(pairing.changed("split", "merged")), "were split or merged"),
    ]
    said = [f"{count} {what}" for count, what in counts if count]
    if said:
        yield f"Of {plural(len(pairing.operators), 'operator')}, {', '.join(said)}."


def _kernel_changes(pairing: Pairing) -> str:
    """For runs without time: which operators take another kernel, the ones with most arithmetic first."""
    ordered = sorted(pairing.operators, key=lambda one: -(one.main.source.flops or 0))[:SHOWN]
    rows = [
        (
            code(one.main.name),
            one.category.value,
            _work((one.main,))[0],
            _became(one),
            _place(one.main),
            _line(one.main),
        )
        for one in ordered
    ]
    headers = ("operator", "category", "million operations", "kernel", "module", "source")
    body = table(headers, rows, numbers=(2,))
    title = f"Before: {pairing.baseline.name}. After: {pairing.candidate.name}."
    return "\n\n".join((title, body, *_tally(pairing)))


def _operators_without_time(series: SeriesAnalysis) -> str:
    ordered = sorted(series.operators, key=lambda one: -(one.source.flops or 0))[:SHOWN]
    rows = [
        (code(one.name), one.category.value, _work((one,))[0], _place(one), _line(one)) for one in ordered
    ]
    return table(("operator", "category", "million operations", "module", "source"), rows, numbers=(2,))


def backends(data: ReportData) -> str:
    """How much of the work the delegates took, and which operators they left to portable kernels."""
    series = headline_series(data)
    if series is None:
        return ""
    rows = []
    for name in dict.fromkeys(one.backend for one in series.operators):
        members = [one for one in series.operators if one.backend == name]
        spent = series.spent_by(members)
        kind = "delegate" if members[0].delegated else "portable kernels"
        rows.append((name, kind, str(len(members)), ms(spent.ms), percent(spent.share)))
    parts = [
        f"{series.name}: {plural(series.first.delegate_calls, 'delegate call')} and "
        f"{plural(series.first.operator_calls, 'operator call')} outside them in each run.",
        _timed_table(series, ("backend", "kind", "operators", "ms", "share"), rows),
    ]
    portable = [one for one in series.operators if not one.delegated]
    if portable:
        headers = ("outside delegates", "how many", "modules", "ms", "share")
        parts.append(_timed_table(series, headers, _by_type(series, portable)))
    else:
        parts.append("Every operator was delegated.")
    return "\n\n".join(parts)


def _by_type(series: SeriesAnalysis, portable: Sequence[Operator]) -> list[tuple[str, ...]]:
    """Operators of one name together, the longest first, with the modules that most of their time is in."""
    groups: dict[str, list[Operator]] = {}
    for one in sorted(portable, key=lambda one: -one.times.median_ns):
        groups.setdefault(one.type, []).append(one)
    rows: list[tuple[str, ...]] = []
    for name, members in list(groups.items())[:_PORTABLE_SHOWN]:
        places = list(dict.fromkeys(_place(one) for one in members))
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        spent = series.spent_by(members)
        where = ", ".join(places[:3]) + more
        rows.append((code(name), str(len(members)), where, ms(spent.ms), percent(spent.share)))
    return rows


def _timed_table(series: SeriesAnalysis, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose last two columns are times; they are left out where times mean nothing."""
    if series.timings_are_latency:
        return table(headers, rows, numbers=(len(headers) - 2, len(headers) - 1))
    return table(headers[:-2], [row[:-2] for row in rows])


def headline_series(data: ReportData) -> SeriesAnalysis | None:
    """The series to show where only one is: of the headline experiment, or the first with SME2 on."""
    chosen = headline_experiment(data) if data.timings_are_latency else None
    if chosen is not None and chosen.dumps is not None:
        return chosen.dumps
    known = [one for one in data.experiments if one.dumps is not None]
    first = min(known, key=lambda one: one.sme2 is False, default=None)
    return first.dumps if first else None


def _shown_as_pair(pair: PairReport) -> bool:
    """Where on and off ran the same code, before and after would only show noise."""
    if pair.pairing is None or pair.pairing.not_comparable:
        return False
    return pair.comparable or pair.speedup.ratio is not None


def _became(pair: OperatorPair) -> str:
    before, after = pair.families
    if pair.change == "same":
        return after or MISSING
    if pair.change in ("appeared", "vanished"):
        return f"{pair.change} ({after or before})"
    return f"{before} → {after}"


def _place(operator: Operator) -> str:
    return operator.place if operator.origin == "lowering" else code(operator.source.module_path) or MISSING


def _line(operator: Operator) -> str:
    place = operator.source.place
    if not place.file:
        return MISSING
    return f"{place.file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{place.line}"


def _count(series: SeriesAnalysis, category: str) -> int:
    return sum(one.category.value == category for one in series.operators)


def _how_many(shown: int, total: int) -> str:
    return f"The {shown} longest of {total}.\n\n" if shown < total else ""


def _ratio(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2f}x"


def _judged(found: Speedup | None) -> str:
    return MISSING if found is None else found.verdict.value
