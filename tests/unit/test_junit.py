"""JUnit XML holds what CI systems read, whatever the names are."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_profiling.core.formatting import printable
from model_profiling.report.comparison_document import Outcome, TestCase, junit_xml

OUTCOMES: tuple[Outcome, ...] = ("passed", "failed", "skipped", "error")


def test_counts_and_children_follow_the_outcomes() -> None:
    cases = [TestCase("g", outcome, outcome, f"why {outcome}", "more") for outcome in OUTCOMES]
    root = ElementTree.fromstring(junit_xml("suite", cases))
    assert root.tag == "testsuites"
    (suite,) = root
    for place in (root, suite):
        assert {name: place.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
            "tests": "4",
            "failures": "1",
            "errors": "1",
            "skipped": "1",
        }
    children = {case.get("name"): [child.tag for child in case] for case in suite}
    assert children == {
        "passed": ["system-out"],
        "failed": ["failure"],
        "skipped": ["skipped"],
        "error": ["error"],
    }
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert (failure.get("message"), failure.get("type"), failure.text) == ("why failed", "regression", "more")


def test_an_empty_suite_is_a_document_too() -> None:
    assert ElementTree.fromstring(junit_xml("none", [])).get("tests") == "0"


@pytest.mark.parametrize("text", ["<&>\"'", "a\x00b\x1bc", "\ud800", "\uffff", "line\nbreak", "Ω → 漢"])
def test_any_name_gives_a_document_that_parses(text: str) -> None:
    for outcome in OUTCOMES:
        document = junit_xml(text, [TestCase(text, text, outcome, text, text)])
        root = ElementTree.fromstring(document.encode("utf-8"))
        assert root[0][0].get("name")


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1), st.sampled_from(OUTCOMES))
def test_text_that_xml_can_hold_survives(text: str, outcome: Outcome) -> None:
    case = ElementTree.fromstring(junit_xml("s", [TestCase("g", text, outcome, "m", "d")]).encode())[0][0]
    kept = "".join(c for c in printable(text) if c >= " " and c not in "\ufffe\uffff")
    said = case.get("name") or ""
    assert all(c in said for c in kept)
