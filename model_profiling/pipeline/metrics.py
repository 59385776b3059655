"""What a run measured, as figures: latencies with and without the tracer, comparisons, and output parity.

Everything here is computed from the manifest, the journal and the files beside them, so it can be computed
again. Where times are not latencies, none of these figures exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from model_profiling.config.settings import AnalysisSettings
from model_profiling.errors import ProfilingError
from model_profiling.pipeline.schedule import TRACED_ROUNDS
from model_profiling.run import Latency, Manifest, Metrics, Pair, PairSpeedup, Result, Run, Series
from model_profiling.run.journal import Journal
from model_profiling.run.manifest import Part
from model_profiling.run.metrics import PairParity, RobustStats, TracerCost
from model_profiling.run.remarks import Remark
from model_profiling.statistics.latency import LatencySummary, summarize
from model_profiling.statistics.parity import OutputFile, Parity, compare_outputs
from model_profiling.statistics.speedup import Speedup, compare_rounds, compare_separate
from model_profiling.statistics.stability import Conditions, latency_warnings, machine_warnings


def compute_metrics(manifest: Manifest, journal: Journal, run_dir: Path) -> Metrics:
    """The content of metrics.json."""
    pairs = manifest.pairs or ()
    timed = measured_series(manifest, journal)
    return Metrics(
        model=Path(manifest.model).name,
        times=Run(run_dir, manifest).times,
        latencies=tuple(_latency(journal, series) for series in timed),
        stability=tuple(_stability(manifest, journal, timed)),
        comparisons=tuple(
            PairSpeedup(pair.label, pair.baseline, pair.candidate, _speedup(manifest, journal, pair))
            for pair in pairs
        ),
        parity=tuple(_parity(manifest, run_dir, pair) for pair in pairs),
    )


def measured_series(manifest: Manifest, journal: Journal) -> list[Series]:
    """Those that have latencies."""
    return [
        result.series
        for result in manifest.results
        if manifest.times(result).are_latencies and journal.rounds_of(result.series)
    ]


def robust_stats(result: Result, journal: Journal, model: str) -> RobustStats:
    """The content of `_robust_stats.json`: statistics and every latency, by round, in milliseconds."""
    series, rounds = result.series, journal.rounds_of(result.series)
    found = _latency(journal, series)
    return RobustStats(
        model=Path(model).name,
        runs=result.runs,
        warmup=result.warmup,
        end_to_end_rounds_ms=_tuples(journal.latencies_ms(series, rounds)),
        traced_rounds_ms=_tuples(journal.latencies_ms(series, min(rounds, TRACED_ROUNDS), "traced")),
        **{name: getattr(found, name) for name in Latency.__dataclass_fields__},
    )


def _tuples(rounds: list[list[float]]) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, rounds))


def _latency(journal: Journal, series: Series) -> Latency:
    rounds = journal.rounds_of(series)
    untraced = journal.latencies_ms(series, rounds)
    traced = journal.latencies_ms(series, min(rounds, TRACED_ROUNDS), "traced")
    entries = journal.ended_well("untraced", series)
    return Latency(
        experiment=series.experiment,
        threads=series.threads,
        rounds=len(entries),
        end_to_end_ms=_summary(untraced),
        traced_ms=_summary(traced),
        tracer_cost=_tracer_cost(untraced, traced),
        load_ms=_middle([entry.load_ns for entry in entries]),
        first_inference_ms=_middle([entry.first_ns for entry in entries]),
        peak_memory_bytes=max((entry.peak_memory_bytes or 0 for entry in entries), default=0) or None,
    )


def _stability(manifest: Manifest, journal: Journal, timed: list[Series]) -> Iterator[Remark]:
    """Reasons to trust the latencies less: of the machine as a whole, then of each series."""
    for part in manifest.parts:
        threads = [series.threads or 1 for series in timed if manifest.part_of(series.experiment) is part]
        for warning in machine_warnings(_conditions(part), threads=max(threads)) if threads else ():
            yield Remark(None, warning.code, warning.seen, warning.advice)
    for series in timed:
        for warning in latency_warnings(journal.latencies_ms(series, journal.rounds_of(series))):
            yield Remark(series, warning.code, warning.seen, warning.advice)


def _conditions(part: Part) -> Conditions:
    before, after = part.machine.before, part.machine.after
    return Conditions(
        cores=before.cores if before else None,
        governor=before.governor if before else None,
        load_before=before.load_average if before else None,
        temperature_before_c=before.temperature_c if before else None,
        temperature_after_c=after.temperature_c if after else None,
        on_battery=before.on_battery if before else None,
    )


def _summary(rounds: list[list[float]]) -> LatencySummary | None:
    values = [value for latencies in rounds for value in latencies]
    return summarize(values) if values else None


def _tracer_cost(untraced: list[list[float]], traced: list[list[float]]) -> TracerCost | None:
    found = compare_rounds(untraced[: len(traced)], traced)
    if found.ratio is None:
        return None
    return TracerCost(
        share=1 / found.ratio - 1,
        low=1 / found.high - 1 if found.high else None,
        high=1 / found.low - 1 if found.low else None,
        rounds=found.rounds,
    )


def _speedup(manifest: Manifest, journal: Journal, pair: Pair) -> Speedup:
    rounds = max(journal.rounds_of(pair.baseline), journal.rounds_of(pair.candidate))
    asked = manifest.part_of(pair.candidate.experiment).config.get("analysis")
    settings = AnalysisSettings.model_validate(asked or {})
    compare = compare_rounds if _side_by_side(journal, pair) else compare_separate
    return compare(
        journal.latencies_ms(pair.baseline, rounds),
        journal.latencies_ms(pair.candidate, rounds),
        confidence=settings.confidence,
        practical_threshold=settings.practical_threshold,
        not_comparable=pair.not_comparable,
    )


def _side_by_side(journal: Journal, pair: Pair) -> bool:
    """Whether every round that both sides have was measured in one session."""
    by_round: dict[int, set[int]] = {}
    for entry in journal.entries():
        if entry.kind == "untraced" and entry.series in (pair.baseline, pair.candidate):
            by_round.setdefault(entry.round, set()).add(entry.session)
    return all(len(sessions) == 1 for sessions in by_round.values())


def _parity(manifest: Manifest, run_dir: Path, pair: Pair) -> PairParity:
    known = {result.series: result for result in manifest.results}
    sides = [known[series] for series in (pair.baseline, pair.candidate) if series in known]
    if len([result for result in sides if result.outputs]) < 2:
        reason = "an evidence process did not finish"
        if any(result.own_runner for result in sides):
            reason = "a runner that is not the kit's own keeps no outputs"
        return PairParity(pair.label, pair.baseline, pair.candidate, None, reason)
    try:
        before, after = (output_files(result, run_dir) for result in sides)
        parity = compare_outputs(before, after, quantized=bool(manifest.quantized))
    except ProfilingError as problem:
        parity = Parity((), "mismatch")
        return PairParity(pair.label, pair.baseline, pair.candidate, parity, problem.problem)
    return PairParity(pair.label, pair.baseline, pair.candidate, parity)


def output_files(result: Result, run_dir: Path) -> list[OutputFile]:
    kept = [output for output in result.outputs if output.file]
    return [OutputFile(run_dir / str(out.file), out.dtype, out.shape, out.dim_order) for out in kept]


def _middle(nanoseconds: list[int | None]) -> float | None:
    known = sorted(value for value in nanoseconds if value is not None)
    return known[len(known) // 2] / 1e6 if known else None
