"""Whether two series are comparable, and how their latencies compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from model_profiling.config.series import Series
from model_profiling.core.formatting import plural
from model_profiling.runner.features import SME2_ONLY
from model_profiling.runs.journal import Journal
from model_profiling.runs.times import Times
from model_profiling.statistics.measure import EXACT_ROUNDS, Rule, Turns, disturbance
from model_profiling.statistics.speedup import (
    CONFIDENCE,
    PRACTICAL_THRESHOLD,
    Launches,
    Rounds,
    Speedup,
    Terms,
    Way,
    as_launches,
    compare_launches,
    compare_rounds,
    compare_separate,
    no_answer,
    paired_cycles,
)

# Whether the times of two series can be compared. Only this code decides it.


@dataclass(frozen=True, slots=True)
class Origin:
    """Where one side's times come from; empty or None if unknown."""

    name: str
    times: Times
    threads: int | None = None
    cpu: str = ""
    program: str = ""
    """SHA-256 of the program, and the method that ran."""
    features: frozenset[str] | None = None
    disabled: tuple[str, ...] = ()
    sme2: bool | None = None
    own_runner: bool = False
    method: str = ""
    fed: str = ""
    """Inputs that were asked for, as the manifest has them."""
    tokens: int | None = None
    position: int | None = None

    @property
    def case(self) -> str:
        """`prefill, 32 tokens at position 0`"""
        fed = self.fed.replace("_", " ") or "the usual inputs"
        if self.tokens is not None and self.position is not None:
            fed = f"{plural(self.tokens, 'token')} at position {self.position}"
        return f"{self.method}, {fed}"

    @property
    def switched_off(self) -> set[str]:
        return {"sme2" if name == SME2_ONLY else name for name in self.disabled}


def why_not_comparable(baseline: Origin, candidate: Origin, *, across_machines: bool = False) -> str | None:
    """Return the reason, or None if the two are comparable. `across_machines` allows different CPUs."""
    for side in (baseline, candidate):
        if side.times is Times.UNKNOWN:
            return f"the machine on which {side.name} was measured is not recorded"
        if not side.times.are_latencies:
            return f"the times of {side.name} come from {side.times.origin}, so they are not latencies"
    if other := _other_case(baseline, candidate):
        return other
    cpus = baseline.cpu, candidate.cpu
    if not all(cpus) or cpus[0] == cpus[1]:
        return _same_code(baseline, candidate)
    if across_machines:
        return None
    names = " and ".join(cpus)
    return f"they were measured on different CPUs ({names}); --across-machines compares the machines"


def _other_case(baseline: Origin, candidate: Origin) -> str | None:
    """Return the reason if the sides ran other methods, or had other inputs; unknown ones do not differ."""
    sides = baseline, candidate
    phases = [(side.tokens, side.position) for side in sides]
    phases_known = not any(None in phase for phase in phases)
    same = phases[0] == phases[1] if phases_known else baseline.fed == candidate.fed
    if (same and baseline.method == candidate.method) or not all(side.method for side in sides):
        return None
    cases = "; ".join(f"{side.name} ran {side.case}" for side in sides)
    return f"they are different cases ({cases})"


def _same_code(baseline: Origin, candidate: Origin) -> str | None:
    """Return the reason if the sides differ only in features that their CPU lacks."""
    if baseline.program != candidate.program or baseline.threads != candidate.threads:
        return None
    if baseline.own_runner or candidate.own_runner:
        differing = {"sme2"} if baseline.sme2 != candidate.sme2 else set()
    else:
        differing = baseline.switched_off ^ candidate.switched_off
    features = baseline.features
    if not differing or features is None or differing & features:
        return None
    what = "SME2" if baseline.sme2 != candidate.sme2 else " or ".join(sorted(differing))
    return f"this CPU ({baseline.cpu or 'not named'}) has no {what}, so both sides run the same code"


def differ_in_sme2_alone(baseline: Origin, candidate: Origin) -> bool:
    """Whether the only difference is SME2, off in `baseline` and on in `candidate`."""
    others = [side.switched_off - {"sme", "sme2"} for side in (baseline, candidate)]
    return (
        baseline.sme2 is False
        and candidate.sme2 is True
        and baseline.threads == candidate.threads
        and baseline.program == candidate.program
        and (others[0] == others[1] or baseline.own_runner or candidate.own_runner)
    )


# How two series are compared depends on how they were measured: launch by launch if they took turns, round by
# round if their processes ran side by side, otherwise as measured at different times.

CLOCK_STEP_MS = 55e-6
"""The coarsest step of a monotonic clock: counters of Arm CPUs tick at 19.2 MHz or faster."""


@dataclass(frozen=True, slots=True)
class Timed:
    """The latencies of one series without the tracer, in milliseconds."""

    rounds: Rounds = ()
    """The inferences that count, by round."""
    launches: Mapping[str, Turns] = field(default_factory=dict)
    """The same by launch and turn."""
    sessions: Sequence[int] = ()
    """The session of each round; 0 or missing if unknown."""
    rule: Rule = field(default_factory=Rule)
    """By which they were measured."""
    disturbance: float = 0.0
    """By which share other programs can have raised the times."""
    again: Callable[[Rule], Timed] | None = None
    """Measures the same inferences by another rule; None if only their latencies are known."""

    def by(self, rule: Rule) -> Timed:
        return self.again(rule) if self.again and rule.measure != self.rule.measure else self


def timed(journal: Journal, series: Series, rounds: int | None = None, rule: Rule | None = None) -> Timed:
    count = journal.rounds_of(series) if rounds is None else rounds
    entries = journal.ended_well("untraced", series)
    sessions = {entry.round: entry.session for entry in entries}
    return Timed(
        rounds=journal.latencies_ms(series, count, rule=rule),
        launches=journal.turns_ms(series, rule=rule),
        sessions=[sessions.get(number, 0) for number in range(count)],
        rule=rule or journal.rule(series.threads),
        disturbance=disturbance(entry.inferences for entry in entries),
        again=partial(timed, journal, series, rounds),
    )


def timed_as_kept(rounds: Rounds, journal: Journal | None, series: Series) -> Timed:
    """Combine the latencies kept in a file of a run with the turns from its journal, if there is one."""
    return replace(timed(journal, series), rounds=rounds) if journal else Timed(rounds)


def shared_launches(before: Mapping[str, Turns], after: Mapping[str, Turns]) -> tuple[Launches, Launches]:
    both = [launch for launch in before if launch in after]
    return [before[launch] for launch in both], [after[launch] for launch in both]


def way_of(before: Timed, after: Timed, *, same_run: bool) -> Way:
    """Return how the two were measured. If launches are too few for an exact answer, more rounds win."""
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
    """Return how many times faster `after` is than `before`, by one measure, and how certain that is."""
    rule = before.rule.together(after.rule)
    before, after = before.by(rule), after.by(rule)
    way = way_of(before, after, same_run=same_run)
    terms = Terms(
        confidence=confidence,
        practical_threshold=practical_threshold,
        resolution=CLOCK_STEP_MS,
        disturbances=(before.disturbance, after.disturbance),
        not_comparable=not_comparable,
    )
    if rule.measure == "wall time, interrupted" and not not_comparable:
        return no_answer(INTERRUPTED, terms, len(before.rounds), "launch" if way == "lockstep" else "round")
    if way == "lockstep":
        launches = shared_launches(before.launches, after.launches)
        speedup = compare_launches(*launches, **terms)
    else:
        compare = compare_rounds if way == "rounds" else compare_separate
        speedup = compare(before.rounds, after.rounds, **terms)
    return replace(speedup, measured=rule.measure)


def compared_turns(before: Timed, after: Timed, *, same_run: bool) -> tuple[float, float] | None:
    """The typical turn of each side, of those that `compare_timed` compares; None without any."""
    rule = before.rule.together(after.rule)
    before, after = before.by(rule), after.by(rule)
    way = way_of(before, after, same_run=same_run)
    ours, theirs = as_launches(before.rounds), as_launches(after.rounds)
    if way == "lockstep":
        ours, theirs = shared_launches(before.launches, after.launches)
    # Runs made apart have no pairs: each is paired with itself.
    pairs = ((ours, ours), (theirs, theirs)) if way == "apart" else ((ours, theirs), (theirs, ours))
    sides = [paired_cycles(*pair) for pair in pairs]
    if not all(sides):
        return None
    ours_ms, theirs_ms = (float(np.median(np.concatenate(side)[:, 0])) for side in sides)
    return ours_ms, theirs_ms


INTERRUPTED = (
    "other programs interrupted nearly every inference, and with several threads nobody can say how long it "
    "takes without them; measure with 1 thread, or stop other programs"
)
