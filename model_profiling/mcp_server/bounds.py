"""Keeps answers small: a model reads all of what it is given, and pays for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Cuts:
    """Cuts lists to what may be shown, and remembers what that left out."""

    def __init__(self) -> None:
        self._said: list[str] = []

    def cut(self, items: Iterable[Item], most: int, what: str, more: str = "") -> list[Item]:
        """The first `most`; `more` is how to see the others."""
        every: Sequence[Item] = list(items)
        if len(every) > most:
            self._said.append(f"{most} of {len(every)} {what} are listed{f'; {more}' if more else ''}")
        return list(every[:most])

    @property
    def left_out(self) -> str | None:
        return ". ".join(dict.fromkeys(self._said)) or None


def rounded(value: object) -> object:
    """Six figures of every number with a fraction, however deep it lies."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(inside) for key, inside in value.items()}
    return [rounded(inside) for inside in value] if isinstance(value, list) else value
