"""The figures of a run and of its comparisons as tables; values and names are those of the run's own files.

Times are missing where they mean nothing (`Times.are_shown`), as in the reports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from model_profiling.analysis.pairing import Pairing
from model_profiling.analysis.run import RunAnalysis, pair_answer
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.report.operator_columns import operator_details
from model_profiling.report.records import Records, Value
from model_profiling.report.table_columns import (
    CATEGORIES,
    CATEGORY_CHANGES,
    LATENCIES,
    OPERATOR_CHANGES,
    OPERATORS,
    SAMPLES,
    SPEEDUPS,
)
from model_profiling.run import Latency, Run, Series
from model_profiling.run.metrics import PairSpeedup
from model_profiling.statistics.speedup import Speedup


def category_table(series: Iterable[SeriesAnalysis]) -> Records:
    return Records.of(CATEGORIES, (row for found in series for row in _categories(found)))


def _categories(series: SeriesAnalysis) -> Iterator[tuple[Value, ...]]:
    counts = Counter(operator.category.value for operator in series.operators)
    known = {category.value for category in series.breakdown.categories}
    for name, part in series.parts.items():
        spent = series.spent(part)
        figures = (spent.ms, 100 * spent.share) if series.times.are_shown else (None, None)
        yield *_traced(series), name, *figures, counts[name] if name in known else None


def operator_table(series: Iterable[SeriesAnalysis]) -> Records:
    return Records.of(OPERATORS, (row for found in series for row in _operators(found)))


def _operators(series: SeriesAnalysis) -> Iterator[tuple[Value, ...]]:
    timed = series.times.are_shown
    for operator in series.operators:
        details = operator_details(operator, series.spent_by([operator]).share, timed=timed)
        yield *_traced(series), operator.typical_ms if timed else None, *details


def latency_table(run: Run) -> Records:
    found = run.metrics.latencies if run.metrics else ()
    timed = (latency for latency in found if run.times_of(latency.series).are_latencies)
    return Records.of(LATENCIES, (_latency(latency, run.sme2_of(latency.series)) for latency in timed))


def _latency(latency: Latency, sme2: bool | None) -> tuple[Value, ...]:
    whole, traced, cost = latency.end_to_end_ms, latency.traced_ms, latency.tracer_cost
    figures: tuple[Value, ...] = (
        (whole.median, whole.mean, whole.p5, whole.p95, whole.minimum, whole.maximum, whole.robust_cv)
        if whole
        else (None,) * 7
    )
    return (
        latency.experiment, latency.threads, sme2, latency.measured, latency.rounds, *figures,
        traced.median if traced else None, cost.share if cost else None, latency.load_ms,
        latency.first_inference_ms, latency.peak_memory_bytes,
    )  # fmt: skip


def sample_table(run: Run) -> Records:
    kept = ((series, stats) for series in run.series if (stats := run.robust_stats(series)))
    return Records.of(
        SAMPLES,
        (
            (series.experiment, series.threads, number, place, ms)
            for series, stats in kept
            for number, latencies in enumerate(stats.end_to_end_rounds_ms)
            for place, ms in enumerate(latencies)
        ),
    )


def run_speedups(analysis: RunAnalysis) -> Records:
    run = analysis.run
    return speedup_table(pair_answer(run, pair, analysis.pairing(pair)) for pair in run.pairs)


def speedup_table(answers: Iterable[PairSpeedup]) -> Records:
    return Records.of(SPEEDUPS, map(_speedup, answers))


def _speedup(found: PairSpeedup) -> tuple[Value, ...]:
    answer = found.speedup
    return (
        found.label, *_series(found.baseline), *_series(found.candidate), *_answer(answer, answer.ratio),
        answer.confidence, answer.baseline_median, answer.candidate_median, answer.rounds, answer.unit,
        found.with_tracer, answer.reason,
    )  # fmt: skip


def category_change_table(pairings: Iterable[tuple[str, Pairing]]) -> Records:
    return Records.of(
        CATEGORY_CHANGES,
        (
            (
                name, part.name, *_times(pairing, part.baseline_ms, part.candidate_ms),
                *_answer(part.speedup, part.ratio), part.baseline_share, part.candidate_share,
            )
            for name, pairing in pairings
            for part in pairing.categories
        ),
    )  # fmt: skip


def operator_change_table(pairings: Iterable[tuple[str, Pairing]]) -> Records:
    return Records.of(
        OPERATOR_CHANGES,
        (
            (
                name, pair.main.name, pair.category.value, pair.main.place, pair.change,
                *_times(pairing, pair.baseline_ms, pair.candidate_ms), *_answer(pair.speedup, pair.ratio),
                " + ".join(operator.name for operator in pair.baseline),
                " + ".join(operator.name for operator in pair.candidate), *pair.families,
            )
            for name, pairing in pairings
            for pair in pairing.operators
        ),
    )  # fmt: skip


def _series(series: Series) -> tuple[Value, Value]:
    return series.experiment, series.threads


def _traced(series: SeriesAnalysis) -> tuple[Value, ...]:
    return *_series(series.series), series.times.value


def _times(pairing: Pairing, before: float, after: float) -> tuple[Value, Value]:
    shown = pairing.baseline.times.are_shown and pairing.candidate.times.are_shown
    return (before, after) if shown else (None, None)


def _answer(found: Speedup | None, ratio: float | None) -> tuple[Value, ...]:
    return (found.verdict.value, ratio, found.low, found.high) if found else ("", ratio, None, None)
