"""Damaged and hostile dumps end in one clear error, soon and in little memory (long campaign: bench/)."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import flatbuffers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from said import refused
from strategies import Dump, damage, dumps

from model_profiling.core.errors import FormatError
from model_profiling.etdump import read_etdump

DATA = Path(__file__).resolve().parents[1] / "data" / "etdump"
# A reader that follows every shared list goes on for hours; a busy machine may take its time.
pytestmark = pytest.mark.timeout(200)
SEEDS = [(DATA / name).read_bytes() for name in ("every_kind.etdump", "three_delegates.etdump")]


@contextmanager
def frugal(megabytes: int = 64) -> Iterator[None]:
    """The block may not allocate much."""
    tracemalloc.start()
    try:
        yield
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < megabytes * 2**20


def read_or_refuse(data: bytes) -> None:
    try:
        table = read_etdump(data)
    except FormatError as refusal:
        assert refusal.problem
        assert refusal.fix
        return
    table.text(table.name)


@given(st.sampled_from(SEEDS), st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_real_dumps_survive_accidents(whole: bytes, seed: int) -> None:
    read_or_refuse(damage(whole, random.Random(seed)))


@given(dumps, st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_made_up_dumps_survive_accidents(written: Dump, seed: int) -> None:
    read_or_refuse(damage(written.to_bytes(), random.Random(seed)))


@pytest.mark.parametrize("number", [0, 0x80000000, 0xFFFFFFFF])
def test_every_word_may_hold_the_wrong_number(number: int) -> None:
    whole = SEEDS[0]
    for at in range(0, len(whole), 4):
        read_or_refuse(whole[:at] + struct.pack("<I", number) + whole[at + 4 :])


def hostile(blocks: int, events: int, name_length: int = 0) -> bytes:
    """A dump whose blocks share one list of events, whose names (where asked for) overlap one another."""
    builder = flatbuffers.Builder(1024)
    names = 0
    if name_length:
        # Wherever a name is said to begin in here, it has that length and runs through the ones after it.
        names = builder.CreateByteVector(struct.pack("<I", name_length) * (events + name_length // 4 + 1))
    made = []
    for number in range(events):
        builder.StartObject(8)
        if names:
            builder.PrependUOffsetTRelativeSlot(0, names - 4 - 4 * number, 0)
        builder.PrependUint64Slot(7, 1, 0)
        profile = builder.EndObject()
        builder.StartObject(3)
        builder.PrependUOffsetTRelativeSlot(0, profile, 0)
        made.append(builder.EndObject())
    builder.StartVector(4, len(made), 4)
    for offset in made:
        builder.PrependUOffsetTRelative(offset)
    shared = builder.EndVector()
    made = []
    for _ in range(blocks):
        builder.StartObject(4)
        builder.PrependUOffsetTRelativeSlot(3, shared, 0)
        made.append(builder.EndObject())
    builder.StartVector(4, len(made), 4)
    for offset in made:
        builder.PrependUOffsetTRelative(offset)
    listed = builder.EndVector()
    builder.StartObject(2)
    builder.PrependUOffsetTRelativeSlot(1, listed, 0)
    builder.FinishSizePrefixed(builder.EndObject(), file_identifier=b"ED00")
    return bytes(builder.Output())


def test_blocks_that_share_their_events_cannot_multiply_them() -> None:
    data = hostile(blocks=3000, events=3000)
    with frugal(), refused(FormatError, "list of events", "overlaps"):
        read_etdump(data)


def test_names_that_overlap_cannot_multiply_their_bytes() -> None:
    data = hostile(blocks=1, events=3000, name_length=100_000)
    with frugal(), refused(FormatError, "event's name", "overlaps"):
        read_etdump(data)


def test_a_name_that_every_line_would_repeat_is_refused() -> None:
    """Events may share one of a megabyte; the lines of a CSV file could not."""
    data = hostile(blocks=1, events=1, name_length=1_000_000)
    with frugal(), refused(FormatError, "name", "1000000 bytes"):
        read_etdump(data)
    longest = read_etdump(hostile(blocks=1, events=1, name_length=4096))
    assert len(longest.names[longest.name[0]]) == 4096


def test_a_count_beyond_the_file_is_refused_before_anything_is_allocated() -> None:
    data = hostile(blocks=2, events=5)
    at = data.index(struct.pack("<I", 5))
    with frugal(), refused(FormatError, "list of events", f"byte {at}"):
        read_etdump(data[:at] + struct.pack("<I", 0x3FFFFFFF) + data[at + 4 :])
