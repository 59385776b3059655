"""Which method of a program runs, what it is fed (sizes and values of its inputs, and the state that each
execution begins with), and which libraries it needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from model_profiling.config.settings import Inputs, ProfileConfig
from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.formatting import listing, plural
from model_profiling.program.delegates import delegate_named
from model_profiling.program.etrecord import read_etrecord
from model_profiling.program.graph_file import record_beside
from model_profiling.program.language import Phase, phase_of, position_input
from model_profiling.program.pte import lengths_at, read_program
from model_profiling.program.records import Method, Program, Tensor
from model_profiling.runner.result import check_program
from model_profiling.targets import Target
from model_profiling.targets.collect import missing_backend, missing_operators


@dataclass(frozen=True, slots=True)
class Feed:
    """The inputs of a method by their number, and its state."""

    method: Method | None = None
    """The method itself; None if it cannot be read, or if a runner of the user runs it."""
    sizes: tuple[tuple[int, tuple[int, ...]], ...] = ()
    values: tuple[tuple[int, tuple[float, ...]], ...] = ()
    state: tuple[tuple[int, int, int], ...] = ()
    """Buffer, offset and size in planned memory."""
    lengths: dict[int, int] = field(default_factory=dict)
    """Sizes in the program that differ from their upper bound."""
    unclear: bool = False
    """Whether `lengths` cannot be told, so that the program's shapes stay upper bounds."""
    tokens: int | None = None
    """How many tokens of a language model it is given; None for any other program."""
    position: int | None = None
    """The first token's position in the cache; None if a file has it."""


def one_method(program: Path, method: str | None) -> str:
    """Return `method`, or else the only one that computes something. This reads the program first of all, so
    what is no program is refused before anything is hashed, made or run."""
    check_program(program)
    methods = read_program(program.absolute()).computing  # as configs name it, so that it is read once
    if method is not None and methods and method not in methods:
        raise InputError(f"{program.name} has no method {method!r}", f"choose from {listing(methods)}")
    if method is None and len(methods) > 1:
        raise InputError(
            f"{program.name} has several methods: {listing(methods)}",
            "choose one with --method, `method` in a config or in Python, or `cases` in a sweep",
        )
    return method or (methods or ("forward",))[0]


def feed(model: Path, method_name: str, inputs: Inputs) -> Feed:
    """Return what a method is fed; refuse sizes and values that it cannot take."""
    program = read_program(model)
    method = program.method(method_name)
    if method is None:
        return Feed()
    names = input_names(model, program, method) if inputs.sizes or inputs.values or method.state else ()
    if inputs.files and inputs.values:
        raise InputError("inputs have files and values", "leave inputs.files or inputs.values out")
    sizes = {
        number: tuple(wanted)
        for name, wanted in inputs.sizes.items()
        for number, tensor, variable in (_input(method, names, name),)
        if _check_sizes(name, wanted, tensor, variable=variable)
    }
    values = {_input(method, names, name)[0]: given for name, given in inputs.values.items()}
    phase = phase_of(program, method) if names else None  # a phase has a cache
    if phase is not None and not inputs.sizes and not inputs.files:
        sizes = _longest(phase)
    place = position_input(program, method, names) if names and not inputs.files else None
    if place is not None:
        # The beginning of the cache: a made-up position could lie behind its end.
        number = method.input_numbers[place]
        count = math.prod(sizes.get(number, method.inputs[place].shape))
        values.setdefault(number, tuple(map(float, range(count))))
    lengths = lengths_at(method, sizes)
    state = tuple((place.buffer, place.offset, place.tensor.nbytes) for place in method.state)
    fed = Feed(method, tuple(sizes.items()), tuple(values.items()), state, lengths or {}, lengths is None)
    if phase is None:
        return fed
    shape = method.inputs[method.input_numbers.index(phase.tokens)].shape
    at = values.get(phase.position, ())
    return replace(
        fed, tokens=sizes.get(phase.tokens, shape)[-1], position=int(at[0]) if at and at[0] >= 0 else None
    )


def _longest(phase: Phase) -> dict[int, tuple[int, ...]]:
    """The most tokens that the program says it takes, where it was traced for more (`LanguageModel`)."""
    tokens = phase.method.inputs[phase.method.input_numbers.index(phase.tokens)]
    if not phase.variable or phase.most == tokens.shape[1]:
        return {}
    sizes: dict[int, tuple[int, ...]] = {phase.tokens: (1, phase.most)}
    return {**sizes, phase.position: (phase.most,)} if phase.positions > 1 else sizes


def input_names(model: Path, program: Program, method: Method) -> tuple[str, ...]:
    """The name of each tensor input, from the record beside the program. Without one, a language model has
    `tokens` and `input_pos`, and other inputs have their number."""
    record = record_beside(model)
    with suppress(FormatError, InputError):
        names = read_etrecord(record).inputs.get(method.name, ()) if record else ()
        if len(names) > max(method.input_numbers, default=-1):
            return tuple(names[number] for number in method.input_numbers)
    if (place := position_input(program, method)) is not None:
        return ("tokens", "input_pos") if place == 1 else ("input_pos", "tokens")
    return tuple(map(str, method.input_numbers))


def _input(method: Method, names: Sequence[str], name: str) -> tuple[int, Tensor, bool]:
    places = {str(number): place for place, number in enumerate(method.input_numbers)}
    places |= {own_name: place for place, own_name in enumerate(names)}
    if name not in places:
        raise InputError(
            f"method {method.name} has no input {name!r}",
            f"choose from {listing(names or list(places))}" if places else "leave it out",
        )
    place = places[name]
    return method.input_numbers[place], method.inputs[place], method.variable[place]


def _check_sizes(name: str, wanted: Sequence[int], tensor: Tensor, *, variable: bool) -> bool:
    """Refuse sizes that input `name` cannot have; return whether they differ from the exported ones."""
    exported = "x".join(map(str, tensor.shape))
    if len(wanted) != len(tensor.shape):
        dimensions = plural(len(tensor.shape), "dimension")
        raise InputError(f"input {name} has {dimensions} ({exported})", "give a size for each")
    if tuple(wanted) == tensor.shape:
        return False
    if not variable:
        raise InputError(
            f"input {name} always has the sizes {exported}: it was exported with a fixed length",
            "leave its length out, or export the model with a dynamic length",
        )
    if any(size > most for size, most in zip(wanted, tensor.shape, strict=True)):
        raise InputError(f"input {name} can have at most the sizes {exported}", "give smaller ones")
    return True


def sizes_for_length(
    program: Path, method: str, name: str, given: tuple[int, ...]
) -> tuple[str, tuple[int, ...]]:
    """Return the input's name and its sizes: all are `given`, or the only one above 1."""
    content = read_program(program)
    chosen = content.method(method)
    if chosen is None:
        raise InputError(f"{program.name} has no method {method!r}", "choose one that it has")
    names = input_names(program, content, chosen)
    _, tensor, _ = _input(chosen, names, name)
    if len(given) > 1:
        return name, given
    large = [place for place, size in enumerate(tensor.shape) if size > 1]
    if len(large) != 1:
        exported = "x".join(map(str, tensor.shape))
        raise InputError(f"input {name} ({exported}) has no single length", "give all its sizes: 1x32x8")
    return name, tuple(given[0] if place == large[0] else size for place, size in enumerate(tensor.shape))


def checked_feed(config: ProfileConfig) -> Feed:
    """Return what the method is fed; refuse inputs that it cannot take, and a program for a backend that the
    kit's runner does not have. A runner of the user may have other parts, but cannot be told inputs."""
    inputs = config.inputs
    own_runner = any(experiment.runner is not None for experiment in config.experiments)
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
    built_in = target.operators() if needed else None
    lacking = needed - built_in if built_in is not None else set()
    libraries = target.libraries_with(lacking) if lacking else ()
    if lacking and not libraries:
        missing, fix = missing_operators(lacking)
        raise InputError(f"{program} needs {missing}", fix)
    return libraries
