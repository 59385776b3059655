"""What a run measured, as figures: latencies with and without the tracer, comparisons, and output parity.

Everything here is computed from the journal and the files beside it, so it can be computed again. Where a
target's times are not latencies, none of these figures exist.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from model_profiling.statistics.latency import summarize
from model_profiling.statistics.parity import OutputFile, compare_outputs
from model_profiling.statistics.speedup import Speedup, compare_rounds, compare_separate
from model_profiling.statistics.stability import Conditions, latency_warnings, machine_warnings
from model_profiling.errors import ProfilingError
from model_profiling.config.reading import Experiment, ProfileConfig
from model_profiling.pipeline.journal import Entry, Journal
from model_profiling.pipeline.measure import latencies_ms
from model_profiling.pipeline.run_directory import RunDirectory
from model_profiling.pipeline.schedule import (
    TRACED_ROUNDS,
    Pair,
    Series,
    compared,
    experiment_of,
    gathers_evidence,
    series_of,
)
from model_profiling.runner.features import SME2_ONLY

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the figures were taken; its features stand in for those a runner does not report."""

    cpu: str
    features: tuple[str, ...]
    timings_are_latency: bool
    conditions: Conditions


def metrics(config: ProfileConfig, journal: Journal, directory: RunDirectory, machine: Machine) -> Json:
    """The content of metrics.json."""
    timed = [
        series
        for experiment in config.experiments
        if experiment.mode == "timing"
        for series in series_of(experiment)
    ]
    content: Json = {
        "schema_version": 1,
        "model": config.model.name,
        "timings_are_latency": machine.timings_are_latency,
    }
    if machine.timings_are_latency:
        measured = [series for series in timed if _rounds(journal, series)]
        content["latencies"] = [_latency(journal, series) for series in measured]
        content["stability"] = list(_stability(journal, measured, machine))
    content["comparisons"] = [
        {
            "label": pair.label,
            "baseline": asdict(pair.baseline),
            "candidate": asdict(pair.candidate),
            **_comparison(config, journal, pair, machine).as_dict(),
        }
        for pair in compared(config)
    ]
    content["parity"] = [_parity(config, journal, directory, pair) for pair in compared(config)]
    return content


def robust_stats(config: ProfileConfig, journal: Journal, series: Series) -> Json | None:
    """The content of `_robust_stats.json`: statistics and every latency, by round, in milliseconds."""
    rounds = _rounds(journal, series)
    if not rounds:
        return None
    experiment = experiment_of(config, series)
    return {
        "schema_version": 1,
        "model": config.model.name,
        "experiment": series.experiment,
        "threads": series.threads,
        "runs": experiment.runs,
        "warmup": experiment.warmup,
        "unit": "ms",
        **_latency(journal, series),
        "end_to_end_rounds_ms": latencies_ms(journal, series, rounds),
        "traced_rounds_ms": latencies_ms(journal, series, min(rounds, TRACED_ROUNDS), "traced"),
    }


def _latency(journal: Journal, series: Series) -> Json:
    rounds = _rounds(journal, series)
    untraced = latencies_ms(journal, series, rounds)
    traced = latencies_ms(journal, series, min(rounds, TRACED_ROUNDS), "traced")
    entries = [
        entry
        for entry in journal.entries()
        if entry.series == series and entry.kind == "untraced" and entry.state == "done"
    ]
    return {
        "experiment": series.experiment,
        "threads": series.threads,
        "rounds": sum(1 for one in untraced if one),
        "end_to_end_ms": _summary(untraced),
        "traced_ms": _summary(traced),
        "tracer_cost": _tracer_cost(untraced, traced),
        "load_ms": _middle([entry.load_ns for entry in entries]),
        "first_inference_ms": _middle([entry.first_ns for entry in entries]),
        "peak_memory_bytes": max(
            (entry.peak_memory_bytes for entry in entries if entry.peak_memory_bytes), default=None
        ),
    }


def _stability(journal: Journal, measured: list[Series], machine: Machine) -> Iterator[Json]:
    """Reasons to trust the latencies less: of the machine as a whole, then of each series."""
    threads = max((series.threads for series in measured), default=1)
    for warning in machine_warnings(machine.conditions, threads=threads):
        yield {"experiment": None, "threads": None, **warning.as_dict()}
    for series in measured:
        for warning in latency_warnings(latencies_ms(journal, series, _rounds(journal, series))):
            yield {"experiment": series.experiment, "threads": series.threads, **warning.as_dict()}


def _summary(rounds: list[list[float]]) -> Json | None:
    values = [value for one in rounds for value in one]
    return summarize(values).as_dict() if values else None


def _tracer_cost(untraced: list[list[float]], traced: list[list[float]]) -> Json | None:
    """How much longer an inference takes with the tracer on, as a share: 0.02 is 2% longer."""
    found = compare_rounds(untraced[: len(traced)], traced)
    if found.ratio is None:
        return None
    return {
        "share": 1 / found.ratio - 1,
        "low": 1 / found.high - 1 if found.high else None,
        "high": 1 / found.low - 1 if found.low else None,
        "rounds": found.rounds,
    }


def _comparison(config: ProfileConfig, journal: Journal, pair: Pair, machine: Machine) -> Speedup:
    rounds = max(_rounds(journal, pair.baseline), _rounds(journal, pair.candidate))
    baseline = latencies_ms(journal, pair.baseline, rounds)
    candidate = latencies_ms(journal, pair.candidate, rounds)
    why = None if machine.timings_are_latency else "times under emulation are not latencies"
    compare = compare_rounds if _side_by_side(journal, pair) else compare_separate
    return compare(
        baseline,
        candidate,
        confidence=config.analysis.confidence,
        practical_threshold=config.analysis.practical_threshold,
        not_comparable=why or _same_code(config, journal, pair, machine),
    )


def _same_code(config: ProfileConfig, journal: Journal, pair: Pair, machine: Machine) -> str | None:
    """Why the two sides differ in nothing that this CPU could show."""
    before, after = (experiment_of(config, series) for series in (pair.baseline, pair.candidate))
    if before.runner is None and after.runner is None:
        differing = _switched_off(before) ^ _switched_off(after)
    else:
        differing = {"sme2"} if before.sme2 != after.sme2 else set()
    reported = next(
        (entry.features_present for entry in journal.entries() if entry.features_present), machine.features
    )
    if not differing or differing & set(reported):
        return None
    what = "SME2" if before.sme2 != after.sme2 else " or ".join(sorted(differing))
    return f"this CPU ({machine.cpu}) has no {what}, so both sides run the same code"


def _switched_off(experiment: Experiment) -> set[str]:
    return {"sme2" if name == SME2_ONLY else name for name in experiment.switched_off}


def _side_by_side(journal: Journal, pair: Pair) -> bool:
    """Whether every round that both sides have was measured in one session."""
    by_round: dict[int, set[int]] = {}
    for entry in journal.entries():
        if entry.kind == "untraced" and entry.series in (pair.baseline, pair.candidate):
            by_round.setdefault(entry.round, set()).add(entry.session)
    return all(len(sessions) == 1 for sessions in by_round.values())


def _parity(config: ProfileConfig, journal: Journal, directory: RunDirectory, pair: Pair) -> Json:
    named: Json = {
        "label": pair.label,
        "baseline": asdict(pair.baseline),
        "candidate": asdict(pair.candidate),
    }
    found = [evidence_of(journal, series) for series in (pair.baseline, pair.candidate)]
    outputs = [
        [OutputFile(directory.path / one.file, one.dtype, one.shape, one.dim_order) for one in entry.outputs]
        for entry in found
        if entry is not None and entry.outputs
    ]
    if len(outputs) != 2:
        return {**named, "verdict": "unknown", "reason": _why_no_outputs(config, pair)}
    try:
        parity = compare_outputs(outputs[0], outputs[1], quantized=is_quantized(config.model))
    except ProfilingError as problem:
        return {**named, "verdict": "mismatch", "reason": problem.problem}
    return {**named, **_finite(asdict(parity))}


def _why_no_outputs(config: ProfileConfig, pair: Pair) -> str:
    sides = [experiment_of(config, series) for series in (pair.baseline, pair.candidate)]
    if all(gathers_evidence(side) for side in sides):
        return "an evidence process did not finish"
    return "a runner that is not the kit's own keeps no outputs"


def evidence_of(journal: Journal, series: Series) -> Entry | None:
    """The evidence process of one series, if it ended well."""
    return next(
        (
            entry
            for entry in journal.entries()
            if entry.kind == "evidence" and entry.series == series and entry.state == "done"
        ),
        None,
    )


def is_quantized(model: Path) -> bool:
    """Whether a program computes on 8-bit integers: what its export says, or else its name."""
    try:
        dtype = json.loads(Path(f"{model}.json").read_text(encoding="utf-8"))["dtype"]
    except (OSError, ValueError, KeyError, TypeError):
        return re.search(r"(^|[_-])(int8|q8)([_.-]|$)", model.stem) is not None
    return bool(dtype == "int8")


def _rounds(journal: Journal, series: Series) -> int:
    """How many rounds were begun for `series`."""
    return max(
        (
            entry.round + 1
            for entry in journal.entries()
            if entry.series == series and entry.kind == "untraced" and entry.state == "done"
        ),
        default=0,
    )


def _middle(nanoseconds: list[int | None]) -> float | None:
    known = sorted(value for value in nanoseconds if value is not None)
    return known[len(known) // 2] / 1e6 if known else None


def _finite(content: Json) -> Json:
    """JSON has no infinities: a difference without bound is written as text."""
    return {key: _finite_value(value) for key, value in content.items()}


def _finite_value(value: object) -> object:
    if isinstance(value, dict):
        return _finite(value)
    if isinstance(value, (list, tuple)):
        return [_finite_value(one) for one in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)
    return value
