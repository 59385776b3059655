"""Loads one side of a comparison, whatever it is: a run directory, a dump, or a file of latencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.analysis.latency_files import read_latencies
from model_profiling.statistics.speedup import Rounds
from model_profiling.analysis.summary import DumpAnalysis
from model_profiling.errors import FormatError, InputError
from model_profiling.report.comparison import SideFacts
from model_profiling.report.data import Series
from model_profiling.workflow.analyse import Programs
from model_profiling.workflow.dumps import find_dumps
from model_profiling.workflow.manifest_file import run_around
from model_profiling.workflow.run_files import (
    Manifest,
    Metrics,
    RobustStats,
    read_json_object,
    read_manifest_file,
    read_metrics_file,
    read_record,
)


@dataclass(frozen=True, slots=True)
class SideSeries:
    """What is known of one series: latencies by round in milliseconds, and its dumps, one per round."""

    series: Series
    rounds: Rounds
    """Without the tracer; empty where not measured."""
    median_only: float | None
    """The median without the tracer, where a file kept it but not the latencies themselves."""
    dumps: tuple[DumpAnalysis, ...]


@dataclass(frozen=True, slots=True)
class Side:
    facts: SideFacts
    run_dir: Path | None
    """The run directory it is or lies in; rounds of one directory were measured side by side."""
    series: tuple[SideSeries, ...]


def load_side(path: Path) -> Side:
    """Read whatever `path` names."""
    if path.is_dir():
        return _run_directory(path, str(path))
    if not path.is_file():
        raise InputError(f"there is no {path}", "name a run directory, an .etdump or a JSON file of a run")
    if path.suffix == ".etdump":
        return _dump(path)
    if path.suffix == ".json":
        return _json(path)
    raise InputError(
        f"{path} is neither a run directory, a dump nor a JSON file of latencies",
        "name a run directory, an .etdump, metrics.json or a _robust_stats.json",
    )


def _run_directory(path: Path, name: str) -> Side:
    manifest = read_manifest_file(path)
    metrics = read_metrics_file(path / "metrics.json")
    latencies = _robust_stats(path, manifest)
    if manifest is None and metrics is None and next(path.rglob("*.etdump"), None) is None:
        raise InputError(
            f"{path} holds no run and no dumps", "name a folder a pipeline or a runner wrote into"
        )
    dumps = _dumps(path)
    medians = _medians(metrics)
    timed = _timings_are_latency(path, manifest)
    known = dict.fromkeys((*latencies, *dumps, *medians))
    return Side(
        _facts(name, "run directory", manifest, timed, next(iter(dumps.values()), ())),
        path.resolve() if manifest else None,
        tuple(
            SideSeries(
                series,
                latencies[series].end_to_end_rounds_ms if series in latencies and timed else (),
                medians.get(series) if timed else None,
                dumps.get(series, ()),
            )
            for series in known
        ),
    )


def _dump(path: Path) -> Side:
    run_dir = run_around(path)
    manifest = read_manifest_file(run_dir) if run_dir else None
    timed = _timings_are_latency(run_dir or path.parent, manifest)
    (context,) = find_dumps(path).dumps
    result = next((one for one in manifest.results if _names(one.dumps, path)), None) if manifest else None
    series = (
        Series(result.experiment, result.threads) if result else Series(context.experiment, context.threads)
    )
    dump = Programs().analysed(context)
    facts = _facts(str(path), "dump", manifest, timed, (dump,))
    return Side(facts, run_dir, (SideSeries(series, (), None, (dump,)),))


def _json(path: Path) -> Side:
    try:
        content = read_json_object(path)
    except FormatError as problem:
        raise FormatError(
            problem.problem, "name a run directory, an .etdump or a JSON file of a run"
        ) from problem
    if path.name == "metrics.json" and (path.parent / "manifest.json").is_file():
        return _run_directory(path.parent, str(path))
    if "latencies" in content or "comparisons" in content:
        metrics = read_metrics_file(path)
        assert metrics is not None
        facts = SideFacts(
            str(path), "latencies", Path(metrics.model).stem, "", "", "", "", "", metrics.timings_are_latency
        )
        known = _medians(metrics) if metrics.timings_are_latency else {}
        return Side(facts, None, tuple(SideSeries(one, (), median, ()) for one, median in known.items()))
    run_dir = run_around(path)
    manifest = read_manifest_file(run_dir) if run_dir else None
    series, rounds = Series(path.stem.removesuffix("_robust_stats"), None), read_latencies(path).rounds
    if "experiment" in content:
        stats = read_record(RobustStats, path)
        series = Series(stats.experiment, stats.threads)
    timed = _timings_are_latency(run_dir or path.parent, manifest)
    facts = _facts(str(path), "latencies", manifest, timed, ())
    return Side(facts, run_dir, (SideSeries(series, rounds if timed else (), None, ()),))


def _names(listed: Sequence[str], path: Path) -> bool:
    return any(Path(one).name == path.name for one in listed)


def _timings_are_latency(place: Path, manifest: Manifest | None) -> bool:
    if manifest is not None:
        return manifest.target.timings_are_latency and manifest.target.platform != "emulated"
    return "emulated" not in place.resolve().parts


def _robust_stats(run_dir: Path, manifest: Manifest | None) -> dict[Series, RobustStats]:
    found = {}
    for result in manifest.results if manifest else ():
        path = run_dir / result.latency if result.latency else None
        if path is not None and path.is_file():
            found[Series(result.experiment, result.threads)] = read_record(RobustStats, path)
    return found


def _medians(metrics: Metrics | None) -> dict[Series, float]:
    return {
        Series(entry.experiment, entry.threads): entry.end_to_end_ms.median
        for entry in (metrics.latencies if metrics else ())
        if entry.end_to_end_ms is not None
    }


def _dumps(run_dir: Path) -> Mapping[Series, tuple[DumpAnalysis, ...]]:
    if next(run_dir.rglob("*.etdump"), None) is None:
        return {}
    programs = Programs()
    found: dict[Series, list[DumpAnalysis]] = {}
    for context in find_dumps(run_dir).dumps:
        found.setdefault(Series(context.experiment, context.threads), []).append(programs.analysed(context))
    return {series: tuple(sorted(members, key=lambda dump: dump.round)) for series, members in found.items()}


def _facts(
    name: str, kind: str, manifest: Manifest | None, timed: bool, dumps: Sequence[DumpAnalysis]
) -> SideFacts:
    model = next((dump.model for dump in dumps if dump.model), None)
    before = manifest.machine.before if manifest else None
    return SideFacts(
        name=name,
        kind=kind,
        model=Path(manifest.model).stem if manifest and manifest.model else model.stem if model else "",
        model_sha256=manifest.model_sha256 if manifest else "",
        platform=manifest.target.platform if manifest else "",
        cpu=manifest.cpu if manifest else "",
        executorch=(manifest.executorch.version or "") if manifest else "",
        runner_build=(manifest.runner.build_id or "") if manifest else "",
        timings_are_latency=timed,
        cores=before.cores if before else None,
        load=before.load_average if before else None,
    )
