"""The settings a sweep file may hold: what is multiplied with what, what is left out, and how it is measured.

As in `settings`, only shapes and ranges are said here; `sweep_reading` checks the rest and words the errors.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_serializer, model_validator

from model_profiling.config.settings import (
    COUNTS_SCHEMA,
    Counted,
    Feature,
    Name,
    Schedule,
    Settings,
    Text,
    Threads,
    Whole,
    as_list,
    refuse,
    shown,
)
from model_profiling.errors import InputError
from model_profiling.targets import parse_target
from model_profiling.targets.protocol import PowerMode, TargetChoice
from model_profiling.wording import did_you_mean

MOST_CELLS = 10_000
"""Weeks of measuring, and more than anybody reads a table of."""
_MOST = 256
_LONGEST = 4096

ON, OFF, LADDER = "on", "off", "ladder"
OWN_RUNGS = {ON: (), OFF: ("sme2",), LADDER: ()}
"""The rungs that need no definition, and what each switches off; what a ladder does, the CPU decides."""

Dtype = Literal["fp32", "fp16", "int8"]
Backend = Literal["xnnpack", "portable"]
HOSTS_MARK = "@"
"""Between `host` and which of several machines is meant: `host@lab-3`."""


def machine_of(target: str) -> str | None:
    """The machine that `host@MACHINE` names; None where any that offers itself will do."""
    kind, mark, machine = target.partition(HOSTS_MARK)
    return machine if mark and kind == "host" else None


def choice_of(target: str, power_mode: PowerMode = "leave") -> TargetChoice:
    """What opens a target of a sweep, on the machine it is reached from."""
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
        raise refuse(f"is {shown(text)}, which says nothing of where", kinds)
    if chosen.kind == "android" and not (chosen.serial or chosen.remote):
        raise refuse(
            'is "android", which any phone is', 'name it: "android:SERIAL", as `adb devices` lists it'
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
    # Not validated: that a rung disables something holds for those that people define.
    return Rung.model_construct(name=value, disable=OWN_RUNGS[value])


def _named_once(value: object) -> object:
    """A single value where a list may stand."""
    return (
        [value]
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
        else value
    )


class Rung(Settings):
    """A set of CPU features that is switched off, under a name of your own."""

    name: Name = Field(examples=["no_i8mm"])
    """Names the experiment: letters, digits, '.', '_' and '-'."""
    disable: tuple[Feature, ...] = Field(min_length=1, max_length=_MOST, examples=[["i8mm"]])
    """CPU features to switch off; what depends on one goes with it."""

    @property
    def is_own(self) -> bool:
        """Whether it is one of `on`, `off` and `ladder`."""
        return self.name in OWN_RUNGS

    @model_serializer
    def _as_written(self) -> object:
        return self.name if self.is_own else {"name": self.name, "disable": list(self.disable)}


Word = Annotated[str, Field(strict=True, min_length=1, max_length=_LONGEST)]
Target = Annotated[Word, AfterValidator(_as_target)]
_WORDS = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
Words = Annotated[
    tuple[Word, ...],
    BeforeValidator(_named_once),
    WithJsonSchema(_WORDS),
    Field(min_length=1, max_length=_MOST),
]
ThreadCounts = Annotated[
    tuple[Threads, ...],
    BeforeValidator(as_list),
    WithJsonSchema(COUNTS_SCHEMA),
    Field(min_length=1, max_length=_MOST),
]


class Exclusion(Settings):
    """Cells that are left out: those that match everything said here. Each may be a value or a list."""

    model: Words | None = Field(default=None, examples=["unet"])
    """Models, as the sweep writes them."""
    dtype: Words | None = Field(default=None, examples=["int8"])
    """Number formats."""
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
            raise refuse("matches every cell", "say which: model, dtype, backend, threads, rung or target")
        return self

    @property
    def matched(self) -> dict[str, tuple[object, ...]]:
        """What is compared, by the name of the field."""
        fields = ("model", "dtype", "backend", "threads", "rung", "target")
        return {name: value for name in fields if (value := getattr(self, name)) is not None}


class SweepConfig(Settings):
    """Many cells: every model in every dtype for every backend, with every thread count and rung, on every
    target, but for what is excluded."""

    schema_version: Literal[1] = 1
    """Version of this format."""
    name: Name = Field(examples=["nightly"])
    """Names the sweep's folder (sweep_NAME) and stands in the store with each of its runs."""
    models: tuple[Word, ...] = Field(
        min_length=1, max_length=_MOST, examples=[["toy_cnn", "my_model.py:make", "exported.pte"]]
    )
    """Models as `sme2prof profile` takes them: a name (with options: name@size=512), file.py:factory, or an
    exported program, which has its dtype and backend already."""
    dtypes: tuple[Dtype, ...] = Field(default=("fp32",), min_length=1, examples=[["fp32", "int8"]])
    """What to export models as."""
    backends: tuple[Backend, ...] = Field(default=("xnnpack",), min_length=1)
    """What to export them for."""
    threads: ThreadCounts = Field(default=(1,), examples=[[1, 4]])
    """Thread counts."""
    rungs: tuple[Annotated[Rung, BeforeValidator(_as_rung)], ...] = Field(
        default_factory=lambda: (_own_rung(ON), _own_rung(OFF)),
        min_length=1,
        max_length=_MOST,
        examples=[["on", "off"], ["ladder"], ["on", {"name": "no_i8mm", "disable": ["i8mm"]}]],
        description='What of the CPU may be used: "on" (everything), "off" (no SME2), "ladder" (features '
        'taken away one by one, as the CPU has them), or a set of your own. Each is compared with "on".',
    )
    targets: tuple[Target, ...] = Field(
        default=("host",),
        min_length=1,
        max_length=_MOST,
        examples=[["host", "android:R5CT1234ABC", "ssh:board"]],
        description='Where: "host" (the machine that measures; "host@MACHINE" where several workers offer '
        'theirs), "emulated" (QEMU: kernels, no latency), "android:SERIAL", "ssh:HOST".',
    )
    exclude: tuple[Exclusion, ...] = Field(default=(), max_length=_MOST)
    """Cells that are left out."""
    runs: Counted = 10
    """Timed inferences in each process; in lockstep how many turns each program has with the tracer on."""
    warmup: Whole = 3
    """Untimed inferences at the start of each process."""
    schedule: Schedule = Field(default_factory=Schedule)
    """How often and how patiently each program is measured, as in a config."""
    power_mode: PowerMode = "leave"
    """What to set on phones while measuring, as in a config's target."""
    store: Annotated[str, Field(strict=True, min_length=1, max_length=_LONGEST)] | None = Field(
        default=None, examples=["sme2prof_store"]
    )
    """Folder of the store that finished runs are added to; left out, the usual one."""
    notes: Text = Field(default="", max_length=100_000)
    """Free text, kept with the results."""

    def rung(self, name: str) -> Rung:
        return next(rung for rung in self.rungs if rung.name == name)


def _own_rung(name: str) -> Rung:
    return Rung.model_construct(name=name, disable=OWN_RUNGS[name])
