"""What the program reader makes of a small real program and of hostile ones; what operators cost and keep."""

import random
import struct
from pathlib import Path

import flatbuffers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from said import refused
from strategies import REFERENCE, damage, list_of, table_of

from model_profiling.core.errors import FormatError
from model_profiling.program.category import Category
from model_profiling.program.delegates import protocol as operator_cost
from model_profiling.program.delegates.protocol import _KERNELS
from model_profiling.program.delegates.xnnpack import graph
from model_profiling.program.memory_plan import most_alive
from model_profiling.program.pte import read_program
from model_profiling.program.records import INSERTED_HANDLE, Program, Tensor, Window

PTE = Path(__file__).resolve().parents[1] / "data" / "etdump" / "three_delegates.pte"
WHOLE = PTE.read_bytes()
INT, TENSOR, INT_LIST, TENSOR_LIST = 2, 5, 7, 10


@pytest.fixture(scope="module")
def program() -> Program:
    return read_program(PTE)


def test_a_method_is_its_instructions_with_shapes_and_cost(program: Program) -> None:
    method = program.method("forward")
    steps = [(step.instruction_id, step.kind, step.name) for step in method.instructions]
    assert steps[::2] == [(number, "delegate", "XnnpackBackend") for number in (0, 2, 4)]
    assert steps[1::2] == [(1, "operator", "aten::erf.out"), (3, "operator", "aten::mean.out")]
    assert method.inputs == (Tensor((1, 3, 32, 32), "fp32"),)
    assert method.outputs == (Tensor((1, 10), "fp32"),)
    assert program.method("other") is None
    mean = program.methods[0].operators[1]
    assert mean.inputs == (Tensor((1, 32, 32, 32), "fp32"),)
    assert mean.outputs == (Tensor((1, 32), "fp32"),) and mean.flops == 32 * 32 * 32
    assert mean.bytes_moved == 4 * (32 * 32 * 32 + 32)
    assert Tensor((3, 5), "fp16").nbytes == 30 and Tensor((3, 5), "qcint4").nbytes == 8
    assert Tensor((), "int64").nbytes == 8


def test_delegates_are_their_nodes_in_order_and_a_call_adds_them_up(program: Program) -> None:
    first, second, third = program.methods[0].delegates
    assert [node.kind for node in first.nodes] == [
        "StaticTranspose", "Conv2d", "DepthwiseConv2d", "Hardswish", "StaticTranspose",
    ]  # fmt: skip
    assert [node.kind for node in second.nodes] == ["StaticTranspose", "Conv2d", "StaticTranspose"]
    assert [node.kind for node in third.nodes] == ["FullyConnected", "Softmax"]
    assert [node.inserted for node in first.nodes] == [True, False, False, False, True]
    assert first.nodes[0].debug_handle == INSERTED_HANDLE
    assert first.nodes[0].permutation == (0, 2, 3, 1)
    method = program.methods[0]
    call = method.instruction(0, 2)
    assert call.flops == 2 * 32 * 32 * 32 * 16 and call.inputs == (Tensor((1, 16, 32, 32), "fp32"),)
    assert call.outputs == (Tensor((1, 32, 32, 32), "fp32"),)
    assert method.instruction(0, 99) is None


def test_a_convolution_tells_all_about_itself(program: Program) -> None:
    convolution, depthwise = program.methods[0].delegates[0].nodes[1:3]
    assert [tensor.shape for tensor in convolution.inputs] == [(1, 32, 32, 3), (16, 3, 3, 3), (16,)]
    assert [tensor.constant for tensor in convolution.inputs] == [False, True, True]
    assert convolution.outputs == (Tensor((1, 32, 32, 16), "fp32"),)
    assert convolution.clamp == (0.0, None) and convolution.window.kernel == (3, 3)
    assert convolution.window.padding == (1, 1, 1, 1)
    assert convolution.flops == 2 * 32 * 32 * 16 * 3 * 3 * 3
    assert convolution.bytes_moved == 4 * (32 * 32 * 3 + 16 * 27 + 16 + 32 * 32 * 16)
    assert depthwise.window.groups == 16 and depthwise.flops == 2 * 32 * 32 * 16 * 3 * 3
    assert depthwise.clamp is None


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        (b"", ("not an ExecuTorch program",)),
        (b"PK\x03\x04" + bytes(40), ("not an ExecuTorch program",)),
        (WHOLE[:1000], ("leaves the file", "byte")),
        (WHOLE.replace(b"XH00", b"XH99"), ("XNNPACK delegate", "format", "byte")),
    ],
)
def test_a_wrong_program_is_one_error_that_says_where(data: bytes, facts: tuple[str, ...]) -> None:
    with refused(FormatError, *facts):
        read_program(data)


@given(st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_programs_survive_accidents(seed: int) -> None:
    try:
        read_program(damage(WHOLE, random.Random(seed)))
    except FormatError as refusal:
        assert refusal.problem and refusal.fix


@pytest.mark.timeout(120)
def test_lists_that_share_their_members_cannot_multiply_them() -> None:
    """1,000 methods that all have the same 1,000 chains of the same 1,000 instructions."""
    builder = flatbuffers.Builder(1024)

    def repeated(offset: int) -> int:
        return list_of(builder, [offset] * 1000)

    free = table_of(builder, 1, [])
    instruction = table_of(builder, 2, [("Uint8", 0, 5, 0), (REFERENCE, 1, free, 0)])
    chain = table_of(builder, 4, [(REFERENCE, 2, repeated(instruction), 0)])
    plan = table_of(builder, 8, [(REFERENCE, 5, repeated(chain), 0)])
    root = table_of(builder, 8, [(REFERENCE, 1, repeated(plan), 0)])
    builder.Finish(root, file_identifier=b"ET12")
    with refused(FormatError, "more than it can hold"):
        read_program(bytes(builder.Output()))


def program_of(operator: str, values: list[tuple[int, list[int]]], arguments: list[int]) -> bytes:
    """A program of one instruction; each value is its kind and its sizes, members or number."""
    builder = flatbuffers.Builder(1024)

    def numbers(items: list[int], width: int) -> int:
        builder.StartVector(width, len(items), width)
        for item in reversed(items):
            (builder.PrependInt64 if width == 8 else builder.PrependInt32)(item)
        return int(builder.EndVector())

    def table(slot: int, offset: int, kind: int = 0) -> int:
        return table_of(builder, 8, [("Uint8", 0, kind, 0), (REFERENCE, slot, offset, 0)])

    fp32 = ("Int8", 0, 6, 0)
    made = []
    for kind, items in values:
        if kind == INT:
            content = table_of(builder, 1, [("Int64", 0, items[0], 0)])
        elif kind == TENSOR:
            content = table_of(builder, 3, [fp32, (REFERENCE, 2, numbers(items, 4), 0)])
        else:
            content = table(0, numbers(items, 8 if kind == INT_LIST else 4))
        made.append(table(1, content, kind))
    instruction = table(1, table(1, numbers(arguments, 4)), kind=1)
    chain = table(2, list_of(builder, [instruction]))
    named = table(0, builder.CreateString(operator))
    parts = [list_of(builder, each) for each in (made, [chain], [named])]
    own = [(REFERENCE, slot, offset, 0) for slot, offset in zip((2, 5, 6), parts, strict=True)]
    plan = table_of(builder, 8, own)
    builder.Finish(table(1, list_of(builder, [plan])), file_identifier=b"ET12")
    return bytes(builder.Output())


def test_outputs_returned_as_a_list_are_no_inputs() -> None:
    """Written to one by one (topk), as a list (split), and where an input is written to as well."""
    row, top = (TENSOR, [4, 8]), (TENSOR, [4, 3])
    topk = program_of("aten::topk", [row, top, top, (TENSOR_LIST, [1, 2])], [0, 1, 2, 3])
    split = [row, top, top, (TENSOR_LIST, [1, 2]), (TENSOR_LIST, [1, 2])]
    for data in (topk, program_of("aten::split_copy", split, [0, 3, 4])):
        (step,) = read_program(data).methods[0].operators
        assert step.inputs == (Tensor((4, 8), "fp32"),)
        assert step.outputs == (Tensor((4, 3), "fp32"),) * 2
        assert step.bytes_moved == 4 * (32 + 12 + 12)
    (step,) = read_program(program_of("aten::add_", [row, top], [0, 1, 0])).methods[0].operators
    assert [tensor.shape for tensor in step.inputs] == [(4, 8), (4, 3)]
    assert [tensor.shape for tensor in step.outputs] == [(4, 8)]


def pooling(sides: list[int]) -> bytes:
    image, smaller = (TENSOR, [1, 8, 64, 64]), (TENSOR, [1, 8, 16, 16])
    window = (INT_LIST, list(range(3, 3 + len(sides))))
    values = [image, smaller, window, *((INT, [side]) for side in sides)]
    return program_of("aten::avg_pool2d", values, [0, 2, 1, 1])


def test_poolings_and_shapes_that_cannot_be_are_refused_and_others_counted() -> None:
    for sides, taps in (([4, 2], 8), ([3], 9)):
        (step,) = read_program(pooling(sides)).methods[0].operators
        assert step.flops == 8 * 16 * 16 * taps
    for wrong in ([], [0, 3], [-3, -3], [2**62, 2], [1, 2, 3]):
        with refused(FormatError, "pooling", "window"):
            read_program(pooling(wrong))
    shape = struct.pack("<4i", 1, 3, 32, 32)
    assert shape in WHOLE
    for wrong in ([2**31 - 1] * 4, [1, 3, -32, 32]):
        with refused(FormatError, "shape"):
            read_program(WHOLE.replace(shape, struct.pack("<4i", *wrong)))
    window = Window(kernel=(3, 2), stride=(2, 2), dilation=(1, 1), padding=(0, 0, 0, 0))
    for kind, name in (("Avg", "avg_pool2d"), ("Max", "max_pool2d_with_indices")):
        delegated = graph.node_flops(f"{kind}Pooling2d", (IMAGE,), (SMALLER,), window)
        assert operator_flops(f"aten::{name}.out", IMAGE, SMALLER, taps=6) == delegated == 8 * 32 * 32 * 6
    one = Tensor((1, 8, 1, 1), "fp32")
    delegated = graph.node_flops("GlobalAvgPooling2d", (IMAGE,), (one,), None)
    assert operator_flops("aten::_adaptive_avg_pool2d.out", IMAGE, one) == delegated == 32_768


IMAGE = Tensor((1, 8, 64, 64), "fp32")
SMALLER = Tensor((1, 8, 32, 32), "fp32")


def operator_flops(name: str, given: Tensor, made: Tensor, taps: int = 0) -> int:
    return operator_cost.operator_flops(name, (given,), (made,), transposed=False, taps=taps)


@pytest.mark.parametrize(
    "name",
    [
        "_adaptive_avg_pool2d.out", "native_layer_norm.out", "native_group_norm.out", "cumsum.out",
        "topk.values", "max.dim_max", "mean.out", "var_mean.correction_out",
    ],
)  # fmt: skip
def test_work_that_follows_the_input_is_not_counted_by_the_output(name: str) -> None:
    assert operator_flops(f"aten::{name}", IMAGE, Tensor((1, 8, 4, 4), "fp32")) == 32_768


def test_what_moves_data_counts_nothing_and_products_their_factors() -> None:
    added, left, right = Tensor((2, 5, 7), "fp32"), Tensor((2, 5, 3), "fp32"), Tensor((2, 3, 7), "fp32")
    given = (added, left, right)
    found = operator_cost.operator_flops("aten::baddbmm.out", given, (added,), transposed=False, taps=0)
    assert found == 2 * (2 * 5 * 7) * 3
    assert operator_cost.slides_window("aten::avg_pool2d.out")
    assert not operator_cost.slides_window("theirs::avg_pool2d.out")
    assert not operator_cost.slides_window("aten::max_pool2d_with_indices_backward.grad_input")
    for kind in ("Convert", "Copy", "StaticTranspose", "StaticReshape", "StaticSlice"):
        assert graph.node_flops(kind, (IMAGE,), (Tensor(IMAGE.shape, "qint8"),), None) == 0

    def flops(name: str) -> int:
        inputs = (IMAGE, IMAGE, IMAGE)
        return operator_cost.operator_flops(f"aten::{name}.out", inputs, (IMAGE,), transposed=False, taps=4)

    assert operator_flops("executorch_prim::et_view.default", IMAGE, IMAGE) == 0
    free = {name for name in _KERNELS if flops(name) == 0}
    assert free == {name for name, (category, _) in _KERNELS.items() if category is Category.DATA_MOVEMENT}


def test_values_live_from_their_writer_to_their_last_reader() -> None:
    # 0 is an input; 1 = f(0), 2 = g(1), 3 = h(1, 2), 4 = i(3)
    steps = [((0,), (1,)), ((1,), (2,)), ((1, 2), (3,)), ((3,), (4,))]
    assert most_alive(steps, {0: 5, 1: 10, 2: 20, 3: 1, 4: 2}, (4,)) == (31, [2, 1, 3])
    assert most_alive(steps, {0: 100, 1: 10, 2: 20, 3: 1, 4: 2}, (4,)) == (110, [0, 1])
    # An early output is kept to the end.
    assert most_alive(steps, {1: 10, 2: 1, 3: 1, 4: 5}, (1, 4)) == (16, [1, 4, 3])
    assert most_alive([], {}, ()) == (0, [])
