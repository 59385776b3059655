"""What an expert expects the kit to say of each model of the zoo, written by hand from the models' sources
and from what XNNPACK and ExecuTorch are known to do with them.

An expectation that does not hold is looked into: either the kit is wrong, or the expert learns something and
says here what. It is never changed because the kit says something else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

# What a report without latencies may say of a program.
STRUCTURAL = frozenset({
    "outside-delegates", "layout-changes", "quantize-dequantize", "input-independent",
    "cancelling-transposes", "depthwise-as-igemm", "precision-not-as-asked",
    "data-movement", "misses-sme2", "matrix-bound",
    "wrong-results",
})  # fmt: skip
# What needs times, or a CPU with SME2.
TIMED = frozenset({"sme2-slower", "sme2-no-faster"})

NO_RULE = "no rule for this operator"
TRAILING = "unsqueeze_copy only supported on the trailing dimension"
KEEPDIM = "mean.dim only supports keepdim=True"


@dataclass(frozen=True)
class Outside:
    """Operators that the partitioner leaves, at one line of the model, for one reason."""

    operators: str
    """Names without namespace and overload, separated by spaces."""
    line: str
    """A part of the line that makes them."""
    reason: str = NO_RULE
    """A part of what the partitioner says."""
    instead: str = ""
    """A part of what to write instead; empty where nothing better is known."""


@dataclass(frozen=True)
class Advice:
    """A finding, and a part of a line among those it is about; an empty one says nothing of lines."""

    id: str
    line: str = ""


@dataclass(frozen=True)
class Expected:
    model: str
    """`file.py:factory` in this folder."""
    dtype: str
    found: tuple[Advice, ...]
    """What the program alone shows, whatever its times."""
    worth: frozenset[str] = frozenset()
    """What costs so much that a report with latencies must say it as well."""
    may: frozenset[str] = frozenset()
    """What depends on the CPU, or on taste; every finding that is in neither is a false one."""
    outside: tuple[Outside, ...] = ()
    """Everything that stays outside."""
    matrix_dtypes: frozenset[str] = frozenset({"fp32"})
    """The precisions its matrix operators run in."""

    @property
    def name(self) -> str:
        return f"{self.model.replace('.py:', '_')}_{self.dtype}"


# The category of every operator of the zoo, by what it does: those of delegates by XNNPACK's name for them,
# those outside by ExecuTorch's, without `_copy`.
CATEGORIES = {
    name: category
    for category, names in (
        ("Convolution", "Convolution, convolution"),
        ("GEMM", "Fully Connected, Batch Matrix Multiply, Dynamic Fully Connected"),
        ("Data Movement", "Transpose, Copy, Slice, Static Reshape, Convert, Pack LH"),
        (
            "Data Movement",
            "expand, squeeze, unsqueeze, view, select, slice, split_with_sizes, copy, slice_scatter",
        ),
        (
            "Data Movement",
            "index, index_select, embedding, _to_dim_order, full, full_like, arange, scalar_tensor",
        ),
        ("Elementwise", "Add, Multiply, Divide, Negate, Square, Reciprocal Square Root"),
        ("Elementwise", "Clamp, Sigmoid, TanH, GELU, HardSwish, Invalid Unary Op"),
        ("Elementwise", "where, eq, le, logical_not, logical_and, add, sub, mul, fmod, pow, gelu"),
        ("Other", "Softmax, Mean, Max Pooling, Resize Bilinear"),
        ("Other", "native_layer_norm, native_group_norm, mean, sum, any"),
    )
    for name in names.split(", ")
}

# Whether a matrix operator could take SME2 is known of the CPU that has it; whether its shape is one that
# pays, too.
_ON_SME2 = frozenset({"misses-sme2"})
# Reshapes and joins of data: worth a word where they cost something.
_MOVES = frozenset({"data-movement"})

# The layout change of a picture or of a few numbers: true, and next to nothing beside the convolutions.
_AT_EDGE = frozenset({"layout-changes"})
# A token, a first state or a few numbers that are made anew each time: true, and of no weight.
_ONE_COPY = frozenset({"input-independent"})

_LAYER_NORM = "native_layer_norm"
_FUSED_ATTENTION = "expand mul eq full_like logical_not any where"
_ATTENTION_INSTEAD = "torch.bmm"


def _norms(*lines: str) -> tuple[Outside, ...]:
    return tuple(Outside(_LAYER_NORM, line) for line in lines)


# 49 taps are more than XNNPACK's depthwise kernels have: they run as IGEMM, one channel at a time, and take
# most of the time. The permute after each undoes the layout change that lowering put there.
_CONVNEXT = Expected(
    "convnext.py:model", "fp32",
    found=(
        Advice("depthwise-as-igemm", "self.depthwise(x)"),
        Advice("outside-delegates", "self.norm(rows)"),
        Advice("cancelling-transposes", "self.depthwise(x).permute(0, 2, 3, 1)"),
        Advice("layout-changes"), Advice("data-movement", "(self.scale * rows).permute(0, 3, 1, 2)"),
    ),
    worth=frozenset({"depthwise-as-igemm"}), may=_ON_SME2,
    outside=(
        *_norms("self.norm(rows)", "self.norm(self.blocks"),
        Outside("mean", ".mean((2, 3))", KEEPDIM, "keepdim=True"),
    ),
)  # fmt: skip
# Six steps of next to nothing, a delegate call for each: entering them is what costs. A batch of one makes
# every product of a state a single row.
_LSTM = Expected(
    "lstm.py:model", "fp32",
    found=(Advice("outside-delegates", "self.lstm(sequence)"), Advice("data-movement")),
    worth=frozenset({"outside-delegates"}), may=_ON_SME2 | _ONE_COPY,
    outside=(
        Outside("squeeze split_with_sizes full", "self.lstm(sequence)", NO_RULE, "steps one after another"),
        Outside("unsqueeze", "self.lstm(sequence)", TRAILING, "steps one after another"),
    ),
)  # fmt: skip

EXPECTED = (
    # Everything is inside. The ReLU after a sum belongs to the sum, though XNNPACK shows it as an event of
    # its own. Two layout changes: the picture, and 64 numbers before the head; neither costs anything.
    # In int8, numbers are converted at the edges alone: no island.
    *(
        Expected(
            "resnet.py:model", dtype,
            found=(),
            may=_ON_SME2 | _MOVES | _AT_EDGE,
            matrix_dtypes=frozenset({dtype}),
        )
        for dtype in ("fp32", "fp16", "int8")
    ),
    _CONVNEXT,
    # Layer norm stays in fp32, with conversions before and after; GELU does not, since XNNPACK looks 8-bit
    # values up in a table.
    replace(
        _CONVNEXT,
        dtype="int8",
        # Layout changes and conversions are beside the norms outside, and disappear with them.
        found=tuple(each for each in _CONVNEXT.found if each.id != "layout-changes"),
        may=_CONVNEXT.may | {"layout-changes", "quantize-dequantize"},
        matrix_dtypes=frozenset({"int8"}),
    ),
    # Matrix products of four dimensions bring expand; unbind brings squeeze. The patches' permutes are the
    # model's own and do not undo each other; what the last convolution joins leaves the first delegate call
    # channels-first and is turned back in the last.
    Expected(
        "mobilevit.py:model", "fp32",
        found=(
            Advice("outside-delegates", "query @ key"), Advice("layout-changes"),
            Advice("cancelling-transposes"), Advice("data-movement", "torch.cat((x, picture), 1)"),
        ),
        worth=frozenset({"outside-delegates"}), may=_ON_SME2,
        outside=(
            *_norms("self.norm1(x)", "self.norm2(x)"),
            Outside("squeeze", ".unbind(0)", NO_RULE, "reshape"),
            Outside("expand", "query @ key", NO_RULE, "torch.bmm"),
            Outside("expand", "@ value", NO_RULE, "torch.bmm"),
        ),
    ),
    # Fused attention falls apart: it guards against rows that are masked altogether, though there is no
    # mask, and permutes there and back at its end.
    Expected(
        "vit.py:model", "fp32",
        found=(
            Advice("outside-delegates", "self.attend("),
            Advice("cancelling-transposes", "self.attend("), Advice("layout-changes"),
            Advice("data-movement", "torch.cat((self.token"),
        ),
        worth=frozenset({"outside-delegates"}), may=_ON_SME2 | _ONE_COPY,
        outside=(
            *_norms("self.norm1(x)", "self.norm2(x)"),
            Outside("expand", "self.token.expand"),
            Outside(_FUSED_ATTENTION, "self.attend(", NO_RULE, _ATTENTION_INSTEAD),
            Outside(f"{_LAYER_NORM} select", "self.norm(self.layer(x))"),
        ),
    ),
    # fp16: attention is computed in fp32 by its decomposition, and GELU has no fp16 kernel.
    Expected(
        "vit.py:model", "fp16",
        found=(
            Advice("outside-delegates", "F.gelu("),
            Advice("precision-not-as-asked", "self.attend("),
            Advice("cancelling-transposes", "self.attend("), Advice("layout-changes"),
            Advice("data-movement", "torch.cat((self.token"),
        ),
        worth=frozenset({"outside-delegates", "precision-not-as-asked"}), may=_ON_SME2 | _ONE_COPY,
        outside=(
            *_norms("self.norm1(x)", "self.norm2(x)"),
            Outside("expand", "self.token.expand"),
            Outside(_FUSED_ATTENTION, "self.attend(", NO_RULE, _ATTENTION_INSTEAD),
            Outside("_to_dim_order", "self.attend(", "float16 to float32", _ATTENTION_INSTEAD),
            Outside("_to_dim_order", "self.attend(", "float32 to float16", _ATTENTION_INSTEAD),
            Outside("gelu", "F.gelu(", "GELU does not support fp16", "sigmoid"),
            Outside(f"{_LAYER_NORM} select", "self.norm(self.layer(x))"),
        ),
        matrix_dtypes=frozenset({"fp16", "fp32"}),
    ),
    # int8: PT2E leaves the products of two activations in fp32, with conversions around them, around GELU
    # and around the layer norms. The token is expanded when the ranges are calibrated, so it is a constant
    # here.
    Expected(
        "vit.py:model", "int8",
        found=(
            Advice("outside-delegates", "self.attend("),
            Advice("precision-not-as-asked", "self.attend("),
            Advice("cancelling-transposes", "self.attend("),
        ),
        # Most conversions are beside the norms outside, and disappear with them. In 8 bits, the join of token
        # and patches is little beside the conversions.
        worth=frozenset({"outside-delegates"}),
        may=_ON_SME2 | _ONE_COPY | _AT_EDGE | _MOVES | {"quantize-dequantize"},
        outside=(
            *_norms("self.norm1(x)", "self.norm2(x)"),
            Outside(_FUSED_ATTENTION, "self.attend(", NO_RULE, _ATTENTION_INSTEAD),
            Outside(f"{_LAYER_NORM} select", "self.norm(self.layer(x))"),
        ),
        matrix_dtypes=frozenset({"int8", "fp32"}),
    ),
    # The same attention in plain steps is inside as a whole. The transpose after the patches undoes the
    # layout change that lowering put behind the convolution: flattening between them moves nothing.
    Expected(
        "vit.py:written", "fp32",
        found=(
            Advice("outside-delegates", "self.norm1(x)"),
            Advice("cancelling-transposes", "self.patches(image)"), Advice("layout-changes"),
            Advice("data-movement", "torch.cat((self.token"),
        ),
        may=_ON_SME2 | _ONE_COPY,
        outside=(
            *_norms("self.norm1(x)", "self.norm2(x)"),
            Outside("expand", "self.token.expand"),
            Outside(f"{_LAYER_NORM} select", "self.norm(self.layer(x))"),
        ),
    ),
    # Each stage goes from rows to a picture and back, four times; every one of these meets a layout change
    # of the lowering that it undoes. Nothing but the layer norms is outside.
    Expected(
        "segformer.py:model", "fp32",
        found=(
            Advice("outside-delegates", "self.norm0("),
            Advice("cancelling-transposes", "self.mix(self.norm2(x)"), Advice("layout-changes"),
            Advice("data-movement", "torch.cat((grown"),
        ),
        worth=frozenset({"outside-delegates"}), may=_ON_SME2,
        outside=_norms("self.norm0(", "self.norm1(x)", "self.norm2(x)"),
    ),
    # Bias, mask and the places of a roll are the same in every inference; the mask alone cuts the program
    # into small pieces. The permute behind the patches undoes a layout change.
    Expected(
        "swin.py:model", "fp32",
        found=(
            Advice("input-independent", "self.mask(high, wide)"),
            Advice("outside-delegates", "self.norm1(x)"),
            Advice("cancelling-transposes", "self.patches(image).permute"), Advice("layout-changes"),
            Advice("data-movement"),
        ),
        worth=frozenset({"input-independent", "outside-delegates"}), may=_ON_SME2,
        outside=(
            *_norms("self.norm1(x)", "self.norm2(x)", "self.norm(x)"),
            Outside("full scalar_tensor copy slice_scatter squeeze eq where", "self.mask(high, wide)"),
            Outside("unsqueeze", "self.mask(high, wide)", TRAILING, "register_buffer"),
            Outside("index", "self.bias()"),
            Outside("arange fmod index_select", "self.rolled("),
            Outside("add", "self.rolled(", "int64"),
            Outside("mean", ".mean((1, 2))", "averaging 4D tensors across the innermost"),
        ),
    ),
    # Kept in buffers, they are gone.
    Expected(
        "swin.py:hoisted", "fp32",
        found=(
            Advice("outside-delegates", "self.norm1(x)"),
            Advice("cancelling-transposes", "self.patches(image).permute"), Advice("layout-changes"),
            Advice("data-movement"),
        ),
        may=_ON_SME2,
        outside=(
            *_norms("self.norm1(x)", "self.norm2(x)", "self.norm(x)"),
            Outside("mean", ".mean((1, 2))", "averaging 4D tensors across the innermost"),
        ),
    ),
    # No convolution, so no layout change. The places depend on the length alone, and that is fixed: 12 kB of
    # rows that are looked up again each time. All it moves is attention's split into heads, which it needs.
    Expected(
        "distilbert.py:model", "fp32",
        found=(Advice("outside-delegates", "scores.masked_fill"),),
        worth=frozenset({"outside-delegates"}), may=_ON_SME2 | _ONE_COPY,
        outside=(
            *_norms("self.norm1(x", "self.norm2(x"),
            Outside(f"embedding {_LAYER_NORM}", "self.words(tokens)"),
            Outside("slice", "self.order[:, :count]", "int64"),
            Outside("eq", "attention_mask == 0"),
            Outside("view", "attention_mask == 0", "bool"),
            Outside("expand", "torch.matmul(query", NO_RULE, "torch.bmm"),
            Outside("scalar_tensor where", "masked_fill"),
            Outside("expand", "torch.matmul(scores", NO_RULE, "torch.bmm"),
            Outside("select", "[:, 0]", NO_RULE, "[:, 0:1]"),
        ),
    ),
    # A 1-d convolution is a 2-d one for XNNPACK: layout changes around each, as GELU between them has none.
    # They undo each other, and the last one the permute; what is left is the spectrogram's.
    Expected(
        "whisper.py:model", "fp32",
        found=(
            Advice("outside-delegates", "F.scaled_dot_product_attention("),
            Advice("cancelling-transposes", "F.scaled_dot_product_attention("),
        ),
        worth=frozenset({"outside-delegates"}), may=_ON_SME2 | _MOVES | _AT_EDGE | _ONE_COPY,
        outside=(
            *_norms("self.norm1(x)", "self.norm2(x)", "self.norm(self.layer"),
            Outside(_FUSED_ATTENTION, "F.scaled_dot_product_attention(", NO_RULE, _ATTENTION_INSTEAD),
        ),
    ),
    # The norm of a weight is the same in every inference, and the convolution that waits for it runs on a
    # portable kernel: most of the time, for want of one line before export. One thing to do, one advice.
    Expected(
        "wav2vec2.py:model", "fp32",
        found=(Advice("outside-delegates", "self.positional("),),
        worth=frozenset({"outside-delegates"}),
        may=_ON_SME2 | _MOVES | {"cancelling-transposes", "layout-changes"},
        outside=(
            *_norms("self.norm(x.transpose", "self.norm1(x", "self.norm2(x"),
            Outside("unsqueeze", "audio.unsqueeze(1)", TRAILING, "reshape"),
            Outside("native_group_norm", "self.norm0("),
            Outside("sum", "self.positional(", NO_RULE, "remove_param"),
            Outside("pow", "self.positional(", "int powers", "remove_param"),
            Outside("convolution", "self.positional(", "static param", "remove_param"),
        ),
    ),
    # With a plain weight it is inside, in groups of sixteen channels.
    Expected(
        "wav2vec2.py:plain", "fp32",
        found=(Advice("outside-delegates", "self.norm1(x"),),
        may=_ON_SME2 | _MOVES | {"cancelling-transposes", "depthwise-as-igemm", "layout-changes"},
        outside=(
            *_norms("self.norm(x.transpose", "self.norm1(x", "self.norm2(x"),
            Outside("unsqueeze", "audio.unsqueeze(1)", TRAILING, "reshape"),
            Outside("native_group_norm", "self.norm0("),
        ),
    ),
    # A causal mask is the same in every inference: arange, le, where. The mean of an RMS norm wants four
    # dimensions.
    Expected(
        "llama.py:model", "fp32",
        found=(
            Advice("outside-delegates", "F.scaled_dot_product_attention("),
            Advice("input-independent", "F.scaled_dot_product_attention("),
            Advice("cancelling-transposes", "F.scaled_dot_product_attention("), Advice("data-movement"),
        ),
        worth=frozenset({"outside-delegates", "input-independent"}), may=_ON_SME2,
        outside=(
            Outside("embedding", "self.embed(tokens)"),
            Outside("mean", "x.pow(2).mean(-1, keepdim=True)", "averaging 4D tensors, got tensor of rank 3"),
            Outside("expand", "key.repeat_interleave"),
            Outside("unsqueeze", "key.repeat_interleave", TRAILING, "reshape"),
            Outside("expand", "value.repeat_interleave"),
            Outside("unsqueeze", "value.repeat_interleave", TRAILING, "reshape"),
            Outside(
                f"{_FUSED_ATTENTION} arange scalar_tensor full le logical_and",
                "F.scaled_dot_product_attention(",
                NO_RULE,
                _ATTENTION_INSTEAD,
            ),
            Outside("unsqueeze sub", "F.scaled_dot_product_attention(", "int64", _ATTENTION_INSTEAD),
        ),
    ),
    # Shuffling channels wants them first, convolutions want them last: layout changes around each shuffle.
    Expected(
        "shufflenet.py:model", "fp32",
        found=(
            Advice("outside-delegates", "x.chunk(2, 1)"), Advice("layout-changes"),
            Advice("data-movement", "torch.cat((past"),
        ),
        worth=frozenset({"outside-delegates", "layout-changes"}), may=_ON_SME2,
        outside=(
            Outside("split_with_sizes", "x.chunk(2, 1)", NO_RULE, "x[:, :n]"),
            Outside("mean", ".mean((2, 3))", KEEPDIM, "keepdim=True"),
        ),
    ),
    # All inside; what the fire modules join is the model's own and has a cost.
    Expected(
        "squeezenet.py:model", "fp32",
        found=(Advice("layout-changes"), Advice("data-movement", "torch.cat((F.relu(self.expand1")),
        may=_ON_SME2,
    ),
    _LSTM,
    # Asked for int8; only the head is, and what its two conversions cost depends on the CPU.
    replace(
        _LSTM,
        dtype="int8",
        found=(Advice("precision-not-as-asked", "self.lstm(sequence)"), *_LSTM.found),
        worth=frozenset({"outside-delegates", "precision-not-as-asked"}),
        may=_LSTM.may | {"quantize-dequantize"},
        matrix_dtypes=frozenset({"fp32", "int8"}),
    ),
    # A hardsigmoid's constants are whole numbers, converted outside in each inference: of no weight in fp32.
    Expected(
        "mobilenet.py:model", "fp32",
        found=(Advice("outside-delegates", "F.hardsigmoid(scale)"),),
        may=_ON_SME2 | _MOVES | _AT_EDGE,
        outside=(Outside("_to_dim_order", "F.hardsigmoid(scale)", "int64 to float32", "relu6"),),
    ),
    # In fp16 it goes by way of fp32, outside: five delegates, and layouts that change at each edge. Those are
    # what it costs: the conversions and the calls are a hundredth of the time.
    Expected(
        "mobilenet.py:model", "fp16",
        found=(
            Advice("outside-delegates", "F.hardsigmoid(scale)"),
        ),
        # Nearly all layout changes are beside the calls outside, and disappear with them.
        worth=frozenset({"outside-delegates"}),
        may=_ON_SME2 | _MOVES | _AT_EDGE | {"precision-not-as-asked", "cancelling-transposes"},
        outside=(
            Outside("_to_dim_order", "F.hardsigmoid(scale)", "int64 to float32", "relu6"),
            Outside("_to_dim_order", "F.hardsigmoid(scale)", "float16 to float32", "relu6"),
            Outside("_to_dim_order", "F.hardsigmoid(scale)", "float32 to float16", "relu6"),
        ),
        matrix_dtypes=frozenset({"fp16"}),
    ),
)  # fmt: skip
