"""The columnar records an ETDump is read into: one numpy array per field, one entry per event."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from model_profiling.core.errors import FormatError
from model_profiling.core.flatbuffer import Int64, Source, load
from model_profiling.core.formatting import plural
from model_profiling.core.hints import needed
from model_profiling.core.safe_read import MOST_MAPPED

if TYPE_CHECKING:
    import pandas


Int32 = NDArray[np.int32]
Bool = NDArray[np.bool_]
Column = Int32 | Int64 | Bool

_COLUMNS = (
    "run_index", "block", "name", "start_ns", "end_ns", "duration_ns", "instruction_id", "delegate_name",
    "delegate_id", "is_delegated", "chain_index", "block_index",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BlockTable:
    """The dump's blocks (RunData) in file order: `Execute` for a run of a method, `Default` for loading."""

    name: Int32
    """Index into `EventTable.names`."""
    run_index: Int32
    """The number of earlier blocks of the same name."""
    first_event: Int64
    """Block b holds the profile events `first_event[b]` up to, not including, `first_event[b + 1]`."""


@dataclass(frozen=True, slots=True)
class EventTable:
    """Every profile event of an ETDump, in file order (a parent event follows its children).
    `names[table.name[i]]` is the name of event i as Inspector shows it."""

    source: str
    """Where the dump came from, for messages."""
    names: tuple[str, ...]
    """Every distinct name in the dump; columns hold indexes into it."""
    blocks: BlockTable
    block: Int32
    run_index: Int32
    name: Int32
    """Index into `names` of the operator's own name."""
    delegate_name: Int32
    """Index into `names` of the delegate's text identifier, -1 if there is none."""
    delegate_id: Int32
    """The delegate's number for the operator, -1 if there is none."""
    chain_index: Int32
    instruction_id: Int32
    """Index of the instruction in its chain, -1 if unset. `Method::execute` has 0 and chain index -1."""
    start_ns: Int64
    end_ns: Int64
    duration_ns: Int64

    def __len__(self) -> int:
        return len(self.block)

    def __repr__(self) -> str:
        blocks = plural(len(self.blocks.name), "block")
        return (
            f"<EventTable {self.source}: {plural(len(self), 'event')} in {blocks}, {len(self.names)} names>"
        )

    @property
    def is_delegated(self) -> Bool:
        """Which events a delegate logged about its own operators (not the `DELEGATE_CALL` around them)."""
        delegated: Bool = (self.delegate_id != -1) | (self.delegate_name != -1)
        return delegated

    def name_index(self, name: str) -> int:
        """The index of `name` in `names`, -1 if no event has it."""
        return self.names.index(name) if name in self.names else -1

    def text(self, column: Int32) -> NDArray[np.object_]:
        """The texts of a column of name indexes; None for -1."""
        texts = np.array([*self.names, None], dtype=object)
        chosen: NDArray[np.object_] = texts[column]
        return chosen

    def columns(self) -> tuple[dict[str, Int32], dict[str, Column]]:
        """Text columns (as indexes into `names`, -1 for none) and number columns, named as in `to_pandas`."""
        blocks = self.blocks.name[self.block]
        coded = {"block": blocks, "name": self.name, "delegate_name": self.delegate_name}
        own = [name for name in _COLUMNS if name not in coded and name != "block_index"]
        return coded, {**{name: getattr(self, name) for name in own}, "block_index": self.block}

    def to_pandas(self) -> pandas.DataFrame:
        """One row per profile event; unset texts are missing, unset numbers -1. Needs the extra `pandas`."""
        needed("pandas", "pandas")
        import pandas

        coded, numbers = self.columns()
        texts = {name: self.text(column) for name, column in coded.items()}
        return pandas.DataFrame({**texts, **numbers}, columns=list(_COLUMNS))


# The boundaries file beside a dump, by `runner/backend_clock.cpp`. Little-endian, with nothing after its end:
#   8 bytes       SME2PBND
#   u32 u32 u64   version (1), delegates, invocations
#   u32 each      operators of each delegate
#   u32 each      for each operator of each delegate, how often the backend read the clock
#   u32 each      the delegate of each invocation; then zeros up to a multiple of 8
#   i64 each      for each invocation, the clock at its start and at each operator's end
# Invocations are in the order of the dump's `DELEGATE_CALL` events, operators in the order of its events.

_MAGIC = b"SME2PBND"
_VERSION = 1
_LATEST = 1 << 62
"""In nanoseconds; beyond any clock, and differences of two times stay in range."""


@dataclass(frozen=True, slots=True)
class Boundaries:
    """When operators began and ended, in the dump's clock. Operator k of invocation i lasted from
    `times_ns[first[i] + k]` to the time after it."""

    source: str
    delegate: Int64
    """The delegate of each invocation."""
    first: Int64
    """Where each invocation's times begin in `times_ns`, plus the end."""
    times_ns: Int64
    looks: Int64
    """How often the backend read the clock for each operator of each delegate: it rounds down each time."""
    first_look: Int64
    """Where each delegate's operators begin in `looks`, plus the end."""

    @property
    def invocations(self) -> int:
        return len(self.delegate)

    @property
    def operators(self) -> Int64:
        counted: Int64 = np.diff(self.first) - 1
        return counted


def boundaries_beside(dump: Path) -> Path:
    """The path of a dump's boundaries, which may not exist."""
    return dump.with_name(f"{dump.name}.boundaries")


def read_boundaries(source: Source) -> Boundaries:
    """Read a boundaries file or its bytes; damage raises a FormatError that names the place."""
    name, data = load(source, "boundaries file", MOST_MAPPED)
    return _BoundaryReading(name, data).boundaries()


class _BoundaryReading:
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
        """Raise an error for the first `wrong` among the numbers read last, each of `size` bytes."""
        found = np.flatnonzero(wrong)
        if len(found):
            raise self._damaged(what, self.at - size * (len(wrong) - int(found[0])))

    def _damaged(self, what: str, at: int) -> FormatError:
        return FormatError(
            f"{self.name} is damaged: {what} at byte {at}", "copy it again, or run the model again"
        )


def _edges(counts: Int64) -> Int64:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
