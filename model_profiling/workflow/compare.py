"""Compares two measurements, each a run directory, a dump or a file of latencies: what changed, how surely.

Series that took turns in the same launches, of one run or of two measured together, are compared launch by
launch; those of one run directory round by round; runs made at different times with what the machine may have
been doing then allowed for (`run/latencies.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from model_profiling.analysis.latency_files import read_latencies
from model_profiling.analysis.pairing import Pairing, pair_series
from model_profiling.analysis.run import analyse_run
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.errors import FormatError, InputError
from model_profiling.files import StrPath, as_path
from model_profiling.json_record import read_json_object
from model_profiling.report.comparison import Comparison, SeriesComparison, SideFacts
from model_profiling.run import Run, Series, Times, names, why_not_comparable
from model_profiling.run.comparability import Origin
from model_profiling.run.latencies import Timed, compare_timed, timed_as_kept, way_of
from model_profiling.run.metrics import read_metrics, read_robust_stats
from model_profiling.statistics.verdict import Speedup

_TOLD = 12
"""Series that an error names."""
_WHAT_TO_NAME = "name a run directory, an .etdump or a JSON file of a run"


@dataclass(frozen=True, slots=True)
class SideSeries:
    """What is known of one series: latencies by round in milliseconds, and its dumps."""

    series: Series
    origin: Origin
    timed: Timed = field(default_factory=Timed)
    """Without the tracer; empty where not measured."""
    median_only: float | None = None
    """The median without the tracer, where a file kept it but not the latencies themselves."""
    dumps: SeriesAnalysis | None = None
    names: tuple[str, ...] = ()
    """What its experiment is called too: a CPU without SME2 has one baseline for both on and off."""

    @property
    def called(self) -> set[str]:
        """Every name of its experiment."""
        return {self.series.experiment, *self.names}

    def is_like(self, other: SideSeries) -> bool:
        return self.series.threads == other.series.threads and bool(self.called & other.called)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two measurements; `run_dir` is the run it is or lies in, whose rounds ran side by side."""

    facts: SideFacts
    run_dir: Path | None
    series: tuple[SideSeries, ...]

    @property
    def experiments(self) -> str:
        told = [str(found.series) for found in self.series[:_TOLD]]
        left = len(self.series) - len(told)
        return "; ".join([*told, *([f"and {left} more"] if left else [])]) or "none"


def compare(
    a: StrPath,
    b: StrPath,
    *,
    limit: float | None = None,
    across_machines: bool = False,
    times: Times | None = None,
) -> Comparison:
    """Judge B against A: two run directories, dumps or JSON files of latencies; nothing is measured.

    `limit` is the regression that fails, as a share (0.05 is 5%). Different CPUs are not comparable unless
    `across_machines` says that the machines are the question. `times` is your word on files that nothing else
    speaks for.

        found = compare("runs/before", "runs/after", limit=0.05)
        found.speedups.to_pandas()

    Files that cannot be used, or that have no experiment in common, are an `InputError`; that times may not
    be compared is an answer with its reason, not an error.
    """
    if limit is not None and not 0 <= limit < math.inf:
        raise InputError(f"a regression limit of {limit:g} means nothing", "give a share of 0 or more")
    ours, theirs = load_side(as_path(a), times), load_side(as_path(b), times)
    matched, only_a, only_b = _matched(ours, theirs)
    if not matched:
        raise InputError(
            f"{a} and {b} have no experiment in common",
            f"A has {ours.experiments}; B has {theirs.experiments}: name files of one experiment each",
        )
    same_run = ours.run_dir is not None and ours.run_dir == theirs.run_dir
    return Comparison(
        a=ours.facts,
        b=theirs.facts,
        series=tuple(
            _compared(
                before,
                after,
                _why_not_comparable(before, after, across_machines),
                same_run,
            )
            for before, after in matched
        ),
        only_a=only_a,
        only_b=only_b,
        limit=limit,
    )


def _why_not_comparable(before: SideSeries, after: SideSeries, across_machines: bool) -> str | None:
    """What a baseline stands for was switched in a feature that its CPU lacks: that is no difference."""
    ours, theirs = before.origin, after.origin
    if before.series != after.series and before.is_like(after) and before.names != after.names:
        ours = replace(ours, disabled=theirs.disabled, sme2=theirs.sme2)
    return why_not_comparable(ours, theirs, across_machines=across_machines)


def load_side(path: Path, times: Times | None = None) -> Side:
    """Read whatever `path` names."""
    if path.is_dir():
        return _of_run(Run.open(path, times=times), str(path), "run directory")
    if not path.is_file():
        raise InputError(f"there is no {path}", _WHAT_TO_NAME)
    if names.is_dump(path):
        return _of_run(Run.of_files([path], times=times), str(path), "dump")
    if path.suffix == ".json":
        return _of_json(path, times)
    raise InputError(f"{path} is neither a run directory, a dump nor a JSON file of latencies", _WHAT_TO_NAME)


def _of_run(run: Run, name: str, kind: str) -> Side:
    analysis = analyse_run(run, run.programs(), tolerant=kind == "run directory") if run.dumps else None
    series = []
    for found in run.series:
        latency = run.metrics.latency(found) if run.metrics else None
        timed = run.times_of(found).are_latencies
        series.append(
            SideSeries(
                found,
                run.origin(found),
                _timed(run, found),
                latency.end_to_end_ms.median if timed and latency and latency.end_to_end_ms else None,
                analysis.of(found) if analysis else None,
                run.whole.manifest.asked_as(found.experiment) if run.whole.manifest else (),
            )
        )
    model = Path(analysis.model).stem if analysis and analysis.model else ""
    run_dir = run.whole.path.resolve() if run.whole.manifest else None
    return Side(replace(_facts(run.whole, name, kind, model), times=run.times), run_dir, tuple(series))


def _timed(run: Run, series: Series) -> Timed:
    stats = run.robust_stats(series)
    return timed_as_kept(stats.end_to_end_rounds_ms, run.whole.journal, series) if stats else Timed()


def _of_json(path: Path, times: Times | None) -> Side:
    try:
        content = read_json_object(path, _WHAT_TO_NAME, follow=True)
    except FormatError as problem:
        raise FormatError(problem.problem, _WHAT_TO_NAME) from problem
    around = Run.around(path)
    if path.name == names.METRICS and around and around.path == path.resolve().parent:
        return _of_run(Run.open(path.parent), str(path), "run directory")
    if "latencies" in content or "comparisons" in content:
        metrics = read_metrics(path)
        return _of_run(Run(path.parent, metrics=metrics), str(path), "latencies")
    series, rounds = Series(path.stem.removesuffix("_robust_stats")), read_latencies(path).rounds
    stated = times or Times.UNKNOWN
    if "experiment" in content:
        stats = read_robust_stats(path)
        series, stated = stats.series, stats.times
    origin = around.origin(series) if around else Origin(str(series), stated, series.threads)
    known = Timed(rounds) if origin.times.are_latencies else Timed()
    if around and "experiment" in content:
        known = _timed(around, series)
    facts = _facts(around or Run(path.parent), str(path), "latencies", "")
    return Side(
        replace(facts, times=origin.times),
        around.path if around else None,
        (SideSeries(series, origin, known),),
    )


def _facts(run: Run, name: str, kind: str, model: str) -> SideFacts:
    manifest = run.manifest
    before = manifest.machine.before if manifest else None
    return SideFacts(
        name=name,
        kind=kind,
        model=run.model_name or model,
        model_sha256=manifest.model_sha256 if manifest else "",
        platform=run.platform,
        cpu=manifest.cpu if manifest else "",
        executorch=(manifest.executorch.version or "") if manifest else "",
        runner_build=(manifest.runner.build_id or "") if manifest else "",
        times=run.times,
        cores=before.cores if before else None,
        load=before.load_average if before else None,
    )


def _matched(
    ours: Side, theirs: Side
) -> tuple[list[tuple[SideSeries, SideSeries]], tuple[Series, ...], tuple[Series, ...]]:
    """Series of the same name and thread count; with one on each side, those two, whatever their names."""
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


def _compared(before: SideSeries, after: SideSeries, why_not: str | None, same_run: bool) -> SeriesComparison:
    pairing = None
    notes = []
    if before.dumps and after.dumps:
        pairing = pair_series(before.dumps, after.dumps, interleaved=same_run, not_comparable=why_not)
        if pairing.matched_by == "order":
            notes.append("operators are matched by their order, for want of a program that explains both")
    elif before.dumps or after.dumps:
        notes.append("only one side has dumps: operators and categories cannot be compared")
    end_to_end, with_tracer = _end_to_end(before, after, pairing, same_run, why_not)
    way = way_of(before.timed, after.timed, same_run=same_run)
    return SeriesComparison(before.series, after.series, end_to_end, with_tracer, pairing, tuple(notes), way)


def _end_to_end(
    before: SideSeries, after: SideSeries, pairing: Pairing | None, same_run: bool, why_not: str | None
) -> tuple[Speedup, bool]:
    """From latencies without the tracer where both sides have them; the two views are never mixed."""
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


def _median(side: SideSeries) -> float | None:
    values = [value for latencies in side.timed.rounds for value in latencies]
    return float(np.median(values)) if values else side.median_only
