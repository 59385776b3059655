"""Checked reading of flatbuffers, one table at a time or one field of many tables at once.

The bytes may be damaged or hostile. Everything is checked to lie inside the buffer before it is read, and the
total read one by one is limited to the buffer's size, so references that share or repeat bytes cannot turn a
small file into endless work. Every violation is a `FormatError` that names file and byte.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from model_profiling.core.errors import FormatError, InputError, system_reason
from model_profiling.core.files import StrPath, as_path
from model_profiling.core.safe_read import open_regular, too_large

Int64 = NDArray[np.int64]
Scalar = TypeVar("Scalar", bound=np.generic)

Source: TypeAlias = StrPath | bytes | bytearray | memoryview | mmap.mmap
"""A file's path, or its content."""

LONGEST_TEXT = 4096
"""Maximum bytes of a name; the longest real ones have a few hundred."""

# The least that one table takes: its slot in a list and the offset to its vtable.
_TABLE_BYTES = 8
# No real program comes near this; reading this much one by one takes a few seconds.
_MOST_BYTES = 24_000_000
_CODES = {"i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q"}
_SCALARS = {kind: struct.Struct(f"<{code}") for kind, code in _CODES.items()}
_FLOAT = struct.Struct("<f")


def load(
    source: Source, kind: str, most: int | None = None, *, empty: str = "make or copy the file again"
) -> tuple[str, NDArray[np.uint8]]:
    """Return a name for messages and the bytes; a file is mapped, and refused if larger than `most` bytes.
    `empty` is the cure for a file without content."""
    if isinstance(source, bytes | bytearray | memoryview | mmap.mmap):
        return f"the {kind}", np.frombuffer(source, np.uint8)
    path = as_path(source)
    # A run directory's links were checked when it was opened; a file that a user names may be a link.
    with open_regular(path, follow=True) as stream:
        try:
            size = os.fstat(stream.fileno()).st_size
            if size == 0:
                raise FormatError(f"{path} is empty", empty)
            if most is not None and size > most:
                raise too_large(path, most)
            return str(path), np.frombuffer(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        except OSError as problem:
            reason = system_reason(problem)
            raise InputError(f"cannot read {path}: {reason}", "check the path") from problem


class FlatBuffer:
    """The bytes of one flatbuffer; `origin` is their offset in the file that messages name."""

    def __init__(self, data: NDArray[np.uint8], source: str, origin: int = 0) -> None:
        self.data = data
        self.size = len(data)
        self.source = source
        self.origin = origin
        self._bytes = memoryview(data)  # type: ignore[arg-type]  # numpy's stubs lack __buffer__ before 3.12
        self._columns: dict[tuple[str, bool], NDArray[np.generic]] = {}
        self._bytes_left = min(self.size, _MOST_BYTES)

    def damaged(self, what: str, at: int | None = None) -> FormatError:
        place = "" if at is None else f" at byte {self.origin + at}"
        return FormatError(f"{self.source} is damaged: {what}{place}", "make or copy the file again")

    def read(self, kind: str, at: int, what: str) -> int:
        scalar = _SCALARS[kind]
        self.within(at, scalar.size, what)
        value: int = scalar.unpack_from(self._bytes, at)[0]
        return value

    def within(self, at: int, length: int, what: str) -> None:
        """Refuse a range that is not entirely inside the buffer."""
        if at < 0 or length < 0 or at + length > self.size:
            raise self.damaged(f"{what} leaves the file", at)

    def slice(self, at: int, length: int, what: str) -> NDArray[np.uint8]:
        self.within(at, length, what)
        return self.data[at : at + length]

    def root(self, at: int, what: str) -> FlatTable:
        """Return the root table, whose offset is stored at `at`."""
        return FlatTable(self, at + self.read("u32", at, what), what)

    def column(self, kind: str, *, aligned: bool = False) -> NDArray[np.generic]:
        """Return a view of the scalar at each byte; if `aligned`, of each whole scalar: faster to gather."""
        if (kind, aligned) not in self._columns:
            dtype = _dtype(kind)
            self._columns[kind, aligned] = self._view(dtype, step=dtype.itemsize if aligned else 1)
        return self._columns[kind, aligned]

    def rows(self, width: int) -> NDArray[np.void]:
        """Return a view whose entry i is the `width` bytes that begin at byte i."""
        return self._view(np.dtype((np.void, width)), step=1)

    def _view(self, dtype: np.dtype[Scalar], step: int) -> NDArray[Scalar]:
        count = max((self.size - dtype.itemsize) // step + 1, 0)
        return np.ndarray((count,), dtype, buffer=self._bytes if count else b"", strides=(step,))

    def spend(self, count: int, at: int) -> None:
        """Count bytes that are read one by one; a valid buffer has none that are read twice."""
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise self.damaged("it refers to more than it can hold,", at)


class FlatTable:
    """One table; fields are numbered as in the schema, from 0. A missing field has its default."""

    __slots__ = ("_size", "_vtable", "_vtable_size", "at", "buffer", "what")

    def __init__(self, buffer: FlatBuffer, at: int, what: str) -> None:
        buffer.spend(_TABLE_BYTES, at)
        self.buffer = buffer
        self.at = at
        self.what = what
        self._vtable = at - buffer.read("i32", at, what)
        self._vtable_size = buffer.read("u16", self._vtable, what)
        self._size = buffer.read("u16", self._vtable + 2, what)
        if self._vtable_size < 4 or self._size < 4:
            raise buffer.damaged(f"{what} has an impossible size", at)
        buffer.within(self._vtable, self._vtable_size, what)
        buffer.within(at, self._size, what)

    def _field(self, field: int, width: int) -> int:
        """Return where a field is stored, or 0 if it is left out."""
        slot = 4 + 2 * field
        if slot + 2 > self._vtable_size:
            return 0
        offset = self.buffer.read("u16", self._vtable + slot, self.what)
        if offset == 0:
            return 0
        if offset < 4 or offset + width > self._size:
            raise self.buffer.damaged(f"{self.what} has a field outside of itself", self.at)
        return self.at + offset

    def scalar(self, field: int, kind: str, default: int = 0) -> int:
        at = self._field(field, _SCALARS[kind].size)
        return self.buffer.read(kind, at, self.what) if at else default

    def real(self, field: int) -> float:
        """Return a 32-bit float, 0 if it is left out."""
        at = self._field(field, _FLOAT.size)
        if not at:
            return 0.0
        value: float = _FLOAT.unpack(self.buffer.slice(at, _FLOAT.size, self.what).tobytes())[0]
        return value

    def _target(self, field: int) -> int:
        at = self._field(field, 4)
        return at + self.buffer.read("u32", at, self.what) if at else 0

    def table(self, field: int, what: str) -> FlatTable | None:
        at = self._target(field)
        return FlatTable(self.buffer, at, what) if at else None

    def vector(self, field: int, width: int, what: str) -> tuple[int, int]:
        """Return where a vector begins and its length; (0, 0) if it is left out."""
        at = self._target(field)
        if not at:
            return 0, 0
        count = self.buffer.read("u32", at, what)
        self.buffer.within(at + 4, count * width, what)
        return at + 4, count

    def tables(self, field: int, what: str) -> Iterator[FlatTable]:
        """Yield the tables of a vector, each opened only when reached."""
        first, count = self.vector(field, 4, what)
        for place in range(first, first + 4 * count, 4):
            yield FlatTable(self.buffer, place + self.buffer.read("u32", place, what), what)

    def array(self, field: int, kind: str, what: str) -> NDArray[np.generic]:
        dtype = _dtype(kind)
        first, count = self.vector(field, dtype.itemsize, what)
        return np.frombuffer(self.buffer.slice(first, count * dtype.itemsize, what), dtype)

    def ints(self, field: int, kind: str, what: str) -> tuple[int, ...]:
        values = self.array(field, kind, what)
        self.buffer.spend(values.nbytes, self.at)
        return tuple(values.tolist())

    def octets(self, field: int, what: str) -> tuple[int, NDArray[np.uint8]]:
        first, count = self.vector(field, 1, what)
        return first, self.buffer.slice(first, count, what)

    def text(self, field: int, what: str) -> str | None:
        at = self._target(field)
        if not at:
            return None
        first, content = self.octets(field, what)
        if len(content) > LONGEST_TEXT:
            raise self.buffer.damaged(f"{what} is {len(content)} bytes long", first)
        self.buffer.spend(len(content), first)
        try:
            return content.tobytes().decode("utf-8")
        except UnicodeDecodeError as problem:
            raise self.buffer.damaged(f"{what} is not text", first) from problem


class Tables:
    """Many tables of one type; each field of all of them is read in a few numpy operations. Tables that set
    the same fields share a vtable, so each vtable is read once, not once per table."""

    __slots__ = ("_table_size", "_vtable", "_vtable_size", "_which", "at", "buffer", "what")

    def __init__(self, buffer: FlatBuffer, at: Int64, what: str) -> None:
        self.buffer = buffer
        self.at = at
        self.what = what
        # Each distinct vtable, its size and that of its tables, and which table uses which vtable.
        self._vtable, self._which = _distinct(at - gather(buffer, at, "i32", what))
        self._vtable_size = length = gather(buffer, self._vtable, "u16", what)
        self._table_size = size = gather(buffer, self._vtable + 2, "u16", what)
        refuse(buffer, (length < 4) | (size < 4), self._vtable, f"{what} has an impossible size")
        refuse(buffer, self._vtable + length > buffer.size, self._vtable, f"{what} leaves the file")
        if len(at) and int(at.max()) + int(size.max()) > buffer.size:
            refuse(buffer, at + size[self._which] > buffer.size, at, f"{what} leaves the file")

    def fields(self, field: int, width: int) -> Int64:
        """Return where each table stores a field; 0 where it is left out."""
        slot = 4 + 2 * field
        present = self._vtable_size >= slot + 2
        offset = np.zeros(len(self._vtable), np.int64)
        offset[present] = gather(self.buffer, self._vtable[present] + slot, "u16", self.what)
        outside = (offset > 0) & ((offset < 4) | (offset + width > self._table_size))
        refuse(self.buffer, outside, self._vtable, f"{self.what} has a field outside of itself")
        if not offset.any():
            return np.zeros(len(self.at), np.int64)
        offset = offset[self._which]
        return self.at + offset if offset.all() else np.where(offset > 0, self.at + offset, 0)

    def scalars(self, field: int, kind: str, default: int) -> Int64:
        """Return a field of every table; refuse unsigned 64-bit values beyond the signed range."""
        return self._gathered(self.fields(field, int(kind[1:]) // 8), kind, default)

    def targets(self, field: int) -> Int64:
        """Return where the table, string or vector that a field refers to begins; 0 where it is left out."""
        at = self.fields(field, 4)
        return at + self._gathered(at, "u32", 0)

    def _gathered(self, at: Int64, kind: str, default: int) -> Int64:
        present = at > 0
        if present.all():
            return gather(self.buffer, at, kind, self.what)
        values = np.full(len(at), default, np.int64)
        values[present] = gather(self.buffer, at[present], kind, self.what)
        return values


def gather(buffer: FlatBuffer, at: Int64, kind: str, what: str) -> Int64:
    """Return the scalars at the given bytes, as 64-bit integers."""
    if len(at) == 0:
        return np.empty(0, np.int64)
    column = buffer.column(kind)
    if at.min() < 0 or at.max() >= len(column):
        refuse(buffer, (at < 0) | (at >= len(column)), at, f"{what} leaves the file")
    width = column.itemsize
    aligned = buffer.column(kind, aligned=True)
    quick = aligned.flags.aligned and not int(np.bitwise_or.reduce(at)) & (width - 1)
    numbers = (aligned[at // width] if quick else column[at]).astype(np.int64, copy=False)
    if kind == "u64":
        refuse(buffer, numbers < 0, at, f"{what} has a number out of range")
    return numbers


def refuse(buffer: FlatBuffer, bad: NDArray[np.bool_], at: Int64, what: str) -> None:
    """Raise an error for the first bad entry, if there is one."""
    if bad.any():
        raise buffer.damaged(what, int(at[int(bad.argmax())]))


def _distinct(values: Int64) -> tuple[Int64, NDArray[np.intp]]:
    """Return the distinct values, and for each value its index among them."""
    which = np.zeros(len(values), np.intp)
    values_so_far: list[int] = []
    left = np.ones(len(values), np.bool_)
    # There are nearly always only a few, and then this is many times faster than sorting.
    while left.any():
        if len(values_so_far) == 16:
            distinct = np.unique(values)
            return distinct, np.searchsorted(distinct, values)
        value = int(values[int(left.argmax())])
        same = values == value
        which[same] = len(values_so_far)
        values_so_far.append(value)
        left &= ~same
    return np.array(values_so_far, np.int64), which


def _dtype(kind: str) -> np.dtype[np.generic]:
    return np.dtype(f"<{kind[0]}{int(kind[1:]) // 8}")
