"""Checks of the journal: every latency in it is what the runner wrote, and what can have been.

What a run states is computed from its journal, so a journal that was edited takes everything along. Beside it
lies what the runner wrote of each process and launch; and turns tell more than their length: when they began
and what CPU time they took.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path

from model_profiling.check import Check, check_unless
from model_profiling.errors import FormatError, ProfilingError
from model_profiling.reading import inside
from model_profiling.run import names
from model_profiling.run.journal import TIMED, Entry
from model_profiling.run.manifest import MEASURE_AGAIN
from model_profiling.runner.lockstep_result import LockstepResult, read_lockstep_result
from model_profiling.runner.result import read_result
from model_profiling.validation.checked_run import CheckedRun
from model_profiling.wording import plural

_MOST_CPU = 10
"""How many times its threads' time a process may seem to have computed: systems count in ticks of their own,
and threads may spin before and after a turn."""


def journal_agrees(checked: CheckedRun) -> Iterator[Check]:
    """Whether the latencies are those that the runner wrote and, where that was not kept, can have been."""
    journal = checked.run.journal
    if journal is None:
        yield Check("journal", "skipped", "there is none")
        return
    entries = [entry for entry in journal.entries() if entry.state == "done" and entry.kind in TIMED]
    if not entries:
        yield Check("journal", "skipped", "nothing was timed")
        return
    wrong = [*_uneven(entries), *chain.from_iterable(map(_impossible, entries))]
    kept = [entry for entry in entries if entry.told]
    launches = cache(read_lockstep_result)
    for entry in kept:
        path = inside(checked.path, entry.told or "", f"{names.JOURNAL}: told")
        try:
            wrong += _unlike(entry, _told(entry, path, launches(path) if entry.launch else None))
        except ProfilingError as problem:
            wrong.append(f"{entry.told}: {problem.problem}")
    said = f"{plural(len(kept), 'process')} measured what the runner wrote"
    if wrong or len(kept) == len(entries):
        yield check_unless(wrong, "journal", said, MEASURE_AGAIN)
        return
    lacking = (
        f"of {plural(len(entries) - len(kept), 'process')} it was not kept: only what can be was checked"
    )
    yield Check("journal", "optional", f"{said}, {lacking}" if kept else f"what the runner wrote {lacking}")


def _told(entry: Entry, path: Path, launch: LockstepResult | None) -> tuple[tuple[int, ...], ...]:
    """Every inference as the runner wrote it, turn by turn; of a process by itself they are one turn."""
    if launch is None:
        return (read_result(path).iterations_ns,)
    if not 0 <= entry.told_child < len(launch.results):
        raise FormatError(f"it has no program {entry.told_child}", MEASURE_AGAIN)
    turns = zip(launch.turns.child, launch.turns.iterations_ns, strict=True)
    return tuple(taken for child, taken in turns if child == entry.told_child)


def _unlike(entry: Entry, told: Sequence[Sequence[int]]) -> Iterator[str]:
    """The first that differs, with both values."""
    ours = entry.turns_ns if entry.launch else (entry.iterations_ns,)
    if [len(turn) for turn in told] != [len(turn) for turn in ours]:
        theirs, here = (plural(sum(map(len, turns)), "inference") for turns in (told, ours))
        yield f"{_place(entry)} has {here} in {names.JOURNAL}, the runner wrote {theirs} ({entry.told})"
        return
    flat = zip(chain.from_iterable(told), chain.from_iterable(ours), strict=True)
    for number, (wrote, has) in enumerate(flat):
        if wrote != has:
            where = f"{_place(entry)}, inference {number}"
            yield f"{where} took {has} ns in {names.JOURNAL}, the runner wrote {wrote} ns ({entry.told})"
            return


def _impossible(entry: Entry) -> Iterator[str]:
    """What turns say of each other: none begins before the last has ended, and none computes more than its
    threads can."""
    if not entry.launch:
        return
    place, taken = _place(entry), [sum(turn) for turn in entry.turns_ns]
    if entry.turns_started_ns and len(entry.turns_started_ns) != len(taken):
        begun = plural(len(entry.turns_started_ns), "turn")
        yield f"{names.JOURNAL}: {place} began {begun} and took {len(taken)}"
        return
    starts = entry.turns_started_ns
    for number, (begin, following, length) in enumerate(zip(starts, starts[1:], taken, strict=False)):
        if begin + length > following:
            yield (
                f"{names.JOURNAL}: {place}, turn {number} took {length} ns, but the next one began "
                f"{following - begin} ns after it"
            )
            return
    threads = entry.threads
    if entry.use and entry.use.cpu_ns > _MOST_CPU * threads * sum(taken):
        yield (
            f"{names.JOURNAL}: {place} took {sum(taken)} ns on {plural(threads, 'thread')}, but "
            f"{entry.use.cpu_ns} ns of CPU time"
        )


def _uneven(entries: Sequence[Entry]) -> Iterator[str]:
    """Programs of one launch had a turn each in every cycle, all of one length."""
    seen: dict[str, Entry] = {}
    for entry in entries:
        if not entry.launch:
            continue
        other = seen.setdefault(entry.launch, entry)
        ours, theirs = ([len(turn) for turn in each.turns_ns] for each in (entry, other))
        if any(one != two for one, two in zip_longest(ours, theirs)):
            counts = (
                f"{sum(lengths)} of {each.series}" for each, lengths in ((entry, ours), (other, theirs))
            )
            yield f"{names.JOURNAL}: {entry.kind} round {entry.round} has {' and '.join(counts)} inferences"


def _place(entry: Entry) -> str:
    return f"{entry.kind} round {entry.round} of {entry.series}"
