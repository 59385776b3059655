"""The kit as others install it: built from a copy of the repository, put into environments of its own.

An environment holds what pip would install beside the wheel and nothing else; the packages are links to those
of the Python that runs the tests, so that nothing is downloaded.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from working_tree import copy_to

from model_profiling.core import process


@dataclass(frozen=True, slots=True)
class Built:
    """What `python -m build` leaves: the wheel is made of the sdist."""

    wheel: Path
    sdist: Path


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python with the wheel in it; commands run in an empty folder."""

    folder: Path
    work: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        (site,) = self.folder.glob("lib/python*/site-packages")
        return site

    def run(self, command: str, *words: object, timeout: float = 300) -> process.Completed:
        # Without the PYTHONPATH that a developer may have set: the wheel is what is tested.
        argv = [self.folder / "bin" / command, *(str(word) for word in words)]
        return process.run(
            argv, timeout=timeout, cwd=self.work, env={"PYTHONPATH": "", "PYTHONSAFEPATH": "1"}
        )


def build(folder: Path) -> Built:
    """Everything that is or would be committed is copied first: building leaves files beside its sources."""
    source = folder / "source"
    copy_to(source)
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", source]
    done = process.run(words, timeout=300)
    assert done.ok, done.tail(20)
    (wheel,), (sdist,) = (tuple((folder / "dist").glob(f"*{end}")) for end in (".whl", ".tar.gz"))
    return Built(wheel, sdist)


def install(wheel: Path, folder: Path, *extras: str) -> Environment:
    """An environment with the wheel, and with what it asks for in itself and in `extras`."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    made = Environment(folder, folder / "empty")
    made.work.mkdir()
    pip = [sys.executable, "-m", "pip", "--python", made.python, "install", "--quiet", "--no-compile"]
    done = process.run([*pip, "--no-deps", "--no-index", wheel], timeout=120)
    assert done.ok, done.tail(20)
    (own,) = importlib.metadata.distributions(name="sme2-profiling-kit", path=[str(made.site)])
    for name in _closure(own.requires or [], extras):
        _link(importlib.metadata.distribution(name), made.site)
    return made


def _closure(asked: Sequence[str], extras: Sequence[str]) -> set[str]:
    """The distributions behind requirements, and those that these require."""
    found: set[str] = set()
    waiting = [(Requirement(line), ("", *extras)) for line in asked]
    while waiting:
        requirement, wanted = waiting.pop()
        marker = requirement.marker
        name = requirement.name.lower().replace("_", "-")
        if name in found or (marker and not any(marker.evaluate({"extra": extra}) for extra in wanted)):
            continue
        found.add(name)
        theirs = importlib.metadata.requires(name) or []
        waiting += [(Requirement(line), ("", *requirement.extras)) for line in theirs]
    return found


def _link(distribution: importlib.metadata.Distribution, site: Path) -> None:
    """Link the folders and files that a distribution has put into site-packages."""
    home = Path(str(distribution.locate_file("")))
    tops = {path.parts[0] for path in distribution.files or ()} - {"..", "__pycache__"}
    for top in tops:
        if not (site / top).exists() and (home / top).exists():
            (site / top).symlink_to(home / top)
