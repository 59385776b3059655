"""The report's tables of categories, operators and backends.

Times here come from dumps, with the event tracer on. Where times are not latencies the same tables show
work instead: how many operators, how many operations, how many bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from model_profiling.analysis.categories import Category
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import CategoryPair, OperatorPair, Pairing
from model_profiling.analysis.speedup import Speedup
from model_profiling.analysis.summary import DumpAnalysis
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
    dump = headline_dump(data)
    if dump is None:
        return ""
    if not dump.timings_are_latency:
        return _work_by_category(dump)
    breakdown = dump.breakdown
    counts = {category: _count(dump, category) for category in Category}
    rows = [
        (category.value, ms(breakdown.mean_ms(part)), percent(breakdown.share(part)), str(counts[category]))
        for category, part in breakdown.categories.items()
    ]
    for name, part in (("Framework overhead", breakdown.framework), ("Unattributed", breakdown.unattributed)):
        rows.append((name, ms(breakdown.mean_ms(part)), percent(breakdown.share(part)), MISSING))
    rows.append(("End to end, traced", ms(dump.e2e_ms), percent(1.0), str(len(dump.operators))))
    return (
        f"Mean over {plural(dump.runs, 'run')} of {_subject(dump)}, with the tracer on; the parts add up.\n\n"
        + table(("category", "ms", "share", "operators"), rows, numbers=(1, 2, 3))
    )


def _category_change(pair: PairReport, named: bool) -> str:
    pairing = pair.pairing
    assert pairing is not None
    rows = [_category_row(part) for part in pairing.categories]
    before, after = _medians(pairing.e2e, pairing.baseline.latency.median, pairing.candidate.latency.median)
    rows.append(
        (
            "End to end, traced",
            ms(before),
            percent(1.0),
            ms(after),
            percent(1.0),
            change(pairing.e2e.ratio),
            _ratio(pairing.e2e.ratio),
            _judged(pairing.e2e),
        )
    )
    headers = ("category", "before ms", "share", "after ms", "share", "change", "speedup", "verdict")
    title = (
        f"Before: {_subject(pairing.baseline)}. After: {_subject(pairing.candidate)}. "
        "Medians over rounds, with the tracer on; shares are of the whole time."
    )
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
    before, after = _medians(part.speedup, part.baseline_ms, part.candidate_ms)
    return (
        part.name,
        ms(before),
        percent(part.baseline_share),
        ms(after),
        percent(part.candidate_share),
        change(part.ratio),
        _ratio(part.ratio),
        _judged(part.speedup),
    )


def _medians(found: Speedup | None, before: float, after: float) -> tuple[float, float]:
    """Medians over all rounds; of the first dumps where there are no rounds."""
    if found is None or found.baseline_median is None or found.candidate_median is None:
        return before, after
    return found.baseline_median, found.candidate_median


def _work_by_category(dump: DumpAnalysis) -> str:
    rows = []
    for category in Category:
        members = [operator for operator in dump.operators if operator.category is category]
        flops, moved = _work(members)
        rows.append((category.value, str(len(members)), flops, moved))
    return (
        f"Emulated or traced times mean nothing; this is the work of {_subject(dump)} instead of its time: "
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
    dump = headline_dump(data)
    if dump is None:
        return ""
    if not dump.timings_are_latency:
        return _operators_without_time(dump)
    longest = sorted(dump.operators, key=lambda one: -one.times.total_ns)[:SHOWN]
    rows = [
        (
            code(one.name),
            one.category.value,
            ms(one.median_ms),
            percent(dump.share_of(one)),
            _place(one),
            _line(one),
        )
        for one in longest
    ]
    return _how_many(len(longest), len(dump.operators)) + table(
        ("operator", "category", "median ms", "share", "module", "source"), rows, numbers=(2, 3)
    )


def _operator_changes(pair: PairReport, named: bool) -> str:
    pairing = pair.pairing
    assert pairing is not None
    longest = sorted(pairing.operators, key=lambda one: -max(one.candidate_ms, one.baseline_ms))[:SHOWN]
    rows = []
    for one in longest:
        before, after = _medians(one.speedup, one.baseline_ms, one.candidate_ms)
        rows.append(
            (
                code(one.main.name),
                one.category.value,
                ms(before if one.baseline else None),
                ms(after if one.candidate else None),
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
    title = f"Before: {_subject(pairing.baseline)}. After: {_subject(pairing.candidate)}."
    return "\n\n".join((title, body, *_tally(pairing)))


def _operators_without_time(dump: DumpAnalysis) -> str:
    ordered = sorted(dump.operators, key=lambda one: -(one.source.flops or 0))[:SHOWN]
    rows = [
        (code(one.name), one.category.value, _work((one,))[0], _place(one), _line(one)) for one in ordered
    ]
    return table(("operator", "category", "million operations", "module", "source"), rows, numbers=(2,))


def backends(data: ReportData) -> str:
    """How much of the work the delegates took, and which operators they left to portable kernels."""
    dump = headline_dump(data)
    if dump is None:
        return ""
    rows = []
    for name in dict.fromkeys(one.backend for one in dump.operators):
        members = [one for one in dump.operators if one.backend == name]
        spent = sum(one.times.total_ns for one in members) / dump.runs / 1e6
        share = sum(dump.share_of(one) for one in members)
        kind = "delegate" if members[0].delegated else "portable kernels"
        rows.append((name, kind, str(len(members)), ms(spent), percent(share)))
    parts = [
        f"{_subject(dump)}: {plural(dump.delegate_calls, 'delegate call')} and "
        f"{plural(dump.operator_calls, 'operator call')} outside them in each run.",
        _timed_table(dump, ("backend", "kind", "operators", "ms", "share"), rows),
    ]
    portable = [one for one in dump.operators if not one.delegated]
    if portable:
        headers = ("outside delegates", "how many", "modules", "ms", "share")
        parts.append(_timed_table(dump, headers, _by_type(dump, portable)))
    else:
        parts.append("Every operator was delegated.")
    return "\n\n".join(parts)


def _by_type(dump: DumpAnalysis, portable: Sequence[Operator]) -> list[tuple[str, ...]]:
    """Operators of one name together, the longest first, with the modules that most of their time is in."""
    groups: dict[str, list[Operator]] = {}
    for one in sorted(portable, key=lambda one: -one.times.total_ns):
        groups.setdefault(one.type, []).append(one)
    rows: list[tuple[str, ...]] = []
    for name, members in list(groups.items())[:_PORTABLE_SHOWN]:
        places = list(dict.fromkeys(_place(one) for one in members))
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        spent = sum(dump.mean_ms_of(one) for one in members)
        share = sum(dump.share_of(one) for one in members)
        rows.append((code(name), str(len(members)), ", ".join(places[:3]) + more, ms(spent), percent(share)))
    return rows


def _timed_table(dump: DumpAnalysis, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose last two columns are times; they are left out where times mean nothing."""
    if dump.timings_are_latency:
        return table(headers, rows, numbers=(len(headers) - 2, len(headers) - 1))
    return table(headers[:-2], [row[:-2] for row in rows])


def headline_dump(data: ReportData) -> DumpAnalysis | None:
    """The dump to show where only one is: of the headline experiment, or the first with SME2 on."""
    chosen = headline_experiment(data) if data.timings_are_latency else None
    if chosen is not None and chosen.dump is not None:
        return chosen.dump
    known = [one for one in data.experiments if one.dump is not None]
    first = min(known, key=lambda one: one.sme2 is False, default=None)
    return first.dump if first else None


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


def _count(dump: DumpAnalysis, category: Category) -> int:
    return sum(one.category is category for one in dump.operators)


def _subject(dump: DumpAnalysis) -> str:
    name = dump.experiment or dump.stem
    return f"{name}, {plural(dump.threads, 'thread')}" if dump.threads else name


def _how_many(shown: int, total: int) -> str:
    return f"The {shown} longest of {total}.\n\n" if shown < total else ""


def _ratio(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2f}x"


def _judged(found: Speedup | None) -> str:
    return MISSING if found is None else found.verdict.value
