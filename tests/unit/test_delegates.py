"""Delegates explain themselves; which program a dump can be of, and what fits nowhere."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from said import says, says_together
from strategies import Block, Dump, ProfileEvent, graph

from model_profiling.analysis.operators import DumpAnalysis, analyse_dump
from model_profiling.analysis.series import series_of
from model_profiling.analysis.sources import ProgramView
from model_profiling.config.series import Series
from model_profiling.etdump import read_etdump
from model_profiling.program import delegates as room
from model_profiling.program.category import Category, OperatorClass, bytes_of_operator
from model_profiling.program.delegates.protocol import Backend, Graph, Payload
from model_profiling.program.pte import read_program
from model_profiling.program.records import Delegate, GraphNode, Instruction, Method, Program, Tensor
from model_profiling.runs import Times, run

PTE = Path(__file__).resolve().parents[1] / "data" / "etdump" / "three_delegates.pte"
NAME = "LanternBackend"
EVENTS = ("glow 2", "trim 3", "glow 0", "glow 1", "flicker")


class Lantern(Backend):
    """Its nodes are the letters after its payload's first word; its events say which of them they are."""

    name = NAME

    def read_graph(self, payload: Payload, source: str, origin: int) -> Graph:
        assert source and origin > 0
        letters = payload[4:8].tobytes().decode()
        return Graph(tuple(replace(node, flops=7) for node in graph(*letters)), output_count=1)

    def align(self, nodes: Sequence[GraphNode], events: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        assert [node.kind for node in nodes] == ["X", "H", "0", "0"]
        return tuple(tuple(int(digit) for digit in event if digit.isdigit()) for event in events)

    def describe(self, event: str, node: GraphNode | None = None) -> OperatorClass:
        verb, _, _ = event.partition(" ")
        kind = f"{verb} {node.kind}" if node else verb
        if verb == "trim":
            return OperatorClass(Category.DATA_MOVEMENT, kind, preparation=True)
        if verb == "glow":
            return OperatorClass(Category.GEMM, kind, family="WAX")
        return super().describe(event, node)


class FadedLantern(Lantern):
    """Those of its events that begin so are of a type that their node is not."""

    def __init__(self, faded: str) -> None:
        self.faded = faded

    def describe(self, event: str, node: GraphNode | None = None) -> OperatorClass:
        return replace(super().describe(event, node), dtype="wax4" if event.startswith(self.faded) else "")


def analysed(program: Program | None) -> DumpAnalysis:
    """A dump of one call, whose delegate logged `EVENTS`."""
    return analysed_calls(program, EVENTS, kernel="")


def lit() -> Program:
    return read_program(PTE.read_bytes().replace(b"XnnpackBackend", NAME.encode()))


def test_another_delegate_is_one_more_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "BACKENDS", (*room.BACKENDS, Lantern()))
    dump = analysed(lit())
    assert dump.misfits == ()
    (remark,) = series_of([dump]).warnings
    assert remark.code == "unplaced"
    says(remark.seen, "1 of 5 operators", "(flicker)")
    found = [(one.name, one.category, one.kind, one.source.node_index, one.origin) for one in dump.operators]
    assert found[:4] == [
        ("glow 2", Category.GEMM, "glow 0", 2, "model"),
        ("trim 3", Category.DATA_MOVEMENT, "trim 0", 3, "backend"),
        ("glow 0", Category.GEMM, "glow X", 0, "model"),
        ("glow 1", Category.GEMM, "glow H", 1, "model"),
    ]
    assert {one.backend for one in dump.operators} == {NAME}
    assert [one.source.flops for one in dump.operators] == [7, None, 7, 7, None]
    assert [one.type for one in dump.operators if not one.known] == ["flicker"]
    assert {one.backend for one in analysed(None).operators} == {NAME}, "its names are its own"


def test_operators_that_fit_nowhere_or_are_of_another_type_cost_themselves_alone(monkeypatch) -> None:
    monkeypatch.setattr(room, "BACKENDS", (*room.BACKENDS, FadedLantern("glow 0")))
    dump = analysed(lit())
    assert dump.misfits == (), "one operator proves nothing about the file"
    assert [one.source.node_index for one in dump.operators] == [2, 3, -1, 1, -1]
    assert [one.source.unplaced for one in dump.operators] == [False, False, True, False, True]
    (remark,) = series_of([dump]).warnings
    assert remark.code == "unplaced"
    says(remark.said, "2 of 5 operators", "(glow 0 and flicker)")
    nodes = graph("Conv2d", "Add", "Conv2d", "Add")
    strangers = ["Teleport (ND)"] * 3
    dump = analysed_calls(program(nodes, nodes), [CONV, ADD, *strangers, CONV, ADD], [CONV, ADD, CONV, ADD])
    assert placed(dump) == [0, 1, -1, -1, -1, 2, 3, 0, 1, 2, 3]
    assert dump.misfits == ()
    (remark,) = series_of([dump]).warnings
    assert remark.code == "unplaced"
    says_together(remark.said, "3 of 11 operators", "27.3%", "Teleport (ND)")


def test_a_delegate_proves_that_its_graph_did_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "BACKENDS", (*room.BACKENDS, FadedLantern("glow")))
    dump = analysed(lit())
    (misfit,) = dump.misfits
    says_together(misfit, "glow 2", "wax4", "fp32", "3 operators")
    assert tuple(found.seen for found in dump.warnings) == dump.misfits
    assert {one.source.node_index for one in dump.operators} == {-1}
    assert dump.operators[0].category is Category.GEMM, "its name still says so"


def test_a_delegate_without_a_folder_stays_closed() -> None:
    program = lit()
    assert {delegate.nodes for delegate in program.methods[0].delegates} == {()}
    twice = replace(program, methods=(*program.methods, replace(program.methods[0], name="again")))
    for one in (program, twice):
        dump = analysed(one)
        assert {op.category for op in dump.operators} == {Category.OTHER}
        assert {op.backend for op in dump.operators} == {NAME}
        assert {op.type for op in dump.operators if not op.known} == set(EVENTS)
        assert dump.misfits == ()
    assert {one.backend for one in analysed(None).operators} == {"delegate"}


CONV, ADD, CLAMP = "Convolution (NHWC, F32) IGEMM", "Add (ND)", "Clamp (NC)"
RESNET = ["Conv2d+", "Conv2d", "Add+"] * 3
RESNET_EVENTS = [CONV, CONV, ADD, CLAMP] * 3


def program(*graphs: list[GraphNode], portable: str = "aten::mean.out") -> Program:
    """Delegate calls of these graphs, then one portable operator."""
    tensor = Tensor((1, 8), "fp32")
    steps = [Instruction(0, at, "delegate", "XnnpackBackend", at, (), (), 0, 0) for at in range(len(graphs))]
    steps.append(Instruction(0, len(graphs), "operator", portable, -1, (tensor,), (tensor,), 8, 64))
    delegates = [Delegate(at, "XnnpackBackend", 1, tuple(nodes), 1) for at, nodes in enumerate(graphs)]
    method = Method("forward", (), (), tuple(steps), tuple(delegates))
    return Program("made.pte", 0, (method,))


def analysed_calls(made, *calls, kernel="native_call_mean.out", proven=False):
    logged, now = [], 10
    for at, names in enumerate(calls):
        begin = now
        for name in names:
            logged.append(ProfileEvent(None, 0, at, -1, name, None, now, now + 1000))
            now += 1000
        logged.append(ProfileEvent("DELEGATE_CALL", 0, at, -1, None, None, begin, now))
    if kernel:
        logged.append(ProfileEvent(kernel, 0, len(calls), -1, None, None, now, now + 5))
        logged.append(ProfileEvent("OPERATOR_CALL", 0, len(calls), -1, None, None, now, now + 6))
    logged.append(ProfileEvent("Method::execute", -1, -1, -1, None, None, 0, now + 10))
    table = read_etdump(Dump((Block("Execute", -1, (), tuple(logged)),), False, False).to_bytes())
    dump = run.Dump(Path("made.etdump"), Series("made"), times=Times.HARDWARE)
    return analyse_dump(table, dump, view=ProgramView(made, proven=proven))


def placed(dump: DumpAnalysis) -> list[int]:
    return [operator.source.node_index for operator in dump.operators if operator.delegated]


def test_the_clamp_of_an_add_is_an_activation_at_its_place() -> None:
    nodes = [
        replace(node, flops=8, bytes_moved=96, outputs=(Tensor((1, 8), "fp32"),)) for node in graph(*RESNET)
    ]
    dump = analysed_calls(program(nodes), RESNET_EVENTS)
    assert dump.misfits == dump.warnings == ()
    assert placed(dump) == [0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8]
    add, clamp = dump.operators[2:4]
    for operator, kind, moved in ((add, "binary", 96), (clamp, "activation", 64)):
        assert (operator.category, operator.kind) == (Category.ELEMENTWISE, kind)
        assert (operator.source.flops, operator.source.bytes_moved) == (8, moved)
    assert clamp.origin == add.origin == "model" and clamp.source.debug_handle == add.source.debug_handle


def test_a_half_precision_program_may_run_in_fp32() -> None:
    tensors = (Tensor((1, 8), "fp16"),)
    nodes = [
        replace(node, flops=8, bytes_moved=32, inputs=tensors, outputs=tensors)
        for node in graph("Conv2d", "Add", dtype="fp16")
    ]
    dump = analysed_calls(program(nodes), ["Convert (NC)", CONV, ADD, "Convert (NC)"])
    assert dump.misfits == dump.warnings == ()
    assert placed(dump) == [0, 0, 1, 1]
    assert [one.origin for one in dump.operators[:4]] == ["backend", "model", "model", "backend"]
    assert [(one.source.dtype, one.precision) for one in dump.operators[1:3]] == [("fp16", "fp32")] * 2
    assert [(one.source.flops, one.source.bytes_moved) for one in dump.operators[1:3]] == [(8, 64)] * 2
    without = analysed_calls(program(nodes), [CONV, ADD])
    says_together(without.misfits[0], "fp32", "node", "fp16")  # nothing converted: an fp32 program ran


@pytest.mark.parametrize(
    ("nodes", "events", "proof"),
    [
        (graph(*["Conv2d", "Add"] * 9), [CONV, ADD] * 6, ("6 matrix operators", "9")),
        (graph(*["Conv2d", "Add"] * 6), [CONV, ADD] * 9, ("9 matrix operators", "6")),
        (graph(*["Hardswish"] * 4), [ADD] * 3 + ["HardSwish (NC)"], ("3 of 4 operators",)),
        (graph("Conv2d", "Conv2d", dtype="qint8"), [CONV, CONV], (CONV, "fp32", "qint8")),
    ],
)
def test_another_program_is_known_by_what_ran(nodes, events, proof):
    dump = analysed_calls(program(nodes), events)
    (misfit,) = dump.misfits
    says(misfit, "made.pte is not", *proof)
    assert set(placed(dump)) == {-1} and {one.source.flops for one in dump.operators} == {None}
    proven = analysed_calls(program(nodes), events, proven=True)
    says(proven.misfits[0], "dump was not", "made.pte", *proof)


def test_calls_and_kernels_that_a_program_does_not_have() -> None:
    nodes = graph("Conv2d", "Add")
    dump = analysed_calls(program(nodes), *[[CONV, ADD]] * 4)
    says(dump.misfits[0], "4 of the 5 calls")
    dump = analysed_calls(program(nodes, nodes, nodes), *[[CONV, ADD]] * 4)
    assert dump.misfits == () and placed(dump) == [0, 1] * 3 + [-1, -1]
    nodes = graph("Conv2d")
    assert analysed_calls(program(nodes), [CONV]).operators[-1].source.operator == "aten::mean.out"
    other = analysed_calls(program(nodes), [CONV], kernel="native_call_add.out")
    assert other.operators[-1].source.operator == "" and other.operators[0].source.node_index == 0


def test_a_table_counts_only_with_the_rows_that_are_taken() -> None:
    table, tokens = Tensor((30_000, 8), "float32", constant=True), Tensor((4,), "int64")
    rows = Tensor((4, 8), "float32")
    taken = bytes_of_operator("aten::embedding.out", (table, tokens), (rows,))
    assert taken == 2 * rows.nbytes + tokens.nbytes
    assert bytes_of_operator("aten::add.out", (rows, rows), (rows,)) == 3 * rows.nbytes
