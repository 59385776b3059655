"""How long work tells the person watching where it is; the command line decides how that looks."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives stages by name and, where the amount of work is known, how much of it is done."""

    def stage(self, text: str) -> None:
        """A new stage of the work began."""

    def advance(self, done: int, total: int, text: str = "", left_s: float | None = None) -> None:
        """`done` of `total` steps of the current stage are finished; `left_s` is how long the rest takes,
        where that is known better than from the steps."""


class Silent:
    """Says nothing; the default for library use."""

    def stage(self, text: str) -> None:
        """Nothing is shown."""

    def advance(self, done: int, total: int, text: str = "", left_s: float | None = None) -> None:
        """Nothing is shown."""
