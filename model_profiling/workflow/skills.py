"""The kit's agent skills, and their installation for coding assistants.

The texts in `agent_skill_ml_profiling/` are written for a clone and are the only source. An installed skill
is a self-contained folder in the open Agent Skills format (agentskills.io): its links lead to other skills or
to references beside it, and what only a clone has is left out or named in words.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from model_profiling._version import __version__
from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError, ProfilingError, SetupError
from model_profiling.core.hints import DISTRIBUTION
from model_profiling.core.records import read_json_object
from model_profiling.core.safe_read import read_bytes

STANDARD = ".agents/skills"
"""A project's skills in the open standard; most assistants look there too."""
ASSISTANTS = {
    "claude": ".claude/skills",
    "codex": STANDARD,
    "cursor": ".cursor/skills",
    "copilot": ".github/skills",
}
"""The folder of a project in which each assistant looks for skills."""

RECORD = ".sme2prof-skills.json"
"""Lists what was written beside the skills, so that a later version recognises changed files."""
SKILL = "SKILL.md"
_FOLDER = "agent_skill_ml_profiling"
_REFERENCES = "references"
_ONLY_IN_A_CLONE = "## In a clone"
_MARK = re.compile(r"<!-- (not run|output): (.*) -->$")
_SAID = {"not run": "Only where it applies: {}.", "output": "On {} Linux without SME2:"}
_LINK = re.compile(r"\[([^\]]{1,300})\]\(([^)\s]+)\)")
_FRONT_MATTER = re.compile(r"---\n(.*?)\n---\n", re.DOTALL)
_COMPATIBILITY = f"Linux or macOS, Python 3.10 to 3.13, the command sme2prof of the package {DISTRIBUTION}"


@dataclass(frozen=True, slots=True)
class Skill:
    name: str
    description: str
    source: str
    """Its file in `agent_skill_ml_profiling/`."""
    files: Mapping[str, str]
    """Text by path in the skill's folder, including SKILL.md."""


@dataclass(frozen=True, slots=True)
class Installed:
    folder: Path
    skills: tuple[str, ...]
    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]


def _texts() -> Path:
    """In the package if built into a wheel (setup.py), otherwise in the clone."""
    package = Path(__file__).resolve().parents[1]
    built = package / "skills"
    return built if built.is_dir() else package.parent / _FOLDER


def list_skills() -> tuple[Skill, ...]:
    """Return every skill of the kit, in the order of the workflow."""
    sources = sorted(_texts().glob("[0-9][0-9]_*.md"))
    if not sources:
        raise SetupError(f"the skills' texts are not in {_texts()}", f"install {DISTRIBUTION} again")
    texts = {path.name: path.read_text(encoding="utf-8") for path in sources}
    headers = {name: _header(name, text) for name, text in texts.items()}
    names = {source: header["name"] for source, header in headers.items()}
    return tuple(
        Skill(
            headers[source]["name"],
            headers[source]["description"],
            source,
            _as_installed(source, text, headers[source], names),
        )
        for source, text in texts.items()
    )


def install_skills(folder: Path, *, force: bool = False) -> Installed:
    """Write every skill below `folder`; files that somebody changed are replaced only with `force`."""
    skills = list_skills()
    wanted = {f"{skill.name}/{path}": text for skill in skills for path, text in skill.files.items()}
    before = _recorded(folder)
    current = {path: _content(folder, path) for path in {*wanted, *before}}
    changed = [
        path
        for path, text in wanted.items()
        if current[path] not in (None, text) and _digest(current[path]) != before.get(path)
    ]
    if changed and not force:
        raise InputError(
            f"{', '.join(changed)} in {folder} was edited, so nothing was written",
            "save your changes elsewhere, or overwrite them with --force",
        )
    # Remove files that only an earlier version had, unless somebody changed them.
    gone = [
        path
        for path, digest in before.items()
        if path not in wanted and current[path] is not None and _digest(current[path]) == digest
    ]
    new = {path: text for path, text in wanted.items() if current[path] != text}
    record = {
        "schema_version": 1,
        "version": __version__,
        "files": {path: _digest(text) for path, text in sorted(wanted.items())},
    }
    if new or gone or before != record["files"]:
        _put(folder, {**new, RECORD: files.json_text(record)}, gone)
    return Installed(
        folder,
        tuple(skill.name for skill in skills),
        tuple(new),
        tuple(path for path in wanted if path not in new),
        tuple(gone),
    )


def _header(source: str, text: str) -> dict[str, str]:
    """Parse the front matter, which has one `key: value` per line."""
    found = _FRONT_MATTER.match(text)
    pairs = (line.partition(": ")[::2] for line in found[1].splitlines()) if found else ()
    header = {key: value.strip() for key, value in pairs}
    if not (header.get("name") and header.get("description")):
        raise FormatError(
            f"{source} has no name and description at its start", f"install {DISTRIBUTION} again"
        )
    return header


def _as_installed(
    source: str, text: str, header: Mapping[str, str], names: Mapping[str, str]
) -> dict[str, str]:
    """Return the files of one skill: its text, and every reference it links to."""
    body = _FRONT_MATTER.sub("", text, count=1)
    lines = [
        "---",
        f"name: {header['name']}",
        f"description: {json.dumps(header['description'], ensure_ascii=False)}",
        "license: Apache-2.0",
        f"compatibility: {json.dumps(_COMPATIBILITY)}",
        "metadata:",
        f"  kit-version: {json.dumps(__version__)}",
        "---",
        "",
    ]
    made, needed = _relinked(source, _without_clone(body), names)
    found = {SKILL: "\n".join(lines) + made}
    while needed:
        reference = needed.pop()
        text = (_texts() / reference).read_text(encoding="utf-8")
        found[reference], more = _relinked(reference, _without_clone(text), names)
        needed |= more - found.keys()
    return found


def _without_clone(text: str) -> str:
    """Remove sections about a clone's scripts, and turn marks for document tests into sentences."""
    kept, inside = [], False
    for line in text.splitlines():
        if line.startswith("## "):
            inside = line.startswith(_ONLY_IN_A_CLONE)
        if not inside:
            marked = _MARK.match(line)
            kept += [_SAID[marked[1]].format(marked[2]), ""] if marked else [line]
    return "\n".join(kept).rstrip() + "\n"


def _relinked(source: str, text: str, names: Mapping[str, str]) -> tuple[str, set[str]]:
    """Return `text` with links that work in its installed folder, and the references among them."""
    in_references = bool(posixpath.dirname(source))
    references: set[str] = set()

    def link(found: re.Match[str]) -> str:
        words, target = found[1], found[2]
        if "://" in target or target.startswith("#"):
            return found[0]
        path, mark, anchor = target.partition("#")
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if place in names:
            return f"[{words}]({'../' * (1 + in_references)}{names[place]}/{SKILL}{mark}{anchor})"
        if posixpath.dirname(place) == _REFERENCES:
            references.add(place)
            return f"[{words}]({posixpath.basename(place) if in_references else place}{mark}{anchor})"
        in_clone = posixpath.normpath(posixpath.join(_FOLDER, place))
        return f"{words} (`{in_clone}` in the kit's repository)"

    # Every second part is a code block, where brackets are not links.
    parts = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    made = [part if index % 2 else _LINK.sub(link, part) for index, part in enumerate(parts)]
    return "".join(made), references


def _digest(text: str | None) -> str:
    return hashlib.sha256((text or "").encode("utf-8", "surrogateescape")).hexdigest()


def _recorded(folder: Path) -> dict[str, str]:
    """Return path and digest of the files of an earlier install; ignore paths outside its folders."""
    try:
        listed = read_json_object(folder / RECORD, "").get("files")
    except (ProfilingError, OSError):
        return {}
    known = listed if isinstance(listed, dict) else {}
    return {path: str(digest) for path, digest in known.items() if _is_below(path)}


def _is_below(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return len(parts) > 1 and parts[0].startswith("sme2prof-") and ".." not in parts


def _content(folder: Path, path: str) -> str | None:
    file = folder / path
    files.real_folder(folder, file.parent)
    try:
        return read_bytes(file).decode("utf-8", "surrogateescape")
    except InputError as problem:
        if isinstance(problem.__cause__, FileNotFoundError):
            return None
        raise


def _put(folder: Path, new: Mapping[str, str], gone: Iterable[str]) -> None:
    """Write `new` in its order and remove `gone`; installing again completes what failed half-way."""
    with files.no_empty_folder(folder):
        for path, text in new.items():
            files.write_text(folder / path, text)
    for path in gone:
        (folder / path).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty
            for parent in list((folder / path).parents)[: len(PurePosixPath(path).parts) - 1]:
                parent.rmdir()
