"""Reads ETDump files into event tables: whole columns are gathered at once, with no Python step per event;
and gives operators the most exact times there are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

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
from model_profiling.core.formatting import plural
from model_profiling.core.safe_read import MOST_MAPPED, check_regular, is_there
from model_profiling.etdump.table import (
    BlockTable,
    Boundaries,
    EventTable,
    Int32,
    boundaries_beside,
    read_boundaries,
)

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


# XNNPACK reports truncated whole microseconds, laid back to back. If the runner stored boundaries that agree
# with the dump up to the truncation, operators get their true times.

_US = 1_000

DELEGATE_CALL = "DELEGATE_CALL"
EXACT = "nanoseconds, from the backend's clock calls"
CUT = "whole microseconds of XNNPACK"
OWN = "nanoseconds of ExecuTorch's runtime"
"""Used when no delegate reported operators."""
REPORTED = "as the delegate reports them"


@dataclass(frozen=True, slots=True)
class TimedDump:
    """A dump's events with the most exact times available, and the source of those times."""

    table: EventTable
    clock: str
    exact_calls: NDArray[np.bool_] | None = None
    """For each event, whether it is a delegate call whose operators have true times; None if none is."""
    misfit: str = ""
    """Why the boundaries beside it, or some of them, are not used; empty if they are."""


def read_timed(dump: Path) -> TimedDump:
    """Read a dump, with the boundaries beside it if there are any."""
    table = read_etdump(dump)
    beside = boundaries_beside(dump)
    if not is_there(check_regular(beside)):
        return TimedDump(table, clock_of(table))
    try:
        return with_boundaries(table, read_boundaries(beside))
    except FormatError as problem:
        return TimedDump(table, clock_of(table), misfit=problem.problem)


def clock_of(table: EventTable) -> str:
    """Source of the operators' times in a dump without boundaries."""
    reported = table.duration_ns[table.is_delegated]
    if not len(reported):
        return OWN
    return CUT if not (reported % _US).any() else REPORTED


def with_boundaries(table: EventTable, exact: Boundaries) -> TimedDump:
    """`table` with true operator times in every delegate call that `exact` fits."""
    is_operator = table.is_delegated
    calls = np.flatnonzero((table.name == table.name_index(DELEGATE_CALL)) & ~is_operator)
    source = Path(exact.source).name
    if len(calls) != exact.invocations:
        has = f"{source} has {plural(exact.invocations, 'delegate call')}"
        misfit = f"{has}, the dump has {plural(len(calls), 'call')}"
        return TimedDump(table, clock_of(table), misfit=misfit)
    # An event is written when it ends: operators come before the call they ran in.
    events = np.flatnonzero(is_operator)
    events = events[events < (calls[-1] if len(calls) else 0)]
    call = np.searchsorted(calls, events)
    held = np.bincount(call, minlength=len(calls))
    fits = held == exact.operators
    if not fits.all():
        events, call = events[fits[call]], call[fits[call]]
    position = np.arange(len(events)) - np.searchsorted(call, call)
    at = exact.first[call] + position
    start, end = exact.times_ns[at], exact.times_ns[at + 1]
    looks = exact.looks[exact.first_look[exact.delegate[call]] + position]
    lost = (end - start) - table.duration_ns[events]
    # Each look at the clock truncates: reported times are short by less than a microsecond per look.
    wrong = (lost < 0) | (lost >= _US * looks)
    wrong |= table.instruction_id[events] != table.instruction_id[calls[call]]
    wrong |= (start < table.start_ns[calls[call]] - _US) | (end > table.end_ns[calls[call]] + _US)
    fits[call[wrong]] = False
    used = fits[call]
    refined = replace(
        table,
        start_ns=_put(table.start_ns, events[used], start[used]),
        end_ns=_put(table.end_ns, events[used], end[used]),
        duration_ns=_put(table.duration_ns, events[used], (end - start)[used]),
    )
    exact_calls = np.zeros(len(table), np.bool_)
    exact_calls[calls[fits]] = True
    count = int(fits.sum())
    if count == len(calls):
        return TimedDump(refined, EXACT if len(events) else clock_of(table), exact_calls)
    every = plural(len(calls), "delegate call")
    misfit = f"{source} does not match {len(calls) - count} of {every} in the dump"
    clock = f"{EXACT} in {count} of {every}, else {clock_of(table)}"
    return TimedDump(refined, clock if count else clock_of(table), exact_calls, misfit)


def _put(column: Int64, rows: Int64, values: Int64) -> Int64:
    changed = column.copy()
    changed[rows] = values
    return changed
