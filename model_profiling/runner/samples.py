"""What the runner's threads were seen doing: the file `--sample` writes, and the record that is made of it by
naming the functions while the files they are in are still there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from model_profiling.core.errors import FormatError, InputError, RunError
from model_profiling.core.records import parse_record, read_json_object
from model_profiling.core.safe_read import is_regular
from model_profiling.runner.code_files import read_functions
from model_profiling.runner.functions import CodeFunctions

_AGAIN = "run it again"
_COLUMNS = ("call", "operator", "thread", "file", "offset")
_FEWEST = {"call": -1, "operator": -1, "thread": 0, "file": -1, "offset": 0}


@dataclass(frozen=True, slots=True)
class SampledFile:
    """A file with code in which a thread was seen; `name` is without its folder."""

    name: str
    build_id: str | None = None
    problem: str = ""
    """Why its functions are not told apart; empty where they are."""


@dataclass(frozen=True, slots=True)
class SampledFunction:
    """A function in which a thread was seen. `file` is a place in `Samples.files`, -1 outside of all; `start`
    is None where the address lies in no function that the file tells of."""

    file: int
    start: int | None = None
    name: str = ""
    multiplies: bool | None = None
    """Whether its instructions multiply and add as a matrix kernel's do; None where they were not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """What was seen, counted. A row of `seen` is a delegate's call in an inference, an operator of it (both
    from 0, -1 where none was running), a thread (0 is the one that executes the method), a place in
    `functions`, and how often."""

    schema_version: Literal[1] = 1
    hz: int
    executions: int
    threads: int
    taken: int
    """More than are in `seen` where memory for them ended."""
    operators_of_calls: tuple[int, ...] = ()
    """How many operators each call of a delegate in an inference has."""
    files: tuple[SampledFile, ...] = ()
    functions: tuple[SampledFunction, ...] = ()
    seen: tuple[tuple[int, int, int, int, int], ...] = ()
    unavailable: str | None = None
    """Why nothing was seen."""
    unknown_operators: str | None = None
    """Why it is not known for which operator threads worked."""

    @property
    def kept(self) -> int:
        return sum(row[4] for row in self.seen)


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    build_id: str | None


def read_samples(path: Path, folders: Sequence[Path] = ()) -> Samples:
    """What the runner wrote to `path`, with functions named by the files themselves. One that is not where
    the runner found it is looked for in `folders` by its name; only the very same build of it is believed."""
    try:
        content = read_json_object(path, _AGAIN)
        loaded = parse_record(tuple[_File, ...], content.get("files"), f"{path}: files", _AGAIN)
        head = parse_record(Samples, {**content, **dict.fromkeys(_COLUMNS), "files": []}, str(path), _AGAIN)
        columns = {name: _column(content.get(name), name, path) for name in _COLUMNS}
    except (InputError, FormatError) as problem:
        raise RunError(f"the runner's samples cannot be read: {problem.problem}", _AGAIN) from problem
    if len({len(column) for column in columns.values()}) != 1 or (columns["file"] >= len(loaded)).any():
        raise RunError(f"the runner's samples cannot be read: {path}: columns do not fit", _AGAIN)
    return _named(head, loaded, columns, folders)


def _column(values: object, name: str, path: Path) -> NDArray[np.int64]:
    try:
        column = np.array(values if isinstance(values, list) else None, np.int64)
    except (ValueError, TypeError, OverflowError) as problem:
        raise FormatError(f"{path}: {name} holds something else than whole numbers", _AGAIN) from problem
    if column.ndim != 1 or (column < _FEWEST[name]).any():
        raise FormatError(f"{path}: {name} holds something else than whole numbers", _AGAIN)
    return column


def _named(
    head: Samples, loaded: Sequence[_File], columns: dict[str, NDArray[np.int64]], folders: Sequence[Path]
) -> Samples:
    opened: dict[int, tuple[SampledFile, CodeFunctions | None]] = {}
    for number in np.unique(columns["file"]).tolist():
        if number >= 0:
            opened[number] = _open(loaded[number], folders)
    kept = {number: place for place, number in enumerate(opened)}
    places = np.stack([columns["file"], columns["offset"]], axis=1)
    distinct, which = np.unique(places, axis=0, return_inverse=True)
    functions: dict[SampledFunction, int] = {}
    function_of = np.zeros(len(distinct), np.int64)
    for row, (number, offset) in enumerate(distinct.tolist()):
        code = opened[number][1] if number in opened else None
        function = _function(kept.get(number, -1), offset, code)
        function_of[row] = functions.setdefault(function, len(functions))
    rows = np.stack(
        [columns["call"], columns["operator"], columns["thread"], function_of[which.reshape(-1)]], axis=1
    )
    counted, times = np.unique(rows, axis=0, return_counts=True)
    seen = ((*row, count) for row, count in zip(counted.tolist(), times.tolist(), strict=True))
    return replace(
        head,
        files=tuple(file for file, _ in opened.values()),
        functions=tuple(functions),
        seen=tuple(seen),
    )


def _open(file: _File, folders: Sequence[Path]) -> tuple[SampledFile, CodeFunctions | None]:
    """The file that the runner had loaded, or why it is not to be had here."""
    name = file.path.rpartition("/")[2] or file.path
    problem = "it is not on this machine"
    for path in dict.fromkeys([Path(file.path), *(folder / name for folder in folders)]):
        if not name or not is_regular(path, follow=True):
            continue
        try:
            code = read_functions(path)
        except FormatError as damaged:
            problem = damaged.problem
            continue
        if file.build_id and code.build_id == file.build_id:
            return SampledFile(name, file.build_id), code
        here = "another build of it is on this machine"
        problem = here if file.build_id else "it has no build id that would tell which build ran"
    return SampledFile(name, file.build_id, problem), None


def _function(file: int, offset: int, code: CodeFunctions | None) -> SampledFunction:
    found = code.holding(offset) if code else None
    if code is None or found is None:
        return SampledFunction(file)
    return SampledFunction(file, found.start, found.name, code.multiplies(found))
