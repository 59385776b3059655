"""Compares two series of one model: operator by operator, category by category.

Names change with the kernel (F16 becomes PF16 with SME2), so operators are paired by graph node, else by
place in the model, else by kind and order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import Measured, SeriesAnalysis
from model_profiling.config.series import default_label
from model_profiling.core.formatting import plural
from model_profiling.program.category import Category
from model_profiling.program.records import OperatorKey
from model_profiling.runs.records import PairSpeedup
from model_profiling.runs.times import shared_launches
from model_profiling.statistics.speedup import (
    Launches,
    Speedup,
    Verdict,
    Way,
    as_launches,
    compare,
    compare_many,
)

# How to compare two series: cycle by cycle where they took turns, round by round where their processes
# alternated, else as separate runs.

CLOCK_STEP_MS = 0.001
"""Delegates count whole microseconds: rounding alone can make a short operator seem to change."""


def how_measured(baseline: SeriesAnalysis, candidate: SeriesAnalysis, interleaved: bool = True) -> Way:
    """How series of one run (`interleaved`), or of two, can be compared. A process that had the machine to
    itself ran at other moments than one that took turns."""
    if baseline.took_turns and candidate.took_turns:
        shared = _launches(baseline) & _launches(candidate)
        named = all(dump.dump.launch for side in (baseline, candidate) for dump in side.rounds)
        return "lockstep" if shared and (interleaved or named) else "apart"
    alone = not baseline.took_turns and not candidate.took_turns
    return "rounds" if interleaved and alone else "apart"


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Two series, how they were measured, and the reason if their times must not be compared."""

    baseline: SeriesAnalysis
    candidate: SeriesAnalysis
    measured: Way
    why_not: str | None = None

    def end_to_end(self) -> Speedup:
        whole = self.baseline.breakdown.e2e, self.candidate.breakdown.e2e
        return compare(*self._sides(whole), self.measured, not_comparable=self.why_not)

    def ratio(self, verdict: Speedup | None, before_ms: float, after_ms: float) -> float | None:
        """The ratio with confidence if there is one, else that of the times shown."""
        if self.why_not or (verdict is None and (before_ms <= 0 or after_ms <= 0)):
            return None
        return verdict.ratio if verdict is not None and verdict.ratio is not None else before_ms / after_ms

    def judged(self, pairs: Mapping[str, tuple[Measured, Measured]]) -> Mapping[str, Speedup]:
        """Verdicts for what took time in every round or turn; none with a single round or launch, or if other
        programs interrupted nearly every run."""
        if self.why_not or self.baseline.interrupted or self.candidate.interrupted:
            return {}
        if self.measured == "lockstep":
            count = len(_launches(self.baseline) & _launches(self.candidate))
        else:
            count = min(len(self.baseline.rounds), len(self.candidate.rounds))
        if count < 2:
            return {}
        measured = {name: self._sides(pair) for name, pair in pairs.items()}
        timed = {name: sides for name, sides in measured.items() if all(map(_took_time, sides))}
        return compare_many(timed, self.measured, resolution=CLOCK_STEP_MS)

    def _sides(self, pair: tuple[Measured, Measured]) -> tuple[Launches, Launches]:
        ours, theirs = pair
        if self.measured == "lockstep":
            return shared_launches(self.baseline.by_turn(ours), self.candidate.by_turn(theirs))
        return as_launches(self.baseline.by_round(ours)), as_launches(self.candidate.by_round(theirs))


def _launches(series: SeriesAnalysis) -> set[str]:
    return {dump.dump.met for dump in series.rounds}


def _took_time(launches: Launches) -> bool:
    turns = [turn for launch in launches for turn in launch if turn]
    return bool(turns) and min(map(min, turns)) > 0


Change = Literal["same", "kernel changed", "appeared", "vanished", "split", "merged"]
MatchedBy = Literal["graph node", "module", "order"]


@dataclass(frozen=True, slots=True, repr=False)
class OperatorPair:
    """One operator of the baseline and what it became; either side may hold none or several operators."""

    baseline: tuple[Operator, ...]
    candidate: tuple[Operator, ...]
    change: Change
    speedup: Speedup | None
    """With confidence, from rounds or launches; None if there were too few or the times mean nothing."""
    ratio: float | None
    """With confidence if rounds or launches gave one, else from the times shown; None if neither."""

    @property
    def main(self) -> Operator:
        """The longest operator, of the candidate if it has any."""
        return max(self.candidate or self.baseline, key=lambda operator: operator.times.typical_ns)

    @property
    def category(self) -> Category:
        return self.main.category

    @property
    def baseline_ms(self) -> float:
        return sum(operator.typical_ms for operator in self.baseline)

    @property
    def candidate_ms(self) -> float:
        return sum(operator.typical_ms for operator in self.candidate)

    @property
    def delta_ms(self) -> float:
        return self.candidate_ms - self.baseline_ms

    @property
    def families(self) -> tuple[str, str]:
        return _families(self.baseline), _families(self.candidate)


@dataclass(frozen=True, slots=True)
class CategoryPair:
    name: str
    baseline_ms: float
    candidate_ms: float
    baseline_share: float
    candidate_share: float
    speedup: Speedup | None
    ratio: float | None
    """As `OperatorPair.ratio`."""


@dataclass(frozen=True, slots=True, repr=False)
class Pairing:
    """Two series compared. `not_comparable` says why times are not compared; there are still pairs."""

    label: str
    baseline: SeriesAnalysis
    candidate: SeriesAnalysis
    matched_by: MatchedBy
    measured: Way
    not_comparable: str | None
    e2e: Speedup
    """The run's own answer if it has one, else from these dumps (`with_tracer`)."""
    with_tracer: bool
    categories: tuple[CategoryPair, ...]
    operators: tuple[OperatorPair, ...]

    @property
    def traced_ratio(self) -> float | None:
        """Ratio of the end-to-end times that the categories add up to."""
        if self.not_comparable or not self.candidate.e2e_ms:
            return None
        return self.baseline.e2e_ms / self.candidate.e2e_ms

    @property
    def comparable(self) -> bool:
        return self.e2e.verdict is not Verdict.NOT_COMPARABLE

    @property
    def compares_sme2(self) -> bool:
        """Whether both sides differ only in SME2, and their times may be compared."""
        switched = self.baseline.sme2 is False and bool(self.candidate.sme2)
        return switched and self.comparable and self.baseline.series.threads == self.candidate.series.threads

    @property
    def sides(self) -> tuple[str, str]:
        """The names of both sides, by what differs: `SME2 off` and `SME2 on`, `1 thread` and `2 threads`."""
        ours, theirs = self.baseline.series, self.candidate.series
        if ours.threads == theirs.threads and self.baseline.sme2 is False and self.candidate.sme2:
            return "SME2 off", "SME2 on"
        if ours.experiment == theirs.experiment and ours.threads and theirs.threads:
            return plural(ours.threads, "thread"), plural(theirs.threads, "thread")
        return str(ours), str(theirs)


def pair_series(
    baseline: SeriesAnalysis,
    candidate: SeriesAnalysis,
    *,
    label: str = "",
    interleaved: bool = True,
    not_comparable: str | None = None,
    answer: PairSpeedup | None = None,
) -> Pairing:
    """Pair the operators and categories of two series.

    `interleaved` series are of one run, so each round or launch is compared with its counterpart.
    `not_comparable` says why the times must not be compared; `answer` is the one from the run's latencies.
    """
    matched_by, pairs = match_operators(baseline.operators, candidate.operators)
    measured = how_measured(baseline, candidate, interleaved)
    comparing = SideBySide(baseline, candidate, measured, not_comparable)
    verdicts = comparing.judged({str(number): pair for number, pair in enumerate(pairs)})
    return Pairing(
        label=label or default_label(baseline.series, candidate.series),
        baseline=baseline,
        candidate=candidate,
        matched_by=matched_by,
        measured=measured,
        not_comparable=not_comparable,
        e2e=answer.speedup if answer else comparing.end_to_end(),
        with_tracer=answer.with_tracer if answer else True,
        categories=tuple(_categories(comparing)),
        operators=tuple(
            OperatorPair(
                ours,
                theirs,
                _change(ours, theirs),
                verdict := verdicts.get(str(number)),
                comparing.ratio(verdict, *(sum(one.typical_ms for one in side) for side in (ours, theirs))),
            )
            for number, (ours, theirs) in enumerate(pairs)
        ),
    )


Pairs = list[tuple[tuple[Operator, ...], tuple[Operator, ...]]]


def match_operators(ours: Sequence[Operator], theirs: Sequence[Operator]) -> tuple[MatchedBy, Pairs]:
    """Pairs of operators that do the same work, in the order they run, and how they were matched."""
    if _same_graph(ours, theirs):
        return "graph node", _by_node(ours, theirs)
    if all(any(operator.source.module_path for operator in side) for side in (ours, theirs)):
        return "module", _by_order(ours, theirs, lambda each: (each.source.module_path, each.kind))
    return "order", _by_order(ours, theirs, lambda operator: (operator.delegated, operator.kind))


def _same_graph(ours: Sequence[Operator], theirs: Sequence[Operator]) -> bool:
    """Whether both ran the same program: every node that both have is the same."""

    def nodes(operators: Sequence[Operator]) -> dict[OperatorKey, tuple[str, str, tuple[int, ...]]]:
        known = ((each.key, each.source) for each in operators if each.source.node_index >= 0)
        return {key: (source.node_kind, source.dtype, source.output_shape) for key, source in known}

    left, right = nodes(ours), nodes(theirs)
    both = left.keys() & right.keys()
    enough = bool(both) and len(both) >= 0.5 * min(len(left), len(right))
    return enough and all(left[key] == right[key] for key in both)


def _by_node(ours: Sequence[Operator], theirs: Sequence[Operator]) -> Pairs:
    pairs: dict[Hashable, tuple[list[Operator], list[Operator]]] = {}
    for side, operators in enumerate((ours, theirs)):
        for operator in operators:
            # Outside delegates, or where an event fits no node, only the position in the call is known.
            key = operator.key if operator.key.node >= 0 else (operator.key, operator.position)
            pairs.setdefault(key, ([], []))[side].append(operator)
    found: Pairs = []
    for left, right in pairs.values():
        if len(left) == len(right):
            found.extend(((one,), (other,)) for one, other in zip(left, right, strict=True))
        else:
            found.append((tuple(left), tuple(right)))
    return sorted(found, key=lambda pair: (pair[1] or pair[0])[0].identity)


def _by_order(
    ours: Sequence[Operator], theirs: Sequence[Operator], token: Callable[[Operator], Hashable]
) -> Pairs:
    """Pair the longest runs of equal tokens; what lies between them appeared, vanished or was replaced."""
    before, after = list(map(token, ours)), list(map(token, theirs))
    pairs: Pairs = []
    # Finding the longest runs can take long, and mostly there is only one.
    runs = (
        [("equal", 0, len(ours), 0, len(theirs))]
        if before == after
        else SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    )
    for _, a, b, c, d in runs:
        left, right = list(ours[a:b]), list(theirs[c:d])
        if [each.category for each in left] == [each.category for each in right]:
            pairs.extend(((one,), (other,)) for one, other in zip(left, right, strict=True))
            continue
        pairs.extend(_by_category(left, right))
    return pairs


def _by_category(left: list[Operator], right: list[Operator]) -> Pairs:
    """Within a stretch that differs, pair operators of one category in order."""
    waiting: dict[Category, deque[int]] = {}
    for place, other in enumerate(right):
        waiting.setdefault(other.category, deque()).append(place)
    pairs: Pairs = []
    for operator in left:
        places = waiting.get(operator.category)
        pairs.append(((operator,), (right[places.popleft()],) if places else ()))
    rest = sorted(place for places in waiting.values() for place in places)
    return pairs + [((), (right[place],)) for place in rest]


def _change(ours: tuple[Operator, ...], theirs: tuple[Operator, ...]) -> Change:
    if not ours:
        return "appeared"
    if not theirs:
        return "vanished"
    if len(theirs) > len(ours):
        return "split"
    if len(theirs) < len(ours):
        return "merged"
    return "same" if _families(ours) == _families(theirs) else "kernel changed"


def _families(operators: tuple[Operator, ...]) -> str:
    return " + ".join(operator.family or operator.type for operator in operators)


def _categories(comparing: SideBySide) -> Iterator[CategoryPair]:
    ours, theirs = comparing.baseline.parts, comparing.candidate.parts
    verdicts = comparing.judged({name: (ours[name], theirs[name]) for name in ours})
    for name in ours:
        before, after = comparing.baseline.spent(ours[name]), comparing.candidate.spent(theirs[name])
        ratio = comparing.ratio(verdicts.get(name), before.ms, after.ms)
        yield CategoryPair(name, before.ms, after.ms, before.share, after.share, verdicts.get(name), ratio)
