"""Words that depend on a number."""

from __future__ import annotations


def counted(count: object, word: str) -> str:
    """`1 round`, `2 rounds`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
