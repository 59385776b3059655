"""One session on a run directory: settle what was there, measure what is missing, write what came of it."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from model_profiling import files
from model_profiling.statistics.stability import Conditions
from model_profiling.errors import InputError
from model_profiling.pipeline import manifest as manifests
from model_profiling.config.reading import ProfileConfig
from model_profiling.config.reading import Schedule as ScheduleSettings
from model_profiling.pipeline.journal import Journal
from model_profiling.pipeline.manifest import Session, State
from model_profiling.pipeline.measure import Measurement
from model_profiling.pipeline.metrics import Machine, metrics, robust_stats
from model_profiling.pipeline.resume import check_rounds, check_unchanged
from model_profiling.pipeline.run_directory import (
    Json,
    RunDirectory,
    clear_work,
    read_manifest,
    settle_earlier,
)
from model_profiling.pipeline.schedule import Schedule, make_schedule, series_of
from model_profiling.progress import Progress, Silent
from model_profiling.targets import Target


@dataclass(frozen=True, slots=True)
class Measured:
    """A run directory after a session, with what its files say."""

    directory: RunDirectory
    config: ProfileConfig
    journal: Journal
    manifest: Json
    metrics: Json
    moved: Path | None = None
    """Where an earlier, finished run was moved to."""

    @property
    def results(self) -> list[Json]:
        return cast("list[Json]", self.manifest["results"])

    @property
    def timings_are_latency(self) -> bool:
        return bool(cast("Json", self.manifest["target"])["timings_are_latency"])


def measure(
    config: ProfileConfig,
    target: Target,
    *,
    only: frozenset[str] = frozenset(),
    resume: bool = False,
    force: bool = False,
    config_file: Path | None = None,
    command_line: Sequence[str] = (),
    progress: Progress | None = None,
) -> Measured:
    """Run `config` on `target` into its output_root; the caller holds the directory's lock.

    `resume` continues what is there, and begins where nothing is: a run may be killed before its first word.
    However it ends, the manifest says how, and everything measured until then is kept.
    """
    progress = progress or Silent()
    directory = RunDirectory(config.output_root, config.model.stem)
    latencies = target.timings_are_latency
    make_schedule(config, 0, latencies=latencies, only=only)  # refuses unknown names before anything is moved
    earlier, moved = settle_earlier(directory.path, resume=resume, force=force)
    progress.stage("preparing the runner")
    target.prepare()
    content = manifests.head(config, config_file, target, target.facts())
    if earlier is not None:
        check_unchanged(directory.path, earlier, content)
        check_rounds(directory.path, Journal(directory.path).rounds_begun, config.schedule.rounds)
        content["machine"] = earlier["machine"]
    clear_work(directory)
    files.make_folder(directory.path)
    seed = _seed(config, earlier)
    plan = make_schedule(config, seed, latencies=latencies)
    chosen = make_schedule(config, seed, latencies=latencies, only=only)
    past = _past_sessions(earlier)
    session = Session(len(past) + 1, list(command_line))
    journal = Journal(directory.path)
    measurement = Measurement(config, directory, target, journal, session.number, progress)
    if earlier is not None:
        measurement.warnings.extend(cast("list[str]", earlier["warnings"]))
    record = _Record(content, past, session, plan, measurement)
    record.write("running")
    try:
        measurement.run(chosen)
    except BaseException as problem:
        with contextlib.suppress(InputError):  # a full disk: what ended the run matters more
            record.write("interrupted", type(problem).__name__)
        raise
    cast("Json", content["machine"])["after"] = manifests.facts_json(target.facts())
    record.write("analysing", "done")
    shutil.rmtree(directory.work, ignore_errors=True)
    return refresh(Measured(directory, config, journal, record.content, {}, moved))


def reopen(config: ProfileConfig) -> Measured:
    """A run directory as an earlier session left it, with its figures computed again for `config`.

    The model may be gone: then the run's word for what it was counts. How the run was scheduled is past.
    """
    manifest = read_manifest(config.output_root)
    if manifest is None:
        raise InputError(
            f"{config.output_root} holds no run to analyse", "run it first, without --analysis-only"
        )
    now = {**manifest, "config": config.model_dump(mode="json")}
    if config.model.is_file():
        now["model_sha256"] = files.sha256(config.model)
    check_unchanged(config.output_root, manifest, now)
    before = cast("Json", manifest["config"])
    config = config.model_copy(
        update={
            "model": config.model if config.model.is_file() else Path(str(manifest["model"])),
            "schedule": ScheduleSettings.model_validate(before["schedule"]),
        }
    )
    directory = RunDirectory(config.output_root, config.model.stem)
    now["config"] = config.model_dump(mode="json")
    return refresh(Measured(directory, config, Journal(directory.path), now, {}))


def refresh(measured: Measured, **facts: object) -> Measured:
    """Compute every figure from the journal again and write it; `facts` go into the manifest."""
    config, journal, directory = measured.config, measured.journal, measured.directory
    if measured.timings_are_latency:
        for series in (one for experiment in config.experiments for one in series_of(experiment)):
            if stats := robust_stats(config, journal, series):
                files.write_json(directory.file(series, "_robust_stats.json"), stats)
    figures = metrics(config, journal, directory, _machine(measured.manifest))
    files.write_json(directory.metrics, figures)
    manifest = {**measured.manifest, **facts, "parity": figures["parity"]}
    manifest["results"] = manifests.results(config, journal, directory)
    files.write_json(directory.manifest, manifest)
    return Measured(directory, config, journal, manifest, figures, measured.moved)


def conclude(measured: Measured) -> Measured:
    """Say in the manifest that everything a run leaves is in place; only then does it count as ended."""
    state = _final_state(measured.manifest, measured.journal)
    return refresh(measured, state=state)


def _machine(manifest: Json) -> Machine:
    before, after = (
        cast("Json", cast("Json", manifest["machine"])[when] or {}) for when in ("before", "after")
    )
    return Machine(
        cpu=str(before["cpu"]),
        features=tuple(cast("list[str]", before["features"])),
        timings_are_latency=bool(cast("Json", manifest["target"])["timings_are_latency"]),
        conditions=Conditions(
            cores=cast("int | None", before["cores"]),
            governor=cast("str | None", before["governor"]),
            load_before=cast("float | None", before["load_average"]),
            temperature_before_c=cast("float | None", before["temperature_c"]),
            temperature_after_c=cast("float | None", after.get("temperature_c")),
        ),
    )


@dataclass(slots=True)
class _Record:
    """Writes the manifest of a session that is under way."""

    content: Json
    past: list[Json]
    session: Session
    plan: Schedule
    measurement: Measurement

    def write(self, state: State, end: str = "running") -> None:
        config, journal, directory = (
            self.measurement.config,
            self.measurement.journal,
            self.measurement.directory,
        )
        if end != "running":
            self.session.ended = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self.session.end = end
        self.content |= {
            "state": state,
            "command_line": list(self.session.command_line),
            "sessions": [*self.past, asdict(self.session)],
            "schedule": manifests.schedule_facts(
                config, self.plan, journal, stopped_early=self.measurement.stopped_early
            ),
            "results": manifests.results(config, journal, directory),
            "warnings": list(self.measurement.warnings),
        }
        files.write_json(directory.manifest, self.content)


def _final_state(manifest: Json, journal: Journal) -> State:
    schedule = cast("Json", manifest["schedule"])
    done = {entry.step.key for entry in journal.entries() if entry.state == "done"}
    planned = {key for keys in cast("list[list[str]]", schedule["order"]) for key in keys}
    if any(entry.state == "failed" for entry in journal.entries()):
        return "failed"
    if schedule["stopped_early"] or planned <= done:
        return "finished"
    return "partial" if manifest["state"] in ("analysing", "partial") else "interrupted"


def _past_sessions(earlier: Json | None) -> list[Json]:
    """A session that never said how it ended was killed."""
    sessions = cast("list[Json]", earlier["sessions"]) if earlier else []
    return [{**one, "end": "killed"} if one["end"] == "running" else one for one in sessions]


def _seed(config: ProfileConfig, earlier: Json | None) -> int:
    if earlier is not None:
        return int(cast("int", cast("Json", earlier["schedule"])["seed"]))
    return config.schedule.seed if config.schedule.seed is not None else secrets.randbits(32)
