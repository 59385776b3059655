"""Compares two measurements (run directories or dumps): what changed, and how certainly.

Series that took turns in the same launches are compared launch by launch; series of one run directory round
by round; runs made at different times with an allowance for changes of the machine (`runs/times.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from model_profiling.analysis.evidence import SeriesEvidence
from model_profiling.analysis.pairing import Pairing, pair_series
from model_profiling.analysis.run import Proven, analyse_run, proven_of
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.analysis.structure import (
    CHANGES,
    Aspect,
    Differences,
    cost_changes,
    kernel_changes,
    operator_changes,
    why_kernels_unknown,
)
from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core.errors import InputError
from model_profiling.core.files import StrPath, as_path
from model_profiling.core.formatting import listing
from model_profiling.report.comparison import Comparison, SeriesComparison, SideFacts
from model_profiling.runs import Run, Times, why_not_comparable
from model_profiling.runs.folders import only_run_in
from model_profiling.runs.times import (
    Origin,
    Timed,
    compare_timed,
    compared_turns,
    timed_as_kept,
    way_of,
)
from model_profiling.statistics.speedup import Speedup


@dataclass(frozen=True, slots=True)
class MeasurementSeries:
    series: Series
    origin: Origin
    timed: Timed = field(default_factory=Timed)
    """Without the tracer; empty if not measured."""
    dumps: SeriesAnalysis | None = None
    names: tuple[str, ...] = ()
    """Other names of its experiment: a CPU without SME2 has one baseline for both on and off."""
    kernels: SeriesEvidence | None = None
    costs: Mapping[Aspect, float] = field(default_factory=dict)
    """Peak memory in bytes and loading in ms, as far as they are known."""

    @property
    def called(self) -> set[str]:
        return {self.series.experiment, *self.names}


@dataclass(frozen=True, slots=True)
class Measurement:
    """One of the two measurements; `run_dir` is the run that it is or lies in."""

    facts: SideFacts
    run_dir: Path | None
    series: tuple[MeasurementSeries, ...]
    proven: tuple[SeriesEvidence, ...] = ()
    """What an emulated run of its program proved, if its own CPU has no SME2."""
    damaged: str = ""
    """Why its kernel data cannot be read; empty if it can."""

    @property
    def experiments(self) -> str:
        return "; ".join(str(one.series) for one in self.series) or "none"


def load_measurement(path: Path, times: Times | None = None) -> Measurement:
    if path.is_dir():
        folder = only_run_in(path)
        return _of_run(Run.open(folder, times=times), str(folder))
    if not path.is_file() or not names.is_dump(path):
        problem = f"{path} is neither a run directory nor a dump" if path.exists() else f"there is no {path}"
        raise InputError(problem, "name a run directory or an .etdump")
    return _of_run(Run.of_files([path], times=times), str(path), tolerant=False)


def _of_run(run: Run, name: str, *, tolerant: bool = True) -> Measurement:
    analysis = analyse_run(run, run.programs(), tolerant=tolerant) if run.dumps else None
    proven = (analysis.proven if analysis else None) or proven_of(run, ())
    own = {kernels.series: kernels for kernels in _kernels_of(proven, 0)}
    manifest = run.whole.manifest
    series = []
    for one in run.series:
        dumps, stats = analysis.of(one) if analysis else None, run.robust_stats(one)
        series.append(
            MeasurementSeries(
                one,
                run.origin(one),
                timed_as_kept(stats.end_to_end_rounds_ms, run.whole.journal, one) if stats else Timed(),
                dumps,
                manifest.asked_as(one.experiment) if manifest else (),
                own.get(one),
                _costs_of(run, one),
            )
        )
    whole, model = run.whole, Path(analysis.model).stem if analysis and analysis.model else ""
    before = manifest.machine.before if manifest else None
    facts = SideFacts(
        name=name,
        model=whole.model_name or model,
        model_sha256=manifest.model_sha256 if manifest else "",
        platform=whole.platform,
        cpu=manifest.cpu if manifest else "",
        executorch=(manifest.executorch.version or "") if manifest else "",
        runner_build=(manifest.runner.build_id or "") if manifest else "",
        times=run.times,
        is_arm=manifest.is_arm if manifest else None,
        machine=before.machine if before else "",
    )
    return Measurement(
        facts,
        whole.path.resolve() if manifest else None,
        tuple(series),
        _kernels_of(proven, 1),
        proven.damaged.problem if proven.damaged else "",
    )


def _costs_of(run: Run, series: Series) -> Mapping[Aspect, float]:
    latency = run.metrics.latency(series) if run.metrics and run.times_of(series).are_latencies else None
    known: dict[Aspect, float | None] = (
        {"memory": latency.peak_memory_bytes, "load": latency.load_ms} if latency else {}
    )
    return {aspect: value for aspect, value in known.items() if value}


def _kernels_of(proven: Proven, place: int) -> tuple[SeriesEvidence, ...]:
    """Return the kernels of the run itself (0) or of the evidence kept in it (1)."""
    return tuple(kernels for run in proven.evidence[place : place + 1] for kernels in run.kernels)


def are_programs(a: Path, b: Path) -> bool:
    """Whether both are programs; a program and a measurement cannot be compared."""
    programs = [path for path in (a, b) if path.suffix == ".pte" and not path.is_dir()]
    if len(programs) == 1:
        other = b if programs[0] == a else a
        fix = "name two programs, or two measurements"
        raise InputError(f"{programs[0]} is a program and {other} is not", fix)
    return bool(programs)


# Differences other than time, experiment by experiment.


def differences(
    ours: Measurement,
    theirs: Measurement,
    matched: Iterable[tuple[MeasurementSeries, MeasurementSeries]],
    pairings: Sequence[Pairing | None],
    limits: Mapping[Aspect, float],
) -> Iterator[Differences]:
    """Yield the differences of each matched pair of experiments, then of what emulation proved for each side.
    `pairings` holds the operators that were already paired."""
    damaged = ours.damaged or theirs.damaged
    proven = [] if damaged else list(_proven(ours.proven, theirs.proven))
    emulated = bool(proven) and not any(differing.unknown for differing in proven)
    for (before, after), pairing in zip(matched, pairings, strict=True):
        differing = _with_costs(_of_series(before, after, pairing), before, after, limits)
        if damaged:
            yield replace(differing, unknown={**differing.unknown, "kernels": damaged})
        elif emulated and not any(of.kernels and of.kernels.counted for of in (before, after)):
            # This CPU has no such kernels, so only those counted under emulation can be compared.
            notes = (*differing.notes, differing.unknown["kernels"])
            yield replace(differing, unknown={**differing.unknown, "kernels": ""}, notes=notes)
        else:
            yield differing
    yield from proven


def _of_series(before: MeasurementSeries, after: MeasurementSeries, pairing: Pairing | None) -> Differences:
    missing = [side for side, of in (("A", before), ("B", after)) if not (of.dumps and of.dumps.operators)]
    unknown = f"operators are unknown: no dump of {listing(missing)}" if missing else ""
    pairs = [(pair.baseline, pair.candidate) for pair in pairing.operators] if pairing else []
    changes = () if missing else tuple(operator_changes(pairs))
    why_not = why_kernels_unknown(before.kernels, after.kernels)
    if before.kernels and after.kernels and not why_not:
        changes = (*changes, *kernel_changes(before.kernels, after.kernels, labels=bool(missing)))
    same = before.series == after.series
    name = str(after.series) if same else f"{after.series} vs {before.series}"
    return Differences(name, changes, {"structure": unknown, "kernels": why_not})


def _with_costs(
    differing: Differences,
    before: MeasurementSeries,
    after: MeasurementSeries,
    limits: Mapping[Aspect, float],
) -> Differences:
    """Add what grew beyond its limit, or why that is unknown."""
    for name, side in (("A", before), ("B", after)):
        if missing := [aspect for aspect in limits if aspect not in side.costs]:
            why_not = dict.fromkeys(limits, f"{name} has no measured {listing(missing)}")
            return replace(differing, unknown={**differing.unknown, **why_not})
    grown = cost_changes(before.costs, after.costs, limits)
    return replace(differing, changes=(*differing.changes, *grown))


def _proven(ours: Sequence[SeriesEvidence], theirs: Sequence[SeriesEvidence]) -> Iterator[Differences]:
    """Compare kernels proven by emulation; there are no operators to compare."""
    after_of = {kernels.series: kernels for kernels in theirs}
    for before in ours:
        name = f"{before.series} (emulated evidence)"
        after = after_of.get(before.series)
        why_not = why_kernels_unknown(before, after)
        if after is None or why_not:
            yield Differences(name, unknown={"kernels": why_not}, only_kernels=True)
        else:
            yield Differences(name, tuple(kernel_changes(before, after)), only_kernels=True)


def compare(
    a: StrPath,
    b: StrPath,
    *,
    limit: float | None = None,
    across_machines: bool = False,
    times: Times | None = None,
    fail_on: Iterable[Aspect] = (),
    memory_limit: float | None = None,
    load_limit: float | None = None,
) -> Comparison:
    """Judge B against A: two run directories or dumps; nothing is measured.

    `limit` is the regression that fails, as a share (0.05 is 5%). Different CPUs are not comparable unless
    `across_machines` says that the machines are the question. `times` is your word on files that nothing else
    speaks for. `fail_on` names what must not change apart from times: `structure`, `kernels`. Peak memory and
    loading may grow by `memory_limit` and `load_limit`, also shares.

        found = compare("runs/before", "runs/after", limit=0.05)
        found.speedups.to_pandas()

    Files that cannot be used, or that have no experiment in common, are an `InputError`; that times may not
    be compared is an answer with its reason, not an error.
    """
    gated, limits = asked_gates(limit, fail_on, memory_limit, load_limit)
    ours, theirs = (load_measurement(as_path(path), times) for path in (a, b))
    return compare_sides(
        ours, theirs, limit=limit, across_machines=across_machines, gated=gated, limits=limits
    )


def asked_gates(
    limit: float | None = None,
    fail_on: Iterable[Aspect] = (),
    memory_limit: float | None = None,
    load_limit: float | None = None,
) -> tuple[tuple[Aspect, ...], dict[Aspect, float]]:
    """Return the gates apart from time in their fixed order, and the limits of those that have one; called
    before anything is read, so that errors come early."""
    costs: dict[Aspect, float | None] = {"memory": memory_limit, "load": load_limit}
    limits = {aspect: share for aspect, share in costs.items() if share is not None}
    for share in (limit or 0.0, *limits.values()):
        if not 0 <= share < math.inf:
            raise InputError(f"{share:g} is not a regression limit", "give a share of 0 or more")
    aspects = set(fail_on)
    if unknown := aspects.difference(CHANGES):
        raise InputError(f"unknown kind of change '{sorted(unknown)[0]}'", f"name {listing(CHANGES)}")
    return (*(aspect for aspect in CHANGES if aspect in aspects), *limits), limits


def compare_sides(
    ours: Measurement,
    theirs: Measurement,
    *,
    limit: float | None = None,
    across_machines: bool = False,
    gated: tuple[Aspect, ...] = (),
    limits: Mapping[Aspect, float] | None = None,
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
    pairings = [comparison.pairing for comparison in series]
    return Comparison(
        a=ours.facts,
        b=theirs.facts,
        series=series,
        only_a=only_a,
        only_b=only_b,
        limit=limit,
        differences=tuple(differences(ours, theirs, matched, pairings, limits or {})),
        gated=gated,
    )


def _why_not_comparable(
    before: MeasurementSeries, after: MeasurementSeries, across_machines: bool
) -> str | None:
    """Ignore features that the CPU lacks: a baseline may stand for experiments that differ only in those."""
    ours, theirs = replace(before.origin, name="A"), replace(after.origin, name="B")
    alike = before.series.threads == after.series.threads and before.called & after.called
    if before.series != after.series and alike and before.names != after.names:
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
            notes.append("operators are matched by their order, because no program describes both sides")
    elif before.dumps or after.dumps:
        notes.append("only one side has dumps: operators and categories cannot be compared")
    end_to_end, with_tracer = _end_to_end(before, after, pairing, same_run, why_not)
    way = way_of(before.timed, after.timed, same_run=same_run)
    compared = end_to_end.ratio is not None and not with_tracer
    turns = compared_turns(before.timed, after.timed, same_run=same_run) if compared else None
    return SeriesComparison(
        before.series, after.series, end_to_end, with_tracer, pairing, tuple(notes), way, turns
    )


def _end_to_end(
    before: MeasurementSeries,
    after: MeasurementSeries,
    pairing: Pairing | None,
    same_run: bool,
    why_not: str | None,
) -> tuple[Speedup, bool]:
    """Use latencies without the tracer if both sides have them; never mix traced and untraced."""
    both = before.timed.rounds and after.timed.rounds
    if pairing is not None and not both:
        return pairing.e2e, True
    sides = (before.timed, after.timed) if both else (Timed(), Timed())
    return compare_timed(*sides, same_run=same_run, not_comparable=why_not), False
