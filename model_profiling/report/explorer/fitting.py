"""How data is kept small: texts are written once and named by number, and what is too much is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from model_profiling.report.html.json_text import json_size

OPERATORS_BYTES, MODULES_BYTES, TIMELINE_BYTES = 800_000, 150_000, 180_000
"""The most that each explorer may take of a page; a page of 2.5 MB also holds the script that draws charts,
the charts and the tables."""
_LONGEST = 400
"""Characters of a text that are kept; a name longer than that is nobody's."""
_NEARLY = 0.95

Data = Mapping[str, object]


class Texts:
    """Texts of a page's data, each once."""

    def __init__(self) -> None:
        self._place: dict[str, int] = {}

    def number(self, text: str) -> int:
        if len(text) > _LONGEST:
            text = f"{text[:_LONGEST]} ..."
        return self._place.setdefault(text, len(self._place))

    def numbers(self, texts: Iterable[str]) -> list[int]:
        return [self.number(text) for text in texts]

    @property
    def all(self) -> list[str]:
        return list(self._place)


def fit(make: Callable[[int], Data], count: int, most: int) -> Data:
    """`make(limit)` with a limit up to `count` that takes no more than `most` bytes and nearly as many; the
    least there is where even that takes more."""
    best, low, high = make(1), 1, count
    whole = make(count)
    small, large = json_size(best), json_size(whole)
    if large <= most:
        return whole
    while high - low > 1 and small < _NEARLY * most:
        # Data grows about evenly, so that the next guess is nearly right.
        guess = low + int((high - low) * (_NEARLY * most + most - 2 * small) / 2 / (large - small))
        guess = min(max(guess, low + 1), high - 1)
        data = make(guess)
        taken = json_size(data)
        if taken <= most:
            best, low, small = data, guess, taken
        else:
            high, large = guess, taken
    return best
