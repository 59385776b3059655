"""The kit's agent skills, and their installation for coding assistants.

The texts in `agent_skill_ml_profiling/` are written for a clone and are the only source. An installed skill
is a self-contained folder in the open Agent Skills format (agentskills.io): its links lead to other skills or
to references beside it, and what only a clone has is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from model_profiling.core import files
from model_profiling.core.errors import InputError, SetupError
from model_profiling.core.hints import DISTRIBUTION
from model_profiling.core.safe_read import is_there, read_text

STANDARD = ".agents/skills"
"""A project's skills in the open standard; most assistants look there too."""
ASSISTANTS = {
    "claude": ".claude/skills",
    "codex": STANDARD,
    "cursor": ".cursor/skills",
    "copilot": ".github/skills",
}
"""The folder of a project in which each assistant looks for skills."""

SKILL = "SKILL.md"
_FOLDER = "agent_skill_ml_profiling"
_REFERENCES = "references"
_ONLY_IN_A_CLONE = "## In a clone"
_MARK = re.compile(r"<!-- (not run|output): (.*) -->$")
_SENTENCES = {"not run": "Only where it applies: {}.", "output": "On {} Linux without SME2:"}
_SKILL = re.compile(r"\]\((?:\.\./)?(\d\d_\w{1,60}\.md)")
"""A link to another skill; references lie beside a skill in both places."""
_FRONT_MATTER = re.compile(r"---\n(.*?)\n---\n", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Skill:
    name: str
    description: str
    source: str
    """Its file in `agent_skill_ml_profiling/`."""
    files: Mapping[str, str]
    """Text by path in the skill's folder, including SKILL.md."""


@dataclass(frozen=True, slots=True)
class InstalledSkills:
    folder: Path
    skills: tuple[str, ...]
    written: tuple[str, ...]
    unchanged: tuple[str, ...]


def _texts() -> Path:
    """In the package if built into a wheel (setup.py), otherwise in the clone."""
    package = Path(__file__).resolve().parents[1]
    built = package / "skills"
    return built if built.is_dir() else package.parent / _FOLDER


def list_skills() -> tuple[Skill, ...]:
    """Return every skill of the kit, in the order of the workflow; each has all references."""
    sources = sorted(_texts().glob("[0-9][0-9]_*.md"))
    if not sources:
        raise SetupError(f"the skills' texts are not in {_texts()}", f"install {DISTRIBUTION} again")
    texts = {path.name: path.read_text(encoding="utf-8") for path in sources}
    headers = {name: _header(text) for name, text in texts.items()}
    fronts = {
        source: f"---\nname: {header['name']}\n"
        f"description: {json.dumps(header['description'], ensure_ascii=False)}\n---\n"
        for source, header in headers.items()
    }
    places = {source: f"{header['name']}/{SKILL}" for source, header in headers.items()}
    references = {
        f"{_REFERENCES}/{path.name}": _as_installed(path.read_text(encoding="utf-8"), "../../", places)
        for path in sorted((_texts() / _REFERENCES).glob("*.md"))
    }
    return tuple(
        Skill(
            headers[source]["name"],
            headers[source]["description"],
            source,
            {SKILL: fronts[source] + _as_installed(text, "../", places), **references},
        )
        for source, text in texts.items()
    )


def install_skills(folder: Path, *, force: bool = False) -> InstalledSkills:
    """Write every skill below `folder`; files with another content are replaced only with `force`."""
    skills = list_skills()
    wanted = {f"{skill.name}/{path}": text for skill in skills for path, text in skill.files.items()}
    current: dict[str, str] = {}
    for path in wanted:
        files.real_folder(folder, (folder / path).parent)
        if is_there(folder / path):
            current[path] = read_text(folder / path)
    differing = [path for path, text in current.items() if text != wanted[path]]
    if differing and not force:
        raise InputError(
            f"{', '.join(differing)} in {folder} was edited or is of another version; nothing was written",
            "save your changes elsewhere, and overwrite with --force",
        )
    new = {path: text for path, text in wanted.items() if current.get(path) != text}
    for path, text in new.items():
        files.write_text(folder / path, text)
    unchanged = tuple(path for path in wanted if path not in new)
    return InstalledSkills(folder, tuple(skill.name for skill in skills), tuple(new), unchanged)


def _header(text: str) -> dict[str, str]:
    """Parse the front matter, which has one `key: value` per line."""
    front = _FRONT_MATTER.match(text)
    pairs = (line.partition(": ")[::2] for line in front[1].splitlines()) if front else ()
    return {key: value.strip() for key, value in pairs}


def _as_installed(text: str, up: str, places: Mapping[str, str]) -> str:
    """Return a text without sections about a clone's scripts, with marks for document tests as sentences, and
    with links to other skills where those are installed; `up` leads to the folder of all skills."""
    kept, inside = [], False
    for line in _FRONT_MATTER.sub("", text, count=1).splitlines():
        if line.startswith("## "):
            inside = line.startswith(_ONLY_IN_A_CLONE)
        if not inside:
            marked = _MARK.match(line)
            kept += [_SENTENCES[marked[1]].format(marked[2]), ""] if marked else [line]
    return _SKILL.sub(lambda link: f"]({up}{places[link[1]]}", "\n".join(kept).rstrip()) + "\n"
