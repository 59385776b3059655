"""Causes in data movement inside delegates: copies that the model asks for, and avoidable transposes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from model_profiling.analysis.causes.avoidable import PADDING, calls_attention
from model_profiling.analysis.causes.case import (
    CONVERSIONS,
    KINDS_NAMED,
    Case,
    Free,
    MethodFlow,
    identities,
)
from model_profiling.analysis.causes.matrix import reads_patches
from model_profiling.analysis.causes.outside import around_outside
from model_profiling.analysis.findings import Concern, Finding, by_kind, concerns_of, source_line, where
from model_profiling.analysis.operators import Operator
from model_profiling.core.formatting import plural
from model_profiling.program.category import Category
from model_profiling.program.flow import Flow, Step, Undone, keeps_elements, undone_transposes

_A_TENTH = 0.1
"""Share of their total cost below which a kind is not mentioned."""
_COPIES = {
    "concatenate": "`torch.cat` copies everything it joins: instead of one linear layer or 1x1 convolution "
    "after it, use one for each part and add the results",
    "transpose": "a permute copies its whole tensor: keep the same order of dimensions from layer to layer",
    "copy": "remove `clone` and `contiguous` where they are not needed",
    "reshape": "keep the same shape from layer to layer: a reshape in a delegate copies",
    "slice": "a slice copies: use a separate layer for each part instead of slicing the result of one",
    "pad": PADDING,
    "rearrange": "rearrange once, at the start or end of the model",
}
"""What helps against each kind of data movement in delegates; for other kinds nothing is known."""
_REPLACED = ("concatenate", "copy", "pad")
"""Kinds with code to write instead. Against the others a better order of the model may help: never the first
advice."""

_SEVERAL = {"concatenate": "concatenations", "copy": "copies", "rearrange": "rearrangements"}


def copies(case: Case, free: Free) -> Finding | None:
    """Data movement in delegates, except lowering's transposes, conversions and packing by kernels."""
    series = case.series
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
    evidence: dict[str, object] = {"by_kind": {kind: len(members) for kind, members in kinds.items()}}
    if case.timed:
        evidence["by_kind_ms"] = {kind: series.spent_by(members).ms for kind, members in kinds.items()}
    whole = sum(map(case.weight, moving))
    costly = [kind for kind, members in kinds.items() if sum(map(case.weight, members)) >= _A_TENTH * whole]
    helped = [kind for kind in costly if kind != "concatenate" or _feed_layers(case, kinds[kind])]
    ways = [_way(kind, kinds[kind][0]) for kind in helped]
    mostly = f", mostly {_SEVERAL.get(costly[0], f'{costly[0]}s')}" if len(costly) == 1 < len(moving) else ""
    finding = Finding(
        "data-movement",
        f"Avoid {plural(len(moving), 'operator')} that only {'moves' if len(moving) == 1 else 'move'} data"
        f"{mostly}",
        tuple(ways[:KINDS_NAMED]) or ("no cure is known: later operators need the data in this form",),
        series,
        concerns_of(moving),
        evidence,
        has_cure=any(kind in _REPLACED for kind in helped),
    )
    return case.bounded(finding)


def _way(kind: str, largest: Operator) -> str:
    """What helps, with the place of the operator that moves most."""
    place = where(largest)
    return f"{_COPIES[kind]}{f' (most at {place})' if place else ''}"


def _feed_layers(case: Case, joins: Sequence[Operator]) -> bool:
    """Whether a layer that could be split reads one of these joins, or nothing shows what does."""
    for operator in joins:
        found = case.step(operator)
        if found is None:
            return True
        after = _near(found[0].flow, found[0].flow.steps[found[1]], 1)
        if any(each.kind in ("linear", "pointwise convolution") for each in found[0].ran_as(after)):
            return True
    return False


_SPLITS = ("transpose", "reshape", "copy")
_PRODUCT = "BatchMatrixMultiply"


def _splits_heads(case: Case, operator: Operator) -> bool:
    """Whether it splits data into attention's heads or joins them. Attention needs that: slices of each head
    and linear layers of each head, exported and measured, were as fast."""
    found = case.step(operator)
    if found is None:
        return False
    flow, step = found[0].flow, found[0].flow.steps[found[1]]
    return any(near.kind == _PRODUCT for near in (*_near(flow, step, -1), *_near(flow, step, 1)))


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


# Transposes that undo each other, and those that lowering added.

_INPUT, _OUTPUT = "the model's input", "the model's output"
_CALL_INPUT, _CALL_OUTPUT = "the call's input", "the call's output"
_WORTH_NAMING = 1e-3
"""Share of the time of all layout changes."""

# Kinds of transpose pairs, and what helps against each.
_WRITTEN, _ATTENTION = "the model has both", "torch adds both when it splits the attention call"
_MIXED = "the model has one, lowering added the other"
_BESIDE_LINEAR, _PATCHES = f"{_MIXED}, beside a linear layer", f"{_MIXED}, beside a convolution of patches"
_ACROSS, _ADDED = "lowering added them, in different delegate calls", "lowering added them"
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


def cancelling_transposes(case: Case, free: Free) -> Finding | None:
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
    operators = [operator for concern in concerns for operator in concern.operators]
    added = sum(operator.origin == "lowering" for operator in operators)
    ways = {
        note: way for note, way in _WITHOUT_UNDOING.items() if any(note == each.note for each in concerns)
    }
    # What nothing helps against is named, but is not in the bound if something helps against others.
    removed = [one for each in concerns if each.note in ways or not ways for one in each.operators]
    does = "Remove" if ways else "Nothing is known to remove"
    finding = Finding(
        "cancelling-transposes",
        f"{does} {plural(len(removed), 'transpose')} that others undo",
        tuple(ways.values()) or (_NOTHING_HELPS,),
        case.series,
        tuple(concerns),
        {"transposes": len(operators), "added_by_lowering": added},
        has_cure=bool(ways),
    )
    return case.bounded(finding, case.series.spent_by(removed).ms)


def _cancelling(
    case: Case, known: MethodFlow, undone: Undone, available: Collection[tuple[str, int, int]]
) -> Iterator[Concern]:
    operators = [each for each in known.ran_as(undone.transposes) if each.identity in available]
    if not operators:
        return
    everyone = [*operators, *known.ran_as(undone.partners)]
    written = [each for each in everyone if each.origin != "lowering"]
    place = where(written[0]) if written else f"between {' and '.join(_between(case, operators[0]))}"
    if not written:
        note = _ADDED if len({each.call for each in everyone}) == 1 else _ACROSS
    elif len(written) < len(everyone):
        note = _beside(known, undone)
    else:
        note = _ATTENTION if all(map(calls_attention, written)) else _WRITTEN
    line = source_line(written[0]) if written else ""
    for operator in operators:
        yield Concern(
            (operator,),
            place,
            note,
            {"added_by_lowering": operator.origin == "lowering"},
            line=line,
            between=not written,
        )


def _beside(known: MethodFlow, undone: Undone) -> str:
    """What a permute that lowering reverses stands beside: what helps depends on that."""
    every = sorted((*undone.transposes, *undone.partners), key=lambda step: known.flow.at[step.place])
    near = [*_near(known.flow, every[0], -1), *_near(known.flow, every[-1], 1)]
    if any(each.category is Category.CONV and _reads_squares(each) for each in known.ran_as(near)):
        return _PATCHES
    return _BESIDE_LINEAR if any(step.kind == "FullyConnected" for step in near) else _MIXED


def _reads_squares(operator: Operator) -> bool:
    return len(set(operator.source.kernel_size or ())) == 1 and reads_patches(operator)


def layout_changes(case: Case, free: Free) -> Finding | None:
    """Transposes that lowering added. The model's own permutes count as data movement."""
    added = case.largest(
        free,
        lambda each: each.delegated and each.kind == "transpose" and each.origin == "lowering",
    )
    if not added or (case.flows and not case.matters(added)):
        return None
    # Single-number constants are transposed too, by the dozen and in no time.
    enough = _WORTH_NAMING * sum(map(case.weight, added))
    worth = [operator for operator in added if case.weight(operator) >= enough]
    between = [(operator, *_between(case, operator)) for operator in worth]
    first, *others = _one_layout(case, between)
    finding = Finding(
        "layout-changes",
        f"Remove {plural(len(worth), 'layout change')} that lowering added",
        (f"keep one layout through the model: {first}", *others),
        case.series,
        tuple(
            Concern(
                (operator,), f"between {before} and {after}", "", {"between": [before, after]}, between=True
            )
            for operator, before, after in between
        ),
        {"added_by_lowering": len(added)},
        first_step=first,
    )
    return case.bounded(finding, case.series.spent_by(added).ms)


def _one_layout(case: Case, between: Sequence[tuple[Operator, str, str]]) -> Iterator[str]:
    """What helps against most of them; a tenth of their cost is not worth a sentence."""
    weights: defaultdict[str, float] = defaultdict(float)
    for operator, before, after in between:
        at_edge = before == _INPUT or after == _OUTPUT
        at_call = before == _CALL_INPUT or after == _CALL_OUTPUT
        weights["edge" if at_edge else "call" if at_call else "inside"] += case.weight(operator)
    counts = {place for place, weight in weights.items() if weight >= 0.1 * sum(weights.values())}
    if "call" in counts:
        said = "bring the operators between the calls into the delegate"
        yield f"data between delegate calls is channels-first, so {said}"
    if "edge" in counts:
        yield (
            "export with a channels-last example input (only the input, not the weights), and pass such "
            "input at run time"
        )
    if "inside" in counts:
        yield (
            "replace an operator that needs channels-first data between convolutions, or move it to the "
            "start or end of the model"
        )


def _between(case: Case, operator: Operator) -> tuple[str, str]:
    """Places of the model's nearest operators before and after it in its call."""
    place = operator.method, operator.call
    call = [
        near for near in case.series.operators if (near.method, near.call) == place and near.origin == "model"
    ]
    before = [near for near in call if near.position < operator.position]
    after = [near for near in call if near.position > operator.position]
    first = last = False
    if found := case.step(operator):
        flow, step = found[0].flow, found[0].flow.steps[found[1]]
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
