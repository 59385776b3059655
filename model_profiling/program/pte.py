"""Reads programs (.pte): the container, its flatbuffer, and each method's instructions and delegates."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from model_profiling.core.errors import FormatError
from model_profiling.core.flatbuffer import FlatBuffer, FlatTable, Source, load
from model_profiling.program.category import bytes_of_operator
from model_profiling.program.delegates import delegate_named
from model_profiling.program.delegates.protocol import Graph, Payload, operator_flops, slides_window
from model_profiling.program.records import (
    Delegate,
    Instruction,
    InstructionKind,
    Method,
    Program,
    State,
    Tensor,
    tensor,
)

Item = TypeVar("Item")

_IDENTIFIER = b"ET12"
_HEADER_MAGIC = b"eh00"
_HEADER_AT = 8

_DTYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "fp16", 6: "fp32", 7: "fp64", 11: "bool",
    12: "qint8", 13: "quint8", 14: "qint32", 15: "bf16", 16: "quint4x2", 17: "quint2x4", 22: "bits16",
    23: "fp8e5m2", 24: "fp8e4m3fn", 25: "fp8e5m2fnuz", 26: "fp8e4m3fnuz", 27: "uint16", 28: "uint32",
    29: "uint64",
}  # fmt: skip

_INT, _BOOL, _TENSOR, _INT_LIST, _TENSOR_LIST, _OPTIONAL_TENSOR_LIST = 2, 3, 5, 7, 10, 11
_OF_INTEREST = {_INT, _BOOL, _TENSOR, _INT_LIST, _TENSOR_LIST, _OPTIONAL_TENSOR_LIST}
_KERNEL, _DELEGATE = 1, 2
_STATIC = 0
_BOOKKEEPING: dict[int, InstructionKind] = {3: "move", 4: "jump", 5: "free"}
_IN_SEGMENT = 1
_LONGEST_WINDOW = 1 << 31


@dataclass(frozen=True, slots=True)
class _Values:
    """A method's values, as far as they matter for cost and data flow."""

    tensors: dict[int, Tensor]
    lists: dict[int, tuple[int, ...]]
    flags: dict[int, bool]
    numbers: dict[int, int]
    number_lists: dict[int, tuple[int, ...]]
    """Lists of numbers; like lists of tensors they hold value ids."""
    planned: dict[int, tuple[int, int]]
    """Buffer and offset in planned memory of tensors that have one."""
    variable: set[int]
    """Tensors whose shape is an upper bound."""

    def opened(self, index: int) -> tuple[int, ...]:
        """The members of a list of tensors; any other value by itself."""
        return self.lists.get(index, (index,))

    def tensors_of(self, indexes: tuple[int, ...]) -> tuple[Tensor, ...]:
        """The tensors among `indexes`, lists opened, each value once."""
        flat = [member for index in dict.fromkeys(indexes) for member in self.opened(index)]
        return tuple(self.tensors[index] for index in dict.fromkeys(flat) if index in self.tensors)

    def ids_of(self, indexes: tuple[int, ...]) -> tuple[int, ...]:
        """The values in `indexes`, lists opened, each once."""
        opened = (
            self.number_lists.get(member, (member,)) for index in indexes for member in self.opened(index)
        )
        return tuple(dict.fromkeys(member for members in opened for member in members))

    def permutation(self, name: str, given: tuple[int, ...]) -> tuple[int, ...]:
        """How a transpose reorders dimensions; empty for anything else."""
        kind = name.partition("::")[2].partition(".")[0]
        rank = len(self.tensors[given[0]].shape) if given and given[0] in self.tensors else 0
        named = [self.numbers.get(number, rank) for number in self.ids_of(given[1:])]
        order = list(range(rank))
        if kind == "permute_copy":
            order = [axis % rank for axis in named if -rank <= axis < rank]
        elif kind in ("transpose_copy", "t_copy") and rank > 1:
            first, second = named[:2] if kind == "transpose_copy" and len(named) > 1 else (0, 1)
            if not all(-rank <= axis < rank for axis in (first, second)):
                return ()
            order[first], order[second] = order[second], order[first]
        else:
            return ()
        return tuple(order) if sorted(order) == list(range(rank)) else ()

    def split_outputs(self, arguments: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Split a kernel's arguments into inputs and outputs. The last argument is the output or a list of
        outputs; these also appear before it, as the arguments the kernel writes to."""
        made = arguments[-1:]
        written = {member for index in made for member in self.opened(index)}
        count = len(arguments) - len(made)
        while count and written.issuperset(self.opened(arguments[count - 1])):
            count -= 1
        return arguments[:count], made


def read_program(source: Source, lengths: Lengths | None = None) -> Program:
    """Read a program. `lengths` gives sizes of inputs of variable length, by method; the shapes and the work
    of that method are then those at these sizes, not at their upper bounds. One job asks for its program
    several times, so the last ones read from files are kept."""
    sizes = tuple((method, tuple(given.items())) for method, given in (lengths or {}).items() if given)
    if not isinstance(source, Path) or not source.is_file():
        return _read(source, sizes)
    written = source.stat()
    return _read_unchanged(source, (written.st_ino, written.st_size, written.st_mtime_ns), sizes)


_Sizes = tuple[tuple[str, tuple[tuple[int, int], ...]], ...]


@functools.lru_cache(maxsize=4)
def _read_unchanged(path: Path, _written: tuple[int, int, int], sizes: _Sizes) -> Program:
    return _read(path, sizes)


def _read(source: Source, sizes: _Sizes) -> Program:
    name, data = load(source, "ExecuTorch program")
    return _ProgramReading(FlatBuffer(data, name), {method: dict(given) for method, given in sizes}).program()


Lengths = Mapping[str, Mapping[int, int]]
"""By method: the upper bound of a size, and the size."""


def lengths_at(method: Method, sizes: Mapping[int, Sequence[int]]) -> dict[int, int] | None:
    """Which sizes in `method` change, if its input N has `sizes[N]` in place of the upper bound. None if that
    cannot be told: a bound also divides a size that never changes, so the two look the same."""
    changed: dict[int, int] = {}
    for number, given in zip(method.input_numbers, method.inputs, strict=True):
        for bound, size in zip(given.shape, sizes.get(number, given.shape), strict=True):
            if bound != size and changed.setdefault(bound, size) != size:
                return None
    read = [*(step.inputs for step in method.instructions)]
    read += (node.inputs for delegate in method.delegates for node in delegate.nodes)
    fixed = {size for inputs in read for each in inputs if each.constant for size in each.shape}
    fixed |= {size for state in method.state for size in state.tensor.shape}
    return None if any(size % bound == 0 for bound in changed for size in fixed) else changed


class _ProgramReading:
    def __init__(self, buffer: FlatBuffer, lengths: Lengths) -> None:
        self.buffer = buffer
        self.lengths = lengths
        self.segment_base = 0
        self.inline: list[tuple[int, Payload]] = []
        self.segments: list[tuple[int, int]] = []
        # Size and content of each payload; delegates may share one, which is read once.
        self.graphs: dict[tuple[int, int], tuple[int, Graph]] = {}

    def _resized(self, method: str) -> Callable[[Tensor], Tensor] | None:
        """What a tensor becomes at the lengths that were asked for: sizes that are multiples of a bound
        change. None if none were."""
        changed = self.lengths.get(method, {})

        def size_now(size: int) -> int:
            bound = next((bound for bound in changed if size % bound == 0), 0)
            return size // bound * changed[bound] if bound else size

        def resized(tensor: Tensor) -> Tensor:
            return tensor if tensor.constant else replace(tensor, shape=tuple(map(size_now, tensor.shape)))

        return resized if changed else None

    def program(self) -> Program:
        if self.buffer.data[4:8].tobytes() != _IDENTIFIER:
            raise FormatError(f"{self.buffer.source} is not an ExecuTorch program", "use a .pte file")
        if self.buffer.data[_HEADER_AT : _HEADER_AT + 4].tobytes() == _HEADER_MAGIC:
            self.segment_base = self.buffer.read("u64", _HEADER_AT + 16, "the header")
        root = self.buffer.root(0, "the program")
        self.inline = [blob.octets(0, "delegate data") for blob in root.tables(3, "delegate data")]
        self.segments = [
            (segment.scalar(0, "u64"), segment.scalar(1, "u64")) for segment in root.tables(4, "a segment")
        ]
        methods = tuple(self._method(plan) for plan in root.tables(1, "a method"))
        return Program(source=self.buffer.source, version=root.scalar(0, "u32"), methods=methods)

    def _method(self, plan: FlatTable) -> Method:
        name = plan.text(0, "a method's name") or ""
        values, resized = self._values(plan), self._resized(name)
        if resized:
            values.tensors.update({index: resized(each) for index, each in values.tensors.items()})
        delegates = tuple(
            self._delegate(index, entry, resized) for index, entry in enumerate(plan.tables(7, "a delegate"))
        )
        operators = [
            ".".join(part for part in (entry.text(0, "an operator"), entry.text(1, "an operator")) if part)
            for entry in plan.tables(6, "an operator")
        ]
        instructions = tuple(
            self._instruction(chain, number, entry, values=values, operators=operators, delegates=delegates)
            for chain, steps in enumerate(plan.tables(5, "a chain"))
            for number, entry in enumerate(steps.tables(2, "an instruction"))
        )
        taken, returned = plan.ints(3, "i32", "a method's inputs"), plan.ints(4, "i32", "a method's outputs")
        used = {number for step in instructions for number in (*step.input_ids, *step.output_ids)}
        written = {*taken, *(number for step in instructions for number in step.output_ids)}

        def varies(number: int) -> bool:
            """Only an instruction or a caller can change a number; arguments that cannot vary are dropped."""
            return number in values.tensors or number in written

        given = [number for number in taken if number in values.tensors]
        facts = {**values.flags, **values.numbers} if len(returned) == 1 and not instructions else {}
        return Method(
            name=name,
            inputs=values.tensors_of(taken),
            outputs=values.tensors_of(returned),
            instructions=tuple(
                step
                if step.kind == "delegate"
                else replace(step, input_ids=tuple(filter(varies, step.input_ids)))
                for step in instructions
            ),
            delegates=delegates,
            input_ids=values.ids_of(taken),
            output_ids=values.ids_of(returned),
            constant_ids=tuple(
                sorted(used & {index for index, each in values.tensors.items() if each.constant})
            ),
            input_numbers=tuple(place for place, number in enumerate(taken) if number in values.tensors),
            variable=tuple(number in values.variable for number in given),
            state=tuple(_state(instructions, values, taken)),
            arenas=plan.ints(8, "i64", "a method's planned memory")[1:],
            planned=tuple((index, values.tensors[index].nbytes) for index in values.planned),
            returns=facts.get(returned[0]) if facts else None,
        )

    def _values(self, plan: FlatTable) -> _Values:
        values = _Values({}, {}, {}, {}, {}, {}, set())
        for index, entry in enumerate(plan.tables(2, "a value")):
            kind = entry.scalar(0, "u8")
            if kind not in _OF_INTEREST:
                continue
            content = entry.table(1, "a value")
            if content is None:
                raise self.buffer.damaged("a value has no content", entry.at)
            if kind == _TENSOR:
                values.tensors[index] = self._tensor(content)
                self._placed(values, index, content)
            elif kind == _BOOL:
                values.flags[index] = bool(content.scalar(0, "u8"))
            elif kind == _INT:
                values.numbers[index] = content.scalar(0, "i64")
            elif kind == _INT_LIST:
                values.number_lists[index] = content.ints(0, "i64", "a list of numbers")
            else:
                values.lists[index] = content.ints(0, "i32", "a list of tensors")
        return values

    def _tensor(self, entry: FlatTable) -> Tensor:
        number = entry.scalar(0, "i8")
        if number not in _DTYPES:
            raise self.buffer.damaged(f"a tensor has the unknown type {number}", entry.at)
        extra = entry.table(9, "a tensor")
        stored = entry.scalar(5, "u32") > 0 or (extra is not None and extra.scalar(2, "i8") == 1)
        planned = entry.table(6, "a tensor") is not None
        return tensor(self.buffer, entry, 2, "i32", _DTYPES[number], constant=stored and not planned)

    def _placed(self, values: _Values, index: int, entry: FlatTable) -> None:
        if entry.scalar(8, "i8") != _STATIC:
            values.variable.add(index)
        if (place := entry.table(6, "a tensor")) is not None:
            low, high = place.scalar(1, "u32"), place.scalar(2, "u32")
            values.planned[index] = place.scalar(0, "u32") - 1, (high << 32) | low

    def _delegate(self, index: int, entry: FlatTable, resized: Callable[[Tensor], Tensor] | None) -> Delegate:
        backend = entry.text(0, "a backend's name") or ""
        where = entry.table(1, "a delegate's data")
        if where is None:
            raise self.buffer.damaged("a delegate has no data", entry.at)
        key = (where.scalar(0, "i8"), where.scalar(1, "u32"))
        if key not in self.graphs:
            start, payload = self._payload(*key, where.at)
            graph = delegate_named(backend).read_graph(payload, self.buffer.source, start)
            self.graphs[key] = len(payload), graph
        nbytes, graph = self.graphs[key]
        if resized:
            graph = delegate_named(backend).resized(graph, resized)
        return Delegate(index, backend, nbytes, graph.nodes, graph.output_count, graph.arguments)

    def _payload(self, location: int, number: int, at: int) -> tuple[int, Payload]:
        """A delegate's data, and where in the file it begins."""
        pool = len(self.segments) if location == _IN_SEGMENT else len(self.inline)
        if number >= pool:
            raise self.buffer.damaged(f"a delegate's data is entry {number} of {pool}", at)
        if location == _IN_SEGMENT:
            offset, size = self.segments[number]
            start = self.segment_base + offset
            return start, self.buffer.slice(start, size, "a delegate's data")
        return self.inline[number]

    def _instruction(
        self,
        chain: int,
        number: int,
        entry: FlatTable,
        *,
        values: _Values,
        operators: list[str],
        delegates: tuple[Delegate, ...],
    ) -> Instruction:
        kind = entry.scalar(0, "u8")
        call = entry.table(1, "an instruction")
        if call is None:
            raise self.buffer.damaged("an instruction has no content", entry.at)
        if kind == _KERNEL:
            name = self._pick(operators, call, "an operator")
            given, made = values.split_outputs(call.ints(1, "i32", "an operator's arguments"))
            inputs, outputs = values.tensors_of(given), values.tensors_of(made)
            transposed = any(values.flags.get(index, False) for index in given)
            taps = self._taps(values, given, call.at) if slides_window(name) else 0
            flops = operator_flops(name, inputs, outputs, transposed=transposed, taps=taps)
            moved = bytes_of_operator(name, inputs, outputs)
            return Instruction(
                chain, number, "operator", name, -1, inputs, outputs, flops, moved,
                values.ids_of(given), values.ids_of(made), values.permutation(name, given),
            )  # fmt: skip
        if kind == _DELEGATE:
            delegate = self._pick(delegates, call, "a delegate")
            arguments = call.ints(1, "i32", "a delegate's arguments")
            made_from = max(len(arguments) - delegate.output_count, 0)
            given, made = arguments[:made_from], arguments[made_from:]
            inputs, outputs = values.tensors_of(given), values.tensors_of(made)
            flops = sum(node.flops for node in delegate.nodes)
            moved = sum(node.bytes_moved for node in delegate.nodes)
            name, index = delegate.backend, delegate.index
            return Instruction(
                chain, number, "delegate", name, index, inputs, outputs, flops, moved, given, made
            )
        if kind not in _BOOKKEEPING:
            raise self.buffer.damaged(f"an instruction is of the unknown kind {kind}", entry.at)
        step = _BOOKKEEPING[kind]
        read = (call.scalar(0, "i32"),)
        written = (call.scalar(1, "i32"),) if step == "move" else ()
        return Instruction(chain, number, step, step, -1, (), (), 0, 0, read, written)

    def _taps(self, values: _Values, given: tuple[int, ...], at: int) -> int:
        """The size of a pooling's window; a single number means a square."""
        window = next((values.number_lists[index] for index in given if index in values.number_lists), ())
        sides = [values.numbers.get(index, 0) for index in window]
        if len(sides) not in (1, 2) or not all(0 < side < _LONGEST_WINDOW for side in sides):
            raise self.buffer.damaged("a pooling has an impossible window", at)
        return math.prod(sides) if len(sides) == 2 else sides[0] ** 2

    def _pick(self, pool: Sequence[Item], call: FlatTable, what: str) -> Item:
        number = call.scalar(0, "i32")
        if not 0 <= number < len(pool):
            raise self.buffer.damaged(f"an instruction calls {what} that does not exist", call.at)
        return pool[number]


def _state(instructions: Sequence[Instruction], values: _Values, taken: Sequence[int]) -> Iterator[State]:
    """What is read before anything of the same execution has written it."""
    known = {*taken, *(index for index, each in values.tensors.items() if each.constant)}
    for step in instructions:
        for number in step.input_ids:
            if number not in known and number in values.planned:
                yield State(values.tensors[number], *values.planned[number])
            known.add(number)
        known.update(step.output_ids)
