"""Compares two measurements, each a run directory, a dump or a file of latencies: what changed, how surely.

Runs made at different times are compared with `compare_separate`, whose interval allows for what the
machine was doing then; series of one run directory were interleaved and are compared round by round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from model_profiling.analysis.attribution import Int64
from model_profiling.analysis.categories import Category
from model_profiling.analysis.intervals import Floats, benjamini_hochberg, holm
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import OperatorPair, pair_dumps
from model_profiling.analysis.speedup import (
    CONFIDENCE,
    Rounds,
    Speedup,
    Verdict,
    compare_rounds,
    compare_separate,
)
from model_profiling.analysis.summary import DumpAnalysis
from model_profiling.errors import InputError
from model_profiling.report.comparison import Comparison, PartChange, SeriesComparison
from model_profiling.report.data import Series
from model_profiling.workflow.sides import Side, SideSeries, load_side

_SHORTEST_MS = 0.02
"""Delegates count whole microseconds: an operator shorter than this seems to change by its rounding."""

_Compare = Callable[[Rounds, Rounds], Speedup]


def compare(
    a: str | Path, b: str | Path, *, limit: float | None = None, across_machines: bool = False
) -> Comparison:
    """Judge B against A; `limit` is the regression that fails, as a share (0.05 is 5%).

    Different CPUs are not comparable unless `across_machines` says that the machines are the question.
    """
    if limit is not None and not 0 <= limit < math.inf:
        raise InputError(f"a regression limit of {limit:g} means nothing", "give a share of 0 or more")
    ours, theirs = load_side(Path(a)), load_side(Path(b))
    matched, only_a, only_b = _matched(ours, theirs)
    if not matched:
        raise InputError(
            f"{a} and {b} have no experiment in common",
            f"A has {_listed(ours)}; B has {_listed(theirs)}: name files of one experiment each",
        )
    why_not = _why_not_comparable(ours, theirs, across_machines)
    interleaved = ours.run_dir is not None and ours.run_dir == theirs.run_dir
    return Comparison(
        a=ours.facts,
        b=theirs.facts,
        series=tuple(_compared(before, after, why_not, interleaved) for before, after in matched),
        only_a=only_a,
        only_b=only_b,
        limit=limit,
    )


def _matched(
    ours: Side, theirs: Side
) -> tuple[list[tuple[SideSeries, SideSeries]], tuple[Series, ...], tuple[Series, ...]]:
    """Series of the same name and thread count; with one on each side, those two, whatever their names."""
    if len(ours.series) == len(theirs.series) == 1:
        return [(ours.series[0], theirs.series[0])], (), ()
    known = {one.series: one for one in theirs.series}
    pairs = [(one, known[one.series]) for one in ours.series if one.series in known]
    shared = {before.series for before, _ in pairs}
    return (
        pairs,
        tuple(one.series for one in ours.series if one.series not in shared),
        tuple(one.series for one in theirs.series if one.series not in shared),
    )


def _listed(side: Side) -> str:
    return "; ".join(str(one.series) for one in side.series) or "none"


def _why_not_comparable(ours: Side, theirs: Side, across_machines: bool) -> str | None:
    for side in (ours, theirs):
        if not side.facts.timings_are_latency:
            return f"the times of {side.facts.name} come from an emulated or traced run"
    a, b = ours.facts.cpu, theirs.facts.cpu
    if a and b and a != b and not across_machines:
        return f"they were measured on different CPUs ({a} and {b}); --across-machines compares the machines"
    return None


def _compared(
    before: SideSeries, after: SideSeries, why_not: str | None, interleaved: bool
) -> SeriesComparison:
    for side in (before, after):
        if side.dumps and not side.dumps[0].timings_are_latency:
            why_not = why_not or f"the times of {side.series} come from an emulated or traced run"
    judge = compare_rounds if interleaved else compare_separate

    def compared(one: Rounds, other: Rounds) -> Speedup:
        return judge(one, other, not_comparable=why_not)

    end_to_end, with_tracer = _end_to_end(before, after, compared)
    parts: tuple[PartChange, ...] = ()
    operators: tuple[OperatorPair, ...] = ()
    notes = []
    if before.dumps and after.dumps:
        parts = () if why_not else _parts(before.dumps, after.dumps, compared)
        pairing = pair_dumps(before.dumps[0], after.dumps[0])
        if pairing.matched_by == "order":
            notes.append("operators are matched by their order, for want of a program that explains both")
        operators = (
            pairing.operators
            if why_not
            else _judged_operators(pairing.operators, before.dumps, after.dumps, compared)
        )
    elif before.dumps or after.dumps:
        notes.append("only one side has dumps: operators and categories cannot be compared")
    return SeriesComparison(
        before.series, after.series, end_to_end, with_tracer, parts, operators, tuple(notes)
    )


def _end_to_end(before: SideSeries, after: SideSeries, compared: _Compare) -> tuple[Speedup, bool]:
    """From latencies without the tracer where both sides have them; the two views are never mixed."""
    if before.rounds and after.rounds:
        return compared(before.rounds, after.rounds), False
    if before.dumps and after.dumps:
        rounds = [[_ms(dump.breakdown.e2e) for dump in side.dumps] for side in (before, after)]
        return compared(rounds[0], rounds[1]), True
    found = compared((), ())
    a, b = _median(before), _median(after)
    if a and b and found.reason.startswith("no round"):
        why = "only medians are known, which do not show how much processes differ by themselves"
        return replace(found, reason=why, ratio=a / b, baseline_median=a, candidate_median=b), False
    return found, False


def _median(side: SideSeries) -> float | None:
    if side.rounds:
        return float(np.median(np.concatenate([np.asarray(one) for one in side.rounds])))
    return side.median_only


def _parts(
    before: Sequence[DumpAnalysis], after: Sequence[DumpAnalysis], compared: _Compare
) -> tuple[PartChange, ...]:
    chosen: dict[str, Callable[[DumpAnalysis], Int64]] = {
        category.value: _category(category) for category in Category
    }
    chosen["Framework overhead"] = lambda dump: dump.breakdown.framework
    chosen["Unattributed"] = lambda dump: dump.breakdown.unattributed
    rounds = {
        name: tuple([_ms(part(dump)) for dump in side] for side in (before, after))
        for name, part in chosen.items()
    }
    judged = _corrected(
        {
            name: compared(ours, theirs)
            for name, (ours, theirs) in rounds.items()
            if _long_enough(ours) and _long_enough(theirs)
        },
        holm,
    )
    whole = [_middle([_ms(dump.breakdown.e2e) for dump in side]) for side in (before, after)]
    return tuple(
        PartChange(
            name=name,
            before_ms=_middle(ours),
            after_ms=_middle(theirs),
            before_share=_middle(ours) / whole[0],
            after_share=_middle(theirs) / whole[1],
            speedup=judged.get(name),
        )
        for name, (ours, theirs) in rounds.items()
    )


def _category(category: Category) -> Callable[[DumpAnalysis], Int64]:
    return lambda dump: dump.breakdown.categories[category]


def _judged_operators(
    pairs: Sequence[OperatorPair],
    before: Sequence[DumpAnalysis],
    after: Sequence[DumpAnalysis],
    compared: _Compare,
) -> tuple[OperatorPair, ...]:
    ours, theirs = [_times(dump) for dump in before], [_times(dump) for dump in after]
    alone = {}
    for place, pair in enumerate(pairs):
        if pair.change in ("appeared", "vanished"):
            continue
        rounds = _rounds_of(pair.baseline, ours), _rounds_of(pair.candidate, theirs)
        if _long_enough(rounds[0]) and _long_enough(rounds[1]):
            alone[str(place)] = compared(*rounds)
    judged = _corrected(alone, benjamini_hochberg)
    return tuple(replace(pair, speedup=judged.get(str(place))) for place, pair in enumerate(pairs))


_Key = tuple[tuple[str, int, int], str]


def _times(dump: DumpAnalysis) -> dict[_Key, list[Int64]]:
    """Self time of every operator in every run, in nanoseconds."""
    found: dict[_Key, list[Int64]] = {}
    for group, of_event in zip(dump.attribution.groups, dump.operator_of_event, strict=True):
        for column, owner in enumerate(of_event.tolist()):
            if owner >= 0:
                operator = dump.operators[owner]
                found.setdefault((operator.identity, operator.type), []).append(group.self_ns[:, column])
    return found


def _rounds_of(operators: Sequence[Operator], dumps: Sequence[dict[_Key, list[Int64]]]) -> list[list[float]]:
    """What the operators of one side of a pair took together, by round; empty where a dump lacks one."""
    rounds = []
    for times in dumps:
        parts = [
            np.concatenate(times[operator.identity, operator.type])
            for operator in operators
            if (operator.identity, operator.type) in times
        ]
        whole = len(parts) == len(operators) and len({len(part) for part in parts}) == 1
        rounds.append(_ms(np.sum(parts, axis=0)) if whole else [])
    return rounds


def _corrected(alone: dict[str, Speedup], correction: Callable[[Floats], Floats]) -> dict[str, Speedup]:
    """Verdicts that still hold when it is counted how many were asked for."""
    asked = [name for name, found in alone.items() if found.p_value is not None]
    if not asked:
        return alone
    adjusted = correction(np.array([alone[name].p_value for name in asked], dtype=np.float64))
    judged = dict(alone)
    for name, p_value in zip(asked, adjusted, strict=True):
        found = replace(alone[name], p_value=float(p_value))
        if found.verdict in (Verdict.FASTER, Verdict.SLOWER) and p_value > 1 - CONFIDENCE:
            why = f"{found.reason}: not beyond chance among as many comparisons (p {p_value:.2g})"
            found = replace(found, verdict=Verdict.NO_CHANGE, reason=why)
        judged[name] = found
    return judged


def _long_enough(rounds: Rounds) -> bool:
    known = [one for one in rounds if len(one)]
    return bool(known) and all(float(np.median(one)) >= _SHORTEST_MS for one in known)


def _ms(nanoseconds: Int64) -> list[float]:
    return [float(value) for value in nanoseconds / 1e6]


def _middle(rounds: Rounds) -> float:
    """The median of the rounds' medians."""
    return float(np.median([np.median(one) for one in rounds if len(one)]))
