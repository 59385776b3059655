"""Blocks as Markdown, on a terminal and to explore: nothing breaks out, no page is endless."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_series import made_page
from rendered_markdown import rendered

from model_profiling.core.formatting import printable
from model_profiling.report.document import (
    Answers,
    Chart,
    Code,
    Commands,
    Explorer,
    Folded,
    Heading,
    Item,
    Items,
    PageLink,
    Paragraph,
    Strong,
    make_list,
    make_table,
    plain,
    render_markdown,
    render_terminal,
)
from model_profiling.report.explorers import Texts, explore_operators, explore_timeline
from model_profiling.report.html import block_html


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
    inside = shown[len(fence.group()) : len(shown) - len(fence.group())]
    assert wanted in (inside, inside[1:-1])
    assert not wanted or fence.group() not in re.findall(r"`+", wanted)


@given(st.text(), st.text(min_size=1))
def test_a_link_leads_to_a_file_beside_the_page_whatever_it_is_called(text: str, file: str) -> None:
    table = make_table(("a",), [(PageLink(text, file),)])
    line = render_markdown([table]).splitlines()[-1]
    assert len(re.findall(r"(?<!\\)\|", line)) == 2
    (address,) = re.findall(r'<a href="([^"]*)">', block_html(table))
    assert address.startswith("./") and not set(address) & set("<>\"' \n")


PAGE = (
    Heading("Title", 1),
    Paragraph(("The ", Code("conv"), " is ", Strong("slow"), ".")),
    make_table(("name", "ms"), [(Code("a"), "1.5"), ("lon\nger", "10.25")], numbers=[1]),
    Items((Item("first", ("why", Item(Code("x"), ("deep",)))), Item("second")), numbered=True),
    Commands(("sme2prof report d",)),
    Folded("more", (Paragraph("hidden"), *make_list(["one"]))),
)


def test_every_block_as_markdown_and_on_a_terminal() -> None:
    assert render_markdown(PAGE) == (
        "# Title\n\n"
        "The `conv` is **slow**.\n\n"
        "| name | ms |\n| --- | ---: |\n| `a` | 1.5 |\n| lon ger | 10.25 |\n\n"
        "1. first\n   - why\n   - `x`\n      - deep\n2. second\n\n"
        "```\nsme2prof report d\n```\n\n"
        "<details><summary>more</summary>\n\nhidden\n\n- one\n\n</details>\n"
    )
    assert render_terminal(PAGE) == (
        "\nTitle\nThe conv is slow.\nname        ms\na          1.5\nlon ger  10.25\n"
        "1. first\n   - why\n   - x\n      - deep\n2. second\n"
        "  sme2prof report d\nmore\n  hidden\n  - one"
    )
    table = make_table(("a", ""), [("", Code(" "))])
    assert render_markdown([table]) == "| a |  |\n| --- | --- |\n| - | - |\n"
    assert make_list([]) == [] and plain(("a ", Code("b"), Strong("c"))) == "a bc"


def test_names_in_captions_and_sentences_are_no_more_than_text() -> None:
    hostile = Chart("a", "x](http://evil) [y] <b>`z`\\", "s", {})
    (line,) = render_markdown([hostile], "p").splitlines()
    assert line == r"![x\](http://evil) \[y\] \<b\>\`z\`\\. s](p/a.svg)"
    chart = Chart("c", "t]", "s", {})
    assert render_markdown([chart], "p_files") == "![t\\]. s](p_files/c.svg)\n"
    assert render_markdown([chart]) == "\n"
    address = render_markdown([Chart("a (1)<b>", "t", "s", {})], "p")
    assert address == "![t. s](p/a%20%281%29%3Cb%3E.svg)\n"
    assert render_markdown([chart], "my page_files").endswith("(my%20page_files/c.svg)\n")
    assert render_markdown([Paragraph("$x$ and $$")]) == "&#36;x&#36; and &#36;&#36;\n", "a formula"
    assert render_markdown(make_list(["[x] done"])) == "- \\[x] done\n", "a box to tick"
    harmless = "linux_sme2_on (1 thread): 1.02x [0.99, 1.05], p < 0.05, 3 > 2, a & b; toy_cnn@size=512"
    assert render_markdown([Paragraph(harmless)]) == harmless + "\n"
    shown = block_html(Paragraph(("see `a <b>`, a lone ` and ", Strong("`c`"))))
    assert shown == "<p>see <code>a &lt;b&gt;</code>, a lone ` and <strong>`c`</strong></p>"


MARKS = "<>[]()`*_~|#&;:/\\!@$+-=.{}\"'1x \n\t"
HOSTILE = (
    "<img src=x onerror=alert(1)>", "<script>x</script>", "\\<img src=x>", "\\\\<b>", "<!--", "<?php",
    "<![CDATA[", "</summary></details><b>", "</code>", "&lt;b&gt;", "&#60;b>", "&copy;",
    "[a](https://b)", "![a](b)", "[a][b]", "[a]: javascript:x", "[a](javascript:alert`1`)", "<javascript:x>",
    "[^1]: note", "<https://b>", "https://b", "www.example.org", "ftp://b", "me@example.org", "@everyone",
    "#1", "# h", "x #", "> q", "- i", "+ i", "1. i", "1) i", "- [ ] i", "[x] i", "---", "- - -", "***", "===",
    "````", "~~~", "~~s~~", "*e*", "__s__", "_e_", "a | b", "\\| b", "\\\\| b", "`a|b`", "`` ` ``", "`open",
    "line\n\n# two", "a  \nb", "\t\tcode", "    code",
)  # fmt: skip


def page_of(name: str) -> str:
    """A name in every place that blocks have for one."""
    told = [
        *(Heading(name), Paragraph(name), Paragraph((Code(name), " and ", Strong(name), ": ", name))),
        make_table((name, "b"), [(name, Code(name)), ((Strong(name), ": ", name), name)]),
        Items((Item(name, (name, Code(name))), Item((Strong(name), ": ", name))), numbered=True),
        *make_list([name, (name, "."), name]),
        *(Answers(((name, name),)), Commands((name, name)), Chart("c", name, name, {})),
        Folded(name, (Paragraph(name), make_table((name,), [(name,)]))),
    ]
    return render_markdown(told, "page_files")


def assert_only_text(name: str) -> None:
    page, harmless = rendered(page_of(name)), rendered(page_of("name"))
    assert page.shape == harmless.shape and not page.links
    if "`" not in name:  # what sentences quote so is code
        words = printable(" ".join(name.split()))
        assert page.text.count(words) >= harmless.text.count("name") - 2, "commands keep their lines"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_only_text_of_the_page(name: str) -> None:
    assert_only_text(name)


@given(st.text(MARKS, min_size=1).filter(str.strip))
def test_whatever_is_in_it(name: str) -> None:
    assert_only_text(name)


def test_a_name_is_not_endless_and_a_small_run_is_whole() -> None:
    texts = Texts()
    assert list(map(texts.number, ["a", "b", "a"])) == [0, 1, 0]
    texts.number("x" * 10_000)
    assert len(list(texts)[-1]) < 500
    data = made_page(40)
    blocks = [*explore_operators(data), *explore_timeline(data)]
    explorers = [block for block in blocks if isinstance(block, Explorer)]
    assert [each.kind for each in explorers] == ["operators", "timeline"]
    for each in explorers:
        for view in each.data["views"]:  # type: ignore[attr-defined]
            assert view["note"] == ""
    operators = explorers[0].data
    assert len(operators["views"][0]["rows"]) == 40  # type: ignore[index]
    assert [len(side) for side in operators["operators"]] == [40, 40]  # type: ignore[attr-defined]
