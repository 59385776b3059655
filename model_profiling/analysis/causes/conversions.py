"""Conversions between number formats, by why they are there: around operators that stay in floating point
in the middle of a quantized model, or at the model's edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from model_profiling.analysis.categories import Category
from model_profiling.analysis.causes.seen import KINDS_NAMED, MethodFlow, Seen
from model_profiling.analysis.findings import Concern, Finding, concerns_of, source_line, where
from model_profiling.analysis.operators import Operator
from model_profiling.program.flow import Step
from model_profiling.wording import listing, plural

_CONVERSIONS = ("quantize", "dequantize", "convert")
_AT_RUN_TIME = ("qdint8", "qpint8")
"""What a linear layer with weights of 8 or 4 bits makes of its input: no island, but how it works."""


def conversions(seen: Seen) -> Finding | None:
    converting = seen.largest(lambda operator: _converts(seen, operator))
    if not converting:
        return None
    if any(seen.step(operator) is None for operator in converting):
        return _of_unknown_place(seen, converting)
    islands = _islands(seen, converting)
    inside = [operator for island in islands for operator in island.conversions]
    others = [operator for operator in converting if operator not in inside]
    if not inside:
        return _around_all(seen, others)
    concerns = tuple(concern for island in islands for concern in island.concerns)
    return Finding(
        "quantize-dequantize",
        f"Keep {plural(len(islands), 'part')} of the model in one number format: "
        f"{plural(len(inside), 'conversion')} {'stands' if len(inside) == 1 else 'stand'} around "
        f"{'it' if len(islands) == 1 else 'them'}",
        "quantize what is named beside them too, or replace it with an operator that the quantizer knows; "
        "what has to stay in floating point is best at the model's edge",
        seen.series,
        concerns,
        {"islands": len(islands), "conversions": len(inside), "elsewhere": len(others)},
        seen.gain_pct(seen.series.spent_by(inside).ms),
    )


def _of_unknown_place(seen: Seen, converting: Sequence[Operator]) -> Finding:
    """Where no program tells what stands between them."""
    return Finding(
        "quantize-dequantize",
        f"Drop {plural(len(converting), 'conversion')} between number formats",
        "quantize the operators between the conversions too, so that data stays in one format; feed "
        "quantized input if the application has it",
        seen.series,
        concerns_of(converting),
        {},
        seen.gain_pct(seen.series.spent_by(converting).ms),
    )


def _around_all(seen: Seen, others: Sequence[Operator]) -> Finding | None:
    """A quantized model has to begin and end with conversions: only what they cost is worth a word."""
    if not seen.timed:
        return None
    count = plural(len(others), "conversion")
    if all(_at_edge(seen, operator) for operator in others):
        title = f"Give or take quantized data: {count} at the model's edges"
        action = (
            "they cannot be left out as long as the application works with floating point; camera images are "
            "8 bits wide already"
        )
    else:
        title = f"Quantize more of the model, or less: {count} around what is quantized"
        action = (
            "operators before and after stay in floating point: quantize them too, or do not quantize what "
            "gains less than converting costs"
        )
    return Finding(
        "quantize-dequantize",
        title,
        action,
        seen.series,
        concerns_of(others),
        {"islands": 0, "conversions": 0, "elsewhere": len(others)},
        seen.gain_pct(seen.series.spent_by(others).ms),
    )


def _at_edge(seen: Seen, operator: Operator) -> bool:
    """Only data movement stands between it and what the model is given or gives."""
    found = seen.step(operator)
    if found is None:
        return False
    known, index = found
    flow, step = known.flow, known.flow.steps[index]
    widens = _wider(step)
    for _ in range(len(flow.steps)):
        if flow.returned(step) if widens else any(value in flow.inputs for value in step.reads):
            return True
        near = next(flow.after(step) if widens else flow.before(step), None)
        if near is None or not _only_moves(known, near):
            return False
        step = near
    return False


def _only_moves(known: MethodFlow, step: Step) -> bool:
    operator = known.operators.get(known.flow.at[step.place])
    return operator is None or operator.category is Category.DATA_MOVEMENT


def _converts(seen: Seen, operator: Operator) -> bool:
    if not operator.delegated or operator.kind not in _CONVERSIONS:
        return False
    found = seen.step(operator)
    made = found[0].flow.steps[found[1]].outputs if found else ()
    return not any(tensor.dtype in _AT_RUN_TIME for tensor in made)


@dataclass(frozen=True, slots=True)
class _Island:
    """Steps in one number format between conversions from and to another."""

    conversions: tuple[Operator, ...]
    inside: tuple[Operator, ...]
    """In the order they run; empty where a conversion follows a conversion."""

    @property
    def concerns(self) -> tuple[Concern, ...]:
        """Its conversions, each with the place of what stands between them."""
        if not self.inside:
            return tuple(
                Concern((each,), where(each), "nothing stands between them") for each in self.conversions
            )
        computing = [each for each in self.inside if each.category is not Category.DATA_MOVEMENT]
        cause = (computing or self.inside)[0]
        names = list(dict.fromkeys(_plain_name(each) for each in computing or self.inside))
        shown = listing((*names[:KINDS_NAMED], "others") if len(names) > KINDS_NAMED else names)
        facts = {"around": names, "operators_between": len(self.inside), "cause_line": source_line(cause)}
        line, note = source_line(cause), f"around {shown}"
        return tuple(Concern((each,), where(cause), note, facts, line=line) for each in self.conversions)


def _plain_name(operator: Operator) -> str:
    """`Softmax` of a node, `native_layer_norm` of `aten::native_layer_norm.out`."""
    outside = operator.source.operator.partition("::")[2].partition(".")[0]
    return operator.source.node_kind or outside or operator.type


def _islands(seen: Seen, converting: Sequence[Operator]) -> list[_Island]:
    found: list[_Island] = []
    done: set[tuple[str, int, int]] = set()
    for operator in converting:
        place = seen.step(operator)
        if place is None or operator.identity in done:
            continue
        known, index = place
        if not _wider(known.flow.steps[index]):
            continue
        island = _island_of(known, known.flow.steps[index], {each.identity for each in converting})
        if island is not None:
            found.append(island)
            done.update(each.identity for each in island.conversions)
    return sorted(found, key=lambda island: -sum(seen.weight(each) for each in island.conversions))


def _island_of(known: MethodFlow, conversion: Step, wanted: set[tuple[str, int, int]]) -> _Island | None:
    """What a conversion leads into, if it is converted back again; None at the model's edges."""
    flow = known.flow
    entered, left, inside = (
        {conversion.place: conversion},
        dict[tuple[int, int, int], Step](),
        dict[int, Step](),
    )
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
    conversions = tuple(
        each for each in known.ran_as([*entered.values(), *left.values()]) if each.identity in wanted
    )
    operators = known.ran_as([inside[index] for index in sorted(inside)])
    return _Island(conversions, tuple(operators)) if conversions else None


def _is_conversion(step: Step) -> bool:
    """It changes the number format."""
    if step.kind == "Convert":
        return True
    return step.name.startswith(("quantize_per", "dequantize_per"))


def _wider(step: Step) -> bool:
    """It gives more bits than it takes: into an island."""
    widths = [_width(tensor.dtype) for tensor in (*step.inputs[:1], *step.outputs[:1])]
    return len(widths) == 2 and widths[1] > widths[0]


def _width(dtype: str) -> int:
    if dtype.startswith("q") or dtype.endswith("int8"):
        return 0
    return 1 if dtype in ("fp16", "bf16") else 2
