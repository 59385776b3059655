"""The tree of events where runs are odd: loops, kernels in kernels, silent delegates, mixed structures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from said import refused
from strategies import Block, Dump, ProfileEvent

from model_profiling.analysis.attribution import Attribution, Share, attribute
from model_profiling.analysis.summary import analyse_dump
from model_profiling.core.errors import FormatError
from model_profiling.etdump import EventTable, read_etdump
from model_profiling.run import Series, run

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
    table = table_of(
        tmp_path,
        (
            event("native_call_add.out", 20, 50),
            event("OPERATOR_CALL", 10, 60),
            inside_delegate("Convolution (NHWC, F32) IGEMM #1", 100, 140, 1),
            inside_delegate("Transpose (ND, X32) #1", 140, 150, 1),
            event("DELEGATE_CALL", 90, 170, 1),
            event("MOVE_CALL", 170, 173, 2),
            execute(0, 200),
        ),
    )
    found = attribute(table)
    # Between calls 200-50-80-3, preparing the operator 50-30, moving 3; in the delegate 80-40-10.
    assert shares(found) == {"operator": 30 + 50, "framework": 67 + 20 + 3, "delegate": 30, "opaque": 0}
    assert [(n.name, n.call, n.position) for n in found.groups[0].operators] == [
        ("native_call_add.out", 0, 0),
        ("Convolution (NHWC, F32) IGEMM #1", 1, 0),
        ("Transpose (ND, X32) #1", 1, 1),
    ]


def test_a_delegate_that_reports_nothing_is_unattributed_but_no_overhead(tmp_path: Path) -> None:
    found = attribute(table_of(tmp_path, (event("DELEGATE_CALL", 10, 90), execute(0, 100))))
    assert shares(found) == {"operator": 0, "framework": 20, "delegate": 0, "opaque": 80}
    dump = analyse_dump(table_of(tmp_path, (event("DELEGATE_CALL", 10, 90), execute(0, 100))), MADE)
    assert dump.breakdown.unattributed.tolist() == [80] and dump.breakdown.delegate_overhead.tolist() == [0]


def test_a_kernel_without_its_own_event_is_seen_by_its_call(tmp_path: Path) -> None:
    table = table_of(tmp_path, (event("OPERATOR_CALL", 10, 90), execute(0, 100)))
    dump = analyse_dump(table, MADE)
    assert [operator.name for operator in dump.operators] == ["OPERATOR_CALL"]
    assert dump.unknown_names == ("OPERATOR_CALL",)
    assert dump.breakdown.closes


def test_a_kernel_that_calls_a_kernel_is_not_counted_twice(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        (
            event("native_call_mm.out", 20, 60),
            event("native_call_linear.out", 15, 80),
            event("OPERATOR_CALL", 10, 90),
            execute(0, 100),
        ),
    )
    dump = analyse_dump(table, MADE)
    assert [(one.name, one.times.total_ns) for one in dump.operators] == [
        ("native_call_mm.out", 40),
        ("native_call_linear.out", 25),
    ]
    assert dump.breakdown.closes


def test_an_instruction_that_a_loop_repeats_is_an_operator_each_time(tmp_path: Path) -> None:
    body = [
        one
        for start in (10, 40, 70)
        for one in (
            event("native_call_add.out", start + 1, start + 9, 3),
            event("OPERATOR_CALL", start, start + 10, 3),
            event("JF_CALL", start + 10, start + 12, 4),
        )
    ]
    dump = analyse_dump(table_of(tmp_path, (*body, execute(0, 100))), MADE)
    assert [(one.call, one.occurrence, one.times.runs) for one in dump.operators] == [
        (0, 0, 1),
        (2, 1, 1),
        (4, 2, 1),
    ]
    assert dump.breakdown.closes


def test_runs_of_different_structure_are_told_apart_and_still_close(tmp_path: Path) -> None:
    short = (event("native_call_add.out", 2, 8), event("OPERATOR_CALL", 1, 9), execute(0, 10))
    other = (event("native_call_mul.out", 2, 8), event("OPERATOR_CALL", 1, 9), execute(0, 11))
    long = (
        *short[:2],
        event("native_call_mm.out", 11, 18, 1),
        event("OPERATOR_CALL", 10, 19, 1),
        execute(0, 20),
    )
    dump = analyse_dump(table_of(tmp_path, short, long, other, short, long, short), MADE)
    assert [len(group.runs) for group in dump.attribution.groups] == [3, 2, 1]
    assert dump.breakdown.e2e.tolist() == [10, 20, 11, 10, 20, 10]
    assert dump.breakdown.closes
    assert {one.name: one.times.runs for one in dump.operators} == {
        "native_call_add.out": 5, "native_call_mm.out": 2, "native_call_mul.out": 1,
    }  # fmt: skip
    assert any("runs differ in structure" in warning.seen for warning in dump.warnings)


def test_a_run_that_never_finished_is_left_out_and_said_so(tmp_path: Path) -> None:
    whole = (event("native_call_add.out", 2, 8), event("OPERATOR_CALL", 1, 9), execute(0, 10))
    found = attribute(table_of(tmp_path, whole, whole[:2]))
    assert found.run_count == 1 and found.event_count == 5
    assert any("never finished" in warning.seen for warning in found.warnings)


def test_several_runs_in_one_block_are_several_runs(tmp_path: Path) -> None:
    whole = (event("native_call_add.out", 2, 8), event("OPERATOR_CALL", 1, 9), execute(0, 10))
    found = attribute(table_of(tmp_path, whole * 3))
    assert found.run_count == 3 and len(found.groups) == 1


def test_a_delegate_on_another_clock_shows_as_negative_overhead_with_a_warning(tmp_path: Path) -> None:
    table = table_of(
        tmp_path, (inside_delegate("Add (ND) #1", 0, 500), event("DELEGATE_CALL", 10, 90), execute(0, 100))
    )
    dump = analyse_dump(table, MADE)
    assert dump.breakdown.delegate_overhead.tolist() == [-420]
    assert dump.breakdown.closes
    assert any("add up to more than the call" in warning.seen for warning in dump.warnings)


def test_warm_up_runs_are_left_out(tmp_path: Path) -> None:
    runs = [(event("OPERATOR_CALL", 1, 5), execute(0, length)) for length in (90, 10, 11)]
    found = attribute(table_of(tmp_path, *runs), warmup_runs=1)
    assert found.e2e_ns().tolist() == [10, 11] and found.warnings == ()
    with refused(FormatError, "3", "warm-up"):
        attribute(table_of(tmp_path, *runs), warmup_runs=3)


def test_a_dump_without_a_run_is_refused(tmp_path: Path) -> None:
    with refused(FormatError, "Method::execute"):
        attribute(table_of(tmp_path, (event("Method::init", 0, 10, chain=-1),), name="Default"))


def test_statistics_are_numpys(tmp_path: Path) -> None:
    lengths = [7, 1, 9, 4, 4, 30, 2]
    runs = [
        (event("native_call_add.out", 10, 10 + n), event("OPERATOR_CALL", 5, 50), execute(0, 60))
        for n in lengths
    ]
    times = analyse_dump(table_of(tmp_path, *runs), MADE).operators[0].times
    assert (times.runs, times.total_ns, times.min_ns, times.max_ns) == (7, 57, 1, 30)
    assert times.median_ns == np.median(lengths)
    assert [times.p10_ns, times.p90_ns, times.p99_ns] == pytest.approx(np.percentile(lengths, [10, 90, 99]))
    assert times.cv == pytest.approx(np.std(lengths, ddof=1) / np.mean(lengths))


calls = st.lists(
    st.tuples(
        st.sampled_from(
            ["OPERATOR_CALL", "DELEGATE_CALL", "MOVE_CALL", "JF_CALL", "FREE_CALL", "something_else"]
        ),
        st.lists(st.tuples(st.booleans(), st.integers(0, 50), st.integers(0, 50)), max_size=4),
        st.integers(0, 3),
        st.integers(0, 200),
    ),
    max_size=8,
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
    assert dump.breakdown.closes
    assert dump.breakdown.e2e.tolist() == [length for _, length in runs]
    assert dump.attribution.event_count == len(table)
