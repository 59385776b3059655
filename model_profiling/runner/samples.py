"""Where the runner's threads were seen: reads the file of `--sample`, and names the functions while the files
with their code are still there."""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_profiling.core.errors import FormatError, InputError, RunError, system_reason
from model_profiling.core.records import parse_record, read_json_object
from model_profiling.core.safe_read import is_regular

if TYPE_CHECKING:
    import lief  # which reports do without

_AGAIN = "run it again"
_COLUMNS = ("call", "operator", "thread", "file", "offset")
_FEWEST = {"call": -1, "operator": -1, "thread": 0, "file": -1, "offset": 0}


@dataclass(frozen=True, slots=True)
class SampledFile:
    """A file with code in which a thread was seen; `name` is without its folder."""

    name: str
    build_id: str | None = None
    problem: str = ""
    """Why its functions are unknown; empty if they are known."""


@dataclass(frozen=True, slots=True)
class SampledFunction:
    """A function in which a thread was seen. `file` is an index into `Samples.files`, or -1; `start` is None
    if the address is in no known function."""

    file: int
    start: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Counted samples. A row of `seen` is: a delegate's call in an inference, an operator of that call (both
    from 0; -1 if none ran), a thread (0 executes the method), an index into `functions`, and a count."""

    schema_version: Literal[1] = 1
    hz: int
    executions: int
    threads: int
    taken: int
    """More than are in `seen` if the memory for them ran out."""
    operators_of_calls: tuple[int, ...] = ()
    """How many operators each delegate call of an inference has."""
    files: tuple[SampledFile, ...] = ()
    functions: tuple[SampledFunction, ...] = ()
    seen: tuple[tuple[int, int, int, int, int], ...] = ()
    unavailable: str | None = None
    """Why there are no samples."""
    unknown_operators: str | None = None
    """Why the operators that threads worked for are unknown."""

    @property
    def kept(self) -> int:
        return sum(row[4] for row in self.seen)


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    build_id: str | None


def read_samples(path: Path, folders: Sequence[Path] = ()) -> Samples:
    """Read the samples in `path`, with functions named from the files with their code. A file that is not
    where the runner found it is searched by name in `folders`; only the same build is accepted."""
    try:
        content = read_json_object(path, _AGAIN)
        loaded = parse_record(tuple[_File, ...], content.get("files"), f"{path}: files", _AGAIN)
        head = parse_record(Samples, {**content, **dict.fromkeys(_COLUMNS), "files": []}, str(path), _AGAIN)
        columns = {name: _column(content.get(name), name, path) for name in _COLUMNS}
    except (InputError, FormatError) as problem:
        raise RunError(f"the runner's samples cannot be read: {problem.problem}", _AGAIN) from problem
    if len({len(column) for column in columns.values()}) != 1 or (columns["file"] >= len(loaded)).any():
        raise RunError(
            f"the runner's samples cannot be read: {path}: its columns have different lengths", _AGAIN
        )
    return _named(head, loaded, columns, folders)


def _column(values: object, name: str, path: Path) -> NDArray[np.int64]:
    try:
        column = np.array(values if isinstance(values, list) else None, np.int64)
    except (ValueError, TypeError, OverflowError) as problem:
        raise FormatError(f"{path}: {name} has entries that are not whole numbers", _AGAIN) from problem
    if column.ndim != 1 or (column < _FEWEST[name]).any():
        raise FormatError(f"{path}: {name} has entries that are not whole numbers", _AGAIN)
    return column


def _named(
    head: Samples, loaded: Sequence[_File], columns: dict[str, NDArray[np.int64]], folders: Sequence[Path]
) -> Samples:
    opened: dict[int, tuple[SampledFile, CodeFunctions | None]] = {}
    for number in np.unique(columns["file"]).tolist():
        if number >= 0:
            opened[number] = _open(loaded[number], folders)
    index_of = {number: place for place, number in enumerate(opened)}
    places = np.stack([columns["file"], columns["offset"]], axis=1)
    distinct, which = np.unique(places, axis=0, return_inverse=True)
    functions: dict[SampledFunction, int] = {}
    function_of = np.zeros(len(distinct), np.int64)
    for row, (number, offset) in enumerate(distinct.tolist()):
        code = opened[number][1] if number in opened else None
        holder, function = code.holding(offset) if code else None, SampledFunction(index_of.get(number, -1))
        if holder:
            function = SampledFunction(function.file, holder.start, holder.name)
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
    """Return the file that the runner had loaded, or why it is not available here."""
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
        problem = here if file.build_id else "it has no build id, so it is not known which build ran"
    return SampledFile(name, file.build_id, problem), None


# The functions of a program or library, by address. An address gets a name only from a symbol whose range
# contains it, never from the nearest one. A function without a symbol is identified by its start; an address
# in no function is unknown.

_ELF = b"\x7fELF\x02\x01"


def read_functions(path: Path) -> CodeFunctions:
    """Read a 64-bit, little-endian ELF file."""
    import lief

    lief.logging.disable()
    again = "install it again"
    try:
        data = path.read_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of values that LIEF has no name for
            library = lief.ELF.parse(data) if data[:6] == _ELF else None
            if library is None:
                raise ValueError("it is no ELF file")
            return _of_elf(library)
    except OSError as problem:
        raise FormatError(f"{path} cannot be read: {system_reason(problem)}", again) from problem
    except (ValueError, OverflowError) as problem:
        raise FormatError(f"{path} is a damaged library: {problem}", again) from problem


class Function(NamedTuple):
    """A function's range in its file's own addresses, and its name if it has one."""

    start: int
    end: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class Extents:
    """Functions in the order of their addresses, of which no two are the same."""

    functions: list[Function]

    @classmethod
    def of(cls, functions: Iterable[Function]) -> Extents:
        """For equal starts keep the longest, then the first by name."""
        best: dict[int, Function] = {}
        for function in sorted(functions, key=lambda one: (one.start, -one.end, one.name)):
            best.setdefault(function.start, function)
        return cls(list(best.values()))

    def holding(self, address: int) -> Function | None:
        place = bisect_right(self.functions, address, key=attrgetter("start")) - 1
        return self.functions[place] if place >= 0 and address < self.functions[place].end else None


@dataclass(frozen=True, slots=True)
class CodeFunctions:
    """The functions of one file; `build_id` is None if it has none."""

    build_id: str | None
    named: Extents
    unnamed: Extents

    def holding(self, address: int) -> Function | None:
        return self.named.holding(address) or self.unnamed.holding(address)


# ELF: symbols, and the entries of `.eh_frame`, which functions of a library built for unwinding have, even
# hidden ones; assembly functions often have neither.


def _of_elf(library: lief.ELF.Binary) -> CodeFunctions:
    symbols = [
        Function(symbol.value, symbol.value + symbol.size, str(symbol.name))
        for symbol in library.symbols
        if symbol.is_function and symbol.shndx and symbol.name and symbol.size > 0
    ]
    unwound = [Function(one.address, one.address + one.size) for one in library.functions if one.size]
    ids = (bytes(note.description) for note in library.notes if note.type == note.TYPE.GNU_BUILD_ID)
    return CodeFunctions(next(ids, b"").hex() or None, Extents.of(symbols), Extents.of(unwound))
