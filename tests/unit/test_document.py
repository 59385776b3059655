"""Blocks as Markdown and as lines for a terminal: nothing breaks out, everything lines up."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_profiling.report.document import (
    Chart,
    Code,
    Commands,
    Figure,
    Folded,
    Heading,
    Item,
    Items,
    Paragraph,
    Strong,
    make_list,
    make_table,
    plain,
)
from model_profiling.report.html.blocks import block_html
from model_profiling.report.markdown import render_markdown
from model_profiling.report.terminal import render_terminal


@given(st.lists(st.text() | st.text().map(Code), min_size=2, max_size=2), st.text())
def test_no_text_breaks_out_of_its_cell(row: list[str | Code], header: str) -> None:
    lines = render_markdown([make_table(("a", header), [row], numbers=[1])]).rstrip("\n").split("\n")
    assert len(lines) == 3 and lines[1] == "| --- | ---: |"
    for line in lines:
        assert "\r" not in line and len(re.findall(r"(?<!\\)\|", line)) == 3


@given(st.text(alphabet="`a ", min_size=1))
def test_code_holds_any_backticks(text: str) -> None:
    shown = render_markdown([Paragraph(Code(text))]).removesuffix("\n")
    wanted = " ".join(text.split())
    fence = re.match(r"`*", shown)
    assert fence is not None
    inside = shown[len(fence.group()) : len(shown) - len(fence.group())]
    assert wanted in (inside, inside[1:-1])
    assert not wanted or fence.group() not in re.findall(r"`+", wanted)


def test_empty_cells_show_a_dash() -> None:
    table = make_table(("a", ""), [("", Code(" "))])
    assert render_markdown([table]) == "| a |  |\n| --- | --- |\n| - | - |\n"


PAGE = (
    Heading("Title", 1),
    Paragraph(("The ", Code("conv"), " is ", Strong("slow"), ".")),
    make_table(("name", "ms"), [(Code("a"), "1.5"), ("lon\nger", "10.25")], numbers=[1]),
    Items((Item("first", ("why", Code("x"))), Item("second")), numbered=True),
    Commands(("sme2prof report d",)),
    Figure("time.svg", "Where the time goes"),
    Folded("more", (Paragraph("hidden"), *make_list(["one"]))),
)


def test_every_block_as_markdown() -> None:
    assert render_markdown(PAGE) == (
        "# Title\n\n"
        "The `conv` is **slow**.\n\n"
        "| name | ms |\n| --- | ---: |\n| `a` | 1.5 |\n| lon ger | 10.25 |\n\n"
        "1. first\n   - why\n   - `x`\n2. second\n\n"
        "```\nsme2prof report d\n```\n\n"
        "![Where the time goes](time.svg)\n\n"
        "<details><summary>more</summary>\n\nhidden\n\n- one\n\n</details>\n"
    )


def test_a_name_in_a_picture_s_caption_is_only_a_name() -> None:
    (line,) = render_markdown([Figure("a.svg", "x](http://evil) [y] <b>`z`\\")]).splitlines()
    assert line == r"![x\](http://evil) \[y\] \<b\>\`z\`\\](a.svg)"
    chart = Chart("c", "t]", "s", {})
    assert render_markdown([chart], "p_files") == "![t\\]. s](p_files/c.svg)\n"
    assert render_markdown([chart]) == "\n"


@pytest.mark.parametrize(
    "name", ["<script>x</script>", "\\\\<img src=x>", "[a](https://b)", "![a](b)", "[a][b]", "<!--"]
)
def test_a_name_is_no_element_and_no_link_of_the_page(name: str) -> None:
    blocks = [
        Heading(name),
        Paragraph((name, Strong(name))),
        make_table((name,), [(name,)]),
        Items((Item(name, (name,)),)),
        Folded(name, (Paragraph(name),)),
    ]
    text = render_markdown(blocks).replace("<details>", "").replace("</details>", "")
    text = text.replace("<summary>", "").replace("</summary>", "")
    assert not re.search(r"<[a-z/!]", text)
    # A summary is HTML: there a link's brackets are only brackets.
    assert not re.search(r"\][(\[]", text.replace(html.escape(name), ""))
    fenced = render_markdown([Commands(("sme2prof report '```'", name))])
    assert fenced.startswith("````\n") and fenced.endswith("\n````\n")


def test_every_block_on_a_terminal() -> None:
    assert render_terminal(PAGE).splitlines() == [
        "",
        "Title",
        "The conv is slow.",
        "name        ms",
        "a          1.5",
        "lon ger  10.25",
        "1. first",
        "   - why",
        "   - x",
        "2. second",
        "  sme2prof report d",
        "Where the time goes: time.svg",
        "more",
        "  hidden",
        "  - one",
    ]


def test_a_sentence_quotes_a_command_in_a_browser_too() -> None:
    shown = block_html(Paragraph(("see `a <b>`, a lone ` and ", Strong("`c`"))))
    assert shown == "<p>see <code>a &lt;b&gt;</code>, a lone ` and <strong>`c`</strong></p>"


def test_nothing_to_list_is_no_block() -> None:
    assert make_list([]) == []
    assert plain(("a ", Code("b"), Strong("c"))) == "a bc"
