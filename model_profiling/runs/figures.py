"""What follows from the journal: the result of each series in the manifest, and the figures of the run:
latencies with and without the tracer, comparisons, and output parity.

Everything is computed from the manifest, the journal and the files beside them, so it can be repeated. If
times are not latencies, there are no such figures.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from model_profiling.config import names
from model_profiling.config.series import Diagnostic, Pair, Series
from model_profiling.config.settings import AnalysisSettings, ProfileConfig
from model_profiling.core.errors import FormatError, InputError, ProfilingError
from model_profiling.core.records import write_record
from model_profiling.core.safe_read import inside, read_bytes
from model_profiling.runner.result import OutputFacts
from model_profiling.runs import Latency, Manifest, Metrics, PairSpeedup, Result, Run
from model_profiling.runs.costs import loading_of, memory_of
from model_profiling.runs.journal import Entry, Journal, seconds_of, stolen_share
from model_profiling.runs.manifest import Ended, Machine, ScheduleFacts, State
from model_profiling.runs.records import PairParity, RobustStats, TracerCost
from model_profiling.runs.schedule import TRACED_ROUNDS, Order
from model_profiling.runs.times import compare_timed, timed, times_of_mode
from model_profiling.statistics.measure import (
    EXACT_ROUNDS,
    LatencySummary,
    Measure,
    Rounds,
    disturbance,
    interrupted_share,
    summarize,
)
from model_profiling.statistics.parity import Parity, Values, compare_arrays, together
from model_profiling.statistics.speedup import PRECISION, compare_rounds


def schedule_facts(
    config: ProfileConfig, order: Order, journal: Journal, ended: Ended | None
) -> ScheduleFacts:
    settings, rounds = config.schedule, order.rounds
    ours = [experiment.name for experiment in config.experiments]
    if settings.rounds is None:
        # The number of rounds is not known in advance.
        rounds = rounds[: max(1, journal.rounds_begun(ours))]
    done = [steps for steps in rounds if steps and all(map(journal.done, steps))]
    return ScheduleFacts(
        ended=ended,
        budget_s=settings.time_limit_s if rounds else None,
        measured_s=round(seconds_of(journal.timed_of(ours)), 3) if rounds else None,
        seed=order.seed,
        rounds=len(rounds),
        rounds_done=len(done),
        precision=settings.precision or (PRECISION if rounds else None),
        stopped_early=ended not in (None, "rounds"),
        order=tuple(tuple(step.key for step in steps) for steps in (order.evidence, *rounds)),
    )


def with_results(
    manifest: Manifest, config: ProfileConfig, journal: Journal, place: names.RunFiles
) -> Manifest:
    """Return the manifest with the journal's results, and which pairs are comparable."""
    planned = tuple(
        _result(manifest, config, journal, place, series)
        for experiment in config.experiments
        for series in experiment.series
    )
    # Decide the pairs before anything has run: a run may be killed at any moment.
    run = Run(place.path, replace(manifest, results=planned, pairs=None))
    begun = tuple(result for result in planned if result.processes or result.state == "failed")
    return replace(manifest, results=begun, pairs=tuple(run.decided(pair) for pair in config.pairs))


def _result(
    manifest: Manifest, config: ProfileConfig, journal: Journal, place: names.RunFiles, series: Series
) -> Result:
    entries = journal.of(series)
    experiment = config.experiment(series.experiment)
    done = [entry for entry in entries if entry.state == "done"]
    failed = next((entry for entry in entries if entry.state == "failed"), None)
    dumps = sorted((entry for entry in done if entry.etdump), key=lambda entry: entry.round)
    evidence = journal.evidence(series)

    def existing(ending: str) -> str | None:
        path = place.of_series(series, ending)
        return place.relative(path) if path.is_file() else None

    process = evidence or (done[0] if done else None)
    return Result(
        experiment=series.experiment,
        threads=series.threads,
        mode=experiment.mode,
        sme2=experiment.sme2,
        disable=experiment.switched_off,
        runner_path=experiment.runner_path,
        runs=experiment.runs,
        warmup=experiment.warmup,
        state="failed" if failed else "done",
        problem=failed.problem if failed else None,
        fix=failed.fix if failed else None,
        processes=len(done),
        rounds=len(journal.ended_well("untraced", series)),
        times=times_of_mode(experiment.mode, manifest.target.times),
        etdump=dumps[0].etdump if dumps else None,
        etdump_warmup_runs=dumps[0].etdump_warmup_runs if dumps else 0,
        etdump_turn_length=len(dumps[0].turns_ns[0]) if dumps and dumps[0].turns_ns else 0,
        etdump_rounds=tuple(entry.etdump for entry in dumps if entry.etdump),
        etdump_launches=tuple(entry.launch for entry in dumps if entry.launch),
        boundaries=tuple(entry.boundaries for entry in dumps if entry.boundaries),
        log=next((entry.log for entry in dumps if entry.log), failed.log if failed else None),
        latency=existing(names.ROBUST_STATS),
        kernels=existing(names.KERNELS_CSV),
        kernels_note=evidence.kernels_note if evidence else None,
        samples=existing(names.SAMPLES),
        xnntrace_log=evidence.log if evidence and experiment.mode == "xnntrace" else None,
        outputs=evidence.outputs if evidence else (),
        features_present=process.features_present if process else (),
        features_masked=process.features_masked if process else (),
    )


# The figures.

_BUSY = 0.05
"""The share of the CPU that others may take without a word."""
_THROTTLED = 2
"""From Android's thermal status "moderate" on, the system lowers clocks."""
_STEADY_GOVERNORS = ("performance", "userspace", None)


def compute_metrics(
    manifest: Manifest, journal: Journal, run_dir: Path, by_series: Mapping[Series, RobustStats]
) -> Metrics:
    """Return the content of metrics.json; `by_series` is the result of `latencies`."""
    results = {result.series: result for result in manifest.results}
    return Metrics(
        model=Path(manifest.model).name,
        times=Run(run_dir, manifest).times,
        latencies=tuple(
            Latency(**{name: getattr(stats, name) for name in Latency.__dataclass_fields__})
            for stats in by_series.values()
        ),
        stability=tuple(_stability(manifest, journal, list(by_series))),
        comparisons=comparisons(manifest, journal),
        parity=tuple(_parity(results, manifest, run_dir, pair) for pair in manifest.pairs or ()),
    )


def comparisons(manifest: Manifest, journal: Journal) -> tuple[PairSpeedup, ...]:
    """Return what the latencies say about the run's pairs."""
    settings = AnalysisSettings.model_validate(manifest.settings.get("analysis") or {})
    compared = []
    for pair in manifest.pairs or ():
        rounds = max(journal.rounds_of(pair.baseline), journal.rounds_of(pair.candidate))
        speedup = compare_timed(
            timed(journal, pair.baseline, rounds),
            timed(journal, pair.candidate, rounds),
            same_run=True,
            confidence=settings.confidence,
            practical_threshold=settings.practical_threshold,
            not_comparable=pair.not_comparable,
        )
        compared.append(PairSpeedup(pair.label, pair.baseline, pair.candidate, speedup))
    return tuple(compared)


def latencies(manifest: Manifest, journal: Journal) -> dict[Series, RobustStats]:
    """Return the content of `_robust_stats.json` of all series with latencies, in the manifest's order."""
    return {
        result.series: _latencies(journal, result, manifest.model)
        for result in manifest.results
        if manifest.times(result).are_latencies and journal.rounds_of(result.series)
    }


def _latencies(journal: Journal, result: Result, model: str) -> RobustStats:
    series, rounds = result.series, journal.rounds_of(result.series)
    untraced = journal.latencies_ms(series, rounds)
    traced = journal.latencies_ms(series, min(rounds, TRACED_ROUNDS), "traced")
    entries = journal.ended_well("untraced", series)
    return RobustStats(
        model=Path(model).name,
        runs=result.runs,
        warmup=result.warmup,
        end_to_end_rounds_ms=tuple(map(tuple, untraced)),
        traced_rounds_ms=tuple(map(tuple, traced)),
        experiment=series.experiment,
        threads=series.threads,
        rounds=len(entries),
        measured=journal.rule(series.threads).measure,
        way="lockstep" if _in_turns(entries) else "rounds",
        end_to_end_ms=_summary(untraced),
        traced_ms=_summary(traced),
        tracer_cost=_tracer_cost(untraced, traced),
        load_ms=_middle([entry.load_ns for entry in entries]),
        first_inference_ms=_middle([entry.first_ns for entry in entries]),
        peak_memory_bytes=max((entry.peak_memory_bytes or 0 for entry in entries), default=0) or None,
        memory=memory_of(entries),
        loading=loading_of(entries, journal.evidence(series)),
    )


def _stability(manifest: Manifest, journal: Journal, measured: list[Series]) -> Iterator[Diagnostic]:
    """Yield reasons to trust the latencies less: about the machine, then about each series."""
    if measured:
        yield from machine_warnings(manifest.machine, max(series.threads or 1 for series in measured))
        stolen = stolen_share(
            entry for series in measured for entry in journal.ended_well("untraced", series)
        )
        if stolen >= _BUSY:
            seen = "other virtual machines took {}% of the CPU"
            yield Diagnostic(
                None, "stolen", seen, "measure on a machine that you do not share", (round(100 * stolen),)
            )
    for series in measured:
        entries, rounds = journal.ended_well("untraced", series), timed(journal, series).rounds
        yield from _interruptions(journal, series, entries)
        yield from latency_warnings(series, rounds, in_turns=_in_turns(entries))


def _interruptions(journal: Journal, series: Series, entries: Sequence[Entry]) -> Iterator[Diagnostic]:
    share = interrupted_share(entry.inferences for entry in entries)
    if (series.threads or 1) > 1:
        uses = [entry.use for entry in entries if entry.use and entry.use.waited_ns is not None]
        waited, ran = sum(use.waited_ns or 0 for use in uses), sum(use.cpu_ns for use in uses)
        share = waited / (waited + ran) if ran else 0.0
    error = disturbance(entry.inferences for entry in entries)
    return interruption_warnings(series, journal.rule(series.threads).measure, share, error)


def interruption_warnings(
    series: Series, measure: Measure, share: float, error: float
) -> Iterator[Diagnostic]:
    """Warn of other programs, which took this `share` of the CPU, and say what was done about it; they can
    have raised CPU times by `error`, at most."""
    if measure == "wall time, unchecked":
        seen = "this runner does not say whether other programs interrupted an inference"
        yield Diagnostic(series, "unchecked", seen, "its latencies include the time that others took")
    elif measure != "wall time" or share >= _BUSY:
        done = {
            "wall time": "the inferences that they interrupted do not count",
            "cpu time": "CPU time is shown instead of wall time, "
            f"at most {max(1, round(100 * error))}% too long",
        }
        advice = "the latency includes the time that others took; stop them, or measure with 1 thread"
        seen, numbers = "other programs took {}% of the CPU", (round(100 * share),)
        yield Diagnostic(series, "busy", seen, done.get(measure, advice), numbers)


def latency_warnings(
    series: Series | None, rounds: Rounds, *, in_turns: bool = False
) -> Iterator[Diagnostic]:
    """Warn of too few measurements; each round is one process, also in launches whose programs took turns."""
    finished = [latencies for latencies in rounds if len(latencies)]
    if not finished:
        yield Diagnostic(series, "nothing", "no latency was measured", "look at the runner's log")
        return
    if len(finished) < EXACT_ROUNDS:
        seen = f"few {'launches' if in_turns else 'rounds'} were measured: {{}}"
        yield Diagnostic(series, "rounds", seen, f"measure at least {EXACT_ROUNDS}", (len(finished),))
    if (fewest := min(map(len, finished))) < 5:
        longer = "raise the budget (--budget)" if in_turns else "set runs to 10 or more"
        yield Diagnostic(series, "runs", "a process timed few inferences: {}", longer, (fewest,))


def machine_warnings(machine: Machine, threads: int) -> Iterator[Diagnostic]:
    """Yield what the machine says of itself that makes latencies less sure; `threads` is the most used."""
    before = machine.before
    states = [facts.device for facts in (before, machine.after) if facts and facts.device]
    if before and before.governor not in _STEADY_GOVERNORS and not states:  # its maker sets a phone's
        seen = f"the CPU governor is {before.governor}, which changes the clock speed while measuring"
        fix = "set it to performance (cpupower frequency-set -g performance)"
        yield Diagnostic(None, "governor", seen, fix)
    if any((state.thermal_status or 0) >= _THROTTLED for state in states):
        seen = "the machine became hot and slowed down"
        yield Diagnostic(None, "hot", seen, "let it cool down, and measure again")
    if before and before.on_battery:
        yield Diagnostic(None, "battery", "the machine runs on battery", "plug it in")
    if before and before.cores and threads > before.cores:
        seen = f"{threads} threads share {before.cores} cores"
        yield Diagnostic(None, "threads", seen, "use fewer threads")


def _in_turns(entries: Sequence[Entry]) -> bool:
    """Whether a series took turns in most of its rounds."""
    return 2 * sum(entry.launch is not None for entry in entries) > len(entries)


def _summary(rounds: list[list[float]]) -> LatencySummary | None:
    return summarize(values) if (values := [value for of_round in rounds for value in of_round]) else None


def _tracer_cost(untraced: list[list[float]], traced: list[list[float]]) -> TracerCost | None:
    speedup = compare_rounds(untraced[: len(traced)], traced)
    if speedup.ratio is None:
        return None
    return TracerCost(
        share=1 / speedup.ratio - 1,
        low=1 / speedup.high - 1 if speedup.high else None,
        high=1 / speedup.low - 1 if speedup.low else None,
        rounds=speedup.rounds,
    )


def _parity(results: Mapping[Series, Result], manifest: Manifest, run_dir: Path, pair: Pair) -> PairParity:
    sides = [results[side] for side in (pair.baseline, pair.candidate) if side in results]
    if len([result for result in sides if result.outputs]) < 2:
        reason = "an evidence process did not finish"
        if any(result.own_runner for result in sides):
            reason = "only the kit's own runner keeps outputs"
        return PairParity(pair.label, pair.baseline, pair.candidate, None, reason)
    reason = ""
    try:
        before, after = (
            [
                replace(output, file=inside(run_dir, str(output.file), f"{result.series}: output {at}"))
                for at, output in enumerate(result.outputs)
                if output.file
            ]
            for result in sides
        )
        of_tokens = manifest.tokens is not None
        parity = compare_outputs(
            before, after, quantized=manifest.quantized, half=manifest.half, of_tokens=of_tokens
        )
    except ProfilingError as problem:
        parity, reason = Parity((), "mismatch"), problem.problem
    return PairParity(pair.label, pair.baseline, pair.candidate, parity, reason)


def _middle(nanoseconds: list[int | None]) -> float | None:
    measured = sorted(value for value in nanoseconds if value is not None)
    return measured[len(measured) // 2] / 1e6 if measured else None


# Outputs that two processes wrote, tensor by tensor.


def compare_outputs(
    reference: Sequence[OutputFacts],
    candidate: Sequence[OutputFacts],
    *,
    quantized: bool = False,
    half: bool = False,
    of_tokens: bool = False,
) -> Parity:
    """Compare the outputs of two runs one by one. `quantized` allows two steps of an 8-bit grid, `half`
    float16 precision for float32 outputs too: a program may compute in float16 and end with `.float()`;
    `of_tokens` says that it is a language model."""
    fix = "compare runs of the same program"
    if len(reference) != len(candidate):
        raise InputError(f"{len(reference)} outputs cannot be compared with {len(candidate)}", fix)
    outputs = []
    for index, (left, right) in enumerate(zip(reference, candidate, strict=True)):
        if _type_of(left) != _type_of(right):
            what = f"output {index} is {_type_of(left)} in one run and {_type_of(right)} in the other"
            raise InputError(what, fix)
        arrays = read_output(left), read_output(right)
        dtype = "float16" if half and left.dtype == "float32" else left.dtype
        parity = compare_arrays(*arrays, dtype, index=index, quantized=quantized, of_tokens=of_tokens)
        outputs.append(replace(parity, dtype=left.dtype))
    return together(tuple(outputs))


def read_output(output: OutputFacts) -> Values:
    """Read the tensor in logical order; bfloat16 becomes float32, which holds it exactly."""
    assert output.file is not None
    stored = None
    with contextlib.suppress(TypeError):
        stored = np.dtype("uint16" if output.dtype == "bfloat16" else output.dtype)
    if stored is None or stored.kind not in "biufc":
        raise FormatError(f"{output.file}: {output.dtype!r} is not a number type", "run it again")
    raw = read_bytes(output.file)
    if len(raw) != math.prod(output.shape) * stored.itemsize:
        what = f"{output.file} has {len(raw)} bytes, which is not the size of {_type_of(output)}"
        raise FormatError(what, "run it again")
    values = np.frombuffer(raw, dtype=stored)
    if output.dtype == "bfloat16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    order = output.dim_order or tuple(range(len(output.shape)))
    if sorted(order) != list(range(len(output.shape))):
        raise FormatError(f"{output.file}: {list(order)} is not an order of its dimensions", "run it again")
    in_memory = values.reshape([output.shape[axis] for axis in order])
    return in_memory.transpose(np.argsort(order))


def _type_of(output: OutputFacts) -> str:
    return f"{output.dtype}{list(output.shape)}"


# What a session leaves in a run directory: its figures, and how the run ended.


@dataclass(frozen=True, slots=True)
class Measured:
    place: names.RunFiles
    config: ProfileConfig
    journal: Journal
    manifest: Manifest
    metrics: Metrics
    moved: Path | None = None

    @property
    def failed(self) -> tuple[Result, ...]:
        return tuple(result for result in self.manifest.results if result.state == "failed")


def compute_figures(
    place: names.RunFiles,
    config: ProfileConfig,
    journal: Journal,
    manifest: Manifest,
    moved: Path | None = None,
) -> Measured:
    """Compute all figures from the journal and write them."""
    manifest = with_results(manifest, config, journal, place)
    by_series = latencies(manifest, journal)
    for series, stats in by_series.items():
        write_record(place.of_series(series, names.ROBUST_STATS), stats)
    manifest = with_results(manifest, config, journal, place)  # with the files just written
    metrics = compute_metrics(manifest, journal, place.path, by_series)
    write_record(place.path / names.METRICS, metrics)
    write_record(place.manifest, manifest)
    return Measured(place, config, journal, manifest, metrics, moved)


def concluded(measured: Measured) -> Manifest:
    """Return the manifest of the ended run, with all its files; written last, it says that they are there."""
    manifest = with_results(measured.manifest, measured.config, measured.journal, measured.place)
    return replace(manifest, state=_final_state(manifest, measured.journal))


def _final_state(manifest: Manifest, journal: Journal) -> State:
    if any(entry.state == "failed" for entry in journal.entries()):
        return "failed"
    done = {entry.step.key for entry in journal.entries() if entry.state == "done"}
    planned = {key for keys in manifest.schedule.order for key in keys}
    begun = journal.rounds_begun(manifest.experiments)
    halved = {key for keys in manifest.schedule.order[1 : 1 + begun] for key in keys} - done
    if not halved and (manifest.schedule.stopped_early or planned <= done):
        return "finished"
    return "partial" if manifest.state in ("analysing", "partial") else "interrupted"
