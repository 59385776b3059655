"""Avoidable work: conversions between number formats, and work that is the same in every inference."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from model_profiling.analysis.causes.case import CONVERSIONS, Case, Free, MethodFlow, counted, some_of
from model_profiling.analysis.causes.outside import why_outside
from model_profiling.analysis.findings import Concern, Finding, concerns_of, line_or_layer, source_line, where
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series_views import calls_of
from model_profiling.core.formatting import listing, plural
from model_profiling.program.category import Category
from model_profiling.program.flow import Step

# Conversions between number formats: around parts in floating point, or at the model's edges.

_AT_RUN_TIME = ("qdint8", "qpint8")
"""A linear layer with weights of 8 or 4 bits converts its input to these: not an island."""
_ID = "quantize-dequantize"
PADDING = (
    "remove pads of zero width, which copy too, and let the following convolution or pooling do padding that "
    "is equal on both sides"
)


def conversions(case: Case, free: Free) -> Finding | None:
    converting = case.largest(free, lambda operator: _converts(case, operator))
    if not converting:
        return None
    known = all(case.step(operator) for operator in converting)
    islands = _islands(case, converting) if known else []
    inside = [operator for conversions, _ in islands for operator in conversions]
    if not inside:
        if known and not case.timed:
            return None  # a quantized model begins and ends with conversions: only their cost is reported
        title = f"Drop {plural(len(converting), 'conversion')} between number formats"
        steps = (
            "quantize the operators before and after them too, so that data stays in one format",
            "feed quantized input if the application has it: camera images already have 8 bits",
        )
        finding = Finding(_ID, title, steps, case.series, concerns_of(converting), {"islands": 0})
        return case.bounded(finding)
    steps = (
        "also quantize the operators named here, or replace them with operators that the quantizer knows",
        "move what must stay in floating point to the start or end of the model",
    )
    only_pads = {each.kind for _, between in islands for each in between} == {"pad"}
    finding = Finding(
        _ID,
        f"Keep {plural(len(islands), 'part')} of the model in one number format: "
        f"{plural(len(inside), 'conversion')} {'is' if len(inside) == 1 else 'are'} around "
        f"{'it' if len(islands) == 1 else 'them'}",
        (f"the quantizer leaves pads in floating point: {PADDING}",) if only_pads else steps,
        case.series,
        tuple(concern for island in islands for concern in _around(*island)),
        {"islands": len(islands), "conversions": len(inside), "elsewhere": len(converting) - len(inside)},
    )
    return case.bounded(finding)


def _converts(case: Case, operator: Operator) -> bool:
    if not operator.delegated or operator.kind not in CONVERSIONS:
        return False
    found = case.step(operator)
    made = found[0].flow.steps[found[1]].outputs if found else ()
    return not any(tensor.dtype in _AT_RUN_TIME for tensor in made)


_Island = tuple[list[Operator], list[Operator]]
"""Conversions from and to a number format, and the operators between them in the order they run: none where a
conversion follows a conversion."""


def _around(conversions: Sequence[Operator], inside: Sequence[Operator]) -> list[Concern]:
    if not inside:
        return [Concern((each,), where(each), "nothing is between them") for each in conversions]
    chosen = [each for each in inside if each.category is not Category.DATA_MOVEMENT] or inside
    # `Softmax` of a node, `native_layer_norm` of `aten::native_layer_norm.out`.
    plain = (each.source.operator.partition("::")[2].partition(".")[0] for each in chosen)
    named = (each.source.node_kind or name or each.type for each, name in zip(chosen, plain, strict=True))
    names, line, place = list(dict.fromkeys(named)), source_line(chosen[0]), where(chosen[0])
    facts = {"around": names, "operators_between": len(inside), "cause_line": line}
    return [Concern((each,), place, f"around {some_of(names)}", facts, line=line) for each in conversions]


def _islands(case: Case, converting: Sequence[Operator]) -> list[_Island]:
    found: list[_Island] = []
    done: set[tuple[str, int, int]] = set()
    for operator in converting:
        place = case.step(operator)
        if place is None or operator.identity in done:
            continue
        known, index = place
        if not _wider(known.flow.steps[index]):
            continue
        island = _island_of(known, known.flow.steps[index], {each.identity for each in converting})
        if island is not None:
            found.append(island)
            done.update(each.identity for each in island[0])
    return sorted(found, key=lambda island: -sum(map(case.weight, island[0])))


def _island_of(known: MethodFlow, conversion: Step, wanted: set[tuple[str, int, int]]) -> _Island | None:
    """The steps that follow a conversion, if they are converted back again; None at the model's edges."""
    flow = known.flow
    entered, left = {conversion.place: conversion}, dict[tuple[int, int, int], Step]()
    inside: dict[int, Step] = {}
    ahead = list(flow.after(conversion))
    while ahead:
        step = ahead.pop()
        if _is_conversion(step):
            if not _wider(step):
                left[step.place] = step
            continue
        if flow.at[step.place] in inside:
            continue
        inside[flow.at[step.place]] = step
        ahead += flow.after(step)
        for before in flow.before(step):
            if _is_conversion(before):
                entered.update({before.place: before} if _wider(before) else {})
            elif flow.at[before.place] not in inside:
                ahead.append(before)
    if not left:
        return None
    around = known.ran_as([*entered.values(), *left.values()])
    conversions = [each for each in around if each.identity in wanted]
    return (conversions, known.ran_as([inside[index] for index in sorted(inside)])) if conversions else None


def _is_conversion(step: Step) -> bool:
    return step.kind == "Convert" or step.name.startswith(("quantize_per", "dequantize_per"))


def _wider(step: Step) -> bool:
    """Whether its output has more bits than its input: it leads into an island."""

    def width(dtype: str) -> int:
        return 0 if dtype.startswith("q") or dtype.endswith("int8") else 1 if dtype in ("fp16", "bf16") else 2

    widths = [width(tensor.dtype) for tensor in (*step.inputs[:1], *step.outputs[:1])]
    return len(widths) == 2 and widths[1] > widths[0]


# Work that is the same in every inference: it does not depend on the input.

_ATTENTION = "scaled_dot_product_attention"


def same_each_time(case: Case, free: Free) -> Finding | None:
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
        {"outside_delegates": sum(not operator.delegated for operator in same)},
        besides=case.series.spent_ms(calling_ms) if calling_ms else None,
        besides_what="calling them",
    )
    return case.bounded(finding)


def _lines_of_replaced_calls(case: Case) -> set[str]:
    """Lines with a call to replace and input-dependent parts: `hardsigmoid` takes its conversions along."""
    operators = case.series.operators
    depending = {line_or_layer(each) for each in operators if not case.does_not_depend_on_input(each)}
    reasons = ((each, why_outside(case.series, each)) for each in operators)
    return {line_or_layer(each) for each, why in reasons if why and why.replaced_as_a_call} & depending


def _goes_with_its_call(case: Case, operator: Operator) -> bool:
    """Whether it disappears with the replaced call, as delegated parts do; attention can keep its mask."""
    why = why_outside(case.series, operator)
    return operator.delegated if why is None else why.replaced_as_a_call and why.call != _ATTENTION


def _once(same: Sequence[Operator]) -> list[str]:
    weights = sum(".parametrizations." in f".{each.source.module_path}." for each in same)
    masks, rolls = (sum(map(calls_attention, same)), sum(_calls(each, "roll") for each in same))
    owners = list(dict.fromkeys(filter(None, map(_owner, same))))
    of = f" of a subclass: these lines are in {listing(owners)}" if owners else ""
    ways = (
        (
            weights,
            "remove parametrizations (`torch.nn.utils.parametrize.remove_parametrizations`) before export: "
            "delegates need stored weights",
        ),
        (
            masks,
            "give attention a stored mask of numbers (0 and -inf) instead of `is_causal` or booleans"
            f"{_TO_TRANSFORMERS if 'transformers' in owners else ''}",
        ),
        (rolls, "`torch.roll` computes its indexes again each time: `torch.cat` of two slices needs none"),
        (
            weights + masks + rolls < len(same),
            f"compute the value in `__init__`, store it with `register_buffer`, and use it in `forward`{of}",
        ),
    )
    return [way for applies, way in ways if applies]


_TO_TRANSFORMERS = " (transformers: as `attention_mask`, with four dimensions; it then computes none)"


def _owner(operator: Operator) -> str:
    """The installed package that has its line; empty for the user's own."""
    place = operator.source.place
    return place.module_class.partition(".")[0] if "-packages/" in place.file.replace("\\", "/") else ""


def calls_attention(operator: Operator) -> bool:
    return _calls(operator, _ATTENTION)


def _calls(operator: Operator, function: str) -> bool:
    """Whether the model calls `function` there; records of older kits only have the line's text."""
    place = operator.source.place
    return place.call == function if place.call else f"{function}(" in place.code
