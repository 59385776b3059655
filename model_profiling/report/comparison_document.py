"""A comparison as a page fit for a pull request, as JUnit test cases, as JSON facts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from model_profiling.analysis.pairing import Pairing
from model_profiling.json_record import record_json
from model_profiling.report.analysis_json import pairing_facts
from model_profiling.report.breakdown import pair_table
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
from model_profiling.report.method_section import ratio_note
from model_profiling.report.operator_sections import changes_table
from model_profiling.report.structure_section import (
    sentences,
    structure_blocks,
    structure_cases,
    structure_facts,
)
from model_profiling.run.remarks import Remark, name_series, warning_lines
from model_profiling.statistics.speedup import Speedup, Verdict
from model_profiling.wording import MISSING, change, milliseconds, percent, plural, several

_OPERATORS_SHOWN = 10


def headline(comparison: Comparison) -> str:
    """One line: what each gate says, the failures first; without gates the largest change."""
    if comparison.first:
        return f"The first run: {comparison.first}."
    if comparison.answer is None:
        return _largest(comparison)
    said = list(sentences(comparison))
    if comparison.limit is not None:
        said.insert(0, _about_time(comparison, comparison.limit))
    return " ".join(sentence for _, sentence in sorted(said, key=lambda each: each[0]))


def _about_time(comparison: Comparison, limit: float) -> tuple[bool, str]:
    """Whether the gate passed, and what it says."""
    if comparison.regressions:
        worst = max(comparison.regressions, key=lambda found: found.slowdown or 0.0)
        slower = percent(worst.slowdown)
        return False, f"Regression: {worst.name} is {slower} slower, more than the {percent(limit)} allowed."
    if comparison.not_comparable:
        return False, f"No answer: {plural(len(comparison.not_comparable), 'experiment')} not comparable."
    return True, f"No regression beyond {percent(limit)}."


def _largest(comparison: Comparison) -> str:
    changed = [
        found for found in comparison.series if found.end_to_end.verdict in (Verdict.FASTER, Verdict.SLOWER)
    ]
    if not changed:
        return "No significant change." if not comparison.not_comparable else "Not comparable."
    largest = max(changed, key=lambda found: abs(found.slowdown or 0.0))
    return f"{largest.name}: {largest.end_to_end.verdict.value}, {_speedup(largest.end_to_end)}."


def warnings(comparison: Comparison) -> tuple[str, ...]:
    """What a reader must know before trusting the answer, one line for each kind."""
    return tuple(line.text for line in warning_lines(_remarks(comparison)))


def _remarks(comparison: Comparison) -> Iterator[Remark]:
    for found in comparison.series:
        if comparison.limit is not None and found.could_hide(comparison.limit):
            seen = (
                f"a slowdown of up to {percent(found.worst_slowdown)} could hide in the noise, more than the "
                f"{percent(comparison.limit)} to be caught"
            )
            yield Remark(found.after, "hidden", seen, "measure for longer (--budget)")
        if found.with_tracer and found.comparable:
            seen = "compared with the event tracer on, for want of latencies without it"
            yield Remark(found.after, "with_tracer", seen)
        yield from (Remark(found.after, "pairing", note) for note in found.notes)
    if comparison.loads_differ and not _only_apart_from_time(comparison):
        seen = (
            f"the machine's load was {comparison.a.load:.1f} before A and {comparison.b.load:.1f} before B: "
            "part of the change may be other work"
        )
        yield Remark(None, "load", seen, "measure both in the same quiet stretch")
    for name, only in (("A", comparison.only_a), ("B", comparison.only_b)):
        if only:
            yield Remark(None, f"only_{name}", f"only {name} has {name_series(only)}: not compared")


def comparison_document(comparison: Comparison) -> list[Block]:
    """The whole summary; details of each experiment are folded away."""
    if comparison.first:
        told = ("B ", Code(comparison.b.name), " is what the next runs are judged by.")
        return [Heading(headline(comparison)), Paragraph(told)]
    blocks: list[Block] = [
        Heading(headline(comparison)),
        Paragraph(("B ", Code(comparison.b.name), " against A ", Code(comparison.a.name), ".")),
        *structure_blocks(comparison),
    ]
    if not _only_apart_from_time(comparison):
        blocks.append(_end_to_end_table(comparison))
    notes = dict.fromkeys(
        ratio_note(found.end_to_end, side_by_side=found.way != "apart")
        for found in comparison.series
        if found.end_to_end.ratio is not None
    )
    blocks += [Paragraph(note) for note in notes]
    reasons = _not_compared(comparison)
    blocks += make_list((*reasons, *warnings(comparison)))
    if comparison.differing_facts:
        blocks += [Paragraph("What else differs:"), make_table(("", "A", "B"), comparison.differing_facts)]
    for found in comparison.series:
        if details := tuple(_details(found)):
            blocks.append(Folded(f"{found.name}: categories and operators", details))
    return blocks


def _not_compared(comparison: Comparison) -> tuple[str, ...]:
    if _only_apart_from_time(comparison):
        return (f"No times are compared: {comparison.not_comparable[0].end_to_end.reason}",)
    told = (
        Remark(found.after, "not_comparable", found.end_to_end.reason) for found in comparison.not_comparable
    )
    return tuple(line.text for line in warning_lines(told))


def _only_apart_from_time(comparison: Comparison) -> bool:
    """Whether nobody asked about times and there are none, as of emulated runs: a table would be empty."""
    timed = any(found.end_to_end.ratio is not None for found in comparison.series)
    wanted = comparison.limit is not None or not comparison.gated
    return not wanted and not timed and bool(comparison.not_comparable)


def _end_to_end_table(comparison: Comparison) -> Block:
    units = dict.fromkeys(several(found.end_to_end.unit) for found in comparison.series)
    headers = ("experiment", "A ms", "B ms", "change", "speedup", "verdict", " or ".join(units))
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
    verdicts = {pair.speedup.verdict for pair in found.operators if pair.speedup} - {Verdict.NOT_COMPARABLE}
    too_few = timed and not verdicts
    moved = [pair for pair in found.operators if too_few or pair.change != "same" or _changed(pair.speedup)]
    ordered = sorted(moved, key=lambda pair: -abs(pair.delta_ms))[:_OPERATORS_SHOWN]
    if ordered:
        yield changes_table(pairing, ordered, ("A", "B"), timed=timed)
    more = f"; the {len(ordered)} largest are shown" if len(ordered) < len(moved) else ""
    units = sorted({several(side.unit) for side in (pairing.baseline, pairing.candidate)})
    few = f"too few {' or '.join(units)} to judge any"
    held = few if too_few else f"{len(moved)} with a change that holds"
    yield Paragraph(f"{plural(len(found.operators), 'operator')}, {held}{more}.")


def _changed(found: Speedup | None) -> bool:
    return found is not None and found.verdict in (Verdict.FASTER, Verdict.SLOWER)


def _speedup(found: Speedup) -> str:
    if found.ratio is None:
        return MISSING
    if found.low is None or found.high is None:
        return f"{found.ratio:.3f}x"
    return f"{found.ratio:.3f}x ({found.low:.3f} to {found.high:.3f})"


def comparison_junit(comparison: Comparison) -> str:
    """One test case per experiment; categories that slowed down are told in its output. Gates that are not
    about time have cases of their own."""
    group = f"sme2prof.compare.{comparison.b.model or comparison.a.model or 'model'}"
    if comparison.first:
        only = TestCase(group, "the first run", "skipped", comparison.first)
        return junit_xml("sme2prof compare", [only])
    cases = [_case(comparison, found, group) for found in comparison.series]
    return junit_xml("sme2prof compare", [*cases, *structure_cases(comparison, group)])


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


def comparison_facts(comparison: Comparison) -> dict[str, object]:
    """Everything found, as JSON."""
    return {
        "schema_version": 1,
        "headline": headline(comparison),
        "a": record_json(comparison.a),
        "b": record_json(comparison.b),
        "limit": comparison.limit,
        "regressions": [found.name for found in comparison.regressions],
        **structure_facts(comparison),
        "first": comparison.first,
        "differing": [{"what": what, "a": a, "b": b} for what, a, b in comparison.differing_facts],
        "warnings": list(warnings(comparison)),
        "series": [_series_facts(found) for found in comparison.series],
    }


def _series_facts(found: SeriesComparison) -> dict[str, object]:
    return {
        "before": asdict(found.before),
        "after": asdict(found.after),
        "with_tracer": found.with_tracer,
        "slowdown": found.slowdown,
        "end_to_end": found.end_to_end.as_dict(),
        **(pairing_facts(found.pairing) if found.pairing else {"categories": [], "operators": []}),
    }
