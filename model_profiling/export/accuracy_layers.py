"""What a number format costs each layer in accuracy, and what keeping the worst layers in float32 brings.

The model is computed twice side by side, in float32 and in the format. A layer's own noise is that of its
result when its inputs are those of float32; the noise of its result as it is includes what came before it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from model_profiling.core.errors import ProfilingError
from model_profiling.export.formats import observed, trace
from model_profiling.export.overflow import Search
from model_profiling.export.tracing import (
    Eager,
    export_graph,
    flatten,
    like,
    module_of,
    operator_name,
    source_of,
)
from model_profiling.program.records import Kept, LayerNoise, NoiseByLayer

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node

    from model_profiling.models.base import ExampleInputs

    Tensors = list[torch.Tensor]

_BATCHES = 8
"""Most inputs that are compared: noise of many differs little."""
_SETS = (1, 2, 4)
"""How many of the worst layers are kept in float32, each time in an export of its own."""
_CLEAN_DB = 120.0
"""The ratio of results without any noise: float32 has no more digits."""


@dataclass(slots=True)
class _Power:
    """Sums of squares over all inputs: of a result in float32, and of what the format adds to it."""

    signal: float = 0.0
    own: float = 0.0
    total: float = 0.0

    @staticmethod
    def db(signal: float, noise: float) -> float:
        if not noise <= signal * 10 ** (-_CLEAN_DB / 10):
            return 10 * math.log10(signal / noise) if signal > 0 and math.isfinite(noise) else -_CLEAN_DB
        return _CLEAN_DB


_Measured = tuple[dict[str, _Power], dict[str, set[str]]]
"""By layer in the order of the graph; and the layers that feed each."""


def noise_by_layer(search: Search, batches: Sequence[ExampleInputs]) -> NoiseByLayer | None:
    """Compare on `batches`, or else on the example inputs. None in float32."""
    name, eager, wanted = search.name, search.eager, search.wanted
    if wanted.kind == "fp32":
        return None
    calls = [replace(eager, args=batch) for batch in batches[:_BATCHES]] or [eager]
    from_graph = wanted.quantized and wanted.kind != "int4"
    measure = _in_graph if from_graph else _in_modules
    powers, feeding = measure(search, batches or None, calls)
    lines = _lines(name, eager)
    kinds = {path: type(part).__name__ for path, part in eager.module.named_modules()}
    layers = tuple(
        LayerNoise(
            path,
            kinds.get(path, ""),
            lines.get(path, ""),
            _Power.db(power.signal, power.own),
            _Power.db(power.signal, power.total),
        )
        for path, power in powers.items()
        if path and power.signal > 0
    )
    wanted_outputs = eager.run()

    def kept(words: Sequence[str]) -> Kept:
        outputs = search.run(trace(name, eager, wanted, batches or None, [*search.keep, *words]))
        return Kept(tuple(words), _snr(wanted_outputs, outputs))

    return NoiseByLayer(layers, len(calls), tuple(_kept_sets(layers, feeding, kept)))


def _kept_sets(
    layers: Sequence[LayerNoise],
    feeding: Mapping[str, set[str]],
    kept: Callable[[Sequence[str]], Kept],
) -> Iterator[Kept]:
    """Yield the program as it is, then with more and more of the worst layers in float32, and with those that
    feed them: what is between two layers is rounded if one of them asks for it."""
    worst = [layer.path for layer in sorted(layers, key=lambda layer: layer.own_db)]
    for count in (0, *(number for number in _SETS if number < len(worst))):
        words = (path for layer in worst[:count] for path in (layer, *sorted(feeding.get(layer, ()))))
        try:
            yield kept(tuple(dict.fromkeys(words)))
        except ProfilingError:  # nothing is left to quantize, or it does not lower so
            return


def _snr(wanted: Tensors, produced: Tensors) -> float:
    signal = noise = 0.0
    for want, got in zip(wanted, produced, strict=True):
        if want.is_floating_point():
            signal += _square(want)
            noise += _square(got.double() - want.double())
    return _Power.db(signal, noise)


def _square(tensor: torch.Tensor) -> float:
    return float(tensor.detach().double().square().sum())


def _lines(name: str, eager: Eager) -> dict[str, str]:
    """The line that calls each module last."""
    nodes = export_graph(name, eager).graph.nodes
    return {module_of(node)[0]: source_of(node)[0] for node in nodes if node.op == "call_function"}


# Formats made from the graph: operators of the graph before and after it was converted have the same names.


def _in_graph(search: Search, batches: Sequence[ExampleInputs] | None, calls: Sequence[Eager]) -> _Measured:
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

    _, prepared = observed(search.name, search.eager, search.wanted, batches, search.keep)
    places = {node.name: module_of(node)[0] for node in prepared.graph.nodes}
    converted: GraphModule = convert_pt2e(copy.deepcopy(prepared))
    powers: dict[str, _Power] = {}
    with torch.no_grad():
        for call in calls:
            leaves = call.inputs()
            meant = _values(prepared, leaves)
            reached = _values(converted, leaves)
            own = _alone(converted, leaves, meant)
            for node in converted.graph.nodes:
                want = meant.get(node.name)
                if not _computes(node) or not _is_real(want):
                    continue
                power = powers.setdefault(places.get(node.name, ""), _Power())
                end = _rounded(node)
                noise = _square(own[node.name] - want)
                # What its own rounding adds to a result that is exact.
                noise += _square(own[end.name] - want) if end is not node else 0.0
                # The last operator of a layer is its result.
                power.signal, power.own = _square(want) + power.signal, noise + power.own
                power.total += _square(reached[end.name] - want)
    return powers, _feeding(prepared, places)


def _feeding(prepared: GraphModule, places: Mapping[str, str]) -> dict[str, set[str]]:
    """The modules between each module and the weights before it: operators on the way round their results
    with those that made them."""

    def taken(node: Node) -> list[Node]:
        given = node.all_input_nodes
        return [each.all_input_nodes[0] if each.op == "call_module" else each for each in given]

    def weighted(node: Node) -> bool:
        return any(each.op == "get_attr" for each in taken(node))

    feeding: dict[str, set[str]] = {}
    for node in prepared.graph.nodes:
        ahead = taken(node) if node.op == "call_function" and weighted(node) else []
        while ahead:
            before = ahead.pop()
            if before.op == "call_function":
                feeding.setdefault(places[node.name], set()).add(places[before.name])
                ahead += [] if weighted(before) else taken(before)
    return {path: {each for each in found if each != path and each} for path, found in feeding.items()}


def _values(
    module: GraphModule, leaves: Sequence[object], change: Callable[[Node, Any], Any] = lambda _, value: value
) -> dict[str, Any]:
    """The value of every node; those after it get what `change` makes of it."""
    from torch.fx import Interpreter

    seen: dict[str, Any] = {}

    class Watched(Interpreter):
        def run_node(self, node: Node) -> Any:
            value = change(node, super().run_node(node))
            seen[node.name] = value
            return value

    Watched(module).run(*leaves)
    return seen


def _alone(module: GraphModule, leaves: Sequence[object], meant: Mapping[str, Any]) -> dict[str, Any]:
    """The value of every node when what comes before it is as in float32."""
    own: dict[str, Any] = {}

    def note(node: Node, value: Any) -> Any:
        own[node.name] = value
        return meant.get(node.name, value) if _computes(node) else value

    _values(module, leaves, note)
    return own


def _computes(node: Node) -> bool:
    return node.op == "call_function" and "quantize" not in operator_name(node)


def _is_real(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _rounded(node: Node) -> Node:
    """The node that has an operator's result after it was quantized and converted back; else itself."""
    for user in node.users:
        if user.op == "call_function" and operator_name(user).startswith("quantized_decomposed.quantize"):
            return next(iter(user.users), node)
    return node


# Formats of modules: the same modules, of another type, with the same inputs.


def _in_modules(search: Search, batches: Sequence[ExampleInputs] | None, calls: Sequence[Eager]) -> _Measured:
    import torch

    made = trace(search.name, search.eager, search.wanted, batches, search.keep).eager
    powers: dict[str, _Power] = {}
    with torch.no_grad():
        for call in calls:
            meant = _results(search.eager.module, call)
            reached = _results(made.module, replace(made, args=like(call.args, made.args)))
            for path, (given, want) in meant.items():
                power = powers.setdefault(path, _Power())
                part = made.module.get_submodule(path)
                inputs = like(given, reached[path][0]) if path in reached else given
                power.signal += _square(want)
                power.own += _square(part(*inputs).double() - want.double())
                power.total += _square(reached[path][1].double() - want.double())
    return powers, {}


def _results(module: torch.nn.Module, call: Eager) -> dict[str, tuple[tuple[Any, ...], torch.Tensor]]:
    """Inputs and result of each innermost module that makes one tensor of real numbers from others."""
    seen: dict[str, tuple[tuple[Any, ...], torch.Tensor]] = {}
    hooks = []
    for path, part in module.named_modules():
        if path and not list(part.children()):

            def note(_: object, args: Any, result: Any, path: str = path) -> None:
                if _is_real(result) and all(map(_is_real, flatten(args))):
                    seen[path] = (args, result)

            hooks.append(part.register_forward_hook(note))
    try:
        call.run()
    finally:
        for hook in hooks:
            hook.remove()
    return seen
