"""Causes in matrix operators: most of the time, grouped, in another precision."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import PurePath

from model_profiling.analysis.causes.avoidable import calls_attention
from model_profiling.analysis.causes.case import Case, Free, reaching
from model_profiling.analysis.findings import Concern, Finding, by_kind, percent, rounded, where
from model_profiling.analysis.matching import matrix_operators, rows_of
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.core.formatting import listing, plural
from model_profiling.core.number_formats import FORMATS, format_of_name
from model_profiling.program.category import MATRIX, Category

_FEW_CHANNELS = 16


def reads_patches(operator: Operator) -> bool:
    """Whether a convolution reads each input once, as the first layer of vision transformers does."""
    source = operator.source
    window, inputs = prod(source.kernel_size or (1, 1)), source.input_shapes[0] if source.input_shapes else ()
    return window > 1 and bool(inputs) and prod(inputs[:-1]) >= prod(source.output_shape[:-1]) * window


# A model bound by its matrix products. No bound: what another number format or SME2 brings was not measured.

_MOST = 0.6
_NEARLY_ALL = 0.995
_A_CURE_FIRST = 10
"""A cure that could save this percentage, or more, is the better advice."""
_NAMED = 0.05
_WIDE = ("fp32", "fp16")
_FORMATS = "`sme2prof profile MODEL --dtype all`"
_COMPARE = f"compare number formats ({_FORMATS})"
_LESS_WORK = "only less work helps: a smaller input, fewer channels, layers or tokens"


def matrix_bound(case: Case, free: Free) -> Finding | None:
    """Products that no other finding explains take most of the time; without latencies, of the arithmetic."""
    series = case.series
    inside = [each for each in matrix_operators(series) if each.delegated]
    unexplained = [each for each in free if each.delegated and each.category in MATRIX]
    if _part(case, unexplained) < _MOST:
        return None
    shares = {kind: _part(case, [each for each in inside if each.category is kind]) for kind in MATRIX}
    names = [kind.value for kind, share in shares.items() if share >= _NAMED]
    share = sum(part for part in shares.values() if part >= _NAMED)
    one, part = len(names) == 1, f"{100 * share:.0f}%" if share < _NEARLY_ALL else "nearly all"
    if case.timed:
        does = f"{'takes' if one else 'take'} {part} of the time: speed up"
    else:
        does = f"{'has' if one else 'have'} {part} of the arithmetic: begin with"
    several = case.timed and len({each.threads for each in case.every}) > 1
    with_threads = f"With {plural(series.series.threads or 1, 'thread')}, " if several else ""
    formats, format_step = _other_formats(case, unexplained)
    more = list(filter(None, (_on_sme2(case), _threads(case), _one_row(case, unexplained))))
    return Finding(
        "matrix-bound",
        f"{with_threads}{listing(names)} {does} the matrix products",
        tuple(filter(None, (formats, *more, f"beyond that, {_LESS_WORK}"))),
        series,
        evidence={
            "share": share,
            "share_of": "time" if case.timed else "arithmetic",
            "matrix_operators": len(unexplained),
            "precisions": sorted({each.precision for each in unexplained if each.precision}),
        },
        weight_pct=_A_CURE_FIRST,
        first_step=next(iter(filter(None, (format_step, *more))), _LESS_WORK),
    )


def _part(case: Case, operators: Sequence[Operator]) -> float:
    """Their share of the time, as the first answer says it, or of the arithmetic."""
    series = case.series
    if case.timed:
        real = max(0.1, 1 - series.tracing.share) if series.distorted else 1.0
        return min(1.0, series.spent_by(operators).share / real)
    flops, every = (sum(each.source.flops or 0 for each in some) for some in (operators, series.operators))
    return flops / every if every else 0.0


def _other_formats(case: Case, operators: Sequence[Operator]) -> tuple[str, str]:
    """The formats that were measured, those to compare with, and which reach SME2, and how to begin; empty if
    all products are in 8 bits or fewer."""
    parts = {each: [one for one in operators if one.precision == each] for each in _WIDE}
    wide = [each for each, some in parts.items() if _part(case, some) >= _NAMED]
    # Of a quantized program, what stayed in floating point is another finding, unless it is most of it.
    asked = _asked_format(case.series)
    most = sum(_part(case, some) for some in parts.values()) >= _MOST * _part(case, operators)
    if not wide or (asked.startswith("int") and not most):
        return "", ""
    dynamic = any(operator.kind == "linear" for operator in operators)
    others = [
        each for each in FORMATS[1:4] if each not in (*wide, asked) and (dynamic or each != "int8-dynamic")
    ]
    own, beside = case.series.untraced_ms or case.series.e2e_ms, case.beside.get(case.series.series, {})
    faster = [each for each in sorted(beside, key=beside.__getitem__) if beside[each] < own]
    ways = []
    if faster:
        shown = listing([f"{each} ({beside[each]:.3g} ms)" for each in faster])
        ways.append(f"{shown} {'is' if len(faster) == 1 else 'are'} faster than these {own:.3g} ms")
    elif beside:
        ways.append(f"{listing(list(beside))} {'is' if len(beside) == 1 else 'are'} not faster")
    if untried := [each for each in others if each not in beside]:
        ways.append(f"compare {listing(untried)} ({_FORMATS})")
    kinds = by_kind(operators, lambda operator: _part(case, [operator]))
    ways.append(reaching(case.executorch, next(iter(kinds))))
    step = _COMPARE if untried else ways[0] if faster else ""
    return f"they compute in {listing(wide)}: {', '.join(filter(None, ways))}", step


def _asked_format(series: SeriesAnalysis) -> str:
    """The format in the program's name; empty if it has none."""
    return format_of_name(PurePath(series.graph.program.source).stem) if series.graph else ""


def _on_sme2(case: Case) -> str:
    coverage = case.coverage
    if coverage is None or not coverage.proven or case.series.sme2:
        return ""
    every = plural(len(coverage.operators), "matrix operator")
    return f"on a CPU with SME2, SME2 kernels run {len(coverage.proven)} of {every}, as emulation shows"


def _threads(case: Case) -> str:
    alone = case.timed and {each.threads for each in case.every} == {1}
    return "they ran on 1 thread: measure more (`--threads 1,2`)" if alone else ""


def _one_row(case: Case, operators: Sequence[Operator]) -> str:
    rows = [each for each in operators if rows_of(each) == 1]
    if _part(case, rows) < _NAMED:
        return ""
    return (
        f"{len(rows)} of them have a single row, which uses each weight once: use a smaller "
        "number format, or compute several inputs at once"
    )


# Depthwise and grouped convolutions that run as an indirect matrix product, a small one for each group.

_LARGEST_WINDOW = 25
"""XNNPACK's depthwise kernels take windows of up to 3, 4, 9 or 25 elements (`dwconv-config.c`), in fp32, fp16
and int8, where each group has one input and one output channel (`convolution-nhwc.c`); all else is IGEMM."""


def depthwise_as_igemm(case: Case, free: Free) -> Finding | None:
    slow = case.largest(free, _runs_as_product)
    if not slow or not case.matters(slow):
        return None
    named = "depthwise" if all(_per_group(each)[0] == 1 for each in slow) else "grouped"
    finding = Finding(
        "depthwise-as-igemm",
        f"Give {plural(len(slow), f'{named} convolution')} a shape that XNNPACK has kernels for",
        tuple(_other_shapes(slow)),
        case.series,
        tuple(map(_grouped_concern, slow)),
    )
    return case.bounded(finding, slower=_FEW_CHANNELS)  # a tile has so many columns, whatever the group has


def _runs_as_product(operator: Operator) -> bool:
    """Whether the event's name says IGEMM and its groups are too small for that."""
    if not operator.delegated or operator.source.groups < 2 or not operator.type.endswith("IGEMM"):
        return False
    inputs, outputs = _per_group(operator)
    return 0 < outputs < _FEW_CHANNELS and inputs > 0


def _per_group(operator: Operator) -> tuple[int, int]:
    """Input and output channels of each group; XNNPACK's images have their channels last."""
    source = operator.source
    given = source.input_shapes[0][-1] if source.input_shapes and source.input_shapes[0] else 0
    made = source.output_shape[-1] if source.output_shape else 0
    return given // source.groups, made // source.groups


def _other_shapes(slow: Sequence[Operator]) -> list[str]:
    shapes = [(*_per_group(each), prod(each.source.kernel_size or (0,))) for each in slow]
    ways = (
        (
            any((given, made) == (1, 1) and window > _LARGEST_WINDOW for given, made, window in shapes),
            f"XNNPACK's depthwise kernels take windows of up to {_LARGEST_WINDOW} elements (5x5): use "
            "several smaller windows one after another, which cover as much as a large one",
        ),
        (
            any(given == 1 and made > 1 for given, made, _ in shapes),
            "its depthwise kernels compute one output for each input channel: repeat the channels with a "
            "1x1 convolution instead of a depth multiplier",
        ),
        (
            any(given > 1 for given, _, _ in shapes),
            f"groups of fewer than {_FEW_CHANNELS} channels leave the tiles of a matrix product mostly "
            "empty: use fewer and wider groups, or none",
        ),
    )
    found = [way for applies, way in ways if applies]
    return found or ["a plain convolution of fewer channels may be faster"]


def _grouped_concern(operator: Operator) -> Concern:
    source, (inputs, outputs) = operator.source, _per_group(operator)
    kernel = "x".join(str(side) for side in source.kernel_size or ())
    shape = f"{kernel}, {source.groups} groups of {inputs} to {plural(outputs, 'channel')}"
    facts = {
        "kernel_size": list(source.kernel_size or ()),
        "groups": source.groups,
        "gflops": rounded(operator.gflops),
    }
    return Concern((operator,), where(operator), shape, facts)


# Matrix operators in a wider precision than exported. No bound: the other precision was not measured.


def precision_not_as_asked(case: Case, _free: Free) -> Finding | None:
    series = case.series
    asked = _asked_format(series)
    matrix = [operator for operator in matrix_operators(series) if operator.precision]
    other = [
        operator
        for operator in matrix
        if (asked == "fp16" and operator.precision == "fp32")
        or (asked.startswith("int") and not operator.precision.startswith("int"))
    ]
    if not other:
        return None
    timed = series.times.are_latencies
    if timed:
        other.sort(key=lambda operator: -operator.typical_ms)
    ran_in = list(dict.fromkeys(operator.precision for operator in other))
    flops, every = (sum(each.source.flops or 0 for each in some) for some in (other, matrix))
    inside = [operator for operator in other if operator.delegated]  # the others are a finding of their own
    inside_flops = sum(each.source.flops or 0 for each in inside)
    share = series.spent_by(inside).share if timed else inside_flops / (every or 1)
    concerns = []
    for operator in other:
        reason, spent = _why(operator, asked)[0], series.spent_by([operator])
        facts: dict[str, object] = {"precision": operator.precision, "reason": reason}
        facts |= {"ms": spent.ms, "share": spent.share} if timed else {}
        concerns.append(Concern((operator,), where(operator), f"{operator.precision}: {reason}", facts))
    return Finding(
        "precision-not-as-asked",
        f"Expect less from {asked}: {len(other)} of {plural(len(matrix), 'matrix operator')} ran in "
        f"{listing(ran_in)}",
        tuple(dict.fromkeys(_why(operator, asked)[1] for operator in other)),
        series,
        tuple(concerns),
        {
            "asked": asked,
            "matrix_operators": len(matrix),
            "not_as_asked": len(other),
            "arithmetic_share": flops / (every or 1),
            "time_share": series.spent_by(other).share if timed else None,
        },
        # Most of the model is not in the format that was asked for: the first thing to know.
        weight_pct=percent(share) if share >= _MOST and not any(each.ran_wider for each in other) else 0.0,
    )


_STEPS_IN_FP32 = (
    "torch computes the steps of this call in fp32",
    "write the steps of attention yourself (torch.bmm, softmax, torch.bmm; transformers: "
    'attn_implementation="eager"): they stay in fp16',
)
_CAST_TO_FP32 = (
    "the program has it in fp32",
    "remove casts to float32 around it in the model, and fp32 tensors among its inputs",
)


def _why(operator: Operator, asked: str) -> tuple[str, str]:
    if operator.ran_wider:
        return (
            "this CPU has no fp16 arithmetic, so XNNPACK ran it in fp32",
            "measure fp16 on a CPU with fp16 arithmetic: this measurement says nothing about fp16",
        )
    if asked == "fp16":
        return _STEPS_IN_FP32 if calls_attention(operator) else _CAST_TO_FP32
    if operator.kind in ("matmul", "attention"):
        return (
            "the quantizer handles linear layers and convolutions, not products of two activations",
            "products of two activations (attention, decomposed cells) stay in fp32 with XNNPACKQuantizer: "
            "expect int8 only for linear layers and convolutions, or compare with fp16",
        )
    if asked.startswith("int4"):
        return (
            "int4 quantizes linear layers only",
            "int4 leaves convolutions in fp32: compare with int8, which quantizes them too",
        )
    if asked == "int8-dynamic" and operator.category is Category.CONV:
        return (
            "int8-dynamic leaves out convolutions before a ReLU, of one dimension, and depthwise ones",
            "compare with int8, which quantizes every convolution",
        )
    return (
        "the quantizer did not quantize it",
        "the quantizer handles `linear` and convolutions in the exported graph, not those inside nn.LSTM "
        "or nn.GRU, which are split up later: write such cells with nn.Linear",
    )
