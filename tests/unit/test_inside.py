"""What samples say about operators, and functions of libraries by the symbol that holds an address."""

import json
import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from made_programs import MadeModel
from made_series import made_series
from said import refused

from model_profiling.analysis.kernels import (
    executed_kernels,
    read_kernels_csv,
    sizes_cell,
    write_kernels_csv,
)
from model_profiling.analysis.matching import SampledPart, inside_series
from model_profiling.core.errors import FormatError, RunError
from model_profiling.report.analysis_json import inside_facts
from model_profiling.runner.build import installed_sdk
from model_profiling.runner.samples import (
    CodeFunctions,
    Extents,
    Function,
    SampledFile,
    SampledFunction,
    Samples,
    read_functions,
    read_samples,
)

MOPA = "matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa"
GATHER = "lhs_imatmul_pack_x16p2vlx2_x16p_sme"
FILES = tuple(
    SampledFile(name)
    for name in ("libexecutorch_backend_xnnpack.so", "libexecutorch_threadpool.so", "libc.so.6")
)
FUNCTIONS = (
    SampledFunction(0, 0x100, f"kai_kernel_{MOPA}"),
    SampledFunction(0, 0x200, f"kai_kernel_{GATHER}"),
    SampledFunction(0, 0x12340),
    SampledFunction(0, 0x300),
    SampledFunction(1, 0x400),
    SampledFunction(2, 0x500, "syscall"),
    SampledFunction(2, 0x600, "memcpy"),
    SampledFunction(-1),
)


def samples(*seen: tuple[int, int, int, int, int], operators: int = 2) -> Samples:
    taken = sum(row[4] for row in seen) + 7
    return Samples(
        hz=1000, executions=5, threads=2, taken=taken, operators_of_calls=(operators,), files=FILES,
        functions=FUNCTIONS, seen=seen,
    )  # fmt: skip


def test_an_operator_has_parts_that_add_up_and_one_identity_in_every_file() -> None:
    made = made_series(2)
    seen = ((0, 0, 0, 0, 70), (0, 0, 0, 1, 20), (0, 0, 1, 4, 6), (0, 0, 1, 5, 4), (0, 1, 0, 6, 3))
    found = inside_series(made.series, samples(*seen, (-1, -1, 0, 7, 2)), made)
    first, second = found.operators
    assert first.name == made.operators[0].name and first.samples == 100 and first.enough
    parts = (SampledPart.MULTIPLICATION, SampledPart.INDIRECTION, SampledPart.WAITING)
    assert first.parts == dict(zip(parts, (0.7, 0.2, 0.1), strict=True))
    assert not second.enough and second.kernels[0].part is SampledPart.OTHER
    assert (found.samples, found.outside, found.threads) == (105, 2, 2)
    told = json.loads(json.dumps(inside_facts(found)))
    assert told["operators"][0]["parts"]["multiplication"] == 0.7 and told["shares_are_of_time"]
    # An operator outside runs before the delegate: samples count its calls from 0, all else does not.
    model = MadeModel()
    mask = model.operator("aten::add.out", [model.given((16, 16))], (16, 16), 20)
    part = model.delegate()
    part.done(part.node("Add", [mask, mask], (16, 16), "Add (ND)", 20))
    made = model.series()
    (inside,) = (each for each in made.operators if each.delegated)
    found = inside_series(made.series, samples((0, 0, 0, 3, 40), operators=1), made)
    (told,) = inside_facts(found)["operators"]  # type: ignore[misc]
    assert (told["call"], told["position"]) == (inside.call, inside.position) != (told["delegate_call"], 0)
    assert told["delegate_call"] == 0


def test_what_has_no_name_or_is_of_other_operators_is_given_to_none() -> None:
    conv = made_series(2)
    seen = ((0, 0, 0, 2, 50), (0, 0, 0, 3, 10))
    (found,) = inside_series(conv.series, samples(*seen), conv).operators
    assert [(kernel.name, kernel.part) for kernel in found.kernels] == [
        ("libexecutorch_backend_xnnpack.so+0x12340", SampledPart.UNNAMED),
        ("libexecutorch_backend_xnnpack.so+0x300", SampledPart.UNNAMED),
    ]
    made = made_series(2)
    found = inside_series(made.series, samples((0, 0, 0, 0, 40), operators=3), made)
    assert found.operators[0].operator is None and "differ" in found.notes[0]
    assert found.operators[0].name == "call 0, operator 0"
    doubted = replace(samples((0, 0, 0, 0, 40)), unknown_operators="it read the clock more often than others")
    found = inside_series(made.series, doubted, made)
    assert found.operators[0].operator is None and "worked for: it read the clock" in found.notes[0]


def test_sizes_are_what_the_kernels_name_says_they_are(tmp_path: Path) -> None:
    assert sizes_cell(f"kai_run_{MOPA}", [[16, 128, 576, 2]]) == "m=16 n=128 k=576: 2"
    assert sizes_cell(f"kai_run_{GATHER}", [[16, 9, 64, 3]]) == "m=16 k=576: 3"
    packing = sizes_cell("kai_run_lhs_pack_x16p2vlx2_x16_sme", [[16, 64, 4, 1], [16, 64, 8, 2], [0, 0, 0, 9]])
    assert packing == ": 9; m=16 k=64: 3"
    weights = sizes_cell("kai_run_rhs_pack_nxk_x16p2vlx2b_x16_x16_sme", [[1, 128, 64, 1]])
    assert weights == "n=128 k=64: 1"
    # Headers: m, n, how many pieces of k, their length; the height and width of a filter, then of an image.
    gathered = sizes_cell(
        "kai_run_imatmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa", [[16, 128, 9, 2]]
    )
    assert gathered == "m=16 n=128: 2"
    newer = sizes_cell("kai_run_imatmul_pack_rhs_nxk_x16p2vlx2bx16_x16_x16_sme", [[128, 9, 64, 1]])
    assert newer == "n=128 k=576: 1"
    assert sizes_cell("kai_run_rhs_dwconv_pack_x32p1vlx1b_x32_x32_sme", [[3, 3, 56, 1]]) == ": 1"
    uses = executed_kernels({f"kai_run_{MOPA}": 3}, {f"kai_run_{MOPA}": [[16, 128, 576, 2], [1, 2, 3, 1]]})
    write_kernels_csv(tmp_path / "k.csv", "made", uses)
    assert "executed,m=16 n=128 k=576: 2; m=1 n=2 k=3: 1" in (tmp_path / "k.csv").read_text()
    assert read_kernels_csv(tmp_path / "k.csv") == tuple(replace(use, worked_on="") for use in uses)


WRITTEN = {
    "schema_version": 1, "hz": 1000, "executions": 1, "threads": 1, "taken": 2, "unavailable": None,
    "unknown_operators": None, "operators_of_calls": [1],
    "files": [{"path": "/gone/libmade.so", "build_id": "00ff"}],
    "time_ns": [5, 6], "execution": [1, 1], "call": [0, 0], "operator": [0, 0], "thread": [0, 0],
    "file": [0, -1], "offset": [64, 0],
}  # fmt: skip


def test_a_library_that_is_not_here_or_has_no_id_leaves_its_functions_unknown(tmp_path: Path) -> None:
    path = tmp_path / "seen.json"
    path.write_text(json.dumps(WRITTEN))
    found = read_samples(path)
    (absent,) = found.files
    assert (absent.name, absent.build_id) == ("libmade.so", "00ff") and absent.problem
    assert {function.start for function in found.functions} == {None} and found.kept == 2
    (tmp_path / "libmade.so").write_bytes(b"\x7fELF something else")
    (file,) = read_samples(path, [tmp_path]).files
    assert "damaged library" in file.problem
    # Another one of that name may have run elsewhere.
    library = tmp_path / "libmade.so"
    header = struct.pack("<6s10xHHIQQQIHHHHHH", b"\x7fELF\2\1", 3, 183, 1, 0, 64, 0, 0, 64, 56, 0, 64, 0, 0)
    library.write_bytes(header)
    path = tmp_path / "seen.json"
    path.write_text(json.dumps({**WRITTEN, "files": [{"path": str(library), "build_id": None}]}))
    (file,) = read_samples(path).files
    assert "no build id" in file.problem


@pytest.mark.parametrize(
    "change",
    [
        {"offset": [1]},
        {"file": [3, 0]},
        {"call": [0, "x"]},
        {"offset": [-1, 0]},
        {"thread": [[0], [1]]},
        {"operator": None},
        {"call": [0, 1 << 80]},
        {"hz": "often"},
        {"schema_version": 2},
    ],
)
def test_a_damaged_file_of_samples_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "seen.json"
    path.write_text(json.dumps({**WRITTEN, **change}))
    with refused(RunError, path, "samples"):
        read_samples(path)


def of_wheel(name: str) -> Path:
    found = sorted(installed_sdk().libraries.glob(f"lib{name}.so"))
    if not found:
        pytest.skip(f"the wheel has no {name}")
    return found[0]


@pytest.fixture(scope="module")
def xnnpack() -> CodeFunctions:
    return read_functions(of_wheel("executorch_backend_xnnpack"))


def test_an_address_has_the_name_of_the_symbol_that_holds_it_or_none(xnnpack: CodeFunctions) -> None:
    (invoke,) = (one for one in xnnpack.named.functions if one.name == "xnn_invoke_runtime")
    start, end, _ = invoke
    for address in (start, (start + end) // 2, end - 1):
        assert xnnpack.holding(address) == invoke
    after = xnnpack.holding(end)
    assert after is None or after.name != "xnn_invoke_runtime"
    assert xnnpack.build_id and len(xnnpack.build_id) >= 32
    starts = [function.start for function in xnnpack.unnamed.functions]
    hidden = [start for start in starts if xnnpack.named.holding(start) is None]
    assert len(hidden) > 500, "most of XNNPACK is hidden"
    for start in hidden[:: len(hidden) // 20]:
        found = xnnpack.holding(start)
        assert found is not None and found.name == "" and found.start == start < found.end
    assert xnnpack.holding(0) is None and xnnpack.holding(1 << 40) is None
    # Of two symbols at one address the longer holds.
    extents = Extents.of([Function(8, 12, "short"), Function(8, 20, "long"), Function(30, 40, "next")])
    assert extents.holding(15) == Function(8, 20, "long")
    assert extents.holding(20) is None and extents.holding(7) is None


def test_no_damaged_library_does_more_than_be_refused(tmp_path: Path) -> None:
    dice, path = random.Random(13), tmp_path / "damaged"
    whole = of_wheel("executorch_etdump").read_bytes()
    for number in range(120):
        content = bytearray(whole if number % 3 else whole[: dice.randrange(len(whole))])
        for _ in range(dice.choice((1, 4, 30)) if content else 0):
            most = min(len(content), 4096) if number % 2 else len(content)
            content[dice.randrange(most)] = dice.randrange(256)
        path.write_bytes(bytes(content))
        try:
            found = read_functions(path)
        except FormatError as refused:
            assert str(path) in refused.problem and refused.fix
        else:
            found.holding(0x1000)
    with pytest.raises(FormatError, match="cannot be read"):
        read_functions(tmp_path / "gone")
