"""Words for people: numbers, warnings, names that nothing obeys, JUnit for CI."""

import json
from decimal import Decimal
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pages import assert_harmless

from model_profiling.cli import frame
from model_profiling.config.series import Diagnostic, Series, Weight, name_series, warning_lines
from model_profiling.core.formatting import (
    change,
    milliseconds,
    no_command,
    percent,
    plural,
    printable,
    rounded_parts,
    size,
    span,
    speedup,
    with_threads,
)
from model_profiling.core.stdio import Lines
from model_profiling.report.comparison import Case, CaseOutcome
from model_profiling.report.comparison_document import junit_xml
from model_profiling.runner.machine import MachineFacts
from model_profiling.runs.figures import latency_warnings, machine_warnings
from model_profiling.runs.manifest import Machine


def test_numbers_for_people() -> None:
    for value, shown in (
        *((None, "-"), (0.0, "0.0000"), (0.000004, "0.000004"), (0.005126, "0.00513"), (0.01234, "0.0123")),
        *((1.23456, "1.235"), (12.3456, "12.35"), (1234.56, "1234.6")),
    ):
        assert milliseconds(value) == shown, "the figures that count"
    assert (percent(0.1234), percent(None)) == ("12.3%", "-")
    assert (change(2.0), change(0.8), change(1.0), change(None)) == ("-50.0%", "+25.0%", "+0.0%", "-")
    assert (speedup(1.984), speedup(None)) == ("1.98x", "-")
    assert [size(n) for n in (1, 12, 1500, 2.5e6, None)] == ["1 byte", "12 bytes", "1.5 kB", "2.5 MB", "-"]
    assert [plural(n, "round") for n in (0, 1, 2)] == ["0 rounds", "1 round", "2 rounds"]
    assert [plural(2, word) for word in ("launch", "series")] == ["2 launches", "2 series"]
    assert (with_threads("on", 2), with_threads("on", None)) == ("on, 2 threads", "on")
    assert (span("1.2x", "3.4x"), span("1.2x", "1.2x")) == ("1.2x to 3.4x", "1.2x")
    assert rounded_parts([], 1.0, 2) == []


parts_of_time = st.lists(st.integers(0, 10**9) | st.integers(-(10**6), 10**6), min_size=1, max_size=30)


@given(parts_of_time, st.integers(0, 4))
def test_rounded_parts_add_up_and_none_moves_by_more_than_its_last_digit(nanoseconds, decimals):
    parts, whole = [value / 1e6 for value in nanoseconds], sum(nanoseconds) / 1e6
    shown = rounded_parts(parts, whole, decimals)
    last_digits = [round(value * 10**decimals) for value in shown]
    assert sum(last_digits) == Decimal(f"{whole:.{decimals}f}") * 10**decimals, "as the whole is printed"
    for part, value in zip(parts, shown, strict=True):
        assert abs(value - part) < 10**-decimals * (1 + 1e-9)
        assert value >= 0 or part < 0, "what took no time takes none on the page"


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=30), st.integers(0, 4))
def test_parts_that_need_no_rounding_stay_as_they_are(units: list[int], decimals: int) -> None:
    parts = [value / 10**decimals for value in units]
    assert rounded_parts(parts, sum(units) / 10**decimals, decimals) == parts


ON1, ON2, OFF1, OFF2 = (Series(name, count) for name in ("on", "off") for count in (1, 2))


def texts(*remarks: Diagnostic) -> list[str]:
    return [line.text for line in warning_lines(remarks)]


def test_one_kind_is_one_line_with_ranges_and_what_differs_apart() -> None:
    spread = [
        Diagnostic(series, "busy", "latencies spread by {}%", "stop other work", (share,))
        for series, share in ((ON1, 71), (ON2, 12), (OFF1, 89))
    ]
    (line,) = warning_lines(spread)
    named = "on, 1 thread; on, 2 threads; off, 1 thread"
    assert line.text == f"{named}: latencies spread by 12 to 89%; stop other work"
    assert (line.kind, line.series) == ("busy", (ON1, ON2, OFF1))
    (line,) = warning_lines(spread[:1], all_series=(ON1,))
    assert line.text == "latencies spread by 71%; stop other work", "the only series needs no name"
    assert warning_lines(spread[:1], all_series=(ON1, OFF1))[0].text.startswith("on: ")
    assert warning_lines(spread[:1], all_series=(ON1, ON2))[0].text.startswith("1 thread: ")
    (line,) = warning_lines(spread[:1], all_series=(OFF1,))
    assert line.text.startswith("on, 1 thread: "), "of another run"
    changes = (ON1, "became 3% slower"), (OFF1, "became 4% faster")
    slower = [Diagnostic(series, "runs", seen, "let it cool down") for series, seen in changes]
    said = "on, 1 thread: became 3% slower; off, 1 thread: became 4% faster; let it cool down"
    assert texts(*slower) == [said]


def test_numbers_that_are_no_measurement_are_never_made_a_range() -> None:
    pairs = [(ON1, "exit code 10"), (OFF1, "exit code 11")]
    failed = [Diagnostic(series, "failed", seen, "look") for series, seen in pairs]
    assert texts(*failed) == ["on, 1 thread: exit code 10; off, 1 thread: exit code 11; look"]
    lost = [f"the dump a_t{number}.etdump is missing" for number in range(7)]
    missing = [Diagnostic(None, "missing_dump", seen) for seen in lost]
    (text,) = texts(*missing)
    assert text.count("is missing") == 4 and text.endswith("and 3 more")
    causes = (ON1, "no file", "make it"), (OFF1, "no room", "free some")
    failed = [Diagnostic(series, "failed", *cause) for series, *cause in causes]
    assert texts(*failed) == ["on, 1 thread: no file; make it; off, 1 thread: no room; free some"]


def test_warnings_stand_in_their_order_each_with_its_weight() -> None:
    codes = ("note", "busy", "governor", "misfit", "not_tested", "failed", "outputs")
    lines = warning_lines(Diagnostic(None, code, code) for code in codes)
    assert " ".join(line.kind for line in lines) == "outputs failed not_tested misfit governor busy note"
    assert [line.weight for line in lines] == sorted(line.weight for line in lines)
    bad = MachineFacts(cores=2, governor="powersave", on_battery=True)
    ramp = [[10.0 + turn, *(1.0 + turn,) * 3] for turn in range(4)]
    found = (*machine_warnings(Machine(bad), 4), *latency_warnings(ON1, ramp))
    assert len(found) >= 5
    assert {one.weight for one in found} == {Weight.UNSTABLE}


def test_series_are_named_together_and_as_many_as_a_person_reads() -> None:
    assert name_series((ON1, OFF1, ON1)) == "on, 1 thread; off, 1 thread"
    assert name_series((Series("bare"), Series("other"))) == "bare; other" and name_series(()) == ""
    many = [Series(f"e{number}", 1) for number in range(1000)]
    assert name_series(many) == "; ".join([*map(str, many[:12]), "988 more"])
    assert name_series(many[:13]).endswith(str(many[12]))


@given(st.text(st.characters()))
def test_nothing_unseen_remains_and_json_is_the_same_json(text: str) -> None:
    shown = printable(text)
    assert_harmless(shown)
    assert printable(shown) == shown
    told = json.dumps([text], ensure_ascii=False)
    assert json.loads(printable(told)) == [text]


def test_what_can_be_seen_is_left_alone() -> None:
    plain = "Größe 日本語, 🙂\tx\n"
    assert printable(plain) == plain
    assert printable("a\x1b]0;x\x07\u202eb\r\nc\td") == "a\\u001b]0;x\\u0007\\u202eb\nc\td"
    assert printable("\U000e0001\udcff") == "\\udb40\\udc01\\udcff"


@pytest.mark.parametrize(
    "line", ["::error::x", "  ::set-env name=PATH::x", "a ##[error]x", "##vso[task.setvariable variable=a]b"]
)
def test_a_name_is_no_command_of_a_ci_service(line: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Services read what a job prints for commands: at the start of a line, or anywhere in it."""
    for show in (frame.say, frame.warn, frame.fail, Lines().stage):
        show(line)
        show(f"a\n{line}")
    frame.table(("name",), [(line,)])
    frame.facts({line: line})
    out, err = capfd.readouterr()
    for said in (out + err).splitlines():
        assert not said.lstrip().startswith("::") and "##[" not in said and "##vso[" not in said, said
    assert json.loads(out[out.index("{") :]) == {line: line}


@given(st.text(st.sampled_from(":#[v \n\\")))
def test_what_is_no_command_is_left_alone(text: str) -> None:
    shown = no_command(text)
    assert no_command(shown) == shown
    assert shown.replace("\\u003a", ":").replace("\\u0023", "#") == text
    told = json.dumps([text])
    assert json.loads(no_command(told)) == [text]
    assert no_command("std::move, a::b, # x [1], #[x]") == "std::move, a::b, # x [1], #[x]"


OUTCOMES: tuple[CaseOutcome, ...] = ("passed", "failed", "skipped", "error")


def test_counts_and_children_follow_the_outcomes() -> None:
    cases = [Case(outcome, outcome, f"why {outcome}", "more") for outcome in OUTCOMES]
    root = ElementTree.fromstring(junit_xml("suite", cases))
    assert root.tag == "testsuites" and ElementTree.fromstring(junit_xml("none", [])).get("tests") == "0"
    (suite,) = root
    for place in (root, suite):
        assert [place.get(name) for name in ("tests", "failures", "errors", "skipped")] == [*"4111"]
    children = {case.get("name"): [child.tag for child in case] for case in suite}
    tags = {"passed": "system-out", "failed": "failure", "skipped": "skipped", "error": "error"}
    assert children == {name: [tag] for name, tag in tags.items()}
    failure = suite.find("testcase/failure")
    assert (failure.get("message"), failure.get("type"), failure.text) == ("why failed", "regression", "more")


@given(st.text(st.characters(), min_size=1), st.sampled_from(OUTCOMES))
@example("a\x00b\x1bc\ud800\uffff\n<&>\"'", "failed")
def test_any_name_gives_a_document_that_parses_and_keeps_what_xml_can_hold(text, outcome) -> None:
    document = junit_xml(text, [Case(text, outcome, text, text)])
    said = ElementTree.fromstring(document.encode("utf-8"))[0][0].get("name") or ""
    kept = (c for c in printable(text) if c >= " " and c not in "\ufffe\uffff")
    assert all(c in said for c in kept)
