"""Two profiles of a language model (`sme2prof llm`), compared case by case: one table and one answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from model_profiling.config.remarks import warning_lines
from model_profiling.config.series import Series
from model_profiling.core.formatting import capitalized, listing, plural
from model_profiling.report import document as doc
from model_profiling.report.comparison import NOT_MEASURED, Answer, SeriesComparison
from model_profiling.report.comparison_document import (
    Comparison,
    about_arm,
    comparison_document,
    comparison_facts,
    differences_table,
    end_to_end_table,
    headline,
    remarks,
)


@dataclass(frozen=True, slots=True)
class LanguageComparison:
    """B judged against A, for each prompt and each position of the answer that both have."""

    a: str
    b: str
    cases: tuple[tuple[str, Comparison], ...]
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    programs: tuple[str, str] = ("", "")

    @property
    def _lost(self) -> tuple[str, ...]:
        """Cases that should be judged and B lacks."""
        return self.only_a if self.cases[0][1].is_gated else ()

    @property
    def answer(self) -> Answer | None:
        found = {each.answer for _, each in self.cases}
        if self._lost:
            found.add("no answer")
        order: tuple[Answer, ...] = ("failed", "no answer", "passed")
        return next((answer for answer in order if answer in found), None)

    @property
    def unanswered(self) -> tuple[tuple[str, str], ...]:
        return (
            *((f"{name}: {what}", why) for name, each in self.cases for what, why in each.unanswered),
            *((name, NOT_MEASURED) for name in self._lost),
        )

    @property
    def headline(self) -> str:
        """What failed or has no answer; if nothing did, or no gate was given, one sentence about all."""
        if self.answer is None:
            return self._changes
        if self.answer == "passed":
            return f"{plural(len(self.cases), 'case')}: {headline(self.cases[0][1])}"
        told = [
            f"{capitalized(name)}: {headline(each)}"
            for name, each in self.cases
            if each.answer == self.answer
        ]
        if self._lost:
            told.append(f"No answer: only A has {listing(self._lost)}.")
        return " ".join(told)

    @property
    def _changes(self) -> str:
        """In how many cases B is faster and slower, and where most: the prompt may gain, the answer lose."""
        rows = [
            (f"{name}, {row.name}" if len(each.series) > 1 else name, row)
            for name, each in self.cases
            for row in each.series
        ]
        faster = [(name, row) for name, row in rows if row.faster == "B"]
        slower = [(name, row) for name, row in rows if row.faster == "A"]
        if not faster and not slower and not all(row.comparable for _, row in rows):
            return next(headline(each) for _, each in self.cases if each.not_comparable)
        of = f"of {plural(len(rows), 'case' if len(rows) == len(self.cases) else 'comparison')}"
        said = [
            f"{word} in {len(found)} {of} ({_largest(found)})"
            for word, found in (("faster", faster), ("slower", slower))
            if found
        ]
        about = about_arm(self.cases[0][1])
        if not said:
            return f"No significant difference in any {of}{about}."
        return f"B is {' and '.join(said)}{about}."

    def facts(self) -> dict[str, object]:
        return {
            "schema_version": 1,
            "headline": self.headline,
            "answer": self.answer,
            "a": self.a,
            "b": self.b,
            "cases": [{"case": name, **comparison_facts(each)} for name, each in self.cases],
            "only_a": list(self.only_a),
            "only_b": list(self.only_b),
        }


def _largest(found: Sequence[tuple[str, SeriesComparison]]) -> str:
    name, row = max(found, key=lambda each: abs(each[1].slowdown or 0.0))
    return f"{'most in ' if len(found) > 1 else ''}{name}, {row.end_to_end.ratio:.2f}x"


def language_comparison_document(found: LanguageComparison) -> list[doc.Block]:
    tables: dict[tuple[str, ...], list[tuple[doc.Text, ...]]] = {}
    right: dict[tuple[str, ...], list[int]] = {}
    for name, each in found.cases:
        table = end_to_end_table(each)
        rows = tables.setdefault(table.headers, [])
        rows += [(name, *row) for row in table.rows]
        right[table.headers] = [place + 1 for place in table.numbers]
    told = (replace(remark, series=Series(name)) for name, each in found.cases for remark in remarks(each))
    lines = [line.text for line in warning_lines(told)]
    for side, only in (("A", found.only_a), ("B", found.only_b)):
        lines += [f"only {side} has {listing(only)}: not compared"] if only else []
    programs = ("program", *found.programs)
    differing = dict.fromkeys(
        row for _, each in found.cases for row in each.differing_facts if row[0] != programs[0]
    )
    if len({*found.programs}) > 1:
        differing = {programs: None, **differing}
    return [
        doc.Heading(found.headline),
        doc.Paragraph(("A is ", doc.Code(found.a), ", B is ", doc.Code(found.b), ".")),
        *(doc.make_table(("case", *headers), rows, right[headers]) for headers, rows in tables.items()),
        *doc.make_list(lines),
        *differences_table(tuple(differing)),
        *(doc.Folded(name, tuple(comparison_document(each))) for name, each in found.cases),
    ]
