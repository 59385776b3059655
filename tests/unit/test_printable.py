"""What other people's files and machines say is shown, and obeyed by nothing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import assert_harmless

from model_profiling.cli import frame
from model_profiling.cli.progress import PlainLines
from model_profiling.core.formatting import no_command, printable
from model_profiling.report.comparison_document import TestCase, junit_xml
from model_profiling.report.document import (
    Code,
    Commands,
    Figure,
    Folded,
    Heading,
    Paragraph,
    make_list,
    make_table,
)
from model_profiling.report.text import render_markdown, render_terminal

CLEAR, TITLE, CSI, BIDI, ZERO = "\x1b[2J", "\x1b]0;pwned\x07", "\x9b31m", "\u202edrowssap", "con\u200bv"
HOSTILE = f"a{CLEAR}b{TITLE}c{CSI}d{BIDI}e{ZERO}f\rg\x7fh\udcffi\u2028j\U000e0001k"


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
    for show in (frame.say, frame.warn, frame.fail, PlainLines().stage):
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


def test_no_renderer_and_no_line_of_a_command_lets_it_through(capfd: pytest.CaptureFixture[str]) -> None:
    page = [
        Heading(HOSTILE, 1),
        Paragraph((HOSTILE, Code(HOSTILE))),
        make_table(("name", HOSTILE), [(Code(HOSTILE), HOSTILE)]),
        *make_list([HOSTILE]),
        Commands((HOSTILE,)),
        Figure(HOSTILE, HOSTILE),
        Folded(HOSTILE, (Paragraph(HOSTILE),)),
    ]
    for render in (render_markdown, render_terminal):
        assert_harmless(render(page))
        assert "\\u001b[2J" in render(page)
    assert len(render_terminal([Paragraph("one\ntwo")]).splitlines()) == 1, "a name makes no second sentence"
    assert_harmless(junit_xml("s", [TestCase(HOSTILE, HOSTILE, "failed", HOSTILE, HOSTILE)]))
    for show in (frame.say, frame.warn, frame.fail, PlainLines().stage):
        show(HOSTILE)
    frame.facts({HOSTILE: HOSTILE})
    frame.table(("name",), [(HOSTILE,)])
    said = capfd.readouterr()
    assert_harmless(said.out)
    assert_harmless(said.err)
    assert said.out.count("pwned") == 4 and said.err.count("pwned") == 3
