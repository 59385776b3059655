"""What was timed of a series, and how two of them are compared: by the way they were measured.

Series that took turns in the same launches are compared launch by launch, those whose processes ran side by
side round by round, and all others as what they are, measured at different times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from model_profiling.run.journal import Journal
from model_profiling.run.series import Series
from model_profiling.statistics.lockstep import Launches, Turns, compare_launches
from model_profiling.statistics.speedup import Rounds, compare_rounds, compare_separate
from model_profiling.statistics.verdict import (
    CONFIDENCE,
    EXACT_ROUNDS,
    PRACTICAL_THRESHOLD,
    Speedup,
)

CLOCK_STEP_MS = 55e-6
"""The step of a monotonic clock at its coarsest: the counters of Arm CPUs tick at 19.2 MHz and more."""

Way = Literal["lockstep", "rounds", "apart"]
"""How two series were measured: taking turns, side by side, or at different times."""


@dataclass(frozen=True, slots=True)
class Timed:
    """The latencies of one series without the tracer, in milliseconds."""

    rounds: Rounds = ()
    """Those that count, by round; of a launch all but the first of each turn."""
    launches: Mapping[str, Turns] = field(default_factory=dict)
    """Whole turns by the name of their launch."""
    sessions: Sequence[int] = ()
    """In which session each round was measured; none where nothing says."""


def timed(journal: Journal, series: Series, rounds: int | None = None) -> Timed:
    count = journal.rounds_of(series) if rounds is None else rounds
    sessions = {entry.round: entry.session for entry in journal.ended_well("untraced", series)}
    return Timed(
        rounds=journal.latencies_ms(series, count),
        launches=journal.turns_ms(series),
        sessions=[sessions.get(number, 0) for number in range(count)],
    )


def timed_as_kept(rounds: Rounds, journal: Journal | None, series: Series) -> Timed:
    """The latencies that a file of a run keeps of a series, with the turns they were taken in where a journal
    tells."""
    return replace(timed(journal, series), rounds=rounds) if journal else Timed(rounds)


def shared_launches(before: Mapping[str, Turns], after: Mapping[str, Turns]) -> tuple[Launches, Launches]:
    """The turns of the launches that both were in."""
    both = [launch for launch in before if launch in after]
    return [before[launch] for launch in both], [after[launch] for launch in both]


def way_of(before: Timed, after: Timed, *, same_run: bool) -> Way:
    """How the two were measured. Too few launches for an exact answer give way to more rounds."""
    launches = len(before.launches.keys() & after.launches.keys())
    sessions = zip(before.sessions, after.sessions, strict=False)
    side_by_side = same_run and all(ours == theirs for ours, theirs in sessions if ours and theirs)
    rounds = zip(before.rounds, after.rounds, strict=False)
    both = sum(bool(len(ours) and len(theirs)) for ours, theirs in rounds)
    if launches >= EXACT_ROUNDS or (launches and launches >= both):
        return "lockstep"
    return "rounds" if side_by_side else "apart"


def compare_timed(
    before: Timed,
    after: Timed,
    *,
    same_run: bool,
    confidence: float = CONFIDENCE,
    practical_threshold: float = PRACTICAL_THRESHOLD,
    not_comparable: str | None = None,
) -> Speedup:
    """How many times faster `after` is than `before`, and how sure that is."""
    way = way_of(before, after, same_run=same_run)
    if way == "lockstep":
        return compare_launches(
            *shared_launches(before.launches, after.launches),
            confidence=confidence,
            practical_threshold=practical_threshold,
            resolution=CLOCK_STEP_MS,
            not_comparable=not_comparable,
        )
    compare = compare_rounds if way == "rounds" else compare_separate
    return compare(
        before.rounds,
        after.rounds,
        confidence=confidence,
        practical_threshold=practical_threshold,
        not_comparable=not_comparable,
    )
