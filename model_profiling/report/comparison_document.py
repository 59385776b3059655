"""A comparison as a page, as Markdown for a pull request and as JUnit test cases, all from one record."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from xml.etree import ElementTree

from model_profiling.config.series import Diagnostic, Series, name_series, warning_lines
from model_profiling.core.formatting import percent, plural, printable, several
from model_profiling.core.records import record_json
from model_profiling.report import document as doc
from model_profiling.report.analysis_json import pairing_facts
from model_profiling.report.breakdown import break_down, pair_table
from model_profiling.report.comparison import (
    Case,
    Comparison,
    SeriesComparison,
    end_to_end_table,
    headline,
    named_sides,
)
from model_profiling.report.run_charts import stacked
from model_profiling.report.sections import changes_table
from model_profiling.statistics.speedup import Verdict

_SHOWN = 20
"""How many changes apart from time a page shows."""
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
        _how_compared(found) for found in comparison.series if found.end_to_end.ratio is not None
    )
    blocks += [doc.Paragraph(note) for note in notes]
    reasons = warning_lines(_incomparable(comparison), subjects(comparison))
    blocks += doc.make_list((*(line.text for line in reasons), *warnings(comparison)))
    if differing := comparison.differing_facts:
        rows = [(what, doc.Code(a), doc.Code(b)) for what, a, b in differing]
        blocks += [doc.Paragraph("What else differs:"), doc.make_table(("what", "A", "B"), rows)]
    for found in comparison.series:
        if details := tuple(_details(found)):
            whose = f"{found.name}: c" if len(comparison.series) > 1 else "C"
            blocks.append(doc.Folded(f"{whose}ategories and operators", details))
    return blocks


def _how_compared(row: SeriesComparison) -> str:
    if row.with_tracer:
        return "Times are medians of traced inferences."
    if row.way == "lockstep":
        return "Times are those of paired turns, which speedups come from: the fastest eighth of each turn."
    when = "side by side" if row.way == "rounds" else "at different times (3% is added to each side)"
    return f"Times are the fastest eighth of each process; processes ran {when}."


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
    return title, [*blocks, stacked(bars, "categories", "Where the time goes")] if bars else blocks


def _incomparable(comparison: Comparison) -> Iterator[Diagnostic]:
    if _only_apart_from_time(comparison):
        reason = comparison.not_comparable[0].end_to_end.reason
        yield Diagnostic(None, "not_comparable", f"No times are compared: {reason}")
        return
    for found in comparison.not_comparable:
        yield Diagnostic(found.after, "not_comparable", found.end_to_end.reason)


def _only_apart_from_time(comparison: Comparison) -> bool:
    """Whether times were neither asked for nor measured (emulated runs): their table would be empty."""
    timed = any(found.end_to_end.ratio is not None for found in comparison.series)
    wanted = comparison.limit is not None or not comparison.gated
    return not wanted and not timed and bool(comparison.not_comparable)


def _details(found: SeriesComparison) -> Iterator[doc.Block]:
    pairing = found.pairing
    if pairing is None:
        return
    if found.parts:
        yield pair_table(pairing, ("A", "B"))
    timed = found.comparable or found.end_to_end.ratio is not None
    verdicts = {pair.speedup.verdict for pair in found.operators if pair.speedup} - {Verdict.NOT_COMPARABLE}
    too_few = timed and not verdicts
    changed = Verdict.FASTER, Verdict.SLOWER
    moved = [
        pair
        for pair in found.operators
        if too_few or pair.change != "same" or (pair.speedup and pair.speedup.verdict in changed)
    ]
    ordered = sorted(moved, key=lambda pair: -abs(pair.delta_ms))[:_OPERATORS_SHOWN]
    if ordered:
        yield changes_table(pairing, ordered, ("A", "B"), timed=timed)
    more = f"; the {len(ordered)} largest are shown" if len(ordered) < len(moved) else ""
    units = sorted({several(side.unit) for side in (pairing.baseline, pairing.candidate)})
    few = f"too few {' or '.join(units)} to compare any"
    differ = few if too_few else f"{len(moved)} with another time or kernel"
    yield doc.Paragraph(f"{plural(len(found.operators), 'operator')}, {differ}{more}.")


def warnings(comparison: Comparison) -> tuple[str, ...]:
    """Return what a reader must know before trusting the answer, one line for each kind of remark."""
    return tuple(line.text for line in warning_lines(_remarks(comparison), subjects(comparison)))


def subjects(comparison: Comparison) -> tuple[Series, ...]:
    return tuple(row.after for row in comparison.series)


def _remarks(comparison: Comparison) -> Iterator[Diagnostic]:
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


def comparison_facts(comparison: Comparison) -> dict[str, object]:
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
                "structure_unknown": found.unknown.get("structure", ""),
                "kernels_unknown": found.unknown.get("kernels", ""),
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
                "compared_ms": dict(zip("ab", found.compared_ms, strict=True)),
                **(pairing_facts(found.pairing) if found.pairing else {"categories": [], "operators": []}),
            }
            for found in comparison.series
        ],
    }


# JUnit XML, which CI systems show as test results: one test case per question.

# Characters that XML 1.0 forbids even when escaped; operator names come from files.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAGS = {"passed": "system-out", "failed": "failure", "skipped": "skipped", "error": "error"}


def comparison_junit(comparison: Comparison) -> str:
    group = f"sme2prof.compare.{comparison.b.model or comparison.a.model or 'model'}"
    return junit_xml(group, comparison.cases)


def junit_xml(group: str, cases: Sequence[Case]) -> str:
    count = Counter(case.outcome for case in cases)
    counts = (len(cases), count["failed"], count["error"], count["skipped"])
    numbers = dict(zip(("tests", "failures", "errors", "skipped"), map(str, counts), strict=True))
    suite = {"name": "sme2prof compare", **numbers, "time": "0"}
    root = ElementTree.Element("testsuites", suite)
    body = ElementTree.SubElement(root, "testsuite", suite)
    for case in cases:
        of = f"{group}.{case.aspect}" if case.aspect else group
        named = {"classname": _text(of), "name": _text(case.name), "time": "0"}
        answer = ElementTree.SubElement(ElementTree.SubElement(body, "testcase", named), _TAGS[case.outcome])
        answer.text = _text(case.details) or None
        if case.outcome == "passed":
            answer.text = _text("\n".join(filter(None, (case.message, case.details))))
            continue
        answer.set("message", _text(case.message))
        if case.outcome != "skipped":
            failed = "change" if case.aspect else "regression"
            answer.set("type", failed if case.outcome == "failed" else "not comparable")
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _text(text: str) -> str:
    return _NOT_XML.sub("?", printable(text))


# Changes apart from time.


def structure_blocks(comparison: Comparison) -> Iterator[doc.Block]:
    """Yield the gated changes, and why some could not be checked."""
    rows: list[tuple[doc.Text, ...]] = [
        (found.name, change.what, doc.Code(change.subject), change.before, change.after, change.where)
        for aspect, found in comparison.changed
        for change in found.of(aspect)
    ]
    if rows:
        headers = ("experiment", "what", "operator or kernel", "in A", "in B", "in the model")
        yield doc.make_table(headers, rows[:_SHOWN])
    if len(rows) > _SHOWN:
        yield doc.Paragraph(f"{_SHOWN} of {len(rows)} differences are shown; --json lists all.")
    unclear = (case for case in comparison.cases if case.aspect and case.outcome == "error")
    unknown = [f"{case.question}: {case.message}" for case in unclear]
    if "kernels" in comparison.gated:
        unknown += [f"{found.name}: {note}" for found in comparison.differences for note in found.notes]
    yield from doc.make_list(unknown)
