"""What a time means: only times measured on hardware are latencies, and times of unknown origin are not.
Whether two series are comparable, and how their latencies compare.

The manifest says it. Without a manifest, files of earlier analyses and the names of emulated runs still tell,
so that losing a file does not turn emulated times into latencies.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path

import numpy as np

from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core.errors import FormatError, ProfilingError
from model_profiling.core.formatting import plural
from model_profiling.core.records import read_json_object, read_table
from model_profiling.core.safe_read import is_regular, open_regular
from model_profiling.runner.features import SME2_ONLY
from model_profiling.runs.journal import Journal
from model_profiling.statistics.measure import EXACT_ROUNDS, Rounds, Rule, Turns, disturbance
from model_profiling.statistics.speedup import (
    CONFIDENCE,
    PRACTICAL_THRESHOLD,
    Launches,
    Speedup,
    Terms,
    Way,
    as_launches,
    compare,
    no_answer,
    paired_cycles,
)


class Times(str, Enum):
    HARDWARE = "hardware"
    """Measured on the named CPU: latencies."""
    TRACED = "traced"
    """From a run that logs or counts kernels, which slows it down."""
    EMULATED = "emulated"
    """From an emulator; they mean nothing."""
    UNKNOWN = "unknown"
    """Shown as recorded, but nothing is concluded from them."""

    @property
    def are_latencies(self) -> bool:
        return self is Times.HARDWARE

    @property
    def are_shown(self) -> bool:
        """Whether milliseconds may be printed at all."""
        return self in (Times.HARDWARE, Times.UNKNOWN)

    @property
    def origin(self) -> str:
        return _ORIGINS[self]


_ORIGINS = {
    Times.HARDWARE: "hardware",
    Times.TRACED: "a run that traces kernels",
    Times.EMULATED: "an emulated run",
    Times.UNKNOWN: "an unknown machine",
}

NOT_ARM = "(not Arm): measured on a CPU that is not Arm, which says nothing about Arm."
"""Explains the mark."""


def marked(text: str, is_arm: bool | None) -> str:
    """Return `text`, marked if its times were measured on a CPU that is not Arm (`Manifest.is_arm`)."""
    return f"{text} (not Arm)" if is_arm is False else text


TRACING_MODES = ("xnntrace", "trace")
_NOT_LATENCIES = (Times.EMULATED.value, Times.TRACED.value)
_HEAD_BYTES = 1 << 16
"""Enough for the first row of a CSV file."""


def times_of_mode(mode: str, target: Times) -> Times:
    return Times.TRACED if target is Times.HARDWARE and mode in TRACING_MODES else target


class EarlierFiles:
    """Files of earlier analyses, each read once however many dumps need it."""

    def __init__(self) -> None:
        self._emulated: dict[Path, bool] = {}
        self._stated: dict[Path, dict[str, list[object]]] = {}

    def are_emulated(self, folder: Path) -> bool:
        if folder not in self._emulated:
            self._emulated[folder] = _object(folder / names.METRICS).get("times") == Times.EMULATED.value
        return self._emulated[folder]

    def stated(self, folder: Path, stem: str) -> list[object]:
        """Return what the analysis in `folder` calls the times of the dumps with this stem."""
        if folder not in self._stated:
            analysis = _object(folder / names.ANALYSIS)
            dumps, series = (_objects(analysis.get(key)) for key in ("per_etdump", "series"))
            by_stem = self._stated.setdefault(folder, {})
            for dump, of_series in zip(dumps, series, strict=False):
                own = names.dump_stem(Path(str(dump.get("etdump"))).name)
                by_stem.setdefault(own, []).append(of_series.get("times"))
        return self._stated[folder].get(stem, [])


def times_without_manifest(path: Path, earlier: EarlierFiles | None = None) -> tuple[Times, str]:
    """Return what the times of a file or folder of a run mean, and what says so; the surest source wins. Pass
    `earlier` when asking about many files."""
    return next(_marks(path, earlier or EarlierFiles()), (Times.UNKNOWN, ""))


def _marks(path: Path, earlier: EarlierFiles) -> Iterator[tuple[Times, str]]:
    whole = path.resolve()
    folders = [whole, *whole.parents][:4] if path.is_dir() else list(whole.parents)[:3]
    stem = names.dump_stem(path.name)
    for folder in folders:
        if earlier.are_emulated(folder):
            yield Times.EMULATED, names.METRICS
        for word in earlier.stated(folder, stem):
            if word in _NOT_LATENCIES:
                yield Times(word), names.ANALYSIS
    for folder in folders[:2]:
        written = folder / f"{stem}{names.STATS_CSV}"
        if is_regular(written):
            with open_regular(written) as stream:
                head = stream.read(_HEAD_BYTES).decode("utf-8", "replace")
            row: dict[str, str] = {}
            with contextlib.suppress(FormatError):  # an unreadable file says nothing
                row = next(read_table(head, written, "analyse it again")[1], {})
            if (word := row.get("times")) in _NOT_LATENCIES:
                yield Times(word), written.name
    for folder in folders:
        if re.match(r"emulated($|[-_])", folder.name):
            yield Times.EMULATED, f"the folder's name {folder.name}"
    if re.search(r"(^|_)emulated_", stem):
        yield Times.EMULATED, "its name"


def _object(path: Path) -> dict[str, object]:
    """Read a file of an earlier analysis; an unreadable one counts as empty."""
    try:
        return read_json_object(path, "")
    except ProfilingError:
        return {}


def _objects(listed: object) -> list[dict[str, object]]:
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []


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
    """In one order, without launches that only one side has."""
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
    return replace(compare(*_sides(before, after, way), way, **terms), measured=rule.measure)


def _sides(before: Timed, after: Timed, way: Way) -> tuple[Launches, Launches]:
    if way == "lockstep":
        return shared_launches(before.launches, after.launches)
    return as_launches(before.rounds), as_launches(after.rounds)


def compared_turns(before: Timed, after: Timed, *, same_run: bool) -> tuple[float, float] | None:
    """The typical turn of each side, of those that `compare_timed` compares; None without any."""
    rule = before.rule.together(after.rule)
    before, after = before.by(rule), after.by(rule)
    way = way_of(before, after, same_run=same_run)
    ours, theirs = _sides(before, after, way)
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
