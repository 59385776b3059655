"""One session on a run directory: settle what was there, measure what is missing, write what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from model_profiling.config.reading import ProfileConfig
from model_profiling.config.reading import Schedule as ScheduleSettings
from model_profiling.core import files
from model_profiling.core.errors import InputError
from model_profiling.core.progress import Progress
from model_profiling.pipeline.begin import Start, as_cpu_can, check_unchanged, repeated, same_part, with_mode
from model_profiling.pipeline.measured import Measured, refresh
from model_profiling.pipeline.open_run import open_together
from model_profiling.run import Manifest, Metrics, Times, names
from model_profiling.run.folders import refuse_links_out
from model_profiling.run.journal import Journal
from model_profiling.run.manifest import Part, read_manifest, read_summary_0
from model_profiling.targets import Target


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
    Nothing there is touched before the target is ready. However it ends, the manifest says how, and
    everything measured until then is kept.
    """
    way = Start(only, resume, force, config_file, tuple(command_line))
    (measured,) = measure_together([(config, way)], target, progress=progress)
    return measured


def measure_together(
    asked: Sequence[tuple[ProfileConfig, Start]], target: Target, *, progress: Progress | None = None
) -> tuple[Measured, ...]:
    """Run several configs, each into its own output_root, with all their programs taking turns.

    Their schedules must be alike; what holds for one (`measure`) holds for each.
    """
    with open_together(asked, target, progress) as runs:
        while runs.step() is not None:
            pass
        return runs.finish_all()


def reopen(config: ProfileConfig) -> Measured:
    """A run directory as an earlier session left it, with its figures computed again for `config`.

    The model may be gone: then the run's word for what it was counts. How the run was scheduled is past.
    """
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
    config = as_cpu_can(config, features, resume=True).config
    config = repeated(config, manifest.target.times is not Times.EMULATED, resume=True)
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
            "schedule": ScheduleSettings.model_validate(part.settings["schedule"]),
        }
    )
    config = with_mode(config, part)
    place = names.RunFiles(config.output_root, config.model.stem)
    now = _newest(manifest, part, settings=config.model_dump(mode="json"))
    return refresh(Measured(place, config, Journal(place.path), now, Metrics()))


def _newest(manifest: Manifest, part: Part, **changes: object) -> Manifest:
    """`manifest` told from the side of `part`, whichever of its parts that is."""
    if part is manifest:
        return replace(manifest, **changes)  # type: ignore[arg-type]
    own = {name: getattr(part, name) for name in Part.__dataclass_fields__}
    other = Part(**{name: getattr(manifest, name) for name in Part.__dataclass_fields__})
    others = (*(each for each in manifest.earlier_parts if each is not part), other)
    return replace(manifest, **{**own, **changes}, earlier_parts=others)
