"""Words as Markdown: what came from a file is text there and nothing else.

A name never becomes an element, an attribute, a link, a picture, a heading, a list or a mention, on GitHub
neither. Words that mean nothing to Markdown stay as they are, so that a page reads well unrendered too.
"""

from __future__ import annotations

import html
import re
import string
from urllib.parse import quote

# A space without a width: it parts what GitHub, which looks at the finished page, would make a link of.
_NO_WIDTH = "&#8203;"
# Addresses, numbers of issues, people, mail: `model@size=8` is none of them.
_LINKED = r"(?P<linked>:(?=//)|\bwww\.|#(?=\d)|(?<!\w)@(?=[A-Za-z0-9])|(?<=[\w.+-])@(?=[\w-]+\.))"
_MEANT = re.compile(
    r"(?P<marked>[\\*~`]|\](?=[(\[:])|(?<![^\W_])_|_(?![^\W_]))"  # a_b is no emphasis
    r"|(?P<element><(?=[A-Za-z/!?]))"
    r"|(?P<entity>&(?=#?[A-Za-z0-9]+;))"
    r"|(?P<formula>\$)"
    rf"|{_LINKED}",
    re.IGNORECASE,
)
_LINK = re.compile(_LINKED, re.IGNORECASE)
_BLOCK = re.compile(r"[-+](?=\s|$)|-(?=[-\s]*$)|#{1,6}(?=\s|$)|>|\[(?=[ xX]\])|\d{1,9}(?=[.)](?:\s|$))")
_END_OF_HEADING = re.compile(r"(?<!\S)(?=#+$)")
_IN_CAPTION = re.compile(r"([\\\[\]<>`*~&])")


def only_text(text: str) -> str:
    """Words inside of a line."""
    return _MEANT.sub(_harmless, text)


def _harmless(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "marked":
            return f"\\{found[0]}"
        case "element":
            return "&lt;"
        case "entity":
            return "&amp;"
        case "formula":
            return "&#36;"
    return f"{found[0]}{_NO_WIDTH}"


def line_start(text: str) -> str:
    """A line of Markdown, so that it begins no list, heading or quotation and ends no heading."""
    begins = _BLOCK.match(text)
    if begins:
        # The point behind a number is what makes it one of a list's.
        text = f"{begins[0]}\\{text[begins.end() :]}" if begins[0].isdecimal() else f"\\{text}"
    return _END_OF_HEADING.sub(lambda _: "\\", text, count=1)


def strong(text: str, before: str = "", after: str = "") -> str:
    """Text that stands out between two others: stars between a mark and a letter would only be stars."""
    opening = "" if text[:1].isalnum() or _parts(before[-1:]) else _NO_WIDTH
    closing = "" if text[-1:].isalnum() or _parts(after[:1]) else _NO_WIDTH
    return f"{opening}**{only_text(text)}**{closing}" if text else ""


def _parts(character: str) -> bool:
    """Whether stars beside it open or close whatever is on their other side."""
    return not character.strip() or character in string.punctuation


def html_text(text: str) -> str:
    """Words inside of an HTML element of the page."""
    return _LINK.sub(lambda found: f"{found[0]}{_NO_WIDTH}", html.escape(text))


def code(text: str) -> str:
    """Text as code, whatever backticks it holds."""
    if not text:
        return ""
    ticks = fence(text, 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def fence(text: str, least: int = 3) -> str:
    """Backticks that `text` cannot end."""
    longest = max((len(ticks) for ticks in re.findall(r"`+", text)), default=0)
    return "`" * max(least, longest + 1)


def link(text: str, file: str) -> str:
    """Another page; a name in its words must not end it."""
    return picture(text, file).removeprefix("!")


def picture(caption: str, file: str) -> str:
    """A picture that lies beside the page; a name in what stands for it must not end it."""
    words = _IN_CAPTION.sub(r"\\\1", caption)
    address = quote(file, errors="backslashreplace")
    return f"![{words}]({address})"
