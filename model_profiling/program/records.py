"""The parts of a lowered program: methods, instructions, delegates and their operators."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from model_profiling.core.flatbuffer import FlatBuffer, FlatTable

INSERTED_HANDLE = 65535
"""The debug handle of nodes that lowering inserted; they are not in the model."""

_BITS = {
    "fp64": 64, "fp32": 32, "fp16": 16, "bf16": 16,
    "int64": 64, "int32": 32, "int16": 16, "int8": 8, "uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64,
    "bool": 8, "qint8": 8, "quint8": 8, "qint32": 32, "qcint8": 8, "qcint32": 32, "qcint4": 4, "qdint8": 8,
    "qbint4": 4, "qpint8": 8, "pfp32": 32, "bits16": 16, "quint4x2": 8, "quint2x4": 8,
    "fp8e5m2": 8, "fp8e4m3fn": 8, "fp8e5m2fnuz": 8, "fp8e4m3fnuz": 8,
}  # fmt: skip


_WORDS = {
    **dict.fromkeys(("qint8", "quint8", "qcint8", "qpint8"), "int8"),
    "qdint8": "int8 dynamic",
    **dict.fromkeys(("qint32", "qcint32"), "int32"),
    **dict.fromkeys(("qcint4", "qbint4"), "int4"),
    "pfp32": "fp32",
}


def dtype_in_words(dtype: str) -> str:
    """The precision of a type, however it is scaled or packed: `qcint8` is `int8`."""
    return _WORDS.get(dtype, dtype)


@dataclass(frozen=True, slots=True)
class Tensor:
    """Shape and type of a tensor; a dynamic shape is given by its upper bound. Quantized types: qint8 quint8
    qint32 (one scale), qcint8 qcint32 qcint4 (a scale per channel), qdint8 (scaled at run time), qbint4 (a
    scale per block)."""

    shape: tuple[int, ...]
    dtype: str
    constant: bool = False
    """Whether it is stored in the program (a weight, a bias), not computed."""

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return (self.elements * _BITS.get(self.dtype, 0) + 7) // 8


@dataclass(frozen=True, slots=True)
class Window:
    """The geometry of a convolution or pooling; each pair is (height, width)."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int, int, int]
    """Top, right, bottom, left."""
    groups: int = 1
    group_input_channels: int = 0
    group_output_channels: int = 0


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One node of a delegate's graph, in the order the backend gets them."""

    index: int
    kind: str
    """The backend's name for what it does: Conv2d, FullyConnected, StaticTranspose ..."""
    debug_handle: int
    inputs: tuple[Tensor, ...]
    """Activations first, then filter and bias."""
    outputs: tuple[Tensor, ...]
    input_ids: tuple[int, ...]
    """Value ids, to follow data from node to node."""
    output_ids: tuple[int, ...]
    window: Window | None
    clamp: tuple[float | None, float | None] | None
    """The (min, max) fused onto the output, if it limits anything; None means no limit on that side."""
    permutation: tuple[int, ...]
    flops: int
    """Floating or integer operations of one execution; a multiply and an add count as two."""
    bytes_moved: int
    """Bytes of every input, weight and output, each counted once."""

    @property
    def inserted(self) -> bool:
        """Whether lowering inserted it; it stands for nothing in the model."""
        return self.debug_handle == INSERTED_HANDLE

    @property
    def types(self) -> tuple[str, ...]:
        """The types of its first two inputs (the second is a layer's weights) and of its result."""
        return tuple(each.dtype for each in (*self.inputs[:2], *self.outputs[:1]))

    @property
    def dtype(self) -> str:
        """The type it computes in: that of its first input."""
        return self.inputs[0].dtype if self.inputs else self.outputs[0].dtype if self.outputs else ""


@dataclass(frozen=True, slots=True)
class Delegate:
    """A part of a method that a backend runs; `nodes` is empty if the kit does not know the backend."""

    index: int
    backend: str
    nbytes: int
    nodes: tuple[GraphNode, ...]
    output_count: int
    """How many tensors it returns; 0 if its payload is not understood."""
    arguments: tuple[tuple[int, int], ...] = ()
    """Positions among the arguments of a call, each with its value id in the graph."""


class OperatorKey(NamedTuple):
    """The place of an operator in a program: its name changes with its kernel, its place does not."""

    method: str
    chain_index: int
    instruction_id: int
    occurrence: int
    """How many earlier calls of the instruction the run has (loops repeat instructions)."""
    node: int
    """Position in the delegate's graph; -1 outside delegates and if no graph is known."""

    @property
    def call(self) -> tuple[str, int, int, int]:
        return self[:4]

    @property
    def in_program(self) -> OperatorKey:
        """The same key for every repetition in a loop."""
        return self._replace(occurrence=0)


InstructionKind = Literal["operator", "delegate", "move", "jump", "free"]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step of a method; an ETDump refers to it by (chain_index, instruction_id)."""

    chain_index: int
    instruction_id: int
    kind: InstructionKind
    name: str
    """For an operator `aten::add.out`; for a delegate its backend's name; otherwise the kind."""
    delegate: int
    """Index into `Method.delegates`, -1 for anything else."""
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    flops: int
    """For a delegate, the sum over its nodes."""
    bytes_moved: int
    input_ids: tuple[int, ...] = ()
    """Ids of its inputs in order: tensors, and numbers that another instruction computes."""
    output_ids: tuple[int, ...] = ()
    """Ids of what it writes; for a delegate, its last arguments."""
    permutation: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """A tensor that a method reads before it writes it (a cache), and its place in planned memory."""

    tensor: Tensor
    buffer: int
    offset: int


@dataclass(frozen=True, slots=True)
class Method:
    """One entry point of a program."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    instructions: tuple[Instruction, ...]
    delegates: tuple[Delegate, ...]
    input_ids: tuple[int, ...] = ()
    """Value ids of `inputs` and of numbers given with them."""
    output_ids: tuple[int, ...] = ()
    constant_ids: tuple[int, ...] = ()
    """Value ids of tensors stored in the program that nothing can write to."""
    input_numbers: tuple[int, ...] = ()
    """The place of each of `inputs` among all inputs of the method."""
    variable: tuple[bool, ...] = ()
    """Whether each of `inputs` may be smaller than its shape, which is an upper bound then."""
    state: tuple[State, ...] = ()
    """What it keeps from one execution to the next."""
    arenas: tuple[int, ...] = ()
    """Bytes of each planned buffer."""
    planned: tuple[tuple[int, int], ...] = ()
    """The value id and the bytes of each tensor in planned memory."""
    returns: int | None = None
    """The number that it returns without computing anything: a fact about the program."""

    def instruction(self, chain_index: int, instruction_id: int) -> Instruction | None:
        wanted = (chain_index, instruction_id)
        return next((s for s in self.instructions if (s.chain_index, s.instruction_id) == wanted), None)

    @property
    def operators(self) -> tuple[Instruction, ...]:
        """The instructions outside delegates."""
        return tuple(step for step in self.instructions if step.kind == "operator")


@dataclass(frozen=True, slots=True)
class Program:
    source: str
    version: int
    methods: tuple[Method, ...]

    def method(self, name: str) -> Method | None:
        return next((method for method in self.methods if method.name == name), None)

    def fact(self, name: str) -> int | None:
        """The number that the method `name` returns without computing anything: `get_max_seq_len`."""
        method = self.method(name)
        return method.returns if method else None

    @property
    def computing(self) -> tuple[str, ...]:
        """Names of the methods that compute something; others only return a stored fact."""
        does = ("operator", "delegate")
        return tuple(
            method.name for method in self.methods if any(step.kind in does for step in method.instructions)
        )


@dataclass(frozen=True, slots=True)
class SourceRef:
    """Where in the model an operator comes from; unknown fields are empty."""

    debug_handle: int = -1
    node: str = ""
    """Name of the node in the exported graph: `aten_convolution_default_3`."""
    target: str = ""
    module_path: str = ""
    """`features.0.0`; empty for the model itself."""
    module_class: str = ""
    file: str = ""
    line: int = 0
    code: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    call: str = ""
    """The torch function that the model called: `scaled_dot_product_attention`."""

    @property
    def source_line(self) -> str:
        """`/folder/model.py:12`; empty if the record names no line."""
        return f"{self.file}:{self.line}" if self.file and self.line else ""

    @property
    def short_line(self) -> str:
        """`model.py:12`; empty if the record names no line."""
        return self.source_line.replace("\\", "/").rpartition("/")[2]

    @property
    def layer(self) -> str:
        """`Conv2d "features.0"`; empty for the model itself."""
        kind = self.module_class.rpartition(".")[2]
        return f'{kind} "{self.module_path}"' if kind and self.module_path else self.module_path


@dataclass(frozen=True, slots=True)
class LayerNoise:
    """What a number format adds to a layer's results, in decibels: 20 is a tenth of them, 40 a hundredth."""

    path: str
    kind: str
    line: str
    own_db: float
    """With inputs as they are in float32."""
    db: float
    """With inputs as they are in the program."""


@dataclass(frozen=True, slots=True)
class Kept:
    """An export with these layers in float32, and how far the program's outputs are from float32."""

    layers: tuple[str, ...]
    snr_db: float


@dataclass(frozen=True, slots=True)
class NoiseByLayer:
    """Signal-to-noise of each layer of a program against PyTorch in float32, in the order of the graph."""

    layers: tuple[LayerNoise, ...]
    inputs: int
    """How many inputs were compared."""
    kept: tuple[Kept, ...]
    """The program as it is, then with more and more of the worst layers in float32: each was exported."""

    @property
    def worst(self) -> tuple[LayerNoise, ...]:
        """The layers by their own noise."""
        return tuple(sorted(self.layers, key=lambda layer: layer.own_db))

    @property
    def first(self) -> LayerNoise | None:
        """The first layer whose results are noise by more than a tenth."""
        return next((layer for layer in self.layers if layer.db < _NOISY_DB), None)

    @property
    def suggested(self) -> Kept | None:
        """The smallest set that brings nearly all that was found; None if no set brings much."""
        if not self.kept:
            return None
        best = max(kept.snr_db for kept in self.kept)
        if best < self.kept[0].snr_db + _MUCH_DB:
            return None
        enough = self.kept[0].snr_db + _NEARLY_ALL * (best - self.kept[0].snr_db)
        return next(kept for kept in self.kept if kept.snr_db >= enough)


_NOISY_DB = 20.0
_MUCH_DB = 3.0
_NEARLY_ALL = 0.8
"""Of the decibels that the best set gains: each further layer in float32 gains some."""


@dataclass(frozen=True, slots=True)
class EtRecord:
    """What an .etrecord says about each method."""

    source: str
    sources: Mapping[str, Mapping[int, SourceRef]]
    """Method name -> debug handle -> where it comes from."""
    handles: Mapping[str, Mapping[int, tuple[int, ...]]]
    """Method name -> instruction id -> debug handles of everything that instruction computes."""
    inputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Method name -> names of its inputs."""

    def ref(self, method: str, debug_handle: int) -> SourceRef | None:
        return self.sources.get(method, {}).get(debug_handle)

    def refs_of_instruction(self, method: str, instruction_id: int) -> tuple[SourceRef, ...]:
        """The sources of an operator outside delegates (usually one) or of a whole delegate call."""
        handles = self.handles.get(method, {}).get(instruction_id, ())
        return tuple(ref for handle in handles if (ref := self.ref(method, handle)))


_MOST_DIMENSIONS = 16
_MOST_ELEMENTS = 1 << 48


def tensor(
    buffer: FlatBuffer, entry: FlatTable, field: int, kind: str, dtype: str, *, constant: bool
) -> Tensor:
    """A tensor whose sizes are the vector in `field` of `entry`."""
    shape = entry.ints(field, kind, "a tensor's shape")
    if len(shape) > _MOST_DIMENSIONS:
        raise buffer.damaged(f"a tensor has {len(shape)} dimensions", entry.at)
    if any(size < 0 for size in shape) or math.prod(shape) > _MOST_ELEMENTS:
        raise buffer.damaged("a tensor has an impossible shape", entry.at)
    return Tensor(shape=shape, dtype=dtype, constant=constant)
