"""What a session leaves in a run directory: every figure computed from the journal, and how the run ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.config.reading import ProfileConfig
from model_profiling.core.records import write_record
from model_profiling.pipeline import manifest as manifests
from model_profiling.pipeline.metrics import compute_metrics, latencies, robust_stats
from model_profiling.run import Manifest, Metrics, Result, names
from model_profiling.run.journal import Journal
from model_profiling.run.manifest import State


@dataclass(frozen=True, slots=True)
class Measured:
    """A run directory after a session, with what its files say."""

    place: names.RunFiles
    config: ProfileConfig
    journal: Journal
    manifest: Manifest
    metrics: Metrics
    moved: Path | None = None
    """Where an earlier, finished run was moved to."""

    @property
    def failed(self) -> tuple[Result, ...]:
        return tuple(result for result in self.manifest.results if result.state == "failed")


def refresh(measured: Measured, state: State | None = None, *, again: bool = True) -> Measured:
    """Compute every figure from the journal again and write it; not `again` where the journal is as it was,
    and only files have been added or the run has ended."""
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
    """Say in the manifest that everything a run leaves is in place; only then does it count as ended."""
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
