"""Markdown in small pieces: cells that cannot break a table, numbers as people read them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

MISSING = "-"
RATIO_NOTE = (
    "Times are medians. Speedups and changes are not their quotient: they compare the lower quartiles of "
    "processes that ran side by side, which other work on the machine disturbs least."
)
SEPARATE_RATIO_NOTE = (
    "Times are medians. Speedups and changes are not their quotient: they compare the lower quartiles of "
    "processes that ran at different times, so 3% is added to each side of an interval for what the machine "
    "did then."
)


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()) -> str:
    """A table; the columns named in `numbers` stand to the right."""
    right = set(numbers)
    rule = ["---:" if column in right else "---" for column in range(len(headers))]
    lines = [_line(headers), _line(rule)]
    lines += [_line([cell(text) for text in row]) for row in rows]
    return "\n".join(lines)


def cell(text: str) -> str:
    """Text that stays in its cell."""
    return " ".join(text.replace("|", "\\|").split()) or MISSING


def code(text: str) -> str:
    """Text as code, whatever backticks it holds; empty text stays empty."""
    if not text:
        return ""
    longest = max((len(ticks) for ticks in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {' '.join(line.split())}" for line in lines)


def plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def switch(sme2: bool | None, *, absent: bool) -> str:
    """Whether SME2 was left on; a CPU without it has nothing to switch."""
    if sme2 is None:
        return MISSING
    return "absent" if absent else "on" if sme2 else "off"


def ms(value: float | None) -> str:
    """Milliseconds with three figures that count."""
    if value is None:
        return MISSING
    size = abs(value)
    decimals = 1 if size >= 100 else 2 if size >= 10 else 3 if size >= 0.1 else 4
    return f"{value:.{decimals}f}"


def percent(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.1f}%"


def change(ratio: float | None) -> str:
    """How much time a speedup of `ratio` adds or takes away, in percent of the time before."""
    return MISSING if ratio is None or ratio <= 0 else f"{100 * (1 / ratio - 1):+.1f}%"


def size(count: float | None) -> str:
    """Bytes for people."""
    if count is None:
        return MISSING
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
