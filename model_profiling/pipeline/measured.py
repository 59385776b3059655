"""What a session leaves in a run directory: the figures computed from the journal, and how the run ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.config.reading import ProfileConfig, Schedule
from model_profiling.core import files
from model_profiling.core.errors import InputError
from model_profiling.core.records import write_record
from model_profiling.pipeline import manifest as manifests
from model_profiling.pipeline.metrics import compute_metrics, latencies, robust_stats
from model_profiling.pipeline.start import check_unchanged, fit_to_machine, same_part, with_mode
from model_profiling.run import Manifest, Metrics, Result, Times, names
from model_profiling.run.folders import refuse_links_out
from model_profiling.run.journal import Journal
from model_profiling.run.manifest import Part, State, read_manifest, read_summary_0


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


def refresh(measured: Measured, state: State | None = None, *, again: bool = True) -> Measured:
    """Compute all figures from the journal and write them; `again=False` if the journal is unchanged."""
    config, journal, place = measured.config, measured.journal, measured.place
    manifest = replace(measured.manifest, state=state or measured.manifest.state)
    manifest = manifests.with_results(manifest, config, journal, place)
    metrics = measured.metrics
    if again:
        found = latencies(manifest, journal)
        for result in manifest.results:
            if latency := found.get(result.series):
                stats = robust_stats(result, latency, journal, manifest.model)
                write_record(place.to_write(place.of_series(result.series, names.ROBUST_STATS)), stats)
        manifest = manifests.with_results(manifest, config, journal, place)  # with the files just written
        metrics = compute_metrics(manifest, journal, place.path, found)
    write_record(place.path / names.METRICS, metrics)
    write_record(place.manifest, manifest)
    return replace(measured, manifest=manifest, metrics=metrics)


def conclude(measured: Measured) -> Measured:
    """Mark the run as ended in the manifest, once all its files are in place."""
    return refresh(measured, _final_state(measured.manifest, measured.journal), again=False)


def _final_state(manifest: Manifest, journal: Journal) -> State:
    experiments = frozenset(manifest.experiments)
    ours = [entry for entry in journal.entries() if entry.experiment in experiments]
    done = {entry.step.key for entry in ours if entry.state == "done"}
    planned = {key for keys in manifest.schedule.order for key in keys}
    if any(entry.state == "failed" for entry in ours):
        return "failed"
    begun = journal.rounds_begun(manifest.experiments)
    halved = {key for keys in manifest.schedule.order[1 : 1 + begun] for key in keys} - done
    if not halved and (manifest.schedule.stopped_early or planned <= done):
        return "finished"
    return "partial" if manifest.state in ("analysing", "partial") else "interrupted"


def reopen(config: ProfileConfig) -> Measured:
    """Reopen the run directory of an earlier session, and compute its figures again for `config`. The model
    may be gone; then the manifest's record of it counts. The schedule stays as it was measured."""
    refuse_links_out(config.output_root)
    manifest = read_manifest(config.output_root) or read_summary_0(config.output_root)
    if manifest is None:
        raise InputError(
            f"{config.output_root} holds no run to analyse", "run it first, without --analysis-only"
        )
    if manifest.version_0:
        raise InputError(
            f"{config.output_root} holds a run of the earlier kit",
            f"analyse it as it is: sme2prof analyze {config.output_root}",
        )
    here = config.model.is_file()
    features = manifest.machine.before.features if manifest.machine.before else ()
    latencies = manifest.target.times is not Times.EMULATED
    config = fit_to_machine(config, features, latencies, resume=True).config
    part = same_part(manifest, config) or manifest
    now = replace(
        manifest,
        settings=config.model_dump(mode="json"),
        model_sha256=files.sha256(config.model) if here else manifest.model_sha256,
    )
    check_unchanged(config.output_root, manifest, part, now)
    config = config.model_copy(
        update={
            "model": config.model if here else Path(manifest.model),
            "schedule": Schedule.model_validate(part.settings["schedule"]),
        }
    )
    config = with_mode(config, part)
    place = names.RunFiles(config.output_root, config.model.stem)
    now = _newest(manifest, part, settings=config.model_dump(mode="json"))
    return refresh(Measured(place, config, Journal(place.path), now, Metrics()))


def _newest(manifest: Manifest, part: Part, **changes: object) -> Manifest:
    """Return `manifest` with `part` as its newest part."""
    if part is manifest:
        return replace(manifest, **changes)  # type: ignore[arg-type]
    own = {name: getattr(part, name) for name in Part.__dataclass_fields__}
    other = Part(**{name: getattr(manifest, name) for name in Part.__dataclass_fields__})
    others = (*(each for each in manifest.earlier_parts if each is not part), other)
    return replace(manifest, **{**own, **changes}, earlier_parts=others)
