"""Makes the manifest: what is known before the first process, and the result of each series."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from model_profiling._version import __version__
from model_profiling.config import names
from model_profiling.config.reading import pairs
from model_profiling.config.series import Series
from model_profiling.config.settings import ProfileConfig
from model_profiling.core import files
from model_profiling.program.graph_file import record_beside
from model_profiling.runs import Manifest, Result, Run, Times
from model_profiling.runs.journal import Journal, seconds_of
from model_profiling.runs.manifest import Ended, ExecuTorch, Machine, Runner, ScheduleFacts, TargetFacts
from model_profiling.runs.schedule import TRACED_ROUNDS, Order
from model_profiling.runs.times import times_of_mode
from model_profiling.statistics.speedup import PRECISION
from model_profiling.targets import MachineFacts, Target


def head(config: ProfileConfig, config_file: Path | None, target: Target, facts: MachineFacts) -> Manifest:
    """Return what is known before the first process; to continue a run, this must be unchanged."""
    etrecord = record_beside(config.model)
    build = target.build
    times = Times.HARDWARE if target.timings_are_latency else Times.EMULATED
    return Manifest(
        kit_version=__version__,
        model=str(config.model),
        model_sha256=files.sha256(config.model),
        model_bytes=config.model.stat().st_size,
        method=config.method or "",
        fed=config.inputs.file_words,
        etrecord=str(etrecord) if etrecord else None,
        quantized=names.computes_in(config.model, "int8"),
        half=names.computes_in(config.model, "fp16"),
        config=str(config_file or config.output_root / names.CONFIG),
        settings=config.model_dump(mode="json"),
        config_file=str(config_file) if config_file else None,
        experiments=tuple(experiment.name for experiment in config.experiments),
        target=TargetFacts(target.name, target.platform, times),
        executorch=ExecuTorch(
            build.executorch_version if build else facts.versions.get("executorch"),
            build.executorch_sha if build else None,
        ),
        runner=Runner(
            build.build_id if build else None, build.compiler if build else facts.versions.get("compiler")
        ),
        machine=Machine(before=facts),
        state="running",
        results=(),
    )


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
        traced_rounds=min(TRACED_ROUNDS, len(rounds)),
        min_rounds=settings.min_rounds,
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
    return replace(manifest, results=begun, pairs=tuple(run.decided(pair) for pair in pairs(config)))


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
        kernels_at_load=dict(evidence.kernels_at_load) if evidence else {},
        kernels_note=evidence.kernels_note if evidence else None,
        samples=existing(names.SAMPLES),
        xnntrace_log=evidence.log if evidence and experiment.mode == "xnntrace" else None,
        outputs=evidence.outputs if evidence else (),
        features_present=process.features_present if process else (),
        features_masked=process.features_masked if process else (),
        features_verified=process.features_verified if process else None,
        features_note=process.features_note if process else None,
    )
