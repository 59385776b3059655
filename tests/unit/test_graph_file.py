"""The copy of a program's graph that a run keeps: whole by itself, and no larger than it must be."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from said import refused, says
from test_program_etrecord import GRAPH, graph, node, record

from model_profiling.core import files
from model_profiling.core.errors import FormatError
from model_profiling.program.graph_file import (
    ProgramGraph,
    make_graph,
    read_graph_file,
    record_beside,
    write_graph_file,
)
from model_profiling.run.manifest import Manifest
from model_profiling.run.programs import Programs

PTE = Path(__file__).resolve().parents[1] / "data" / "etdump" / "three_delegates.pte"
# Of its debug handles 1 and 6 are convolutions in delegates; instruction 1 runs outside of them.
CONV, ERF, NOBODYS = 1, 40, 50


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program beside its record, whose convolution was written in line 4 of a file that is still there."""
    source = tmp_path / "net.py"
    source.write_text("".join(f"line {number}\n" for number in range(1, 10)))
    trace = f'File "{source}", line 4, in forward\n    line 4'
    gone = f'File "{tmp_path / "gone.py"}", line 1, in forward\n    erf(x)'
    nodes = (node("conv", CONV, stack_trace=trace), node("erf", ERF, stack_trace=gone), node("x", NOBODYS))
    pte = tmp_path / "artifacts" / "three.pte"
    pte.parent.mkdir()
    shutil.copy(PTE, pte)
    content = record({GRAPH: graph(*nodes), "debug_handle_map": f'{{"forward": {{"1": [{ERF}]}}}}'})
    Path(f"{pte}.etrecord").write_bytes(content)
    return pte


def made(program: Path) -> ProgramGraph:
    return make_graph(program, record_beside(program))


def test_a_graph_comes_back_as_it_was(program: Path, tmp_path: Path) -> None:
    kept = made(program)
    write_graph_file(tmp_path / "run" / "program_graph.json", kept)
    assert read_graph_file(tmp_path / "run" / "program_graph.json") == kept
    assert kept.sha256 == files.sha256(program)
    assert make_graph(program, None).record is None
    (tmp_path / "run" / "program_graph.json").write_text('{"schema_version": 1}')
    with refused(FormatError, "program_graph.json: program", fix="--model"):
        read_graph_file(tmp_path / "run" / "program_graph.json")


def test_why_operators_are_outside_is_taken_from_beside_the_program(program: Path) -> None:
    summary = Path(f"{program}.json")
    assert made(program).undelegated is None, "exported elsewhere"
    left = {
        "operator": "aten.erf.default", "node": "erf", "module_path": "act", "why": "no rule",
        "reason": "the backend has no rule", "method": "forward", "instruction": 1,
    }  # fmt: skip
    own = {"sha256": files.sha256(program), "coverage": {"undelegated": [left]}}
    summary.write_text(json.dumps(own))
    graph = made(program)
    why = graph.why_outside("forward", 1)
    assert why is not None and why.reason == left["reason"] and "nothing" in why.remedy
    assert graph.why_outside("forward", 0) is None and graph.why_outside("other", 1) is None
    everything_taken = {**own, "coverage": {"undelegated": []}}
    for content, known in (
        (everything_taken, ()),
        ({**own, "sha256": "another program's"}, None),
        ({**own, "coverage": {"undelegated": [{**left, "instruction": -1}]}}, None),
        ({**own, "coverage": {"undelegated": [{"operator": 3}]}}, None),
        ({"sha256": own["sha256"]}, None),
    ):
        summary.write_text(json.dumps(content))
        assert made(program).undelegated == known
    summary.write_text("{")
    assert made(program).undelegated is None


def test_only_what_operators_refer_to_is_kept(program: Path) -> None:
    kept = made(program).record
    assert kept is not None and set(kept.sources["forward"]) == {CONV, ERF}
    assert [ref.node for ref in kept.refs_of_instruction("forward", 1)] == ["erf"]


def test_source_lines_are_kept_with_their_neighbours(program: Path, tmp_path: Path) -> None:
    assert made(program).excerpts == {
        f"{tmp_path / 'net.py'}:4": tuple(f"line {number}" for number in range(2, 7))
    }, "a source that is not here has no excerpt, only the line that the record holds"
    (tmp_path / "net.py").write_text("x" * 5000)
    assert made(program).excerpts == {f"{tmp_path / 'net.py'}:4": ()}
    (tmp_path / "net.py").unlink()
    assert made(program).excerpts == {}


def test_a_record_is_found_under_either_name(program: Path) -> None:
    assert record_beside(program) == Path(f"{program}.etrecord")
    Path(f"{program}.etrecord").rename(program.with_suffix(".etrecord"))
    assert record_beside(program) == program.with_suffix(".etrecord")
    program.with_suffix(".etrecord").unlink()
    assert record_beside(program) is None


def test_a_moved_run_explains_itself_without_its_program(program: Path, tmp_path: Path) -> None:
    kept, run_dir = made(program), tmp_path / "moved" / "linux"
    write_graph_file(run_dir / "program_graph.json", kept)
    shutil.rmtree(program.parent)
    manifest = Manifest(model=str(program), model_sha256=kept.sha256, results=())
    programs = Programs(run_dir, manifest)
    assert programs.explaining(run_dir / "on" / "three_on_t1.etdump") == kept and not programs.warnings


def test_a_program_with_another_content_explains_nothing(program: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "runs" / "linux"
    manifest = Manifest(model=str(program), model_sha256=files.sha256(program), results=())
    dump = run_dir / "on" / "three_on_t1.etdump"
    found = Programs(run_dir, manifest).explaining(dump)
    assert found is not None and found.program.source == str(program)
    programs = Programs(run_dir, replace(manifest, model_sha256="bb"))
    assert programs.explaining(dump) is None
    (warning,) = programs.warnings
    says(warning.seen, program, "not the program")
    assert Programs(run_dir, replace(manifest, model_sha256="bb"), program).explaining(dump) is not None, (
        "a program that the user names is taken as named"
    )


def test_a_program_that_moved_along_with_its_run_is_found_by_its_name(program: Path, tmp_path: Path) -> None:
    out = tmp_path / "elsewhere" / "out_three"
    shutil.copytree(program.parent, out / "artifacts")
    manifest = Manifest(
        model=str(tmp_path / "lost" / "three.pte"), model_sha256=files.sha256(program), results=()
    )
    found = Programs(out / "runs" / "linux", manifest).explaining(out / "runs" / "linux" / "a.etdump")
    assert found is not None and found.program.source == str(out / "artifacts" / "three.pte")
