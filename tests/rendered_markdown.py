"""What becomes of a Markdown page, by a real renderer: CommonMark with GitHub's tables."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

from markdown_it import MarkdownIt

_RENDERER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
NO_WIDTH = "\u200b"
# What GitHub makes a link of though no markup says so; it looks at the finished words.
LINKED = re.compile(r"(?i)(https?|ftp)://|\bwww\.\w|[\w.+-]@[\w-]+\.\w|(?<!\w)@[a-z0-9]|#\d")


@dataclass
class Page(HTMLParser):
    """Elements with their attributes in order, and all words outside of code."""

    elements: list[tuple[str, tuple[tuple[str, str | None], ...]]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    everything: list[str] = field(default_factory=list)
    _code: int = 0

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(attrs)))
        self._code += tag == "code"

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag == "code"

    def handle_data(self, data: str) -> None:
        self.everything.append(data)
        if not self._code:
            self.words.append(data)

    def handle_comment(self, data: str) -> None:
        self.elements.append((f"!--{data}", ()))

    def handle_decl(self, decl: str) -> None:
        self.elements.append((f"!{decl}", ()))

    def unknown_decl(self, data: str) -> None:
        self.elements.append((f"![{data}", ()))

    def handle_pi(self, data: str) -> None:
        self.elements.append((f"?{data}", ()))

    @property
    def text(self) -> str:
        return "".join(self.everything).replace(NO_WIDTH, "")

    @property
    def links(self) -> list[str]:
        """What GitHub would make a link or a mention of."""
        return [found[0] for words in self.words for found in LINKED.finditer(words)]

    @property
    def shape(self) -> list[tuple[str, tuple[tuple[str, str | None], ...]]]:
        """Its elements without code, which a name may be shown as, and without what stands for pictures."""
        shown = [element for element in self.elements if element[0] != "code"]
        return [(tag, tuple(pair for pair in attributes if pair[0] != "alt")) for tag, attributes in shown]


def rendered(text: str) -> Page:
    return read_html(_RENDERER.render(text))


def read_html(text: str) -> Page:
    page = Page()
    page.feed(text)
    page.close()
    return page
