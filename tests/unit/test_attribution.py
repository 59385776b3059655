"""The tree of events where runs are odd, and operator boundaries beside a dump: used where they fit."""

import random
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from said import refused, says
from strategies import Block, Dump, ProfileEvent, damage

from model_profiling.analysis.attribution import Attribution, Share, attribute
from model_profiling.analysis.operators import analyse_dump
from model_profiling.analysis.series import series_of
from model_profiling.config.series import Series
from model_profiling.core.errors import FormatError
from model_profiling.etdump import EventTable, boundaries_beside, read_boundaries, read_etdump
from model_profiling.etdump.reader import CUT, EXACT, OWN, TimedDump, read_timed, with_boundaries
from model_profiling.runs import run

MADE = run.Dump(Path("made.etdump"), Series("made"))


def event(name: str, start: int, end: int, instruction: int = 0, chain: int = 0) -> ProfileEvent:
    return ProfileEvent(name, chain, instruction, -1, None, None, start, end)


def inside_delegate(name: str, start: int, end: int, instruction: int = 0) -> ProfileEvent:
    return ProfileEvent(None, 0, instruction, -1, name, None, start, end)


def execute(start: int, end: int) -> ProfileEvent:
    return event("Method::execute", start, end, chain=-1)


def table_of(folder: Path, *blocks: tuple[ProfileEvent, ...], name: str = "Execute") -> EventTable:
    content = Dump(tuple(Block(name, -1, (), events) for events in blocks), True, False).to_bytes()
    path = folder / "made.etdump"
    path.write_bytes(content)
    return read_etdump(path)


def shares(attribution: Attribution) -> dict[str, int]:
    return {share.value: int(attribution.total_ns(share)[0]) for share in Share}


def test_each_level_keeps_what_its_children_leave(tmp_path: Path) -> None:
    events = (
        event("native_call_add.out", 20, 50),
        event("OPERATOR_CALL", 10, 60),
        inside_delegate("Convolution (NHWC, F32) IGEMM #1", 100, 140, 1),
        inside_delegate("Transpose (ND, X32) #1", 140, 150, 1),
        event("DELEGATE_CALL", 90, 170, 1),
        event("MOVE_CALL", 170, 173, 2),
    )
    found = attribute(table_of(tmp_path, (*events, execute(0, 200))))
    # Between calls 200-50-80-3, preparing the operator 50-30, moving 3; in the delegate 80-40-10.
    assert shares(found) == {"operator": 30 + 50, "framework": 67 + 20 + 3, "delegate": 30, "opaque": 0}
    assert [(n.name, n.call, n.position) for n in found.groups[0].operators] == [
        ("native_call_add.out", 0, 0),
        ("Convolution (NHWC, F32) IGEMM #1", 1, 0),
        ("Transpose (ND, X32) #1", 1, 1),
    ]


def test_a_delegate_that_reports_nothing_or_by_another_clock(tmp_path: Path) -> None:
    call = (event("DELEGATE_CALL", 10, 90), execute(0, 100))
    table = table_of(tmp_path, call)
    assert shares(attribute(table)) == {"operator": 0, "framework": 20, "delegate": 0, "opaque": 80}
    dump = analyse_dump(table, MADE)
    assert dump.breakdown.unattributed.tolist() == [80] and dump.breakdown.delegate_overhead.tolist() == [0]
    dump = analyse_dump(table_of(tmp_path, (inside_delegate("Add (ND) #1", 0, 500), *call)), MADE)
    assert dump.breakdown.delegate_overhead.tolist() == [-420] and dump.breakdown.closes
    assert any("add up to more than the call" in warning.seen for warning in dump.warnings)


def test_a_kernel_is_seen_by_its_call_and_not_counted_twice(tmp_path: Path) -> None:
    table = table_of(tmp_path, (event("OPERATOR_CALL", 10, 90), execute(0, 100)))
    dump = analyse_dump(table, MADE)
    assert [(operator.name, operator.known) for operator in dump.operators] == [("OPERATOR_CALL", False)]
    assert dump.breakdown.closes
    kernels = (event("native_call_mm.out", 20, 60), event("native_call_linear.out", 15, 80))
    table = table_of(tmp_path, (*kernels, event("OPERATOR_CALL", 10, 90), execute(0, 100)))
    dump = analyse_dump(table, MADE)
    found = [(one.name, one.times.typical_ns) for one in series_of([dump]).operators]
    assert found == [("native_call_mm.out", 40), ("native_call_linear.out", 25)]
    assert dump.breakdown.closes


def test_an_instruction_that_a_loop_repeats_is_an_operator_each_time(tmp_path: Path) -> None:
    body: list[ProfileEvent] = []
    for start in (10, 40, 70):
        add = event("native_call_add.out", start + 1, start + 9, 3)
        call, jump = event("OPERATOR_CALL", start, start + 10, 3), event("JF_CALL", start + 10, start + 12, 4)
        body += (add, call, jump)
    dump = analyse_dump(table_of(tmp_path, (*body, execute(0, 100))), MADE)
    found = [(one.call, one.occurrence, one.times.runs) for one in series_of([dump]).operators]
    assert found == [(0, 0, 1), (2, 1, 1), (4, 2, 1)]
    assert dump.breakdown.closes


def test_runs_of_different_structure_are_told_apart_and_still_close(tmp_path: Path) -> None:
    short = (event("native_call_add.out", 2, 8), event("OPERATOR_CALL", 1, 9), execute(0, 10))
    other = (event("native_call_mul.out", 2, 8), event("OPERATOR_CALL", 1, 9), execute(0, 11))
    more = (event("native_call_mm.out", 11, 18, 1), event("OPERATOR_CALL", 10, 19, 1))
    long = (*short[:2], *more, execute(0, 20))
    dump = analyse_dump(table_of(tmp_path, short, long, other, short, long, short), MADE)
    assert [len(group.runs) for group in dump.attribution.groups] == [3, 2, 1]
    assert dump.breakdown.e2e.tolist() == [10, 20, 11, 10, 20, 10] and dump.breakdown.closes
    assert {one.name: one.times.runs for one in series_of([dump]).operators} == {
        "native_call_add.out": 5, "native_call_mm.out": 2, "native_call_mul.out": 1,
    }  # fmt: skip
    assert any("runs differ in structure" in warning.seen for warning in dump.warnings)


def test_runs_that_never_finished_and_warm_up_are_left_out_and_said_so(tmp_path: Path) -> None:
    whole = (event("native_call_add.out", 2, 8), event("OPERATOR_CALL", 1, 9), execute(0, 10))
    found = attribute(table_of(tmp_path, whole, whole[:2]))
    assert found.run_count == 1 and found.event_count == 3
    assert any("never finished" in warning.seen for warning in found.warnings)
    several = attribute(table_of(tmp_path, whole * 3))
    assert several.run_count == 3 and len(several.groups) == 1, "also in one block"
    runs = [(event("OPERATOR_CALL", 1, 5), execute(0, length)) for length in (90, 10, 11)]
    found = attribute(table_of(tmp_path, *runs), warmup_runs=1)
    assert found.e2e_ns().tolist() == [10, 11] and found.warnings == ()
    with refused(FormatError, "3", "warm-up"):
        attribute(table_of(tmp_path, *runs), warmup_runs=3)
    with refused(FormatError, "Method::execute"):
        attribute(table_of(tmp_path, (event("Method::init", 0, 10, chain=-1),), name="Default"))


names = ["OPERATOR_CALL", "DELEGATE_CALL", "MOVE_CALL", "JF_CALL", "FREE_CALL", "something_else"]
children = st.lists(st.tuples(st.booleans(), st.integers(0, 50), st.integers(0, 50)), max_size=4)
calls = st.lists(
    st.tuples(st.sampled_from(names), children, st.integers(0, 3), st.integers(0, 200)), max_size=8
)


@settings(deadline=None)
@given(st.lists(st.tuples(calls, st.integers(0, 10_000)), min_size=1, max_size=5))
def test_whatever_the_events_say_the_parts_add_up(tmp_path_factory, runs) -> None:
    blocks = []
    for made, length in runs:
        events = []
        for name, children, instruction, duration in made:
            for delegated, start, spent in children:
                make = inside_delegate if delegated else event
                child = "Add (ND) #1" if delegated else "native_call_add.out"
                events.append(make(child, start, start + spent, instruction))
            events.append(event(name, 0, duration, instruction))
        blocks.append((*events, execute(0, length)))
    table = table_of(tmp_path_factory.mktemp("any"), *blocks)
    dump = analyse_dump(table, MADE)
    assert dump.breakdown.closes and dump.breakdown.e2e.tolist() == [length for _, length in runs]
    assert dump.attribution.event_count == len(table)


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
    return inside_delegate(name, start, start + duration, instruction)


def dump_of(told: Told = TOLD_US) -> bytes:
    blocks = []
    for number, (first, second) in enumerate(told):
        at = 100_000 * number
        ends = [at + 1_900 + 1_000 * sum(first[:number]) for number in range(len(first) + 1)]
        events = (
            *(operator(f"Copy (NC, X32) #{n + 1}", ends[n], 1_000 * took, 0) for n, took in enumerate(first)),
            event("DELEGATE_CALL", at + 1_000, at + 10_000, 0),
            *(operator("Fully Connected (NC, F32) GEMM #1", at + 11_000, 1_000 * took, 1) for took in second),
            event("DELEGATE_CALL", at + 10_500, at + 15_000, 1),
            execute(at, at + 16_000),
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
    assert found.clock == EXACT and not found.misfit
    first, second = [(2_000, 3_900), (5_900, 950), (11_500, 1_999)], [(102_000, 3_300), (105_300, 700)]
    assert operators_in(found.table) == [*first, *second, (111_000, 400)]
    dump = analyse_dump(found, MADE)
    parts = dump.breakdown
    assert dump.clock == EXACT and parts.closes
    assert not parts.unattributed.any() and not parts.delegate_overhead.any()
    # The run less its operators; of that, what came after the last operator of each call.
    assert parts.framework.tolist() == [16_000 - 6_849, 16_000 - 4_400]
    assert parts.tracing.tolist() == [3_150 + 1_501, 4_000 + 3_600]


def test_without_boundaries_or_with_those_of_another_run_a_dump_is_what_it_was(tmp_path: Path) -> None:
    dump = analyse_dump(read_etdump(dump_of()), MADE)
    assert dump.clock == CUT and not dump.breakdown.tracing.any()
    assert dump.breakdown.closes and dump.breakdown.unattributed.tolist() == [13_500 - 3_000] * 2
    table = table_of(tmp_path, (event("OPERATOR_CALL", 1, 9), execute(0, 10)))
    assert analyse_dump(table, MADE).clock == OWN
    found = with_boundaries(table, read_boundaries(file_of((), ())))
    assert found.clock == OWN and not found.misfit
    fewer = fitted(file_of(LOOKS, INVOCATIONS[:2]))
    says(fewer.misfit, "2 delegate calls", "4 calls")
    later = [(which, [time + 50_000 for time in times]) for which, times in INVOCATIONS]
    late = fitted(file_of(LOOKS, later))
    says(late.misfit, "not match", "4 of 4 delegate calls")
    for found in (fewer, late):
        assert found.clock == CUT and operators_in(found.table) == operators_in(read_etdump(dump_of()))


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
    says(found.misfit, "not match", "1 of 4 delegate calls")
    says(found.clock, EXACT, "3 of 4 delegate calls", CUT)
    alone = operators_in(read_etdump(dump_of(told)))
    count = len(told[0][0])
    assert operators_in(found.table)[:count] == alone[:count]
    dump = analyse_dump(found, MADE)
    assert dump.breakdown.closes and dump.breakdown.unattributed[0] > 0
    assert found.misfit in [warning.seen for warning in dump.warnings]


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
    says(found.misfit, beside, "damaged", "byte 64")
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


operator_looks = st.lists(st.lists(st.integers(1, 5), max_size=4), min_size=1, max_size=4)


@given(operator_looks, st.data())
@settings(max_examples=60)
def test_what_was_written_is_read(looks: list[list[int]], data: st.DataObject) -> None:
    which = data.draw(st.lists(st.integers(0, len(looks) - 1), max_size=8))
    counts = [len(looks[w]) + 1 for w in which]
    times = [sorted(data.draw(st.lists(st.integers(0, 2**50), min_size=n, max_size=n))) for n in counts]
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
