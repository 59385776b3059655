"""The file beside a dump that says to the nanosecond when a delegate's operators began and ended.

The kit's runner writes it (`runner/backend_clock.cpp`). Little-endian, with nothing after its end:

    8 bytes   SME2PBND
    u32       version, 1
    u32       delegates
    u64       invocations
    u32 ...   operators of each delegate
    u32 ...   for each operator of each delegate, how often the backend read the clock for it
    u32 ...   the delegate of each invocation
              zeros up to a multiple of 8
    i64 ...   for each invocation the clock at its start and at each operator's end
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model_profiling.errors import FormatError
from model_profiling.flatbuffer import Int64, Source, load
from model_profiling.reading import MOST_MAPPED

_MAGIC = b"SME2PBND"
_VERSION = 1
_LATEST = 1 << 62
"""In nanoseconds; no clock tells more, and differences of two times stay in range."""


@dataclass(frozen=True, slots=True)
class Boundaries:
    """When operators began and ended, in the clock of the dump. Operator k of invocation i lasted from
    `times_ns[first[i] + k]` to the time after it."""

    source: str
    delegate: Int64
    """Of each invocation: which delegate it was of."""
    first: Int64
    """Of each invocation, and once more for the end: where its times begin."""
    times_ns: Int64
    looks: Int64
    """For each operator of each delegate, how often the backend read the clock: it cuts off at each."""
    first_look: Int64
    """Of each delegate, and once more for the end: where its operators begin in `looks`."""

    @property
    def invocations(self) -> int:
        return len(self.delegate)

    @property
    def operators(self) -> Int64:
        """How many each invocation has."""
        counted: Int64 = np.diff(self.first) - 1
        return counted


def boundaries_beside(dump: Path) -> Path:
    """Where the boundaries of a dump are, if there are any."""
    return dump.with_name(f"{dump.name}.boundaries")


def read_boundaries(source: Source) -> Boundaries:
    """Read a boundaries file, or its bytes; one that is damaged is a FormatError that names the place."""
    name, data = load(source, "boundaries file", MOST_MAPPED)
    return _Reading(name, data).boundaries()


class _Reading:
    """One file being read, front to back."""

    def __init__(self, name: str, data: NDArray[np.uint8]) -> None:
        self.name, self.data, self.at = name, data, 0

    def boundaries(self) -> Boundaries:
        if self.data[:8].tobytes() != _MAGIC:
            raise FormatError(f"{self.name} is not a file of operator boundaries", "run the model again")
        self.at = 8
        version, delegates = self._numbers("<u4", 2, "the header").tolist()
        if version != _VERSION:
            raise FormatError(
                f"{self.name} has version {version} of operator boundaries",
                "read it with the kit that made it",
            )
        invocations = int(self._numbers("<u8", 1, "the header")[0])
        operators = self._numbers("<u4", delegates, "the counts of operators")
        first_look = _edges(operators)
        looks = self._numbers("<u4", int(first_look[-1]), "the looks at the clock")
        self._refuse(looks == 0, 4, "an operator without an end")
        delegate = self._numbers("<u4", invocations, "the delegates of invocations")
        self._refuse(delegate >= delegates, 4, "an invocation of no delegate")
        self.at += -self.at % 8
        first = _edges(operators[delegate] + 1)
        times = self._numbers("<i8", int(first[-1]), "the times")
        if self.at != len(self.data):
            raise self._damaged("more follows the last time", self.at)
        self._refuse((times < 0) | (times > _LATEST), 8, "a time that no clock tells")
        backwards = np.flatnonzero(np.diff(times) < 0) + 1
        inside = backwards[~np.isin(backwards, first)]
        if len(inside):
            raise self._damaged(
                "an operator ends before it begins", self.at - 8 * (len(times) - int(inside[0]))
            )
        return Boundaries(self.name, delegate, first, times, looks, first_look)

    def _numbers(self, kind: str, count: int, what: str) -> Int64:
        size = np.dtype(kind).itemsize
        if count < 0 or count > (len(self.data) - self.at) // size:
            raise self._damaged(f"{what} leave the file", self.at)
        begin, self.at = self.at, self.at + size * count
        read = self.data[begin : self.at].view(kind)
        if kind == "<u8":
            self._refuse(read > _LATEST, size, f"{what}: a number out of range")
        numbers: Int64 = read.astype(np.int64)
        return numbers

    def _refuse(self, wrong: NDArray[np.bool_], size: int, what: str) -> None:
        """`wrong` is of the numbers that were read last, each of `size` bytes."""
        found = np.flatnonzero(wrong)
        if len(found):
            raise self._damaged(what, self.at - size * (len(wrong) - int(found[0])))

    def _damaged(self, what: str, at: int) -> FormatError:
        return FormatError(
            f"{self.name} is damaged: {what} at byte {at}", "copy it again, or run the model again"
        )


def _edges(counts: Int64) -> Int64:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
