"""ETRecords, what is refused unread, and the copy of a program's graph that a run keeps."""

import io
import json
import math
import pickle
import shutil
import struct
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from said import refused, says

from model_profiling.core import files
from model_profiling.core.errors import FormatError
from model_profiling.core.records import write_record
from model_profiling.program.etrecord import read_etrecord
from model_profiling.program.graph_file import (
    ProgramGraph,
    make_graph,
    read_graph_file,
    record_beside,
)
from model_profiling.runs.folders import Programs
from model_profiling.runs.manifest import Manifest

GRAPH = "edge_dialect_exported_program/forward"


def node(name: str, handle: int, target: str = "aten.relu.default", **meta: str) -> dict[str, object]:
    reads = meta.pop("reads", "x")
    return {
        "name": name,
        "target": f"executorch.exir.dialects.edge.ops.{target}",
        "inputs": [{"name": "input", "arg": {"as_tensor": {"name": reads}}}],
        "outputs": [{"as_tensor": {"name": name}}],
        "metadata": {"debug_handle": str(handle), **meta},
    }


def graph(*nodes: dict[str, object], tensors: dict[str, object] | None = None) -> str:
    return json.dumps({"graph_module": {"graph": {"nodes": nodes, "tensor_values": tensors or {}}}})


def record(content: dict[str, str | bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        archive.writestr("ETRECORD_V0", "")
        for name, data in content.items():
            archive.writestr(name, data)
    return stream.getvalue()


def test_a_handle_is_a_module_a_line_and_a_shape() -> None:
    trace = (
        'File "models/net.py", line 12, in forward\n    x = self.features(x)\n'
        '  File "lib/site-packages/torch/nn/modules/conv.py", line 565, in forward\n    return self._conv()'
    )
    stack = "L__self__,,net.Net;L__self__features,features,torch.nn.modules.container.Sequential;"
    stack += "L__self__features_0,features.0,torch.nn.modules.conv.Conv2d"
    tensors = {"conv": {"dtype": 6, "sizes": [{"as_int": 1}, {"as_int": 16}]}}
    called = "conv2d_1;builtin_function_or_method.conv2d"
    said = {"stack_trace": trace, "nn_module_stack": stack, "torch_fn": called}
    content = graph(node("conv", 4, "aten.convolution.default", **said), tensors=tensors)
    found = read_etrecord(record({GRAPH: content})).ref("forward", 4)
    assert found.module_path == "features.0"
    assert found.module_class == "torch.nn.modules.conv.Conv2d"
    assert (found.file, found.line, found.code) == ("models/net.py", 12, "x = self.features(x)")
    assert (found.shape, found.dtype) == ((1, 16), "fp16")
    assert (found.node, found.target) == ("conv", "aten.convolution.default")
    assert found.call == "conv2d"


def test_of_nodes_that_share_a_handle_the_operator_speaks_not_its_quantizing() -> None:
    quantize = "quantized_decomposed.quantize_per_tensor.default"
    content = graph(
        node("conv", 1, "aten.convolution.default", nn_module_stack="a,features.0,torch.Conv2d"),
        node("quantize", 1, quantize, reads="conv"),
        node("requantize", 2, quantize, reads="quantize"),
        node("input", 3, quantize, reads="image"),
        node("relu", 4, nn_module_stack="a,features.1,torch.ReLU", reads="input"),
    )
    sources = read_etrecord(record({GRAPH: content})).sources["forward"]
    assert sources[1].target == "aten.convolution.default"
    assert sources[2].module_path == "features.0", "it converts what that module made"
    assert sources[3].module_path == "features.1", "nobody made it, so it is converted for its user"


def test_instructions_lead_to_their_handles_also_of_an_unnamed_method() -> None:
    handles = json.dumps({"forward": {"0": [1, 2], "1": 3}})
    content = record({GRAPH: graph(node("a", 1), node("b", 2), node("c", 3)), "debug_handle_map": handles})
    found = read_etrecord(content)
    assert [ref.node for ref in found.refs_of_instruction("forward", 0)] == ["a", "b"]
    assert [ref.node for ref in found.refs_of_instruction("forward", 1)] == ["c"]
    assert found.refs_of_instruction("forward", 9) == () and found.ref("backward", 1) is None
    handles = json.dumps({"0": [1], "1": 2})
    content = {"edge_dialect_exported_program": graph(node("a", 1)), "debug_handle_map": handles}
    found = read_etrecord(record(content))
    assert found.handles == {"forward": {0: (1,), 1: (2,)}} and found.ref("forward", 1) is not None
    # A mask is filled with -inf, and PyTorch writes that as it is.
    masked = node("mask", 2, "aten.masked_fill.Scalar")
    masked["inputs"] = [{"name": "value", "arg": {"as_float": -math.inf}}, {"arg": {"as_float": math.nan}}]
    assert read_etrecord(record({GRAPH: graph(masked)})).ref("forward", 2) is not None


def test_nothing_is_unpickled_and_a_member_that_lies_takes_no_memory() -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (pytest.fail, ("a pickle was opened",))

    parts = {f"{GRAPH}_state_dict": pickle.dumps(Trap()), f"{GRAPH}_constants": pickle.dumps(Trap())}
    found = read_etrecord(record({GRAPH: graph(node("a", 1)), **parts}))
    assert list(found.sources) == ["forward"]
    bomb = bytearray(record({GRAPH: b" " * (40 * 2**20)}, zipfile.ZIP_DEFLATED))
    at = bomb.rindex(b"PK\1\2")
    for claimed, said in ((12, "damaged"), (2**31 - 1, "too large"), (2**32 - 1, "too large")):
        bomb[at + 24 : at + 28] = struct.pack("<I", claimed)
        tracemalloc.start()
        with refused(FormatError, said):
            read_etrecord(bytes(bomb))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 * 2**20


# Each bomb: what begins it, what is repeated how often, what ends it.
BOMBS = {
    "spaces": (b"", b" " * 2**20, 100, b""),
    "objects": (b"[", b'{"a":1},' * 2**17, 40, b"0]"),
    "brackets": (b"[", b"[]," * 2**20, 20, b"0]"),
    "nesting": (b"", b"[" * 2**20, 2, b""),
    "digits": (b'{"a":', b"9" * 2**20, 2, b"}"),
}


@pytest.mark.timeout(200)
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_member_that_unpacks_to_too_much_is_refused(bomb: str) -> None:
    begin, repeated, times, end = BOMBS[bomb]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("ETRECORD_V0", "")
        with archive.open(GRAPH, "w") as member:
            for part in (begin, *[repeated] * times, end):
                member.write(part)
    assert len(stream.getvalue()) < 2 * 2**20
    tracemalloc.start()
    with pytest.raises(FormatError):
        read_etrecord(stream.getvalue())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * 2**20


def test_members_are_bounded_one_by_one_and_together() -> None:
    """Each is below the limit; all of them took 2.9 GB."""
    spaces = b"[" + b" " * (17 * 2**20) + b"]"
    content = record({f"{GRAPH}{number}": spaces for number in range(4)}, zipfile.ZIP_DEFLATED)
    with refused(FormatError, "too large"):
        read_etrecord(content)
    content = graph(node("x" * 1_000_000, 1))
    with refused(FormatError, "name", "1000000 characters"):
        read_etrecord(record({GRAPH: content}))
    entry = b"PK\1\2" + bytes(42)
    listed = entry * 200_000
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 9, 9, len(listed), 0, 0)
    with refused(FormatError, "members"):
        read_etrecord(listed + end)


@pytest.mark.parametrize(
    "content",
    [
        "null", "[]", "{}", '{"graph_module": 3}',
        '{"graph_module": {"graph": {"nodes": [1, {"metadata": []}]}}}',
        graph({"name": 1, "metadata": {"debug_handle": "x", "stack_trace": 7}}),
        graph({"metadata": {"debug_handle": "1" * 400}}),
        graph({"metadata": {"debug_handle": "1"}, "outputs": [{"as_tensor": {"name": None}}]}),
    ],
)  # fmt: skip
def test_json_of_another_shape_yields_nothing_and_breaks_nothing(content: str) -> None:
    found = read_etrecord(record({GRAPH: content}))
    assert all(ref.file == "" for ref in found.sources["forward"].values())


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"not a zip at all", "ETRecord"),
        (record({GRAPH: "{"}), "JSON"),
        (record({GRAPH: b"\xff\xfe"}), "JSON"),
        (record({GRAPH: graph(node("a", 1))})[:-30], "ETRecord"),
        (record({GRAPH: graph(node("a", 1))}, zipfile.ZIP_LZMA), "member"),
    ],
)
def test_a_wrong_record_is_one_error(content: bytes, fact: str) -> None:
    with refused(FormatError, fact):
        read_etrecord(content)


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


def test_a_graph_comes_back_as_it_was_beside_a_record_of_either_name(program: Path, tmp_path: Path) -> None:
    kept = made(program)
    write_record(tmp_path / "run" / "program_graph.json", kept)
    assert read_graph_file(tmp_path / "run" / "program_graph.json") == kept
    assert kept.sha256 == files.sha256(program) and kept.record is not None
    assert set(kept.record.sources["forward"]) == {CONV, ERF}, "only what operators refer to"
    assert [ref.node for ref in kept.record.refs_of_instruction("forward", 1)] == ["erf"]
    assert make_graph(program, None).record is None
    (tmp_path / "run" / "program_graph.json").write_text('{"schema_version": 1}')
    with refused(FormatError, "program_graph.json: program", fix="--model"):
        read_graph_file(tmp_path / "run" / "program_graph.json")
    Path(f"{program}.etrecord").rename(program.with_suffix(".etrecord"))
    assert record_beside(program) == program.with_suffix(".etrecord")
    program.with_suffix(".etrecord").unlink()
    assert record_beside(program) is None


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
    assert why is not None and why.reason == left["reason"] and "no cure" in why.remedy
    assert graph.why_outside("forward", 0) is None and graph.why_outside("other", 1) is None
    everything_taken = {**own, "coverage": {"undelegated": []}}
    for content, known in (
        (everything_taken, ()),
        ({**own, "sha256": "another program's"}, None),
        ({**own, "coverage": {"undelegated": [{"operator": 3}]}}, None),
        ({"sha256": own["sha256"]}, None),
    ):
        summary.write_text(json.dumps(content))
        assert made(program).undelegated == known
    summary.write_text("{")
    assert made(program).undelegated is None


def test_a_program_explains_a_run_by_its_content_wherever_it_moved(program: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "runs" / "linux"
    manifest = Manifest(model=str(program), model_sha256=files.sha256(program), results=())
    dump = run_dir / "on" / "three_on_t1.etdump"
    found = Programs(run_dir, manifest).explaining(dump)
    assert found is not None and found.program.source == str(program)
    programs = Programs(run_dir, replace(manifest, model_sha256="bb"))
    assert programs.explaining(dump) is None
    (warning,) = programs.warnings
    says(warning.seen, program, "not the program")
    named = Programs(run_dir, replace(manifest, model_sha256="bb"), program)
    assert named.explaining(dump) is not None, "a program that the user names is taken as named"
    out = tmp_path / "elsewhere" / "out_three"
    shutil.copytree(program.parent, out / "artifacts")
    lost = str(tmp_path / "lost" / "three.pte")
    manifest = Manifest(model=lost, model_sha256=files.sha256(program), results=())
    found = Programs(out / "runs" / "linux", manifest).explaining(out / "runs" / "linux" / "a.etdump")
    assert found is not None and found.program.source == str(out / "artifacts" / "three.pte")
