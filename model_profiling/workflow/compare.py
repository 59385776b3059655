"""Compares two measurements, each a run directory, a dump or a file of latencies: what changed, how surely.

Runs made at different times are compared with `compare_separate`, whose interval allows for what the
machine was doing then; series of one run directory were interleaved and are compared round by round.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from model_profiling.analysis.pairing import CategoryPair, Pairing, pair_series
from model_profiling.analysis.series import series_of
from model_profiling.statistics.speedup import Speedup, compare_rounds, compare_separate
from model_profiling.errors import InputError
from model_profiling.report.comparison import Comparison, PartChange, SeriesComparison
from model_profiling.report.data import Series
from model_profiling.workflow.sides import Side, SideSeries, load_side


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
    pairing = None
    notes = []
    if before.dumps and after.dumps:
        pairing = pair_series(
            series_of(before.dumps),
            series_of(after.dumps),
            interleaved=interleaved,
            not_comparable=why_not or "",
        )
        if pairing.matched_by == "order":
            notes.append("operators are matched by their order, for want of a program that explains both")
    elif before.dumps or after.dumps:
        notes.append("only one side has dumps: operators and categories cannot be compared")
    end_to_end, with_tracer = _end_to_end(before, after, pairing, interleaved, why_not)
    return SeriesComparison(
        before.series,
        after.series,
        end_to_end,
        with_tracer,
        parts=() if why_not or not pairing else tuple(map(_part, pairing.categories)),
        operators=pairing.operators if pairing else (),
        notes=tuple(notes),
        interleaved=interleaved,
    )


def _end_to_end(
    before: SideSeries, after: SideSeries, pairing: Pairing | None, interleaved: bool, why_not: str | None
) -> tuple[Speedup, bool]:
    """From latencies without the tracer where both sides have them; the two views are never mixed."""
    judge = compare_rounds if interleaved else compare_separate
    if before.rounds and after.rounds:
        return judge(before.rounds, after.rounds, not_comparable=why_not), False
    if pairing is not None:
        return pairing.e2e, True
    found = judge((), (), not_comparable=why_not)
    a, b = _median(before), _median(after)
    if a and b and found.reason.startswith("no round"):
        why = "only medians are known, which do not show how much processes differ by themselves"
        return replace(found, reason=why, ratio=a / b, baseline_median=a, candidate_median=b), False
    return found, False


def _median(side: SideSeries) -> float | None:
    if side.rounds:
        return float(np.median(np.concatenate([np.asarray(one) for one in side.rounds])))
    return side.median_only


def _part(one: CategoryPair) -> PartChange:
    return PartChange(
        name=one.name,
        before_ms=one.baseline_ms,
        after_ms=one.candidate_ms,
        before_share=one.baseline_share,
        after_share=one.candidate_share,
        ratio=one.ratio,
        speedup=one.speedup,
    )
