"""Turns a run directory into rows of the store's tables.

`Times` decides: milliseconds are there only if times may be shown, latencies only if times are latencies.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.analysis.evidence import listed_kernels
from model_profiling.analysis.kernels import kernel_named
from model_profiling.core import files, process
from model_profiling.core.errors import InputError, SetupError
from model_profiling.core.safe_read import inside, is_regular, is_there
from model_profiling.facts import row_cells
from model_profiling.facts.runs import (
    EXPERIMENT_FACTS,
    KERNEL_FACTS,
    ROUND_FACTS,
    KernelRow,
    MeasuredSeries,
    Round,
)
from model_profiling.run import Run, Series, names
from model_profiling.run.comparability import device_of
from model_profiling.statistics.speedup import median_interval
from model_profiling.store.analysis_rows import analysis_rows
from model_profiling.store.connection import moment_of, now
from model_profiling.store.tables import Row

# The identity of a run, from what was measured: the same wherever the run is moved or copied to. A run that
# was continued is another run, with the same beginning.

_ID_LETTERS = 32
"""Hex digits of SHA-256: 128 bits, which no two runs share by chance."""
ENDED = ("finished", "failed", "")
"""States of a run that will not be continued; empty if it has no manifest."""


@dataclass(frozen=True, slots=True)
class Identity:
    run_id: str
    begun: str
    """The same for all states of a run that was continued."""
    processes: int
    """How many processes had ended in it: of two runs with the same beginning, the one with more is later."""
    ended: bool

    def covers(self, other: Identity) -> bool:
        """Whether `other`, with the same beginning, has nothing that this one lacks."""
        return self.run_id == other.run_id or (self.processes, self.ended) > (other.processes, other.ended)


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
    return Identity(_hash(content), _hash(beginning), len(entries), _state(run) in ENDED)


def _state(run: Run) -> str:
    return (run.manifest.unfinished or "finished") if run.manifest else ""


def _beginning(run: Run) -> list[object]:
    """What is fixed when a run starts; without a manifest, the content of its files."""
    manifest = run.manifest
    if manifest is None or not manifest.started:
        return [_files(run)]
    first = manifest.parts[0]
    return [
        manifest.model_sha256, manifest.model_stem, manifest.started, first.schedule.seed,
        device_of(manifest).name, manifest.target.platform, manifest.target.times.value,
    ]  # fmt: skip


def _files(run: Run) -> list[str]:
    """Hashes of the dumps and latencies, which identify a run without a journal."""
    named = [dump.path for dump in run.dumps]
    kept = [inside(run.path, result.latency) for result in run.results if result.latency]
    return sorted(files.sha256(path) for path in (*named, *filter(is_there, kept)))


def _hash(content: object) -> str:
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_ID_LETTERS]


_UNKNOWN = "unknown"
_REPORT = Path(names.REPORT).with_suffix(names.HTML).name


def rows_of_run(
    run: Run, identity: Identity, labels: Labels, root: Path
) -> tuple[Mapping[str, Sequence[Row]], bool]:
    """Rows of each table for the store in `root`, and whether dumps had to be read for them. An unreadable
    file is a FormatError or InputError that names it."""
    added = now()
    analysis = analysis_rows(run)
    run_id = identity.run_id
    tables: dict[str, Sequence[Row]] = {
        "experiments": [row_cells(EXPERIMENT_FACTS, _experiment(run, series)) for series in run.series],
        "rounds": [
            row_cells(ROUND_FACTS, found)
            for series in run.series
            if run.times_of(series).are_latencies
            for found in _rounds(run, series)
        ],
        "operators": analysis.operators,
        "categories": analysis.categories,
        "kernels": [row_cells(KERNEL_FACTS, kernel) for kernel in _kernels(run)],
        "speedups": analysis.speedups,
        "environment": list(_environment(run)),
    }
    tables = {name: [(run_id, *row) for row in rows] for name, rows in tables.items()}
    told = _run(run, identity, labels, added, analysis.warnings)
    place = files.relative_posix(root, run.path)
    case = run.manifest.case if run.manifest else ("", "")
    tables["runs"] = [(*told, sum(map(len, tables.values())), place, *case)]
    tables["tags"] = [(run_id, tag, added, "") for tag in labels.tags]
    return tables, analysis.analysed


def _run(run: Run, identity: Identity, labels: Labels, added: int, warnings: Sequence[str]) -> Row:
    manifest, device = run.manifest, device_of(run.manifest)
    parts = manifest.parts if manifest else ()
    before = next((part.machine.before for part in parts if part.machine.before), None)
    model, dtype, backend = variant_of(run)
    measured = moment_of(manifest.started) if manifest else None
    place = labels.device or run.platform or _UNKNOWN
    return (
        identity.run_id, labels.name or f"{_program(run) or _UNKNOWN}/{place}", added, measured, model, dtype,
        backend, manifest.model_sha256 if manifest else "",
        (manifest.model_bytes or None) if manifest else None,
        labels.device or device.name, device.title, device.target, run.platform, before.cpu if before else "",
        before.cores if before else None, manifest.has_sme2 if manifest else None,
        manifest.is_arm if manifest else None, run.times.value, _state(run),
        (manifest.executorch.version or "") if manifest else "",
        manifest.kit_version if manifest else "", (manifest.runner.build_id or "") if manifest else "",
        before.os if before else "", labels.commit or "", labels.branch or "", labels.dirty, labels.sweep,
        str(run.path.resolve()), _REPORT if is_regular(run.path / _REPORT) else "", "", list(warnings),
        identity.begun, identity.processes,
    )  # fmt: skip


def variant_of(run: Run) -> tuple[str, str, str]:
    """Return the model, its dtype and its backend, from the program's name and the manifest."""
    program, manifest = _program(run), run.manifest
    if not program:
        return _UNKNOWN, "", ""
    # A run's name may also tell the method and its inputs, after the variant.
    stem = Path(manifest.model).stem if manifest and manifest.model else program
    model, variant = names.variant_of(Path(f"{stem}.pte"))
    backend, _, dtype = variant.rpartition("_") if variant != model else ("", "", "")
    if manifest:
        model = names.with_method(model, manifest.method, manifest.fed)
    if not dtype and manifest and manifest.quantized is not None and manifest.half is not None:
        dtype = "int8" if manifest.quantized else "fp16" if manifest.half else "fp32"
    return model, "int8" if dtype == "q8" else dtype, backend


def _program(run: Run) -> str:
    """The program's name, or that of the .pte file named like the dumps; empty if unknown."""
    if run.model_name:
        return run.model_name
    stems = {dump.stem for dump in run.dumps}
    beside = [stem for stem in stems if is_regular(run.path / f"{stem}.pte")]
    return beside[0] if len(stems) == 1 and beside else ""


def _experiment(run: Run, series: Series) -> MeasuredSeries:
    found = MeasuredSeries.of(run, series)
    if found.untraced is None:
        return found
    return replace(found, interval=median_interval([each.latencies for each in _rounds(run, series)]))


def _rounds(run: Run, series: Series) -> tuple[Round, ...]:
    """From the journal, which knows launches and start times, else from the statistics."""
    entries = run.journal.ended_well("untraced", series) if run.journal else []
    if run.journal and entries:
        latencies = run.journal.latencies_ms(series, run.journal.rounds_of(series))
        return tuple(
            Round(
                series, entry.round, latencies[entry.round], entry.launch or "", entry.session,
                moment_of(entry.started),
            )
            for entry in entries
        )  # fmt: skip
    stats = run.robust_stats(series)
    kept = enumerate(stats.end_to_end_rounds_ms if stats else ())
    return tuple(Round(series, number, latencies) for number, latencies in kept if latencies)


def _kernels(run: Run) -> Iterator[KernelRow]:
    for series in run.series:
        result = run.result(series)
        counted = result is not None and result.counted_kernels
        yield from (KernelRow(series, use, "run", counted) for use in listed_kernels(run, series))
    for kept in run.evidence.kernels if run.evidence else ():
        for call in kept.kernels:
            use = kernel_named(call.name, call.evidence, call.calls)
            yield KernelRow(kept.series, use, "evidence", kept.counted)


def _environment(run: Run) -> Iterator[Row]:
    for part in run.manifest.parts if run.manifest else ():
        for taken, facts in (("before", part.machine.before), ("after", part.machine.after)):
            for name, value in _flat("", facts) if facts else ():
                text = str(value).lower() if isinstance(value, bool) else str(value)
                is_number = isinstance(value, int | float) and not isinstance(value, bool)
                yield taken, name, text, float(value) if is_number else None


def _flat(prefix: str, told: object) -> Iterator[tuple[str, str | int | float | bool]]:
    """Yield each known fact under its dotted name."""
    if dataclasses.is_dataclass(told) and not isinstance(told, type):
        told = {field.name: getattr(told, field.name) for field in dataclasses.fields(told)}
    if isinstance(told, Mapping):
        for name, value in told.items():
            yield from _flat(f"{prefix}.{name}" if prefix else str(name), value)
    elif isinstance(told, tuple) and any(dataclasses.is_dataclass(item) for item in told):
        for at, item in enumerate(told):
            yield from _flat(f"{prefix}.{at}", item)
    elif isinstance(told, tuple):
        yield prefix, " ".join(map(str, told))
    elif isinstance(told, str | int | float | bool):
        yield prefix, told


# Labels, which are not measured: the commit, the branch, tags, a name for the machine.

_LONGEST = 200
_GIT_S = 10.0
_COMMITS = ("GITHUB_SHA", "CI_COMMIT_SHA", "BUILDKITE_COMMIT", "GIT_COMMIT")
_BRANCHES = ("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME", "BUILDKITE_BRANCH", "GIT_BRANCH")
"""Variables of GitHub Actions, GitLab, Buildkite and Jenkins; the first that is set counts."""


@dataclass(frozen=True, slots=True)
class Labels:
    """What whoever adds runs says about them; None means to find out, empty means nothing."""

    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    tags: tuple[str, ...] = ()
    device: str | None = None
    """Names the machine instead of its CPU."""
    sweep: str = ""
    name: str | None = None

    def __post_init__(self) -> None:
        for told in (self.commit, self.branch, self.device, self.sweep, self.name):
            if told is not None and (len(told) > _LONGEST or not told.isprintable()):
                raise InputError(
                    f"{told[:40]!r} is not a valid label", f"give up to {_LONGEST} plain letters"
                )
        for tag in self.tags:
            check_tag(tag)


def check_tag(tag: str) -> str:
    """Return `tag` if it is one word: it is typed on command lines, where `-` before it removes it."""
    if not tag or tag.startswith("-") or len(tag) > _LONGEST or not tag.isprintable() or " " in tag:
        raise InputError(f"{tag[:40]!r} is not a valid tag", "give one word that does not begin with '-'")
    return tag


def with_commit(labels: Labels, folder: Path | None = None) -> Labels:
    """Return `labels` with the commit and branch: as given, else from CI, else from git in `folder`."""
    if labels.commit is not None:
        return replace(labels, branch=labels.branch or "")
    commit, branch = _first_set(_COMMITS), _first_set(_BRANCHES)
    if commit:
        return replace(labels, commit=commit, branch=labels.branch or branch)
    here = folder or Path.cwd()
    found = _git(here, "rev-parse", "HEAD")
    if not found:
        return replace(labels, commit="", branch=labels.branch or "")
    named = labels.branch or _git(here, "rev-parse", "--abbrev-ref", "HEAD")
    dirty = _has_changes(here) if labels.dirty is None else labels.dirty
    return replace(labels, commit=found, branch="" if named == "HEAD" else named, dirty=dirty)


def _first_set(variables: tuple[str, ...]) -> str:
    found = next((value for name in variables if (value := os.environ.get(name, "").strip())), "")
    return found[:_LONGEST] if found.isprintable() else ""


# The folder may be one that somebody sent, with a git configuration that names programs: monitors of files,
# ways to fetch, and filters, of which each has its own name.
_ALONE = {"GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none"}


def _has_changes(folder: Path) -> bool | None:
    """Whether tracked files differ from the commit; None if that would run programs which `folder` names."""
    filters = _ask_git(
        folder, "config", "--show-scope", "--includes", "--name-only", "--get-regexp", "^filter[.]"
    )
    if any(line.startswith(("local", "worktree")) for line in filters.splitlines()):
        return None
    words = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all")
    return bool(_ask_git(folder, *words))


def _git(folder: Path, *words: str) -> str:
    told = _ask_git(folder, *words).strip()[:_LONGEST]
    return told if told.isprintable() else ""


def _ask_git(folder: Path, *words: str) -> str:
    command = ("git", "-c", "core.fsmonitor=", "-C", str(folder), *words)
    try:
        said = process.run(command, timeout=_GIT_S, env=_ALONE)
    except SetupError:
        return ""
    return said.stdout if said.ok else ""
