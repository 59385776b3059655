"""Which dumps an analysis is about, and what the files around each say: experiment, threads, program, record.

A run directory's manifest is believed first; without one, names and neighbouring files are. Nothing here is
needed to read a dump: a bare .etdump from any runner is enough.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.analysis.summary import DumpContext
from model_profiling.errors import InputError
from model_profiling.workflow.manifest_file import Manifest, ResultEntry, read_manifest_file, run_around
from model_profiling.workflow.times import judged, times_of

_THREADS = re.compile(r"_t(\d+)(?:_r\d+)?$")
_ROUND = re.compile(r"_r(\d+)$")
_SME2 = re.compile(r"sme2[_-]?(on|off)", re.IGNORECASE)

Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class WantedPair:
    """Two experiments to compare; threads None means every thread count both have."""

    label: str
    baseline: str
    baseline_threads: int | None
    candidate: str
    candidate_threads: int | None

    def fits(
        self, baseline: str, baseline_threads: int | None, candidate: str, candidate_threads: int | None
    ) -> bool:
        return (
            (baseline, candidate) == (self.baseline, self.candidate)
            and self.baseline_threads in (None, baseline_threads)
            and self.candidate_threads in (None, candidate_threads)
            and (self.baseline_threads is not None or baseline_threads == candidate_threads)
        )


@dataclass(frozen=True, slots=True)
class FoundDumps:
    """The dumps of a folder or a list of files."""

    run_dir: Path
    dumps: tuple[DumpContext, ...]
    wanted_pairs: tuple[WantedPair, ...]
    warnings: tuple[str, ...]


def find_dumps(
    source: Path | Sequence[Path], *, model: Path | None = None, etrecord: Path | None = None
) -> FoundDumps:
    """Find the dumps in a run directory or a bare folder, or take the files given."""
    for given in (model, etrecord):
        if given is not None and not given.is_file():
            raise InputError(f"there is no file {given}", "correct the path")
    if isinstance(source, Path) and source.is_dir():
        return _in_folder(source, model, etrecord)
    paths = [source] if isinstance(source, Path) else list(source)
    if not paths:
        raise InputError("no dump was named", "name a run directory or .etdump files")
    for path in paths:
        if not path.is_file():
            raise InputError(f"there is no {path}", "name a run directory or an .etdump file")
    dumps = tuple(_alone(path, model, etrecord) for path in paths)
    return FoundDumps(paths[0].parent, dumps, (), ())


def _alone(path: Path, model: Path | None, etrecord: Path | None) -> DumpContext:
    """A dump named by itself; if it lies in a run directory, that still says what it is."""
    run_dir = run_around(path)
    manifest = read_manifest_file(run_dir) if run_dir else None
    if run_dir is not None and manifest is not None:
        listed, _ = _listed(run_dir, manifest, model, etrecord)
        for context in listed:
            if context.etdump.resolve() == path.resolve():
                return replace(context, etdump=path)
    bare = _bare(path, path.parent, model, etrecord)
    return replace(bare, timings_are_latency=not judged(path, run_dir, manifest).no_latency)


def _in_folder(folder: Path, model: Path | None, etrecord: Path | None) -> FoundDumps:
    manifest = read_manifest_file(folder)
    listed, warnings = _listed(folder, manifest, model, etrecord) if manifest else ([], [])
    known = {context.etdump.resolve() for context in listed}
    others = [
        path
        for path in sorted(folder.rglob("*.etdump"))
        if path.resolve() not in known
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if listed and others:
        warnings.append(f"{len(others)} dumps are not in manifest.json; they are analysed by their names")
    judgements = [times_of(path) for path in others]
    warnings += dict.fromkeys(
        f"{times.said_by} says that the times are from {times.no_latency}: they are not taken as latencies"
        for times in judgements
        if times.no_latency and manifest is None
    )
    extra = [
        replace(
            _bare(path, folder, model, etrecord),
            timings_are_latency=not times.no_latency,
            warmup_runs=times.result.etdump_warmup_runs if times.result else 0,
        )
        for path, times in zip(others, judgements, strict=True)
    ]
    dumps = (*listed, *extra)
    if not dumps:
        raise InputError(
            f"{folder} holds no .etdump file", "name a folder a pipeline or a runner wrote dumps into"
        )
    return FoundDumps(folder, dumps, _wanted_pairs(manifest) if manifest else (), tuple(warnings))


def _listed(
    folder: Path, manifest: Manifest, model: Path | None, etrecord: Path | None
) -> tuple[list[DumpContext], list[str]]:
    dumps: list[DumpContext] = []
    warnings: list[str] = []
    for result in manifest.results:
        for named in dict.fromkeys(name for name in (result.etdump, *result.etdump_rounds) if name):
            path = _existing(named, folder)
            if path is None:
                warnings.append(f"the dump {named} named in manifest.json is missing")
                continue
            bare = _bare(path, folder, model, etrecord, manifest.model)
            said = result.sme2_left_on
            dumps.append(
                replace(
                    bare,
                    experiment=result.experiment or bare.experiment,
                    threads=result.threads or bare.threads,
                    sme2=said if said is not None else bare.sme2,
                    timings_are_latency=not judged(path, folder, manifest).no_latency,
                    warmup_runs=result.etdump_warmup_runs,
                    features=_features(result, manifest),
                )
            )
    return dumps, warnings


def _bare(
    path: Path, folder: Path, model: Path | None, etrecord: Path | None, named_model: str = ""
) -> DumpContext:
    """What the dump's own name and its neighbours say."""
    stem = path.name.removesuffix(".etdump")
    threads = _THREADS.search(stem)
    number = _ROUND.search(stem)
    home = path.parent.parent if path.parent.name == "rounds" else path.parent
    on_off = _SME2.search(home.name) or _SME2.search(stem)
    program = model or (_existing(named_model, folder) if named_model else None) or _program_near(path, stem)
    return DumpContext(
        etdump=path,
        experiment=home.name if home != folder else stem,
        threads=int(threads[1]) if threads else None,
        sme2=on_off[1].lower() == "on" if on_off else None,
        model=program,
        etrecord=etrecord or _record_of(program),
        round=int(number[1]) if number and path.parent.name == "rounds" else 0,
    )


def _program_near(path: Path, stem: str) -> Path | None:
    """The .pte beside the dump, above it or in the run's artifacts whose name begins the dump's name.

    A folder with one single program may name it anyhow; with several only a name can tell.
    """
    folders = (path.parent, path.parent.parent, *(parent / "artifacts" for parent in list(path.parents)[:4]))
    for folder in folders:
        programs = sorted(folder.glob("*.pte"))
        fitting = [program for program in programs if stem.startswith(program.stem)]
        if fitting:
            return max(fitting, key=lambda program: len(program.stem))
        if len(programs) == 1 and folder == path.parent:
            return programs[0]
    return None


def _record_of(program: Path | None) -> Path | None:
    if program is None:
        return None
    for candidate in (program.with_name(f"{program.name}.etrecord"), program.with_suffix(".etrecord")):
        if candidate.is_file():
            return candidate
    return None


def _existing(named: str, folder: Path) -> Path | None:
    """The file a manifest names: relative to the run directory, to here, or moved along with the run."""
    path = Path(named)
    candidates = [
        folder / path,
        path,
        *(parent / "artifacts" / path.name for parent in list(folder.parents)[:3]),
    ]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    return None


def _wanted_pairs(manifest: Manifest) -> tuple[WantedPair, ...]:
    analysis = manifest.config.get("analysis")
    pairs = []
    for pair in _objects(analysis.get("compare_pairs") if isinstance(analysis, dict) else None):
        sides = pair.get("baseline"), pair.get("candidate")
        if isinstance(sides[0], dict) and isinstance(sides[1], dict):
            names = [_text(side, "experiment") for side in sides if isinstance(side, dict)]
            threads = [_integer(side.get("threads")) for side in sides if isinstance(side, dict)]
            label = _text(pair, "label") or f"{names[0]} vs {names[1]}"
            pairs.append(WantedPair(label, names[0], threads[0], names[1], threads[1]))
    return tuple(pairs)


def _features(result: ResultEntry, manifest: Manifest) -> frozenset[str] | None:
    """The CPU features the run could use: what the CPU has, less what was switched off."""
    off = set(result.disable)
    if not off and result.sme2 is False:
        off = {"sme2", "sme"}
    before = manifest.machine.before
    features = result.features_present or (before.features if before else ())
    return frozenset(features) - off if features else None


def _objects(value: object) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(place: Json, key: str) -> str:
    value = place.get(key)
    return value if isinstance(value, str) else ""


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
