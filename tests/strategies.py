"""Hypothesis strategies and random damage, shared by every test (and campaign) that needs made-up files."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import flatbuffers
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from model_profiling.program.records import GraphNode, Tensor


@dataclass(frozen=True)
class ProfileEvent:
    """A profile event as a runtime would log it."""

    name: str | None
    chain_index: int
    instruction_id: int
    delegate_id: int
    delegate_name: str | None
    metadata: bytes | None
    start: int
    end: int


@dataclass(frozen=True)
class AllocationEvent:
    allocator: int
    size: int


@dataclass(frozen=True)
class DebugEvent:
    name: str | None
    instruction_id: int
    delegate_id: int
    delegate_name: str | None
    is_output: bool


@dataclass(frozen=True)
class Block:
    name: str | None
    bundled_input: int
    allocators: tuple[str, ...]
    events: tuple[ProfileEvent | AllocationEvent | DebugEvent, ...]


@dataclass(frozen=True)
class Dump:
    """What an ETDump says, and two ways of writing it that a reader must not care about."""

    blocks: tuple[Block, ...]
    write_defaults: bool
    size_prefixed: bool

    def to_bytes(self) -> bytes:
        builder = flatbuffers.Builder(256)
        builder.ForceDefaults(self.write_defaults)
        blocks = list_of(builder, [_block(builder, block) for block in self.blocks])
        root = table_of(builder, 2, [("Uint32", 0, 0, 0), (REFERENCE, 1, blocks, 0)])
        finish = builder.FinishSizePrefixed if self.size_prefixed else builder.Finish
        finish(root, file_identifier=b"ED00")
        return bytes(builder.Output())


def dump_of_calls(calls: Iterable[tuple[str, Sequence[tuple[str, int]]]]) -> bytes:
    """One run: each call is its kind and its operators, (name, microseconds), with 1 us around them."""
    clock, events = 0, []
    for number, (kind, operators) in enumerate(calls):
        start = clock
        clock += 500
        for name, us in operators:
            named = (None, name) if kind == "DELEGATE_CALL" else (name, None)
            events.append(ProfileEvent(named[0], 0, number, -1, named[1], None, clock, clock + us * 1000))
            clock += us * 1000
        clock += 500
        events.append(ProfileEvent(kind, 0, number, -1, None, None, start, clock))
    events.append(ProfileEvent("Method::execute", -1, 0, -1, None, None, 0, clock))
    return Dump((Block("Execute", -1, (), tuple(events)),), True, False).to_bytes()


def list_of(builder: flatbuffers.Builder, offsets: list[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def table_of(builder: flatbuffers.Builder, slots: int, fields: Iterable[tuple[str, int, int, int]]) -> int:
    """A table with so many slots; of each field the type, the slot, the value and the default."""
    builder.StartObject(slots)
    for kind, slot, value, default in fields:
        if (kind, value) != (REFERENCE, 0):
            getattr(builder, f"Prepend{kind}Slot")(slot, value, default)
    return int(builder.EndObject())


REFERENCE = "UOffsetTRelative"
"""The type of a field that refers to a string, a list or a table; 0 is to nothing."""


def _string(builder: flatbuffers.Builder, text: str | None) -> int:
    return 0 if text is None else int(builder.CreateString(text))


def _block(builder: flatbuffers.Builder, block: Block) -> int:
    events = list_of(builder, [_event(builder, event) for event in block.events])
    named = [_string(builder, name) for name in block.allocators]
    allocators = [table_of(builder, 1, [(REFERENCE, 0, name, 0)]) for name in named]
    listed = list_of(builder, allocators) if allocators else 0
    name = (REFERENCE, 0, _string(builder, block.name), 0)
    own = [name, ("Int32", 1, block.bundled_input, -1), (REFERENCE, 2, listed, 0), (REFERENCE, 3, events, 0)]
    return table_of(builder, 4, own)


def _event(builder: flatbuffers.Builder, event: ProfileEvent | AllocationEvent | DebugEvent) -> int:
    if isinstance(event, ProfileEvent):
        slot, content = 0, _profile_event(builder, event)
    elif isinstance(event, AllocationEvent):
        slot, fields = 1, [("Int32", 0, event.allocator, 0), ("Uint64", 1, event.size, 0)]
        content = table_of(builder, 2, fields)
    else:
        slot, content = 2, _debug_event(builder, event)
    return table_of(builder, 3, [(REFERENCE, slot, content, 0)])


def _profile_event(builder: flatbuffers.Builder, event: ProfileEvent) -> int:
    name, delegate_name = _string(builder, event.name), _string(builder, event.delegate_name)
    metadata = 0 if event.metadata is None else builder.CreateByteVector(event.metadata)
    return table_of(builder, 8, [
        (REFERENCE, 0, name, 0), ("Int32", 1, event.chain_index, 0), ("Int32", 2, event.instruction_id, -1),
        ("Int32", 3, event.delegate_id, -1), (REFERENCE, 4, delegate_name, 0), (REFERENCE, 5, metadata, 0),
        ("Uint64", 6, event.start, 0), ("Uint64", 7, event.end, 0),
    ])  # fmt: skip


def _debug_event(builder: flatbuffers.Builder, event: DebugEvent) -> int:
    name, delegate_name = _string(builder, event.name), _string(builder, event.delegate_name)
    output = table_of(builder, 1, [("Bool", 0, event.is_output, False)])
    value = table_of(builder, 8, [("Int8", 0, 1, 0), (REFERENCE, 7, output, 0)])
    return table_of(builder, 6, [
        ("Int32", 1, event.instruction_id, -1), (REFERENCE, 2, value, 0), ("Int32", 3, event.delegate_id, -1),
        (REFERENCE, 4, delegate_name, 0), (REFERENCE, 5, name, 0),
    ])  # fmt: skip


_names = st.one_of(
    st.none(),
    st.sampled_from(
        ["Method::execute", "DELEGATE_CALL", "OPERATOR_CALL", "Fully Connected (NC, F32) GEMM #1"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.integers(240, 300).map(lambda length: "x" * length),
)
_ids = st.one_of(st.just(-1), st.integers(-1, 2**31 - 1))


@st.composite
def profile_events(draw: st.DrawFn) -> ProfileEvent:
    start = draw(st.integers(0, 2**62))
    return ProfileEvent(
        name=draw(_names),
        chain_index=draw(st.integers(-1, 3)),
        instruction_id=draw(_ids),
        delegate_id=draw(_ids),
        delegate_name=draw(_names),
        metadata=draw(st.one_of(st.none(), st.binary(max_size=20))),
        start=start,
        end=start + draw(st.integers(0, 2**61)),
    )


_allocation_events = st.builds(AllocationEvent, st.integers(0, 4), st.integers(0, 2**62))
_debug_events = st.builds(DebugEvent, _names, _ids, _ids, _names, st.booleans())
_blocks = st.builds(
    Block,
    st.one_of(st.none(), st.sampled_from(["Default", "Execute"])),
    st.integers(-1, 5),
    st.lists(st.sampled_from(["method", "planned"]), max_size=3).map(tuple),
    st.lists(
        st.one_of(profile_events(), profile_events(), _allocation_events, _debug_events), max_size=8
    ).map(tuple),
)
dumps = st.builds(Dump, st.lists(_blocks, max_size=5).map(tuple), st.booleans(), st.booleans())

_TELLING_NUMBERS = (
    0, 1, 2, 3, 4, 7, 8, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF,
)  # fmt: skip


def damage(data: bytes, chance: random.Random) -> bytes:
    """`data` after one to a few accidents: flipped bits, wrong numbers, moved or lost stretches."""
    damaged = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        if len(damaged) < 16:
            break
        at = chance.randrange(len(damaged))
        # Offsets and counts sit mostly at the ends of a file; half of the accidents happen near its start.
        if chance.random() < 0.5:
            at = chance.randrange(min(len(damaged), 512))
        accident = chance.randrange(7)
        if accident == 0:
            damaged[at] ^= 1 << chance.randrange(8)
        elif accident == 1:
            damaged[at] = chance.randrange(256)
        elif accident in (2, 3):
            word = at & ~3
            number = chance.choice((*_TELLING_NUMBERS, chance.randrange(2**32), chance.randrange(len(data))))
            damaged[word : word + 4] = struct.pack("<I", number)
        elif accident == 4:
            del damaged[at:]
        elif accident == 5:
            source = chance.randrange(len(damaged))
            length = chance.randrange(64)
            damaged[at : at + length] = damaged[source : source + length]
        else:
            word = at & ~3
            now = int.from_bytes(damaged[word : word + 4], "little")
            damaged[word : word + 4] = struct.pack("<I", (now + chance.choice((-4, -1, 1, 4, 8))) % 2**32)
    return bytes(damaged)


def graph(*kinds: str, dtype: str = "fp32") -> list[GraphNode]:
    """A chain of nodes; `Convert>` goes from a quantized type to fp32, `>Convert` the other way, `Add+` ends
    in a clamp."""
    nodes = []
    for index, kind in enumerate(kinds):
        before = Tensor((1,), "qint8" if kind.endswith(">") else dtype)
        after = Tensor((1,), "qint8" if kind.startswith(">") else dtype)
        clamp = (0.0, None) if kind.endswith("+") else None
        ids = (index,), (index + 1,)
        name = kind.strip(">+")
        nodes.append(GraphNode(index, name, index, (before,), (after,), *ids, None, clamp, (), 0, 0))
    return nodes


@st.composite
def outputs(draw: st.DrawFn, most_dimensions: int = 3) -> np.ndarray:
    """What a model may return in float32: of any shape, around one magnitude, seldom with zeros only."""
    shape = draw(npst.array_shapes(max_dims=most_dimensions, max_side=12))
    values = draw(npst.arrays(np.float32, shape, elements=st.floats(-8, 8, width=16)))
    return np.ldexp(values, draw(st.integers(-20, 20))).astype(np.float32)
