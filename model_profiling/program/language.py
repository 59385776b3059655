"""Language models: which methods of a program read a prompt and write an answer, and how far its cache goes.

ExecuTorch has two layouts. In one, a single method takes tokens of any number and a position, as `export_llm`
writes it. In the other, a method reads the prompt and another one makes one step. Methods without inputs
(`get_max_context_len`) tell the limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from model_profiling.program.records import Method, Program, Tensor

_POSITIONS = ("input_pos", "cache_position", "start_pos", "position")
_CONTEXT = ("get_max_context_len", "get_max_seq_len")
_WHOLE = ("int64", "int32")
_SMALLER = {"int8-dynamic": 8, "int4": 4}
"""Formats with smaller weights: bits of a weight, scales not counted."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A method that handles tokens: its inputs by number, and the most tokens it takes at once."""

    method: Method
    tokens: int
    position: int
    most: int
    variable: bool
    positions: int
    """How many positions it is given: one, or one for each token."""


@dataclass(frozen=True, slots=True)
class LanguageModel:
    prompt: Phase | None
    """What reads several tokens at once; None if every token is a step of its own."""
    step: Phase
    """What makes one token."""
    context: int
    """The most tokens that the cache holds."""


def language_model(program: Program) -> LanguageModel | None:
    """Return the phases of a language model; None for any other program."""
    phases = [
        phase
        for name in program.computing
        if (method := program.method(name)) and (phase := phase_of(program, method))
    ]
    single = [phase for phase in phases if phase.variable or phase.most == 1]
    several = [phase for phase in phases if phase.most > 1]
    if not single:
        return None
    # A method of one token alone is the step; else the one of any length, with one token.
    step = min(single, key=lambda phase: phase.most)
    prompt = max(several, key=lambda phase: phase.most, default=None)
    facts = (program.fact(name) for name in _CONTEXT)
    caches = (size for state in step.method.state for size in state.tensor.shape)
    context = next((fact for fact in facts if fact), None) or max(caches, default=1)
    return LanguageModel(prompt, step, context)


def position_input(program: Program, method: Method, names: Sequence[str] = ()) -> int | None:
    """The place among the tensor inputs of the position in the cache; None if there is none. It is known by
    its name, or else is the second of two inputs of a program that has a cache."""
    named = [place for place, name in enumerate(names) if name in _POSITIONS]
    if named:
        return named[0]
    cached = bool(program.fact("use_kv_cache")) or bool(method.state)
    tensors = method.inputs
    if not cached or len(tensors) != 2 or any(each.dtype not in _WHOLE for each in tensors):
        return None
    return 1 if len(tensors[1].shape) <= 1 else None


def phase_of(program: Program, method: Method) -> Phase | None:
    """Return how a method handles tokens; None if it takes none, or no position."""
    position = position_input(program, method)
    if position is None:
        return None
    tokens = 1 - position
    shape = method.inputs[tokens].shape
    if len(shape) != 2 or shape[0] != 1:
        return None
    numbers, given = method.input_numbers, math.prod(method.inputs[position].shape)
    most = min(shape[1], program.fact("get_max_seq_len") or shape[1])
    return Phase(method, numbers[tokens], numbers[position], most, method.variable[tokens], given)


def read_per_step(method: Method) -> tuple[int, int]:
    """Bytes of weights and of state that one execution reads; of a table, no more than is taken from it."""
    weights = sum(tensor.nbytes for tensor in _in_delegates(method))
    for step in method.operators:
        stored = sum(tensor.nbytes for tensor in step.inputs if tensor.constant)
        taken = step.flops == 0 and bool(step.outputs)
        weights += min(stored, sum(tensor.nbytes for tensor in step.outputs)) if taken else stored
    return weights, sum(state.tensor.nbytes for state in method.state)


def smaller_weights(method: Method) -> dict[str, int]:
    """Bytes of weights that an execution would read if linear layers had a format with smaller ones."""
    read = read_per_step(method)[0]
    every = [*_in_delegates(method)]
    every += (each for step in method.operators if step.flops for each in step.inputs if each.constant)
    layers = [tensor for tensor in every if len(tensor.shape) == 2]
    saved = {
        name: sum(max(0, tensor.nbytes - (tensor.elements * bits + 7) // 8) for tensor in layers)
        for name, bits in _SMALLER.items()
    }
    return {name: read - less for name, less in saved.items() if less}


def _in_delegates(method: Method) -> Iterator[Tensor]:
    """Each tensor that is stored with a delegate, once."""
    for delegate in method.delegates:
        stored = {
            number: tensor
            for node in delegate.nodes
            for number, tensor in zip(node.input_ids, node.inputs, strict=False)
            if tensor.constant
        }
        yield from stored.values()
