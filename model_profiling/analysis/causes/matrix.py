"""Causes in matrix operators: most of the time, grouped, in another precision; and those of language models,
which copy their cache and compute scores that nobody reads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import PurePath

from model_profiling.analysis.causes.outside import ATTENTION, calls_function
from model_profiling.analysis.findings import (
    CONVERSIONS,
    Concern,
    Finding,
    Free,
    MethodFlow,
    SeriesCase,
    by_kind,
    identities,
    reaching,
    where,
)
from model_profiling.analysis.matching import matrix_operators
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config.names import format_of_name
from model_profiling.core.formatting import listing, plural, size
from model_profiling.core.number_formats import FORMATS
from model_profiling.program.category import MATRIX, Category
from model_profiling.program.flow import Flow, Place, Step, Value
from model_profiling.program.language import Phase, language_model
from model_profiling.program.matrix_work import matrix_work

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
    one_thread = case.timed and {each.threads for each in case.every} == {1}
    steps = [*formats, *(["they ran on 1 thread: measure more (`--threads 1,2`)"] if one_thread else [])]
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
    most = share >= _MOST and not any(each.ran_wider for each in wider)
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
        weight_pct=round(100 * share, 2) if most else 0.0,
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


# Language models: copies of the cache, scores that nobody reads. Operators are known by what they do with the
# cache, the tokens and the result, never by the names of modules.

_MEMORY_BOUND = 0.5
"""Share of an inference that reading at the memory's measured rate must explain: from it on, memory is the
limit."""
_FITS_CACHES = 64 << 20
"""Less than this may stay in the caches of a large CPU from one token to the next."""
_FROM_CACHES = 1.5
"""So many times the memory's rate is more than an error of measuring it: caches gave the rest."""

Products = frozenset[Place]
"""Places of the steps that multiply matrices."""


def _phases(case: SeriesCase) -> Iterator[tuple[Phase, MethodFlow, Products]]:
    """The phases of a language model that the series ran."""
    graph = case.series.graph
    if graph is None or not any(method.state for method in graph.program.methods):
        return
    model = language_model(graph.program)
    for phase in filter(None, (model.step, model.prompt) if model else ()):
        if known := case.flows.get(phase.method.name):
            work = matrix_work(graph, phase.method)
            places = ((one.step.chain_index, one.step.instruction_id, one.node_index) for one in work)
            yield phase, known, frozenset(places)


def _tokens(phase: Phase) -> int:
    return phase.method.inputs[phase.method.input_numbers.index(phase.tokens)].shape[1]


_COUNTER = 64
"""A state of so few bytes is a counter, not a cache."""
_FARTHEST = 16


def _over_cache(flow: Flow, multiplying: Products) -> tuple[list[Step], list[Step]]:
    """The steps that handle the cache before a product, and the products with what follows them. A product of
    two values that both come from the cache, or with weights, ends it."""
    products: dict[Value, bool] = {}  # a value that comes from a cache; whether a product is between
    made: set[Value] = set()
    before: list[Step] = []
    after: list[Step] = []
    for step in flow.steps:
        reads = dict.fromkeys(step.reads)
        for value in reads:
            if value[0] < 0 and value not in made | flow.inputs | flow.constants:
                products.setdefault(value, False)
        made.update(step.writes)
        from_cache = [products[value] for value in reads if value in products]
        if not from_cache or step.opaque:
            continue
        product = step.place in multiplying
        if product and any(each.constant and len(each.shape) > 1 for each in step.inputs):
            continue
        (after if product or any(from_cache) else before).append(step)
        if not product or len(from_cache) == 1:
            products |= dict.fromkeys(step.writes, product or any(from_cache))
    return before, after


def _written(step: Step) -> int:
    """Bytes that it writes: in place, those of what it is given beside the state."""
    if set(step.writes) & set(step.reads):
        return sorted((each.nbytes for each in step.inputs), reverse=True)[1] if len(step.inputs) > 1 else 0
    return sum(each.nbytes for each in step.outputs)


def _only_moves(step: Step, operator: Operator) -> bool:
    moves = operator.category is Category.DATA_MOVEMENT and operator.kind not in CONVERSIONS
    return moves and step.name != "et_view"  # which only gives it another shape


def _scores(flow: Flow, multiplying: Products) -> Step | None:
    """The linear layer that makes the largest result, with at most moves and simple arithmetic behind it."""
    made = [flow.made_by[value] for value in flow.outputs if value in flow.made_by]
    last = [flow.steps[index] for index in made if flow.steps[index].outputs]
    step = max(last, key=lambda each: each.outputs[0].elements, default=None)
    for _ in range(_FARTHEST):
        if step is None or not step.outputs:
            return None
        if step.place in multiplying:
            return step if any(each.constant for each in step.inputs) else None
        inputs = [flow.made_by[value] for value in flow.varying(step) if value in flow.made_by]
        step = flow.steps[inputs[0]] if len(set(inputs)) == 1 else None
    return None


_IN_PLACE = "write it in place: `to_executorch(ExecutorchBackendConfig(run_reinplace_pass=True))`"
_CUSTOM = (
    "ExecuTorch's `update_cache` and `custom_sdpa` (export_llm: use_sdpa_with_kv_cache=True) write and read "
    "the cache where it is, only as far as it is filled; `sme2prof optimize` puts them in"
)
_ORDER = "keep the cache in the order of dimensions in which attention reads it"


def cache_copies(case: SeriesCase, free: Free) -> Finding | None:
    """Moves of the whole cache in every inference, although only the new tokens change."""
    for phase, known, multiplying in _phases(case):
        moved, attention = _over_cache(known.flow, multiplying)
        states = [state.tensor.nbytes for state in phase.method.state]
        least = min((nbytes for nbytes in states if nbytes > _COUNTER), default=math.inf)
        written = {
            operator: _written(step)
            for step in moved
            for operator in known.ran_as([step])
            if _written(step) >= least and _only_moves(step, operator)
        }
        written = {each: nbytes for each, nbytes in written.items() if each.identity in identities(free)}
        if not written:
            continue
        copies, copied, tokens = (
            sorted(written, key=case.weight, reverse=True),
            sum(written.values()),
            _tokens(phase),
        )
        writes = any(each.kind in ("scatter", "gather") for each in copies)
        fused = any(each.kind == "attention" for each in known.ran_as(attention))
        # A program may not tell how many tokens a prompt had, only how many it may have.
        when = "for one token" if tokens == 1 else "in each inference"
        several = f"{len(copies)} copies" if len(copies) > 1 else "a copy"
        finding = Finding(
            "cache-copies",
            f"Avoid {several} of the whole KV cache: {size(copied)} {when}",
            (*([_IN_PLACE] if writes else []), _ORDER if fused else _CUSTOM),
            case.series,
            tuple(
                Concern((each,), where(each), size(written[each]), {"bytes": written[each]})
                for each in copies
            ),
            {"bytes": copied, "bytes_per_token": copied // max(1, tokens)},
        )
        return case.bounded(finding)
    return None


def unused_scores(case: SeriesCase, free: Free) -> Finding | None:
    """Scores of every token of a prompt, of which an application needs the last."""
    for phase, known, multiplying in _phases(case):
        layer = _scores(known.flow, multiplying)
        keys = {operator.key for operator in known.ran_as([layer] if layer else [])}
        own = [operator for operator in free if operator.key in keys]  # with the packing for it
        rows = math.prod(layer.outputs[0].shape[:-1]) if layer else 0
        if not own or rows < 2 or rows != _tokens(phase):
            continue
        finding = Finding(
            "unused-scores",
            f"Compute the scores of the last token only, not of all {rows}",
            (
                "take the last token before the last linear layer, as `layer(hidden[:, -1])` (transformers: "
                "logits_to_keep=1; export_llm: generate_full_logits=False)",
            ),
            case.series,
            (Concern(tuple(own), where(own[0]), f"{rows} rows"),),
        )
        return case.bounded(finding, case.series.spent_by(own).ms * (1 - 1 / rows))
    return None


def limited_by_memory(read: int, share: float) -> bool | None:
    """Whether memory is the limit, where reading at its measured rate takes `share` of an inference; None
    if caches may hold what is read."""
    if not _MEMORY_BOUND <= share <= _FROM_CACHES:
        return False
    return True if read >= _FITS_CACHES else None
