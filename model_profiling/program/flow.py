"""How data flows through a method: from its inputs through operators and the nodes of delegates' graphs.

Values inside a delegate have ids of their own; where they are arguments of its call, they are the method's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from model_profiling.program.category import Category
from model_profiling.program.delegates import describe
from model_profiling.program.records import Instruction, Method, Tensor

Value = tuple[int, int]
"""The delegate call it is inside of (its place among the method's instructions, -1 for none) and its id."""
Place = tuple[int, int, int]
"""Chain, instruction and, inside a delegate, the node's index; -1 for an operator outside delegates."""

_METHOD = -1
_RANDOM = frozenset(
    {
        "bernoulli", "dropout", "exponential", "multinomial", "native_dropout", "normal", "poisson", "rand",
        "rand_like", "randint", "randint_like", "randn", "randn_like", "random", "randperm", "uniform",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """An operator outside delegates, or a node of a delegate's graph in one call of it."""

    place: Place
    kind: str
    """`aten::add.out`, or the backend's own word: Conv2d."""
    backend: str
    """Of the delegate; empty outside."""
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]
    inputs: tuple[Tensor, ...]
    """As they are for a node; for an operator each tensor once."""
    outputs: tuple[Tensor, ...]
    permutation: tuple[int, ...]
    opaque: bool = False
    """A delegate that the kit cannot look into: it may write to any of its arguments."""

    @property
    def name(self) -> str:
        """`add` of `aten::add.out`; a node's kind as it is."""
        return self.kind.partition("::")[2].partition(".")[0] if "::" in self.kind else self.kind

    @property
    def category(self) -> Category:
        return describe(self.kind, self.backend or "portable").category

    @property
    def random(self) -> bool:
        return self.name.rstrip("_") in _RANDOM

    @property
    def in_place(self) -> bool:
        """Its kernel may write to what it is given."""
        return not self.backend and (self.name.endswith("_") or not self.kind.startswith(_PURE))


_PURE = ("aten::", "quantized_decomposed::", "dim_order_ops::", "executorch_prim::", "torchao::", "prims::")


@dataclass(frozen=True, slots=True)
class Flow:
    """The steps of a method in the order they run, and what is known of its values before any."""

    steps: tuple[Step, ...]
    inputs: frozenset[Value]
    outputs: frozenset[Value]
    constants: frozenset[Value]
    """Stored in the program; nothing writes to them."""
    straight: bool
    """Every step runs once, in order: there are no jumps."""
    at: dict[Place, int]
    made_by: dict[Value, int]
    """The last step that writes a value."""
    used_by: dict[Value, tuple[int, ...]]

    @property
    def known(self) -> bool:
        """The program says which values steps read and write; files of older kits do not."""
        return bool(self.made_by)

    def before(self, step: Step) -> Iterator[Step]:
        """The steps that make what `step` reads."""
        for value in step.reads:
            if value in self.made_by:
                yield self.steps[self.made_by[value]]

    def after(self, step: Step) -> Iterator[Step]:
        """The steps that read what `step` makes."""
        for value in step.writes:
            for user in self.used_by.get(value, ()):
                yield self.steps[user]

    def returned(self, step: Step) -> bool:
        """The method hands out what `step` makes."""
        return any(value in self.outputs for value in step.writes)

    def varying(self, step: Step) -> tuple[Value, ...]:
        """What it reads that is not stored in the program."""
        return tuple(value for value in step.reads if value not in self.constants)


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
    """The nodes of a delegate in one call of it, and those of their values that are stored."""
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
            )
        )
    return steps, stored


def input_independent(flow: Flow) -> frozenset[int]:
    """The steps whose results are the same whatever the method is given.

    Everything they read is stored in the program or made by such steps; state that lives from one execution
    to the next is neither. What may be written twice, in place or at random counts as dependent, and so does
    everything where steps may be skipped or repeated.
    """
    if not flow.straight or not flow.known:
        return frozenset()
    writes: dict[Value, int] = {}
    for step in flow.steps:
        for value in step.writes:
            writes[value] = writes.get(value, 0) + 1
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
