"""A run directory in which a file is of another kind, or has a name that means something to somebody.

Whatever lies there, each command answers or refuses in time, and nothing beside the run is written."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch
from urllib.parse import quote

from attack.reader import RUN, Reader
from model_profiling.config import names
from model_profiling.config.reading import load_config
from model_profiling.core.errors import InputError
from model_profiling.validation.validate import validate
from model_profiling.workflow.analyse import analyse, write_analysis
from model_profiling.workflow.compare import compare
from model_profiling.workflow.report import parse_tools, write_for_tools, write_report
from model_profiling.workflow.view import page_to_view

OUTSIDE = "outside"
"""A folder beside the run, at which hostile names and links aim."""


def _socket(path: Path) -> None:
    here = os.open(".", os.O_RDONLY)
    os.chdir(path.parent)  # a socket's path may have a hundred characters
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.fchdir(here)
        os.close(here)


def _device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        os.mkfifo(path)


def _sparse(path: Path) -> None:
    with path.open("wb") as made:
        made.truncate(1 << 40)


KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "socket": _socket,
    "device": _device,
    "folder": os.mkdir,
    "empty": Path.touch,
    "sparse": _sparse,
    "link to a file": lambda path: path.symlink_to(path.anchor + "etc/passwd"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to nothing": lambda path: path.symlink_to("nothing"),
}
RENAMED, ADDED = "renamed", "added"
"""A file of the run gets a hostile name, or a copy with such a name beside it."""

VERBS: dict[str, Callable[[Path], object]] = {
    "validate": lambda run: validate(run).as_text(),
    "analyze": lambda run: write_analysis(analyse(run)),
    "report": write_report,
    "tools": lambda run: write_for_tools(write_report(run)[1], parse_tools("perfetto,model-explorer")),
    "view": page_to_view,
    "list": lambda run: page_to_view(run.parent),
    "compare": lambda run: compare(run, RUN),
    "config": lambda run: load_config(run / names.CONFIG, files=False),
}

_WRITTEN = (
    *(names.REPORT, names.REPORT_PAGE, names.ANALYSIS, names.INDEX, names.SHARED, names.KERNEL_VIEW),
    *(names.WORK, names.FOR_TOOLS, f"report{names.PICTURES}", names.FAILED_LAUNCH),
    *(f"{names.FOR_TOOLS}/trace.json", "../.run.lock"),
    "../runs_index.html",
)  # fmt: skip


def _places() -> list[str]:
    held = [path.relative_to(RUN).as_posix() for path in sorted(RUN.rglob("*"))]
    return list(dict.fromkeys((*held, *_WRITTEN)))


def _seeds() -> list[bytes]:
    """Every kind, place and command once; damage mixes them and makes up names."""
    whole = [*KINDS, RENAMED, ADDED]
    longest = max(len(whole), len(_places()), len(VERBS))
    rows = (
        [some[at % len(some)] for some in (whole, _places(), [*VERBS], ["a name"])] for at in range(longest)
    )
    return ["\0".join(row).encode() for row in rows]


def _read(data: bytes, folder: Path) -> None:
    kind, place, verb, name = data.split(b"\0")
    home, run = folder / "home", folder / "home" / "run"
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(RUN, run)
    (home / OUTSIDE).mkdir()
    (home / OUTSIDE / "settings.json").write_text("{}")
    path = run / place.decode()
    aimed = name.replace(b"@", os.fsencode(home / OUTSIDE)).replace(
        b"%@", quote(str(home / OUTSIDE), "").encode()
    )
    try:
        _put(path, kind.decode(), os.fsdecode(aimed))
    except (OSError, ValueError) as problem:
        raise InputError(f"the system takes no such name: {problem}", "choose another") from problem
    before = _beside(home, verb.decode())
    try:
        # What draws pictures takes more addresses than a worker may have.
        with patch("model_profiling.workflow.report.draw_svg", lambda chart: f"<svg>{chart.name}</svg>"):
            VERBS[verb.decode()](run)
    finally:
        after = _beside(home, verb.decode())
    if after != before:
        raise AssertionError(f"{verb.decode()} changed what lies beside the run: {before} became {after}")


def _put(path: Path, kind: str, name: str) -> None:
    path.parent.mkdir(exist_ok=True)
    if kind in (RENAMED, ADDED):
        made = path.parent / name.replace("/", "%2F")
        if path.is_file() and kind == ADDED:
            shutil.copyfile(path, made)
        elif path.exists():
            path.rename(made)
        return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    KINDS[kind](path)


def _beside(home: Path, verb: str) -> dict[str, tuple[int, int, int]]:
    """The kind and size of all that lies in `home` and is not for the command to write, which is the run, its
    lock, and for a list of runs the page about them."""
    found = {}
    for path in home.rglob("*"):
        top = path.relative_to(home).parts[0]
        if top == OUTSIDE or (top not in ("run", ".run.lock") and verb != "list"):
            told = path.lstat()
            found[str(path.relative_to(home))] = (stat.S_IFMT(told.st_mode), told.st_size, told.st_mtime_ns)
    return found


OF_KINDS = (Reader("kinds", "placed", 200, _seeds, _read),)
