"""Begins a session on a run directory: settles what happens to a run that is there, and writes the first
manifest.

An unfinished run that would measure the same is continued. Experiments of another mode (a trace after the
timing) of the same program on the same machine are added. Any other run is kept under its date and time.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from model_profiling._version import __version__
from model_profiling.config import names
from model_profiling.config.names import MANIFEST, RunFiles, earlier_name
from model_profiling.config.series import Diagnostic, StandsFor, without_switch
from model_profiling.config.settings import Experiment, ProfileConfig
from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError, ProfilingError
from model_profiling.core.records import write_record
from model_profiling.export.records import ExportResult, read_export
from model_profiling.program.graph_file import make_graph, record_beside
from model_profiling.runner.features import SME2_ONLY
from model_profiling.runs import Times
from model_profiling.runs.feeding import Feed, find_libraries
from model_profiling.runs.figures import Measured, compute_figures
from model_profiling.runs.folders import holds_run, lock_of, refuse_links_out
from model_profiling.runs.journal import Journal, has_journal, moment
from model_profiling.runs.manifest import (
    ExecuTorch,
    Machine,
    Manifest,
    Runner,
    Session,
    TargetFacts,
    read_manifest,
)
from model_profiling.runs.measuring import Measuring
from model_profiling.runs.schedule import make_order
from model_profiling.targets import MachineFacts, Target


@dataclass(frozen=True, slots=True)
class Start:
    """What a session does with an existing run, and what it records about itself. `resume` also continues a
    finished run and refuses to begin a new one; `force` always begins a new one."""

    only: frozenset[str] = frozenset()
    resume: bool = False
    force: bool = False
    config_file: Path | None = None
    command_line: tuple[str, ...] = ()
    remarks: tuple[Diagnostic, ...] = ()
    """What the caller did without, for the report."""


def begin(
    config: ProfileConfig, target: Target, facts: MachineFacts, start: Start, *, fed: Feed
) -> Measuring:
    """Begin or continue a run of `config` on a prepared target with these `facts`; its method is `fed` what
    `checked_feed` says."""
    libraries = find_libraries(fed, config.model.name, target)
    stem = names.with_method(config.model.stem, config.method, config.inputs.file_words)
    place, latencies = RunFiles(config.output_root, stem), target.timings_are_latency
    here = fit_to_machine(config, facts.features, latencies)
    head = _head(here.config, start.config_file, target, facts)
    export: ExportResult | None = None
    with contextlib.suppress(ProfilingError):  # not every program was exported here
        export = read_export(config.model)
    if export and export.sha256 != head.model_sha256:
        export = None
    rewritten = export.rewritten if export else {}
    head = replace(
        head, stands_for=here.stands_for, tokens=fed.tokens, position=fed.position, rewrites=rewritten
    )
    earlier, moved = settle_earlier(place.path, head, resume=start.resume, force=start.force)
    fitted = with_earlier(here.config, earlier) if earlier else here.config
    clear_work(place)
    files.make_folder(place.path)
    journal = Journal(place.path)
    begun = journal.rounds_begun(experiment.name for experiment in fitted.experiments)
    if begun > fitted.schedule.most_rounds:  # a round that was begun is finished
        fitted = fitted.model_copy(update={"schedule": fitted.schedule.model_copy(update={"rounds": begun})})
    seed = secrets.randbits(32) if fitted.schedule.seed is None else fitted.schedule.seed
    seed = earlier.schedule.seed if earlier else seed
    number = earlier.sessions[-1].number + 1 if earlier and earlier.sessions else 1
    run = Measuring(
        config=fitted,
        place=place,
        target=target,
        journal=journal,
        session=number,
        order=make_order(fitted, seed, latencies=latencies, only=here.renamed(start.only)),
        manifest=_first_manifest(head, earlier, fitted, Session(number, start.command_line, moment())),
        whole=make_order(fitted, seed, latencies=latencies),
        warnings=list(earlier.warnings if earlier else ()),
        moved=moved,
        feed=fed,
        libraries=libraries,
    )
    run.write("running")
    if libraries:
        run.warnings.append(Diagnostic(None, "custom_operators", _CUSTOM))
    run.warnings += _keep_graph(config, fed, place.path, head.model_sha256)
    run.warnings += _about_accuracy(export) if export else []
    run.warnings += (*config.said_otherwise, *start.remarks)
    return run


_CUSTOM = (
    "custom operators come from ExecuTorch's library for PyTorch, which loads torch: start and peak memory "
    "include that (about 1 s and 120 MB), inferences do not"
)


def _head(config: ProfileConfig, config_file: Path | None, target: Target, facts: MachineFacts) -> Manifest:
    """Return what is known before the first process; to continue a run, this must be unchanged."""
    etrecord = record_beside(config.model)
    build = target.build
    times = Times.HARDWARE if target.timings_are_latency else Times.EMULATED
    return Manifest(
        kit_version=__version__,
        model=str(config.model),
        model_sha256=files.sha256(config.model),
        model_bytes=config.model.stat().st_size,
        method=config.method or "",
        fed=config.inputs.file_words,
        etrecord=str(etrecord) if etrecord else None,
        quantized=names.computes_in(config.model, "int8"),
        half=names.computes_in(config.model, "fp16"),
        config=str(config_file or config.output_root / names.CONFIG),
        settings=config.model_dump(mode="json"),
        config_file=str(config_file) if config_file else None,
        experiments=tuple(experiment.name for experiment in config.experiments),
        target=TargetFacts(target.name, target.platform, times),
        executorch=ExecuTorch(
            build.executorch_version if build else facts.versions.get("executorch"),
            build.executorch_sha if build else None,
        ),
        runner=Runner(
            build.build_id if build else None, build.compiler if build else facts.versions.get("compiler")
        ),
        machine=Machine(before=facts),
        state="running",
        results=(),
    )


def _first_manifest(
    head: Manifest, earlier: Manifest | None, config: ProfileConfig, session: Session
) -> Manifest:
    if earlier is None:
        return replace(head, sessions=(session,))
    # A session that never recorded its end was killed.
    past = (
        replace(before, end="killed") if before.end == "running" else before for before in earlier.sessions
    )
    return replace(
        head,
        settings=config.model_dump(mode="json"),
        experiments=tuple(experiment.name for experiment in config.experiments),
        stands_for=tuple(dict.fromkeys((*earlier.stands_for, *head.stands_for))),
        machine=earlier.machine,
        sessions=(*past, session),
        results=earlier.results,
        pairs=earlier.pairs,
    )


def _keep_graph(config: ProfileConfig, fed: Feed, run_dir: Path, sha256: str) -> list[Diagnostic]:
    """Keep the program's graph in the run, so that the run can be moved without its program."""
    model, lengths = config.model, {config.method or "forward": fed.lengths}
    try:
        graph = make_graph(model, record_beside(model), lengths, sha256=sha256)
        write_record(run_dir / names.GRAPH, graph)
    except FormatError as problem:
        seen = f"{problem.problem}; operators are shown without shapes and source lines"
        return [Diagnostic(None, "no_graph", seen)]
    if fed.unclear:
        seen = (
            "shapes and work are those of the longest input, because the program does not say how they shrink"
        )
        return [Diagnostic(None, "longest_input", seen, "export with a length that divides no other size")]
    return []


def _about_accuracy(export: ExportResult) -> list[Diagnostic]:
    """Return a remark if the export found that the program's outputs differ from PyTorch's."""
    if export.accuracy.ok:
        return []
    seen, lowering = export.accuracy.problem, export.accuracy.lowering
    if not seen and lowering is not None:
        far = f"the program's outputs differ from PyTorch's in {export.dtype} by {lowering.distance}"
        seen = f"{far}{export.accuracy.where}"
    fix = export.accuracy.fix or "find out why before you trust the speed"
    return [Diagnostic(None, "accuracy", seen, fix)]


# What happens to an earlier run in the directory.


def settle_earlier(
    run_dir: Path, head: Manifest, *, resume: bool, force: bool
) -> tuple[Manifest | None, Path | None]:
    """Decide what happens to an earlier run in `run_dir` before the new one (`head`) starts. Return the run
    to go on with, or where it was moved to. The caller holds the lock."""
    check_directory(run_dir)
    earlier = read_manifest(run_dir)
    if earlier is None or not (earlier.version_0 or has_journal(run_dir)):
        return None, None
    relation = "other" if force or earlier.version_0 else _relation(earlier, head)
    if relation == "added" or (relation == "same" and (resume or not earlier.has_ended)):
        return earlier, None
    if resume:
        raise InputError(
            f"{run_dir} cannot be continued: it has other experiments or inputs, or ran another program or "
            "another machine",
            "undo the change, or leave --resume out: the earlier run is kept under its date and time",
        )
    return None, run_dir.rename(earlier_name(run_dir, earlier.started))


def _relation(earlier: Manifest, head: Manifest) -> Literal["same", "added", "other"]:
    """Whether `head` measures what `earlier` does, adds experiments of another mode, or is another run.
    Settings that only decide how long and how patiently it measures may differ."""
    if _identity(earlier) != _identity(head):
        return "other"
    before, now = _experiments(earlier), _experiments(head)
    modes = {settings.get("mode") for settings in now.values()}
    alike = {name: settings for name, settings in before.items() if settings.get("mode") in modes}
    if not alike and not before.keys() & now.keys():
        return "added"
    schedule = head.settings.get("schedule")
    seed = schedule.get("seed") if isinstance(schedule, dict) else None
    return "same" if alike == now and seed in (None, earlier.schedule.seed) else "other"


def _identity(manifest: Manifest) -> tuple[object, ...]:
    """Return what must be the same in all sessions of a run, apart from its experiments."""
    return (
        manifest.model_sha256,
        manifest.method,
        manifest.target,
        manifest.executorch.version,
        manifest.runner.build_id,
        manifest.cpu,
        *(manifest.settings.get(name) for name in ("inputs", "target")),
    )


def _experiments(manifest: Manifest) -> dict[object, dict[str, object]]:
    listed = manifest.settings.get("experiments")
    return {experiment.get("name"): experiment for experiment in listed} if isinstance(listed, list) else {}


def with_earlier(config: ProfileConfig, earlier: Manifest) -> ProfileConfig:
    """Return `config` with the experiments that an earlier config put into the run; schedule and comparisons
    are those of the config that measures latencies."""
    own = {experiment.name: experiment for experiment in config.experiments}
    if set(_experiments(earlier)) <= set(own):
        return config
    stored = stored_config(earlier, config.output_root)
    merged = {experiment.name: experiment for experiment in stored.experiments} | own
    timing = config if any(experiment.mode == "timing" for experiment in config.experiments) else stored
    update = {"schedule": timing.schedule, "analysis": timing.analysis}
    return config.model_copy(update={"experiments": tuple(merged.values()), **update})


def stored_config(manifest: Manifest, run_dir: Path) -> ProfileConfig:
    try:
        return ProfileConfig.model_validate(manifest.settings)
    except ValidationError as problem:
        raise InputError(
            f"{run_dir} has settings of another version of the kit",
            "begin again with --force, or choose another folder",
        ) from problem


def check_startable(run_dir: Path) -> None:
    """Like `check_directory`, for callers that do not hold the lock yet."""
    lock_of(run_dir).check_free()
    check_directory(run_dir)


def check_directory(run_dir: Path) -> None:
    """Refuse, before any time is spent, a directory with other files: the kit must not move or fill it."""
    check_folder(run_dir)
    if run_dir.exists() and not (run_dir / MANIFEST).exists() and not holds_run(run_dir):
        others = sorted(path.name for path in run_dir.iterdir() if path.name[0] != ".")
        if others:
            raise InputError(
                f"{run_dir} holds other files ({others[0]}), but no run",
                "choose another folder for the results, or an empty one",
            )
    refuse_links_out(run_dir)


def check_folder(path: Path) -> None:
    """Refuse a path that cannot become a folder because a file is in the way."""
    existing = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not existing.is_dir():
        raise InputError(f"{existing} is a file, not a folder", "name another folder for the results")


def clear_work(place: RunFiles) -> None:
    """Remove what a killed pipeline left half done. Its process was ended with it."""
    if place.work.is_symlink():
        place.work.unlink()
    if place.work.exists():
        shutil.rmtree(place.work, ignore_errors=True)
    for part in place.path.rglob(".*.part"):
        if not part.is_dir() or part.is_symlink():
            part.unlink(missing_ok=True)


def reopen(config: ProfileConfig) -> Measured:
    """Reopen the run directory of an earlier session, and compute its figures again for `config`. The model
    may be gone; then the manifest's record of it counts. Only what is compared can differ from before."""
    refuse_links_out(config.output_root)
    manifest = read_manifest(config.output_root)
    if manifest is None:
        raise InputError(
            f"{config.output_root} holds no run to analyse", "run it first, without --analysis-only"
        )
    if manifest.version_0:
        raise InputError(
            f"{config.output_root} holds a run of the earlier kit",
            f"analyse it as it is: sme2prof analyze {config.output_root}",
        )
    features = manifest.machine.before.features if manifest.machine.before else ()
    fitted = fit_to_machine(config, features, manifest.target.times is not Times.EMULATED).config
    stored, here = stored_config(manifest, config.output_root), config.model.is_file()
    if not {experiment.name for experiment in fitted.experiments} <= set(manifest.experiments) or (
        here and files.sha256(config.model) != manifest.model_sha256
    ):
        raise InputError(
            f"{config.output_root} holds a run of other experiments or of another program",
            "run it again, without --analysis-only",
        )
    timing = any(experiment.mode == "timing" for experiment in fitted.experiments)
    fitted = stored.model_copy(
        update={
            "model": config.model if here else stored.model,
            "output_root": config.output_root,
            "analysis": fitted.analysis if timing else stored.analysis,
        }
    )
    stem = names.with_method(fitted.model.stem, manifest.method, manifest.fed)
    place = names.RunFiles(config.output_root, stem)
    manifest = replace(manifest, settings=fitted.model_dump(mode="json"))
    return compute_figures(place, fitted, Journal(place.path), manifest)


# Measuring the same code twice and calling it SME2 on and off would make noise look like an answer, so
# without SME2 such experiments are measured once, as a baseline.


@dataclass(frozen=True, slots=True)
class OnCpu:
    """A config as one CPU can run it, and which experiments stand for others."""

    config: ProfileConfig
    stands_for: tuple[StandsFor, ...] = ()

    def renamed(self, names: Iterable[str]) -> frozenset[str]:
        """The names here of experiments of the original config."""
        now = {old: merged.experiment for merged in self.stands_for for old in merged.names}
        return frozenset(now.get(name, name) for name in names)


def fit_to_machine(config: ProfileConfig, features: Collection[str], latencies: bool) -> OnCpu:
    """Adapt `config` to the machine: measure once what a CPU with `features` cannot tell apart, and repeat
    nothing if times are not latencies. Not merged: experiments with the user's own runners, which have no
    switch, and an experiment that is asked for twice, because there noise is the question."""
    if not latencies:
        once = {"runs": 1, "warmup": 0}  # all runs give the same kernels and outputs
        experiments = tuple(experiment.model_copy(update=once) for experiment in config.experiments)
        config = config.model_copy(update={"experiments": experiments})
    if "sme2" in features:
        return OnCpu(config)
    groups: dict[object, list[Experiment]] = {}  # experiments that are the same on this CPU
    for experiment in config.experiments:
        off = {"sme2" if name == SME2_ONLY else name for name in experiment.switched_off} & set(features)
        rest = experiment.model_dump_json(exclude={"name", "sme2", "disable", "threads"})
        same = groups.get((rest, *sorted(off)), [])
        twice = any(member.switched_off == experiment.switched_off for member in same)
        own = experiment.runner is not None or twice
        groups.setdefault(experiment.name if own else (rest, *sorted(off)), []).append(experiment)
    names: dict[str, str] = {}
    merged, stands_for = [], []
    for members in groups.values():
        first, name = members[0], members[0].name
        if first.runner is None:
            name = _free_name(first.name, {*names.values(), *(group[0].name for group in groups.values())})
            counts = dict.fromkeys(count for member in members for count in member.threads)
            first = first.model_copy(update={"name": name, "sme2": None, "threads": tuple(counts)})
        merged.append(first)
        old = tuple(member.name for member in members)
        names |= dict.fromkeys(old, name)
        if old != (name,):
            stands_for.append(StandsFor(name, old))
    pairs = []  # those that still have two different sides
    for pair in config.analysis.compare_pairs:
        before, after = (
            side.model_copy(update={"experiment": names[side.experiment]})
            for side in (pair.baseline, pair.candidate)
        )
        if before != after:
            pairs.append(pair.model_copy(update={"baseline": before, "candidate": after}))
    analysis = config.analysis.model_copy(update={"compare_pairs": tuple(pairs)})
    update = {"experiments": tuple(merged), "analysis": analysis}
    return OnCpu(config.model_copy(update=update), tuple(stands_for))


def _free_name(first: str, taken: Collection[str]) -> str:
    name = free = without_switch(first, "baseline")
    number = 2
    while free != first and free in taken:
        number, free = number + 1, f"{name}_{number}"
    return free
