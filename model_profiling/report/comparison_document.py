"""A comparison as a page for a pull request, as JUnit test cases and as JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal
from xml.etree import ElementTree

from model_profiling.analysis.structure import Aspect, Differences
from model_profiling.config.remarks import Diagnostic, name_series, warning_lines
from model_profiling.config.series import Series
from model_profiling.core.formatting import (
    MISSING,
    listing,
    milliseconds,
    percent,
    plural,
    printable,
    several,
    short_rate,
    tokens_per_s,
)
from model_profiling.core.records import record_json
from model_profiling.report import document as doc
from model_profiling.report.analysis_json import pairing_facts
from model_profiling.report.breakdown import break_down, pair_table
from model_profiling.report.cells import median_change
from model_profiling.report.charts.categories import parts_bars
from model_profiling.report.comparison import NOT_MEASURED, ComparisonFacts, SeriesComparison
from model_profiling.report.html import render_fragment
from model_profiling.report.operator_sections import changes_table
from model_profiling.report.pair_text import speedup_text
from model_profiling.report.sections import ratio_note
from model_profiling.report.terms import with_terms
from model_profiling.runs.times import marked
from model_profiling.statistics.speedup import Speedup, Verdict

# JUnit XML, which CI systems show as test results: one test case per question.

Outcome = Literal["passed", "failed", "skipped", "error"]
"""`failed`: the answer is no. `error`: there is no answer. `skipped`: the question was not asked."""

# Characters that XML 1.0 forbids even when escaped; operator names come from files.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAGS = {"failed": "failure", "skipped": "skipped", "error": "error"}


@dataclass(frozen=True, slots=True)
class TestCase:
    """One question and its outcome; `message` is one line, `details` may be longer."""

    group: str
    name: str
    outcome: Outcome
    message: str = ""
    details: str = ""
    kind: str = "regression"
    """The type of a failure."""

    # Stops pytest from collecting the class because of its name.
    __test__ = False


def junit_xml(suite: str, cases: Sequence[TestCase]) -> str:
    told = Counter(case.outcome for case in cases)
    counts = (len(cases), told["failed"], told["error"], told["skipped"])
    numbers = dict(zip(("tests", "failures", "errors", "skipped"), map(str, counts), strict=True))
    root = ElementTree.Element("testsuites", {"name": _text(suite), **numbers, "time": "0"})
    body = ElementTree.SubElement(root, "testsuite", {"name": _text(suite), **numbers, "time": "0"})
    for case in cases:
        element = ElementTree.SubElement(
            body, "testcase", {"classname": _text(case.group), "name": _text(case.name), "time": "0"}
        )
        _write_outcome(element, case)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _write_outcome(element: ElementTree.Element, case: TestCase) -> None:
    if case.outcome == "passed":
        if case.message or case.details:
            said = ElementTree.SubElement(element, "system-out")
            said.text = _text("\n".join(part for part in (case.message, case.details) if part))
        return
    attributes = {"message": _text(case.message)}
    if case.outcome != "skipped":
        attributes["type"] = _text(case.kind) if case.outcome == "failed" else "not comparable"
    answer = ElementTree.SubElement(element, _TAGS[case.outcome], attributes)
    answer.text = _text(case.details) or None


def _text(text: str) -> str:
    return _NOT_XML.sub("?", printable(text))


# Changes apart from time: a table for people, JUnit cases and JSON for machines.

_SHOWN = 20
"""How many changes a page shows; the others are folded."""


def sentences(comparison: ComparisonFacts) -> Iterator[tuple[bool, str]]:
    """Yield the result of each gate not about time, and whether it passed; passed ones share one sentence."""
    unchanged = []
    for aspect in comparison.gated:
        found = [each for asked, each in comparison.changed if asked == aspect]
        unknown = [each for each in comparison.differences if each.unknown(aspect)]
        if found:
            count = sum(len(each.of(aspect)) for each in found)
            yield False, f"{aspect.capitalize()} changed: {plural(count, 'difference')} in {_where(found)}."
        if unknown:
            yield False, f"No answer: {aspect} of {_where(unknown)} cannot be compared."
        unchanged += [] if found or unknown else [aspect]
    if unchanged:
        yield True, f"{listing(unchanged).capitalize()} did not change."


def _where(found: Sequence[Differences]) -> str:
    return found[0].name if len(found) == 1 else plural(len(found), "experiment")


def structure_blocks(comparison: ComparisonFacts) -> Iterator[doc.Block]:
    """Yield every gated change by experiment, and why some could not be checked."""
    left = _SHOWN
    more: list[doc.Block] = []
    for found in comparison.differences:
        changes = [change for aspect in comparison.gated for change in found.of(aspect)]
        rows = [
            (change.what, doc.Code(change.subject), change.before, change.after, change.where)
            for change in changes
        ]
        if shown := rows[:left]:
            yield from _changes(found, shown)
        if rest := rows[left:]:
            more += _changes(found, rest)
        left = max(0, left - len(rows))
    if more:
        every = sum(len(found.of(aspect)) for aspect, found in comparison.changed)
        yield doc.Paragraph(f"{_SHOWN} of {every} differences are shown; --json lists all.")
        yield doc.Folded("more differences", tuple(more))
    if comparison.gated:
        yield from doc.make_list(_unknown_lines(comparison))


def _changes(found: Differences, rows: Sequence[Sequence[doc.Text]]) -> Iterator[doc.Block]:
    yield doc.Paragraph(f"{found.name}:")
    yield doc.make_table(("what", "operator or kernel", "in A", "in B", "in the model"), rows)


def _unknown_lines(comparison: ComparisonFacts) -> Iterator[str]:
    for aspect in comparison.gated:
        for found in comparison.differences:
            if why := found.unknown(aspect):
                yield f"{aspect} of {found.name}: {why}"
    if "kernels" in comparison.gated:
        yield from (f"{found.name}: {note}" for found in comparison.differences for note in found.notes)


def structure_cases(comparison: ComparisonFacts, group: str) -> Iterator[TestCase]:
    for aspect in comparison.gated:
        for found in comparison.differences:
            if aspect == "structure" and found.only_kernels:
                continue
            yield _structure_case(aspect, found, f"{group}.{aspect}")


def _structure_case(aspect: Aspect, found: Differences, group: str) -> TestCase:
    changes = found.of(aspect)
    if changes:
        message = f"{aspect} changed: {plural(len(changes), 'difference')}"
        return TestCase(group, found.name, "failed", message, "\n".join(map(str, changes)), kind="change")
    if why := found.unknown(aspect):
        return TestCase(group, found.name, "error", why)
    return TestCase(group, found.name, "passed", f"{aspect} did not change", "\n".join(found.notes))


_OPERATORS_SHOWN = 10


def headline(comparison: ComparisonFacts) -> str:
    """Return one line: the result of each gate, failures first; without gates, the largest change."""
    if comparison.answer is None:
        return _largest(comparison)
    said = list(sentences(comparison))
    if comparison.limit is not None:
        said.insert(0, _about_time(comparison, comparison.limit))
    if comparison.only_a:
        said.append((False, f"No answer: only A has {name_series(comparison.only_a)}."))
    return " ".join(sentence for _, sentence in sorted(said, key=lambda each: each[0]))


def _about_time(comparison: ComparisonFacts, limit: float) -> tuple[bool, str]:
    """Return whether the time gate passed, and its sentence."""
    if comparison.regressions:
        worst = max(comparison.regressions, key=lambda found: found.slowdown or 0.0)
        slower = percent(worst.slowdown)
        said = f"Regression: B is {slower} slower than A in {worst.name}{_rates(comparison, worst, 'B')}"
        return False, f"{said}, more than the {percent(limit)} allowed{about_arm(comparison)}."
    if comparison.not_comparable:
        count = plural(len(comparison.not_comparable), "experiment")
        return False, f"No answer: {count} cannot be compared."
    return True, f"No regression beyond {percent(limit)}{about_arm(comparison)}."


def _largest(comparison: ComparisonFacts) -> str:
    """Say which side is faster, in the experiment that differs most."""
    if comparison.not_comparable and not any(found.faster for found in comparison.series):
        reasons = dict.fromkeys(found.end_to_end.reason for found in comparison.not_comparable)
        return f"Not comparable: {next(iter(reasons))}{' (and more reasons)' if len(reasons) > 1 else ''}."
    largest = max(comparison.series, key=lambda found: (found.faster is not None, abs(found.slowdown or 0.0)))
    where = f" in {largest.name}" if len(comparison.series) > 1 else ""
    a, b = _named_sides(comparison)
    fast, slow, found = b, "A", largest.end_to_end
    if largest.faster == "A":
        fast, slow = a, "B"
        found = replace(
            found, ratio=_inverse(found.ratio), low=_inverse(found.high), high=_inverse(found.low)
        )
    faster = speedup_text(found, f" as fast as {slow}{where}")
    said = f"{fast} is {faster}{_rates(comparison, largest, largest.faster or 'B')}{about_arm(comparison)}."
    return said if largest.faster else f"No significant difference: {said}"


def _rates(comparison: ComparisonFacts, found: SeriesComparison, side: Literal["A", "B"]) -> str:
    """Return `, with 41.2 instead of 47 tokens/s`, the rate of `side` first; nothing without tokens."""
    a, b = _tokens_per_s(comparison, found)
    first, second = (a, b) if side == "A" else (b, a)
    return f", with {short_rate(first)} instead of {short_rate(second)} tokens/s" if a and b else ""


def _tokens_per_s(comparison: ComparisonFacts, found: SeriesComparison) -> tuple[float | None, float | None]:
    medians = found.end_to_end.baseline_median, found.end_to_end.candidate_median
    return tokens_per_s(comparison.tokens, medians[0]), tokens_per_s(comparison.tokens, medians[1])


def _inverse(ratio: float | None) -> float | None:
    return 1 / ratio if ratio else None


def _named_sides(comparison: ComparisonFacts) -> tuple[str, str]:
    """Return `A` and `B`, with their programs if these differ."""
    a, b = comparison.a.program, comparison.b.program
    return (f"A ({a})", f"B ({b})") if a and b and a != b else ("A", "B")


def about_arm(comparison: ComparisonFacts) -> str:
    """Return `, on x86_64: says nothing about Arm` if a side was measured on a CPU that is not Arm."""
    sides = {name: side for name, side in (("A", comparison.a), ("B", comparison.b)) if side.is_arm is False}
    if not sides:
        return ""
    cpus = listing(dict.fromkeys(side.machine or "a CPU that is not Arm" for side in sides.values()))
    return f", {'' if len(sides) == 2 else f'{next(iter(sides))} '}on {cpus}: says nothing about Arm"


def warnings(comparison: ComparisonFacts) -> tuple[str, ...]:
    """Return what a reader must know before trusting the answer, one line for each kind of remark."""
    return tuple(line.text for line in warning_lines(_remarks(comparison), _known(comparison)))


def _known(comparison: ComparisonFacts) -> tuple[Series, ...]:
    return tuple(found.after for found in comparison.series)


def _remarks(comparison: ComparisonFacts) -> Iterator[Diagnostic]:
    for found in comparison.series:
        if comparison.limit is not None and found.could_hide(comparison.limit):
            seen = (
                f"a slowdown of up to {percent(found.worst_slowdown)} could hide in the noise, more than the "
                f"limit of {percent(comparison.limit)}"
            )
            yield Diagnostic(found.after, "hidden", seen, "measure for longer (--budget)")
        if found.with_tracer and found.comparable:
            seen = "compared with the event tracer on, because there are no latencies without it"
            yield Diagnostic(found.after, "with_tracer", seen)
        yield from (Diagnostic(found.after, "pairing", note) for note in found.notes)
    for name, only in (("A", comparison.only_a), ("B", comparison.only_b)):
        if only:
            yield Diagnostic(None, f"only_{name}", f"only {name} has {name_series(only)}: not compared")


def comparison_document(comparison: ComparisonFacts) -> list[doc.Block]:
    blocks: list[doc.Block] = [
        doc.Heading(headline(comparison)),
        doc.Paragraph(("A is ", doc.Code(comparison.a.name), ", B is ", doc.Code(comparison.b.name), ".")),
        *structure_blocks(comparison),
    ]
    if not _only_apart_from_time(comparison):
        blocks.append(end_to_end_table(comparison))
    notes = dict.fromkeys(
        ratio_note(found.end_to_end, side_by_side=found.way != "apart")
        for found in comparison.series
        if found.end_to_end.ratio is not None
    )
    blocks += [doc.Paragraph(note) for note in notes]
    reasons = _not_compared(comparison)
    blocks += doc.make_list((*reasons, *warnings(comparison)))
    blocks += differences_table(comparison.differing_facts)
    for found in comparison.series:
        if details := tuple(_details(found)):
            whose = f"{found.name}: c" if len(comparison.series) > 1 else "C"
            blocks.append(doc.Folded(f"{whose}ategories and operators", details))
    return blocks


def differences_table(differing: Sequence[tuple[str, str, str]]) -> Iterator[doc.Block]:
    if differing:
        yield doc.Paragraph("What else differs:")
        yield doc.make_table(("what", "A", "B"), [(what, *map(doc.Code, of)) for what, *of in differing])


def comparison_page(comparison: ComparisonFacts) -> tuple[str, list[doc.Block]]:
    """Return the page of a comparison, with its title."""
    a, b = _named_sides(comparison)
    program = f"{comparison.b.program}: " if b == "B" and comparison.b.program else ""
    title = f"{program}{b} compared with {a}"
    blocks = [doc.Heading(title, 1), *comparison_document(comparison)]
    bars = [
        (f"{side}: {series}" if len(comparison.series) > 1 else side, break_down(shown))
        for found in comparison.series
        if found.pairing and found.parts
        for side, series, shown in (
            (a, found.before, found.pairing.baseline),
            (b, found.after, found.pairing.candidate),
        )
    ]
    return title, list(with_terms([*blocks, parts_bars(bars, shares=False)] if bars else blocks))


def _not_compared(comparison: ComparisonFacts) -> tuple[str, ...]:
    return tuple(line.text for line in warning_lines(_incomparable(comparison), _known(comparison)))


def _incomparable(comparison: ComparisonFacts) -> Iterator[Diagnostic]:
    if _only_apart_from_time(comparison):
        reason = comparison.not_comparable[0].end_to_end.reason
        yield Diagnostic(None, "not_comparable", f"No times are compared: {reason}")
        return
    for found in comparison.not_comparable:
        yield Diagnostic(found.after, "not_comparable", found.end_to_end.reason)


def remarks(comparison: ComparisonFacts) -> Iterator[Diagnostic]:
    """Yield what is not compared, and what a reader must know before trusting the answer."""
    yield from _incomparable(comparison)
    yield from _remarks(comparison)


def _only_apart_from_time(comparison: ComparisonFacts) -> bool:
    """Whether times were neither asked for nor measured (emulated runs): their table would be empty."""
    timed = any(found.end_to_end.ratio is not None for found in comparison.series)
    wanted = comparison.limit is not None or not comparison.gated
    return not wanted and not timed and bool(comparison.not_comparable)


def end_to_end_table(comparison: ComparisonFacts) -> doc.Table:
    def verdict(found: SeriesComparison) -> doc.Text:
        word = found.end_to_end.verdict.value
        return doc.Strong(f"{word}, beyond the limit") if found in comparison.regressions else word

    units = dict.fromkeys(several(found.end_to_end.unit) for found in comparison.series)
    is_arm = False not in (comparison.a.is_arm, comparison.b.is_arm)
    rates: tuple[doc.Column[SeriesComparison], ...] = (
        doc.Number("A tokens/s", lambda found: short_rate(_tokens_per_s(comparison, found)[0])),
        doc.Number("B tokens/s", lambda found: short_rate(_tokens_per_s(comparison, found)[1])),
    )
    columns: tuple[doc.Column[SeriesComparison], ...] = (
        doc.Column("experiment", lambda found: marked(found.name, is_arm)),
        doc.Number("A ms", lambda found: milliseconds(found.end_to_end.baseline_median)),
        doc.Number("B ms", lambda found: milliseconds(found.end_to_end.candidate_median)),
        *(rates if comparison.tokens else ()),
        doc.Number("change", lambda found: median_change(found.end_to_end)),
        doc.Number("speedup of B", lambda found: _speedup(found.end_to_end)),
        doc.Column("verdict", verdict),
        doc.Column("measured", lambda found: found.end_to_end.measured or MISSING),
        doc.Number(" or ".join(units), lambda found: str(found.end_to_end.rounds or MISSING)),
    )
    # The only experiment needs no name, unless that says that its CPU is not Arm.
    return doc.table_of(comparison.series, columns[1:] if is_arm and len(comparison.series) == 1 else columns)


def _details(found: SeriesComparison) -> Iterator[doc.Block]:
    pairing = found.pairing
    if pairing is None:
        return
    if found.parts:
        yield pair_table(pairing, ("A", "B"))
    timed = found.comparable or found.end_to_end.ratio is not None
    verdicts = {pair.speedup.verdict for pair in found.operators if pair.speedup} - {Verdict.NOT_COMPARABLE}
    too_few = timed and not verdicts
    moved = [pair for pair in found.operators if too_few or pair.change != "same" or _changed(pair.speedup)]
    ordered = sorted(moved, key=lambda pair: -abs(pair.delta_ms))[:_OPERATORS_SHOWN]
    if ordered:
        yield changes_table(pairing, ordered, ("A", "B"), timed=timed)
    more = f"; the {len(ordered)} largest are shown" if len(ordered) < len(moved) else ""
    units = sorted({several(side.unit) for side in (pairing.baseline, pairing.candidate)})
    few = f"too few {' or '.join(units)} to compare any"
    differ = few if too_few else f"{len(moved)} with another time or kernel"
    yield doc.Paragraph(f"{plural(len(found.operators), 'operator')}, {differ}{more}.")


def _changed(found: Speedup | None) -> bool:
    return found is not None and found.verdict in (Verdict.FASTER, Verdict.SLOWER)


def _speedup(found: Speedup) -> str:
    if found.ratio is None:
        return MISSING
    if found.low is None or found.high is None:
        return f"{found.ratio:.3f}x"
    return f"{found.ratio:.3f}x ({found.low:.3f} to {found.high:.3f})"


def comparison_junit(*comparisons: ComparisonFacts, only_a: Iterable[str] = ()) -> str:
    """Of one comparison, or of all cases of two language models and those that B lacks."""
    cases = [case for each in comparisons for case in _cases(each)]
    lost = [_lost(comparisons[0], name) for name in only_a]
    return junit_xml("sme2prof compare", [*cases, *lost])


def _group(comparison: ComparisonFacts) -> str:
    return f"sme2prof.compare.{comparison.b.model or comparison.a.model or 'model'}"


def _lost(comparison: ComparisonFacts, name: str) -> TestCase:
    return TestCase(_group(comparison), name, "error" if comparison.is_gated else "skipped", NOT_MEASURED)


def _cases(comparison: ComparisonFacts) -> list[TestCase]:
    """Return one test case per experiment, listing the categories that became slower, and one per
    experiment for each gate that is not about time."""
    group = _group(comparison)
    cases = [_case(comparison, found, group) for found in comparison.series]
    lost = (_lost(comparison, str(series)) for series in comparison.only_a)
    return [*cases, *lost, *structure_cases(comparison, group)]


def _case(comparison: ComparisonFacts, compared: SeriesComparison, group: str) -> TestCase:
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
        message = f"{percent(compared.slowdown)} slower, more than the {limit} allowed"
        return TestCase(group, compared.name, "failed", message, details)
    return TestCase(group, compared.name, "passed", found.verdict.value, details)


def comparison_facts(comparison: ComparisonFacts) -> dict[str, object]:
    return {
        "schema_version": 1,
        "headline": headline(comparison),
        "a": record_json(comparison.a),
        "b": record_json(comparison.b),
        "limit": comparison.limit,
        "regressions": [found.name for found in comparison.regressions],
        "gates": list(comparison.gated),
        "answer": comparison.answer,
        "unanswered": [{"what": what, "why": why} for what, why in comparison.unanswered],
        "differences": [
            {
                "experiment": found.name,
                "changes": [asdict(change) for change in found.changes],
                "structure_unknown": found.structure_unknown,
                "kernels_unknown": found.kernels_unknown,
                "notes": list(found.notes),
            }
            for found in comparison.differences
        ],
        "differing": [{"what": what, "a": a, "b": b} for what, a, b in comparison.differing_facts],
        "warnings": list(warnings(comparison)),
        "series": [
            {
                "before": asdict(found.before),
                "after": asdict(found.after),
                "with_tracer": found.with_tracer,
                "faster": found.faster,
                "slowdown": found.slowdown,
                "end_to_end": found.end_to_end.as_dict(),
                "tokens_per_s": dict(zip("ab", _tokens_per_s(comparison, found), strict=True)),
                **(pairing_facts(found.pairing) if found.pairing else {"categories": [], "operators": []}),
            }
            for found in comparison.series
        ],
    }


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(ComparisonFacts):
    """What `compare` returns: two measurements, B judged against A. In a notebook it shows itself as a page.

    `speedups`, `category_changes` and `operator_changes` are tables with `to_pandas()`; `regressions` is
    empty where nothing is slower than `limit` allows.
    """

    def __repr__(self) -> str:
        sides = (self.a, self.b)
        models = " and ".join(dict.fromkeys(side.model for side in sides if side.model)) or "model"
        places = " and ".join(dict.fromkeys(side.platform for side in sides if side.platform))
        return f"<Comparison {models}{f' on {places}' if places else ''}: {headline(self).rstrip('.')}>"

    def _repr_html_(self) -> str:
        return render_fragment(comparison_document(self))
