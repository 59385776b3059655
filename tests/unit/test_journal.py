"""The journal: what was appended comes back, whatever tore it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from said import refused

from model_profiling.core.errors import FormatError, InputError
from model_profiling.run import Series
from model_profiling.run.journal import Entry, Journal, has_journal
from model_profiling.run.names import JOURNAL
from model_profiling.runner.result import OutputFacts

ENTRY = Entry(
    kind="untraced",
    experiment="on",
    threads=1,
    round=0,
    session=1,
    state="done",
    started="2026-01-01T00:00:00+0000",
    seconds=0.5,
    iterations_ns=(1, 2, 3),
    features_present=("fp16",),
    outputs=(OutputFacts(Path("on/x.bin"), "float32", (1, 10), (0, 1)),),
    kernels={"kai_run_x": 3},
)


def test_a_journal_gives_back_what_was_appended(tmp_path: Path) -> None:
    failed = replace(ENTRY, round=1, state="failed", problem="it crashed", fix="look", iterations_ns=())
    journal = Journal(tmp_path)
    journal.append(ENTRY)
    journal.append(failed)
    again = Journal(tmp_path)
    assert again.entries() == (ENTRY, failed)
    assert again.done(ENTRY.step) and not again.done(failed.step)


def test_a_series_is_asked_for_its_rounds(tmp_path: Path) -> None:
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


def test_rounds_begun_are_those_of_the_config_at_hand(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.rounds_begun(["on"]) == 0
    journal.append(replace(ENTRY, kind="evidence"))
    assert journal.rounds_begun(["on"]) == 0
    journal.append(replace(ENTRY, kind="traced", round=8, state="failed"))
    assert Journal(tmp_path).rounds_begun(["off", "on"]) == 9
    assert Journal(tmp_path).rounds_begun(["off"]) == 0, "another part of the run has its own rounds"


def test_of_two_entries_of_a_step_the_later_counts(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(ENTRY)
    journal.append(replace(ENTRY, session=2, iterations_ns=(9,)))
    assert [entry.iterations_ns for entry in Journal(tmp_path).entries()] == [(9,)]


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
    with refused(InputError, "no space left on device", fix="--resume"):
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
