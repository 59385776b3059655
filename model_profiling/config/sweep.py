"""The settings in a sweep file: which values are combined, and how the cells are measured."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, ValidationInfo

from model_profiling.config.names import with_method
from model_profiling.config.reading import (
    ConfigError,
    Problem,
    found_path,
    is_sweep,
    problems_of,
    read_object,
)
from model_profiling.config.series import switch_in_name
from model_profiling.config.settings import (
    MOST_ENTRIES,
    ChosenInputs,
    Counted,
    Feature,
    Inputs,
    Name,
    Schedule,
    Settings,
    Text,
    ThreadCounts,
    Whole,
    each_once,
    refuse,
    shown,
    usable,
)
from model_profiling.core.errors import InputError
from model_profiling.core.files import LONGEST_PATH
from model_profiling.core.number_formats import parse_format
from model_profiling.export.rewrites import choice_file
from model_profiling.models.catalog import file_name_of
from model_profiling.runner.machine import PowerMode, parse_target, place_of

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


def _resolved(word: str, info: ValidationInfo) -> str:
    """A file, or file.py:function, with its whole path; other words as they are."""
    folder, (place, colon, factory) = info.context, word.rpartition(":")
    if folder is not None and word.endswith((".pte", ".npz")):
        return str(found_path(Path(word).expanduser(), folder))
    if folder is not None and colon and place.endswith(".py"):
        return f"{found_path(Path(place).expanduser(), folder)}:{factory}"
    return word


Dtype = Annotated[str, AfterValidator(_known_format), AfterValidator(_resolved)]
Backend = Literal["xnnpack", "portable"]


DEVICES = 'choose from "host", "emulated", "android:SERIAL", "ssh:HOST"'


def is_device(target: str) -> bool:
    """Whether it says which device: `auto` does not, nor do `android` and `ssh` alone."""
    try:
        choice = parse_target(target)
    except InputError:
        return False
    return choice.name in ("host", "emulated") or choice.has_address


def _as_choice(word: str, info: ValidationInfo) -> str:
    return word if info.context is None else str(found_path(Path(word).expanduser(), info.context))


def _as_target(text: str) -> str:
    if not is_device(text):
        raise refuse(f"is {shown(text)}", DEVICES)
    return text


def _as_rung(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value not in OWN_RUNGS:
        fix = 'choose from "on", "off", "ladder", or write {"name": ..., "disable": [...]}'
        raise refuse(f"is {shown(value)}", fix)
    return _own_rung(value)


def _own_rung(name: str) -> SweepRung:
    # Not validated: only a rung that people define must disable something.
    return SweepRung.model_construct(name=name, disable=OWN_RUNGS[name])


class SweepRung(Settings):
    """A set of CPU features that is switched off, under a name of your own."""

    name: Name = Field(examples=["no_i8mm"])
    """Names the experiment: letters, digits, '.', '_' and '-'."""
    disable: tuple[Feature, ...] = Field(min_length=1, max_length=MOST_ENTRIES, examples=[["i8mm"]])
    """CPU features to switch off; what depends on one goes with it."""


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
File = Annotated[Word, AfterValidator(_resolved)]
Choice = Annotated[Word, AfterValidator(_as_choice)]
Target = Annotated[Word, AfterValidator(_as_target)]
_Item = TypeVar("_Item")
Several = Annotated[
    tuple[_Item, ...], Field(min_length=1, max_length=MOST_ENTRIES), AfterValidator(each_once)
]


ByModel = Annotated[dict[File, _Item], Field(max_length=MOST_ENTRIES)]


class SweepConfig(Settings):
    """Many cells: every case of every model in every dtype for every backend, with every thread count and
    rung, on every target."""

    schema_version: Literal[1] = 1
    """Version of this format."""
    name: Name = Field(examples=["nightly"])
    """Names the sweep's folder (sweep_NAME) and stands in the store with each of its runs."""
    models: Several[File] = Field(examples=[["toy_cnn", "my_model.py:make", "exported.pte"]])
    """Models as `sme2prof profile` takes them: a name (with options: name@size=512), file.py:factory, or an
    exported program, which has its dtype and backend already."""
    dtypes: Several[Dtype] = Field(default=("fp32",), examples=[["fp32", "int8"]])
    """What to export models as: number formats, or file.py:quantizer."""
    backends: Several[Backend] = ("xnnpack",)
    """What to export them for."""
    keep: ByModel[Several[Word]] = Field(default_factory=dict, examples=[{"toy_cnn": ["features.0"]}])
    """By model, as the sweep writes it: layers that stay in fp32."""
    calibrate: ByModel[File] = Field(
        default_factory=dict, examples=[{"toy_cnn": "data.py:inputs", "my_model.py:make": "inputs.npz"}]
    )
    """By model, as the sweep writes it: real inputs, as `--calibrate` takes them."""
    optimize: ByModel[Literal[True] | Choice] = Field(
        default_factory=dict, examples=[{"toy_cnn": True, "my_model.py:make": "optimization.json"}]
    )
    """By model, as the sweep writes it: rewrite its graph, by structure (true) or as the file says that
    `sme2prof optimize` wrote."""
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
    rungs: tuple[Annotated[SweepRung, BeforeValidator(_as_rung)], ...] = Field(
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
        description='Where: "host" (the machine that measures), "emulated" (QEMU: kernels, no latency), '
        '"android:SERIAL", "ssh:HOST".',
    )
    runs: Counted = 10
    """Timed inferences in each process; in lockstep how many turns each program has with the tracer on."""
    warmup: Whole = 3
    """Untimed inferences at the start of each process."""
    schedule: Schedule = Field(default_factory=Schedule)
    """How often and how patiently each program is measured, as in a config."""
    power_mode: PowerMode = "leave"
    """What to set on phones while measuring, as in a config's target."""
    store: Word | None = Field(default=None, examples=["runs.db"])
    """The store that finished runs are added to, as `--store` takes it; left out, the usual one."""
    notes: Text = Field(default="", max_length=100_000)
    """Free text, kept with the results."""

    def program_name(self, model: str, dtype: str, backend: str) -> str:
        """The name of an export's file, without its ending."""
        word = parse_format(dtype).word(kept=model in self.keep, optimized=model in self.optimize)
        return f"{file_name_of(model)}_{backend}_{word}"

    def cases_of(self, model: str) -> tuple[SweepCase, ...]:
        return self.cases.get(model, (USUAL,))


def load_sweep(path: Path) -> SweepConfig:
    """Load a sweep with absolute paths, or raise InputError."""
    raw = read_object(path, "write one: docs/how-to/sweeps.md has an example")
    if not is_sweep(raw) and "experiments" in raw:
        raise InputError(f"{path} is a config of one run, not a sweep", f"use `sme2prof run {path}`")
    return parse_sweep(raw, folder=path.parent, path=path)


def parse_sweep(raw: Mapping[str, object], *, folder: Path, path: Path | None = None) -> SweepConfig:
    """Parse a sweep's JSON object as if from a file in `folder`; errors name `path`."""
    cleaned = {key: value for key, value in raw.items() if key != "$schema"}
    try:
        sweep = SweepConfig.model_validate(cleaned, context=folder.resolve())
    except ValidationError as error:
        raise ConfigError(problems_of(error, SweepConfig), path) from error
    if problems := tuple(_setting_problems(sweep)) or tuple(_model_problems(sweep)):
        raise ConfigError(problems, path)
    if sweep.store is not None and "://" not in sweep.store:
        sweep = sweep.model_copy(update={"store": str(folder.resolve() / Path(sweep.store).expanduser())})
    return sweep


def _setting_problems(sweep: SweepConfig) -> Iterator[Problem]:
    yield from _rung_problems(sweep)
    yield from _same_names("targets", map(place_of, sweep.targets))
    for setting in ("keep", "calibrate", "optimize", "cases"):
        for model in getattr(sweep, setting):
            if model not in sweep.models or (setting != "cases" and model.endswith(".pte")):
                fix = "name a model of the sweep as it is written there; a .pte is exported already"
                yield Problem(setting, f"names {model!r}, which the sweep does not have to export", fix)
    programs = [case for model in sweep.models for case in sweep.cases_of(model)]
    dimensions = (programs, sweep.dtypes, sweep.backends, sweep.threads, sweep.rungs, sweep.targets)
    count = math.prod(map(len, dimensions))
    if count > MOST_CELLS:
        yield Problem("", f"the sweep has {count} cells", f"use at most {MOST_CELLS}, or several sweeps")


def _same_names(setting: str, names: Iterable[str]) -> Iterator[Problem]:
    """Files and folders are named after values; some systems ignore the case of letters."""
    for name, count in Counter(map(str.lower, names)).items():
        if count > 1:
            yield Problem(setting, f"would write {name} twice", "list it once, rename one, or use two sweeps")


def _rung_problems(sweep: SweepConfig) -> Iterator[Problem]:
    names = [rung.name for rung in sweep.rungs]
    yield from _same_names("rungs", names)
    if LADDER in names and len(names) > 1:
        fix = 'keep "ladder" alone (it includes "on" and "off"), or remove it'
        yield Problem("rungs", "lists other rungs beside the ladder", fix)
    for at, rung in enumerate(sweep.rungs):
        own = OWN_RUNGS.get(rung.name)
        if rung.disable != own if own is not None else switch_in_name(f"_{rung.name}"):
            what = f"is {rung.name!r}, a name that says SME2 is on or off"
            yield Problem(f"rungs[{at}].name", what, 'use "on" and "off" for that, and another name here')


def _model_problems(sweep: SweepConfig) -> Iterator[Problem]:
    """Models that do not exist, and runs that would have the same name."""
    for model, choice in sweep.optimize.items():
        try:
            _ = choice is True or choice_file(choice)
        except InputError as problem:
            yield Problem(f"optimize.{model}", problem.problem, problem.fix)
    names: list[str] = []
    for at, model in enumerate(sweep.models):
        try:
            if not model.endswith(".pte"):
                stems = [sweep.program_name(model, *pair) for pair in product(sweep.dtypes, sweep.backends)]
            elif Path(model).is_file():
                stems = [Path(model).stem]
            else:
                raise InputError("there is no such program", "correct the path")
            names += [with_method(stem, None, case.name) for stem in stems for case in sweep.cases_of(model)]
        except InputError as problem:
            yield Problem(f"models[{at}]", f"is {model!r}: {problem.problem}", problem.fix)
    yield from _same_names("models", names)
