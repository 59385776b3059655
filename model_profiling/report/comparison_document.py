"""A comparison as a page fit for a pull request, as JUnit test cases, as JSON facts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from model_profiling.analysis.pairing import OperatorPair, Pairing
from model_profiling.json_record import record_json
from model_profiling.report.breakdown import break_down, pair_table, verdict_of
from model_profiling.report.comparison import Comparison, SeriesComparison
from model_profiling.report.document import (
    Block,
    Code,
    Folded,
    Heading,
    Paragraph,
    Strong,
    Text,
    make_list,
    make_table,
)
from model_profiling.report.junit import Outcome, TestCase, junit_xml
from model_profiling.report.run_report import RATIO_NOTE, SEPARATE_RATIO_NOTE
from model_profiling.statistics.speedup import Speedup, Verdict
from model_profiling.wording import MISSING, change, milliseconds, percent, plural

_OPERATORS_SHOWN = 10


def headline(comparison: Comparison) -> str:
    """One line: passed or not, and the largest change."""
    if comparison.limit is not None:
        limit = percent(comparison.limit)
        if comparison.regressions:
            worst = max(comparison.regressions, key=lambda found: found.slowdown or 0.0)
            return f"Regression: {worst.name} is {_slowdown(worst)} slower, more than the {limit} allowed."
        if comparison.not_comparable:
            return f"No answer: {plural(len(comparison.not_comparable), 'experiment')} not comparable."
        return f"No regression beyond {limit}."
    changed = [
        found for found in comparison.series if found.end_to_end.verdict in (Verdict.FASTER, Verdict.SLOWER)
    ]
    if not changed:
        return "No significant change." if not comparison.not_comparable else "Not comparable."
    largest = max(changed, key=lambda found: abs(found.slowdown or 0.0))
    return f"{largest.name}: {largest.end_to_end.verdict.value}, {_speedup(largest.end_to_end)}."


def warnings(comparison: Comparison) -> tuple[str, ...]:
    """What a reader must know before trusting the answer."""
    return tuple(_warnings(comparison))


def _warnings(comparison: Comparison) -> Iterator[str]:
    for found in comparison.series:
        if comparison.limit is not None and found.could_hide(comparison.limit):
            yield (
                f"{found.name}: a slowdown of up to {percent(found.worst_slowdown)} could hide in the noise, "
                f"more than the {percent(comparison.limit)} to be caught; measure more rounds"
            )
        if found.with_tracer and found.comparable:
            yield f"{found.name}: compared with the event tracer on, for want of latencies without it"
        for note in found.notes:
            yield f"{found.name}: {note}"
    if comparison.loads_differ:
        yield (
            f"the machine's load was {comparison.a.load:.1f} before A and {comparison.b.load:.1f} before B: "
            "part of the change may be other work; measure both in the same quiet stretch"
        )
    for name, only in (("A", comparison.only_a), ("B", comparison.only_b)):
        if only:
            yield f"only {name} has {'; '.join(map(str, only))}: not compared"


def comparison_document(comparison: Comparison) -> list[Block]:
    """The whole summary; details of each experiment are folded away."""
    blocks: list[Block] = [
        Heading(headline(comparison)),
        Paragraph(("B ", Code(comparison.b.name), " against A ", Code(comparison.a.name), ".")),
        _end_to_end_table(comparison),
    ]
    with_ratio = [found for found in comparison.series if found.end_to_end.ratio is not None]
    if with_ratio:
        blocks.append(Paragraph(RATIO_NOTE if with_ratio[0].interleaved else SEPARATE_RATIO_NOTE))
    reasons = [f"{found.name}: {found.end_to_end.reason}" for found in comparison.not_comparable]
    blocks += make_list((*reasons, *warnings(comparison)))
    if comparison.differing_facts:
        blocks += [Paragraph("What else differs:"), make_table(("", "A", "B"), comparison.differing_facts)]
    for found in comparison.series:
        if details := tuple(_details(found)):
            blocks.append(Folded(f"{found.name}: categories and operators", details))
    return blocks


def _end_to_end_table(comparison: Comparison) -> Block:
    headers = ("experiment", "A ms", "B ms", "change", "speedup", "verdict", "rounds")
    rows = [
        (
            found.name,
            milliseconds(found.end_to_end.baseline_median),
            milliseconds(found.end_to_end.candidate_median),
            change(found.end_to_end.ratio),
            _speedup(found.end_to_end),
            _mark(comparison, found),
            str(found.end_to_end.rounds) if found.end_to_end.rounds else MISSING,
        )
        for found in comparison.series
    ]
    return make_table(headers, rows, numbers=(1, 2, 3, 4, 6))


def _mark(comparison: Comparison, found: SeriesComparison) -> Text:
    word = found.end_to_end.verdict.value
    return Strong(f"{word}, beyond the limit") if found in comparison.regressions else word


def _details(found: SeriesComparison) -> Iterator[Block]:
    if found.pairing and found.parts:
        yield pair_table(found.pairing, ("A", "B"))
    if found.pairing:
        yield from _operator_tables(found, found.pairing)


def _operator_tables(found: SeriesComparison, pairing: Pairing) -> Iterator[Block]:
    timed = found.comparable or found.end_to_end.ratio is not None
    with_verdicts = any(_has_verdict(pair.speedup) for pair in found.operators)
    moved = [pair for pair in found.operators if _is_news(pair) or (timed and not with_verdicts)]
    ordered = sorted(moved, key=lambda pair: -abs(pair.delta_ms))[:_OPERATORS_SHOWN]
    if ordered:
        before, after = break_down(pairing.baseline), break_down(pairing.candidate)
        rows = [
            (
                Code(pair.main.name),
                pair.main.place,
                before.of(pair.baseline).cells[0] if timed and pair.baseline else MISSING,
                after.of(pair.candidate).cells[0] if timed and pair.candidate else MISSING,
                verdict_of(pair.speedup),
                _became(pair),
            )
            for pair in ordered
        ]
        headers = ("operator", "place", "A ms", "B ms", "verdict", "what changed")
        yield make_table(headers, rows, numbers=(2, 3))
    count = plural(len(found.operators), "operator")
    if timed and not with_verdicts:
        yield Paragraph(f"{count}, the largest differences shown; too few rounds to judge any.")
        return
    more = f"; the {len(ordered)} largest are shown" if len(ordered) < len(moved) else ""
    yield Paragraph(f"{count}, {len(moved)} with a change that holds{more}.")


def _has_verdict(found: Speedup | None) -> bool:
    return found is not None and found.verdict is not Verdict.NOT_COMPARABLE


def _is_news(pair: OperatorPair) -> bool:
    if pair.change != "same":
        return True
    return pair.speedup is not None and pair.speedup.verdict in (Verdict.FASTER, Verdict.SLOWER)


def _became(pair: OperatorPair) -> str:
    before, after = pair.families
    if pair.change == "same":
        return "time only"
    if pair.change in ("appeared", "vanished"):
        return pair.change
    return f"{pair.change}: {before} to {after}"


def _speedup(found: Speedup) -> str:
    if found.ratio is None:
        return MISSING
    if found.low is None or found.high is None:
        return f"{found.ratio:.3f}x"
    return f"{found.ratio:.3f}x ({found.low:.3f} to {found.high:.3f})"


def _slowdown(found: SeriesComparison) -> str:
    return percent(found.slowdown)


def comparison_junit(comparison: Comparison) -> str:
    """One test case per experiment; categories that slowed down are told in its output."""
    return junit_xml("sme2prof compare", [_case(comparison, found) for found in comparison.series])


def _case(comparison: Comparison, compared: SeriesComparison) -> TestCase:
    group = f"sme2prof.compare.{comparison.b.model or comparison.a.model or 'model'}"
    found = compared.end_to_end
    slower = [
        f"{part.name}: {milliseconds(part.baseline_ms)} ms to {milliseconds(part.candidate_ms)} ms, slower"
        for part in compared.parts
        if part.speedup is not None and part.speedup.verdict is Verdict.SLOWER
    ]
    if not compared.comparable:
        outcome: Outcome = "error" if comparison.limit is not None else "skipped"
        seen = "" if found.ratio is None else f"{_speedup(found)}, without a verdict"
        return TestCase(group, compared.name, outcome, found.reason, seen)
    details = "\n".join((found.reason, *slower))
    if compared in comparison.regressions:
        limit = percent(comparison.limit)
        message = f"{_slowdown(compared)} slower, more than the {limit} allowed"
        return TestCase(group, compared.name, "failed", message, details)
    return TestCase(group, compared.name, "passed", found.verdict.value, details)


def comparison_facts(comparison: Comparison) -> dict[str, object]:
    """Everything found, as JSON."""
    return {
        "schema_version": 1,
        "headline": headline(comparison),
        "a": record_json(comparison.a),
        "b": record_json(comparison.b),
        "limit": comparison.limit,
        "regressions": [found.name for found in comparison.regressions],
        "differing": [{"what": what, "a": a, "b": b} for what, a, b in comparison.differing_facts],
        "warnings": list(warnings(comparison)),
        "series": [_series_facts(found) for found in comparison.series],
    }


def _series_facts(found: SeriesComparison) -> dict[str, object]:
    timed = found.comparable or found.end_to_end.ratio is not None
    return {
        "before": asdict(found.before),
        "after": asdict(found.after),
        "with_tracer": found.with_tracer,
        "slowdown": found.slowdown,
        "end_to_end": found.end_to_end.as_dict(),
        "categories": [
            {**asdict(part), "ratio": part.ratio, "speedup": part.speedup.as_dict() if part.speedup else None}
            for part in found.parts
        ],
        "operators": [_operator_facts(pair, timed) for pair in found.operators],
    }


def _operator_facts(pair: OperatorPair, timed: bool) -> dict[str, object]:
    before, after = pair.families
    return {
        "operator": pair.main.name,
        "place": pair.main.place,
        "category": pair.category.value,
        "change": pair.change,
        "kernel_before": before,
        "kernel_after": after,
        "before_ms": pair.baseline_ms if timed and pair.baseline else None,
        "after_ms": pair.candidate_ms if timed and pair.candidate else None,
        "speedup": pair.speedup.as_dict() if pair.speedup else None,
    }
