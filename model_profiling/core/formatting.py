"""Text for people: plurals, units, rounding, and removal of characters that a terminal obeys."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

MISSING = "-"


def span(first: str, last: str) -> str:
    """`1.2 to 3.4`, or just `1.2` if both look the same."""
    return first if first == last else f"{first} to {last}"


def as_code(what_next: str) -> str:
    """A command of the kit in backquotes; other words as they are."""
    return f"`{what_next}`" if what_next.split()[:1] == ["sme2prof"] else what_next


def plural(count: int, word: str) -> str:
    """`1 round`, `2 rounds`, `6 launches`."""
    return f"{count} {word if count == 1 else several(word)}"


def several(word: str) -> str:
    """`rounds`, `launches`, `series`."""
    if word.endswith("series"):
        return word
    return f"{word}es" if word.endswith(("ch", "sh", "s", "x")) else f"{word}s"


def capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def listing(words: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def counts(numbers: Mapping[str, int]) -> str:
    """`attention (12), masks (2)`."""
    return ", ".join(f"{name} ({count})" for name, count in numbers.items())


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """`did you mean 'export'?`, or empty if nothing known is close. Case and separators do not count; a
    known name may begin with the word, resemble it, or contain it."""
    names, letters = {_letters(name): name for name in choices}, _letters(word)
    containing = [name for name in names if len(letters) > 2 and letters in name]
    beginning = [name for name in containing if name.startswith(letters)]
    import difflib  # only for mistakes: it would take a part of `--help`

    near = beginning or difflib.get_close_matches(letters, names, n=1, cutoff=0.6) or containing
    return f"did you mean '{names[near[0]]}'?" if near else ""


def _letters(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.lower())


def with_threads(experiment: str, threads: int | None) -> str:
    """`mac_sme2_on, 2 threads`."""
    return f"{experiment}, {plural(threads, 'thread')}" if threads else experiment


def milliseconds(value: float | None) -> str:
    """With at least three significant digits."""
    return MISSING if value is None else f"{value:.{decimals_for(value)}f}"


def tokens_per_s(tokens: int | None, ms: float | None) -> float | None:
    return tokens * 1e3 / ms if tokens and ms else None


def short_rate(per_s: float | None) -> str:
    """With three significant digits, or all before the point."""
    return MISSING if per_s is None else f"{per_s:.3g}" if per_s < 100 else f"{per_s:,.0f}"


def decimals_for(value: float) -> int:
    """Return the decimals to show for milliseconds; at most six, as no clock is finer than a nanosecond."""
    size = abs(value)
    if 0 < size < 0.01:
        return min(2 - math.floor(math.log10(size)), 6)
    return 1 if size >= 100 else 2 if size >= 10 else 3 if size >= 0.1 else 4


def percent(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.1f}%"


def change(ratio: float | None) -> str:
    """Return the change in time that a speedup of `ratio` means, in percent of the time before."""
    return MISSING if ratio is None or ratio <= 0 else f"{100 * (1 / ratio - 1):+.1f}%"


def speedup(ratio: float | None) -> str:
    return MISSING if ratio is None else f"{ratio:.2f}x"


def size(count: float | None) -> str:
    if count is None:
        return MISSING
    if count < 1e3:
        return plural(round(count), "byte")
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def duration(seconds: float) -> str:
    """Return the two largest units: `45 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    whole = max(0, round(seconds))
    for large, small, name, rest_name in (
        (86_400, 3600, "d", "h"),
        (3600, 60, "h", "min"),
        (60, 1, "min", "s"),
    ):
        if whole >= large:
            count, rest = divmod(whole, large)
            return f"{count} {name} {rest // small} {rest_name}"
    return f"{whole} s"


def rounded_parts(parts: Sequence[float], whole: float, decimals: int) -> list[float]:
    """Round `parts` so that they add up to `whole` as shown with `decimals`. Each part is rounded down; the
    missing last digits go to those that lost most."""
    scale = 10**decimals
    exact = [part * scale for part in parts]
    down = [int(value // 1) for value in exact]
    # Round as printing does: in decimals, not after a product that may end on a half.
    missing = round(round(whole, decimals) * scale) - sum(down)
    by_loss = sorted(range(len(parts)), key=lambda place: down[place] - exact[place])
    step = 1 if missing >= 0 else -1
    for turn in range(abs(missing)):
        if by_loss:
            place = by_loss[turn % len(by_loss)] if step > 0 else by_loss[-1 - turn % len(by_loss)]
            down[place] += step
    return [value / scale for value in down]


# Names and messages come from other people's files and machines. Some characters control a terminal, others
# deceive a reader. Everything is made visible here before it is shown.

_COMMAND = re.compile(r"(?m)^([^\S\n]*):(?=:)|#(?=#\w*\[)")
_NOT_ASCII = re.compile(r"[^ -~\n\t]")
_LONGEST_WORD, _SHOWN = 1024, 100
# Controls, format characters (which change the writing direction, join or hide), lone surrogates, and line
# ends that only some programs know.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def printable(text: str) -> str:
    """Return `text` with invisible characters, other than line ends and tabs, escaped as in JSON (`\\u001b`),
    so that JSON stays the same JSON."""
    return _NOT_ASCII.sub(_visible, text.replace("\r\n", "\n"))


def no_command(text: str) -> str:
    """Return `text` with the first character of CI commands (`::error`, `##[group]`, `##vso[`) escaped as in
    JSON; always done, as any output may end up in a CI log."""
    return _COMMAND.sub(lambda match: (match[1] or "") + f"\\u{ord(match[0][-1]):04x}", text)


def in_short(text: str) -> str:
    """Return a message as one line, with very long words (such as paths) shortened."""
    return " ".join(
        word if len(word) <= _LONGEST_WORD else f"{word[:_SHOWN]}...{word[-_SHOWN:]}" for word in text.split()
    )


def printable_data(data: object) -> object:
    match data:
        case None | int() | float():  # most of a chart's data
            return data
        case str():
            return printable(data)
        case Mapping():
            return {printable(str(key)): printable_data(value) for key, value in data.items()}
        case list() | tuple():
            return [printable_data(value) for value in data]
    return data


def _visible(match: re.Match[str]) -> str:
    character = match[0]
    if unicodedata.category(character) not in _UNSEEN:
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))
