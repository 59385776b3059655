"""Whether a run may be continued: everything that makes its results comparable must still be the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from model_profiling.errors import InputError
from model_profiling.run.manifest import Manifest, Part
from model_profiling.wording import plural

# What may change between sessions without making their results differ.
_FREE = (
    "model",  # its content is what counts
    "notes",
    "output_root",
    "analysis",
    "schedule.mode",  # how the run was begun is asked below
    "schedule.budget_s",
    "schedule.rounds",
    "schedule.min_rounds",
    "schedule.precision",
    "schedule.cool_down_s",
    "schedule.max_temperature_c",
    "schedule.temperature_wait_s",
    "schedule.timeout_s",
    "schedule.energy_s",
    "schedule.sample",
)


def check_unchanged(run_dir: Path, earlier: Manifest, part: Part, now: Manifest) -> None:
    """Refuse to continue `part` of `earlier` as `now`, the manifest to be, naming the first change."""
    for name, before, after in _changes(earlier, part, now):
        raise InputError(
            f"{run_dir} cannot be continued: {name} was {before}, now it is {after}",
            "undo the change, start anew with --force, or choose another output_root",
        )


def check_rounds(run_dir: Path, begun: int, wanted: int) -> None:
    """Refuse fewer rounds than were begun: leaving measured rounds out would leave files that disagree."""
    if wanted < begun:
        raise InputError(
            f"{run_dir} cannot be continued with {plural(wanted, 'round')}: round {begun} was begun",
            f"ask for {begun} rounds or more, start anew with --force, or choose another output_root",
        )


def _changes(earlier: Manifest, part: Part, now: Manifest) -> Iterator[tuple[str, str, str]]:
    cpu = part.machine.before.cpu if part.machine.before else ""
    for name, before, after in (
        ("the model's content", earlier.model_sha256, now.model_sha256),
        ("the target", earlier.target.name, now.target.name),
        ("the ExecuTorch version", earlier.executorch.version, now.executorch.version),
        ("the runner", earlier.runner.build_id, now.runner.build_id),
        ("the CPU", cpu, now.cpu),
        ("schedule.mode", part.schedule.mode, _mode(now)),
    ):
        if before != after:
            yield name, _shown(before), _shown(after)
    yield from _differences("", part.settings, now.settings)


def _mode(now: Manifest) -> object:
    schedule = now.settings.get("schedule")
    return (schedule.get("mode") if isinstance(schedule, Mapping) else None) or now.schedule.mode


def _differences(path: str, before: object, after: object) -> Iterator[tuple[str, str, str]]:
    if path in _FREE or before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys((*before, *after)):
            yield from _differences(f"{path}.{key}" if path else str(key), before.get(key), after.get(key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differences(f"{path}[{place}]", old, new)
    else:
        yield path, _shown(before), _shown(after)


def _shown(value: object) -> str:
    if isinstance(value, list):
        return f"{len(value)} of them" if value and isinstance(value[0], Mapping) else str(value)
    text = str(value)
    return text if len(text) <= 40 else f"{text[:16]}..."
