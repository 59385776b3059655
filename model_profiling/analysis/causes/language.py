"""Causes in language models: copies of the cache, scores that nobody reads.

Operators are known by what they do with the cache, the tokens and the result, never by the names of modules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from model_profiling.analysis.findings import (
    CONVERSIONS,
    Case,
    Concern,
    Finding,
    Free,
    MethodFlow,
    identities,
    where,
)
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.core.formatting import size
from model_profiling.program.category import Category
from model_profiling.program.flow import Flow, Place, Step, Value, keeps_elements
from model_profiling.program.language import Phase, language_model, read_per_step, weights_in
from model_profiling.program.matrix_work import matrix_work
from model_profiling.program.records import Method

_MEMORY_BOUND = 0.5
"""Share of an inference that reading at the memory's measured rate must explain: from it on, memory is the
limit."""
FITS_CACHES = 64 << 20
"""Less than this may stay in the caches of a large CPU from one token to the next."""
_FROM_CACHES = 1.5
"""So many times the memory's rate is more than an error of measuring it: caches gave the rest."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The operators of a phase that a language model has and other models do not."""

    tokens: int
    embedding: tuple[Operator, ...] = ()
    """What takes the tokens' rows from a table."""
    scores: tuple[Operator, ...] = ()
    """The linear layer over the vocabulary, with the packing for it."""
    score_rows: int = 0
    score_bytes: int = 0
    """Of its weights."""
    attention: tuple[Operator, ...] = ()
    """Products with the cache, and what is done to their results before the next linear layer."""
    copies: tuple[tuple[Operator, int], ...] = ()
    """What writes as much as a whole cache or more while it only moves data, with the bytes written."""


def layers_of(series: SeriesAnalysis, known: MethodFlow, phase: Phase) -> Layers:
    method, flow, graph = phase.method, known.flow, series.graph
    assert graph is not None
    places: frozenset[Place] = frozenset(
        (work.step.chain_index, work.step.instruction_id, work.node_index)
        for work in matrix_work(graph, method)
    )

    def multiplies(step: Step) -> bool:
        return step.place in places

    moved, attention = _over_cache(flow, multiplies)
    caches = [state.tensor.nbytes for state in method.state if state.tensor.nbytes > _COUNTER]
    copies = [
        (operator, written)
        for step in moved
        for operator in known.ran_as([step])
        if (written := _written(step)) >= min(caches, default=math.inf) and _only_moves(step, operator)
    ]
    tables = list(_looked_up(flow, phase))
    head = _scores(flow, multiplies)
    own = known.ran_as([head] if head else [])
    return Layers(
        tokens=method.inputs[method.input_numbers.index(phase.tokens)].shape[1],
        embedding=tuple(known.ran_as(tables)),
        scores=tuple(each for one in own for each in series.operators if each.key == one.key),
        score_rows=math.prod(head.outputs[0].shape[:-1]) if head else 0,
        score_bytes=sum(each.nbytes for each in head.inputs if each.constant) if head else 0,
        attention=tuple(known.ran_as(attention)),
        copies=tuple(copies),
    )


def layers_in(series: SeriesAnalysis) -> Layers | None:
    """The same for a series that ran one method of a language model; None for any other program."""
    return next((layers for layers, _ in _layers(Case(series))), None)


def _layers(case: Case) -> Iterator[tuple[Layers, Phase]]:
    program = case.series.graph.program if case.series.graph else None
    if program is None or not any(method.state for method in program.methods):
        return
    model = language_model(program)
    for phase in filter(None, (model.step, model.prompt) if model else ()):
        if known := case.flows.get(phase.method.name):
            yield layers_of(case.series, known, phase), phase


_COUNTER = 64
"""A state of so few bytes is a counter, not a cache."""
_FARTHEST = 16


def _over_cache(flow: Flow, multiplies: Callable[[Step], bool]) -> tuple[list[Step], list[Step]]:
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
        product = multiplies(step)
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


def _looked_up(flow: Flow, phase: Phase) -> Iterator[Step]:
    """The steps that take rows of a stored table by the tokens' numbers."""
    values: set[Value] = {(-1, phase.method.input_ids[phase.tokens])}
    for step in flow.steps:
        if not values.intersection(step.reads):
            continue
        if any(each.constant and len(each.shape) > 1 for each in step.inputs):
            yield step
        elif keeps_elements(flow, step) or step.name.startswith(("to", "_to_")):
            values.update(step.writes)


def _scores(flow: Flow, multiplies: Callable[[Step], bool]) -> Step | None:
    """The linear layer that makes the largest result, with at most moves and simple arithmetic behind it."""
    made = [flow.made_by[value] for value in flow.outputs if value in flow.made_by]
    last = [flow.steps[index] for index in made if flow.steps[index].outputs]
    step = max(last, key=lambda each: each.outputs[0].elements, default=None)
    for _ in range(_FARTHEST):
        if step is None or not step.outputs:
            return None
        if multiplies(step):
            return step if any(each.constant for each in step.inputs) else None
        inputs = [flow.made_by[value] for value in flow.varying(step) if value in flow.made_by]
        step = flow.steps[inputs[0]] if len(set(inputs)) == 1 else None
    return None


_IN_PLACE = "write it in place: `to_executorch(ExecutorchBackendConfig(run_reinplace_pass=True))`"
_CUSTOM = (
    "ExecuTorch's `update_cache` and `custom_sdpa` (export_llm: use_sdpa_with_kv_cache=True) write and read "
    "the cache where it is, only as far as it is filled"
)
_ORDER = "keep the cache in the order of dimensions in which attention reads it"


def cache_copies(case: Case, free: Free) -> Finding | None:
    """Moves of the whole cache in every inference, although only the new tokens change."""
    for layers, phase in _layers(case):
        written = {each: bytes for each, bytes in layers.copies if each.identity in identities(free)}
        if not written:
            continue
        order, copied = sorted(written, key=case.weight, reverse=True), sum(written.values())
        writes = any(each.kind in ("scatter", "gather") for each in order)
        fused = any(each.kind == "attention" for each in layers.attention)
        # A program may not tell how many tokens a prompt had, only how many it may have.
        when = "for one token" if layers.tokens == 1 else "in each inference"
        several = f"{len(order)} copies" if len(order) > 1 else "a copy"
        finding = Finding(
            "cache-copies",
            f"Avoid {several} of the whole KV cache: {size(copied)} {when}",
            (*([_IN_PLACE] if writes else []), _ORDER if fused else _CUSTOM),
            case.series,
            tuple(
                Concern((each,), where(each), size(written[each]), {"bytes": written[each]}) for each in order
            ),
            {
                "bytes": copied,
                "bytes_per_token": copied // max(1, layers.tokens),
                "cache_bytes": sum(state.tensor.nbytes for state in phase.method.state),
                "tokens": layers.tokens,
            },
        )
        return case.bounded(finding)
    return None


def unused_scores(case: Case, free: Free) -> Finding | None:
    """Scores of every token of a prompt, of which an application needs the last."""
    for layers, _ in _layers(case):
        own = [each for each in layers.scores if each.identity in identities(free)]
        rows = layers.score_rows
        if not own or rows < 2 or rows != layers.tokens:
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
            {"tokens": rows, "weight_bytes": layers.score_bytes},
        )
        return case.bounded(finding, case.series.spent_by(own).ms * (1 - 1 / rows))
    return None


def limited_by_memory(read: int, share: float) -> bool | None:
    """Whether memory is the limit, where reading at its measured rate takes `share` of an inference; None
    if caches may hold what is read."""
    if not _MEMORY_BOUND <= share <= _FROM_CACHES:
        return False
    return True if read >= FITS_CACHES else None


SMALLER = {"int8-dynamic": 8, "int4": 4}
"""Formats with smaller weights: bits of a weight, scales not counted."""


def smaller_weights(method: Method) -> dict[str, int]:
    """Bytes of weights that a token would read in formats with smaller ones."""
    own = read_per_step(method)[0]
    found = {name: weights_in(method, bits) for name, bits in SMALLER.items()}
    return {name: read for name, read in found.items() if read < own}
