"""The settings in a sweep file: which values are combined, what is excluded, and how it is measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from model_profiling.config.problems import Problem, is_sweep, problems_of, read_object, require
from model_profiling.config.reading import found_path, schedule_problems
from model_profiling.config.settings import ChosenInputs, Inputs, Schedule, Settings
from model_profiling.config.values import (
    LONGEST_PATH,
    MOST_ENTRIES,
    Counted,
    Feature,
    Name,
    Text,
    ThreadCounts,
    Whole,
    each_once,
    refuse,
    shown,
    usable,
)
from model_profiling.core.errors import InputError
from model_profiling.core.formatting import did_you_mean
from model_profiling.core.number_formats import format_of_name, parse_format
from model_profiling.models.catalog import file_name_of
from model_profiling.run.names import variant_of, with_method
from model_profiling.run.series import switch_in_name
from model_profiling.runner.features import closure
from model_profiling.runner.machine import PowerMode, TargetChoice, parse_target, place_of

MOST_CELLS = 10_000
"""Weeks of measuring, and more rows than anyone reads."""

ON, OFF, LADDER = "on", "off", "ladder"
OWN_RUNGS = {ON: (), OFF: ("sme2",), LADDER: ()}
"""The predefined rungs and what each switches off; what a ladder switches off depends on the CPU."""


def _known_format(text: str) -> str:
    try:
        return parse_format(text).text
    except InputError as problem:
        raise refuse(f"is {text!r}: {problem.problem}", problem.fix) from problem


Dtype = Annotated[str, AfterValidator(_known_format)]
Backend = Literal["xnnpack", "portable"]
HOSTS_MARK = "@"
"""Separates `host` from the name of one of several machines: `host@lab-3`."""


def machine_of(target: str) -> str | None:
    """The machine that `host@MACHINE` names; None if any machine will do."""
    kind, mark, machine = target.partition(HOSTS_MARK)
    return machine if mark and kind == "host" else None


def choice_of(target: str, power_mode: PowerMode = "leave") -> TargetChoice:
    """The target to open, seen from the machine that reaches it."""
    chosen = parse_target("host" if machine_of(target) else target)
    if chosen.kind != "android":
        return chosen
    return TargetChoice(chosen.kind, chosen.serial, chosen.remote, power_mode=power_mode)


def _as_target(text: str) -> str:
    kinds = 'choose from "host", "host@MACHINE", "emulated", "android:SERIAL", "ssh:HOST"'
    try:
        chosen = choice_of(text)
    except InputError as problem:
        raise refuse(f"is {shown(text)}", kinds) from problem
    if chosen.kind == "auto" or text.endswith(HOSTS_MARK):
        raise refuse(f"is {shown(text)}, which does not say where", kinds)
    if chosen.kind == "android" and not (chosen.serial or chosen.remote):
        raise refuse(
            'is "android", which does not say which phone',
            'name it: "android:SERIAL", as `adb devices` lists it',
        )
    if chosen.kind == "ssh" and not chosen.host:
        raise refuse('is "ssh" without a machine', 'write "ssh:HOST"')
    return text


def _as_rung(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value not in OWN_RUNGS:
        hint = did_you_mean(value, OWN_RUNGS)
        fix = 'choose from "on", "off", "ladder", or write {"name": ..., "disable": [...]}'
        raise refuse(f"is {shown(value)}", fix + (f"; {hint}" if hint else ""))
    return _own_rung(value)


def _own_rung(name: str) -> Rung:
    # Not validated: only a rung that people define must disable something.
    return Rung.model_construct(name=name, disable=OWN_RUNGS[name])


class Rung(Settings):
    """A set of CPU features that is switched off, under a name of your own."""

    name: Name = Field(examples=["no_i8mm"])
    """Names the experiment: letters, digits, '.', '_' and '-'."""
    disable: tuple[Feature, ...] = Field(min_length=1, max_length=MOST_ENTRIES, examples=[["i8mm"]])
    """CPU features to switch off; what depends on one goes with it."""

    @property
    def is_own(self) -> bool:
        """Whether it is predefined: `on`, `off` or `ladder`."""
        return self.name in OWN_RUNGS

    @model_serializer
    def _as_written(self) -> object:
        return self.name if self.is_own else {"name": self.name, "disable": list(self.disable)}


class SweepCase(ChosenInputs):
    """A method of a program and inputs that it is given; what is left out is as usual."""

    method: Text | None = Field(default=None, min_length=1, max_length=200, examples=["decode"])
    """The method; may be left out if the program has only one."""

    @property
    def name(self) -> str:
        """`decode_input_pos_256`, in the names of files; empty if everything is as usual."""
        return with_method("", self.method, self.file_words).removeprefix("_")

    @property
    def inputs(self) -> Inputs:
        return Inputs(sizes=self.sizes, values=self.values)


USUAL = SweepCase()
Word = Annotated[str, Field(strict=True, min_length=1, max_length=LONGEST_PATH), AfterValidator(usable)]
Target = Annotated[Word, AfterValidator(_as_target)]
_WORDS = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
Words = Annotated[
    tuple[Word, ...],
    Field(min_length=1, max_length=MOST_ENTRIES),
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    WithJsonSchema(_WORDS),
]
_Each = TypeVar("_Each")
Several = Annotated[
    tuple[_Each, ...], Field(min_length=1, max_length=MOST_ENTRIES), AfterValidator(each_once)
]


ByModel = Annotated[dict[Word, _Each], Field(max_length=MOST_ENTRIES)]


class Exclusion(Settings):
    """Cells that are left out: those that match everything said here. Each may be a value or a list."""

    model: Words | None = Field(default=None, examples=["unet"])
    """Models, as the sweep writes them."""
    dtype: Words | None = Field(default=None, examples=["int8"])
    """Number formats."""
    case: Words | None = Field(default=None, examples=["decode_input_pos_256"])
    """Cases, by the names that `--dry-run` shows after the program's."""
    backend: Words | None = Field(default=None, examples=["portable"])
    """Backends."""
    threads: ThreadCounts | None = Field(default=None, examples=[4])
    """Thread counts."""
    rung: Words | None = Field(default=None, examples=["ladder"])
    """Rungs, by name."""
    target: Words | None = Field(default=None, examples=["emulated"])
    """Targets, as the sweep writes them."""
    why: Text = Field(default="", max_length=1000, examples=["takes an hour under emulation"])
    """The reason, which the report repeats."""

    @model_validator(mode="after")
    def _says_something(self) -> Exclusion:
        if not self.matched:
            raise refuse(
                "matches every cell", "say which: model, case, dtype, backend, threads, rung or target"
            )
        return self

    @property
    def matched(self) -> dict[str, tuple[object, ...]]:
        """The given values, by field name."""
        fields = ("model", "case", "dtype", "backend", "threads", "rung", "target")
        return {name: value for name in fields if (value := getattr(self, name)) is not None}


class SweepConfig(Settings):
    """Many cells: every case of every model in every dtype for every backend, with every thread count and
    rung, on every target, but for what is excluded."""

    schema_version: Literal[1] = 1
    """Version of this format."""
    name: Name = Field(examples=["nightly"])
    """Names the sweep's folder (sweep_NAME) and stands in the store with each of its runs."""
    models: Several[Word] = Field(examples=[["toy_cnn", "my_model.py:make", "exported.pte"]])
    """Models as `sme2prof profile` takes them: a name (with options: name@size=512), file.py:factory, or an
    exported program, which has its dtype and backend already."""
    dtypes: Annotated[tuple[Dtype, ...], AfterValidator(each_once)] = Field(
        default=("fp32",), min_length=1, examples=[["fp32", "int8"]]
    )
    """What to export models as: number formats, or file.py:quantizer."""
    backends: Annotated[tuple[Backend, ...], AfterValidator(each_once)] = Field(
        default=("xnnpack",), min_length=1
    )
    """What to export them for."""
    keep: ByModel[Several[Word]] = Field(default_factory=dict, examples=[{"toy_cnn": ["features.0"]}])
    """By model, as the sweep writes it: layers that stay in fp32."""
    calibrate: ByModel[Word] = Field(
        default_factory=dict, examples=[{"toy_cnn": "data.py:inputs", "my_model.py:make": "inputs.npz"}]
    )
    """By model, as the sweep writes it: real inputs, as `--calibrate` takes them."""
    cases: ByModel[Annotated[tuple[SweepCase, ...], Field(min_length=1, max_length=MOST_ENTRIES)]] = Field(
        default_factory=dict,
        examples=[
            {"tiny_llama": [{"method": "prefill"}, {"method": "decode", "values": {"input_pos": [64]}}]}
        ],
    )
    """By model, as the sweep writes it: its methods with sizes and values of inputs, each a run of its own;
    left out, the only method with the usual inputs."""
    threads: ThreadCounts = Field(default=(1,), examples=[[1, 4]])
    """Thread counts."""
    rungs: tuple[Annotated[Rung, BeforeValidator(_as_rung)], ...] = Field(
        default_factory=lambda: (_own_rung(ON), _own_rung(OFF)),
        min_length=1,
        max_length=MOST_ENTRIES,
        examples=[["on", "off"], ["ladder"], ["on", {"name": "no_i8mm", "disable": ["i8mm"]}]],
        description='What of the CPU may be used: "on" (everything), "off" (no SME2), "ladder" (features '
        'taken away one by one, as the CPU has them), or a set of your own. Each is compared with "on".',
    )
    targets: Several[Target] = Field(
        default=("host",),
        examples=[["host", "android:R5CT1234ABC", "ssh:board"]],
        description='Where: "host" (the machine that measures; "host@MACHINE" where several workers offer '
        'theirs), "emulated" (QEMU: kernels, no latency), "android:SERIAL", "ssh:HOST".',
    )
    exclude: tuple[Exclusion, ...] = Field(default=(), max_length=MOST_ENTRIES)
    """Cells that are left out."""
    runs: Counted = 10
    """Timed inferences in each process; in lockstep how many turns each program has with the tracer on."""
    warmup: Whole = 3
    """Untimed inferences at the start of each process."""
    schedule: Schedule = Field(default_factory=Schedule)
    """How often and how patiently each program is measured, as in a config."""
    power_mode: PowerMode = "leave"
    """What to set on phones while measuring, as in a config's target."""
    store: Word | None = Field(default=None, examples=["sme2prof.db"])
    """Folder of the store that finished runs are added to; left out, the usual one."""
    notes: Text = Field(default="", max_length=100_000)
    """Free text, kept with the results."""

    def program_name(self, model: str, dtype: str, backend: str) -> str:
        """The name of an export's file, without its ending."""
        return f"{file_name_of(model)}_{backend}_{parse_format(dtype).word(kept=model in self.keep)}"

    def cases_of(self, model: str) -> tuple[SweepCase, ...]:
        return self.cases.get(model, (USUAL,))

    def rung(self, name: str) -> Rung:
        return next(rung for rung in self.rungs if rung.name == name)


def load_sweep(path: Path, *, files: bool = True) -> SweepConfig:
    """Load a sweep with absolute paths; raise InputError on the first problem, of models only if `files`."""
    raw = read_object(path, "sme2prof config new --sweep")
    if isinstance(raw, Problem):
        return require(None, (raw,), path)
    if not is_sweep(raw) and "experiments" in raw:
        raise InputError(f"{path} is a config of one run, not a sweep", f"use `sme2prof run {path}`")
    return require(*parse_sweep(raw, folder=path.parent, files=files), path)


def parse_sweep(
    raw: Mapping[str, object], *, folder: Path, files: bool = True
) -> tuple[SweepConfig | None, tuple[Problem, ...]]:
    """Parse a sweep's JSON object, as if from a file in `folder`; return it and its problems."""
    cleaned = {key: value for key, value in raw.items() if key != "$schema"}
    try:
        written = SweepConfig.model_validate(cleaned)
    except ValidationError as error:
        return None, problems_of(error, SweepConfig)
    if problems := tuple(_setting_problems(written)):
        return None, problems
    sweep = _resolved(written, folder.resolve())
    return sweep, tuple(_model_problems(sweep, written)) if files else ()


def _setting_problems(sweep: SweepConfig) -> Iterator[Problem]:
    yield from _rung_problems(sweep)
    places: dict[str, str] = {}
    for at, target in enumerate(sweep.targets):
        other = places.setdefault(place_of(target).lower(), target)
        if other != target:
            what = f"is {target!r}, whose runs would go into the folder of {other!r}"
            yield Problem(f"targets[{at}]", what, "use two sweeps")
    for setting in ("keep", "calibrate"):
        for model in getattr(sweep, setting):
            if model not in sweep.models or model.endswith(".pte"):
                fix = "name a model of the sweep as it is written there; a .pte is exported already"
                yield Problem(setting, f"names {model!r}, which the sweep does not export", fix)
    for model, cases in sweep.cases.items():
        if model not in sweep.models:
            fix = "name a model of the sweep as it is written there"
            yield Problem("cases", f"names {model!r}, which is not in the sweep", fix)
        names = [case.name for case in cases]
        if repeated := [name for name in names if names.count(name) > 1]:
            yield Problem(
                "cases", f"lists {repeated[0] or 'the usual case'} of {model} twice", "list it once"
            )
    for at, exclusion in enumerate(sweep.exclude):
        yield from _exclusion_problems(sweep, exclusion, f"exclude[{at}]")
    yield from schedule_problems(sweep.schedule)
    if sweep.store is not None and "://" in sweep.store:
        yield Problem("store", f"is {sweep.store!r}, which is not a file", "name a file")
    programs = [case for model in sweep.models for case in sweep.cases_of(model)]
    dimensions = (programs, sweep.dtypes, sweep.backends, sweep.threads, sweep.rungs, sweep.targets)
    count = math.prod(map(len, dimensions))
    if count > MOST_CELLS:
        yield Problem("", f"the sweep has {count} cells", f"use at most {MOST_CELLS}, or several sweeps")


def _rung_problems(sweep: SweepConfig) -> Iterator[Problem]:
    names = [rung.name.lower() for rung in sweep.rungs]
    if repeated := [name for name in names if names.count(name) > 1]:
        yield Problem("rungs", f"lists {repeated[0]} twice", "list it once")
    if LADDER in names and len(names) > 1:
        fix = 'keep "ladder" alone (it includes "on" and "off"), or remove it'
        yield Problem("rungs", "lists other rungs beside the ladder", fix)
    for at, rung in enumerate(sweep.rungs):
        redefined = rung.is_own and rung.disable != OWN_RUNGS[rung.name]
        if redefined or rung.name.lower() in ("sme2_on", "sme2_off"):
            what = f"is {rung.name!r}, a name that the kit uses itself"
            yield Problem(f"rungs[{at}].name", what, "choose another name")
        elif not rung.is_own:
            said = switch_in_name(f"_{rung.name}")
            off = bool({"sme2", "sme"} & set(closure(rung.disable)))
            if said is not None and (said == "off") != off:
                what = f"is {rung.name!r}, but it {'switches SME2 off' if off else 'leaves SME2 on'}"
                yield Problem(f"rungs[{at}].name", what, "choose a name that says what it does")


def _exclusion_problems(sweep: SweepConfig, exclusion: Exclusion, where: str) -> Iterator[Problem]:
    """A value that the sweep does not have is a typo: the cells to exclude would be measured."""
    for name, wanted in exclusion.matched.items():
        if name == "rung":
            listed: list[object] = [rung.name for rung in sweep.rungs]
        elif name == "case":
            listed = [case.name for model in sweep.models for case in sweep.cases_of(model) if case.name]
        else:
            listed = list(getattr(sweep, name if name == "threads" else f"{name}s"))
            if name in ("dtype", "backend"):
                listed += _of_programs(sweep, name)
        for value in wanted:
            if value not in listed:
                hint = did_you_mean(value, map(str, listed)) if isinstance(value, str) else ""
                fix = hint or (f"write one of {', '.join(map(str, listed))}" if listed else "leave it out")
                yield Problem(f"{where}.{name}", f"is {value!r}, which is not in the sweep", fix)


def _of_programs(sweep: SweepConfig, name: str) -> list[str]:
    """The dtypes or backends in the names of exported programs."""
    variants = [variant_of(Path(model)) for model in sweep.models if model.endswith(".pte")]
    known = [variant for stem, variant in variants if stem != variant]
    return [format_of_name(f"_{each}") if name == "dtype" else each.partition("_")[0] for each in known]


def _model_problems(sweep: SweepConfig, written: SweepConfig) -> Iterator[Problem]:
    """Models that do not exist, and models whose files would have the same name."""
    taken: dict[str, str] = {}
    for at, (model, as_written) in enumerate(zip(sweep.models, written.models, strict=True)):
        where = f"models[{at}]"
        try:
            if model.endswith(".pte"):
                if not Path(model).is_file():
                    raise InputError(f"there is no program {as_written}", "correct the path")
                names = [Path(model).stem]
            else:
                names = [
                    sweep.program_name(model, dtype, backend)
                    for backend in sweep.backends
                    for dtype in sweep.dtypes
                ]
        except InputError as problem:
            yield Problem(where, f"is {as_written!r}: {problem.problem}", problem.fix)
            continue
        for name in (with_method(stem, None, case.name) for stem in names for case in sweep.cases_of(model)):
            other = taken.setdefault(name.lower(), as_written)
            if other != as_written:
                what = f"is {as_written!r}, whose files would have the names of those of {other!r}"
                yield Problem(where, what, "rename one of them, or use two sweeps")
                break
        if len(set(names)) < len(names):
            what = f"lists formats whose files would have one name, such as {max(names, key=names.count)}"
            yield Problem("dtypes", what, "rename one of the quantizers, or use two sweeps")
            return


def _resolved(sweep: SweepConfig, folder: Path) -> SweepConfig:
    """`sweep` with absolute paths, in its exclusions too."""
    models = {model: _resolved_file(model, folder) for model in sweep.models}
    dtypes = {dtype: _resolved_file(dtype, folder) for dtype in sweep.dtypes}
    exclude = tuple(
        each.model_copy(
            update={
                "model": each.model and tuple(models[model] for model in each.model),
                "dtype": each.dtype and tuple(dtypes.get(dtype, dtype) for dtype in each.dtype),
            }
        )
        for each in sweep.exclude
    )
    return sweep.model_copy(
        update={
            "models": tuple(models.values()),
            "dtypes": tuple(dtypes.values()),
            "keep": {models[model]: layers for model, layers in sweep.keep.items()},
            "calibrate": {
                models[model]: _resolved_file(source, folder) for model, source in sweep.calibrate.items()
            },
            "cases": {models[model]: cases for model, cases in sweep.cases.items()},
            "exclude": exclude,
            "store": str(folder / Path(sweep.store).expanduser()) if sweep.store else None,
        }
    )


def _resolved_file(model: str, folder: Path) -> str:
    """A file, or file.py:function, with its whole path; other words as they are."""
    if model.endswith((".pte", ".npz")):
        return str(found_path(Path(model).expanduser(), folder))
    place, colon, factory = model.rpartition(":")
    if colon and place.endswith(".py"):
        return f"{found_path(Path(place).expanduser(), folder)}:{factory}"
    return model
