"""Two profiles of a language model (`sme2prof llm`), compared case by case: one table and one answer."""

from __future__ import annotations

from dataclasses import dataclass

from model_profiling.core.formatting import capitalized, listing, plural
from model_profiling.report import document as doc
from model_profiling.report.comparison import Answer
from model_profiling.report.comparison_document import (
    Comparison,
    comparison_document,
    comparison_facts,
    end_to_end_table,
    headline,
    not_compared,
    warnings,
)


@dataclass(frozen=True, slots=True)
class LanguageComparison:
    """B judged against A, for each prompt and each position of the answer that both have."""

    a: str
    b: str
    cases: tuple[tuple[str, Comparison], ...]
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()

    @property
    def answer(self) -> Answer | None:
        found = {each.answer for _, each in self.cases}
        order: tuple[Answer, ...] = ("failed", "no answer", "passed")
        return next((answer for answer in order if answer in found), None)

    @property
    def unanswered(self) -> tuple[tuple[str, str], ...]:
        return tuple((f"{name}: {what}", why) for name, each in self.cases for what, why in each.unanswered)

    @property
    def headline(self) -> str:
        """What failed or has no answer; if nothing did, or no gate was given, one sentence about all."""
        if self.answer == "passed":
            return f"{plural(len(self.cases), 'case')}: {headline(self.cases[0][1])}"
        if self.answer is not None:
            told = [(name, each) for name, each in self.cases if each.answer == self.answer]
        else:
            told = [max(self.cases, key=lambda case: _largest(case[1]))]
        return " ".join(f"{capitalized(name)}: {headline(each)}" for name, each in told)

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


def _largest(found: Comparison) -> tuple[bool, float]:
    """The size of its largest change; a significant one is larger than any other."""
    return max((each.faster is not None, abs(each.slowdown or 0.0)) for each in found.series)


def language_comparison_document(found: LanguageComparison) -> list[doc.Block]:
    tables: dict[tuple[str, ...], list[tuple[doc.Text, ...]]] = {}
    right: dict[tuple[str, ...], list[int]] = {}
    for name, each in found.cases:
        table = end_to_end_table(each)
        rows = tables.setdefault(table.headers, [])
        rows += [(name, *row) for row in table.rows]
        right[table.headers] = [place + 1 for place in table.numbers]
    lines = [
        f"{name}: {line}" for name, each in found.cases for line in (*not_compared(each), *warnings(each))
    ]
    for side, only in (("A", found.only_a), ("B", found.only_b)):
        lines += [f"only {side} has {listing(only)}: not compared"] if only else []
    return [
        doc.Heading(found.headline),
        doc.Paragraph(("A is ", doc.Code(found.a), ", B is ", doc.Code(found.b), ".")),
        *(doc.make_table(("case", *headers), rows, right[headers]) for headers, rows in tables.items()),
        *doc.make_list(lines),
        *(doc.Folded(name, tuple(comparison_document(each))) for name, each in found.cases),
    ]
