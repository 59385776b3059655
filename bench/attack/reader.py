"""How a reader of the campaign is described, and where its files come from.

A reader gets bytes and a folder of its own in memory, and uses what it read as the kit would. It may refuse
with one of the kit's errors; anything else is a find.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
sys.path.insert(0, str(ROOT / "tests"))

from attack.damage import Kind  # noqa: E402
from model_profiling.core.errors import InputError  # noqa: E402

RUN = DATA / "runs" / "emulated_sme2"


@dataclass(frozen=True, slots=True)
class Reader:
    """`share` is how many of each 10,000 inputs it gets; those that take long get few."""

    name: str
    kind: Kind
    share: int
    seeds: Callable[[], list[bytes]]
    read: Callable[[bytes, Path], object]


def found(*patterns: str) -> Callable[[], list[bytes]]:
    """The content of every file under tests/data that fits, each once."""

    def seeds() -> list[bytes]:
        paths = [path for pattern in patterns for path in sorted(DATA.glob(pattern)) if path.is_file()]
        whole = dict.fromkeys(path.read_bytes() for path in paths)
        assert whole, patterns
        return list(whole)

    return seeds


def at(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    """A reader of a file with that name."""

    def reading(data: bytes, folder: Path) -> object:
        path = folder / name
        path.write_bytes(data)
        return read(path)

    return reading


def beside(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    """A reader of the folder that holds a file with that name."""
    return at(name, lambda path: read(path.parent))


def named(folder: Path, *suffixes: str) -> list[bytes]:
    """Every file of a folder with its name before it, as `replaced` wants it."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix in suffixes)
    return [path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() for path in paths]


def replaced(data: bytes, whole: Path, folder: Path) -> Path:
    """A copy of the folder `whole` in which the file that `data` names is replaced; whatever came before is
    undone."""
    copy, undo = folder / whole.name, folder / "undo"
    if not copy.exists():
        shutil.copytree(whole, copy)
    if undo.exists():
        name = undo.read_text()
        shutil.copyfile(whole / name, copy / name)
    name, _, content = data.partition(b"\0")
    inside = name.decode("ascii", "replace")
    if inside.startswith("/") or ".." in inside or not (whole / inside).is_file():
        raise InputError("no file of the folder", "name one")  # damage met the name itself
    undo.write_text(inside)
    (copy / inside).write_bytes(content)
    return copy
