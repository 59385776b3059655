"""A comparison as text: a Markdown summary fit for a pull request, JUnit test cases, JSON facts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from model_profiling.analysis.pairing import OperatorPair
from model_profiling.statistics.speedup import Speedup, Verdict
from model_profiling.report.comparison import Comparison, SeriesComparison
from model_profiling.report.junit import Outcome, TestCase, junit_xml
from model_profiling.report.markdown_text import (
    MISSING,
    RATIO_NOTE,
    SEPARATE_RATIO_NOTE,
    bullets,
    change,
    code,
    ms,
    percent,
    plural,
    table,
)

_OPERATORS_SHOWN = 10
_WORDS = {
    Verdict.FASTER: "faster",
    Verdict.SLOWER: "slower",
    Verdict.NO_CHANGE: "no significant change",
    Verdict.NOT_COMPARABLE: "not comparable",
}


def headline(comparison: Comparison) -> str:
    """One line: passed or not, and the largest change."""
    if comparison.limit is not None:
        limit = percent(comparison.limit)
        if comparison.regressions:
            worst = max(comparison.regressions, key=lambda one: one.slowdown or 0.0)
            return f"Regression: {worst.name} is {_slowdown(worst)} slower, more than the {limit} allowed."
        if comparison.not_comparable:
            return f"No answer: {plural(len(comparison.not_comparable), 'experiment')} not comparable."
        return f"No regression beyond {limit}."
    changed = [one for one in comparison.series if one.end_to_end.verdict in (Verdict.FASTER, Verdict.SLOWER)]
    if not changed:
        return "No significant change." if not comparison.not_comparable else "Not comparable."
    largest = max(changed, key=lambda one: abs(one.slowdown or 0.0))
    return f"{largest.name}: {_WORDS[largest.end_to_end.verdict]}, {_speedup(largest.end_to_end)}."


def warnings(comparison: Comparison) -> tuple[str, ...]:
    """What a reader must know before trusting the answer."""
    return tuple(_warnings(comparison))


def _warnings(comparison: Comparison) -> Iterator[str]:
    for one in comparison.series:
        if comparison.limit is not None and one.could_hide(comparison.limit):
            yield (
                f"{one.name}: a slowdown of up to {percent(one.worst_slowdown)} could hide in the noise, "
                f"more than the {percent(comparison.limit)} to be caught; measure more rounds"
            )
        if one.with_tracer and one.comparable:
            yield f"{one.name}: compared with the event tracer on, for want of latencies without it"
        for note in one.notes:
            yield f"{one.name}: {note}"
    if comparison.loads_differ:
        yield (
            f"the machine's load was {comparison.a.load:.1f} before A and {comparison.b.load:.1f} before B: "
            "part of the change may be other work; measure both in the same quiet stretch"
        )
    for name, only in (("A", comparison.only_a), ("B", comparison.only_b)):
        if only:
            yield f"only {name} has {'; '.join(map(str, only))}: not compared"


def comparison_markdown(comparison: Comparison) -> str:
    """The whole summary; details of each experiment are folded away."""
    parts = [
        f"## {headline(comparison)}",
        f"B {code(comparison.b.name)} against A {code(comparison.a.name)}.",
        _end_to_end_table(comparison),
    ]
    judged = [one for one in comparison.series if one.end_to_end.ratio is not None]
    if judged:
        note = RATIO_NOTE if judged[0].interleaved else SEPARATE_RATIO_NOTE
        parts.append(f"<sub>{note}</sub>")
    reasons = [f"{one.name}: {one.end_to_end.reason}" for one in comparison.not_comparable]
    if said := (*reasons, *warnings(comparison)):
        parts.append(bullets(said))
    if comparison.differing_facts:
        parts += ["What else differs:", table(("", "A", "B"), comparison.differing_facts)]
    for one in comparison.series:
        if details := _details(one):
            parts += [
                f"<details><summary>{one.name}: categories and operators</summary>",
                *details,
                "</details>",
            ]
    return "\n\n".join(parts) + "\n"


def _end_to_end_table(comparison: Comparison) -> str:
    headers = ("experiment", "A ms", "B ms", "change", "speedup", "verdict", "rounds")
    rows = [
        (
            one.name,
            ms(one.end_to_end.baseline_median),
            ms(one.end_to_end.candidate_median),
            change(one.end_to_end.ratio),
            _speedup(one.end_to_end),
            _mark(comparison, one),
            str(one.end_to_end.rounds) if one.end_to_end.rounds else MISSING,
        )
        for one in comparison.series
    ]
    return table(headers, rows, numbers=(1, 2, 3, 4, 6))


def _mark(comparison: Comparison, one: SeriesComparison) -> str:
    word = _WORDS[one.end_to_end.verdict]
    return f"**{word}, beyond the limit**" if one in comparison.regressions else word


def _details(one: SeriesComparison) -> list[str]:
    parts = []
    if one.parts:
        rows = [
            (
                part.name,
                ms(part.before_ms),
                percent(part.before_share),
                ms(part.after_ms),
                percent(part.after_share),
                change(part.ratio),
                _verdict(part.speedup),
            )
            for part in one.parts
        ]
        headers = ("category", "A ms", "share", "B ms", "share", "change", "verdict")
        parts.append(table(headers, rows, numbers=(1, 2, 3, 4, 5)))
    if one.operators:
        parts += _operator_tables(one)
    return parts


def _operator_tables(one: SeriesComparison) -> Iterator[str]:
    timed = one.comparable or one.end_to_end.ratio is not None
    judged = any(_judged(pair.speedup) for pair in one.operators)
    moved = [pair for pair in one.operators if _is_news(pair) or (timed and not judged)]
    ordered = sorted(moved, key=lambda pair: -abs(pair.delta_ms))[:_OPERATORS_SHOWN]
    if ordered:
        rows = [
            (
                code(pair.main.name),
                pair.main.place,
                ms(pair.baseline_ms if pair.baseline else None) if timed else MISSING,
                ms(pair.candidate_ms if pair.candidate else None) if timed else MISSING,
                _verdict(pair.speedup),
                _became(pair),
            )
            for pair in ordered
        ]
        yield table(("operator", "place", "A ms", "B ms", "verdict", "what changed"), rows, numbers=(2, 3))
    if timed and not judged:
        count = plural(len(one.operators), "operator")
        yield f"{count}, the largest differences shown; too few rounds to judge any."
        return
    more = f"; the {len(ordered)} largest are shown" if len(ordered) < len(moved) else ""
    yield f"{plural(len(one.operators), 'operator')}, {len(moved)} with a change that holds{more}."


def _judged(found: Speedup | None) -> bool:
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


def _verdict(found: Speedup | None) -> str:
    return MISSING if found is None else _WORDS[found.verdict]


def _slowdown(one: SeriesComparison) -> str:
    return percent(one.slowdown)


def comparison_junit(comparison: Comparison) -> str:
    """One test case per experiment; categories that slowed down are told in its output."""
    return junit_xml("sme2prof compare", [_case(comparison, one) for one in comparison.series])


def _case(comparison: Comparison, one: SeriesComparison) -> TestCase:
    group = f"sme2prof.compare.{comparison.b.model or comparison.a.model or 'model'}"
    found = one.end_to_end
    slower = [
        f"{part.name}: {ms(part.before_ms)} ms to {ms(part.after_ms)} ms, {_verdict(part.speedup)}"
        for part in one.parts
        if part.speedup is not None and part.speedup.verdict is Verdict.SLOWER
    ]
    if not one.comparable:
        outcome: Outcome = "error" if comparison.limit is not None else "skipped"
        seen = "" if found.ratio is None else f"{_speedup(found)}, without a verdict"
        return TestCase(group, one.name, outcome, found.reason, seen)
    details = "\n".join((found.reason, *slower))
    if one in comparison.regressions:
        limit = percent(comparison.limit)
        message = f"{_slowdown(one)} slower, more than the {limit} allowed"
        return TestCase(group, one.name, "failed", message, details)
    return TestCase(group, one.name, "passed", _WORDS[found.verdict], details)


def comparison_facts(comparison: Comparison) -> dict[str, object]:
    """Everything found, as JSON."""
    return {
        "schema_version": 1,
        "headline": headline(comparison),
        "a": asdict(comparison.a),
        "b": asdict(comparison.b),
        "limit": comparison.limit,
        "regressions": [one.name for one in comparison.regressions],
        "differing": [{"what": what, "a": a, "b": b} for what, a, b in comparison.differing_facts],
        "warnings": list(warnings(comparison)),
        "series": [_series_facts(one) for one in comparison.series],
    }


def _series_facts(one: SeriesComparison) -> dict[str, object]:
    timed = one.comparable or one.end_to_end.ratio is not None
    return {
        "before": asdict(one.before),
        "after": asdict(one.after),
        "with_tracer": one.with_tracer,
        "slowdown": one.slowdown,
        "end_to_end": one.end_to_end.as_dict(),
        "categories": [
            {**asdict(part), "speedup": part.speedup.as_dict() if part.speedup else None}
            for part in one.parts
        ],
        "operators": [_operator_facts(pair, timed) for pair in one.operators],
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
