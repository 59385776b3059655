"""Assertions on what the product says: the facts in a text, not its sentences.

A fact is a name, a number with its unit, a path, a command, or the one word that makes the difference
(`faster`, `projected`). Sentences may be reworded; a test breaks when a fact goes missing or is another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from model_profiling.core.errors import ProfilingError


def has(text: str, fact: str) -> bool:
    """As a whole: `2 ms` is not in `12 ms`, nor `5` in `1.52`. Case is the sentence's affair."""
    before = r"(?<!\w)(?<!\d\.)" if fact[:1].isalnum() else ""
    after = r"(?!\w)(?!\.\d)" if fact[-1:].isalnum() else ""
    return re.search(f"{before}{re.escape(fact)}{after}", text, re.IGNORECASE) is not None


def says(text: str, *facts: object) -> None:
    """Every one of these facts stands somewhere in the text."""
    lacking = [fact for fact in map(str, facts) if not has(text, fact)]
    assert not lacking, f"{lacking} not said in: {text}"


def says_together(text: str, *facts: object) -> None:
    """One clause or line of the text has all of these facts: they are about each other."""
    clauses = re.split(r"[.;]\s|\n", text)
    assert any(all(has(clause, str(fact)) for fact in facts) for clause in clauses), (
        f"no clause says {facts} in: {text}"
    )


@contextmanager
def refused(
    kind: type[ProfilingError], *facts: object, fix: object = ""
) -> Iterator[pytest.ExceptionInfo[ProfilingError]]:
    """The block fails with this kind of error, in one line that has these facts and says what to do."""
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    assert error.problem and error.fix, f"lacks a cause or a cure: {error}"
    assert len(str(error).splitlines()) == 1, f"several lines: {error}"
    says(str(error), *facts)
    if fix:
        says(error.fix, fix)
