"""Reads a sweep file and checks everything that can be known before anything runs, as `reading` does for
configs: every problem is one line, and relative paths are looked for in the file's folder, then in the
working folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from model_profiling.config.json_text import is_sweep, read_object
from model_profiling.config.problems import Problem, problems_of
from model_profiling.config.reading import found_path
from model_profiling.config.sweep import LADDER, MOST_CELLS, OWN_RUNGS, Exclusion, SweepConfig
from model_profiling.errors import InputError
from model_profiling.models.catalog import file_name_of
from model_profiling.run.names import variant_of
from model_profiling.run.series import switch_in_name
from model_profiling.runner.features import closure
from model_profiling.targets.protocol import place_of
from model_profiling.wording import did_you_mean

_MATCHED = {
    "model": "models",
    "dtype": "dtypes",
    "backend": "backends",
    "threads": "threads",
    "target": "targets",
}


def load_sweep(path: Path, *, files: bool = True) -> SweepConfig:
    """The sweep in `path` with absolute paths; raises InputError on the first problem. `files=False` leaves
    out whether models exist."""
    sweep, problems = read_sweep(path, files=files)
    if sweep is None or problems:
        first = problems[0]
        more = f" (1 of {len(problems)} problems, `sme2prof config check` lists all)" if problems[1:] else ""
        raise InputError(f"{path}: {first.text}{more}", first.fix)
    return sweep


def read_sweep(path: Path, *, files: bool = True) -> tuple[SweepConfig | None, tuple[Problem, ...]]:
    """The sweep in `path`, and everything that is wrong with it."""
    raw = read_object(path, "sme2prof config new --sweep")
    if isinstance(raw, Problem):
        return None, (raw,)
    if not is_sweep(raw) and "experiments" in raw:
        raise InputError(f"{path} is a config of one run, not a sweep", f"use `sme2prof run {path}`")
    return parse_sweep(raw, folder=path.parent, files=files)


def parse_sweep(
    raw: Mapping[str, object], *, folder: Path, files: bool = True
) -> tuple[SweepConfig | None, tuple[Problem, ...]]:
    """A sweep from its JSON object, as if written in a file in `folder`, and what is wrong with it."""
    cleaned = {key: value for key, value in raw.items() if key != "$schema"}
    try:
        written = SweepConfig.model_validate(cleaned)
    except ValidationError as error:
        return None, problems_of(error, cleaned, SweepConfig)
    if problems := tuple(_setting_problems(written)):
        return None, problems
    sweep = _resolved(written, folder.resolve())
    return sweep, tuple(_model_problems(sweep, written)) if files else ()


def _setting_problems(sweep: SweepConfig) -> Iterator[Problem]:
    """Settings that contradict each other, in the order of the file."""
    for field in ("models", "dtypes", "backends", "threads", "targets"):
        yield from _twice(field, getattr(sweep, field))
    yield from _rung_problems(sweep)
    places: dict[str, str] = {}
    for at, target in enumerate(sweep.targets):
        other = places.setdefault(place_of(target).lower(), target)
        if other != target:
            what = f"is {target!r}, whose runs would lie where those of {other!r} do"
            yield Problem(f"targets[{at}]", what, "use two sweeps")
    for at, exclusion in enumerate(sweep.exclude):
        yield from _exclusion_problems(sweep, exclusion, f"exclude[{at}]")
    schedule = sweep.schedule
    if schedule.precision is not None and schedule.min_rounds > schedule.most_rounds:
        what = f"is {schedule.min_rounds}, more than rounds"
        yield Problem("schedule.min_rounds", what, "raise rounds or lower min_rounds")
    if sweep.store is not None and "://" in sweep.store:
        yield Problem("store", f"is {sweep.store!r}, which is no folder", "runs are added to a folder only")
    count = len(sweep.models) * len(sweep.dtypes) * len(sweep.backends)
    count *= len(sweep.threads) * len(sweep.rungs) * len(sweep.targets)
    if count > MOST_CELLS:
        yield Problem("", f"the sweep has {count} cells", f"use at most {MOST_CELLS}, or several sweeps")


def _twice(field: str, values: Sequence[object]) -> Iterator[Problem]:
    repeated = next((value for value in values if values.count(value) > 1), None)
    if repeated is not None:
        yield Problem(field, f"lists {repeated} twice", "list it once")


def _rung_problems(sweep: SweepConfig) -> Iterator[Problem]:
    names = [rung.name for rung in sweep.rungs]
    yield from _twice("rungs", [name.lower() for name in names])
    if LADDER in names and len(names) > 1:
        fix = 'keep "ladder" alone, which holds everything on and SME2 off, or leave it out'
        yield Problem("rungs", "lists other rungs beside the ladder", fix)
    for at, rung in enumerate(sweep.rungs):
        redefined = rung.is_own and rung.disable != OWN_RUNGS[rung.name]
        if redefined or rung.name.lower() in ("sme2_on", "sme2_off"):
            what = f"is {rung.name!r}, which the kit itself gives"
            yield Problem(f"rungs[{at}].name", what, "choose another name")
        elif not rung.is_own:
            said = switch_in_name(f"_{rung.name}")
            off = bool({"sme2", "sme"} & set(closure(rung.disable)))
            if said is not None and (said == "off") != off:
                what = f"is {rung.name!r}, but it switches SME2 {'off' if off else 'not off'}"
                yield Problem(f"rungs[{at}].name", what, "choose a name that says what it does")


def _exclusion_problems(sweep: SweepConfig, exclusion: Exclusion, where: str) -> Iterator[Problem]:
    """A value that the sweep does not have is a slip: what was to be left out would be measured."""
    for name, wanted in exclusion.matched.items():
        if name == "rung":
            listed: list[object] = [rung.name for rung in sweep.rungs]
        else:
            listed = list(getattr(sweep, _MATCHED[name]))
            if name in ("dtype", "backend"):
                listed += _of_programs(sweep, name)
        for value in wanted:
            if value not in listed:
                hint = did_you_mean(value, map(str, listed)) if isinstance(value, str) else ""
                fix = hint or f"write one of {', '.join(map(str, listed))}"
                yield Problem(f"{where}.{name}", f"is {value!r}, which the sweep does not have", fix)


def _of_programs(sweep: SweepConfig, name: str) -> list[str]:
    """The dtypes or backends that the names of exported programs tell."""
    variants = [variant_of(Path(model)) for model in sweep.models if model.endswith(".pte")]
    return [
        variant.partition("_")[2 if name == "dtype" else 0] for stem, variant in variants if stem != variant
    ]


def _model_problems(sweep: SweepConfig, written: SweepConfig) -> Iterator[Problem]:
    """Models that are not there, and those whose files would have one name."""
    taken: dict[str, str] = {}
    for at, (model, as_written) in enumerate(zip(sweep.models, written.models, strict=True)):
        where = f"models[{at}]"
        try:
            if model.endswith(".pte"):
                if not Path(model).is_file():
                    raise InputError(f"there is no program {as_written}", "correct the path")
                names = [Path(model).stem]
            else:
                name = file_name_of(model)
                names = [f"{name}_{backend}_{dtype}" for backend in sweep.backends for dtype in sweep.dtypes]
        except InputError as problem:
            yield Problem(where, f"is {as_written!r}: {problem.problem}", problem.fix)
            continue
        for name in names:
            other = taken.setdefault(name.lower(), as_written)
            if other != as_written:
                what = f"is {as_written!r}, whose files would be called like those of {other!r}"
                yield Problem(where, what, "rename one of them, or use two sweeps")
                break


def _resolved(sweep: SweepConfig, folder: Path) -> SweepConfig:
    """`sweep` with absolute paths; exclusions name models as they are called then."""
    models = {model: _resolved_model(model, folder) for model in sweep.models}
    exclude = tuple(
        each.model_copy(update={"model": tuple(models[model] for model in each.model)})
        if each.model
        else each
        for each in sweep.exclude
    )
    store = str(folder / Path(sweep.store).expanduser()) if sweep.store else None
    return sweep.model_copy(update={"models": tuple(models.values()), "exclude": exclude, "store": store})


def _resolved_model(model: str, folder: Path) -> str:
    if model.endswith(".pte"):
        return str(found_path(Path(model).expanduser(), folder))
    place, colon, factory = model.rpartition(":")
    if colon and place.endswith(".py"):
        return f"{found_path(Path(place).expanduser(), folder)}:{factory}"
    return model
