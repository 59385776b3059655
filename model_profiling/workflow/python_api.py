"""Profiling from Python: the commands `profile`, `optimize` and `llm` as functions with keyword arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, overload

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    FiniteFloat,
    SkipValidation,
    TypeAdapter,
    ValidationError,
)
from typing_extensions import TypedDict, Unpack

from model_profiling.config.reading import problems_of
from model_profiling.config.settings import MOST, Counted, Duration, Text, ThreadCounts, Whole, as_list
from model_profiling.core.errors import InputError, WrongTypeError
from model_profiling.core.files import StrPath, as_path
from model_profiling.core.formatting import did_you_mean
from model_profiling.core.number_formats import FORMATS, FORMATS_HELP, parse_format
from model_profiling.export.rewrites import Optimize
from model_profiling.models.catalog import given_model
from model_profiling.runner.machine import TargetChoice, parse_target, target_kinds
from model_profiling.targets.machine_lock import may_wait
from model_profiling.workflow.dtypes import DtypesOutcome, profile_dtypes
from model_profiling.workflow.language import LanguageOutcome, profile_language
from model_profiling.workflow.measure import RunOptions
from model_profiling.workflow.optimize import OptimizeOutcome, optimize_model
from model_profiling.workflow.profile import ProfileOptions, ProfileOutcome, profile_one

if TYPE_CHECKING:
    from model_profiling.models.base import Inputs, Model

Flag = Annotated[bool, Field(strict=True)]


def _as_tuple(value: object) -> object:
    return (value,) if isinstance(value, int | float) and not isinstance(value, bool) else value


Sizes = Annotated[tuple[Counted, ...], Field(min_length=1), BeforeValidator(as_list)]
Filling = Annotated[tuple[FiniteFloat, ...], Field(min_length=1), BeforeValidator(_as_tuple)]
Prompts = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=2, le=MOST)], ...],
    Field(min_length=1),
    BeforeValidator(as_list),
]
Positions = Annotated[tuple[Whole, ...], Field(min_length=1), BeforeValidator(as_list)]


class CommonSettings(TypedDict, total=False):
    """Where and how to measure; None is the usual value."""

    target: SkipValidation[str | TargetChoice | None]
    backend: str | None
    calibration: str | None
    keep: tuple[str, ...] | None
    optimize: SkipValidation[Optimize | None]
    threads: ThreadCounts | None
    budget_s: Duration | None
    sample: Flag | None
    ladder: Flag | None
    quick: Flag | None
    outdir: SkipValidation[StrPath | None]
    force: Flag | None
    wait: Flag | None


class ProfileSettings(CommonSettings, total=False):
    """The options of `sme2prof profile`."""

    evidence: SkipValidation[StrPath | None]
    method: str | None
    lengths: dict[Text, Sizes] | None
    values: dict[Text, Filling] | None


class LanguageSettings(CommonSettings, total=False):
    """The options of `sme2prof llm`."""

    prompts: Prompts | None
    positions: Positions | None


@overload
def profile(  # type: ignore[overload-overlap]  # "all" is the one word with another result
    model: Model,
    inputs: Inputs | None = None,
    *,
    dtype: Literal["all"] | list[str] | tuple[str, ...],
    name: str | None = None,
    **settings: Unpack[ProfileSettings],
) -> DtypesOutcome: ...


@overload
def profile(
    model: Model,
    inputs: Inputs | None = None,
    *,
    dtype: str | None = None,
    name: str | None = None,
    **settings: Unpack[ProfileSettings],
) -> ProfileOutcome: ...


def profile(
    model: Model,
    inputs: Inputs | None = None,
    *,
    dtype: str | list[str] | tuple[str, ...] | None = None,
    name: str | None = None,
    **settings: Unpack[ProfileSettings],
) -> ProfileOutcome | DtypesOutcome:
    """Export `model` if it is not a program yet, run it as this machine can, and analyse what came of it.

    `model` is a `torch.nn.Module` with its `inputs` (a tensor, a tuple of positional inputs or a dict of
    keyword inputs), a name that `sme2prof models` lists, `file.py:factory`, or the path of a .pte file.

        outcome = profile(module, torch.rand(1, 3, 224, 224), target="host", dtype="fp16")
        outcome.analysis.operators.to_pandas()

    `dtype` is fp32 (the default), fp16, int8, int8-dynamic, int4, int4:GROUP or `file.py:quantizer`; with
    "all" or a list of them the formats take turns, and the result is a `DtypesOutcome`. `settings` are the
    options of `sme2prof profile`: target ("auto", "host", "emulated", "android:SERIAL", "ssh:HOST"),
    backend, calibration, keep, optimize (True, or the path of an optimization.json), method, lengths, values,
    threads, budget_s, sample, ladder, quick, evidence, outdir, force, wait. A `TargetChoice` also says a
    phone's power mode; rarer settings live in a config.
    `method`, `lengths` ({"tokens": 32}, or all sizes of the input: (1, 32)) and `values` ({"input_pos": 256})
    choose what of the program runs. If others measure on this machine, it waits; with `wait=False` that is an
    `InputError`.

    A module is exported in evaluation mode and left as it was; `name` replaces its class's name in the names
    of files. Everything is written into `out_<name>` or `outdir`, and nothing is printed. A finished run that
    is there is kept under its date; an unfinished one that would measure the same is continued unless
    `force=True` begins again. Failures are `ProfilingError`s that say what to do; a wrong type is a
    `TypeError`, too.
    """
    named = given_model(model, inputs, name)
    if name is not None and isinstance(named, str):
        raise InputError(f"{named} has a name already", "name is for a torch.nn.Module; leave it out")
    dtypes = _asked_dtypes(dtype)
    given = _checked(settings, ProfileSettings, "profile")
    with may_wait(given.pop("wait", True)):
        options, run = _options(given)
        if dtypes is not None:
            return profile_dtypes(named, dtypes, options, run)
        one = options.model_copy(update={"dtype": dtype if isinstance(dtype, str) else None})
        return profile_one(named, one, run)


def optimize(
    model: Model,
    inputs: Inputs | None = None,
    *,
    dtype: str | None = None,
    only: tuple[str, ...] | list[str] = (),
    name: str | None = None,
    **settings: Unpack[ProfileSettings],
) -> OptimizeOutcome:
    """Rewrite the exported graph of `model` so that it runs faster, keep what measurably helps, and write the
    optimized program beside the original, as `sme2prof optimize` does.

        outcome = optimize(module, torch.rand(1, 3, 224, 224))
        outcome.program, outcome.optimization.verdict

    `only` names the rewrites to try. `model`, `inputs`, `name` and the settings are those of `profile`; there
    is no ladder and no sampling, and one thread count. The module stays as it is.
    """
    named = given_model(model, inputs, name)
    given = _checked(settings, ProfileSettings, "optimize")
    for unused in {"optimize", "ladder", "sample"} & given.keys():
        raise InputError(f"optimize() has no setting {unused!r}", "it is one of profile()")
    with may_wait(given.pop("wait", True)):
        options, run = _options({"dtype": dtype, **given})
        return optimize_model(named, options, run, only=tuple(only))


def profile_llm(
    model: Model,
    *,
    dtype: str | None = None,
    **settings: Unpack[LanguageSettings],
) -> LanguageOutcome:
    """Profile a language model with its prompt and its answer apart, as `sme2prof llm` does.

    `model` is the path of a .pte file, a name that `sme2prof models` lists, the folder of a transformers
    model, or an `EagerModelBase` of yours. Each length in `prompts` (tokens) and each number of tokens in the
    cache in `positions` is one case; the usual ones are 32, 128, 512 and 0, 256, 1024, as far as they fit.

        outcome = profile_llm("tiny_llama", prompts=[64], positions=[0, 100], target="host")
        for case in outcome.language.cases:
            print(case.name, [latency.tokens_per_s(case.tokens) for latency in case.latencies])

    The other settings are those of `profile`, without `method`, `lengths` and `values`. `budget_s` (10) is
    for each case.
    """
    parse_format(dtype or "fp32")
    given = _checked(settings, LanguageSettings, "profile_llm")
    cases = {name: given.pop(name, None) for name in ("prompts", "positions")}
    with may_wait(given.pop("wait", True)):
        options, run = _options(given)
        options = options.model_copy(update={"dtype": dtype})
        return profile_language(given_model(model), options, run, **cases)


def _options(given: dict[str, Any]) -> tuple[ProfileOptions, RunOptions]:
    """What both functions measure, and what they do with runs that are there already."""
    target = _as_target(given.pop("target", "auto"))
    evidence = (as_path(given.pop("evidence")),) if "evidence" in given else ()
    run = RunOptions(force=given.pop("force", False), evidence=evidence)
    return ProfileOptions(target=target, **given), run


def _asked_dtypes(dtype: object) -> tuple[str, ...] | None:
    """The formats to put side by side; None if one alone is asked for."""
    choices = f"choose from {FORMATS_HELP}, give a list of them, or all"
    if not isinstance(dtype, str | list | tuple | None):
        raise WrongTypeError(f"dtype is of type {type(dtype).__name__}", choices)
    if dtype == "all":
        return FORMATS
    if dtype is None or isinstance(dtype, str):
        parse_format(dtype or "fp32")
        return None
    formats = tuple(parse_format(str(word)).text for word in dtype)
    if not formats or len(set(formats)) < len(formats):
        raise InputError(f"dtype is {dtype!r}", choices)
    return formats


def _as_target(given: object) -> TargetChoice:
    if isinstance(given, TargetChoice):
        if given.power_mode != "leave" and given.name != "android":
            raise InputError(f"power_mode {given.power_mode} is for a phone", 'give name="android"')
        return given
    if not isinstance(given, str):
        kinds = ", ".join(target_kinds())
        raise WrongTypeError(f"target is of type {type(given).__name__}", f"choose from {kinds}")
    return parse_target(given)


def _checked(settings: CommonSettings, kind: type, function: str) -> dict[str, Any]:  # typed by pydantic
    """The settings that are not None."""
    for unknown in settings.keys() - kind.__annotations__.keys():
        hint = did_you_mean(unknown, kind.__annotations__) or f"choose from {', '.join(kind.__annotations__)}"
        raise WrongTypeError(f"{function}() has no setting {unknown!r}", hint)
    try:
        checked: dict[str, Any] = TypeAdapter(kind).validate_python(settings)
    except ValidationError as error:
        first = problems_of(error, BaseModel)[0]
        wrong_type = error.errors()[0]["type"].endswith("_type")
        raise (WrongTypeError if wrong_type else InputError)(first.text, first.fix) from error
    return {key: value for key, value in checked.items() if value is not None}
