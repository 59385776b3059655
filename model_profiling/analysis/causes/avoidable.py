"""Avoidable work: what is the same in every inference, and data movement inside delegates (copies that the
model asks for, transposes, conversions between number formats)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import prod

from model_profiling.analysis.causes.outside import ATTENTION, around_outside, calls_function, why_outside
from model_profiling.analysis.findings import (
    CONVERSIONS,
    KINDS_NAMED,
    Concern,
    Finding,
    Free,
    MethodFlow,
    SeriesCase,
    by_kind,
    concerns_of,
    counted,
    identities,
    line_or_layer,
    some_of,
    where,
)
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series_views import calls_of
from model_profiling.core.formatting import plural
from model_profiling.program.category import Category
from model_profiling.program.flow import Flow, Step, Undone, keeps_elements, undone_transposes

# What does not depend on the input.


def same_each_time(case: SeriesCase, free: Free) -> Finding | None:
    """Operators that compute the same for any input: masks, positions, index arithmetic."""
    replaced = _lines_of_replaced_calls(case)
    same = case.largest(
        free,
        lambda operator: (
            case.does_not_depend_on_input(operator)
            # A recurrent layer creates its first state itself: a user cannot store it for the layer.
            and not operator.source.place.module_class.startswith("torch.nn.modules.rnn.")
            and not (line_or_layer(operator) in replaced and _goes_with_its_call(case, operator))
        ),
    )
    # Many small ones cost their calls, however little they do; a single number is not a mask.
    arrays = sum(prod(operator.source.output_shape) > 1 for operator in same)
    many = arrays >= max(3, len(case.series.operators) // 20)
    if not arrays or not (many or case.matters(same)):
        return None
    # Those outside delegates wait for no delegate, so they separate none.
    calls = {operator.call for operator in same if not operator.delegated}
    calling_ms = calls_of(case.series).saved_ms(0, calls) if case.timed and calls else 0.0
    first, *others = _once(same)
    finding = Finding(
        "input-independent",
        f"Compute {counted(same)} once, not in every inference",
        (f"their results do not depend on the model's input: {first}", *others),
        case.series,
        concerns_of(same),
        besides=case.series.spent_ms(calling_ms) if calling_ms else None,
        besides_what="calling them",
    )
    return case.bounded(finding)


def _lines_of_replaced_calls(case: SeriesCase) -> set[str]:
    """Lines with a call to replace and input-dependent parts: `hardsigmoid` takes its conversions along."""
    operators = case.series.operators
    depending = {line_or_layer(each) for each in operators if not case.does_not_depend_on_input(each)}
    reasons = ((each, why_outside(case.series, each)) for each in operators)
    return {line_or_layer(each) for each, why in reasons if why and why.replaced_as_a_call} & depending


def _goes_with_its_call(case: SeriesCase, operator: Operator) -> bool:
    """Whether it disappears with the replaced call, as delegated parts do; attention can keep its mask."""
    why = why_outside(case.series, operator)
    return operator.delegated if why is None else why.replaced_as_a_call and why.call != ATTENTION


def _once(same: Sequence[Operator]) -> list[str]:
    weights = sum(".parametrizations." in f".{each.source.module_path}." for each in same)
    masks, rolls = (sum(calls_function(each, call) for each in same) for call in (ATTENTION, "roll"))
    ways = (
        (
            weights,
            "remove parametrizations (`torch.nn.utils.parametrize.remove_parametrizations`) before export: "
            "delegates need stored weights",
        ),
        (masks, "give attention a stored mask of numbers (0 and -inf) instead of `is_causal` or booleans"),
        (rolls, "`torch.roll` computes its indexes again each time: `torch.cat` of two slices needs none"),
        (
            weights + masks + rolls < len(same),
            "compute the value in `__init__`, store it with `register_buffer`, and use it in `forward`",
        ),
    )
    return [way for applies, way in ways if applies]


# Copies.

_A_TENTH = 0.1
"""Share of their total cost below which a kind is not mentioned."""
_COPIES = {
    "concatenate": "`torch.cat` copies everything it joins: instead of one linear layer or 1x1 convolution "
    "after it, use one for each part and add the results",
    "transpose": "a permute copies its whole tensor: keep the same order of dimensions from layer to layer",
    "copy": "remove `clone` and `contiguous` where they are not needed",
    "reshape": "keep the same shape from layer to layer: a reshape in a delegate copies",
    "slice": "a slice copies: use a separate layer for each part instead of slicing the result of one",
    "pad": "remove pads of zero width, which copy too, and let the following convolution or pooling do "
    "padding that is equal on both sides",
    "rearrange": "rearrange once, at the start or end of the model",
}
"""What helps against each kind of data movement in delegates; for other kinds nothing is known."""
_REPLACED = ("concatenate", "copy", "pad")
"""Kinds with code to write instead. Against the others a better order of the model may help: never the first
advice."""


def copies(case: SeriesCase, free: Free) -> Finding | None:
    """Data movement in delegates, except lowering's transposes, conversions and packing by kernels."""
    moving = case.largest(
        free,
        lambda operator: (
            operator.delegated
            and operator.origin != "backend"
            and operator.kind in _COPIES
            and not (operator.origin == "lowering" and operator.kind == "transpose")
            and not (operator.kind in _SPLITS and _splits_heads(case, operator))
            and (operator.typical_ms > 0 if case.timed else bool(operator.source.bytes_moved))
        ),
    )
    if not moving or not case.matters(moving):
        return None
    kinds = by_kind(moving, case.weight)
    least = _A_TENTH * sum(map(case.weight, moving))
    costly = [kind for kind, members in kinds.items() if sum(map(case.weight, members)) >= least]
    finding = Finding(
        "data-movement",
        f"Avoid {plural(len(moving), 'operator')} that only {'moves' if len(moving) == 1 else 'move'} data",
        tuple(_COPIES[kind] for kind in costly[:KINDS_NAMED]),
        case.series,
        concerns_of(moving),
        {"by_kind": {kind: len(members) for kind, members in kinds.items()}},
        has_cure=any(kind in _REPLACED for kind in costly),
    )
    return case.bounded(finding)


_SPLITS = ("transpose", "reshape", "copy")
_PRODUCT = "BatchMatrixMultiply"


def _splits_heads(case: SeriesCase, operator: Operator) -> bool:
    """Whether it splits data into attention's heads or joins them. Attention needs that: slices of each head
    and linear layers of each head, exported and measured, were as fast."""
    found = case.step(operator)
    return found is not None and any(
        near.kind == _PRODUCT for towards in (-1, 1) for near in _near(found[0].flow, found[1], towards)
    )


def _near(flow: Flow, step: Step, towards: int) -> list[Step]:
    """The nearest steps before (-1) or after (1) it that do more than move elements or treat all alike."""
    ahead, seen = [step], {step.place}
    found: list[Step] = []
    while ahead:
        here = ahead.pop()
        for near in flow.before(here) if towards < 0 else flow.after(here):
            if near.place in seen:
                continue
            seen.add(near.place)
            passes = keeps_elements(flow, near) or near.name == "expand_copy"
            (ahead if passes else found).append(near)
    return found


# Conversions between number formats: around parts in floating point, or at the model's edges.

_AT_RUN_TIME = ("qdint8", "qpint8")
"""A linear layer with weights of 8 or 4 bits converts its input to these: no part in floating point."""


def conversions(case: SeriesCase, free: Free) -> Finding | None:
    converting = case.largest(free, lambda operator: _converts(case, operator))
    concerns = [concern for operator in converting if (concern := _around(case, operator))]
    inside = bool(concerns)
    if not inside:
        # A quantized model begins and ends with conversions: only their cost is reported, if these are all.
        known = all(case.step(operator) for operator in converting)
        concerns = list(concerns_of(converting)) if case.timed or not known else []
    if not concerns:
        return None
    steps = (
        "also quantize the operators named here, or replace them with operators that the quantizer knows",
        "move what must stay in floating point to the start or end of the model",
    )
    finding = Finding(
        "quantize-dequantize",
        f"Drop {plural(len(concerns), 'conversion')} between number formats",
        steps if inside else ("feed quantized input if the application has it: images already have 8 bits",),
        case.series,
        tuple(concerns),
    )
    return case.bounded(finding)


def _converts(case: SeriesCase, operator: Operator) -> bool:
    if not operator.delegated or operator.kind not in CONVERSIONS:
        return False
    found = case.step(operator)
    return not found or not any(tensor.dtype in _AT_RUN_TIME for tensor in found[1].outputs)


def _around(case: SeriesCase, operator: Operator) -> Concern | None:
    """What a conversion is beside in floating point; None at the model's edges, or if unknown."""
    found = case.step(operator)
    if found is None:
        return None
    known, step = found
    before, after = _near(known.flow, step, -1), _near(known.flow, step, 1)
    if not before or not after:
        return None
    wider = step.outputs and not step.outputs[0].dtype.startswith("q")
    beside = known.ran_as(after if wider else before)
    if not beside:
        return Concern((operator,), where(operator))
    # `Softmax` of a node, `native_layer_norm` of `aten::native_layer_norm.out`.
    plain = (each.source.operator.partition("::")[2].partition(".")[0] for each in beside)
    named = (each.source.node_kind or name or each.type for each, name in zip(beside, plain, strict=True))
    around = f"around {some_of(list(dict.fromkeys(named)))}"
    return Concern((operator,), where(beside[0]), around, line=beside[0].line)


# Transposes that undo each other, and those that lowering added.

_INPUT, _OUTPUT = "the model's input", "the model's output"
_CALL_INPUT, _CALL_OUTPUT = "the call's input", "the call's output"
_WORTH_NAMING = 1e-3
"""Share of the time of all layout changes."""

# Kinds of transpose pairs, and what helps against each.
_WRITTEN, _ATTENTION = "the model has both", "torch adds both when it splits the attention call"
_MIXED, _ADDED = "the model has one, lowering added the other", "lowering added them"
_BESIDE_LINEAR, _PATCHES = f"{_MIXED}, beside a linear layer", f"{_MIXED}, beside a convolution of patches"
_WITHOUT_UNDOING = {
    _WRITTEN: "remove permutes that the next one undoes: what is between them gives the same result in "
    "either order of dimensions",
    _ATTENTION: "write attention as torch.bmm, softmax and torch.bmm, which has no such transposes "
    '(transformers: attn_implementation="eager")',
    _BESIDE_LINEAR: "between convolutions, use 1x1 convolutions instead of linear layers: they need no "
    "permute, and XNNPACK keeps the data channels-last",
    _PATCHES: "write a convolution of P x P patches that do not overlap as a linear layer: "
    "`x.reshape(n, c, h // P, P, w // P, P).permute(0, 2, 4, 1, 3, 5).reshape(n, -1, c * P * P)`, then "
    "`nn.Linear` with `conv.weight.flatten(1)` and `conv.bias`",
}
_NOTHING_HELPS = "no change of the model is known that avoids them: lowering adds them around its own layout"


def cancelling_transposes(case: SeriesCase, free: Free) -> Finding | None:
    """Not those around operators outside that have a cure: they disappear with these."""
    available = identities(free) - identities([each for each, _ in around_outside(case, free)])
    concerns = [
        concern
        for known in case.flows.values()
        for undone in undone_transposes(known.flow)
        for concern in _cancelling(case, known, undone, available)
    ]
    if not concerns:
        return None
    concerns.sort(key=lambda concern: -case.weight(concern.operator))
    notes = {concern.note for concern in concerns}
    ways = {note: way for note, way in _WITHOUT_UNDOING.items() if note in notes}
    # What nothing helps against is named, but is not in the bound if something helps against others.
    removed = [one for each in concerns if each.note in ways or not ways for one in each.operators]
    does = "Remove" if ways else "Nothing is known to remove"
    finding = Finding(
        "cancelling-transposes",
        f"{does} {plural(len(removed), 'transpose')} that others undo",
        tuple(ways.values()) or (_NOTHING_HELPS,),
        case.series,
        tuple(concerns),
        has_cure=bool(ways),
    )
    return case.bounded(finding, case.series.spent_by(removed).ms)


def _cancelling(
    case: SeriesCase, known: MethodFlow, undone: Undone, available: Collection[tuple[str, int, int]]
) -> Iterator[Concern]:
    operators = [each for each in known.ran_as(undone.transposes) if each.identity in available]
    if not operators:
        return
    everyone = [*operators, *known.ran_as(undone.partners)]
    written = [each for each in everyone if each.origin != "lowering"]
    place = where(written[0]) if written else f"between {' and '.join(_between(case, operators[0]))}"
    if not written:
        note = _ADDED
    elif len(written) < len(everyone):
        note = _beside(known, undone)
    else:
        note = _ATTENTION if all(calls_function(each, ATTENTION) for each in written) else _WRITTEN
    line = written[0].line if written else ""
    for operator in operators:
        yield Concern((operator,), place, note, line=line, between=not written)


def _beside(known: MethodFlow, undone: Undone) -> str:
    """What a permute that lowering reverses stands beside: what helps depends on that."""
    every = sorted((*undone.transposes, *undone.partners), key=lambda step: known.flow.at[step.place])
    near = [*_near(known.flow, every[0], -1), *_near(known.flow, every[-1], 1)]
    if any(each.category is Category.CONV and _reads_patches(each) for each in known.ran_as(near)):
        return _PATCHES
    return _BESIDE_LINEAR if any(step.kind == "FullyConnected" for step in near) else _MIXED


def _reads_patches(operator: Operator) -> bool:
    """Whether a convolution reads each input once, in squares, as a vision transformer's first layer does."""
    source = operator.source
    sides, inputs = source.kernel_size or (1, 1), source.input_shapes[0] if source.input_shapes else ()
    once = bool(inputs) and prod(inputs[:-1]) >= prod(source.output_shape[:-1]) * prod(sides)
    return prod(sides) > 1 and len(set(sides)) == 1 and once


def layout_changes(case: SeriesCase, free: Free) -> Finding | None:
    """Transposes that lowering added. The model's own permutes count as data movement."""
    added = case.largest(
        free, lambda each: each.delegated and each.kind == "transpose" and each.origin == "lowering"
    )
    if not added or (case.flows and not case.matters(added)):
        return None
    # Single-number constants are transposed too, by the dozen and in no time.
    enough = _WORTH_NAMING * sum(map(case.weight, added))
    worth = [operator for operator in added if case.weight(operator) >= enough]
    between = [(operator, *_between(case, operator)) for operator in worth]
    first, *others = _one_layout([(before, after) for _, before, after in between])
    finding = Finding(
        "layout-changes",
        f"Remove {plural(len(worth), 'layout change')} that lowering added",
        (f"keep one layout through the model: {first}", *others),
        case.series,
        tuple(
            Concern((operator,), f"between {before} and {after}", between=True)
            for operator, before, after in between
        ),
        {"added_by_lowering": len(added)},
        first_step=first,
    )
    return case.bounded(finding, case.series.spent_by(added).ms)


def _one_layout(between: Sequence[tuple[str, str]]) -> Iterator[str]:
    edges = [before == _INPUT or after == _OUTPUT for before, after in between]
    calls = [before == _CALL_INPUT or after == _CALL_OUTPUT for before, after in between]
    if any(call and not edge for call, edge in zip(calls, edges, strict=True)):
        yield (
            "data between delegate calls is channels-first, so bring the operators between the calls into "
            "the delegate"
        )
    if any(edges):
        yield (
            "export with a channels-last example input (only the input, not the weights), and pass such "
            "input at run time"
        )
    if not all(call or edge for call, edge in zip(calls, edges, strict=True)):
        yield (
            "replace an operator that needs channels-first data between convolutions, or move it to the "
            "start or end of the model"
        )


def _between(case: SeriesCase, operator: Operator) -> tuple[str, str]:
    """Places of the model's nearest operators before and after it in its call."""
    place = operator.method, operator.call
    call = [
        near for near in case.series.operators if (near.method, near.call) == place and near.origin == "model"
    ]
    before = [near for near in call if near.position < operator.position]
    after = [near for near in call if near.position > operator.position]
    first = last = False
    if found := case.step(operator):
        flow, step = found[0].flow, found[1]
        first, last = any(value in flow.inputs for value in step.reads), flow.returned(step)
    return (
        _INPUT if first else _named(before[-1]) if before else _CALL_INPUT,
        _OUTPUT if last else _named(after[0]) if after else _CALL_OUTPUT,
    )


def _named(operator: Operator) -> str:
    """`features.0 (model.py:12)`, `Conv2d "0"`, `the reshape at net.py:12`, `the quantize at features.0`."""
    place = operator.source.place
    module, line = place.module_path, place.short_line
    known = (f"{module} ({line})" if line else place.layer) if module else line
    # Conversions have their layer's module, which alone would read as the layer itself.
    if known and (not module or operator.kind in CONVERSIONS):
        return f"the {operator.kind} at {known}"
    return known or operator.name
