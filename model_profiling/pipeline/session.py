"""One session on a run directory: settle what was there, measure what is missing, write what came of it."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling import files
from model_profiling.config.baseline import OnCpu, asks_to_repeat, on_cpu, once_each
from model_profiling.config.reading import ProfileConfig
from model_profiling.config.reading import Schedule as ScheduleSettings
from model_profiling.errors import FormatError, InputError, ProfilingError
from model_profiling.export.reading import read_export
from model_profiling.json_record import write_record
from model_profiling.pipeline import manifest as manifests
from model_profiling.pipeline.energy import measure_energy
from model_profiling.pipeline.measuring import Measuring
from model_profiling.pipeline.metrics import compute_metrics, latencies, robust_stats
from model_profiling.pipeline.resume import check_rounds, check_unchanged
from model_profiling.pipeline.rounds import Rounds
from model_profiling.pipeline.sampling import sample
from model_profiling.pipeline.schedule import Schedule, make_schedule
from model_profiling.pipeline.starting import Earlier, check_directory, clear_work, settle_earlier
from model_profiling.program.graph_file import make_graph, record_beside, write_graph_file
from model_profiling.progress import Progress, Silent
from model_profiling.run import Manifest, Metrics, Result, Times, names
from model_profiling.run.folders import refuse_links_out
from model_profiling.run.journal import Journal, moment
from model_profiling.run.manifest import Part, Session, State, read_manifest, read_summary_0
from model_profiling.run.remarks import Remark
from model_profiling.runner.cache import take_remade
from model_profiling.targets import MachineFacts, Target, TunedTarget

_REPEATS = "`runs` and `warmup` of the config have no effect"


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


@dataclass(frozen=True, slots=True)
class Start:
    """How a session deals with what is there already, and what it says of itself."""

    only: frozenset[str] = frozenset()
    resume: bool = False
    force: bool = False
    config_file: Path | None = None
    command_line: tuple[str, ...] = ()


def measure_together(
    asked: Sequence[tuple[ProfileConfig, Start]], target: Target, *, progress: Progress | None = None
) -> tuple[Measured, ...]:
    """Run several configs, each into its own output_root, with all their programs taking turns.

    Their schedules must be alike; what holds for one (`measure`) holds for each.
    """
    progress = progress or Silent()
    for config, way in asked:
        make_schedule(config, 0, latencies=target.timings_are_latency, only=way.only)  # refuses unknown names
        check_directory(config.output_root, resume=way.resume, force=way.force)
    progress.stage("preparing the runner")
    target.prepare()
    begun: list[_Begun] = []
    try:
        with target.held_ready() if isinstance(target, TunedTarget) else contextlib.nullcontext():
            for config, way in asked:
                begun.append(_begin(config, target, way, progress))
            # Whoever fails before there is a run to keep it in says it.
            remade = [Remark(None, "cache", note) for note in take_remade()]
            for each in begun:
                each.record.measuring.warnings += remade
            for each in begun:
                each.record.measuring.gather_evidence()
            Rounds(tuple(each.record.measuring for each in begun), across=len(begun) > 1).measure()
            for each in begun:
                measure_energy(each.record.measuring)
                sample(each.record.measuring)
            after = target.facts()
    except BaseException as problem:
        said = _about_settings(target) if begun else []  # with no record to keep it, the user is told
        for each in begun:
            each.record.measuring.warnings += said
            with contextlib.suppress(InputError):  # a full disk: what ended the run matters more
                each.record.write("interrupted", type(problem).__name__)
        raise
    said = _about_settings(target)
    for each in begun:
        each.record.measuring.warnings += said
    return tuple(_finish(each, after) for each in begun)


def _about_settings(target: Target) -> list[Remark]:
    """What became of the settings of a machine that was set up for measuring."""
    notes = target.take_notes() if isinstance(target, TunedTarget) else ()
    return [Remark(None, "settings", note) for note in notes]


@dataclass(frozen=True, slots=True)
class _Begun:
    """A run under way, and what was there before it."""

    record: _Record
    earlier: Earlier


def _begin(config: ProfileConfig, target: Target, way: Start, progress: Progress) -> _Begun:
    place = names.RunFiles(config.output_root, config.model.stem)
    facts = target.facts()
    here = _on_cpu(config, facts.features, resume=way.resume)
    latencies, repeats = target.timings_are_latency, asks_to_repeat(config)
    config, only = _repeated(here.config, latencies, resume=way.resume), here.renamed(way.only)
    head = replace(manifests.head(config, way.config_file, target, facts), stands_for=here.stands_for)
    earlier = settle_earlier(place.path, head, resume=way.resume, force=way.force)
    part = earlier.part
    config = _with_mode(config, part)
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
    record = _Record(_begun(head, earlier, session), whole, measuring)
    record.write("running")
    measuring.warnings += _keep_graph(config.model, place.path)
    measuring.warnings += _about_accuracy(config.model, head.model_sha256)
    measuring.warnings += config.said_otherwise
    if repeats and not latencies and all(each.runs == 1 for each in config.experiments):
        measuring.warnings.append(Remark(None, "no_effect", _REPEATS, why_once(target.name)))
    return _Begun(record, earlier)


def _finish(begun: _Begun, after: MachineFacts) -> Measured:
    record = begun.record
    machine = replace(record.manifest.machine, after=after)
    record.manifest = replace(record.manifest, machine=machine)
    record.write("analysing", "done")
    measuring = record.measuring
    shutil.rmtree(measuring.place.work, ignore_errors=True)
    found = Measured(
        measuring.place, measuring.config, measuring.journal, record.manifest, Metrics(), begun.earlier.moved
    )
    return refresh(found)


def _with_mode(config: ProfileConfig, part: Part | None) -> ProfileConfig:
    """`config` with the way it is measured: as asked, as it was begun, or in lockstep."""
    mode = config.schedule.mode or (part.schedule.mode if part else "lockstep")
    return config.model_copy(update={"schedule": config.schedule.model_copy(update={"mode": mode})})


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
    config = _on_cpu(config, features, resume=True).config
    config = _repeated(config, manifest.target.times is not Times.EMULATED, resume=True)
    part = _same_part(manifest, config) or manifest
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
    config = _with_mode(config, part)
    place = names.RunFiles(config.output_root, config.model.stem)
    now = _newest(manifest, part, settings=config.model_dump(mode="json"))
    return refresh(Measured(place, config, Journal(place.path), now, Metrics()))


def _on_cpu(config: ProfileConfig, features: Collection[str], *, resume: bool) -> OnCpu:
    """`config` as the CPU can run it. A run that was begun with its experiments as written goes on so:
    earlier versions measured SME2 on and off on any CPU."""
    manifest = read_manifest(config.output_root) if resume else None
    part = _same_part(manifest, config) if manifest else None
    begun = part.settings.get("experiments") if part else None
    written = [(each.name, each.sme2) for each in config.experiments]
    if isinstance(begun, list) and written == [(each.get("name"), each.get("sme2")) for each in begun]:
        return OnCpu(config)
    return on_cpu(config, features)


def _repeated(config: ProfileConfig, latencies: bool, *, resume: bool) -> ProfileConfig:
    """`config` with each experiment run once where times are no latencies. A run that was begun otherwise
    goes on so: earlier versions repeated there, too."""
    if latencies:
        return config
    manifest = read_manifest(config.output_root) if resume else None
    part = _same_part(manifest, config) if manifest else None
    begun = part.settings.get("experiments") if part else None
    written = [(each.name, each.runs, each.warmup) for each in config.experiments]
    if isinstance(begun, list) and written == [
        (each.get("name"), each.get("runs"), each.get("warmup")) for each in begun
    ]:
        return config
    return once_each(config)


def why_once(target: str) -> str:
    return f"times on target {target} are not latencies, so each experiment runs once"


def _same_part(manifest: Manifest, config: ProfileConfig) -> Part | None:
    return Earlier(manifest).part_with(experiment.name for experiment in config.experiments)


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


@dataclass(slots=True)
class _Record:
    """Writes the manifest of a session that is under way."""

    manifest: Manifest
    plan: Schedule
    measuring: Measuring

    def write(self, state: State, end: str = "running") -> None:
        config, journal, place = self.measuring.config, self.measuring.journal, self.measuring.place
        *past, session = self.manifest.sessions
        session = replace(session, end=end, ended=None if end == "running" else moment())
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


def _newest(manifest: Manifest, part: Part, **changes: object) -> Manifest:
    """`manifest` told from the side of `part`, whichever of its parts that is."""
    if part is manifest:
        return replace(manifest, **changes)  # type: ignore[arg-type]
    own = {name: getattr(part, name) for name in Part.__dataclass_fields__}
    other = Part(**{name: getattr(manifest, name) for name in Part.__dataclass_fields__})
    others = (*(each for each in manifest.earlier_parts if each is not part), other)
    return replace(manifest, **{**own, **changes}, earlier_parts=others)


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


def _seed(config: ProfileConfig, part: Part | None) -> int:
    if part is not None:
        return part.schedule.seed
    return config.schedule.seed if config.schedule.seed is not None else secrets.randbits(32)
