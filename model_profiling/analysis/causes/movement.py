"""Causes in data movement inside delegates: what the model asks for, and transposes that need not be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from model_profiling.analysis.causes.context import KINDS_NAMED, MethodFlow, Seen
from model_profiling.analysis.findings import Concern, Finding, concerns_of, source_line, where
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.outside_lines import outside_lines
from model_profiling.core.formatting import plural
from model_profiling.program.flow import Undone, undone_transposes

# Data movement in delegates that the model asks for: concatenations, permutes, slices, copies.

_A_TENTH = 0.1
"""Of what they cost together: kinds that cost less are worth no sentence."""
_COPIES = {
    "concatenate": "`torch.cat` copies all that it joins: a linear layer or 1x1 convolution of a "
    "concatenation is the sum of one for each part",
    "transpose": "a permute copies its whole tensor: keep one order of dimensions from layer to layer",
    "copy": "drop `clone` and `contiguous` that nothing needs",
    "reshape": "keep one shape from layer to layer: a reshape in a delegate copies",
    "slice": "slices copy: layers of their own for the parts make them without one",
    "pad": "drop pads of nothing, which copy all the same, and leave padding that is alike on both sides to "
    "the convolution or pooling that follows",
    "rearrange": "do the rearranging once, at the model's edge",
}
"""What helps against each kind of data movement in delegates; of others nothing is known to help."""

_SEVERAL = {"concatenate": "concatenations", "copy": "copies", "rearrange": "rearrangements"}


def copies(seen: Seen) -> Finding | None:
    """Data movement in delegates that is neither lowering's nor a conversion nor a kernel's packing."""
    series = seen.series
    moving = seen.largest(
        lambda operator: (
            operator.delegated
            and operator.origin != "backend"
            and operator.kind in _COPIES
            and not (operator.origin == "lowering" and operator.kind == "transpose")
            and (operator.typical_ms > 0 if seen.timed else bool(operator.source.bytes_moved))
        ),
    )
    if not moving or not seen.matters(moving):
        return None
    kinds = seen.kinds(moving)
    by_kind: dict[str, object] = {"by_kind": {kind: len(members) for kind, members in kinds.items()}}
    if seen.timed:
        by_kind["by_kind_ms"] = {
            kind: round(series.spent_by(members).ms, 6) for kind, members in kinds.items()
        }
    whole = sum(map(seen.weight, moving))
    costly = [kind for kind, members in kinds.items() if sum(map(seen.weight, members)) >= _A_TENTH * whole]
    mostly = f", mostly {_SEVERAL.get(costly[0], f'{costly[0]}s')}" if len(costly) == 1 < len(moving) else ""
    return Finding(
        "data-movement",
        f"Avoid {plural(len(moving), 'operator')} that only {'moves' if len(moving) == 1 else 'move'} data"
        f"{mostly}",
        "; ".join(_COPIES[kind] for kind in costly[:KINDS_NAMED]),
        series,
        concerns_of(moving),
        by_kind,
        seen.gain_pct(series.spent_by(moving).ms),
    )


# Transposes that need not be: those that undo each other, and those that lowering put in.

_INPUT, _OUTPUT = "the model's input", "the model's output"
_CALL_INPUT, _CALL_OUTPUT = "the call's input", "the call's output"
_WORTH_NAMING = 1e-3
"""A share of what all layout changes take."""
_ACROSS = "lowering added them, in different delegate calls"


def cancelling_transposes(seen: Seen) -> Finding | None:
    concerns = [
        concern
        for known in seen.flows.values()
        for undone in undone_transposes(known.flow)
        for concern in _cancelling(seen, known, undone)
    ]
    if not concerns:
        return None
    concerns.sort(key=lambda concern: -seen.weight(concern.operator))
    operators = [operator for concern in concerns for operator in concern.operators]
    added = sum(operator.origin == "lowering" for operator in operators)
    return Finding(
        "cancelling-transposes",
        f"Remove {plural(len(operators), 'transpose')} that others undo",
        _without_undoing(concerns),
        seen.series,
        tuple(concerns),
        {"transposes": len(operators), "added_by_lowering": added},
        seen.gain_pct(seen.series.spent_by(operators).ms),
    )


def _cancelling(seen: Seen, known: MethodFlow, undone: Undone) -> Iterator[Concern]:
    """Those of the transposes that ran and that no other cause has; each says where the model has them."""
    operators = [each for each in known.ran_as(undone.transposes) if each.identity not in seen.claimed]
    if not operators:
        return
    everyone = [*operators, *known.ran_as(undone.partners)]
    written = [each for each in everyone if each.origin != "lowering"]
    place = where(written[0]) if written else f"between {' and '.join(_between(seen, operators[0]))}"
    if not written:
        note = "lowering added them" if len({each.call for each in everyone}) == 1 else _ACROSS
    elif len(written) < len(everyone):
        note = "one the model's, one that lowering added"
    else:
        note = "all of them the model's"
    for operator in operators:
        facts = {"added_by_lowering": operator.origin == "lowering"}
        line = source_line(written[0]) if written else ""
        yield Concern((operator,), place, note, facts, line=line)


def _without_undoing(concerns: Sequence[Concern]) -> str:
    ways = []
    notes = {concern.note for concern in concerns}
    if "all of them the model's" in notes:
        ways.append(
            "leave out permutes that the next one undoes; where one line makes both, torch takes that call "
            "apart so: write it out (attention as matmul, softmax, matmul)"
        )
    if "one the model's, one that lowering added" in notes:
        ways.append(
            "XNNPACK computes channels-last, where the permute beside a convolution changes nothing, but "
            "lowering keeps it and adds its reverse: 1x1 convolutions in place of linear layers need none"
        )
    if _ACROSS in notes:
        ways.append(
            "data goes from one delegate call to another channels-first: bring the operators between the "
            "calls into the delegate, and it stays channels-last"
        )
    if "lowering added them" in notes:
        ways.append(
            "lowering runs what is between convolutions channels-first, though it works on each element "
            "alone: use an operator that it keeps channels-last"
        )
    return "; ".join(ways)


def layout_changes(seen: Seen) -> Finding | None:
    """Those that lowering added. What the model itself permutes is its own business, and data movement."""
    series = seen.series
    added = seen.largest(
        lambda operator: operator.delegated and operator.kind == "transpose" and operator.origin == "lowering"
    )
    if not added or (seen.flows and not seen.matters(added)):
        return None
    # Constants of one number are turned as well, by the dozen and in no time.
    enough = _WORTH_NAMING * sum(map(seen.weight, added))
    worth = [operator for operator in added if seen.weight(operator) >= enough]
    concerns = tuple(_layout_change(seen, operator) for operator in worth)
    return Finding(
        "layout-changes",
        f"Remove {plural(len(worth), 'layout change')} that lowering added",
        _one_layout(seen, concerns),
        series,
        concerns,
        {"added_by_lowering": len(added)},
        seen.gain_pct(series.spent_by(added).ms),
    )


def _layout_change(seen: Seen, operator: Operator) -> Concern:
    before, after = _between(seen, operator)
    return Concern((operator,), f"between {before} and {after}", "", {"between": [before, after]})


def _one_layout(seen: Seen, added: Sequence[Concern]) -> str:
    """What helps against most of them; a tenth of their cost is worth no sentence."""
    at_edges = [
        concern
        for concern in added
        if concern.where.startswith(f"between {_INPUT}") or concern.where.endswith(f"and {_OUTPUT}")
    ]
    at_calls = [
        concern
        for concern in added
        if concern not in at_edges
        and (
            concern.where.startswith(f"between {_CALL_INPUT}")
            or concern.where.endswith(f"and {_CALL_OUTPUT}")
        )
    ]
    inside = [concern for concern in added if concern not in at_edges and concern not in at_calls]
    ways = []
    if _counts(seen, at_calls, added):
        ways.append(f"data goes between delegate calls channels-first: {_what_parts_calls(seen)}")
    if _counts(seen, at_edges, added):
        ways.append("export with a channels-last example input (it alone, not the weights), and feed that")
    if _counts(seen, inside, added):
        ways.append(
            "replace an operator that wants channels-first data between convolutions, or move it to the "
            "model's edge"
        )
    return "keep one layout through the model: " + "; ".join(ways)


def _what_parts_calls(seen: Seen) -> str:
    left = [each for each in seen.series.operators if not each.delegated]
    helped = [line for line in outside_lines(seen.series, left) if line.reasons and line.helped]
    helped.sort(key=lambda line: -len(line.operators))
    first = f", first `{helped[0].name}` ({helped[0].place}; {helped[0].remedy})" if helped else ""
    return f"bring the operators between the calls into the delegate{first}"


def _counts(seen: Seen, some: Sequence[Concern], every: Sequence[Concern]) -> bool:
    part, whole = (sum(seen.weight(each.operator) for each in concerns) for concerns in (some, every))
    return bool(some) and part >= 0.1 * whole


def _between(seen: Seen, operator: Operator) -> tuple[str, str]:
    """Where the nearest operators before and after it in its call come from that the model has."""
    place = operator.method, operator.call
    call = [
        near for near in seen.series.operators if (near.method, near.call) == place and near.origin == "model"
    ]
    before = [near for near in call if near.position < operator.position]
    after = [near for near in call if near.position > operator.position]
    first, last = _edges(seen, operator)
    return (
        _INPUT if first else _named(before[-1]) if before else _CALL_INPUT,
        _OUTPUT if last else _named(after[0]) if after else _CALL_OUTPUT,
    )


def _edges(seen: Seen, operator: Operator) -> tuple[bool, bool]:
    """Whether it reads what the model is given, and makes what the model gives."""
    found = seen.step(operator)
    if found is None:
        return False, False
    flow, step = found[0].flow, found[0].flow.steps[found[1]]
    return any(value in flow.inputs for value in step.reads), flow.returned(step)


def _named(operator: Operator) -> str:
    """`features.0 (model.py:12)`, `the reshape at model.py:12`."""
    module, line = operator.source.module_path, source_line(operator, short=True)
    if module:
        return f"{module} ({line})" if line else module
    return f"the {operator.kind} at {line}" if line else operator.name
