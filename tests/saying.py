"""What a text must say, whatever its wording."""

from __future__ import annotations


def says(text: str, *tokens: str) -> None:
    """Assert that `text` has every one of `tokens`: names, numbers, paths, commands."""
    missing = [token for token in tokens if token not in text]
    assert not missing, f"{missing} not in: {text}"
