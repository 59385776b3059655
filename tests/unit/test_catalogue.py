"""Each cause of the catalogue on a model that has it and on one that has not."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from made_programs import MadeDelegate, MadeModel
from said import says

from model_profiling.analysis.findings import Finding
from model_profiling.analysis.run import advise
from model_profiling.program.flow import flow_of, input_independent, undone_transposes
from model_profiling.program.graph_file import COMPUTED_ONCE, Undelegated
from model_profiling.program.records import Window
from model_profiling.runs import Times

FC, CONV = "Fully Connected (NC, F32) GEMM", "Convolution (NHWC, F32) IGEMM"
UNTIMED = (Times.EMULATED, Times.UNKNOWN)


def found(model: MadeModel, times: Times = Times.HARDWARE, **options: object) -> Mapping[str, Finding]:
    findings = advise([model.series(times)], **options)  # type: ignore[arg-type]
    return {finding.id: finding for finding in findings}


def linear(part: MadeDelegate, read: int, outputs: int = 64, us: int = 1000) -> int:
    shape = part.model.tensors[read].shape
    weights = part.model.stored((outputs, shape[-1]))
    return part.node("FullyConnected", [read, weights], (*shape[:-1], outputs), FC, us, flops=2_000_000)


def begun() -> tuple[MadeModel, MadeDelegate]:
    model = MadeModel()
    return model, model.delegate()


def returned(part: MadeDelegate, value: int) -> None:
    """The delegate ends, and what it makes is the model's output."""
    part.done(value)
    part.model.outputs.append(value)


def masked(model: MadeModel, mask: int) -> None:
    """A delegate that adds a mask to what the model is given."""
    part = model.delegate()
    scores = linear(part, model.given((16, 16)), 16)
    returned(part, part.node("Add", [scores, mask], (16, 16), "Add (ND)", 20))


@pytest.mark.parametrize("times", [Times.HARDWARE, *UNTIMED])
def test_what_no_input_reaches_could_be_computed_once(times: Times) -> None:
    model = MadeModel()
    places = model.operator("aten::arange.start_out", [], (16,), 60)
    column = model.operator("aten::unsqueeze_copy.out", [places], (16, 1), 60)
    mask = model.operator("aten::le.Tensor_out", [places, column], (16, 16), 80)
    masked(model, mask)
    finding = found(model, times)["input-independent"]
    assert len(finding.concerns) == 3 and "register_buffer" in finding.action
    assert "outside-delegates" not in found(model, times), "folded, they are outside no more"
    # They take 200 us, and calling each takes one more.
    bound = pytest.approx(100 * (200 + 3) / 1224, abs=0.01) if times is Times.HARDWARE else None
    assert finding.max_gain_pct == bound


@pytest.mark.parametrize(
    ("call", "replacement", "same_line", "cause"),
    [
        ("hardsigmoid", "F.relu6(x + 3.0) * (1 / 6)", True, "outside-delegates"),
        ("roll", "torch.cat of two slices", True, "outside-delegates"),
        ("masked_fill", "arithmetic with float buffers", False, "input-independent"),
        ("arange", COMPUTED_ONCE, True, "input-independent"),
        ("scaled_dot_product_attention", "the steps of attention", True, "input-independent"),
    ],
)
def test_what_a_call_makes_for_itself_goes_with_the_call(call, replacement, same_line, cause):
    """Nobody can keep the numbers that a `hardsigmoid` converts: another call in its place needs none. A line
    that no input reaches as a whole can be left out as a whole."""
    model = MadeModel()
    made = model.operator("aten::full.out", [], (16, 16), 200, handle=model.place("", 5))
    part = model.delegate()
    scores = linear(part, model.given((16, 16)), 16)
    line = model.place("", 5 if same_line else 6)
    returned(part, part.node("Add", [scores, made], (16, 16), "Add (ND)", 20, handle=line))
    why = ("aten.full.default", "full", "", "no rule", "no rule")
    left = Undelegated(*why, call=call, constant=True, replacement=replacement, instruction=0)
    model.undelegated = (left,)
    assert [each for each in found(model) if each in ("outside-delegates", "input-independent")] == [cause]


def test_nodes_in_delegates_are_followed_across_calls() -> None:
    """A constant that goes into one delegate, through an operator, into another."""
    model = MadeModel()
    table, first = model.stored((256, 2)), model.delegate()
    order = first.transpose(table, (1, 0), 200)
    first.done(order)
    folded = model.operator("aten::view_copy.out", [order], (2, 16, 16), 5)
    second = model.delegate()
    biased = second.node("Multiply", [folded, folded], (2, 16, 16), "Multiply (ND)", 30)
    added = second.node("Add", [biased, model.given((2, 16, 16))], (2, 16, 16), "Add (ND)", 40)
    second.done(added)
    names = {each.operator.name for each in found(model)["input-independent"].concerns}
    assert names == {"Transpose (ND, X32) #1", "native_call_view_copy.out", "Multiply (ND) #1"}


def _dependent(kind: str) -> MadeModel:
    model = MadeModel()
    if kind == "input":
        mask = model.operator("aten::le.Tensor_out", [model.given((16, 16))], (16, 16), 200)
    elif kind == "random":
        mask = model.operator("aten::rand.out", [], (16, 16), 200)
    elif kind == "state":
        mask = model.operator("aten::add.out", [model.value((16, 16))], (16, 16), 200)
    elif kind == "first state of a recurrent layer":
        handle = model.place("lstm", 3, kind="torch.nn.modules.rnn.LSTM")
        mask = model.operator("aten::full.out", [], (16, 16), 200, handle=handle)
    elif kind == "written in place":
        mask = model.operator("aten::full.out", [], (16, 16), 1)
        model.operator("llama::update_cache.out", [model.given((16, 16)), mask], (1,), 1)
        mask = model.operator("aten::add.out", [mask], (16, 16), 200)
    else:
        model.jump(model.given(()))
        mask = model.operator("aten::full.out", [], (16, 16), 200)
    masked(model, mask)
    return model


@pytest.mark.parametrize(
    "kind", ["input", "random", "state", "first state of a recurrent layer", "written in place", "jump"]
)
def test_what_may_change_is_never_called_the_same(kind: str) -> None:
    model = _dependent(kind)
    findings = found(model)
    assert "input-independent" not in findings and "outside-delegates" in findings


@pytest.mark.parametrize(
    ("call", "code", "advised"),
    [
        ("scaled_dot_product_attention", "", "is_causal"),
        ("roll", "", "torch.cat"),
        ("", "x = torch.roll(x, 3)", "torch.cat"),
        ("mul", "x = torch.roll(x, 3) * mask", "register_buffer"),
    ],
)
def test_what_was_called_is_known_without_the_models_own_text(call: str, code: str, advised: str) -> None:
    """A shared copy has no source text, and the same advice; records of older kits have nothing else."""
    model = MadeModel()
    handle = model.place("attention", 3, call=call, code=code)
    masked(model, model.operator("aten::full.out", [], (16, 16), 200, handle=handle))
    assert advised in found(model)["input-independent"].action
    (made,) = (each for each in model.series().operators if each.type == "native_call_full.out")
    assert made.precision == "fp32", "what it makes, as it is given nothing"


def test_programs_of_older_kits_say_nothing_about_flow() -> None:
    model = MadeModel()
    masked(model, model.operator("aten::full.out", [], (16, 16), 200))
    series = model.series()
    method = series.graph.program.methods[0]
    assert input_independent(flow_of(method))
    bare = tuple(replace(step, input_ids=(), output_ids=()) for step in method.instructions)
    older = tuple(replace(each, arguments=()) for each in method.delegates)
    flow = flow_of(replace(method, instructions=bare, delegates=older, input_ids=(), constant_ids=()))
    assert not input_independent(flow) and not undone_transposes(flow)


def _permuting(between: str) -> MadeModel:
    """Rows to channels-first, something, and back; a linear layer on both sides."""
    model, part = begun()
    rows = linear(part, model.given((1, 4, 4, 8)), 16)
    images = part.transpose(rows, (0, 3, 1, 2), 150)
    if between == "activation":
        images = part.node("Tanh", [images], (1, 16, 4, 4), "TanH (NC)", 10)
    elif between == "softmax":
        images = part.node("Softmax", [images], (1, 16, 4, 4), "Softmax (NC, F32)", 10)
    elif between == "bias":
        bias = model.stored((1, 16, 4, 4))
        images = part.node("Add", [images, bias], (1, 16, 4, 4), "Add (ND)", 10)
    back = part.transpose(images, (0, 2, 3, 1) if between != "other order" else (0, 1, 3, 2), 150)
    if between == "two readers":
        part.node("Tanh", [images], (1, 16, 4, 4), "TanH (NC)", 10)
    end = linear(part, back)
    returned(part, end)
    return model


@pytest.mark.parametrize(
    ("between", "removed"),
    [("nothing", 2), ("activation", 2), ("two readers", 1), ("softmax", 0), ("bias", 0), ("other order", 0)],
)
def test_transposes_that_undo_each_other_go_and_what_something_depends_on_stays(between, removed):
    findings = found(_permuting(between))
    undone, moved = findings.get("cancelling-transposes"), findings.get("data-movement")
    assert (len(moved.operators) if moved else 0) == 2 - removed
    if undone is None:
        assert not removed and moved is not None and moved.evidence["by_kind"] == {"transpose": 2}
        return
    assert len(undone.operators) == removed
    assert "remove permutes" in undone.action
    untimed = found(_permuting(between), Times.EMULATED)["cancelling-transposes"]
    assert untimed.max_gain_pct is None and len(untimed.operators) == removed


@pytest.mark.parametrize(
    ("then", "said"),
    [("linear", "1x1 convolutions"), ("norm", "no change"), ("patches", "linear layer: `x.reshape")],
)
def test_what_helps_against_a_permute_that_lowering_reverses_depends_on_what_it_is_beside(
    then: str, said: str
) -> None:
    """A layer norm over the channels needs the permute, and nothing in the model removes lowering's."""
    model, part = begun()
    step, side = (4, 8) if then == "patches" else (1, 2)
    window = Window((4, 4), (step, step), (1, 1), (0, 0, 0, 0), 1, 3, 16)
    weights, image = model.stored((16, 4, 4, 3)), model.given((1, side, side, 3))
    images = part.node("Conv2d", [image, weights], (1, 2, 2, 16), CONV, 500, window=window, flops=24_576)
    rows = part.transpose(part.inserted(images, (0, 3, 1, 2), 80), (0, 2, 3, 1), 80)
    if then == "norm":
        end = part.node("Softmax", [rows], (1, 2, 2, 16), "Softmax (NC, F32)", 900)
    else:
        end = linear(part, rows, 16)
    returned(part, end)
    finding = found(model)["cancelling-transposes"]
    says(finding.action, said)
    assert finding.has_cure is (then != "norm") and len(finding.operators) == 2


def test_transposes_inside_an_attention_call_go_with_it() -> None:
    model, part = begun()
    handle = model.place("attention", 9, call="scaled_dot_product_attention")
    rows = linear(part, model.given((1, 2, 16, 8)), 8)
    there = part.transpose(rows, (2, 0, 1, 3), 100, handle=handle)
    end = linear(part, part.transpose(there, (1, 2, 0, 3), 100, handle=handle), 8)
    returned(part, end)
    finding = found(model)["cancelling-transposes"]
    says(finding.action, "torch.bmm, softmax and torch.bmm", "eager")
    assert "remove permutes" not in finding.action


@pytest.mark.parametrize("product", [True, False])
def test_the_split_into_heads_that_attention_needs_is_no_advice(product: bool) -> None:
    """`view(b, t, h, d).transpose(1, 2)` before a product of two activations, and its reverse after it."""
    model, part = begun()
    given = model.given((1, 16, 32))

    def split() -> int:
        rows = linear(part, given, 32)
        heads = part.node("StaticReshape", [rows], (1, 16, 2, 16), "Static Reshape (NC)", 9)
        return part.transpose(heads, (0, 2, 1, 3), 200)

    if product:
        shape, name = (1, 2, 16, 16), "Batch Matrix Multiply (NC, F32) GEMM"
        mixed = part.node("BatchMatrixMultiply", [split(), split()], shape, name, 100, flops=16_384)
    else:
        mixed = part.node("Softmax", [split()], (1, 2, 16, 16), "Softmax (NC, F32)", 100)
    joined = part.transpose(mixed, (0, 2, 1, 3), 200)
    end = linear(part, part.node("StaticReshape", [joined], (1, 16, 32), "Static Reshape (NC)", 9), 32)
    returned(part, end)
    assert ("data-movement" in found(model)) is not product


def _grouped(window: tuple[int, int], inputs: int, outputs: int, event: str = CONV) -> MadeModel:
    """A convolution of 32 groups with so many channels each, beside a fast plain one."""
    model, groups = MadeModel(), 32
    part = model.delegate()
    image = model.given((1, 8, 8, inputs * groups))
    shape = Window(window, (1, 1), (1, 1), (1, 1, 1, 1), groups, inputs, outputs)
    kind = "DepthwiseConv2d" if inputs == 1 else "Conv2d"
    weights, more = model.stored((1, *window, groups * outputs)), model.stored((64, 3, 3, groups * outputs))
    about = {"window": shape, "flops": 200_000, "handle": model.place("depthwise", 5)}
    made = part.node(kind, [image, weights], (1, 8, 8, groups * outputs), event, 1000, **about)
    plain = Window((3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1, groups * outputs, 64)
    end = part.node("Conv2d", [made, more], (1, 8, 8, 64), CONV, 1000, window=plain, flops=20_000_000)
    returned(part, end)
    return model


@pytest.mark.parametrize("times", [Times.HARDWARE, *UNTIMED])
@pytest.mark.parametrize(
    ("window", "channels", "said"),
    [
        ((7, 7), (1, 1), "25 elements"),
        ((3, 3), (1, 2), "depth multiplier"),
        ((3, 3), (4, 4), "fewer and wider groups"),
    ],
)
def test_small_groups_that_run_as_igemm(window, channels, said, times):
    finding = found(_grouped(window, *channels), times)["depthwise-as-igemm"]
    assert said in finding.action and len(finding.concerns) == 1
    assert finding.concerns[0].where == "depthwise, net.py:5" and "32 groups" in finding.concerns[0].note
    if times is Times.HARDWARE:
        assert finding.max_gain_pct is not None and 48 < finding.max_gain_pct <= 50, "their time"
    for fine in (_grouped((5, 5), 1, 1, "Convolution (NHWC, F32) DWConv"), _grouped((3, 3), 16, 16)):
        assert "depthwise-as-igemm" not in found(fine, times)


def _quantized(inside: str) -> MadeModel:
    """Quantized linear layers, with something between them that stays in floating point."""
    model, part = begun()
    event = "Fully Connected (NC, QS8, QC8W) GEMM"

    def layer(read: int) -> int:
        return part.node("FullyConnected", [read, weights], (16, 16), event, 300, dtype="qint8")

    weights = model.value((16, 16), "qcint8", constant=True)
    x = part.node("Convert", [model.given((16, 16))], (16, 16), "Convert (NC)", 50, dtype="qint8")
    x = layer(x)
    if inside:
        x = part.node("Convert", [x], (16, 16), "Convert (NC)", 60)
        x = part.node(inside, [x], (16, 16), f"{inside} (NC, F32)", 10, handle=model.place("middle", 9))
        x = part.node("Convert", [x], (16, 16), "Convert (NC)", 60, dtype="qint8")
    x = layer(x)
    end = part.node("Convert", [x], (16, 16), "Convert (NC)", 50)
    returned(part, end)
    return model


def test_an_island_names_what_causes_it_and_the_edges_are_none() -> None:
    finding = found(_quantized("Softmax"))["quantize-dequantize"]
    assert {(each.where, each.note) for each in finding.concerns} == {("middle, net.py:9", "around Softmax")}
    assert {each.kind for each in finding.operators} == {"quantize", "dequantize"}
    assert len(finding.concerns) == 2
    assert finding.max_gain_pct == pytest.approx(100 * 120 / 831, abs=0.01), "edges are not part of it"
    says(finding.action, "also quantize the operators")
    untimed = found(_quantized("Softmax"), Times.EMULATED)["quantize-dequantize"]
    assert untimed.max_gain_pct is None and untimed.concerns[0].note == "around Softmax"
    finding = found(_quantized(""))["quantize-dequantize"]
    assert "feed quantized input" in finding.action
    assert "quantize-dequantize" not in found(_quantized(""), Times.EMULATED), "nothing helps against them"


def test_movement_is_called_what_it_is_where_it_costs_something() -> None:
    model, part = begun()
    x = linear(part, model.given((1, 16)), 16)
    both = part.node("Concatenate2", [x, x], (1, 32), "Copy (NC, X32)", 300, handle=model.place("", 6))
    end = linear(part, both)
    returned(part, end)
    finding = found(model)["data-movement"]
    assert finding.evidence["by_kind"] == {"concatenate": 1}
    assert "`torch.cat`" in finding.action and "`clone`" not in finding.action
    assert found(model, Times.EMULATED)["data-movement"].max_gain_pct is None


def test_the_bound_of_operators_outside_holds_layout_changes_that_disappear_with_them() -> None:
    model = MadeModel()
    first = model.delegate()
    out = first.inserted(linear(first, model.given((1, 4, 4, 8)), 16), (0, 3, 1, 2), 300)
    first.done(out)
    between = model.operator("aten::_softmax.out", [out], (1, 16, 4, 4), 1, handle=model.place("", 31))
    second = model.delegate()
    passed = second.node("Abs", [between], (1, 16, 4, 4), "Abs (NC)", 7)
    end = linear(second, second.inserted(passed, (0, 2, 3, 1), 300))
    returned(second, end)
    number = next(step.instruction_id for step in model.instructions if step.name == "aten::_softmax.out")
    why = ("aten._softmax.default", "softmax", "", "dim must be the last dim", "refused")
    left = Undelegated(*why, call="softmax", replacement="softmax(-1)", instruction=number)
    model.undelegated = (left,)
    findings = found(model)
    finding = findings["outside-delegates"]
    assert "layout-changes" not in findings and "cancelling-transposes" not in findings, "counted once"
    assert [each.kind for each in finding.operators] == ["softmax", "transpose", "transpose"]
    spent = finding.found_in.spent_by(finding.operators).ms
    assert finding.max_gain_pct == finding.found_in.gain_pct(spent, finding.besides.ms)
    model.undelegated = (replace(left, replacement=""),)
    assert "layout-changes" in found(model), "without a cure they stay"
