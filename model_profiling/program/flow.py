"""The flow of data through a method: from its inputs through operators and the nodes of delegates' graphs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from model_profiling.program.category import Category
from model_profiling.program.delegates import describe
from model_profiling.program.records import Instruction, Method, Tensor

Value = tuple[int, int]
"""The delegate call that a value is inside (its position among the instructions, -1 for none), and its id."""
Place = tuple[int, int, int]
"""Chain, instruction and node index, which is -1 for an operator outside delegates."""

_METHOD = -1
_RANDOM = frozenset(
    {
        "bernoulli", "dropout", "exponential", "multinomial", "native_dropout", "normal", "poisson", "rand",
        "rand_like", "randint", "randint_like", "randn", "randn_like", "random", "randperm", "uniform",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """An operator outside delegates, or a node of a delegate's graph in one call."""

    place: Place
    kind: str
    """`aten::add.out`, or the backend's name: Conv2d."""
    backend: str
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]
    inputs: tuple[Tensor, ...]
    """All inputs of a node; for an operator, each tensor once."""
    outputs: tuple[Tensor, ...]
    permutation: tuple[int, ...]
    opaque: bool = False
    """Whether it is a delegate that the kit cannot read: it may write to any of its arguments."""
    debug_handle: int = -1
    """Of a node; the record lists those of operators by instruction."""

    @property
    def name(self) -> str:
        """`add` for `aten::add.out`; a node's kind unchanged."""
        return self.kind.partition("::")[2].partition(".")[0] if "::" in self.kind else self.kind

    @property
    def category(self) -> Category:
        return describe(self.kind, self.backend or "portable").category

    @property
    def random(self) -> bool:
        return self.name.rstrip("_") in _RANDOM

    @property
    def in_place(self) -> bool:
        """Whether its kernel may write to its inputs."""
        return not self.backend and (self.name.endswith("_") or not self.kind.startswith(_PURE))


_PURE = ("aten::", "quantized_decomposed::", "dim_order_ops::", "executorch_prim::", "torchao::", "prims::")


@dataclass(frozen=True, slots=True)
class Flow:
    """The steps of a method in running order, and what is known about its values."""

    steps: tuple[Step, ...]
    inputs: frozenset[Value]
    outputs: frozenset[Value]
    constants: frozenset[Value]
    """Values stored in the program; nothing writes to them."""
    straight: bool
    """Whether every step runs once, in order, without jumps."""
    at: dict[Place, int]
    made_by: dict[Value, int]
    used_by: dict[Value, tuple[int, ...]]

    def before(self, step: Step) -> Iterator[Step]:
        for value in step.reads:
            if value in self.made_by:
                yield self.steps[self.made_by[value]]

    def after(self, step: Step) -> Iterator[Step]:
        for value in step.writes:
            for user in self.used_by.get(value, ()):
                yield self.steps[user]

    def returned(self, step: Step) -> bool:
        return any(value in self.outputs for value in step.writes)

    def varying(self, step: Step) -> list[Value]:
        """The inputs of `step` that are not stored in the program."""
        return [value for value in step.reads if value not in self.constants]


def flow_of(method: Method) -> Flow:
    steps: list[Step] = []
    constants: set[Value] = {(_METHOD, number) for number in method.constant_ids}
    for number, instruction in enumerate(method.instructions):
        if instruction.kind in ("operator", "move"):
            steps.append(_operator(instruction))
        elif instruction.kind == "delegate":
            inside, stored = _nodes(method, number, instruction)
            steps += inside
            constants |= stored
    made_by = {value: index for index, step in enumerate(steps) for value in step.writes}
    used_by: dict[Value, list[int]] = {}
    for index, step in enumerate(steps):
        for value in dict.fromkeys(step.reads):
            used_by.setdefault(value, []).append(index)
    return Flow(
        steps=tuple(steps),
        inputs=frozenset((_METHOD, number) for number in method.input_ids),
        outputs=frozenset((_METHOD, number) for number in method.output_ids),
        constants=frozenset(constants),
        straight=all(instruction.kind != "jump" for instruction in method.instructions),
        at={step.place: index for index, step in enumerate(steps)},
        made_by=made_by,
        used_by={value: tuple(users) for value, users in used_by.items()},
    )


def _operator(instruction: Instruction) -> Step:
    return Step(
        place=(instruction.chain_index, instruction.instruction_id, -1),
        kind=instruction.name,
        backend="",
        reads=tuple((_METHOD, number) for number in instruction.input_ids),
        writes=tuple((_METHOD, number) for number in instruction.output_ids),
        inputs=instruction.inputs,
        outputs=instruction.outputs,
        permutation=instruction.permutation,
    )


def _nodes(method: Method, number: int, call: Instruction) -> tuple[list[Step], set[Value]]:
    """The nodes of a delegate in one call, and which of their values are stored."""
    delegate = method.delegates[call.delegate] if 0 <= call.delegate < len(method.delegates) else None
    arguments = (*call.input_ids, *call.output_ids)
    place = call.chain_index, call.instruction_id
    if delegate is None or not delegate.nodes or not delegate.arguments:
        every = tuple((_METHOD, argument) for argument in arguments)
        name = delegate.backend if delegate else call.name
        return [
            Step((*place, -1), name, name, every, every, call.inputs, call.outputs, (), opaque=True)
        ], set()
    outside = {
        inside: (_METHOD, arguments[position])
        for position, inside in delegate.arguments
        if position < len(arguments)
    }
    steps, stored = [], set()
    for node in delegate.nodes:
        reads = tuple(outside.get(inside, (number, inside)) for inside in node.input_ids)
        stored |= {value for value, tensor in zip(reads, node.inputs, strict=True) if tensor.constant}
        steps.append(
            Step(
                place=(*place, node.index),
                kind=node.kind,
                backend=delegate.backend,
                reads=reads,
                writes=tuple(outside.get(inside, (number, inside)) for inside in node.output_ids),
                inputs=node.inputs,
                outputs=node.outputs,
                permutation=node.permutation,
                debug_handle=node.debug_handle,
            )
        )
    return steps, stored


def input_independent(flow: Flow) -> frozenset[int]:
    """The steps whose results do not depend on the method's inputs.

    They read only what is stored in the program or made by such steps. Values that may be written twice, in
    place or at random count as dependent, and so does everything if steps may be skipped or repeated.
    """
    if not flow.straight:
        return frozenset()
    writes = Counter(value for step in flow.steps for value in step.writes)
    fixed = set(flow.constants - flow.inputs)
    found = set()
    for index, step in enumerate(flow.steps):
        same = not step.opaque and not step.random and bool(step.writes)
        if same and all(value in fixed for value in step.reads):
            found.add(index)
            fixed.update(value for value in step.writes if writes[value] == 1)
            continue
        if step.in_place or step.opaque:
            fixed.difference_update(value for value in step.reads if value not in flow.constants)
    return frozenset(found)


# Transposes that undo each other, with only reshapes and element-wise work between them.

_RESHAPES = frozenset(
    {"StaticReshape", "et_view", "flatten", "reshape", "squeeze_copy", "unsqueeze_copy", "view_copy"}
)  # fmt: skip
_COPIES = frozenset({"Copy", "clone", "_clone_dim_order", "alias_copy"})
_EACH_ELEMENT = frozenset(
    {
        "Abs", "Add", "Ceiling", "Clamp", "Convert", "Cos", "Div", "ELU", "Exp", "Floor", "Gelu", "Hardswish",
        "LeakyReLU", "Log", "Maximum", "Minimum", "Multiply", "Negate", "ReciprocalSquareRoot", "Sigmoid",
        "Sin", "Square", "SquareRoot", "Subtract", "Tanh", "abs", "add", "clamp", "div", "exp", "gelu",
        "hardtanh", "mul", "neg", "relu", "rsqrt", "sigmoid", "silu", "sqrt", "sub", "tanh",
    }
)  # fmt: skip
_LONGEST = 16
"""The most steps of a chain that are searched."""
_MOST_ELEMENTS = 1 << 24


@dataclass(frozen=True, slots=True)
class Undone:
    """Transposes that together leave every element where it was."""

    transposes: tuple[Step, ...]
    """Those that could be removed, in running order."""
    partners: tuple[Step, ...]
    """Those that take part but must stay, because something else needs their results."""


def undone_transposes(flow: Flow) -> tuple[Undone, ...]:
    """All groups of such transposes; none is in two groups."""
    found: list[Undone] = []
    taken: set[int] = set()
    for step in flow.steps if flow.straight else ():
        if not step.permutation or flow.at[step.place] in taken:
            continue
        if undone := _undone_by(flow, step, taken):
            found.append(undone)
            taken.update(flow.at[each.place] for each in undone.transposes)
    return tuple(found)


def _undone_by(flow: Flow, last: Step, taken: set[int]) -> Undone | None:
    """The shortest chain that ends with the transpose `last` and moves nothing."""
    path = [last]
    while len(path) < _LONGEST:
        # The step that makes the only varying input.
        varying = set(flow.varying(path[0]))
        made_by = flow.made_by.get(varying.pop(), -1) if len(varying) == 1 else -1
        if made_by < 0 or made_by in taken or not keeps_elements(flow, before := flow.steps[made_by]):
            return None
        path.insert(0, before)
        if before.permutation and _moves_nothing(path):
            return _removable(flow, path)
    return None


def _removable(flow: Flow, path: Sequence[Step]) -> Undone | None:
    """What can be removed from a chain that moves nothing: all transposes, or the last if others read
    between."""
    transposes = tuple(step for step in path if step.permutation)
    alone = all(
        not flow.returned(step)
        and {flow.at[user.place] for user in flow.after(step)} == {flow.at[after.place]}
        for step, after in itertools.pairwise(path)
    )
    if alone:
        return Undone(transposes, ())
    if any(step.name in _EACH_ELEMENT for step in path[1:-1]):
        return None
    return Undone(transposes[-1:], transposes[:-1])


def keeps_elements(flow: Flow, step: Step) -> bool:
    """Whether it moves data, or treats all elements alike."""
    if len(step.outputs) != 1:
        return False
    if step.permutation or step.name in _RESHAPES or step.name in _COPIES:
        return True
    if step.name not in _EACH_ELEMENT:
        return False
    fixed = [each for each in step.inputs if each.constant]
    return all(each.elements == 1 for each in fixed) and len(flow.varying(step)) == 1


def _moves_nothing(path: Sequence[Step]) -> bool:
    """Whether the last step has every element where the first one read it: the steps move their numbers."""
    given = path[0].inputs[0] if path[0].inputs else None
    if given is None or not 0 < given.elements <= _MOST_ELEMENTS:
        return False
    order = np.arange(given.elements, dtype=np.int32).reshape(given.shape)
    try:
        for step in path:
            shape = step.outputs[0].shape
            order = order.transpose(step.permutation) if step.permutation else order.reshape(shape)
    except ValueError:  # a shape is an upper bound that the others do not follow
        return False
    return bool((order.reshape(-1)[1:] > order.reshape(-1)[:-1]).all())
