"""A delegate explains itself: one more in the table is read, aligned and categorised like those that ship."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from said import says, says_together
from strategies import Block, Dump, ProfileEvent, graph

from model_profiling.analysis.sources import ProgramView
from model_profiling.analysis.summary import DumpAnalysis, analyse_dump
from model_profiling.etdump import read_etdump
from model_profiling.program import GraphNode, Program, read_program
from model_profiling.program import delegates as room
from model_profiling.program.category import Category, OperatorClass
from model_profiling.program.delegates.protocol import Backend, Graph, Payload
from model_profiling.run import Series, run
from model_profiling.validation.structure import same_program

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
    """One of its events is of a type that its node is not."""

    def describe(self, event: str, node: GraphNode | None = None) -> OperatorClass:
        return replace(super().describe(event, node), dtype="wax4" if event == "glow 0" else "")


class ForeignLantern(Lantern):
    """All of its events are."""

    def describe(self, event: str, node: GraphNode | None = None) -> OperatorClass:
        return replace(super().describe(event, node), dtype="wax4" if event.startswith("glow") else "")


def analysed(program: Program | None) -> DumpAnalysis:
    """A dump of one call, whose delegate logged `EVENTS`."""
    logged = [
        ProfileEvent(None, 0, 0, -1, name, None, 10 * at, 10 * at + 9) for at, name in enumerate(EVENTS, 1)
    ]
    call = ProfileEvent("DELEGATE_CALL", 0, 0, -1, None, None, 5, 90)
    execute = ProfileEvent("Method::execute", -1, -1, -1, None, None, 0, 100)
    block = Block("Execute", -1, (), (*logged, call, execute))
    table = read_etdump(Dump((block,), write_defaults=False, size_prefixed=False).to_bytes())
    dump = run.Dump(Path("lantern.etdump"), Series("lantern"))
    return analyse_dump(table, dump, view=ProgramView(program))


def lit() -> Program:
    return read_program(PTE.read_bytes().replace(b"XnnpackBackend", NAME.encode()))


def test_another_delegate_is_one_more_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "BACKENDS", (*room.BACKENDS, Lantern()))
    dump = analysed(lit())
    assert dump.misfits == ()
    (remark,) = dump.warnings
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
    assert dump.unknown_names == ("flicker",)
    assert {one.backend for one in analysed(None).operators} == {NAME}, "its names are its own"


def test_an_operator_of_another_type_than_its_node_costs_the_others_nothing(monkeypatch):
    monkeypatch.setattr(room, "BACKENDS", (*room.BACKENDS, FadedLantern()))
    dump = analysed(lit())
    assert dump.misfits == (), "one operator proves nothing about the file"
    assert [one.source.node_index for one in dump.operators] == [2, 3, -1, 1, -1]
    assert [one.source.unplaced for one in dump.operators] == [False, False, True, False, True]
    (remark,) = dump.warnings
    assert remark.code == "unplaced"
    says(remark.said, "2 of 5 operators", "(glow 0 and flicker)")
    check = same_program(SimpleNamespace(whole_dumps=[dump]))
    assert check.status == "pass"


def test_a_delegate_proves_that_its_graph_did_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "BACKENDS", (*room.BACKENDS, ForeignLantern()))
    dump = analysed(lit())
    (misfit,) = dump.misfits
    says_together(misfit, "glow 2", "wax4", "fp32", "3 operators")
    assert tuple(found.seen for found in dump.warnings) == dump.misfits
    assert {one.source.node_index for one in dump.operators} == {-1}
    check = same_program(SimpleNamespace(whole_dumps=[dump]))
    assert check.status == "fail" and dump.misfits[0] in check.found
    assert dump.operators[0].category is Category.GEMM, "its name still says so"


def test_a_delegate_without_a_folder_stays_closed() -> None:
    program = lit()
    assert {delegate.nodes for delegate in program.methods[0].delegates} == {()}
    twice = replace(program, methods=(*program.methods, replace(program.methods[0], name="again")))
    for one in (program, twice):
        dump = analysed(one)
        assert {op.category for op in dump.operators} == {Category.OTHER}
        assert {op.backend for op in dump.operators} == {NAME}
        assert dump.unknown_names == tuple(sorted(EVENTS))
        assert dump.misfits == ()
    assert {one.backend for one in analysed(None).operators} == {"delegate"}
