"""What two sides of a comparison did differently apart from time, experiment by experiment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from model_profiling.analysis.evidence import SeriesEvidence
from model_profiling.analysis.pairing import Pairing, Pairs, match_operators
from model_profiling.analysis.structure import (
    Differences,
    kernel_changes,
    operator_changes,
    why_kernels_unknown,
)
from model_profiling.run import Series
from model_profiling.wording import listing
from model_profiling.workflow.sides import Side, SideSeries


def differences(
    ours: Side,
    theirs: Side,
    matched: Iterable[tuple[SideSeries, SideSeries]],
    pairings: Sequence[Pairing | None],
) -> Iterator[Differences]:
    """Of every two experiments that were `matched`, then of what emulation proved for each side. `pairings`
    are those whose operators were paired already."""
    damaged = ours.damaged or theirs.damaged
    proven = [] if damaged else list(_proven(ours.proven, theirs.proven))
    told_elsewhere = bool(proven) and not any(found.kernels_unknown for found in proven)
    for (before, after), pairing in zip(matched, pairings, strict=True):
        found = _of_series(before, after, pairing)
        if damaged:
            yield replace(found, kernels_unknown=damaged)
        elif told_elsewhere and not _counted(before) and not _counted(after):
            # No such kernels exist on this CPU: those that emulation counted are what there is to compare.
            yield replace(found, kernels_unknown="", notes=(*found.notes, found.kernels_unknown))
        else:
            yield found
    yield from proven


def _counted(side: SideSeries) -> bool:
    return side.kernels is not None and side.kernels.counted


def _of_series(before: SideSeries, after: SideSeries, pairing: Pairing | None) -> Differences:
    missing = [side for side, of in (("A", before), ("B", after)) if not of.operators]
    unknown = f"no dump tells the operators of {listing(missing)}" if missing else ""
    changes = () if missing else tuple(operator_changes(_pairs(before, after, pairing)))
    notes: tuple[str, ...] = ()
    why_not = why_kernels_unknown(before.kernels, after.kernels)
    if before.kernels and after.kernels and not why_not:
        called, notes = kernel_changes(before.kernels, after.kernels, labels=bool(missing))
        changes = (*changes, *called)
    return Differences(_name(before.series, after.series), changes, unknown, why_not, notes)


def _pairs(before: SideSeries, after: SideSeries, pairing: Pairing | None) -> Pairs:
    if pairing is not None:
        return [(pair.baseline, pair.candidate) for pair in pairing.operators]
    return match_operators(before.operators, after.operators)[1]


def _proven(ours: Sequence[SeriesEvidence], theirs: Sequence[SeriesEvidence]) -> Iterator[Differences]:
    """What emulation proved of a program whose run could not: it has no operators of its own to compare."""
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
