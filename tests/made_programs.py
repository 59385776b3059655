"""Programs written by hand, step by step, with a dump of one run of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from strategies import dump_of_calls

from model_profiling.analysis.operators import analyse_dump
from model_profiling.analysis.series import SeriesAnalysis, series_of
from model_profiling.config.series import Series
from model_profiling.etdump import read_etdump
from model_profiling.program.graph_file import ProgramGraph, Undelegated
from model_profiling.program.records import (
    INSERTED_HANDLE,
    Delegate,
    EtRecord,
    GraphNode,
    Instruction,
    Method,
    Program,
    SourceRef,
    Tensor,
    Window,
)
from model_profiling.runs import Times, run

Shape = tuple[int, ...]


@dataclass
class MadeModel:
    """A method that grows by one step at a time; every step is given a value and gives one, by number."""

    tensors: dict[int, Tensor] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    delegates: list[Delegate] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    calls: list[tuple[str, list[tuple[str, int]]]] = field(default_factory=list)
    refs: dict[int, SourceRef] = field(default_factory=dict)
    handles: dict[int, tuple[int, ...]] = field(default_factory=dict)
    undelegated: tuple[Undelegated, ...] | None = None

    def value(self, shape: Shape, dtype: str = "fp32", *, constant: bool = False) -> int:
        self.tensors[len(self.tensors)] = Tensor(shape, dtype, constant)
        return len(self.tensors) - 1

    def given(self, shape: Shape) -> int:
        self.inputs.append(self.value(shape))
        return self.inputs[-1]

    def stored(self, shape: Shape) -> int:
        return self.value(shape, constant=True)

    def place(
        self, module: str, line: int, target: str = "", code: str = "", kind: str = "", call: str = ""
    ) -> int:
        handle = len(self.refs) + 1
        about = {"target": target, "module_path": module, "module_class": kind, "code": code, "call": call}
        self.refs[handle] = SourceRef(handle, file="/home/user/net.py", line=line, **about)
        return handle

    def operator(
        self,
        name: str,
        reads: list[int],
        shape: Shape,
        us: int = 10,
        *,
        handle: int = 0,
        permutation: Shape = (),
    ) -> int:
        made = self.value(shape)
        number = len(self.instructions)
        inputs, outputs = tuple(self.tensors[each] for each in reads), (self.tensors[made],)
        moved = sum(each.nbytes for each in (*inputs, *outputs))
        tensors = inputs, outputs, 0, moved, tuple(reads), (made,), permutation
        self.instructions.append(Instruction(0, number, "operator", name, -1, *tensors))
        self.handles[number] = (handle or self.place("", number + 1),)
        self.calls.append(("OPERATOR_CALL", [(f"native_call_{name.partition('::')[2]}", us)]))
        return made

    def jump(self, condition: int) -> None:
        number = len(self.instructions)
        self.instructions.append(Instruction(0, number, "jump", "jump", -1, (), (), 0, 0, (condition,)))
        self.calls.append(("JF_CALL", []))

    def delegate(self) -> MadeDelegate:
        return MadeDelegate(self)

    def series(self, times: Times = Times.HARDWARE) -> SeriesAnalysis:
        """One run of it, a microsecond around each call."""
        constants = tuple(number for number, tensor in self.tensors.items() if tensor.constant)
        used = {number for step in self.instructions for number in (*step.input_ids, *step.output_ids)}
        method = Method(
            "forward",
            tuple(self.tensors[each] for each in self.inputs),
            tuple(self.tensors[each] for each in self.outputs),
            tuple(self.instructions),
            tuple(self.delegates),
            tuple(self.inputs),
            tuple(self.outputs),
            tuple(number for number in constants if number in used),
        )
        record = EtRecord("made.etrecord", {"forward": self.refs}, {"forward": self.handles})
        graph = ProgramGraph(Program("made.pte", 0, (method,)), record, undelegated=self.undelegated)
        dump = run.Dump(Path("made.etdump"), Series("made", 1), times)
        return series_of([analyse_dump(read_etdump(dump_of_calls(self.calls)), dump, graph)])


@dataclass
class MadeDelegate:
    """A delegate of XNNPACK whose graph grows by one node at a time, each with its event; values of the
    method that its nodes use become arguments of its call."""

    model: MadeModel
    nodes: list[GraphNode] = field(default_factory=list)
    events: list[tuple[str, int]] = field(default_factory=list)
    own: set[int] = field(default_factory=set)

    def node(
        self,
        kind: str,
        reads: list[int],
        shape: Shape,
        event: str,
        us: int = 100,
        *,
        dtype: str = "fp32",
        handle: int = 0,
        permutation: Shape = (),
        window: Window | None = None,
        flops: int = 0,
        packed: int | None = None,
    ) -> int:
        """`handle` 0 is a place of its own, INSERTED_HANDLE one that lowering added; `packed` is what
        packing its input takes."""
        made = self.model.value(shape, dtype)
        self.own.add(made)
        inputs, outputs = tuple(self.model.tensors[each] for each in reads), (self.model.tensors[made],)
        self.nodes.append(
            GraphNode(
                len(self.nodes), kind, handle or self.model.place("", 100 + len(self.nodes)), inputs, outputs,
                tuple(reads), (made,), window, None, permutation, flops,
                sum(each.nbytes for each in (*inputs, *outputs)),
            )
        )  # fmt: skip
        if packed is not None:
            self.events.append(("Pack LH (X32)", packed))
        self.events.append((event, us))
        return made

    def transpose(self, read: int, permutation: Shape, us: int = 100, *, handle: int = 0) -> int:
        shape = self.model.tensors[read].shape
        to = tuple(shape[axis] for axis in permutation)
        return self.node(
            "StaticTranspose", [read], to, "Transpose (ND, X32)", us, handle=handle, permutation=permutation
        )

    def inserted(self, read: int, permutation: Shape, us: int = 100) -> int:
        return self.transpose(read, permutation, us, handle=INSERTED_HANDLE)

    def done(self, *returned: int) -> None:
        """Call it; it hands back `returned`."""
        model, number = self.model, len(self.model.instructions)
        read = dict.fromkeys(value for node in self.nodes for value in node.input_ids)
        constants = {value for value in read if model.tensors[value].constant}
        given = tuple(value for value in read if value not in self.own and value not in constants)
        arguments = (*given, *returned)
        model.delegates.append(
            Delegate(
                len(model.delegates), "XnnpackBackend", 0, tuple(self.nodes), len(returned),
                tuple(enumerate(arguments)),
            )
        )  # fmt: skip
        model.instructions.append(
            Instruction(
                0, number, "delegate", "XnnpackBackend", len(model.delegates) - 1,
                tuple(model.tensors[each] for each in given), tuple(model.tensors[each] for each in returned),
                0, 0, given, returned,
            )
        )  # fmt: skip
        counters: dict[str, int] = {}
        named = []
        for name, us in self.events:
            counters[name] = counters.get(name, 0) + 1
            named.append((f"{name} #{counters[name]}", us))
        model.calls.append(("DELEGATE_CALL", named))
