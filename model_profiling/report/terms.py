"""Words of the trade, each explained once on a page, below the text that first uses it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from model_profiling.core.formatting import capitalized
from model_profiling.report import document as doc

_TERMS = (
    ("delegate", r"delegate[sd]?", "a part of the program that a backend such as XNNPACK runs"),
    ("lowering", r"lowering", "turning the PyTorch model into an ExecuTorch program"),
    ("portable kernels", r"portable", "ExecuTorch's own operators, which run on every CPU, on one thread"),
    (
        "framework overhead",
        r"framework overhead",
        "what ExecuTorch and the delegates do around their operators",
    ),
    ("unattributed", r"unattributed", "time of a delegate call in none of its operators"),
    ("IGEMM", r"IGEMM", "a convolution computed as a matrix product, through pointers to its input"),
)
_USED = {term: re.compile(rf"\b{words}\b", re.IGNORECASE) for term, words, _ in _TERMS}


def with_terms(blocks: Iterable[doc.Block], known: Iterable[str] = ()) -> Iterator[doc.Block]:
    """Yield the blocks, each followed by what the terms mean that it is the first to use; `known` are those
    that need no words. What is explained inside a folded block does not count outside it."""
    known = set(known)
    for block in blocks:
        if isinstance(block, doc.Folded):
            yield replace(block, blocks=tuple(with_terms(block.blocks, known)))
            continue
        yield block
        text = " ".join(map(doc.plain, _texts(block)))
        new = [
            (term, meaning) for term, _, meaning in _TERMS if term not in known and _USED[term].search(text)
        ]
        if new:
            known.update(term for term, _ in new)
            yield doc.Paragraph(tuple(part for term, meaning in new for part in _explained(term, meaning)))


def _explained(term: str, meaning: str) -> tuple[doc.Inline, ...]:
    return doc.Strong(capitalized(term)), f": {meaning}. "


def _texts(block: doc.Block) -> Iterator[doc.Text]:
    """Yield the texts of a block that are read without opening anything."""
    match block:
        case doc.Heading(text) | doc.Paragraph(text):
            yield text
        case doc.Answers(entries):
            yield from (answer for _, answer in entries)
        case doc.Items(entries):
            for entry in entries:
                yield entry.text
                yield from _texts(doc.Items(entry.entries))
        case doc.Table(rows=rows):
            yield from (cell for row in rows for cell in row)
        case doc.Explorer(instead=inside):
            yield from (text for within in inside for text in _texts(within))
