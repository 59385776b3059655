"""Causes in language models: copies of the cache, scores that nobody reads.

Operators are known by what they do with the cache, the tokens and the result, never by the names of modules.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from model_profiling.analysis.findings import (
    CONVERSIONS,
    Concern,
    Finding,
    Free,
    MethodFlow,
    SeriesCase,
    identities,
    where,
)
from model_profiling.analysis.operators import Operator
from model_profiling.core.formatting import size
from model_profiling.program.category import Category
from model_profiling.program.flow import Flow, Place, Step, Value
from model_profiling.program.language import Phase, language_model
from model_profiling.program.matrix_work import matrix_work

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
    "the cache where it is, only as far as it is filled; `sme2prof optimize` puts them into a transformers "
    "model"
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
