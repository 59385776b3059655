"""Reads one side of a comparison: a run directory, a dump or a file of latencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from model_profiling.analysis.evidence import PlaceEvidence, SeriesEvidence
from model_profiling.analysis.input_files import read_latencies
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.run import Proven, analyse_run, proven_of
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.records import read_json_object
from model_profiling.report.comparison import SideFacts
from model_profiling.run import Run, Series, Times, names
from model_profiling.run.comparability import Origin, Timed, timed_as_kept
from model_profiling.run.metrics import read_metrics, read_robust_stats

_TOLD = 12
"""How many series an error names."""
_WHAT_TO_NAME = "name a run directory, an .etdump or a JSON file of a run"


@dataclass(frozen=True, slots=True)
class MeasurementSeries:
    series: Series
    origin: Origin
    timed: Timed = field(default_factory=Timed)
    """Without the tracer; empty if not measured."""
    median_only: float | None = None
    """The median without the tracer, if a file kept it without the latencies."""
    dumps: SeriesAnalysis | None = None
    names: tuple[str, ...] = ()
    """Other names of its experiment: a CPU without SME2 has one baseline for both on and off."""
    operators: tuple[Operator, ...] = ()
    """From its dumps, or from the store for a stored run."""
    kernels: SeriesEvidence | None = None

    @property
    def called(self) -> set[str]:
        return {self.series.experiment, *self.names}

    def is_like(self, other: MeasurementSeries) -> bool:
        return self.series.threads == other.series.threads and bool(self.called & other.called)


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
        told = [str(found.series) for found in self.series[:_TOLD]]
        left = len(self.series) - len(told)
        return "; ".join([*told, *([f"and {left} more"] if left else [])]) or "none"


def load_measurement(path: Path, times: Times | None = None) -> Measurement:
    if path.is_dir():
        return _of_run(Run.open(path, times=times), str(path), "run directory")
    if not path.is_file():
        raise InputError(f"there is no {path}", _WHAT_TO_NAME)
    if names.is_dump(path):
        return _of_run(Run.of_files([path], times=times), str(path), "dump")
    if path.suffix == ".json":
        return _of_json(path, times)
    raise InputError(f"{path} is neither a run directory, a dump nor a JSON file of latencies", _WHAT_TO_NAME)


def _of_run(run: Run, name: str, kind: str) -> Measurement:
    analysis = analyse_run(run, run.programs(), tolerant=kind == "run directory") if run.dumps else None
    proven = (analysis.proven if analysis else None) or proven_of(run, ())
    own = {found.series: found for found in _place(proven, 0)}
    series = []
    for found in run.series:
        latency = run.metrics.latency(found) if run.metrics else None
        timed = run.times_of(found).are_latencies
        dumps = analysis.of(found) if analysis else None
        series.append(
            MeasurementSeries(
                found,
                run.origin(found),
                _timed(run, found),
                latency.end_to_end_ms.median if timed and latency and latency.end_to_end_ms else None,
                dumps,
                run.whole.manifest.asked_as(found.experiment) if run.whole.manifest else (),
                dumps.operators if dumps else (),
                own.get(found),
            )
        )
    model = Path(analysis.model).stem if analysis and analysis.model else ""
    run_dir = run.whole.path.resolve() if run.whole.manifest else None
    return Measurement(
        replace(_facts(run.whole, name, kind, model), times=run.times),
        run_dir,
        tuple(series),
        _place(proven, 1),
        proven.damaged.problem if proven.damaged else "",
    )


def _place(proven: Proven, place: int) -> tuple[SeriesEvidence, ...]:
    """Return the kernels of the run itself (0) or of the evidence kept in it (1)."""
    places: Sequence[PlaceEvidence] = proven.evidence[place : place + 1]
    return tuple(found for each in places for found in each.kernels)


def _timed(run: Run, series: Series) -> Timed:
    stats = run.robust_stats(series)
    return timed_as_kept(stats.end_to_end_rounds_ms, run.whole.journal, series) if stats else Timed()


def _of_json(path: Path, times: Times | None) -> Measurement:
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
    return Measurement(
        replace(facts, times=origin.times),
        around.path if around else None,
        (MeasurementSeries(series, origin, known),),
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
