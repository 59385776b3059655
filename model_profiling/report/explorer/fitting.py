"""How data is kept small: texts are written once and named by number, and what is too much is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from model_profiling.report.document import Text, plain
from model_profiling.report.html.json_text import json_text

OPERATORS_BYTES, MODULES_BYTES, TIMELINE_BYTES = 700_000, 200_000, 220_000
"""The most that each explorer may take of a page; a page of 2.5 MB also holds the script that draws charts,
the charts and the tables."""
_LONGEST = 400
"""Characters of a text that are kept; a name longer than that is nobody's."""

Data = Mapping[str, object]


class Texts:
    """Texts of a page's data, each once."""

    def __init__(self) -> None:
        self._place: dict[str, int] = {}

    def number(self, text: Text) -> int:
        words = plain(text)
        if len(words) > _LONGEST:
            words = f"{words[:_LONGEST]} ..."
        return self._place.setdefault(words, len(self._place))

    def numbers(self, texts: Iterable[Text]) -> list[int]:
        return [self.number(text) for text in texts]

    @property
    def all(self) -> list[str]:
        return list(self._place)


def fit(make: Callable[[int], Data], limits: Sequence[int], most: int) -> Data:
    """The first of `make(limit)` that takes no more than `most` bytes; the last where none does."""
    for limit in limits[:-1]:
        data = make(limit)
        if len(json_text(data)) <= most:
            return data
    return make(limits[-1])


def halves(count: int) -> list[int]:
    """`count`, half of it, and so on down to 1."""
    found = [max(count, 1)]
    while found[-1] > 1:
        found.append(found[-1] // 2)
    return found
