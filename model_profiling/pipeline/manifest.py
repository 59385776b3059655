"""The manifest: everything needed to know what a run was and to do it again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from model_profiling import __version__, files
from model_profiling.config.reading import ProfileConfig
from model_profiling.pipeline.journal import Entry, Journal
from model_profiling.pipeline.run_directory import Json, RunDirectory
from model_profiling.pipeline.schedule import TRACED_ROUNDS, Schedule, Series, experiment_of, series_of
from model_profiling.runner.build import RunnerBuild
from model_profiling.targets import MachineFacts, Target

State = Literal["running", "interrupted", "analysing", "partial", "failed", "finished"]
"""`partial` is all that --only asked for; `failed` is everything but an experiment that does not work."""


@dataclass(slots=True)
class Session:
    """One start of the pipeline on a run directory."""

    number: int
    command_line: Sequence[str]
    started: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%S%z"))
    ended: str | None = None
    end: str = "running"


def head(config: ProfileConfig, config_file: Path | None, target: Target, facts: MachineFacts) -> Json:
    """What is known before the first process starts; a run may be continued while this stays the same."""
    etrecord = Path(f"{config.model}.etrecord")
    build = getattr(target, "build", None)
    known = build if isinstance(build, RunnerBuild) else None
    return {
        "schema_version": 1,
        "kit_version": __version__,
        "model": str(config.model),
        "model_sha256": files.sha256(config.model),
        "model_bytes": config.model.stat().st_size,
        "etrecord": str(etrecord) if etrecord.is_file() else None,
        "config": config.model_dump(mode="json"),
        "config_file": str(config_file) if config_file else None,
        "target": {
            "name": target.name,
            "platform": target.platform,
            "timings_are_latency": target.timings_are_latency,
        },
        "executorch": {
            "version": known.executorch_version if known else facts.versions.get("executorch"),
            "sha": known.executorch_sha if known else None,
        },
        "runner": {
            "build_id": known.build_id if known else None,
            "compiler": known.compiler if known else facts.versions.get("compiler"),
        },
        "machine": {"before": facts_json(facts), "after": None},
    }


def schedule_facts(
    config: ProfileConfig, schedule: Schedule, journal: Journal, *, stopped_early: bool
) -> Json:
    """How the run was laid out, and how far it went."""
    done = [number for number, steps in enumerate(schedule.rounds) if steps and journal.all_done(steps)]
    return {
        "seed": schedule.seed,
        "rounds": len(schedule.rounds),
        "rounds_done": len(done),
        "traced_rounds": min(TRACED_ROUNDS, len(schedule.rounds)),
        "min_rounds": config.schedule.min_rounds,
        "precision": config.schedule.precision,
        "stopped_early": stopped_early,
        "order": [[step.key for step in steps] for steps in (schedule.evidence, *schedule.rounds)],
    }


def results(config: ProfileConfig, journal: Journal, directory: RunDirectory) -> list[Json]:
    """One row for each experiment and thread count that anything is known of."""
    series = [one for experiment in config.experiments for one in series_of(experiment)]
    return [_result(config, journal, directory, one) for one in series if _entries(journal, one)]


def _result(config: ProfileConfig, journal: Journal, directory: RunDirectory, series: Series) -> Json:
    experiment = experiment_of(config, series)
    entries = _entries(journal, series)
    done = [entry for entry in entries if entry.state == "done"]
    failed = next((entry for entry in entries if entry.state == "failed"), None)
    dumps = sorted((entry for entry in done if entry.etdump), key=lambda entry: entry.round)
    evidence = next((entry for entry in done if entry.kind == "evidence"), None)
    shown = evidence or (done[0] if done else None)
    log = next((entry.log for entry in dumps if entry.log), failed.log if failed else None)
    return {
        "experiment": series.experiment,
        "threads": series.threads,
        "mode": experiment.mode,
        "sme2": experiment.sme2,
        "disable": list(experiment.switched_off),
        "runner_path": experiment.runner_path,
        "runs": experiment.runs,
        "warmup": experiment.warmup,
        "state": "failed" if failed else "done",
        "problem": failed.problem if failed else None,
        "fix": failed.fix if failed else None,
        "processes": len(done),
        "rounds": sum(1 for entry in done if entry.kind == "untraced"),
        "etdump": dumps[0].etdump if dumps else None,
        "etdump_warmup_runs": dumps[0].etdump_warmup_runs if dumps else 0,
        "etdump_rounds": [entry.etdump for entry in dumps],
        "log": log,
        "latency": _existing(directory, series, "_robust_stats.json"),
        "kernels": _existing(directory, series, "_kernels.csv"),
        "kernels_at_load": dict(evidence.kernels_at_load) if evidence else {},
        "kernels_note": evidence.kernels_note if evidence else None,
        "xnntrace_log": evidence.log if evidence and experiment.mode == "xnntrace" else None,
        "outputs": [asdict(output) for output in evidence.outputs] if evidence else [],
        "features_present": list(shown.features_present) if shown else [],
        "features_masked": list(shown.features_masked) if shown else [],
        "features_verified": shown.features_verified if shown else None,
        "features_note": shown.features_note if shown else None,
    }


def _entries(journal: Journal, series: Series) -> list[Entry]:
    return [entry for entry in journal.entries() if entry.series == series]


def _existing(directory: RunDirectory, series: Series, ending: str) -> str | None:
    path = directory.file(series, ending)
    return directory.relative(path) if path.is_file() else None


def facts_json(facts: MachineFacts) -> Json:
    return {**asdict(facts), "versions": dict(facts.versions)}
