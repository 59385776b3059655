"""How a session on a run directory begins: what was there is settled, the manifest is written."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from model_profiling.config.baseline import OnCpu, asks_to_repeat, on_cpu, once_each
from model_profiling.config.reading import ProfileConfig
from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError, ProfilingError
from model_profiling.core.formatting import plural
from model_profiling.core.progress import Progress
from model_profiling.core.records import write_record
from model_profiling.export.records import read_export
from model_profiling.pipeline import manifest as manifests
from model_profiling.pipeline.measuring import Measuring
from model_profiling.pipeline.schedule import Schedule, make_schedule
from model_profiling.pipeline.start import Earlier, clear_work, settle_earlier
from model_profiling.program.graph_file import make_graph, record_beside, write_graph_file
from model_profiling.run import names
from model_profiling.run.journal import Journal, moment
from model_profiling.run.manifest import Manifest, Part, Session, State, read_manifest
from model_profiling.run.remarks import Remark
from model_profiling.targets import MachineFacts, Target

# Whether a run may be continued: everything that makes its results comparable must still be the same.

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


# How a session on a run directory begins: what was there is settled, the manifest says what is to come.

PUT_ASIDE = "put aside"
_REPEATS = "`runs` and `warmup` of the config have no effect"


@dataclass(frozen=True, slots=True)
class Start:
    """How a session deals with what is there already, and what it says of itself."""

    only: frozenset[str] = frozenset()
    resume: bool = False
    force: bool = False
    config_file: Path | None = None
    command_line: tuple[str, ...] = ()


class PutAside(Exception):
    """Nothing went wrong: whoever measured lets it be continued later, or elsewhere."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A run under way, and what was there before it."""

    record: Record
    earlier: Earlier


def begin(
    config: ProfileConfig, target: Target, facts: MachineFacts, way: Start, progress: Progress
) -> Begun:
    """Begin or continue a run of `config` on a target that is ready and told `facts` of itself."""
    place = names.RunFiles(config.output_root, config.model.stem)
    here = as_cpu_can(config, facts.features, resume=way.resume)
    latencies, repeats = target.timings_are_latency, asks_to_repeat(config)
    config, only = repeated(here.config, latencies, resume=way.resume), here.renamed(way.only)
    head = replace(manifests.head(config, way.config_file, target, facts), stands_for=here.stands_for)
    earlier = settle_earlier(place.path, head, resume=way.resume, force=way.force)
    part = earlier.part
    config = with_mode(config, part)
    head = replace(head, settings=config.model_dump(mode="json"))
    if earlier.manifest is not None and part is not None:
        check_unchanged(place.path, earlier.manifest, part, head)
        begun = Journal(place.path).rounds_begun(head.experiments)
        check_rounds(place.path, begun, config.schedule.most_rounds)
    clear_work(place)
    files.make_folder(place.path)
    seed = _seed(config, part)
    journal = Journal(place.path)
    number = 1 + max((session.number for each in earlier.parts for session in each.sessions), default=0)
    measuring = Measuring(
        config,
        place,
        target,
        journal,
        number,
        progress,
        make_schedule(config, seed, latencies=latencies, only=only),
        list(part.warnings if part else ()),
        between=list(part.machine.between if part else ()),
    )
    session = Session(number, way.command_line, moment())
    whole = make_schedule(config, seed, latencies=latencies)
    record = Record(_begun(head, earlier, session), whole, measuring)
    record.write("running")
    measuring.warnings += _keep_graph(config.model, place.path)
    measuring.warnings += _about_accuracy(config.model, head.model_sha256)
    measuring.warnings += config.said_otherwise
    if repeats and not latencies and all(each.runs == 1 for each in config.experiments):
        measuring.warnings.append(Remark(None, "no_effect", _REPEATS, why_once(target.name)))
    return Begun(record, earlier)


def with_mode(config: ProfileConfig, part: Part | None) -> ProfileConfig:
    """`config` with the way it is measured: as asked, as it was begun, or in lockstep."""
    mode = config.schedule.mode or (part.schedule.mode if part else "lockstep")
    return config.model_copy(update={"schedule": config.schedule.model_copy(update={"mode": mode})})


def as_cpu_can(config: ProfileConfig, features: Collection[str], *, resume: bool) -> OnCpu:
    """`config` as the CPU can run it. A run that was begun with its experiments as written goes on so:
    earlier versions measured SME2 on and off on any CPU."""
    manifest = read_manifest(config.output_root) if resume else None
    part = same_part(manifest, config) if manifest else None
    begun = part.settings.get("experiments") if part else None
    written = [(each.name, each.sme2) for each in config.experiments]
    if isinstance(begun, list) and written == [(each.get("name"), each.get("sme2")) for each in begun]:
        return OnCpu(config)
    return on_cpu(config, features)


def repeated(config: ProfileConfig, latencies: bool, *, resume: bool) -> ProfileConfig:
    """`config` with each experiment run once where times are no latencies. A run that was begun otherwise
    goes on so: earlier versions repeated there, too."""
    if latencies:
        return config
    manifest = read_manifest(config.output_root) if resume else None
    part = same_part(manifest, config) if manifest else None
    begun = part.settings.get("experiments") if part else None
    written = [(each.name, each.runs, each.warmup) for each in config.experiments]
    if isinstance(begun, list) and written == [
        (each.get("name"), each.get("runs"), each.get("warmup")) for each in begun
    ]:
        return config
    return once_each(config)


def why_once(target: str) -> str:
    return f"times on target {target} are not latencies, so each experiment runs once"


def same_part(manifest: Manifest, config: ProfileConfig) -> Part | None:
    """The part of a run that a config put there."""
    return Earlier(manifest).part_with(experiment.name for experiment in config.experiments)


@dataclass(slots=True)
class Record:
    """Writes the manifest of a session that is under way."""

    manifest: Manifest
    plan: Schedule
    measuring: Measuring

    def write(self, state: State, end: str = "running", reason: BaseException | None = None) -> None:
        config, journal, place = self.measuring.config, self.measuring.journal, self.measuring.place
        *past, session = self.manifest.sessions
        session = replace(
            session,
            end=end,
            ended=None if end == "running" else moment(),
            problem=_said(reason, "problem"),
            fix=_said(reason, "fix"),
        )
        schedule = manifests.schedule_facts(config, self.plan, journal, self.measuring.ended)
        machine = replace(self.manifest.machine, between=tuple(self.measuring.between))
        manifest = replace(
            self.manifest,
            machine=machine,
            state=state,
            sessions=(*past, session),
            schedule=schedule,
            warnings=tuple(dict.fromkeys(self.measuring.warnings)),
        )
        self.manifest = manifests.with_results(manifest, config, journal, place)
        write_record(place.manifest, self.manifest)

    def interrupted(self, reason: BaseException) -> None:
        """Keep what ended the session before its time, and what can be done about it."""
        end = PUT_ASIDE if isinstance(reason, PutAside) else type(reason).__name__
        self.write("interrupted", end, reason)


def _said(reason: BaseException | None, what: Literal["problem", "fix"]) -> str | None:
    if isinstance(reason, ProfilingError):
        return getattr(reason, what) or None
    return str(reason) or None if reason is not None and what == "problem" else None


def _begun(head: Manifest, earlier: Earlier, session: Session) -> Manifest:
    """The manifest a session starts with: new, joined to what is there, or continued."""
    part = earlier.part
    past = part.sessions if part else ()
    # A session that never said how it ended was killed.
    past = tuple(replace(each, end="killed") if each.end == "running" else each for each in past)
    return replace(
        head,
        machine=part.machine if part else head.machine,
        sessions=(*past, session),
        earlier_parts=tuple(each for each in earlier.parts if each is not part),
        results=earlier.manifest.results if earlier.manifest else (),
        pairs=earlier.manifest.pairs if earlier.manifest else (),
    )


def _keep_graph(model: Path, run_dir: Path) -> list[Remark]:
    """Keep what explains the operators in the run, so that it can be moved without its program."""
    try:
        write_graph_file(run_dir / names.GRAPH, make_graph(model, record_beside(model)))
    except FormatError as problem:
        seen = f"{problem.problem}; operators are shown without shapes and source lines"
        return [Remark(None, "no_graph", seen)]
    return []


def _about_accuracy(model: Path, sha256: str) -> list[Remark]:
    """What the export of this program said of its outputs, if they are not what PyTorch computes."""
    try:
        export = read_export(model)
    except ProfilingError:
        return []  # not every program was exported here
    if export.sha256 != sha256 or export.accuracy.ok:
        return []
    seen, found = export.accuracy.problem, export.accuracy.lowering
    if not seen and found is not None:
        seen = f"the program's outputs differ from PyTorch's in {export.dtype} by {found.distance}"
    return [Remark(None, "accuracy", seen, "understand that before trusting the speed")]


def _seed(config: ProfileConfig, part: Part | None) -> int:
    if part is not None:
        return part.schedule.seed
    return config.schedule.seed if config.schedule.seed is not None else secrets.randbits(32)
