"""Interning: the strings of many events to indexes into one list of distinct values, no step per event."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_profiling.flatbuffer import FlatBuffer, Int64, gather, refuse

Int32 = NDArray[np.int32]
Words = NDArray[np.uint64]

_WORD = 8
# Longer values are interned one by one: comparing them in step with short ones would waste memory.
_LONGEST_ROW = 32 * _WORD
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


# For each word of a row and each length of a string, how many of the word's bits belong to the string.
_BITS = 8 * np.clip(np.arange(_LONGEST_ROW + 1) - _WORD * np.arange(_LONGEST_ROW // _WORD)[:, None], 0, _WORD)
_MASKS = np.ascontiguousarray(np.array([(1 << bits) - 1 for bits in range(65)], np.uint64)[_BITS])


class Interner:
    """Distinct byte strings of one flatbuffer, numbered in the order they are first met.

    Each string is cut into 8-byte words and hashed; a hash only proposes a value, the words decide.
    """

    def __init__(self, buffer: FlatBuffer) -> None:
        self.buffer = buffer
        self.values: list[bytes] = []
        self._index: dict[bytes, int] = {}
        # What is known by hash: the hash (sorted), the value's index, where its bytes are, how many.
        self._hash = np.empty(0, np.uint64)
        self._value = np.empty(0, np.int32)
        self._start = np.empty(0, np.int64)
        self._length = np.empty(0, np.int64)

    def intern(self, at: Int64, what: str) -> Int32:
        """The value index of each string (or byte vector) that begins at `at`.

        -1 where `at` is 0 or the string is empty: ETDump writes both for "nothing".
        """
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
        """The index of `value`, which is taken in if it is new."""
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
        # Too near to the end of the file for a whole row.
        whole = start + width <= self.buffer.size
        start, length = start[whole], length[whole]
        if len(start) == 0:
            return result
        rows = self._rows(start, length, width)
        slot = self._slots(_hash(rows, length), start, length)
        used = np.flatnonzero(np.bincount(slot, minlength=len(self._hash)))
        renumbered = np.zeros(len(self._hash), np.intp)
        renumbered[used] = np.arange(len(used))
        # What was learned from a narrower row may be too near to the end for this one.
        readable = self._start[used] + width <= self.buffer.size
        known = self._rows(np.where(readable, self._start[used], 0), self._length[used], width)
        candidate = renumbered[slot]
        same = readable[candidate] & (self._length[slot] == length)
        for column in range(rows.shape[1]):
            same &= known[candidate, column] == rows[:, column]
        result[whole] = np.where(same, self._value[slot], np.int32(-1))
        return result

    def _rows(self, start: Int64, length: Int64, width: int) -> Words:
        """The strings as rows of words, zero beyond their end (or cut there)."""
        rows = self.buffer.rows(width)[start].view("<u8").reshape(len(start), width // _WORD)
        rows &= _MASKS[: width // _WORD, length].T
        return rows

    def _slots(self, hashes: Words, start: Int64, length: Int64) -> NDArray[np.intp]:
        """Where each hash is among the known ones; a string is taken in for each that was not."""
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
