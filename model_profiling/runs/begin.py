"""Starts a session on a run directory: deals with what is there, and writes the first manifest.

An earlier run is never overwritten in place. A finished run is joined, or kept under its date and time when a
new one begins; an unfinished one is continued (`resume`) or discarded (`force`), never silently mixed.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.config import names
from model_profiling.config.baseline import OnCpu, asks_to_repeat, on_cpu, once_each
from model_profiling.config.names import MANIFEST, RunFiles, earlier_name
from model_profiling.config.reading import ProfileConfig
from model_profiling.config.remarks import Diagnostic
from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError, ProfilingError
from model_profiling.core.formatting import listing, plural
from model_profiling.core.progress import Progress
from model_profiling.export.records import read_export
from model_profiling.program import read_program
from model_profiling.program.delegates import delegate_named
from model_profiling.program.graph_file import make_graph, record_beside, write_graph_file
from model_profiling.runner.result import check_program
from model_profiling.runs import manifest_head as manifests
from model_profiling.runs.feeding import Feed, feed
from model_profiling.runs.folders import check_free, holds_run, refuse_links_out
from model_profiling.runs.journal import Journal, has_journal, moment
from model_profiling.runs.manifest import Manifest, Part, Session, read_manifest, read_summary_0
from model_profiling.runs.measuring import Measuring
from model_profiling.runs.schedule import make_schedule
from model_profiling.targets import MachineFacts, Target
from model_profiling.targets.collect import missing_backend, missing_operators


@dataclass(frozen=True, slots=True)
class Start:
    """What a session does with an existing run, and what it records about itself."""

    only: frozenset[str] = frozenset()
    resume: bool = False
    force: bool = False
    config_file: Path | None = None
    command_line: tuple[str, ...] = ()
    remarks: tuple[Diagnostic, ...] = ()
    """What the caller did without, for the report."""


def begin(
    config: ProfileConfig, target: Target, facts: MachineFacts, way: Start, *, fed: Feed, progress: Progress
) -> Measuring:
    """Begin or continue a run of `config` on a prepared target with these `facts`; its method is `fed` what
    `checked_feed` says."""
    libraries = find_libraries(fed, config.model.name, target)
    stem = names.with_method(config.model.stem, config.method, config.inputs.file_words)
    place = RunFiles(config.output_root, stem)
    latencies, repeats = target.timings_are_latency, asks_to_repeat(config)
    here = fit_to_machine(config, facts.features, latencies, resume=way.resume)
    head = manifests.head(here.config, way.config_file, target, facts)
    head = replace(head, stands_for=here.stands_for, tokens=fed.tokens, position=fed.position)
    earlier = settle_earlier(place.path, head, resume=way.resume, force=way.force)
    part = earlier.part
    config = with_mode(here.config, part)
    head = replace(head, settings=config.model_dump(mode="json"))
    if earlier.manifest is not None and part is not None:
        check_unchanged(place.path, earlier.manifest, part, head)
        begun = Journal(place.path).rounds_begun(head.experiments)
        check_rounds(place.path, begun, config.schedule.most_rounds)
    clear_work(place)
    files.make_folder(place.path)
    drawn = secrets.randbits(32) if config.schedule.seed is None else config.schedule.seed
    seed = part.schedule.seed if part else drawn
    number = 1 + max((session.number for each in earlier.parts for session in each.sessions), default=0)
    run = Measuring(
        config,
        place,
        target,
        Journal(place.path),
        number,
        progress,
        make_schedule(config, seed, latencies=latencies, only=here.renamed(way.only)),
        _first_manifest(head, earlier, Session(number, way.command_line, moment())),
        make_schedule(config, seed, latencies=latencies),
        list(part.warnings if part else ()),
        between=list(part.machine.between if part else ()),
        moved=earlier.moved,
        feed=fed,
        libraries=libraries,
    )
    run.write("running")
    if libraries:
        run.warnings.append(Diagnostic(None, "custom_operators", _CUSTOM))
    run.warnings += _keep_graph(config, fed, place.path)
    run.warnings += _about_accuracy(config.model, head.model_sha256)
    run.warnings += (*config.said_otherwise, *way.remarks)
    if repeats and not latencies and all(each.runs == 1 for each in config.experiments):
        no_effect = "`runs` and `warmup` of the config have no effect"
        run.warnings.append(Diagnostic(None, "no_effect", no_effect, why_once(target.name)))
    return run


_CUSTOM = (
    "custom operators come from ExecuTorch's library for PyTorch, which loads torch: start and peak memory "
    "include that (about 1 s and 120 MB), inferences do not"
)


def why_once(target: str) -> str:
    return f"times on target {target} are not latencies, so each experiment runs once"


def choose_methods(program: Path, method: str | None) -> tuple[str, ...]:
    """Return `method`, or else every one that computes something. This reads the program first of all, so
    what is no program is refused before anything is hashed, made or run."""
    check_program(program)
    found = read_program(program).computing
    if method is not None and found and method not in found:
        raise InputError(f"{program.name} has no method {method!r}", f"choose from {listing(found)}")
    return (method,) if method is not None else found or ("forward",)


def one_method(program: Path, method: str | None) -> str:
    """Return `method`, or else the only one that computes something."""
    found = choose_methods(program, method)
    if len(found) > 1:
        several = f"{program.name} has several methods: {listing(found)}"
        raise InputError(
            several, "choose one with --method, `method` in a config or in Python, or `cases` in a sweep"
        )
    return found[0]


def with_mode(config: ProfileConfig, part: Part | None) -> ProfileConfig:
    """Return `config` with its mode: as requested, as the run began, or lockstep."""
    mode = config.schedule.mode or (part.schedule.mode if part else "lockstep")
    return config.model_copy(update={"schedule": config.schedule.model_copy(update={"mode": mode})})


def fit_to_machine(
    config: ProfileConfig, features: Collection[str], latencies: bool, *, resume: bool
) -> OnCpu:
    """Adapt `config` to the machine: measure once what its CPU cannot tell apart, and repeat nothing if times
    are not latencies. A run begun by an earlier version, which did neither, goes on as it began."""
    as_written = resume and _begun_as_written(config, "name", "sme2")
    here = OnCpu(config) if as_written else on_cpu(config, features)
    if latencies or (resume and _begun_as_written(here.config, "name", "runs", "warmup")):
        return here
    return replace(here, config=once_each(here.config))


def _begun_as_written(config: ProfileConfig, *fields: str) -> bool:
    """Whether the existing run began with these fields of its experiments as in `config`."""
    manifest = read_manifest(config.output_root)
    part = same_part(manifest, config) if manifest else None
    begun = part.settings.get("experiments") if part else None
    written = [[getattr(each, name) for name in fields] for each in config.experiments]
    return isinstance(begun, list) and written == [[each.get(name) for name in fields] for each in begun]


def same_part(manifest: Manifest, config: ProfileConfig) -> Part | None:
    """Return the part of a run that this config made."""
    return _part_with(manifest.parts, (experiment.name for experiment in config.experiments))


def _part_with(parts: Iterable[Part], experiments: Iterable[str]) -> Part | None:
    wanted = set(experiments)
    return next((part for part in parts if wanted & set(part.experiments)), None)


def _first_manifest(head: Manifest, earlier: Earlier, session: Session) -> Manifest:
    """Return the first manifest of a session: new, joined to an existing run, or continued."""
    part = earlier.part
    past = part.sessions if part else ()
    # A session that never recorded its end was killed.
    past = tuple(replace(each, end="killed") if each.end == "running" else each for each in past)
    return replace(
        head,
        machine=part.machine if part else head.machine,
        sessions=(*past, session),
        earlier_parts=tuple(each for each in earlier.parts if each is not part),
        results=earlier.manifest.results if earlier.manifest else (),
        pairs=earlier.manifest.pairs if earlier.manifest else (),
    )


def _keep_graph(config: ProfileConfig, fed: Feed, run_dir: Path) -> list[Diagnostic]:
    """Keep the program's graph in the run, so that the run can be moved without its program."""
    model, lengths = config.model, {config.method or "forward": fed.lengths}
    try:
        write_graph_file(run_dir / names.GRAPH, make_graph(model, record_beside(model), lengths))
    except FormatError as problem:
        seen = f"{problem.problem}; operators are shown without shapes and source lines"
        return [Diagnostic(None, "no_graph", seen)]
    if fed.unclear:
        seen = (
            "shapes and work are those of the longest input, because the program does not say how they shrink"
        )
        return [Diagnostic(None, "longest_input", seen, "export with a length that divides no other size")]
    return []


def _about_accuracy(model: Path, sha256: str) -> list[Diagnostic]:
    """Return a remark if the export found that the program's outputs differ from PyTorch's."""
    try:
        export = read_export(model)
    except ProfilingError:
        return []  # not every program was exported here
    if export.sha256 != sha256 or export.accuracy.ok:
        return []
    seen, found = export.accuracy.problem, export.accuracy.lowering
    if not seen and found is not None:
        far = f"the program's outputs differ from PyTorch's in {export.dtype} by {found.distance}"
        seen = f"{far}{export.accuracy.where}"
    fix = export.accuracy.fix or "find out why before you trust the speed"
    return [Diagnostic(None, "accuracy", seen, fix)]


# What happens to an earlier run in the directory.


@dataclass(frozen=True, slots=True)
class Earlier:
    """What an earlier session left: a manifest to join, and the part of it to continue."""

    manifest: Manifest | None = None
    part: Part | None = None
    moved: Path | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.manifest.parts if self.manifest else ()


def settle_earlier(run_dir: Path, head: Manifest, *, resume: bool, force: bool) -> Earlier:
    """Decide what happens to an earlier run in `run_dir` before the new one (`head`) starts. A config with
    other experiments joins a finished run of the same program on the same machine. Otherwise the finished run
    is kept under its date and time, as is any run of the earlier kit. The caller holds the lock."""
    check_directory(run_dir, resume=resume, force=force)
    manifest = read_manifest(run_dir) or read_summary_0(run_dir)
    if manifest is not None and manifest.version_0:
        return Earlier(moved=_keep(run_dir, manifest))
    if manifest is None or not has_journal(run_dir):
        return Earlier()
    same = _part_with(manifest.parts, (name for each in head.experiments for name in head.asked_as(each)))
    ended = [part for part in manifest.parts if part.has_ended]
    if resume and same is not None:
        return Earlier(manifest, same)
    if len(ended) == len(manifest.parts):
        alike = all(before == after for _, before, after in _identity(manifest, manifest.cpu, head))
        if same is None and alike and manifest.target == head.target:
            return Earlier(manifest)
    elif resume:
        raise InputError(
            f"{run_dir} holds an unfinished run of other experiments",
            "continue it with its own config, discard it with --force, or choose another folder",
        )
    if ended:
        return Earlier(moved=_keep(run_dir, manifest))
    _discard(run_dir)  # unfinished, so --force was given
    return Earlier()


def _keep(run_dir: Path, manifest: Manifest) -> Path:
    kept = earlier_name(run_dir, manifest.started)
    run_dir.rename(kept)
    return kept


def check_startable(run_dir: Path, *, resume: bool, force: bool) -> None:
    """Like `check_directory`, for callers that do not hold the lock yet."""
    check_free(run_dir)
    check_directory(run_dir, resume=resume, force=force)


def check_directory(run_dir: Path, *, resume: bool, force: bool) -> None:
    """Refuse, before any time is spent, a directory with an unfinished run or with other files."""
    check_folder(run_dir)
    is_run = not run_dir.exists() or (run_dir / MANIFEST).exists() or holds_run(run_dir)
    # The kit must not move or fill a folder with other files.
    others = () if is_run else sorted(path.name for path in run_dir.iterdir() if path.name[0] != ".")
    if others:
        raise InputError(
            f"{run_dir} holds other files ({others[0]}), but no run",
            "choose another folder for the results, or an empty one",
        )
    refuse_links_out(run_dir)
    manifest = read_manifest(run_dir)
    if manifest is None or resume or force or all(part.has_ended for part in manifest.parts):
        return
    if has_journal(run_dir):
        raise InputError(
            f"{run_dir} holds an unfinished run",
            "continue it with --resume, discard it with --force, or choose another folder",
        )


def checked_feed(config: ProfileConfig) -> Feed:
    """Return what the method is fed; refuse inputs that it cannot take, and a program for a backend that the
    kit's runner does not have. A runner of the user may have other parts, but cannot be told inputs."""
    inputs = config.inputs
    own_runner = any(each.runner is not None for each in config.experiments)
    if (inputs.sizes or inputs.values) and own_runner:
        raise InputError(
            "an executor_runner cannot be told sizes and values of inputs",
            'use runner_path "builtin", or give the inputs as files',
        )
    fed = feed(config.model, config.method or "forward", inputs)
    if own_runner:
        return replace(fed, method=None)
    for delegate in fed.method.delegates if fed.method else ():
        if delegate_named(delegate.backend).name != delegate.backend:
            missing, fix = missing_backend(delegate.backend)
            raise InputError(f"{config.model.name} needs {missing}", fix)
    return fed


def find_libraries(fed: Feed, program: str, target: Target) -> tuple[Path, ...]:
    """Return the libraries with the operators that the kit's runner lacks on a prepared target; refuse a
    program if there are none."""
    needed = {step.name for step in fed.method.operators} if fed.method else set()
    known = target.operators() if needed else None
    lacking = needed - known if known is not None else set()
    libraries = target.libraries_with(lacking) if lacking else ()
    if lacking and not libraries:
        missing, fix = missing_operators(lacking)
        raise InputError(f"{program} needs {missing}", fix)
    return libraries


def check_folder(path: Path) -> None:
    """Refuse a path that cannot become a folder because a file is in the way."""
    existing = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not existing.is_dir():
        raise InputError(f"{existing} is a file, not a folder", "name another folder for the results")


def clear_work(place: RunFiles) -> None:
    """Remove what a killed pipeline left half done, and end its process if it still runs."""
    if place.work.is_symlink():
        place.work.unlink()
    if place.work.exists():
        _end_runners_in(place.work)
        shutil.rmtree(place.work, ignore_errors=True)
    for part in place.path.rglob(".*.part"):
        if not part.is_dir() or part.is_symlink():
            part.unlink(missing_ok=True)


def _discard(run_dir: Path) -> None:
    # Rename first, so that a crash leaves no half-deleted run under the real name.
    grave = Path(tempfile.mkdtemp(prefix=f".{run_dir.name}.", suffix=".discarded", dir=run_dir.parent))
    run_dir.rename(grave / run_dir.name)
    shutil.rmtree(grave, ignore_errors=True)


# Options that tell the kit's and ExecuTorch's runners where to write.
_WRITING = re.compile(r"--(?:result|etdump|output-prefix|etdump_path)[\0 =]")


def _end_runners_in(work: Path) -> None:
    """End processes that were started to write below `work`; any other process belongs to someone else."""
    import psutil  # type: ignore[import-untyped]  # importing it looks at the machine, which `report` must not

    with contextlib.suppress(OSError, IndexError):  # a container without /proc, or with an empty one
        for found in psutil.process_iter(["cmdline"]):
            command = "\0".join(found.info["cmdline"] or ())
            told = (flag.end() for flag in _WRITING.finditer(command))
            if any(command.startswith(f"{work}/process-", place) for place in told):
                with contextlib.suppress(psutil.Error):
                    found.kill()


# Whether a run may be continued: everything that makes its results comparable must be unchanged.

# Settings that may change between sessions without affecting results.
_FREE = (
    "model",  # its content is what counts
    "notes",
    "output_root",
    "analysis",
    "schedule.mode",  # `_changes` checks how the run began
    "schedule.budget_s",
    "schedule.rounds",
    "schedule.min_rounds",
    "schedule.precision",
    "schedule.cool_down_s",
    "schedule.max_temperature_c",
    "schedule.temperature_wait_s",
    "schedule.timeout_s",
    "schedule.sample",
)


def check_unchanged(run_dir: Path, earlier: Manifest, part: Part, now: Manifest) -> None:
    """Refuse to continue `part` of `earlier` as `now`, and name the first change."""
    for name, before, after in _changes(earlier, part, now):
        raise InputError(
            f"{run_dir} cannot be continued: {name} was {before}, now it is {after}",
            "undo the change, start again with --force, or choose another folder",
        )


def check_rounds(run_dir: Path, begun: int, wanted: int) -> None:
    """Refuse fewer rounds than were begun: files would disagree if measured rounds were left out."""
    if wanted < begun:
        raise InputError(
            f"{run_dir} cannot be continued with {plural(wanted, 'round')}: round {begun} was begun",
            f"ask for {begun} rounds or more, start again with --force, or choose another folder",
        )


def _changes(earlier: Manifest, part: Part, now: Manifest) -> Iterator[tuple[str, str, str]]:
    cpu = part.machine.before.cpu if part.machine.before else ""
    schedule = now.settings.get("schedule")
    mode = (schedule.get("mode") if isinstance(schedule, Mapping) else None) or now.schedule.mode
    for name, before, after in (
        *_identity(earlier, cpu, now),
        ("schedule.mode", part.schedule.mode, mode),
    ):
        if before != after:
            yield name, _shown(before), _shown(after)
    yield from _differences("", part.settings, now.settings)


def _identity(earlier: Manifest, cpu: str, now: Manifest) -> tuple[tuple[str, object, object], ...]:
    """Return what must be the same in two sessions of one run, as (name, before, now)."""
    return (
        ("the model's content", earlier.model_sha256, now.model_sha256),
        ("the method", earlier.method_run, now.method_run),
        ("the inputs", earlier.fed, now.fed),
        ("the target", earlier.target.name, now.target.name),
        ("the ExecuTorch version", earlier.executorch.version, now.executorch.version),
        ("the runner", earlier.runner.build_id, now.runner.build_id),
        ("the CPU", cpu, now.cpu),
    )


def _differences(path: str, before: object, after: object) -> Iterator[tuple[str, str, str]]:
    # A setting that is empty by default may have been added since the run began.
    if path in _FREE or before == after or (before is None and after in ({}, [])):
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
        return f"{len(value)} entries" if value and isinstance(value[0], Mapping) else str(value)
    text = str(value)
    return text if len(text) <= 40 else f"{text[:16]}..."
