"""What changed between two runs apart from time: a table for people, JUnit cases and JSON for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from model_profiling.analysis.structure import Aspect, Differences
from model_profiling.report.comparison import Comparison
from model_profiling.report.document import Block, Code, Folded, Paragraph, Text, make_list, make_table
from model_profiling.report.junit import TestCase
from model_profiling.wording import listing, plural

_SHOWN = 20
"""Changes that a page opens with; the others are folded away."""


def sentences(comparison: Comparison) -> Iterator[tuple[bool, str]]:
    """What each gate that is not about time says, those that passed in one; and whether it passed."""
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


def structure_blocks(comparison: Comparison) -> Iterator[Block]:
    """Every change of what is gated, by experiment, and why others could not be looked for."""
    left = _SHOWN
    more: list[Block] = []
    for found in comparison.differences:
        changes = [change for aspect in comparison.gated for change in found.of(aspect)]
        rows = [
            (change.what, Code(change.subject), change.before, change.after, change.where)
            for change in changes
        ]
        if shown := rows[:left]:
            yield from _changes(found, shown)
        if rest := rows[left:]:
            more += _changes(found, rest)
        left = max(0, left - len(rows))
    if more:
        every = sum(len(found.of(aspect)) for aspect, found in comparison.changed)
        yield Paragraph(f"{_SHOWN} of {every} differences are shown; --json and --markdown list all.")
        yield Folded("more differences", tuple(more))
    if comparison.gated:
        yield from make_list(_told(comparison))


def _changes(found: Differences, rows: Sequence[Sequence[Text]]) -> Iterator[Block]:
    yield Paragraph(f"{found.name}:")
    yield make_table(("what", "operator or kernel", "in A", "in B", "in the model"), rows)


def _told(comparison: Comparison) -> Iterator[str]:
    for aspect in comparison.gated:
        for found in comparison.differences:
            if why := found.unknown(aspect):
                yield f"{aspect} of {found.name}: {why}"
    if "kernels" in comparison.gated:
        yield from (f"{found.name}: {note}" for found in comparison.differences for note in found.notes)


def structure_cases(comparison: Comparison, group: str) -> Iterator[TestCase]:
    """A case for each gate and experiment."""
    for aspect in comparison.gated:
        for found in comparison.differences:
            if aspect == "structure" and found.only_kernels:
                continue
            yield _case(aspect, found, f"{group}.{aspect}")


def _case(aspect: Aspect, found: Differences, group: str) -> TestCase:
    changes = found.of(aspect)
    if changes:
        message = f"{aspect} changed: {plural(len(changes), 'difference')}"
        return TestCase(group, found.name, "failed", message, "\n".join(map(str, changes)), kind="change")
    if why := found.unknown(aspect):
        return TestCase(group, found.name, "error", why)
    return TestCase(group, found.name, "passed", f"{aspect} did not change", "\n".join(found.notes))


def structure_facts(comparison: Comparison) -> dict[str, object]:
    """All differences, gated or not."""
    return {
        "gates": list(comparison.gated),
        "answer": comparison.answer,
        "unanswered": [{"what": what, "why": why} for what, why in comparison.unanswered],
        "differences": [_facts(found) for found in comparison.differences],
    }


def _facts(found: Differences) -> dict[str, object]:
    return {
        "experiment": found.name,
        "changes": [asdict(change) for change in found.changes],
        "structure_unknown": found.structure_unknown,
        "kernels_unknown": found.kernels_unknown,
        "notes": list(found.notes),
    }
