"""Reads ETDump files into event tables: whole columns are gathered at once, with no Python step per event."""

from __future__ import annotations

from typing import Literal

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
from model_profiling.etdump.table import AllocationTable, BlockTable, DebugTable, EventTable, Int32

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
    """The distinct byte strings of one flatbuffer, in order of first appearance. Each is cut into 8-byte
    words and hashed; a hash only suggests a value, comparing the words decides."""

    def __init__(self, buffer: FlatBuffer) -> None:
        self.buffer = buffer
        self.values: list[bytes] = []
        self._index: dict[bytes, int] = {}
        # The known hashes (sorted), and for each the index, the place and the length of its value.
        self._hash = np.empty(0, np.uint64)
        self._value = np.empty(0, np.int32)
        self._start = np.empty(0, np.int64)
        self._length = np.empty(0, np.int64)

    def intern(self, at: Int64, what: str) -> Int32:
        """The value index of the string at each `at`; -1 if `at` is 0 or the string is empty."""
        result = np.full(len(at), -1, np.int32)
        rows = np.flatnonzero(at > 0)
        start = at[rows] + 4
        length = gather(self.buffer, at[rows], "u32", what)
        refuse(self.buffer, start + length > self.buffer.size, start, f"{what} leaves the file")

        short = (length > 0) & (length <= _LONGEST_ROW)
        found = np.full(len(rows), -1, np.int32)
        found[short] = self._by_hash(start[short], length[short])
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

    def _by_hash(self, start: Int64, length: Int64) -> Int32:
        """Value indexes of short strings; -1 for the rare one whose hash belongs to another string."""
        width = -(-int(length.max(initial=1)) // _WORD) * _WORD
        result = np.full(len(start), -1, np.int32)
        # Others are too near the end of the file for a whole row.
        whole = start + width <= self.buffer.size
        start, length = start[whole], length[whole]
        if len(start) == 0:
            return result
        rows = self._rows(start, length, width)
        slot = self._slots(_hash(rows, length), start, length)
        used = np.flatnonzero(np.bincount(slot, minlength=len(self._hash)))
        renumbered = np.zeros(len(self._hash), np.intp)
        renumbered[used] = np.arange(len(used))
        # A string known from a narrower row may be too near the end for this width.
        readable = self._start[used] + width <= self.buffer.size
        known = self._rows(np.where(readable, self._start[used], 0), self._length[used], width)
        candidate = renumbered[slot]
        same = readable[candidate] & (self._length[slot] == length)
        for column in range(rows.shape[1]):
            same &= known[candidate, column] == rows[:, column]
        result[whole] = np.where(same, self._value[slot], np.int32(-1))
        return result

    def _rows(self, start: Int64, length: Int64, width: int) -> Words:
        """The strings as rows of words, zero beyond their ends (cut at `width`)."""
        rows = self.buffer.rows(width)[start].view("<u8").reshape(len(start), width // _WORD)
        rows &= _MASKS[: width // _WORD, length].T
        return rows

    def _slots(self, hashes: Words, start: Int64, length: Int64) -> NDArray[np.intp]:
        """The position of each hash among the known ones; new hashes are added with their strings."""
        slot = np.searchsorted(self._hash, hashes)
        new = slot == len(self._hash)
        new[~new] = self._hash[slot[~new]] != hashes[~new]
        if not new.any():
            return slot
        rows = np.flatnonzero(new)
        _, first = np.unique(hashes[rows], return_index=True)
        chosen = rows[np.sort(first)]
        values = self._one_by_one(start[chosen], length[chosen], "a name")
        merged = np.concatenate([self._hash, hashes[chosen]])
        order = np.argsort(merged)
        self._hash = merged[order]
        self._value = np.concatenate([self._value, values])[order]
        self._start = np.concatenate([self._start, start[chosen]])[order]
        self._length = np.concatenate([self._length, length[chosen]])[order]
        return np.searchsorted(self._hash, hashes)


def _hash(rows: Words, length: Int64) -> Words:
    hashes = length.astype(np.uint64) * _MULTIPLIER
    for column in range(rows.shape[1]):
        hashes = (hashes ^ rows[:, column]) * _MULTIPLIER
        hashes ^= hashes >> np.uint64(29)
    return hashes


TimeScale = Literal["ns", "us", "ms", "s"]

_NS_PER = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_IDENTIFIER = b"ED00"
# Small enough that the columns being gathered stay in a core's cache.
_CHUNK = 1 << 15
_UINT32 = 2**32 - 1


_EMPTY = "see the runner's log (.log beside it); the runner must be built with the event tracer"


def read_etdump(
    source: Source, *, time_scale: TimeScale = "ns", delegate_time_scale: TimeScale | None = None
) -> EventTable:
    """Read an ETDump from a file or from bytes: `read_etdump("model.etdump").to_pandas()`.

    `time_scale` is the unit of the dump's time stamps; ExecuTorch's runtime and its XNNPACK delegate both
    write nanoseconds (the delegate's are whole microseconds). `delegate_time_scale` is for delegates that
    log their operators in another unit than the runtime.
    """
    name, data = load(source, "ETDump", MOST_MAPPED, empty=_EMPTY)
    buffer = FlatBuffer(data, name)
    return _Reading(buffer, _NS_PER[time_scale], _NS_PER[delegate_time_scale or time_scale]).table()


class _Reading:
    """One dump being read: its buffer, the names so far and its units of time."""

    def __init__(self, buffer: FlatBuffer, scale: int, delegate_scale: int) -> None:
        self.buffer = buffer
        self.names = Interner(buffer)
        self.metadata = Interner(buffer)
        self.scale = scale
        self.delegate_scale = delegate_scale

    def table(self) -> EventTable:
        root = self._root()
        runs = self._runs(root)
        # The least an event takes: a list slot, a table with one reference, and a table that may be empty.
        slots, block = self._lists(runs, 3, "a list of events", item_bytes=4 + 8 + 4)
        profile, allocation, debug = self._kinds(slots)
        blocks = self._blocks(runs, block[profile > 0])
        allocations = self._allocations(runs, allocation, block)
        debug_events = self._debug_events(debug, block)
        del slots, allocation, debug

        rows = np.flatnonzero(profile)
        block, profile = block[rows], profile[rows]
        count = len(rows)
        runtime_name, delegate_name, delegate_id, chain_index, instruction_id, metadata = (
            np.empty(count, np.int32) for _ in range(6)
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
            metadata[part] = self.metadata.intern(events.targets(5), "an event's metadata")
            start[part] = events.scalars(6, "u64", 0)
            end[part] = events.scalars(7, "u64", 0)
        duration = self._durations(start, end, profile)
        delegated = (delegate_id != -1) | (delegate_name != -1)
        for column in (start, end, duration):
            self._to_ns(column, delegated, profile)
        name = self._own_names(runtime_name, delegate_name, delegate_id)
        return EventTable(
            source=self.buffer.source,
            version=root.scalar(0, "u32"),
            names=self._decoded_names(),
            blocks=blocks,
            block=block,
            run_index=blocks.run_index[block],
            name=name,
            runtime_name=runtime_name,
            delegate_name=delegate_name,
            delegate_id=delegate_id,
            chain_index=chain_index,
            instruction_id=instruction_id,
            start_ns=start,
            end_ns=end,
            duration_ns=duration,
            metadata=metadata,
            metadata_values=tuple(self.metadata.values),
            allocations=allocations,
            debug=debug_events,
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

    def _lists(self, runs: Tables, field: int, what: str, item_bytes: int) -> tuple[Int64, Int32]:
        """The slots of all blocks' lists, and the block of each slot. `item_bytes` is the least size of an
        item: it bounds how many items overlapping lists can claim."""
        at = runs.targets(field)
        counts = np.zeros(len(at), np.int64)
        counts[at > 0] = gather(self.buffer, at[at > 0], "u32", what)
        refuse(self.buffer, at + 4 + 4 * counts > self.buffer.size, at, f"{what} leaves the file")
        total = int(counts.sum())
        if item_bytes * total > self.buffer.size:
            raise self.buffer.damaged(f"{what} overlaps another", int(at.max()))
        block = np.repeat(np.arange(len(at), dtype=np.int32), counts)
        begins = np.cumsum(counts) - counts
        slots = np.arange(total, dtype=np.int64) * 4 + np.repeat(at + 4 - 4 * begins, counts)
        return slots, block

    def _kinds(self, slots: Int64) -> tuple[Int64, Int64, Int64]:
        """The position of each event's profile, allocation or debug table; 0 for the two it does not have."""
        profile, allocation, debug = (np.zeros(len(slots), np.int64) for _ in range(3))
        for first in range(0, len(slots), _CHUNK):
            part = slice(first, first + _CHUNK)
            at = slots[part] + gather(self.buffer, slots[part], "u32", "a list of events")
            events = Tables(self.buffer, at, "an event")
            profile[part] = events.targets(0)
            allocation[part] = events.targets(1)
            debug[part] = events.targets(2)
        kinds = (profile > 0).astype(np.int8) + (allocation > 0) + (debug > 0)
        refuse(self.buffer, kinds != 1, slots, "an event is not of exactly one kind, listed")
        return profile, allocation, debug

    def _blocks(self, runs: Tables, profile_block: Int32) -> BlockTable:
        name = self.names.intern(runs.targets(0), "a block's name")
        name[name < 0] = self.names.add(b"")
        per_block = np.bincount(profile_block, minlength=len(name))
        return BlockTable(
            name=name,
            run_index=_ordinals(name),
            bundled_input=runs.scalars(1, "i32", -1).astype(np.int32),
            first_event=np.concatenate([np.zeros(1, np.int64), np.cumsum(per_block)]),
        )

    def _allocations(self, runs: Tables, at: Int64, block: Int32) -> AllocationTable:
        rows = np.flatnonzero(at)
        events = Tables(self.buffer, at[rows], "an allocation event")
        number = events.scalars(0, "i32", 0)
        slots, owner = self._lists(runs, 2, "a list of allocators", item_bytes=4 + 4)
        place = slots + gather(self.buffer, slots, "u32", "a list of allocators")
        allocators = Tables(self.buffer, place, "an allocator")
        names = self.names.intern(allocators.targets(0), "an allocator's name")
        # The runtime numbers a block's allocators from 1.
        first = np.searchsorted(owner, block[rows])
        wanted = first + number - 1
        known = (number > 0) & (wanted < len(names))
        known[known] &= owner[wanted[known]] == block[rows][known]
        allocator = np.full(len(rows), -1, np.int32)
        allocator[known] = names[wanted[known]]
        return AllocationTable(block=block[rows], allocator=allocator, size=events.scalars(1, "u64", 0))

    def _debug_events(self, at: Int64, block: Int32) -> DebugTable:
        rows = np.flatnonzero(at)
        events = Tables(self.buffer, at[rows], "a debug event")
        delegate_id = events.scalars(3, "i32", -1).astype(np.int32)
        delegate_name = self.names.intern(events.targets(4), "a delegate's name for an event")
        runtime_name = self.names.intern(events.targets(5), "an event's name")
        entry = events.targets(2)
        refuse(self.buffer, entry == 0, at[rows], "a debug event has no value")
        values = Tables(self.buffer, entry, "a logged value")
        output = values.targets(7)
        is_output = output > 0
        flags = Tables(self.buffer, output[is_output], "a logged value")
        is_output[is_output] = flags.scalars(0, "u8", 0) > 0
        return DebugTable(
            block=block[rows],
            name=self._own_names(runtime_name, delegate_name, delegate_id),
            chain_index=events.scalars(0, "u64", 0),
            instruction_id=events.scalars(1, "i32", -1).astype(np.int32),
            delegate_id=delegate_id,
            is_output=is_output,
            value_type=values.scalars(0, "i8", 0).astype(np.int8),
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

    def _durations(self, start: Int64, end: Int64, at: Int64) -> Int64:
        """End minus start; 32-bit clocks may wrap, and are corrected as Inspector does it."""
        duration = end - start
        wrapped = duration < 0
        if wrapped.any():
            impossible = wrapped & ((start > _UINT32) | (end > _UINT32))
            refuse(self.buffer, impossible, at, "an event ends before it begins,")
            duration[wrapped] += _UINT32
        return duration

    def _to_ns(self, ticks: Int64, delegated: NDArray[np.bool_], at: Int64) -> None:
        for scale, rows in ((self.scale, ~delegated), (self.delegate_scale, delegated)):
            if scale != 1:
                too_late = rows & (ticks > (2**63 - 1) // scale)
                refuse(self.buffer, too_late, at, "a time stamp is out of range")
                ticks[rows] *= scale

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
