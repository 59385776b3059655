"""Causes in matrix operators: most of the time, grouped, in another precision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from pathlib import PurePath

from model_profiling.analysis.causes.outside import ATTENTION, calls_function
from model_profiling.analysis.findings import (
    Concern,
    Finding,
    Free,
    SeriesCase,
    by_kind,
    percent,
    reaching,
    where,
)
from model_profiling.analysis.matching import matrix_operators
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.core.formatting import listing, plural
from model_profiling.core.number_formats import FORMATS, format_of_name
from model_profiling.program.category import MATRIX

_FEW_CHANNELS = 16


# A model bound by its matrix products. No bound: what another number format or SME2 brings was not measured.

_MOST = 0.6
_NEARLY_ALL = 0.995
_A_CURE_FIRST = 10
"""A cure that could save this percentage, or more, is the better advice."""
_NAMED = 0.05
_WIDE = ("fp32", "fp16")
_COMPARE = "compare number formats (`sme2prof profile MODEL --dtype all`)"
_LESS_WORK = "only less work helps: a smaller input, fewer channels, layers or tokens"


def matrix_bound(case: SeriesCase, free: Free) -> Finding | None:
    """Products that no other finding explains take most of the time; without latencies, of the arithmetic."""
    series = case.series
    inside = [each for each in matrix_operators(series) if each.delegated]
    unexplained = [each for each in free if each.delegated and each.category in MATRIX]
    if _part(case, unexplained) < _MOST:
        return None
    shares = {kind: _part(case, [each for each in inside if each.category is kind]) for kind in MATRIX}
    names = [kind.value for kind, share in shares.items() if share >= _NAMED]
    share = sum(part for part in shares.values() if part >= _NAMED)
    part = f"{100 * share:.0f}%" if share < _NEARLY_ALL else "nearly all"
    verb = ("takes" if len(names) == 1 else "take") if case.timed else ("has" if len(names) == 1 else "have")
    several = case.timed and len({each.threads for each in case.every}) > 1
    with_threads = f"With {plural(series.series.threads or 1, 'thread')}, " if several else ""
    formats = list(_other_formats(case, unexplained))
    steps = [*formats, *_threads(case)]
    return Finding(
        "matrix-bound",
        f"{with_threads}{listing(names)} {verb} {part} of the "
        f"{'time: speed up' if case.timed else 'arithmetic: begin with'} the matrix products",
        (*steps, f"beyond that, {_LESS_WORK}"),
        series,
        evidence={"share": share, "share_of": "time" if case.timed else "arithmetic"},
        weight_pct=_A_CURE_FIRST,
        first_step=_COMPARE if formats else (*steps, _LESS_WORK)[0],
    )


def _part(case: SeriesCase, operators: Sequence[Operator]) -> float:
    """Their share of the time, as the first answer says it, or of the arithmetic."""
    series = case.series
    if case.timed:
        real = max(0.1, 1 - series.tracing.share) if series.distorted else 1.0
        return min(1.0, series.spent_by(operators).share / real)
    flops, every = (sum(each.source.flops or 0 for each in some) for some in (operators, series.operators))
    return flops / every if every else 0.0


def _other_formats(case: SeriesCase, operators: Sequence[Operator]) -> Iterator[str]:
    """The formats to compare with, and which reach SME2; nothing if all products are in 8 bits or fewer."""
    parts = {each: [one for one in operators if one.precision == each] for each in _WIDE}
    wide = [each for each, some in parts.items() if _part(case, some) >= _NAMED]
    # Of a quantized program, what stayed in floating point is another finding, unless it is most of it.
    asked = _asked_format(case.series)
    most = sum(_part(case, some) for some in parts.values()) >= _MOST * _part(case, operators)
    if not wide or (asked.startswith("int") and not most):
        return
    dynamic = any(operator.kind == "linear" for operator in operators)
    others = [
        each for each in FORMATS[1:4] if each not in (*wide, asked) and (dynamic or each != "int8-dynamic")
    ]
    kinds = by_kind(operators, lambda operator: _part(case, [operator]))
    reach = reaching(case.executorch, next(iter(kinds)))
    compare = f"compare {listing(others)} (`sme2prof profile MODEL --dtype all`)"
    yield f"they compute in {listing(wide)}: {', '.join(filter(None, (compare, reach)))}"


def _asked_format(series: SeriesAnalysis) -> str:
    """The format in the program's name; empty if it has none."""
    return format_of_name(PurePath(series.graph.program.source).stem) if series.graph else ""


def _threads(case: SeriesCase) -> Iterator[str]:
    if case.timed and {each.threads for each in case.every} == {1}:
        yield "they ran on 1 thread: measure more (`--threads 1,2`)"


# Depthwise and grouped convolutions that run as an indirect matrix product, a small one for each group.

_LARGEST_WINDOW = 25
"""XNNPACK's depthwise kernels take windows of up to 3, 4, 9 or 25 elements (`dwconv-config.c`), in fp32, fp16
and int8, where each group has one input and one output channel (`convolution-nhwc.c`); all else is IGEMM."""


def depthwise_as_igemm(case: SeriesCase, free: Free) -> Finding | None:
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


def _other_shapes(slow: Sequence[Operator]) -> Iterator[str]:
    shapes = [(*_per_group(each), prod(each.source.kernel_size or (0,))) for each in slow]
    if any((given, made) == (1, 1) and window > _LARGEST_WINDOW for given, made, window in shapes):
        yield (
            f"XNNPACK's depthwise kernels take windows of up to {_LARGEST_WINDOW} elements (5x5): use "
            "several smaller windows one after another, which cover as much as a large one"
        )
    if any(given == 1 and made > 1 for given, made, _ in shapes):
        yield (
            "its depthwise kernels compute one output for each input channel: repeat the channels with a "
            "1x1 convolution instead of a depth multiplier"
        )
    if any(given > 1 for given, _, _ in shapes):
        yield (
            f"groups of fewer than {_FEW_CHANNELS} channels leave the tiles of a matrix product mostly "
            "empty: use fewer and wider groups, or none"
        )


def _grouped_concern(operator: Operator) -> Concern:
    source, (inputs, outputs) = operator.source, _per_group(operator)
    kernel = "x".join(map(str, source.kernel_size or ()))
    shape = f"{kernel}, {source.groups} groups of {inputs} to {plural(outputs, 'channel')}"
    return Concern((operator,), where(operator), shape)


# Matrix operators in a wider precision than exported. No bound: the other precision was not measured.


def precision_not_as_asked(case: SeriesCase, _free: Free) -> Finding | None:
    asked = _asked_format(case.series)
    matrix = [operator for operator in matrix_operators(case.series) if operator.precision]
    wider = [
        operator
        for operator in matrix
        if (asked == "fp16" and operator.precision == "fp32")
        or (asked.startswith("int") and not operator.precision.startswith("int"))
    ]
    if not wider:
        return None
    if case.series.times.are_latencies:
        wider.sort(key=case.weight, reverse=True)
    # Those outside are a finding of their own.
    share = _part(case, [operator for operator in wider if operator.delegated])
    whys = [_why(operator, asked) for operator in wider]
    return Finding(
        "precision-not-as-asked",
        f"Expect less from {asked}: {len(wider)} of {plural(len(matrix), 'matrix operator')} ran in "
        f"{listing(dict.fromkeys(operator.precision for operator in wider))}",
        tuple(dict.fromkeys(cure for _, cure in whys)),
        case.series,
        tuple(
            Concern((operator,), where(operator), f"{operator.precision}: {reason}")
            for operator, (reason, _) in zip(wider, whys, strict=True)
        ),
        {"share": share, "share_of": "time" if case.timed else "arithmetic"},
        # Most of the model is not in the format that was asked for: the first thing to know.
        weight_pct=percent(share) if share >= _MOST and not any(each.ran_wider for each in wider) else 0.0,
    )


def _why(operator: Operator, asked: str) -> tuple[str, str]:
    """Why it ran wider than asked for, and what to do."""
    if operator.ran_wider:
        return (
            "this CPU has no fp16 arithmetic, so XNNPACK ran it in fp32",
            "measure fp16 on a CPU with fp16 arithmetic: this measurement says nothing about fp16",
        )
    if asked == "fp16" and calls_function(operator, ATTENTION):
        return (
            "torch computes the steps of this call in fp32",
            "write the steps of attention yourself (torch.bmm, softmax, torch.bmm; transformers: "
            'attn_implementation="eager"): they stay in fp16',
        )
    if asked == "fp16":
        return (
            "the program has it in fp32",
            "remove casts to float32 around it in the model, and fp32 tensors among its inputs",
        )
    return (
        "the quantizer did not quantize it",
        f"{asked} quantizes some kinds only (int8: `linear` and every convolution, not products of two "
        "activations as in attention and nn.LSTM): compare with another format (`--dtype all`)",
    )
