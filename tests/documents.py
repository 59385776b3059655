"""The documents as the tests see them: their fenced blocks, and a folder like a fresh clone to run those in.

A ```bash block is run as it stands, unless the line above it says `<!-- not run: REASON -->`; one whose
answer may be no carries `<!-- may answer no -->`. A ```text block straight after it is its output;
`<!-- output: aarch64 -->` above that keeps the comparison to such machines. A ```python block that opens
with `# name.py` is that file.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from working_tree import ROOT, copy_to, tracked

from model_profiling.core import process

SHIM = Path(__file__).with_name("documented_command.py")
_FENCE = re.compile(r"^( *)```(\w*)\s*$")
_MARK = re.compile(r"^ *<!-- *(.*?) *-->\s*$")


@dataclass(frozen=True)
class Block:
    """A fenced block, with what is said of it above."""

    page: str
    line: int
    language: str
    text: str
    mark: str = ""
    output: str = ""
    output_mark: str = ""

    @property
    def not_run(self) -> str:
        """Why the tests do not run it; empty if they do."""
        said, _, reason = self.mark.partition(":")
        return reason.strip() if said.strip() == "not run" else ""

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


@functools.cache
def pages() -> tuple[str, ...]:
    """Every document of the repository, from its root."""
    return tuple(sorted(n for n in tracked() if n.endswith(".md") and not n.startswith("tests/data/")))


def blocks_of(page: str) -> list[Block]:
    """The page's blocks in order; outputs are with the block that printed them."""
    found: list[Block] = []
    after_commands = False
    for block, between in _fenced(page):
        is_output = block.language == "text" and after_commands and not between
        if is_output:
            found[-1] = replace(found[-1], output=block.text, output_mark=block.mark)
        else:
            found.append(block)
        after_commands = not is_output and block.language == "bash"
    return found


def _fenced(page: str) -> Iterator[tuple[Block, str]]:
    """Each block, and whatever stands between the one before and it besides its mark."""
    between: list[str] = []
    inside: list[str] | None = None
    language, indent, began, mark = "", "", 0, ""
    for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if inside is not None:
            if fence and not fence[2]:
                yield Block(page, began, language, "\n".join(inside), mark), "".join(between).strip()
                inside, between, mark = None, [], ""
            else:
                inside.append(line.removeprefix(indent))
        elif fence:
            inside, language, indent, began = [], fence[2], fence[1], number
        elif found := _MARK.match(line):
            mark = found[1]
        elif line.strip():
            between.append(line)
            mark = ""


def described_machine() -> str:
    """What an output's mark may name: the machine whose output the documents show."""
    from model_profiling.runner.features import host_features

    machine = platform.machine().lower()
    arm = machine in ("aarch64", "arm64")
    return "aarch64" if arm and sys.platform == "linux" and "sme2" not in host_features() else machine


def masked(text: str) -> list[str]:
    """Lines without what differs between two runs and two machines: numbers, folders, widths of columns."""
    lines = (re.sub(r"(?<![\w-])/[\w./+~-]+", "PATH", line) for line in text.splitlines())
    lines = (re.sub(r"[0-9a-f]{8,}|[+-]?\d[\d.,:]*", "#", line) for line in lines)
    lines = (re.sub(r"[-─━]{3,}", "---", line) for line in lines)
    return [" ".join(line.split()) for line in lines]


def missing_line(shown: str, real: str) -> str:
    """The first line of `shown` that does not follow in `real`; empty if all do."""
    rest = iter(masked(real))
    for line, told in zip(masked(shown), shown.splitlines(), strict=True):
        if line and line not in ("...", "…") and not any(line == candidate for candidate in rest):
            return told
    return ""


class Clone:
    """A copy of the working tree in which blocks are run one after the other, as in one shell."""

    def __init__(
        self, folder: Path, warm: str, stand_ins: dict[str, Path] | None = None, *, cold: str = ""
    ) -> None:
        """Commands of `sme2prof` named in `cold` load all that they need themselves; others are forked off
        `warm`, which has loaded the most of it."""
        self._warm = warm
        self._cold = cold
        self.root = folder / "kit"
        self.here = self.root
        self._state = folder / "here"
        self._venv = folder / "venv"
        self._git = folder / "gitconfig"
        copy_to(self.root)
        make_environment(self._venv)
        (self.root / ".venv").symlink_to(self._venv)
        rules = (f'[url "{place}"]\n\tinsteadOf = {url}\n' for url, place in (stand_ins or {}).items())
        self._git.write_text('[protocol "file"]\n\tallow = always\n' + "".join(rules))

    def run(self, block: Block, *, timeout: float = 500) -> process.Completed:
        """Run a block; a later one begins in the folder this one ended in."""
        script = f"{_PRELUDE}\ntrap 'pwd > \"$DOCUMENTED_STATE\"' EXIT\n{block.text}\n"
        environment = {
            "PATH": f"{self._venv / 'bin'}:{os.environ['PATH']}",
            "DOCUMENTED_STATE": str(self._state),
            "DOCUMENTED_VENV": str(self._venv),
            "DOCUMENTED_ROOT": str(self.root),
            "DOCUMENTED_WARM": self._warm,
            "DOCUMENTED_COLD": self._cold,
            "GIT_CONFIG_GLOBAL": str(self._git),
            "COLUMNS": "120",
            "PYTHONPATH": "",
        }
        words = ["bash", "-e", "-o", "pipefail", "-c", script]
        done = process.run(words, timeout=timeout, cwd=self.here, env=environment)
        if self._state.exists():
            self.here = Path(self._state.read_text().strip())
        return done

    def write(self, block: Block) -> None:
        """Keep a block that shows a file as that file, in the folder the reader is in."""
        name = re.match(r"# ([\w/.-]+\.py)\n", block.text + "\n")
        if name:
            path = self.here / name[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text + "\n")


_PRELUDE = """
_set_up() { [ -e .venv ] || ln -s "$DOCUMENTED_VENV" .venv; }
make() { case "$1" in quickstart | test | test-all) _set_up ;; *) command make "$@" ;; esac; }
bash() { case "$1" in *setup_repo.sh) _set_up ;; *) command bash "$@" ;; esac; }
"""
"""Installing is what `make test` itself did just before: a clone has an environment once it is set up."""


def make_environment(folder: Path) -> None:
    """An environment whose commands are this one's, on the clone's package."""
    commands = folder / "bin"
    commands.mkdir(parents=True)
    scripts = Path(sys.executable).parent
    names = {"python", "python3", "sme2prof", *(path.name for path in scripts.glob("sme2prof*"))}
    for name in names:
        command = commands / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{SHIM}" {name} "$@"\n')
        command.chmod(0o755)
    (commands / "activate").write_text(f'export PATH="{commands}:$PATH"\n')
