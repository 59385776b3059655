"""The settings in a config file: one strict model per JSON object, each field with its meaning. `reading` has
the checks that need other settings or the file system; `problems` words the errors."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    PrivateAttr,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from model_profiling.config.names import OWN_FOLDERS, fed_in_words
from model_profiling.config.series import (
    Diagnostic,
    Pair,
    Series,
    Switch,
    make_pair,
    natural_pairs,
    switch_in_name,
)
from model_profiling.core.errors import InputError
from model_profiling.core.files import LONGEST_NAME, LONGEST_PATH, as_path
from model_profiling.core.formatting import printable, with_threads
from model_profiling.runner.features import closure
from model_profiling.runner.machine import TargetChoice

# Types of single values, each with its own error wording.

MOST = 1_000_000
MOST_ENTRIES = 256
_MOST_CPUS = 1024


def refuse(problem: str, fix: str) -> PydanticCustomError:
    """A validation error with its own wording; braces in its values are not placeholders. Half characters,
    which pydantic does not accept, are made visible."""
    return PydanticCustomError("kit", "{problem}", {"problem": printable(problem), "fix": printable(fix)})


def _as_path(value: object) -> object:
    if not isinstance(value, str):
        return value
    # Not `Path.expanduser`, which fails for unknown users.
    return Path(os.path.expanduser(usable(value)))  # noqa: PTH111


def usable(path: str) -> str:
    try:
        as_path(path.strip() and path)
    except InputError as problem:
        limits = f"at most {LONGEST_PATH} bytes, {LONGEST_NAME} in each name"
        raise refuse(
            f"is {shown(path)}, which is empty or not a path", f"write a path of {limits}"
        ) from problem
    return path


def is_program(path: Path) -> Path:
    if path.suffix != ".pte":
        fix = "export it first (sme2prof export) and name the .pte file"
        raise refuse(f"is {str(path)!r}, not a .pte program", fix)
    return path


def own_name(name: str) -> str:
    if name.lower() in OWN_FOLDERS:
        raise refuse(f"is {name!r}, a name that the kit uses for a folder of its own", "choose another name")
    return name


_Entries = TypeVar("_Entries", bound=tuple[object, ...])


def each_once(entries: _Entries) -> _Entries:
    """Refuse a list with duplicates."""
    repeated = next((entry for entry in entries if entries.count(entry) > 1), None)
    if repeated is not None:
        raise refuse(f"lists {repeated} twice", "list it once")
    return entries


# Flags that the kit itself passes to the runner, or that the earlier kit's script took: a second value would
# silently win or lose.
_OWN_FLAGS = (
    "boundaries count-kernels cpu_threads disable etdump etdump_path executions exp features-only fill input "
    "inputs library memory-rate method method_name mode model model_path num_executions outdir output-prefix "
    "output_file quiet-runner result seed sizes state threads time-limit timing-runs values verbose-runner "
    "warmup"
)


def own_argument(word: str) -> str:
    if word.startswith("-") and word.partition("=")[0].lstrip("-") in _OWN_FLAGS.split():
        raise refuse(f"sets {word!r}, which the kit sets itself", "drop it, and use the setting for it")
    return word


def shown(value: object) -> str:
    """A wrong value as the user wrote it, shortened."""
    names = {dict: "an object", list: "a list", type(None): "null"}
    if type(value) in names:
        return names[type(value)]
    text = str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
    return text if len(text) <= 40 else text[:37] + "..."


def as_list(value: object) -> object:
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


ConfigPath = Annotated[Path, BeforeValidator(_as_path), WithJsonSchema({"type": "string", "minLength": 1})]
Text = Annotated[str, Field(strict=True)]
Word = Annotated[str, Field(strict=True, max_length=LONGEST_PATH)]
Whole = Annotated[int, Field(strict=True, ge=0, le=MOST)]
Counted = Annotated[int, Field(strict=True, ge=1, le=MOST)]
Threads = Annotated[int, Field(strict=True, ge=1, le=512)]
Seed = Annotated[int, Field(strict=True, ge=0, le=2**32 - 1)]
Duration = Annotated[float, Field(strict=True, gt=0, le=86_400, allow_inf_nan=False)]
Share = Annotated[float, Field(strict=True, gt=0, lt=1, allow_inf_nan=False)]
Name = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)]
Cpu = Annotated[int, Field(strict=True, ge=0, lt=_MOST_CPUS)]
Feature = Literal["sme2", "sme2-only", "sme", "sve2", "sve", "i8mm", "bf16", "dotprod", "fp16"]

# JSON schemas of what two settings accept besides a list; pydantic's own schema has only the list.
_COUNT = {"type": "integer", "minimum": 1, "maximum": 512}
_COUNTS = {"anyOf": [_COUNT, {"type": "array", "items": _COUNT, "minItems": 1, "uniqueItems": True}]}
_CPU = {"type": "integer", "minimum": 0}
_CPUS = {"anyOf": [_CPU, {"type": "array", "items": _CPU}]}
ThreadCounts = Annotated[
    tuple[Threads, ...],
    Field(min_length=1, max_length=MOST_ENTRIES),
    AfterValidator(each_once),
    BeforeValidator(as_list),
    WithJsonSchema(_COUNTS),
]
Cpus = Annotated[
    tuple[Cpu, ...],
    Field(max_length=_MOST_CPUS),
    AfterValidator(each_once),
    BeforeValidator(as_list),
    WithJsonSchema(_CPUS),
]
Features = Annotated[tuple[Feature, ...], Field(max_length=len(get_args(Feature))), AfterValidator(each_once)]

BUILTIN = "builtin"
MOST_EXPERIMENTS = 2000
"""Far more than anyone reads in a report."""

Mode = Literal["timing", "xnntrace"]

USUAL_ROUNDS = 12
BUDGET_S = 30.0
MOST_LAUNCHES = 60
"""The most launches within BUDGET_S; more add no information."""

SYNONYMS = {"num_runs": "runs", "num_threads": "threads"}
"""Older names of an experiment's settings, and their names now."""


class Settings(BaseModel):
    """A JSON object of the config: immutable, and unknown keys are errors. The string below a field is its
    description in the schema."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, protected_namespaces=(), use_attribute_docstrings=True
    )


class Experiment(Settings):
    """One way to run the model; experiments are compared with each other."""

    name: Annotated[Name, AfterValidator(own_name)] = Field(examples=["mac_sme2_on"])
    """Names the experiment's folder and files; letters, digits, '.', '_' and '-'."""
    runner_path: Annotated[Text, AfterValidator(usable)] = Field(
        default=BUILTIN,
        min_length=1,
        max_length=LONGEST_PATH,
        examples=[BUILTIN, "executorch/cmake-out/mac-arm64/executor_runner"],
    )
    """The kit's own runner ("builtin"), or the path of an executor_runner of your own."""
    sme2: Switch | None = Field(
        default=None,
        description='Whether SME2 (and SME) may be used. Left out, it is "off" when the runner\'s path or '
        'else the name says so (sme2-off, sme2_off, no_sme2), otherwise "on".',
        examples=["on", "off"],
    )
    disable: Features = Field(default=(), examples=[["i8mm"], ["sme2"]])
    """CPU features to switch off in the kit's own runner; what depends on one goes with it."""
    mode: Mode = "timing"
    """"timing" measures latency; "xnntrace" gathers kernel evidence and measures none. A runner that
    writes XNNPACK's log is never timed."""
    runs: Counted = Field(default=10, validation_alias=AliasChoices("runs", "num_runs"), examples=[10])
    """Timed inferences in each process (older name: num_runs). In lockstep: how many turns each program has
    while the event tracer is on; without it, turns follow from the program's speed and the budget."""
    warmup: Whole = Field(default=3, examples=[3])
    """Untimed inferences at the start of each process, in both modes."""
    threads: ThreadCounts = Field(
        default=(1,), validation_alias=AliasChoices("threads", "num_threads"), examples=[1, [1, 2, 4]]
    )
    """Thread count, or a list of them to sweep (older name: num_threads)."""
    cpu_affinity: Cpus = Field(default=(), examples=[[4, 5]])
    """Numbers of the CPUs that the process may run on."""
    extra_args: tuple[Annotated[Word, AfterValidator(own_argument)], ...] = Field(
        default=(), max_length=MOST_ENTRIES, examples=[["--flag", "value"]]
    )
    """Further arguments for the runner, one word per entry."""

    @property
    def runner(self) -> Path | None:
        """The user's own runner, or None for the kit's."""
        return None if self.runner_path == BUILTIN else Path(self.runner_path)

    @property
    def series(self) -> tuple[Series, ...]:
        return tuple(Series(self.name, threads) for threads in self.threads)

    @property
    def side(self) -> Switch:
        """Whether SME2 may be used: as written, else as the runner's path says, else the name."""
        return self.sme2 or switch_in_name(self.runner_path) or switch_in_name(self.name) or "on"

    @property
    def switched_off(self) -> tuple[str, ...]:
        """The features the kit's runner must mask; none for the user's own runner."""
        if self.runner is not None:
            return ()
        return closure((*self.disable, *(("sme2",) if self.sme2 == "off" else ())))


class Schedule(Settings):
    """How often, in what order and how patiently experiments are measured."""

    rounds: Counted | None = Field(
        default=None,
        description="The most launches, in each of which all timing experiments take turns; left out, the "
        "budget decides. Where programs cannot take turns, the number of rounds of one process after "
        "another, 12 if left out.",
        examples=[12],
    )
    min_rounds: Annotated[int, Field(strict=True, ge=3, le=MOST)] = 6
    """Rounds or launches measured before `precision` or `budget_s` may end it."""
    precision: Share | None = Field(
        default=None,
        description="Stop once every compared pair's interval is this narrow: 0.01 is within 1%. Left out, "
        "it is 0.005 for launches, and rounds are all measured.",
        examples=[0.01],
    )
    budget_s: Duration | None = Field(
        default=None,
        description="Seconds of measuring, starting processes included, after which no further launch or "
        "round begins. Left out, it is 30 for launches, and rounds have no such limit.",
        examples=[30],
    )
    seed: Seed | None = Field(default=None, examples=[7])
    """Seed of the random order; left out, one is drawn and recorded."""
    sample: Annotated[bool, Field(strict=True)] = False
    """Run each experiment once more by itself and look where its threads are: which kernels an operator's
    time goes to. Nothing of that run is a latency."""
    timeout_s: Duration = 600.0
    """A process that takes longer than this many seconds is ended and counts as failed."""

    @property
    def most_rounds(self) -> int:
        """The most launches."""
        return self.rounds or max(MOST_LAUNCHES, math.ceil(MOST_LAUNCHES * self.time_limit_s / BUDGET_S))

    @property
    def time_limit_s(self) -> float:
        """The time limit of launches."""
        return self.budget_s or BUDGET_S


class ChosenInputs(Settings):
    """Sizes and values of inputs."""

    sizes: dict[Text, tuple[Counted, ...]] = Field(
        default_factory=dict, max_length=MOST_ENTRIES, examples=[{"tokens": [1, 32]}]
    )
    """By name or number: sizes of inputs that were exported with a variable length; left out, the largest."""
    values: dict[Text, tuple[FiniteFloat, ...]] = Field(
        default_factory=dict, max_length=MOST_ENTRIES, examples=[{"input_pos": [256]}]
    )
    """By name or number: values of inputs that are not made up; one value fills the whole input."""

    @property
    def file_words(self) -> str:
        """`tokens_32_input_pos_0`: what was asked for, in the names of files; empty for the usual inputs."""
        return "_".join(fed_in_words(self.sizes, self.values)).replace(" ", "_")


class Inputs(ChosenInputs):
    """What the model is fed."""

    files: tuple[ConfigPath, ...] = Field(default=(), max_length=MOST_ENTRIES)
    """One file of raw bytes per input, in the order of its dimensions; left out, inputs are made up."""
    fill: Literal["random", "ones"] = "random"
    """How made-up inputs are filled."""
    seed: Seed = 0
    """Seed of random inputs; the same for every experiment."""


class Side(Settings):
    """One side of a comparison."""

    experiment: Text = Field(max_length=200, examples=["mac_sme2_off"])
    """An experiment's name."""
    threads: Threads | None = None
    """Which thread count; may be left out if the experiment has only one."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, raw: object) -> object:
        return {"experiment": raw} if isinstance(raw, str) else raw


class ComparePair(Settings):
    """Two measurements to compare; the speedup is baseline over candidate."""

    baseline: Side
    """What is compared against, usually SME2 off."""
    candidate: Side
    """What is judged, usually SME2 on."""
    label: Text | None = Field(default=None, max_length=120, examples=["SME2, one thread"])
    """Its title in reports."""


class AnalysisSettings(Settings):
    """What is compared and what counts as a difference."""

    compare_pairs: tuple[ComparePair, ...] = Field(
        default=(),
        max_length=MOST_EXPERIMENTS,
        description="Which pairs to compare; left out or empty, every SME2-off experiment with the SME2-on "
        "experiment it belongs to.",
    )
    confidence: Annotated[float, Field(strict=True, ge=0.8, le=0.999)] = 0.95
    """Confidence of intervals and verdicts."""
    practical_threshold: Annotated[float, Field(strict=True, ge=0, le=0.5)] = 0.01
    """Differences below this share are not called faster or slower, however certain."""


class ProfileConfig(Settings):
    """A profiling run: one model, the experiments made with it, where, how often, and what is compared."""

    schema_version: Literal[1] = 1
    """Version of this format."""
    model: Annotated[ConfigPath, AfterValidator(is_program)] = Field(
        examples=["out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte"]
    )
    """The exported program (.pte)."""
    output_root: ConfigPath = Field(examples=["out_toy_cnn/runs/mac"])
    """The run directory. Relative paths start where the model was found."""
    experiments: tuple[Experiment, ...] = Field(min_length=1, max_length=MOST_EXPERIMENTS)
    """The ways to run the model."""
    target: TargetChoice = TargetChoice()
    """The machine or device to run on."""
    schedule: Schedule = Field(default_factory=Schedule)
    """How often and in what order."""
    inputs: Inputs = Field(default_factory=Inputs)
    """The inputs of the model."""
    analysis: AnalysisSettings = Field(default_factory=AnalysisSettings)
    """What is compared."""
    method: Text | None = Field(default=None, min_length=1, max_length=200, examples=["forward"])
    """The program's method to run; may be left out if it has only one."""
    notes: Text = Field(default="", max_length=100_000)
    """Free text, kept with the results."""
    _said_otherwise: tuple[Diagnostic, ...] = PrivateAttr(default=())

    def experiment(self, name: str) -> Experiment:
        return next(experiment for experiment in self.experiments if experiment.name == name)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs to compare: those asked for, or each SME2-off experiment with its SME2-on counterpart."""
        if wanted := self.analysis.compare_pairs:
            return tuple(
                make_pair(self._series(pair.baseline), self._series(pair.candidate), pair.label)
                for pair in wanted
            )
        timing = [experiment for experiment in self.experiments if experiment.mode == "timing"]
        natural = natural_pairs(
            (series, experiment.sme2) for experiment in timing for series in experiment.series
        )
        if len(timing) != 2:
            return natural
        label = "SME2 on vs off"  # of the only two
        return tuple(replace(pair, label=with_threads(label, pair.candidate.threads)) for pair in natural)

    def _series(self, side: Side) -> Series:
        return Series(side.experiment, side.threads or self.experiment(side.experiment).threads[0])

    @property
    def said_otherwise(self) -> tuple[Diagnostic, ...]:
        """Older spellings in the file, and how they were read."""
        return self._said_otherwise
