"""Compares two measurements (run directories, dumps or files of latencies): what changed, and how certainly.

Series that took turns in the same launches are compared launch by launch; series of one run directory round
by round; runs made at different times with an allowance for changes of the machine (`run/comparability.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from model_profiling.analysis.evidence import SeriesEvidence
from model_profiling.analysis.pairing import Pairing, Pairs, match_operators, pair_series
from model_profiling.analysis.structure import (
    ASPECTS,
    Aspect,
    Differences,
    kernel_changes,
    operator_changes,
    why_kernels_unknown,
)
from model_profiling.core.errors import InputError
from model_profiling.core.files import StrPath, as_path
from model_profiling.core.formatting import listing
from model_profiling.report.comparison import SeriesComparison
from model_profiling.report.comparison_document import Comparison
from model_profiling.run import Series, Times, why_not_comparable
from model_profiling.run.comparability import Timed, compare_timed, way_of
from model_profiling.statistics.verdict import Speedup
from model_profiling.workflow.sides import Measurement, MeasurementSeries, load_measurement


def are_programs(a: Path, b: Path) -> bool:
    """Whether both are programs; a program and a measurement cannot be compared."""
    found = [path for path in (a, b) if path.suffix == ".pte" and not path.is_dir()]
    if len(found) == 1:
        other = b if found[0] == a else a
        raise InputError(
            f"{found[0]} is a program and {other} is not", "name two programs, or two measurements"
        )
    return bool(found)


# Differences other than time, experiment by experiment.


def differences(
    ours: Measurement,
    theirs: Measurement,
    matched: Iterable[tuple[MeasurementSeries, MeasurementSeries]],
    pairings: Sequence[Pairing | None],
) -> Iterator[Differences]:
    """Yield the differences of each matched pair of experiments, then of what emulation proved for each side.
    `pairings` holds the operators that were already paired."""
    damaged = ours.damaged or theirs.damaged
    proven = [] if damaged else list(_proven(ours.proven, theirs.proven))
    told_elsewhere = bool(proven) and not any(found.kernels_unknown for found in proven)
    for (before, after), pairing in zip(matched, pairings, strict=True):
        found = _of_series(before, after, pairing)
        if damaged:
            yield replace(found, kernels_unknown=damaged)
        elif told_elsewhere and not _counted(before) and not _counted(after):
            # This CPU has no such kernels, so only those counted under emulation can be compared.
            yield replace(found, kernels_unknown="", notes=(*found.notes, found.kernels_unknown))
        else:
            yield found
    yield from proven


def _counted(side: MeasurementSeries) -> bool:
    return side.kernels is not None and side.kernels.counted


def _of_series(before: MeasurementSeries, after: MeasurementSeries, pairing: Pairing | None) -> Differences:
    missing = [side for side, of in (("A", before), ("B", after)) if not of.operators]
    unknown = f"no dump tells the operators of {listing(missing)}" if missing else ""
    changes = () if missing else tuple(operator_changes(_pairs(before, after, pairing)))
    notes: tuple[str, ...] = ()
    why_not = why_kernels_unknown(before.kernels, after.kernels)
    if before.kernels and after.kernels and not why_not:
        called, notes = kernel_changes(before.kernels, after.kernels, labels=bool(missing))
        changes = (*changes, *called)
    return Differences(_name(before.series, after.series), changes, unknown, why_not, notes)


def _pairs(before: MeasurementSeries, after: MeasurementSeries, pairing: Pairing | None) -> Pairs:
    if pairing is not None:
        return [(pair.baseline, pair.candidate) for pair in pairing.operators]
    return match_operators(before.operators, after.operators)[1]


def _proven(ours: Sequence[SeriesEvidence], theirs: Sequence[SeriesEvidence]) -> Iterator[Differences]:
    """Compare kernels proven by emulation; there are no operators to compare."""
    after_of = {found.series: found for found in theirs}
    for before in ours:
        name = f"{before.series} (emulated evidence)"
        after = after_of.get(before.series)
        why_not = why_kernels_unknown(before, after)
        if after is None or why_not:
            yield Differences(name, kernels_unknown=why_not, only_kernels=True)
        else:
            changes, notes = kernel_changes(before, after)
            yield Differences(name, changes, notes=notes, only_kernels=True)


def _name(before: Series, after: Series) -> str:
    return str(after) if before == after else f"{after} against {before}"


def compare(
    a: StrPath,
    b: StrPath,
    *,
    limit: float | None = None,
    across_machines: bool = False,
    times: Times | None = None,
    fail_on: Iterable[Aspect] = (),
) -> Comparison:
    """Judge B against A: two run directories, dumps or JSON files of latencies; nothing is measured.

    `limit` is the regression that fails, as a share (0.05 is 5%). Different CPUs are not comparable unless
    `across_machines` says that the machines are the question. `times` is your word on files that nothing else
    speaks for. `fail_on` names what must not change apart from times: `structure`, `kernels`.

        found = compare("runs/before", "runs/after", limit=0.05)
        found.speedups.to_pandas()

    Files that cannot be used, or that have no experiment in common, are an `InputError`; that times may not
    be compared is an answer with its reason, not an error.
    """
    gates = asked_gates(limit, fail_on)
    return compare_sides(
        load_measurement(as_path(a), times),
        load_measurement(as_path(b), times),
        limit=limit,
        across_machines=across_machines,
        gated=gates,
    )


def asked_gates(limit: float | None, fail_on: Iterable[Aspect]) -> tuple[Aspect, ...]:
    """Return the gates in their fixed order; called before anything is read, so that errors come early."""
    if limit is not None and not 0 <= limit < math.inf:
        raise InputError(f"a regression limit of {limit:g} means nothing", "give a share of 0 or more")
    asked = set(fail_on)
    if unknown := asked.difference(ASPECTS):
        raise InputError(f"nothing called {sorted(unknown)[0]} can fail", f"name {listing(ASPECTS)}")
    return tuple(aspect for aspect in ASPECTS if aspect in asked)


def compare_sides(
    ours: Measurement,
    theirs: Measurement,
    *,
    limit: float | None = None,
    across_machines: bool = False,
    gated: tuple[Aspect, ...] = (),
) -> Comparison:
    matched, only_a, only_b = _matched(ours, theirs)
    if not matched:
        raise InputError(
            f"{ours.facts.name} and {theirs.facts.name} have no experiment in common",
            f"A has {ours.experiments}; B has {theirs.experiments}: name files of one experiment each",
        )
    same_run = ours.run_dir is not None and ours.run_dir == theirs.run_dir
    series = tuple(
        _compared(before, after, _why_not_comparable(before, after, across_machines), same_run)
        for before, after in matched
    )
    pairings = [found.pairing for found in series]
    return Comparison(
        a=ours.facts,
        b=theirs.facts,
        series=series,
        only_a=only_a,
        only_b=only_b,
        limit=limit,
        differences=tuple(differences(ours, theirs, matched, pairings)),
        gated=gated,
    )


def _why_not_comparable(
    before: MeasurementSeries, after: MeasurementSeries, across_machines: bool
) -> str | None:
    """Ignore features that the CPU lacks: a baseline may stand for experiments that differ only in those."""
    ours, theirs = before.origin, after.origin
    if before.series != after.series and before.is_like(after) and before.names != after.names:
        ours = replace(ours, disabled=theirs.disabled, sme2=theirs.sme2)
    return why_not_comparable(ours, theirs, across_machines=across_machines)


def _matched(
    ours: Measurement, theirs: Measurement
) -> tuple[list[tuple[MeasurementSeries, MeasurementSeries]], tuple[Series, ...], tuple[Series, ...]]:
    """Match series by name and thread count; a single series on each side matches whatever its name."""
    if len(ours.series) == len(theirs.series) == 1:
        return [(ours.series[0], theirs.series[0])], (), ()
    places: dict[tuple[int | None, str], list[int]] = {}
    for place, after in enumerate(theirs.series):
        for name in after.called:
            places.setdefault((after.series.threads, name), []).append(place)
    pairs, met = [], set()
    only = []
    for before in ours.series:
        alike = {place for name in before.called for place in places.get((before.series.threads, name), ())}
        pairs += [(before, theirs.series[place]) for place in sorted(alike)]
        met |= alike
        only += [] if alike else [before.series]
    left = tuple(after.series for place, after in enumerate(theirs.series) if place not in met)
    return pairs, tuple(only), left


def _compared(
    before: MeasurementSeries, after: MeasurementSeries, why_not: str | None, same_run: bool
) -> SeriesComparison:
    pairing = None
    notes = []
    if before.dumps and after.dumps:
        pairing = pair_series(before.dumps, after.dumps, interleaved=same_run, not_comparable=why_not)
        if pairing.matched_by == "order":
            notes.append("operators are matched by their order, for want of a program that explains both")
    elif before.operators and after.operators:
        if why_not is None:
            notes.append(
                "of a stored run operators are known, not their times in every round: those are not compared"
            )
    elif before.dumps or after.dumps:
        notes.append("only one side has dumps: operators and categories cannot be compared")
    end_to_end, with_tracer = _end_to_end(before, after, pairing, same_run, why_not)
    way = way_of(before.timed, after.timed, same_run=same_run)
    return SeriesComparison(before.series, after.series, end_to_end, with_tracer, pairing, tuple(notes), way)


def _end_to_end(
    before: MeasurementSeries,
    after: MeasurementSeries,
    pairing: Pairing | None,
    same_run: bool,
    why_not: str | None,
) -> tuple[Speedup, bool]:
    """Use latencies without the tracer if both sides have them; never mix traced and untraced."""
    if before.timed.rounds and after.timed.rounds:
        return compare_timed(before.timed, after.timed, same_run=same_run, not_comparable=why_not), False
    if pairing is not None:
        return pairing.e2e, True
    found = compare_timed(Timed(), Timed(), same_run=same_run, not_comparable=why_not)
    a, b = _median(before), _median(after)
    if a and b and why_not is None:
        why = "only medians are known, which do not show how much processes differ by themselves"
        return replace(found, reason=why, ratio=a / b, baseline_median=a, candidate_median=b), False
    return found, False


def _median(side: MeasurementSeries) -> float | None:
    values = [value for latencies in side.timed.rounds for value in latencies]
    return float(np.median(values)) if values else side.median_only
