"""What the reader makes of dumps whose content is known, and of damaged and hostile ones."""

import cProfile
import mmap
import pstats
import random
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import flatbuffers
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from said import refused
from strategies import REFERENCE, Block, Dump, ProfileEvent, damage, dumps, list_of, table_of

from model_profiling.core.errors import FormatError
from model_profiling.etdump import EventTable, read_etdump, reader

DATA = Path(__file__).resolve().parents[1] / "data" / "etdump"


def event(name: str = "OPERATOR_CALL", start: int = 10, end: int = 30, **fields: object) -> ProfileEvent:
    known: dict[str, object] = {"chain_index": 0, "instruction_id": 0, "delegate_id": -1}
    known |= {"delegate_name": None, "metadata": None, **fields}
    return ProfileEvent(name=name, start=start, end=end, **known)  # type: ignore[arg-type]


def dump(*events: ProfileEvent, runs: int = 1) -> bytes:
    block = Block("Execute", -1, (), events)
    return Dump((block,) * runs, write_defaults=False, size_prefixed=True).to_bytes()


def texts(table: EventTable, column: np.ndarray) -> list[str | None]:
    return list(table.text(column))


@given(dumps)
@settings(max_examples=75, deadline=None)
def test_everything_written_is_read_back(written: Dump) -> None:
    table = read_etdump(written.to_bytes())
    rows = [(index, each) for index, block in enumerate(written.blocks) for each in block.events]

    profile = [(index, each) for index, each in rows if isinstance(each, ProfileEvent)]
    assert table.block.tolist() == [index for index, _ in profile]
    as_inspector = [
        str(e.delegate_id) if e.delegate_id != -1 else e.delegate_name or e.name for _, e in profile
    ]
    assert texts(table, table.name) == [name or "" for name in as_inspector]
    assert texts(table, table.delegate_name) == [e.delegate_name or None for _, e in profile]
    for field in ("chain_index", "instruction_id", "delegate_id"):
        assert getattr(table, field).tolist() == [getattr(e, field) for _, e in profile]
    assert table.start_ns.tolist() == [e.start for _, e in profile]
    assert table.end_ns.tolist() == [e.end for _, e in profile]
    assert table.duration_ns.tolist() == [e.end - e.start for _, e in profile]

    assert texts(table, table.blocks.name) == [block.name or "" for block in written.blocks]
    labels = [block.name or "" for block in written.blocks]
    assert table.blocks.run_index.tolist() == [labels[:i].count(label) for i, label in enumerate(labels)]
    assert np.diff(table.blocks.first_event).tolist() == [
        sum(isinstance(e, ProfileEvent) for e in block.events) for block in written.blocks
    ]


def test_names_stay_apart_when_their_hashes_meet_also_at_the_end_of_the_file(monkeypatch):
    data = dump(event("same length a"), event("same length b"), event("same length a"), event("c"))
    expected = texts(read_etdump(data), read_etdump(data).name)
    monkeypatch.setattr(reader, "_MULTIPLIER", np.uint64(0))
    table = read_etdump(data)
    assert texts(table, table.name) == expected == ["same length a", "same length b", "same length a", "c"]
    assert len(set(table.names)) == len(table.names)
    # All hashes meet in the name read first, which the writer puts last: in rows as wide as the longest name
    # it would leave the file.
    monkeypatch.setattr(reader, "_MULTIPLIER", np.uint64(0))
    between = [event(f"operator {number}") for number in range(20)]
    again = event("b", delegate_name="a short name")
    longer = event("c", delegate_name="x" * 200)
    block = Block(None, -1, (), (event("a short name"), *between, again, longer))
    table = read_etdump(Dump((block,), write_defaults=False, size_prefixed=True).to_bytes())
    assert texts(table, table.name)[-2:] == ["a short name", "x" * 200]
    assert table.name[0] == table.name[-2]


def test_a_file_a_map_and_bytes_at_an_odd_address_read_alike_with_the_promised_columns(tmp_path):
    data = dump(event("a"), event("b", delegate_name="Clamp (NC) #1"), runs=3)
    path = tmp_path / "x.etdump"
    path.write_bytes(data)
    with path.open("rb") as stream:
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    sources = (path, str(path), mapped, memoryview(b"x" + data)[1:], data)
    first, *others = (read_etdump(source).to_pandas() for source in sources)
    assert all(frame.equals(first) for frame in others)
    delegated = dump(event("DELEGATE_CALL"), event("", delegate_name="Add (ND) #1"), runs=2)
    frame = read_etdump(delegated).to_pandas()
    assert list(frame.columns[:8]) == [
        "run_index", "block", "name", "start_ns", "end_ns", "duration_ns", "instruction_id", "delegate_name",
    ]  # fmt: skip
    assert frame["name"].tolist() == ["DELEGATE_CALL", "Add (ND) #1"] * 2
    assert frame["delegate_name"].isna().tolist() == [True, False] * 2
    assert frame["run_index"].tolist() == [0, 0, 1, 1]
    assert set(frame["block"]) == {"Execute"}


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        (b"", ("not an ETDump",)),
        (b"PK\x03\x04" + bytes(40), ("not an ETDump",)),
        (dump(event("x", 2**40, 5)), ("ends before", "at byte")),
        (dump(event("x", 2**32 - 11, 20)), ("ends before", "at byte")),
        (dump(event("x", 0, 2**63)), ("number", "out of range")),
        (dump(event("ok"))[:-1], ("cut short",)),
        (dump(event("a name")).replace(b"a name", b"\xff\xfe\xfd\xfc\xfb\xfa"), ("not text",)),
    ],
)
def test_a_wrong_dump_is_one_error_that_says_where(data: bytes, facts: tuple[str, ...]) -> None:
    with refused(FormatError, *facts):
        read_etdump(data)


@pytest.mark.parametrize("size_prefixed", [True, False])
def test_no_truncation_goes_unnoticed(size_prefixed: bool) -> None:
    blocks = (Block("Default", -1, (), (event("load"),)), Block("Execute", -1, (), (event("a"), event("b"))))
    data = Dump(blocks, write_defaults=True, size_prefixed=size_prefixed).to_bytes()
    whole = read_etdump(data).to_pandas()
    for length in range(len(data)):
        try:
            table = read_etdump(data[:length])
        except FormatError:
            continue
        # Only padding at the very end can be missing without a trace, and only where no size is written.
        assert not size_prefixed
        assert length > len(data) - 8
        assert table.to_pandas().equals(whole)


def test_the_number_of_python_calls_does_not_grow_with_the_number_of_events() -> None:
    def calls(runs: int) -> int:
        data = dump(*(event(f"operator {number}") for number in range(40)), runs=runs)
        profile = cProfile.Profile()
        profile.enable()
        read_etdump(data)
        profile.disable()
        return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]

    assert calls(runs=500) < 1.5 * calls(runs=5)


def test_a_dump_from_executorchs_own_writer_is_read_whole() -> None:
    """See tests/data/etdump/README.md for what was put in."""
    table = read_etdump(DATA / "every_kind.etdump")
    assert texts(table, table.blocks.name) == ["Default", "Execute"]
    names = "Program::load_method|7|Add (ND) #1|DELEGATE_CALL|Method::execute"
    assert texts(table, table.name) == names.split("|")
    assert table.duration_ns.tolist() == [90, 20, 30, 70, 100]
    assert table.instruction_id.tolist() == [-1, 3, 3, 3, -1]
    assert table.is_delegated.tolist() == [False, True, True, False, False]


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
        assert refusal.problem and refusal.fix
        return
    table.text(table.name)


@given(st.sampled_from(SEEDS), st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_real_dumps_survive_accidents(whole: bytes, seed: int) -> None:
    read_or_refuse(damage(whole, random.Random(seed)))


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
        name = names - 4 - 4 * number if names else 0
        profile = table_of(builder, 8, [(REFERENCE, 0, name, 0), ("Uint64", 7, 1, 0)])
        made.append(table_of(builder, 3, [(REFERENCE, 0, profile, 0)]))
    shared = list_of(builder, made[::-1])
    listed = list_of(builder, [table_of(builder, 4, [(REFERENCE, 3, shared, 0)]) for _ in range(blocks)])
    root = table_of(builder, 2, [(REFERENCE, 1, listed, 0)])
    builder.FinishSizePrefixed(root, file_identifier=b"ED00")
    return bytes(builder.Output())


def test_what_overlaps_repeats_or_is_beyond_the_file_costs_no_memory() -> None:
    data = hostile(blocks=3000, events=3000)
    with frugal(), refused(FormatError, "list of events", "overlaps"):
        read_etdump(data)
    data = hostile(blocks=1, events=3000, name_length=100_000)
    with frugal(), refused(FormatError, "event's name", "overlaps"):
        read_etdump(data)
    # Events may share one of a megabyte; the lines of a CSV file could not.
    data = hostile(blocks=1, events=1, name_length=1_000_000)
    with frugal(), refused(FormatError, "name", "1000000 bytes"):
        read_etdump(data)
    longest = read_etdump(hostile(blocks=1, events=1, name_length=4096))
    assert len(longest.names[longest.name[0]]) == 4096
    data = hostile(blocks=2, events=5)
    at = data.index(struct.pack("<I", 5))
    with frugal(), refused(FormatError, "list of events", f"byte {at}"):
        read_etdump(data[:at] + struct.pack("<I", 0x3FFFFFFF) + data[at + 4 :])
