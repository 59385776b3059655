"""Names and messages come from files and machines of other people: a terminal obeys some characters, and a
reader is deceived by others. Before anything is shown, they are made visible, here and nowhere else.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

_COMMAND = re.compile(r"(?m)^(\s*):(?=:)|#(?=#\w*\[)")
_NOT_ASCII = re.compile(r"[^ -~\n\t]")
_LONGEST_WORD, _SHOWN = 1024, 100
# Controls, format characters (which turn the direction of writing, join or hide), halves of characters that
# no file can hold, and line ends that only some programs know.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def printable(text: str) -> str:
    """`text` with nothing in it but what can be seen, line ends and tabs. The rest is written as JSON writes
    it (`\\u001b`), so that JSON remains the same JSON."""
    return _NOT_ASCII.sub(_visible, text.replace("\r\n", "\n"))


def no_command(text: str) -> str:
    """`text` in which a CI service that reads what is printed (`::error`, `##[group]`, `##vso[`) finds no
    command: of such a word, the first character is written as JSON writes it. It does not matter who runs
    this here: what was printed may be a service's log elsewhere."""
    return _COMMAND.sub(lambda found: (found[1] or "") + f"\\u{ord(found[0][-1]):04x}", text)


def in_short(text: str) -> str:
    """A message as one line, of which no word, a path of thousands of letters say, hides the rest."""
    return " ".join(map(_short_word, text.split()))


def _short_word(word: str) -> str:
    return word if len(word) <= _LONGEST_WORD else f"{word[:_SHOWN]}...{word[-_SHOWN:]}"


def printable_data(data: object) -> object:
    """The same for every text in plain JSON."""
    match data:
        case str():
            return printable(data)
        case Mapping():
            return {printable(str(key)): printable_data(value) for key, value in data.items()}
        case list() | tuple():
            return [printable_data(value) for value in data]
    return data


def _visible(found: re.Match[str]) -> str:
    character = found[0]
    if unicodedata.category(character) not in _UNSEEN:
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))
