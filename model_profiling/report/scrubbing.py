"""Replaces what identifies people, machines and places in text; the same thing gets the same placeholder.

Private names are learnt first (`learn`, from every file of a run), so that a name found in one file is known
in all. Folders and addresses are also recognised by their form. The result is checked afterwards: `leaks`
returns what was missed, and nothing with a leak may be handed out.
"""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Literal, TypeVar
from urllib.parse import quote, unquote

from model_profiling.core.formatting import plural
from model_profiling.report.document import Block, Heading, Paragraph, make_table

Kind = Literal[
    "folder", "user", "host", "device", "boot", "address", "kernel build", "model name", "source text",
    "notes",
]  # fmt: skip

# Words of reports and chart specifications, and names that thousands of machines share: they identify
# nobody. Inside a folder's name they are replaced with the folder.
_COMMON_WORDS = (
    "aarch64 address admin amd64 android arm arm64 artifacts build builder ci config cpu debian "
    "dev device docker ec2-user emulated emulator fedora folder forward gpu guest hardware "
    "home host kernel linux local localhost mac macos mark max method min mobile model nobody none off on "
    "operator phone pi program raspberrypi root run runner runneradmin runs shell sme2 source "
    "ssh system test tests traced ubuntu unknown user users vagrant work x86 x86_64 xnnpack "
)
_COMMON = frozenset(_COMMON_WORDS.split())
_SHORTEST = 3
_IN_BINARY = 5
"""Shorter names occur in any large binary file by chance."""
_SYSTEM = re.compile(
    r"/(?:proc|sys|dev|etc|bin|lib|system|vendor|usr/(?:bin|lib|share|include))(?:/|$)|/data/local/tmp(?:/|$)"
)
_PACKAGES = re.compile(
    r".*/site-packages/(?=(?:torch|torchvision|torchaudio|torchao|executorch|transformers|timm)/)"
)
_PROGRAMS = re.compile(
    r"(?:adb|cmake|executor_runner|ninja|python|sme2prof|sme2prof-runner|zig|(?:g|clang)\+\+|gcc|clang|qemu-aarch64)[\d.-]*"
)
_PART = r"[^\s/\\\"'`,;:|<>()\[\]{}*?=]+"
_PATH = re.compile(
    rf"(?:(?<![\w./~\\-])|(?<=file://))"
    rf"(?:(?:~[\w.-]*)?(?:/{_PART})+|~(?=/)|(?:[A-Za-z]:|\\\\{_PART})\\{_PART}(?:\\{_PART})*)/?"
)
_ENCODED = re.compile(rf"(?:%2[Ff](?:[\w.~+-]|%(?!2[Ff])[0-9A-Fa-f]{{2}})+){{2,}}|(?:\\/{_PART}){{2,}}")
"""A path as URLs and some JSON writers spell it: `%2Fhome%2Fann`, `\\/home\\/ann`."""
_QUOTED = re.compile(r"(?:(?<=\")|(?<='))(/[\w.][^\"'\n]* [^\"'\n]*)(?=[\"'])")
_HOME = re.compile(rf"(?:/home|/Users|\\Users)[/\\]({_PART})")
_BYTE = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_ADDRESS = re.compile(
    r"(?<![\w.+-])[\w.+-]+@[A-Za-z0-9][\w.-]*[A-Za-z0-9]"
    rf"|(?<![\w.-])(?<!kernel ){_BYTE}(?:\.{_BYTE}){{3}}(?::\d{{2,5}})?(?![\w.+-])"
    r"|(?<![\w:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![\w:])"
    r"|(?<![\w:])(?:[Ff][Ee][89ABab]|[Ff][CDcd][0-9A-Fa-f]|[23][0-9A-Fa-f]{2})[0-9A-Fa-f]"
    r":(?:[0-9A-Fa-f]{0,4}:){1,6}[0-9A-Fa-f]{1,4}(?![\w:])"
)
_RELEASE = re.compile(r"kernel (?:Linux |Darwin )?\d+(?:\.\d+)*[-+.~]?([\w.+~-]*)")
_KNOWN_RELEASE = re.compile(
    r"\d[\d.]*|g[0-9a-f]{6,}|ab\d+|android\d+|fc\d+|el\d[\w]*|arch\d*|rc\d+|k?pve|deb\d+\w*|bpo|cloud|generic|lowlatency"
    r"|amd64|arm64|aarch64|x86|64|v8|rpi|rpt|raspi|rt|lts|microsoft|standard|WSL\d?|aws|azure|gcp|gke|oracle|tegra|linuxkit"
    r"|maybe|dirty|\+*|",
    re.IGNORECASE,
)
_SERIAL = re.compile(r"\badb -s (\S+)|\bANDROID_SERIAL=(\S+)")
_SOURCE_MARKS = "(=["
_SHORTEST_SOURCE = 12
_PATH_KEYS = frozenset(
    {"model", "output_root", "config", "config_file", "etrecord", "source", "file", "runner_path", "run_dir"}
)
_WORD_LISTS = frozenset({"command_line", "extra_args", "files"})


@dataclass(frozen=True, slots=True)
class Replaced:
    """One thing that was removed; source text and notes have no placeholder."""

    kind: Kind
    original: str
    placeholder: str
    times: int = 0


class Scrubber:
    """Replaces private text; `keep` are words that look private but are not."""

    def __init__(self, keep: Iterable[str] = ()) -> None:
        self._keep = {word.lower() for word in keep}
        self._words: dict[str, tuple[Kind, str | None]] = {}
        """By lower-case word: its kind, and its placeholder if one was chosen."""
        self._folders: dict[str, str] = {}
        self._spaced: set[str] = set()
        self._source: set[str] = set()
        self._own: set[str] = set()
        self._numbers: Counter[Kind] = Counter()
        self._found: dict[tuple[Kind, str], Replaced] = {}
        self._pattern: re.Pattern[str] | None = None

    def add_word(self, kind: Kind, word: str | None, placeholder: str | None = None) -> None:
        """Replace `word` wherever it stands as a whole word."""
        word = (word or "").strip()
        known = word.lower()
        if len(word) < _SHORTEST or known in self._keep or (known in _COMMON and placeholder is None):
            return
        self._words.setdefault(known, (kind, placeholder))
        self._pattern = None

    def add_folder(self, folder: str, placeholder: str, *, own: bool = False) -> None:
        """Give a folder its own placeholder; the kit's `own` folders are not listed as replaced."""
        self._folders.setdefault(_trimmed(folder), placeholder)
        if own:
            self._own.add(_trimmed(folder))
        if " " in folder:
            self._spaced.add(_trimmed(folder))

    def add_host(self, address: str | None) -> None:
        """Replace each part of `user@host:port`, as ssh and adb name a machine."""
        user, _, rest = (address or "").rpartition("@")
        host, _, port = rest.rpartition(":")
        self.add_word("user", user)
        name = host if host and port.isdigit() else rest
        self.add_word("host", name)
        if not name.replace(".", "").isdigit():
            self.add_word("host", name.partition(".")[0])

    def learn(self, content: object, key: str = "") -> None:
        """Learn the private names in a file's content: JSON, or text as a string."""
        if isinstance(content, Mapping):
            for name, value in content.items():
                self.learn(value, str(name))
        elif isinstance(content, (list, tuple)):
            for value in content:
                self.learn(value, key)
        elif isinstance(content, str) and content:
            self._learn_text(content, key)

    def _learn_text(self, text: str, key: str) -> None:
        if "/" in text or "\\" in text:
            for name in set(_HOME.findall(text)):
                self.add_word("user", name)
            spaced = set(_QUOTED.findall(text)) if " " in text else set()
            if key in _PATH_KEYS | _WORD_LISTS and text.startswith(("/", "~")) and " " in text:
                spaced.add(text)
            self._spaced |= spaced | {_trimmed(str(PurePosixPath(path).parent)) for path in spaced}
        for one, other in _SERIAL.findall(text) if "adb" in text or "SERIAL" in text else ():
            self.add_word("device", (one or other).strip("'\""))
        if key == "boot_id":
            self.add_word("boot", text)
        for build in _RELEASE.findall(text) if "kernel " in text else ():
            if not all(_KNOWN_RELEASE.fullmatch(part) for part in re.split(r"[-+~_]", build)):
                self.add_word("kernel build", build)

    def text(self, text: str) -> str:
        for spaced in sorted(self._spaced, key=len, reverse=True):
            if spaced in text:
                text = text.replace(spaced, self._path(spaced))
        if "%2" in text or "\\/" in text:
            text = _ENCODED.sub(lambda found: self._path(_decoded(found[0])), text)
        if "/" in text or "\\" in text or "~" in text:
            text = _PATH.sub(lambda found: self._path(found[0]), text)
        if self._words:
            self._pattern = self._pattern or _as_pattern(self._words)
            text = self._pattern.sub(lambda found: self._word(found[0]), text)
        if "@" in text or "." in text or ":" in text:
            text = _ADDRESS.sub(lambda found: self._placeholder("address", found[0]), text)
        return text

    def value(self, content: object) -> object:
        """Return JSON with placeholders, without the text of source lines."""
        if isinstance(content, str):
            return self.text(content)
        if isinstance(content, (list, tuple)):
            return [self.value(entry) for entry in content]
        if not isinstance(content, Mapping):
            return content
        source = "debug_handle" in content or "module_path" in content
        cleaned: dict[str, object] = {}
        for key, value in content.items():
            if key == "excerpts" or (source and key in ("code", "source_code")):
                cleaned[self._key(key)] = self._without_source(value)
            elif key == "notes" and "experiments" in content:
                # Users' notes may name anything, and nothing reads them.
                cleaned[self._key(key)] = ""
                if value:
                    self._count("notes", "notes", "")
            else:
                cleaned[self._key(key)] = self.value(value)
        return cleaned

    def source_line(self, line: str) -> str:
        """Record a line of source text and return an empty string."""
        stripped = line.strip()
        if stripped:
            self._count("source text", "lines of source text", "")
        if len(stripped) >= _SHORTEST_SOURCE and any(mark in stripped for mark in _SOURCE_MARKS):
            self._source.add(stripped)
        return ""

    def _without_source(self, value: object) -> object:
        if isinstance(value, str):
            return self.source_line(value)
        if isinstance(value, Mapping):
            for lines in value.values():
                for line in lines if isinstance(lines, (list, tuple)) else ():
                    self.source_line(str(line))
            return {}
        return value

    def _key(self, key: object) -> str:
        # Field names belong to the format; other keys, such as paths, are data.
        name = str(key)
        return name if re.fullmatch(r"\w+", name) else self.text(name)

    def _word(self, found: str) -> str:
        kind, chosen = self._words[found.lower()]
        return self._placeholder(kind, found.lower(), chosen, shown=found)

    def _path(self, text: str) -> str:
        """Keep the name of a file but nothing of a folder; the system's own files are public."""
        path = text.rstrip("/\\.") or text
        ending = text[len(path) :]
        if _SYSTEM.match(path) or len(path) < 2:
            return text
        if public := _PACKAGES.match(path):
            self._count("folder", path[: public.end() - 1], "")
            return path[public.end() - len("site-packages/") :] + ending
        for known, called in self._folders.items():
            if path == known or path.startswith(f"{known}/"):
                self._placeholder("folder", known, called)
                return called + path[len(known) :] + ending
        cut = max(path.rfind("/"), path.rfind("\\"))
        folder, name = path[:cut], path[cut + 1 :]
        if folder and ("." in name.lstrip(".") or _PROGRAMS.fullmatch(name)):
            path, ending = folder, f"/{name}{ending}"
        return self._placeholder("folder", path, self._folders.get(_trimmed(path))) + ending

    def _placeholder(self, kind: Kind, key: str, chosen: str | None = None, shown: str = "") -> str:
        if (kind, key) not in self._found:
            self._numbers[kind] += chosen is None
            name = chosen or f"{kind.replace(' ', '-')}-{self._numbers[kind]}"
            self._found[kind, key] = Replaced(kind, shown or key, name)
        return self._count(kind, key, "")

    def _count(self, kind: Kind, key: str, placeholder: str) -> str:
        known = self._found.get((kind, key)) or Replaced(kind, key, placeholder)
        self._found[kind, key] = replace(known, times=known.times + 1)
        return known.placeholder

    @property
    def replaced(self) -> tuple[Replaced, ...]:
        return tuple(found for (_, key), found in self._found.items() if key not in self._own)

    def leaks(self, content: str, *, binary: bool = False) -> Iterator[Replaced]:
        """Yield the private things that `content` still contains."""
        shortest = _IN_BINARY if binary else _SHORTEST
        words = {word: known for word, known in self._words.items() if len(word) >= shortest}
        if words and (found := _as_pattern(words).search(content)):
            kind, chosen = words[found[0].lower()]
            if found[0] != chosen:
                yield Replaced(kind, found[0], chosen or "")
        for name in _HOME.findall(content) if binary else ():
            if name.lower() not in _COMMON | self._keep:
                yield Replaced("user", name, "")
        for known in self._found.values():
            literal = known.kind == "address" or (
                known.kind == "folder" and len(known.original) > len("/home/")
            )
            if (
                literal
                and known.original != known.placeholder
                and any(form in content for form in _forms(known.original))
            ):
                yield known
        for line in self._source:
            if any(form in content for form in _forms(line)):
                yield Replaced("source text", line, "")


def _as_pattern(words: Iterable[str]) -> re.Pattern[str]:
    longest = sorted(words, key=len, reverse=True)
    # The end of an escape is not part of the word after it: `%2Fann`, `\\nann`, `\\u003cann`.
    begin = r"(?:(?<![A-Za-z0-9])|(?<=%[0-9A-F]{2})|(?<=\\[bfnrt])|(?<=\\u[0-9A-F]{4}))"
    return re.compile(rf"{begin}(?:{'|'.join(map(re.escape, longest))})(?![A-Za-z0-9])", re.IGNORECASE)


def _decoded(path: str) -> str:
    return path.replace("\\/", "/") if path.startswith("\\") else unquote(path)


def _trimmed(folder: str) -> str:
    return folder.rstrip("/\\") or folder


def _forms(text: str) -> set[str]:
    """Return `text` in every spelling that pages and files may use."""
    in_json = {json.dumps(text, ensure_ascii=ascii)[1:-1] for ascii in (True, False)}
    in_script = {form.replace("<", "\\u003c").replace("&", "\\u0026") for form in in_json}
    return {
        text,
        html.escape(text),
        html.escape(text, quote=False),
        quote(text, errors="backslashreplace"),
        quote(text, safe="", errors="backslashreplace"),
        *in_json,
        *in_script,
    }


# A page fit to send, and the list of what was replaced in it.

Shown = TypeVar("Shown")
_MEANING: dict[Kind, str] = {
    "folder": "a folder",
    "user": "a user's name",
    "host": "a machine's name",
    "device": "a device's serial",
    "boot": "the mark of one start of a device",
    "address": "an address",
    "kernel build": "the name of a kernel's build",
    "model name": "the model's name",
}


def scrub_block(part: Shown, scrubber: Scrubber) -> Shown:
    """Replace private text in a block or in anything inside one."""
    found: Any = part
    if isinstance(part, str):
        found = scrubber.text(part)
    elif isinstance(part, (tuple, list)):
        found = type(part)(scrub_block(entry, scrubber) for entry in part)
    elif isinstance(part, Mapping):
        found = {key: scrub_block(value, scrubber) for key, value in part.items()}
    elif is_dataclass(part) and not isinstance(part, type):
        found = replace(
            part, **{each.name: scrub_block(getattr(part, each.name), scrubber) for each in fields(part)}
        )
    return found  # type: ignore[no-any-return]


def replacement_rows(replaced: Sequence[Replaced]) -> list[tuple[str, str, str]]:
    """Return each placeholder, its meaning and its count; never the originals."""
    counts: Counter[tuple[str, Kind]] = Counter()
    for found in replaced:
        if found.placeholder:
            counts[found.placeholder, found.kind] += found.times
    return [(name, _MEANING[kind], str(times)) for (name, kind), times in counts.items()]


def left_out_lines(replaced: Sequence[Replaced]) -> list[str]:
    """Describe what was removed without a placeholder."""
    lines = sum(found.times for found in replaced if found.kind == "source text")
    notes = any(found.kind == "notes" for found in replaced)
    return [
        *([f"{plural(lines, 'line')} of source text"] if lines else []),
        *(["the config's notes"] if notes else []),
    ]


def replacement_section(replaced: Sequence[Replaced]) -> list[Block]:
    rows = replacement_rows(replaced)
    lines = left_out_lines(replaced)
    blocks: list[Block] = [
        Heading("What was replaced in this copy"),
        Paragraph(
            "This copy was made to be sent. Folders, names of people and machines, serials and source text "
            "were taken out; the same thing has the same placeholder everywhere. Figures are unchanged."
        ),
    ]
    if rows:
        blocks.append(make_table(("placeholder", "stands for", "times"), rows, numbers=(2,)))
    blocks += [Paragraph(f"Left out: {line}.") for line in lines]
    if not rows and not lines:
        blocks.append(Paragraph("Nothing had to be replaced."))
    return blocks
