"""Operator boundaries beside a dump: read whole or refused, used where they fit the dump and nowhere else."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from said import refused, says
from strategies import Block, Dump, ProfileEvent, damage

from model_profiling.analysis.operators import CUT, EXACT, OWN, TimedDump, read_timed, with_boundaries
from model_profiling.analysis.summary import analyse_dump
from model_profiling.core.errors import FormatError
from model_profiling.etdump import EventTable, boundaries_beside, read_boundaries, read_etdump
from model_profiling.run import Series
from model_profiling.run import run as opened

MADE = opened.Dump(Path("made.etdump"), Series("made"))
Told = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


def file_of(looks: Sequence[Sequence[int]], invocations: Sequence[tuple[int, Sequence[int]]]) -> bytes:
    """`looks` for each operator of each delegate; of each invocation its delegate and its times."""
    counts = [len(delegate) for delegate in looks]
    every = [look for delegate in looks for look in delegate]
    words = [*counts, *every, *(which for which, _ in invocations)]
    head = b"SME2PBND" + struct.pack("<IIQ", 1, len(looks), len(invocations))
    head += struct.pack(f"<{len(words)}I", *words)
    times = [time for _, told in invocations for time in told]
    return head + bytes(-len(head) % 8) + struct.pack(f"<{len(times)}q", *times)


# Two runs of one delegate with two operators, the first of two parts, and of one with a single operator.
LOOKS = ((2, 1), (1,))
INVOCATIONS = (
    (0, (2_000, 5_900, 6_850)),
    (1, (11_500, 13_499)),
    (0, (102_000, 105_300, 106_000)),
    (1, (111_000, 111_400)),
)
WHOLE = file_of(LOOKS, INVOCATIONS)
# What XNNPACK tells of them: whole microseconds of each part, laid back to back.
TOLD_US: Told = (((2, 0), (1,)), ((3, 0), (0,)))


def operator(name: str, start: int, duration: int, instruction: int) -> ProfileEvent:
    return ProfileEvent(None, 0, instruction, -1, name, None, start, start + duration)


def event(name: str, start: int, end: int, instruction: int = 0, chain: int = 0) -> ProfileEvent:
    return ProfileEvent(name, chain, instruction, -1, None, None, start, end)


def dump_of(told: Told = TOLD_US) -> bytes:
    blocks = []
    for run, (first, second) in enumerate(told):
        at = 100_000 * run
        ends = [at + 1_900 + 1_000 * sum(first[:number]) for number in range(len(first) + 1)]
        events = (
            *(operator(f"Copy (NC, X32) #{n + 1}", ends[n], 1_000 * took, 0) for n, took in enumerate(first)),
            event("DELEGATE_CALL", at + 1_000, at + 10_000, 0),
            *(operator("Fully Connected (NC, F32) GEMM #1", at + 11_000, 1_000 * took, 1) for took in second),
            event("DELEGATE_CALL", at + 10_500, at + 15_000, 1),
            event("Method::execute", at, at + 16_000, chain=-1),
        )
        blocks.append(Block("Execute", -1, (), events))
    return Dump(tuple(blocks), True, False).to_bytes()


def operators_in(table: EventTable) -> list[tuple[int, int]]:
    ours = table.is_delegated
    return list(zip(table.start_ns[ours].tolist(), table.duration_ns[ours].tolist(), strict=True))


def fitted(boundaries: bytes, told: Told = TOLD_US) -> TimedDump:
    return with_boundaries(read_etdump(dump_of(told)), read_boundaries(boundaries))


def test_operators_get_their_true_starts_and_durations_and_the_rest_is_known() -> None:
    found = fitted(WHOLE)
    assert found.clock == EXACT and not found.remarks
    first, second = [(2_000, 3_900), (5_900, 950), (11_500, 1_999)], [(102_000, 3_300), (105_300, 700)]
    assert operators_in(found.table) == [*first, *second, (111_000, 400)]
    dump = analyse_dump(found, MADE)
    parts = dump.breakdown
    assert dump.clock == EXACT and parts.closes
    assert not parts.unattributed.any() and not parts.delegate_overhead.any()
    # The run less its operators; of that, what came after the last operator of each call.
    assert parts.framework.tolist() == [16_000 - 6_849, 16_000 - 4_400]
    assert parts.tracing.tolist() == [3_150 + 1_501, 4_000 + 3_600]


def test_a_dump_alone_is_what_it_was() -> None:
    dump = analyse_dump(read_etdump(dump_of()), MADE)
    assert dump.clock == CUT and not dump.breakdown.tracing.any()
    assert dump.breakdown.closes and dump.breakdown.unattributed.tolist() == [13_500 - 3_000] * 2


@pytest.mark.parametrize(
    "told",
    [
        pytest.param((((4, 0), (1,)), TOLD_US[1]), id="it took less than it is told to"),
        pytest.param((((1, 0), (1,)), TOLD_US[1]), id="more is missing than two parts can lose"),
        pytest.param((((2, 0, 0), (1,)), TOLD_US[1]), id="another number of operators"),
    ],
)
def test_a_call_that_does_not_fit_keeps_its_own_times_and_that_is_said(told: Told) -> None:
    found = fitted(WHOLE, told)
    (remark,) = found.remarks
    says(remark.seen, "not fit", "1 of 4 delegate calls")
    says(found.clock, EXACT, "3 of 4 delegate calls", CUT)
    alone = operators_in(read_etdump(dump_of(told)))
    count = len(told[0][0])
    assert operators_in(found.table)[:count] == alone[:count]
    dump = analyse_dump(found, MADE)
    assert dump.breakdown.closes and dump.breakdown.unattributed[0] > 0
    assert remark.seen in [warning.seen for warning in dump.warnings]


def test_boundaries_of_another_run_are_not_used() -> None:
    fewer = fitted(file_of(LOOKS, INVOCATIONS[:2]))
    says(fewer.remarks[0].seen, "2 invocations", "4 calls")
    late = fitted(
        file_of(LOOKS, [(which, [time + 50_000 for time in times]) for which, times in INVOCATIONS])
    )
    says(late.remarks[0].seen, "not fit", "4 of 4 delegate calls")
    for found in (fewer, late):
        assert found.clock == CUT and operators_in(found.table) == operators_in(read_etdump(dump_of()))


def test_without_delegates_the_times_are_the_runtimes_own() -> None:
    events = (event("OPERATOR_CALL", 1, 9), event("Method::execute", 0, 10, chain=-1))
    table = read_etdump(Dump((Block("Execute", -1, (), events),), True, False).to_bytes())
    assert analyse_dump(table, MADE).clock == OWN
    found = with_boundaries(table, read_boundaries(file_of((), ())))
    assert found.clock == OWN and not found.remarks


def test_what_lies_beside_a_dump_is_found_and_damage_costs_exactness_alone(tmp_path: Path) -> None:
    dump = tmp_path / "x.etdump"
    dump.write_bytes(dump_of())
    assert read_timed(dump).clock == CUT
    beside = boundaries_beside(dump)
    beside.write_bytes(WHOLE)
    assert beside.name == "x.etdump.boundaries" and read_timed(dump).clock == EXACT
    beside.write_bytes(WHOLE[:-8])
    found = read_timed(dump)
    assert found.clock == CUT
    says(found.remarks[0].seen, beside, "damaged", "byte 64")
    beside.write_bytes(b"")
    assert read_timed(dump).clock == CUT


@pytest.mark.parametrize(
    ("changed", "facts"),
    [
        (b"ETDUMP" + WHOLE[6:], ("not a file of operator boundaries",)),
        (WHOLE[:8] + struct.pack("<I", 2) + WHOLE[12:], ("version 2",)),
        (WHOLE[:16] + struct.pack("<Q", 2**63) + WHOLE[24:], ("number", "byte 16")),
        (WHOLE[:16] + struct.pack("<Q", 2**61) + WHOLE[24:], ("delegates of invocations", "byte")),
        (WHOLE + bytes(8), ("last time", f"byte {len(WHOLE)}")),
        (file_of(((2, 0), (1,)), INVOCATIONS), ("operator", "byte 36")),
        (file_of(LOOKS, ((2, (1, 2)),)), ("invocation", "byte 44")),
        (file_of(LOOKS, ((1, (-1, 2)),)), ("time", "byte 48")),
        (file_of(LOOKS, ((1, (1, 2)), (1, (9, 8)))), ("operator", "byte 80")),
    ],
    ids=lambda value: " at ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_wrong_is_named_with_its_place(changed: bytes, facts: tuple[str, ...]) -> None:
    with refused(FormatError, *facts):
        read_boundaries(changed)


def test_an_invocation_may_begin_before_another_ended_on_paper() -> None:
    assert read_boundaries(file_of(LOOKS, ((1, (8, 9)), (1, (1, 2))))).invocations == 2


operator_looks = st.lists(st.lists(st.integers(1, 5), max_size=4), min_size=1, max_size=4)


@given(operator_looks, st.data())
@settings(max_examples=60)
def test_what_was_written_is_read(looks: list[list[int]], data: st.DataObject) -> None:
    which = data.draw(st.lists(st.integers(0, len(looks) - 1), max_size=8))
    times = [
        sorted(
            data.draw(st.lists(st.integers(0, 2**50), min_size=len(looks[w]) + 1, max_size=len(looks[w]) + 1))
        )
        for w in which
    ]
    found = read_boundaries(file_of(looks, list(zip(which, times, strict=True))))
    assert found.delegate.tolist() == which
    assert [found.times_ns[a:b].tolist() for a, b in zip(found.first, found.first[1:], strict=False)] == times
    assert found.operators.tolist() == [len(looks[w]) for w in which]


@given(st.integers(0, 2**32))
@settings(max_examples=150)
def test_damage_is_refused_or_harmless(seed: int) -> None:
    try:
        found = read_boundaries(damage(WHOLE, random.Random(seed)))
    except FormatError as refusal:
        assert refusal.problem and refusal.fix
        return
    # Whatever it says now, an analysis with it adds up.
    timed = with_boundaries(read_etdump(dump_of()), found)
    assert analyse_dump(timed, MADE).breakdown.closes
