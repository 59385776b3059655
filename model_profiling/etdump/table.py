"""The columnar records an ETDump is read into: one numpy array per field, one entry per event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from model_profiling.extras import needed
from model_profiling.flatbuffer import Int64
from model_profiling.wording import plural

if TYPE_CHECKING:
    import pandas

Int32 = NDArray[np.int32]
Bool = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class BlockTable:
    """The dump's blocks (RunData) in file order; one entry per block in every array.

    ExecuTorch opens a block named `Execute` for each execution of a method; what happened before the
    first one (loading) is in a block named `Default`.
    """

    name: Int32
    """Index into `EventTable.names`."""
    run_index: Int32
    """How many blocks of the same name come before this one: the run number among its kind."""
    bundled_input: Int32
    """Index of the bundled input that was run, -1 where there was none."""
    first_event: Int64
    """Block b holds the profile events `first_event[b]` up to, not including, `first_event[b + 1]`;
    this array therefore has one entry more than there are blocks."""


@dataclass(frozen=True, slots=True)
class AllocationTable:
    """Allocation events in file order."""

    block: Int32
    allocator: Int32
    """Index into `EventTable.names` of the allocator's name, -1 where the block names none."""
    size: Int64
    """Bytes."""


@dataclass(frozen=True, slots=True)
class DebugTable:
    """Debug events (logged values) in file order; the values themselves live in a separate buffer file."""

    block: Int32
    name: Int32
    """Index into `EventTable.names`; the operator's own name, as in `EventTable.name`."""
    chain_index: Int64
    instruction_id: Int32
    delegate_id: Int32
    is_output: Bool
    """The value is an output of the program rather than an intermediate one."""
    value_type: NDArray[np.int8]
    """Number of the value's type: 0 nothing, 1 int, 2 bool, 3 float, 4 double, 5 tensor, 6 list, 7 text."""


@dataclass(frozen=True, slots=True)
class EventTable:
    """Every profile event of an ETDump, in file order (a parent event follows its children).

    `names[table.name[i]]` is the operator's own name of event i, as Inspector shows it: a delegate's
    identifier for a delegate's operator, the runtime's name for everything else.
    """

    source: str
    """Where the dump came from, for messages."""
    version: int
    names: tuple[str, ...]
    """Every distinct name in the dump, once; columns hold indexes into it."""
    blocks: BlockTable
    block: Int32
    """Index of the event's block in `blocks`."""
    run_index: Int32
    """`blocks.run_index` of the event's block."""
    name: Int32
    """Index into `names` of the operator's own name."""
    runtime_name: Int32
    """Index into `names` of the name the runtime gave, -1 where it gave none (delegate operators)."""
    delegate_name: Int32
    """Index into `names` of the delegate's text identifier, -1 where there is none."""
    delegate_id: Int32
    """The delegate's number for the operator, -1 where there is none."""
    chain_index: Int32
    instruction_id: Int32
    """Index of the instruction in its chain; -1 where unset. `Method::execute` and loading events carry 0
    and chain index -1."""
    start_ns: Int64
    end_ns: Int64
    duration_ns: Int64
    metadata: Int32
    """Index into `metadata_values` of what the delegate attached to the event, -1 where nothing."""
    metadata_values: tuple[bytes, ...]
    allocations: AllocationTable
    debug: DebugTable

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
        """The index of `name` in `names`, or -1 when no event has that name."""
        return self.names.index(name) if name in self.names else -1

    def text(self, column: Int32) -> NDArray[np.object_]:
        """The texts behind a column of name indexes; None where the column says -1."""
        texts = np.array([*self.names, None], dtype=object)
        chosen: NDArray[np.object_] = texts[column]
        return chosen

    def to_pandas(self) -> pandas.DataFrame:
        """One row per profile event, in file order; texts are missing and numbers -1 where unset.

        Needs the extra `pandas`; reading and every array above do not.
        """
        needed("pandas", "pandas")
        import pandas

        return pandas.DataFrame(
            {
                "run_index": self.run_index,
                "block": self.text(self.blocks.name)[self.block],
                "name": self.text(self.name),
                "start_ns": self.start_ns,
                "end_ns": self.end_ns,
                "duration_ns": self.duration_ns,
                "instruction_id": self.instruction_id,
                "delegate_name": self.text(self.delegate_name),
                "delegate_id": self.delegate_id,
                "is_delegated": self.is_delegated,
                "chain_index": self.chain_index,
                "block_index": self.block,
            }
        )
