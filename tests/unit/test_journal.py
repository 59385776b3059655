"""Records to JSON and back with errors that name the field; the journal, whatever tore it."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from said import refused

from model_profiling.config.names import JOURNAL
from model_profiling.config.series import Series
from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.records import parse_record, read_record, record_json, write_record
from model_profiling.runner.result import OutputFacts
from model_profiling.runs.journal import Entry, Journal, has_journal

ENTRY = Entry(
    kind="untraced", experiment="on", threads=1, round=0, session=1, state="done", seconds=0.5,
    started="2026-01-01T00:00:00+0000", iterations_ns=(1, 2, 3), features_present=("fp16",),
    outputs=(OutputFacts(Path("on/x.bin"), "float32", (1, 10), (0, 1)),), kernels={"kai_run_x": 3},
)  # fmt: skip


def test_a_journal_gives_back_what_was_appended(tmp_path: Path) -> None:
    failed = replace(ENTRY, round=1, state="failed", problem="it crashed", fix="look", iterations_ns=())
    journal = Journal(tmp_path)
    journal.append(ENTRY)
    journal.append(failed)
    again = Journal(tmp_path)
    assert again.entries() == (ENTRY, failed)
    assert again.done(ENTRY.step) and not again.done(failed.step)
    journal.append(replace(ENTRY, session=2, iterations_ns=(9,)))
    first, _ = Journal(tmp_path).entries()
    assert first.iterations_ns == (9,), "of two entries of a step the later counts"


def test_a_series_is_asked_for_its_rounds_and_a_config_for_those_begun(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert not has_journal(tmp_path)
    for number in (2, 0):
        journal.append(replace(ENTRY, round=number, iterations_ns=(number * 1_000_000,)))
    journal.append(replace(ENTRY, round=1, state="failed"))
    journal.append(replace(ENTRY, experiment="off", round=7))
    journal.append(replace(ENTRY, kind="evidence"))
    on = Series("on", 1)
    assert has_journal(tmp_path) and journal.rounds_of(on) == 3 and journal.rounds_of(Series("on", 2)) == 0
    assert journal.latencies_ms(on, 3) == [[0.0], [], [2.0]], "a round that failed is empty"
    assert [entry.round for entry in journal.ended_well("untraced", on)] == [0, 2]
    assert journal.evidence(on) == replace(ENTRY, kind="evidence")
    assert journal.evidence(Series("off", 1)) is None
    run_dir = tmp_path / "begun"
    run_dir.mkdir()
    journal = Journal(run_dir)
    assert journal.rounds_begun(["on"]) == 0
    journal.append(replace(ENTRY, kind="evidence"))
    assert journal.rounds_begun(["on"]) == 0
    journal.append(replace(ENTRY, kind="traced", round=8, state="failed"))
    assert Journal(run_dir).rounds_begun(["off", "on"]) == 9
    assert Journal(run_dir).rounds_begun(["off"]) == 0, "another part of the run has its own rounds"


def test_a_journal_torn_at_any_byte_keeps_every_whole_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    entries = [replace(ENTRY, round=number) for number in range(3)]
    for entry in entries:
        journal.append(entry)
    content = (tmp_path / JOURNAL).read_bytes()
    ends = [place for place, byte in enumerate(content, start=1) if byte == ord("\n")]
    for cut in range(0, len(content), 5):
        (tmp_path / JOURNAL).write_bytes(content[:cut])
        whole = sum(1 for end in ends if end <= cut)
        torn = Journal(tmp_path)
        assert torn.entries() == tuple(entries[:whole])
        if cut % 95 == 0:
            torn.append(entries[2])
            assert Journal(tmp_path).entries()[-1] == entries[2]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    Journal(tmp_path).append(ENTRY)
    with (tmp_path / JOURNAL).open("a") as stream:
        stream.write('{"schema_version": 1, "kind": "unt\n')
    with refused(FormatError, tmp_path / JOURNAL, "line 2"):
        Journal(tmp_path)


def test_a_full_disk_loses_nothing_that_was_there(tiny_disk: Path) -> None:
    journal = Journal(tiny_disk)
    journal.append(ENTRY)
    with refused(InputError, "no space left on device", fix="run it again"):
        journal.append(replace(ENTRY, round=1, iterations_ns=tuple(range(10**17, 10**17 + 30000))))
    assert Journal(tiny_disk).entries() == (ENTRY,)
    journal.append(replace(ENTRY, round=1))
    assert len(Journal(tiny_disk).entries()) == 2


@pytest.mark.parametrize("make", [os.symlink, os.link])
def test_a_journal_that_is_a_link_leaves_its_victim_whole(tmp_path, make):
    victim = tmp_path / "victim"
    victim.write_text("whole, without a line end")
    run = tmp_path / "run"
    run.mkdir()
    journal = Journal(run)
    make(victim, run / JOURNAL)
    with refused(InputError, run / JOURNAL, "link"):
        journal.append(ENTRY)
    assert victim.read_text() == "whole, without a line end"


@pytest.mark.parametrize("number", [-1, -(2**70), 10**6, 2**70])
def test_a_round_that_no_run_has_is_refused(tmp_path: Path, number: int) -> None:
    """The campaign found one that fits into no index."""
    Journal(tmp_path).append(replace(ENTRY, round=number))
    with refused(FormatError, JOURNAL, "line 1"):
        list(Journal(tmp_path).entries())


class Colour(str, Enum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Inner:
    numbers: tuple[int, ...] = ()
    by_handle: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    schema_version: Literal[1] = 1
    name: str
    share: float | None = None
    colour: Colour = Colour.RED
    inner: Inner = Inner()
    path: Path | None = None


texts = st.dictionaries(st.integers(), st.lists(st.text()).map(tuple))
shares = st.none() | st.floats(allow_nan=False, allow_infinity=False)
inners = st.builds(Inner, st.lists(st.integers()).map(tuple), texts)
paths = st.none() | st.just(Path("on/x.bin"))
outers = st.builds(Outer, name=st.text(), share=shares, inner=inners, path=paths)


@given(outers)
def test_a_record_comes_back_as_it_was(record: Outer) -> None:
    content = json.loads(json.dumps(record_json(record)))
    assert parse_record(Outer, content, "here", "fix it") == record


def test_a_file_of_a_newer_kit_stays_readable_and_what_json_cannot_hold_is_not_written(tmp_path):
    path = tmp_path / "r.json"
    write_record(path, Outer(name="a"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "later": [1]}))
    assert read_record(Outer, path, "fix it") == Outer(name="a")
    path.write_text('{"schema_version": 0, "title": "b"}')
    upgraded = read_record(Outer, path, "fix it", lambda old: {"schema_version": 1, "name": old["title"]})
    assert upgraded == Outer(name="b")
    with pytest.raises(ValueError, match="JSON"):
        write_record(tmp_path / "inf.json", Outer(name="a", share=float("inf")))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"schema_version": 1}, ("name", "required")),
        ({"name": "a"}, ("schema_version", "required")),
        ({"schema_version": 1, "name": "a", "share": "0.5"}, ("share", "number")),
        ({"schema_version": 1, "name": "a", "colour": "blue"}, ("colour", "'red'")),
        ({"schema_version": 1, "name": "a", "inner": {"numbers": [1, True]}}, ("inner.numbers.1",)),
        ({"schema_version": 1, "name": "a", "inner": {"by_handle": {"1": [2]}}}, ("inner.by_handle.1.0",)),
        ({"schema_version": 1, "name": "a", "inner": None}, ("inner",)),
    ],
)
def test_a_field_that_does_not_fit_is_named(tmp_path: Path, content: object, place: tuple[str, ...]) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(content))
    field, *wanted = place
    with refused(FormatError, f"{path}: {field}:", *wanted, fix="fix it"):
        read_record(Outer, path, "fix it")
