"""Finds the operator whose output is the first that is not finite: the graph runs node by node, once, and
only when an output was seen to be NaN or infinite."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from model_profiling.export.nodes import module_of, operator_name, quoted_line
from model_profiling.export.tracing import Traced, flatten

if TYPE_CHECKING:
    import torch
    from torch.fx import Node


def first_not_finite(traced: Traced) -> str:
    """`aten.mul.Tensor in layers.0 at model.py:12 in forward: the line`; empty where no operator made one.

    Of all operators whose NaN or infinity reaches an output, the first. An infinity that the model writes
    itself (a mask) is not blamed, but the operator that makes NaN of it is.
    """
    graph = traced.program.module()
    found = _kinds_by_node(graph, traced)
    order = {node: place for place, node in enumerate(graph.graph.nodes)}
    ends = [node for node in graph.graph.output_node().all_input_nodes if found.get(node)]
    origins = sorted(_origins(ends, found), key=order.__getitem__)
    return _named(origins[0]) if origins else ""


def _kinds_by_node(graph: torch.fx.GraphModule, traced: Traced) -> dict[Node, frozenset[str]]:
    """What each node's tensors hold that is not finite: `nan`, `inf`; nothing for the others."""
    import torch

    found: dict[Node, frozenset[str]] = {}

    class Watched(torch.fx.Interpreter):
        def run_node(self, n: Node) -> object:
            result: object = super().run_node(n)
            if n.op != "output" and (kinds := _kinds(result)):
                found[n] = kinds
            return result

    inputs = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in traced.eager.inputs()]
    with torch.no_grad():
        Watched(graph).run(*inputs, enable_io_processing=False)
    return found


def _kinds(result: object) -> frozenset[str]:
    import torch

    tensors = [leaf for leaf in flatten(result) if isinstance(leaf, torch.Tensor)]
    numbers = [tensor for tensor in tensors if tensor.is_floating_point() or tensor.is_complex()]
    kinds = (("nan", torch.isnan), ("inf", torch.isinf))
    return frozenset(word for word, test in kinds if any(bool(test(tensor).any()) for tensor in numbers))


def _origins(ends: list[Node], found: dict[Node, frozenset[str]]) -> Iterator[Node]:
    """Where the chain of nodes that are not finite begins, back from `ends`."""
    waiting, seen = list(ends), set(ends)
    while waiting:
        node = waiting.pop()
        before = [each for each in node.all_input_nodes if each in found]
        if "nan" in found[node] and not any("nan" in found[each] for each in before):
            if all(_written(each, found) for each in before):
                yield node
                continue
        elif not before:
            if not _written(node, found):
                yield node
            continue
        waiting += [each for each in before if each not in seen]
        seen.update(before)


def _written(node: Node, found: dict[Node, frozenset[str]]) -> bool:
    """Whether the model wrote the infinity in `node` itself, as a number or through operators on such."""
    if any(isinstance(leaf, float) and math.isinf(leaf) for leaf in flatten((node.args, node.kwargs))):
        return True
    before = [each for each in node.all_input_nodes if each in found]
    return bool(before) and all(_written(each, found) for each in before)


def _named(node: Node) -> str:
    if node.op == "placeholder":
        return f"the input {node.name}"
    if node.op == "get_attr":
        return f"the tensor {node.target} of the model"
    module, _ = module_of(node)
    place, source = (f" in {module}" if module else ""), quoted_line(node)
    return f"{operator_name(node)}{place}{f' at {source}' if source else ''}"
