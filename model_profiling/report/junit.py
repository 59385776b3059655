"""JUnit XML, the format CI systems show as test results: one test case per question that was asked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree

from model_profiling.printable import printable

Outcome = Literal["passed", "failed", "skipped", "error"]
"""`failed`: the answer is no. `error`: there is no answer. `skipped`: nothing was asked of it."""

# What XML 1.0 cannot hold even escaped; operator names come from files.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAGS = {"failed": "failure", "skipped": "skipped", "error": "error"}


@dataclass(frozen=True, slots=True)
class TestCase:
    """One question and its outcome; `message` is one line, `details` whatever helps."""

    group: str
    name: str
    outcome: Outcome
    message: str = ""
    details: str = ""
    kind: str = "regression"
    """What a failure is."""

    # pytest would otherwise collect it, for its name.
    __test__ = False


def junit_xml(suite: str, cases: Sequence[TestCase]) -> str:
    """The document for one suite."""
    counts = {
        "tests": len(cases),
        "failures": _count(cases, "failed"),
        "errors": _count(cases, "error"),
        "skipped": _count(cases, "skipped"),
    }
    numbers = {key: str(value) for key, value in counts.items()}
    root = ElementTree.Element("testsuites", {"name": _text(suite), **numbers, "time": "0"})
    body = ElementTree.SubElement(root, "testsuite", {"name": _text(suite), **numbers, "time": "0"})
    for case in cases:
        element = ElementTree.SubElement(
            body, "testcase", {"classname": _text(case.group), "name": _text(case.name), "time": "0"}
        )
        _add_outcome(element, case)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _add_outcome(element: ElementTree.Element, case: TestCase) -> None:
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


def _count(cases: Sequence[TestCase], outcome: Outcome) -> int:
    return sum(case.outcome == outcome for case in cases)


def _text(text: str) -> str:
    return _NOT_XML.sub("?", printable(text))
