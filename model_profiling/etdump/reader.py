"""Reads ETDump files into event tables: whole columns are gathered at once, with no Python step per event."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_profiling.core.errors import FormatError
from model_profiling.core.flatbuffer import (
    LONGEST_TEXT,
    FlatBuffer,
    FlatTable,
    Int64,
    Source,
    Tables,
    gather,
    load,
    refuse,
)
from model_profiling.core.safe_read import MOST_MAPPED
from model_profiling.etdump.table import BlockTable, EventTable, Int32

# Interning: the strings of many events become indexes into a list of distinct values.

Words = NDArray[np.uint64]

_WORD = 8
# Longer values are interned one by one: as rows as wide as theirs, short ones would waste memory.
_LONGEST_ROW = 32 * _WORD
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


# For each word of a row and each string length, how many of the word's bits belong to the string.
_BITS = 8 * np.clip(np.arange(_LONGEST_ROW + 1) - _WORD * np.arange(_LONGEST_ROW // _WORD)[:, None], 0, _WORD)
_MASKS = np.ascontiguousarray(np.array([(1 << bits) - 1 for bits in range(65)], np.uint64)[_BITS])


class Interner:
    """The distinct byte strings of one flatbuffer. Each is cut into 8-byte words and hashed; a hash only
    suggests that two are equal, comparing the words decides."""

    def __init__(self, buffer: FlatBuffer) -> None:
        self.buffer = buffer
        self.values: list[bytes] = []
        self._index: dict[bytes, int] = {}

    def intern(self, at: Int64, what: str) -> Int32:
        """The value index of the string at each `at`; -1 if `at` is 0 or the string is empty."""
        result = np.full(len(at), -1, np.int32)
        rows = np.flatnonzero(at > 0)
        start = at[rows] + 4
        length = gather(self.buffer, at[rows], "u32", what)
        refuse(self.buffer, start + length > self.buffer.size, start, f"{what} leaves the file")

        found = np.full(len(rows), -1, np.int32)
        short = (length > 0) & (length <= _LONGEST_ROW)
        width = -(-int(length[short].max(initial=1)) // _WORD) * _WORD
        short &= start + width <= self.buffer.size  # the last ones have no whole row
        if short.any():
            found[short] = self._by_hash(start[short], length[short], width, what)
        single = np.flatnonzero((length > 0) & (found < 0))
        if len(single):
            found[single] = self._one_by_one(start[single], length[single], what)
        result[rows] = found
        return result

    def add(self, value: bytes) -> int:
        """The index of `value`, added if it is new."""
        found = self._index.setdefault(value, len(self.values))
        if found == len(self.values):
            self.values.append(value)
        return found

    def _one_by_one(self, start: Int64, length: Int64, what: str) -> Int32:
        places, first, inverse = np.unique(start, return_index=True, return_inverse=True)
        if int(length[first].sum()) > self.buffer.size:
            raise self.buffer.damaged(f"{what} overlaps another", int(places[0]))
        indexes = [
            self.add(self.buffer.data[place : place + size].tobytes())
            for place, size in zip(places.tolist(), length[first].tolist(), strict=True)
        ]
        chosen: Int32 = np.array(indexes, np.int32)[inverse]
        return chosen

    def _by_hash(self, start: Int64, length: Int64, width: int, what: str) -> Int32:
        """Value indexes of strings of up to `width` bytes; -1 for the rare one whose hash another one has."""
        rows = self.buffer.rows(width)[start].view("<u8").reshape(len(start), width // _WORD)
        rows &= _MASKS[: width // _WORD, length].T
        _, first, which = np.unique(_hash(rows, length), return_index=True, return_inverse=True)
        values = self._one_by_one(start[first], length[first], what)
        same = length == length[first[which]]
        for column in range(rows.shape[1]):
            same &= rows[:, column] == rows[first, column][which]
        return np.where(same, values[which], np.int32(-1))


def _hash(rows: Words, length: Int64) -> Words:
    hashes = length.astype(np.uint64) * _MULTIPLIER
    for column in range(rows.shape[1]):
        hashes = (hashes ^ rows[:, column]) * _MULTIPLIER
        hashes ^= hashes >> np.uint64(29)
    return hashes


_IDENTIFIER = b"ED00"
# Small enough that the columns being gathered stay in a core's cache.
_CHUNK = 1 << 15
# In bytes: a list slot, a table with one reference, and a table that may be empty.
_LEAST_EVENT = 4 + 8 + 4

_EMPTY = "see the runner's log (.log beside it); the runner must be built with the event tracer"


def read_etdump(source: Source) -> EventTable:
    """Read an ETDump from a file or from bytes: `read_etdump("model.etdump").to_pandas()`. Its times are
    nanoseconds, as ExecuTorch's runtime and its XNNPACK delegate write them."""
    name, data = load(source, "ETDump", MOST_MAPPED, empty=_EMPTY)
    return _DumpReading(FlatBuffer(data, name)).table()


class _DumpReading:
    """One dump being read: its buffer and the names so far."""

    def __init__(self, buffer: FlatBuffer) -> None:
        self.buffer = buffer
        self.names = Interner(buffer)

    def table(self) -> EventTable:
        root = self._root()
        runs = self._runs(root)
        slots, block = self._events(runs)
        profile = self._profile_events(slots)
        blocks = self._blocks(runs, block[profile > 0])
        del slots

        rows = np.flatnonzero(profile)
        block, profile = block[rows], profile[rows]
        count = len(rows)
        runtime_name, delegate_name, delegate_id, chain_index, instruction_id = (
            np.empty(count, np.int32) for _ in range(5)
        )
        start, end = np.empty(count, np.int64), np.empty(count, np.int64)
        for first in range(0, count, _CHUNK):
            part = slice(first, first + _CHUNK)
            events = Tables(self.buffer, profile[part], "a profile event")
            runtime_name[part] = self.names.intern(events.targets(0), "an event's name")
            chain_index[part] = events.scalars(1, "i32", 0)
            instruction_id[part] = events.scalars(2, "i32", -1)
            delegate_id[part] = events.scalars(3, "i32", -1)
            delegate_name[part] = self.names.intern(events.targets(4), "a delegate's name for an event")
            start[part] = events.scalars(6, "u64", 0)
            end[part] = events.scalars(7, "u64", 0)
        refuse(self.buffer, end < start, profile, "an event ends before it begins,")
        name = self._own_names(runtime_name, delegate_name, delegate_id)
        return EventTable(
            source=self.buffer.source,
            names=self._decoded_names(),
            blocks=blocks,
            block=block,
            run_index=blocks.run_index[block],
            name=name,
            delegate_name=delegate_name,
            delegate_id=delegate_id,
            chain_index=chain_index,
            instruction_id=instruction_id,
            start_ns=start,
            end_ns=end,
            duration_ns=end - start,
        )

    def _root(self) -> FlatTable:
        """The root table; ExecuTorch writes the buffer's size before it, other writers may not."""
        source, size = self.buffer.source, self.buffer.size
        if self.buffer.data[8:12].tobytes() == _IDENTIFIER:
            if self.buffer.read("u32", 0, "the size") + 4 > size:
                raise FormatError(f"{source} is cut short: {size} bytes are there", "copy it again")
            return self.buffer.root(4, "the root table")
        if self.buffer.data[4:8].tobytes() == _IDENTIFIER:
            return self.buffer.root(0, "the root table")
        raise FormatError(f"{source} is not an ETDump", "name the .etdump that a runner wrote")

    def _runs(self, root: FlatTable) -> Tables:
        first, count = root.vector(1, 4, "the list of blocks")
        slots = first + 4 * np.arange(count, dtype=np.int64)
        return Tables(self.buffer, slots + gather(self.buffer, slots, "u32", "the list of blocks"), "a block")

    def _events(self, runs: Tables) -> tuple[Int64, Int32]:
        """The slots of all blocks' events, and the block of each slot."""
        what, at = "a list of events", runs.targets(3)
        counts = np.zeros(len(at), np.int64)
        counts[at > 0] = gather(self.buffer, at[at > 0], "u32", what)
        refuse(self.buffer, at + 4 + 4 * counts > self.buffer.size, at, f"{what} leaves the file")
        total = int(counts.sum())
        if _LEAST_EVENT * total > self.buffer.size:
            raise self.buffer.damaged(f"{what} overlaps another", int(at.max()))
        block = np.repeat(np.arange(len(at), dtype=np.int32), counts)
        begins = np.cumsum(counts) - counts
        slots = np.arange(total, dtype=np.int64) * 4 + np.repeat(at + 4 - 4 * begins, counts)
        return slots, block

    def _profile_events(self, slots: Int64) -> Int64:
        """The position of each event's profile table; 0 for allocations and logged values."""
        profile = np.zeros(len(slots), np.int64)
        for first in range(0, len(slots), _CHUNK):
            part = slice(first, first + _CHUNK)
            at = slots[part] + gather(self.buffer, slots[part], "u32", "a list of events")
            events = Tables(self.buffer, at, "an event")
            kinds = [events.targets(kind) for kind in range(3)]
            wrong = np.count_nonzero(kinds, axis=0) != 1
            refuse(self.buffer, wrong, slots[part], "an event is not of exactly one kind, listed")
            profile[part] = kinds[0]
        return profile

    def _blocks(self, runs: Tables, profile_block: Int32) -> BlockTable:
        name = self.names.intern(runs.targets(0), "a block's name")
        name[name < 0] = self.names.add(b"")
        per_block = np.bincount(profile_block, minlength=len(name))
        return BlockTable(
            name=name,
            run_index=_ordinals(name),
            first_event=np.concatenate([np.zeros(1, np.int64), np.cumsum(per_block)]),
        )

    def _own_names(self, runtime_name: Int32, delegate_name: Int32, delegate_id: Int32) -> Int32:
        """An operator's name: the delegate's number or text for it, else the runtime's name."""
        name = np.where(delegate_name != -1, delegate_name, runtime_name)
        numbered = delegate_id != -1
        if numbered.any():
            numbers, inverse = np.unique(delegate_id[numbered], return_inverse=True)
            texts = [self.names.add(str(number).encode()) for number in numbers.tolist()]
            name[numbered] = np.array(texts, np.int32)[inverse]
        nameless = name == -1
        if nameless.any():
            name[nameless] = self.names.add(b"")
        return name

    def _decoded_names(self) -> tuple[str, ...]:
        """Refuse long names: events share a name, but each line of a table repeats it."""
        if (longest := max(map(len, self.names.values), default=0)) > LONGEST_TEXT:
            raise self.buffer.damaged(f"a name is {longest} bytes long")
        try:
            return tuple(value.decode("utf-8") for value in self.names.values)
        except UnicodeDecodeError as problem:
            raise self.buffer.damaged(f"the name {problem.object[:40]!r} is not text") from problem


def _ordinals(labels: Int32) -> Int32:
    """For each entry, how many earlier entries have the same label."""
    order = np.argsort(labels, kind="stable")
    ranked = labels[order]
    begins = np.searchsorted(ranked, ranked)
    ordinals = np.empty(len(labels), np.int32)
    ordinals[order] = np.arange(len(labels)) - begins
    return ordinals
