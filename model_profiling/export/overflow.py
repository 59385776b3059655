"""Where the NaN, infinities or wrong values of a program begin, and which layers to keep in float32 against
that. It runs only after outputs were wrong."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from model_profiling.core.errors import ProfilingError
from model_profiling.core.number_formats import NumberFormat
from model_profiling.export.formats import trace
from model_profiling.export.rewrites import usual_rewrites
from model_profiling.export.tracing import (
    Eager,
    Traced,
    export_graph,
    flatten,
    module_of,
    operator_name,
    quoted_line,
)

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

    Tensors = list[torch.Tensor]

_TRY_FOR_S = 180.0
"""After this time no other layers are tried; each attempt is an export."""


@dataclass(frozen=True, slots=True)
class Overflow:
    """Where values that are not finite, or wrong, begin."""

    text: str
    """`, first in aten.mul.Tensor in layers.0 at model.py:12 in forward: the line`."""
    module: str
    """The module's path; empty for the model itself."""


@dataclass(frozen=True, slots=True)
class Search:
    """The export to repeat with other layers in float32."""

    name: str
    eager: Eager
    """The model in float32."""
    wanted: NumberFormat
    keep: Sequence[str]
    run: Callable[[Traced], Tensors]
    """Lowers a trace and runs its program."""
    rewrites: tuple[str, ...] = ()

    def first_in_program(self, traced: Traced) -> Overflow | None:
        """The first module with another output in the program than in PyTorch. The model is lowered once more
        and returns a sample of each module's output."""
        import torch

        seen: dict[int, tuple[str, torch.Tensor]] = {}

        def hook(path: str) -> Callable[[object, object, object], None]:
            def note(_: object, __: object, result: object) -> None:
                for leaf in flatten(result):
                    if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                        seen.setdefault(id(leaf), (path, leaf))

            return note

        module = traced.eager.module

        class WatchedModule(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.module = module

            def forward(self, *args: object, **kwargs: object) -> list[torch.Tensor]:
                seen.clear()
                self.module(*args, **kwargs)
                return [_sample(leaf) for _, leaf in seen.values()]

        hooks = [part.register_forward_hook(hook(path)) for path, part in module.named_modules()]
        try:
            watched = replace(traced.eager, module=WatchedModule().eval(), dynamic_shapes=None)
            program = export_graph(self.name, watched)
            paths = [path for path, _ in seen.values()]
            _without_idle_calls(program.graph)
            wanted = replace(watched, module=program.module()).run()
            found = self.run(Traced(program, watched))
        except ProfilingError:  # what only names the layer must not hide that there is a problem
            return None
        finally:
            for each in hooks:
                each.remove()
        for path, want, got in zip(paths, wanted, found, strict=True):
            if bool(want.isfinite().all()) and not _is_close(got, want):
                calls = (node for node in traced.program.graph.nodes if node.op == "call_function")
                inside = [node for node in calls if module_of(node)[0] == path]
                return _origin(inside[-1]) if inside else Overflow(f", first in {path}", path)
        return None

    def cure(self, origin: Overflow | None, agrees: Callable[[Tensors], bool], other: str) -> tuple[str, str]:
        """Where it begins, and what to do: rewrites, or layers to keep in float32, are named only if that was
        tried and its outputs are as they should be; else `other`."""
        where = origin.text if origin else ""
        if self.wanted.kind == "fp32":
            return where, other
        began, tried = time.monotonic(), []
        for words, rewrites in self._candidates(origin.module if origin else ""):
            if time.monotonic() - began > _TRY_FOR_S:
                break
            keep = tuple(dict.fromkeys((*self.keep, *words)))
            flags = " ".join([f"--keep {word}=fp32" for word in keep] + ["--optimize"] * bool(rewrites))
            with contextlib.suppress(ProfilingError):
                made = trace(self.name, self.eager, self.wanted, None, keep, rewrites=rewrites)
                if rewrites and not made.rewrites:
                    continue
                if agrees(self.run(made)):
                    return where, f"export with {flags} (this was tried: the outputs then agree with PyTorch)"
            tried.append(flags)
        failed = " and ".join(tried)
        return where, f"{other}; tried without success: {failed}" if tried else other

    def _candidates(self, path: str) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
        """The rewrites, then what to keep in float32: the layer, all layers of its class, the module around
        it."""
        if not self.rewrites:
            yield (), usual_rewrites(self.wanted.kind)
        if not path:
            return
        yield (path,), self.rewrites
        kind = type(self.eager.module.get_submodule(path)).__name__
        if sum(type(part).__name__ == kind for part in self.eager.module.modules()) > 1:
            yield (kind,), self.rewrites
        if around := path.rpartition(".")[0]:
            yield (around,), self.rewrites


_SAMPLE = 256
_FAR = 0.1
"""Of the largest value of a sample: rounding differs by less."""


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Values from all of a tensor; all are NaN if any value of the tensor is not finite."""
    return tensor.flatten()[:: max(1, tensor.numel() // _SAMPLE)] + (tensor * 0).sum()


def _is_close(got: torch.Tensor, want: torch.Tensor) -> bool:
    return bool((got - want).abs().max() <= _FAR * want.abs().max())


def _without_idle_calls(graph: torch.fx.Graph) -> None:
    """Remove calls that return their input: XNNPACK's lowering fails if a delegate returns such a result."""
    import torch

    aten = torch.ops.aten
    idle = (aten.dropout.default, aten.clone.default, aten.alias.default, aten.detach.default)
    for node in list(graph.nodes):
        if node.target in idle:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def first_not_finite(traced: Traced) -> Overflow | None:
    """The operator in PyTorch at which a NaN or infinity that reaches an output begins. An infinity that the
    model itself writes (a mask) is not blamed."""
    graph = traced.program.module()
    found = _not_finite(graph, traced)
    origin, ahead = None, graph.graph.output_node().all_input_nodes
    while ahead := [node for node in ahead if node in found and not _written(node, found)]:
        origin, ahead = ahead[0], ahead[0].all_input_nodes
    return _origin(origin) if origin else None


def _not_finite(graph: torch.fx.GraphModule, traced: Traced) -> dict[Node, bool]:
    """The nodes with values that are not finite, and whether some are NaN."""
    import torch

    found: dict[Node, bool] = {}

    class WatchedGraph(torch.fx.Interpreter):
        def run_node(self, n: Node) -> object:
            result: object = super().run_node(n)
            tensors = [leaf for leaf in flatten(result) if isinstance(leaf, torch.Tensor)]
            if n.op != "output" and not all(bool(tensor.isfinite().all()) for tensor in tensors):
                found[n] = any(bool(tensor.isnan().any()) for tensor in tensors)
            return result

    inputs = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in traced.eager.inputs()]
    with torch.no_grad():
        WatchedGraph(graph).run(*inputs, enable_io_processing=False)
    return found


def _written(node: Node, found: Mapping[Node, bool]) -> bool:
    """Whether the model itself wrote the infinity in `node`, as a number or through operators on such."""
    if found[node]:
        return False
    if any(isinstance(leaf, float) and math.isinf(leaf) for leaf in flatten((node.args, node.kwargs))):
        return True
    before = [each for each in node.all_input_nodes if each in found]
    return bool(before) and all(_written(each, found) for each in before)


def _origin(node: Node) -> Overflow:
    return Overflow(f", first in {_named(node)}", module_of(node)[0])


def _named(node: Node) -> str:
    if node.op == "placeholder":
        return f"the input {node.name}"
    if node.op == "get_attr":
        return f"the tensor {node.target} of the model"
    module, _ = module_of(node)
    place, source = (f" in {module}" if module else ""), quoted_line(node)
    return f"{operator_name(node)}{place}{f' at {source}' if source else ''}"
