"""A comparison as a page, as Markdown for a pull request and as JUnit test cases, all from one record."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree

from model_profiling.analysis.structure import Aspect, Differences
from model_profiling.config import names
from model_profiling.config.remarks import Diagnostic, warning_lines
from model_profiling.core.formatting import (
    MISSING,
    milliseconds,
    percent,
    plural,
    printable,
    several,
    short_rate,
)
from model_profiling.report import document as doc
from model_profiling.report.breakdown import break_down, pair_table
from model_profiling.report.cells import median_change
from model_profiling.report.charts.categories import several_runs
from model_profiling.report.comparison import (
    NOT_MEASURED,
    Comparison,
    SeriesComparison,
    headline,
    named_sides,
    subjects,
    warnings,
)
from model_profiling.report.latency_section import ratio_note
from model_profiling.report.operator_sections import changes_table
from model_profiling.report.terms import with_terms
from model_profiling.runs.times import marked
from model_profiling.statistics.speedup import Speedup, Verdict

_SHOWN = 20
"""How many changes a page shows; the others are folded."""
_OPERATORS_SHOWN = 10


def comparison_document(comparison: Comparison) -> list[doc.Block]:
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


def comparison_page(comparison: Comparison) -> tuple[str, list[doc.Block]]:
    """Return the page of a comparison, with its title."""
    a, b = named_sides(comparison)
    program = f"{comparison.b.program}: " if b == "B" and comparison.b.program else ""
    title = f"{program}{b} compared with {a}"
    blocks = [doc.Heading(title, 1), *comparison_document(comparison)]
    bars = {
        f"{side}: {row.name}" if len(comparison.series) > 1 else side: break_down(series)
        for row in comparison.series
        if row.pairing and row.parts
        for side, series in ((a, row.pairing.baseline), (b, row.pairing.candidate))
    }
    source = f"{names.ANALYSIS} of each run"
    return title, list(with_terms([*blocks, several_runs(bars, source)] if bars else blocks))


def _not_compared(comparison: Comparison) -> tuple[str, ...]:
    return tuple(line.text for line in warning_lines(_incomparable(comparison), subjects(comparison)))


def _incomparable(comparison: Comparison) -> Iterator[Diagnostic]:
    if _only_apart_from_time(comparison):
        reason = comparison.not_comparable[0].end_to_end.reason
        yield Diagnostic(None, "not_comparable", f"No times are compared: {reason}")
        return
    for found in comparison.not_comparable:
        yield Diagnostic(found.subject, "not_comparable", found.end_to_end.reason)


def _only_apart_from_time(comparison: Comparison) -> bool:
    """Whether times were neither asked for nor measured (emulated runs): their table would be empty."""
    timed = any(found.end_to_end.ratio is not None for found in comparison.series)
    wanted = comparison.limit is not None or not comparison.gated
    return not wanted and not timed and bool(comparison.not_comparable)


def end_to_end_table(comparison: Comparison) -> doc.Table:
    def verdict(found: SeriesComparison) -> doc.Text:
        word = found.end_to_end.verdict.value
        return doc.Strong(f"{word}, beyond the limit") if found in comparison.regressions else word

    units = dict.fromkeys(several(found.end_to_end.unit) for found in comparison.series)
    is_arm = False not in (comparison.a.is_arm, comparison.b.is_arm)
    rates: tuple[doc.Column[SeriesComparison], ...] = (
        doc.Number("A tokens/s", lambda found: short_rate(found.tokens_per_s[0])),
        doc.Number("B tokens/s", lambda found: short_rate(found.tokens_per_s[1])),
    )
    columns: tuple[doc.Column[SeriesComparison], ...] = (
        doc.Column(
            "case" if any(row.case for row in comparison.series) else "experiment",
            lambda found: marked(found.name, is_arm),
        ),
        doc.Number("A ms", lambda found: milliseconds(found.end_to_end.baseline_median)),
        doc.Number("B ms", lambda found: milliseconds(found.end_to_end.candidate_median)),
        *(rates if any(row.tokens for row in comparison.series) else ()),
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


def comparison_junit(comparison: Comparison) -> str:
    return junit_xml("sme2prof compare", _cases(comparison))


def _group(comparison: Comparison) -> str:
    return f"sme2prof.compare.{comparison.b.model or comparison.a.model or 'model'}"


def _lost(comparison: Comparison, name: str) -> TestCase:
    return TestCase(_group(comparison), name, "error" if comparison.is_gated else "skipped", NOT_MEASURED)


def _cases(comparison: Comparison) -> list[TestCase]:
    """Return one test case per experiment, listing the categories that became slower, and one per
    experiment for each gate that is not about time."""
    group = _group(comparison)
    cases = [_case(comparison, found, group) for found in comparison.series]
    lost = (_lost(comparison, str(series)) for series in comparison.only_a)
    return [*cases, *lost, *structure_cases(comparison, group)]


def _case(comparison: Comparison, compared: SeriesComparison, group: str) -> TestCase:
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


# Changes apart from time.


def structure_blocks(comparison: Comparison) -> Iterator[doc.Block]:
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


def _unknown_lines(comparison: Comparison) -> Iterator[str]:
    for aspect in comparison.gated:
        for found in comparison.differences:
            if why := found.unknown(aspect):
                yield f"{aspect} of {found.name}: {why}"
    if "kernels" in comparison.gated:
        yield from (f"{found.name}: {note}" for found in comparison.differences for note in found.notes)


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


def structure_cases(comparison: Comparison, group: str) -> Iterator[TestCase]:
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
