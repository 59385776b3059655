"""Work that is the same in every inference: what does not depend on the input, weights packed again."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from model_profiling.analysis.calls import calls_of
from model_profiling.analysis.causes.seen import Seen, counted
from model_profiling.analysis.findings import Finding, concerns_of, source_line
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.outside_lines import why_outside
from model_profiling.analysis.roofline import seen_roofline
from model_profiling.analysis.series import Spent
from model_profiling.wording import plural

_ATTENTION = "scaled_dot_product_attention"
_PRODUCTS = ("FullyConnected", "BatchMatrixMultiply", "Conv2d")


def same_each_time(seen: Seen) -> Finding | None:
    """Operators that compute the same whatever the program is given: masks, positions, index arithmetic."""
    replaced = _lines_of_replaced_calls(seen)
    same = seen.largest(
        lambda operator: (
            seen.does_not_depend_on_input(operator)
            and not _in_torch(operator)
            and not (source_line(operator) in replaced and _goes_with_its_call(seen, operator))
        )
    )
    if not same or not _worth_telling(seen, same):
        return None
    series, beside = seen.series, _calling(seen, same)
    return Finding(
        "input-independent",
        f"Compute {counted(same)} once, not in every inference",
        f"nothing that they read depends on the model's input: {'; '.join(_once(same))}",
        series,
        concerns_of(same),
        {"outside_delegates": sum(not operator.delegated for operator in same)},
        seen.gain_pct(series.spent_by(same).ms, beside.ms),
        besides=beside if beside.ms else None,
        besides_what="calling them",
    )


def _calling(seen: Seen, same: Sequence[Operator]) -> Spent:
    """What calling those outside delegates takes. They wait for no delegate, so they part none."""
    calls = {operator.call for operator in same if not operator.delegated}
    ms = calls_of(seen.series).saved_ms(0, calls) if seen.timed and calls else 0.0
    return Spent(ms, ms / seen.series.e2e_ms if seen.series.e2e_ms else 0.0)


def _in_torch(operator: Operator) -> bool:
    """A recurrent layer makes its first state itself: nobody can keep it for the layer."""
    return operator.source.place.module_class.startswith("torch.nn.modules.rnn.")


def _lines_of_replaced_calls(seen: Seen) -> set[str]:
    """Lines with a call to be replaced that inputs reach elsewhere: numbers that `hardsigmoid` converts are
    not the model's to keep, and another call in its place makes none."""
    depending = {
        source_line(each) for each in seen.series.operators if not seen.does_not_depend_on_input(each)
    }
    reasons = ((each, why_outside(seen.series, each)) for each in seen.series.operators)
    return {source_line(each) for each, why in reasons if why and why.replaced_as_a_call} & depending


def _goes_with_its_call(seen: Seen, operator: Operator) -> bool:
    """What delegates took of such a call goes with it. Attention alone can be given what it would make, its
    mask."""
    why = why_outside(seen.series, operator)
    return operator.delegated if why is None else why.replaced_as_a_call and why.call != _ATTENTION


def _worth_telling(seen: Seen, same: Sequence[Operator]) -> bool:
    """Many small ones cost their calls, however little they do; single numbers are nobody's mask."""
    arrays = [operator for operator in same if prod(operator.source.output_shape) > 1]
    return bool(arrays) and (seen.matters(same) or len(arrays) >= max(3, len(seen.series.operators) // 20))


def _once(same: Sequence[Operator]) -> list[str]:
    """How to have it computed only once, for what there is."""
    ways = []
    weights = [each for each in same if ".parametrizations." in f".{each.source.module_path}."]
    masks = [each for each in same if _calls(each, _ATTENTION)]
    if weights:
        ways.append(
            "remove parametrizations (`torch.nn.utils.parametrize.remove_parametrizations`) before export: "
            "delegates want stored weights"
        )
    if masks:
        ways.append("give attention a stored mask of numbers (0 and -inf), not `is_causal` and no booleans")
    rolls = [each for each in same if _calls(each, "roll")]
    if rolls:
        ways.append("`torch.roll` makes its indexes anew: `torch.cat` of two slices needs none")
    if len(weights) + len(masks) + len(rolls) < len(same):
        ways.append("make the value in `__init__`, keep it with `register_buffer` and use that in `forward`")
    return ways


def _calls(operator: Operator, function: str) -> bool:
    """The model calls `function` there; records of older kits have the line's text alone."""
    place = operator.source.place
    return place.call == function if place.call else f"{function}(" in place.code


def repacked_weights(seen: Seen) -> Finding | None:
    """Products of weights that never change, but that the backend gets as data: it packs them every time."""
    products = seen.largest(lambda operator: _fixed_but_not_stored(seen, operator))
    if not products or not seen.matters(products):
        return None
    calls = sum(seen.repacking.values())
    proof = f" ({plural(calls, 'call')} of packing kernels while it ran)" if calls else ""
    return Finding(
        "repacked-weights",
        f"Give {plural(len(products), 'matrix operator')} weights that are packed once",
        "their second operand never changes, but a `bmm` or `matmul` hands it over as data, to be packed in "
        f"every inference{proof}: a linear layer with stored weights has them packed while the program loads",
        seen.series,
        concerns_of(products),
        {"packing_calls": dict(seen.repacking)} if seen.repacking else {},
        seen.gain_pct(_beyond_multiplying(seen, products)),
    )


def _fixed_but_not_stored(seen: Seen, operator: Operator) -> bool:
    """Its weights are the same each time, and no part of the delegate's own data."""
    found = seen.step(operator) if operator.source.node_kind in _PRODUCTS else None
    if found is None or operator.origin == "backend":
        return False
    known, index = found
    step = known.flow.steps[index]
    if len(step.reads) < 2 or step.inputs[1].constant or index in known.independent:
        return False
    weights = step.reads[1]
    return weights in known.flow.constants or known.flow.made_by.get(weights, -1) in known.independent


def _beyond_multiplying(seen: Seen, products: Sequence[Operator]) -> float:
    """What is left of their time at the best rate seen elsewhere: packing is no more than that."""
    others = [operator for operator in seen.series.operators if operator not in products]
    roof = seen.roof or seen_roofline(others)
    if roof is None:
        return seen.series.spent_by(products).ms
    return sum(
        operator.typical_ms * max(0.0, 1 - (operator.gflops or 0.0) / roof.gflops) for operator in products
    )
