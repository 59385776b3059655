"""Which run a run directory holds, told from what was measured: the same wherever it lies or is copied to.

A run that was continued is another one, with the same beginning.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from model_profiling import files
from model_profiling.reading import inside, is_there
from model_profiling.run import Run
from model_profiling.run.device import device_of

_ID_LETTERS = 32
"""Of SHA-256: 128 bits, which no two runs share by chance."""


@dataclass(frozen=True, slots=True)
class Identity:
    run_id: str
    begun: str
    """The same for all that a run ever was, as it was continued."""
    processes: int
    """How many had ended in it: of two with the same beginning, the one with more is the later."""


def identity_of(run: Run) -> Identity:
    entries = run.journal.entries() if run.journal else ()
    measured = [
        (
            entry.kind, entry.experiment, entry.threads, entry.round, entry.session, entry.state,
            entry.started, entry.launch, entry.iterations_ns, entry.turns_ns, sorted(entry.kernels.items()),
        )
        for entry in entries
    ]  # fmt: skip
    beginning = [*_beginning(run), measured[:1]]
    states = [part.state for part in run.manifest.parts] if run.manifest else []
    content = [beginning, states, measured, [] if entries else _files(run)]
    return Identity(_hash(content), _hash(beginning), len(entries))


def _beginning(run: Run) -> list[object]:
    """What is fixed when a run is begun. Without a manifest nothing is, and its files tell it."""
    manifest = run.manifest
    if manifest is None or not manifest.started:
        return [_files(run)]
    first = manifest.parts[0]
    return [
        manifest.model_sha256, manifest.model_stem, manifest.started, first.schedule.seed,
        device_of(manifest).name, manifest.target.platform, manifest.target.times.value,
    ]  # fmt: skip


def _files(run: Run) -> list[str]:
    """Runs without a journal are what their dumps and latencies are."""
    named = [dump.path for dump in run.dumps]
    kept = [inside(run.path, result.latency) for result in run.results if result.latency]
    return sorted(files.sha256(path) for path in (*named, *filter(is_there, kept)))


def _hash(content: object) -> str:
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_ID_LETTERS]
