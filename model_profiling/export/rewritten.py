"""Puts rewrites of the catalogue into an exported graph, and computes once what no input reaches, or what is
computed several times."""

from __future__ import annotations

import operator
from collections.abc import Collection
from inspect import signature
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule, Node, Proxy
from torch.fx.node import map_arg
from torch.fx.proxy import GraphAppendingTracer

from model_profiling.export.catalogue import CONSTANTS, REPEATS, Replacement, Unfit
from model_profiling.export.records import Applied
from model_profiling.export.rewrites import BY_OPERATOR
from model_profiling.export.tracing import module_of, operator_name, place_of, writes

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_LARGEST_CONSTANT = 16 << 20
_FILLED = ("new_full", "new_zeros", "new_ones", "new_tensor", "full_like", "zeros_like", "ones_like")
"""Calls that use nothing of their tensor but its dtype and shape."""


def rewrite_graph(
    program: ExportedProgram, chosen: Collection[str]
) -> tuple[GraphModule, tuple[Applied, ...]]:
    """Return the program's graph as a module with the `chosen` rewrites, to be exported again, and where they
    were applied. The program itself does not change."""
    module = program.module()
    held = set(program.graph_signature.buffers_to_mutate.values())
    written = {name for node in module.graph.nodes for name in _written(node)} | held
    constants = _constant_nodes(module, written)
    for node in constants:
        node.meta["is_constant"] = True
    applied = []
    for node in list(module.graph.nodes):
        name = operator_name(node).replace("_.", ".") if node.op == "call_function" else ""
        for rewrite in BY_OPERATOR.get(name, ()):
            if rewrite.replacement is None or rewrite.name not in chosen or node in constants:
                continue
            place = Applied(rewrite.name, name, module_of(node)[0], place_of(node))
            if _replace(module, node, rewrite.replacement, name):
                applied.append(place)
                break
    applied += _fold(module, written, all_of_them=CONSTANTS in chosen)
    if REPEATS in chosen:
        applied += _merge_repeats(module)
    module.graph.eliminate_dead_code()
    module.graph.lint()
    module.recompile()
    return module, tuple(applied)


def _written(node: Node) -> list[str]:
    """Attributes that a call writes into."""
    sources = node.all_input_nodes if writes(node) else ()
    return [str(source.target) for source in sources if source.op == "get_attr"]


class _Recorder(GraphAppendingTracer):
    """Gives each new node the place of the call that it replaces, and an example of its value."""

    def __init__(self, module: GraphModule, replaced: Node) -> None:
        super().__init__(module.graph)
        self.module, self.replaced = module, replaced
        self.made: list[Node] = []

    def create_node(self, *args: Any, **kwargs: Any) -> Node:
        node = super().create_node(*args, **kwargs)
        inherited = ["stack_trace"]
        # XNNPACK's quantizer takes for a pool what has the module and function of one.
        if "adaptive_avg_pool2d" not in operator_name(self.replaced):
            inherited += ["nn_module_stack", "torch_fn", "source_fn_stack"]
        node.meta = {key: self.replaced.meta[key] for key in inherited if key in self.replaced.meta}
        node.meta["rewritten"] = True
        self.made.append(node)
        node.meta["val"] = _example(node)
        return node


def _example(node: Node) -> Any:
    """Compute the node's value from those of its inputs, on tensors without data."""
    from torch._guards import detect_fake_mode

    args, kwargs = map_arg((node.args, node.kwargs), lambda source: source.meta["val"])
    mode = detect_fake_mode([source.meta["val"] for source in node.all_input_nodes])
    with mode if mode is not None else torch.no_grad():
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        return node.target(*args, **kwargs)


def _replace(module: GraphModule, node: Node, replacement: Replacement, name: str) -> bool:
    given = _arguments(node)
    in_place = operator_name(node) != name
    if in_place and not _owns_input(node):
        return False
    if "operator" in signature(replacement).parameters:
        given["operator"] = name
    recorder = _Recorder(module, node)
    try:
        for source in node.all_input_nodes:
            _complete(module, source, node)
        with module.graph.inserting_before(node):
            proxies = map_arg(given, lambda source: Proxy(source, recorder))
            made = replacement(**proxies)
    except Unfit:
        for unused in reversed(recorder.made):
            module.graph.erase_node(unused)
        return False
    if isinstance(made, list | tuple):
        for user in list(node.users):
            user.replace_all_uses_with(made[user.args[1]].node)
            module.graph.erase_node(user)
    else:
        node.replace_all_uses_with(made.node)
    module.graph.erase_node(node)
    return True


def _complete(module: GraphModule, source: Node, user: Node) -> None:
    """A weight has no value in the graph: give it one without data, of the mode of the call's own value."""
    if "val" not in source.meta and source.op == "get_attr":
        from torch._guards import detect_fake_mode
        from torch._subclasses.fake_tensor import FakeTensorMode

        mode = detect_fake_mode([user.meta.get("val")]) or FakeTensorMode()
        tensor = operator.attrgetter(str(source.target))(module)
        source.meta["val"] = mode.from_tensor(tensor, static_shapes=True)


def _arguments(node: Node) -> dict[str, Any]:
    """The call's arguments by the operator's own names, defaults included."""
    names = [argument.name for argument in node.target._schema.arguments]
    defaults = {
        argument.name: argument.default_value
        for argument in node.target._schema.arguments
        if argument.has_default_value()
    }
    return defaults | dict(zip(names, node.args, strict=False)) | dict(node.kwargs)


def _owns_input(node: Node) -> bool:
    """Whether nothing else sees what a call in place writes."""
    (source, *_) = node.all_input_nodes
    return source.op == "call_function" and len(source.users) == 1


def _constant_nodes(module: GraphModule, written: Collection[str]) -> set[Node]:
    """Nodes that no input reaches and that give the same every time."""
    constants: set[Node] = set()
    for node in module.graph.nodes:
        if node.op == "get_attr":
            attribute = operator.attrgetter(str(node.target))(module)
            if str(node.target) not in written and isinstance(attribute, torch.Tensor):
                constants.add(node)
        elif _is_pure(node):
            inputs = () if _fills(node) else node.all_input_nodes
            if all(source in constants for source in inputs):
                constants.add(node)
    return constants


def _is_pure(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return "rewritten" in node.meta or node.target is operator.getitem
    tags = getattr(node.target, "tags", ())
    return not schema.is_mutable and torch.Tag.nondeterministic_seeded not in tags


def _fills(node: Node) -> bool:
    """Whether the node is a tensor filled with one number, of a fixed shape."""
    # `full_like` of both `aten.full_like.default` and a method.
    name = operator_name(node).removeprefix("aten.").partition(".")[0]
    value = node.meta.get("val")
    others = [source for source in node.all_input_nodes if source is not node.args[0]]
    fixed = isinstance(value, torch.Tensor) and all(type(size) is int for size in value.shape)
    return name in _FILLED and fixed and not others


def _fold(module: GraphModule, written: Collection[str], *, all_of_them: bool) -> list[Applied]:
    """Compute constants that others use, and keep them as buffers: all, or those that rewrites made."""
    constants = _constant_nodes(module, written)
    values: dict[Node, Any] = {}
    applied: list[Applied] = []
    for node in list(module.graph.nodes):
        value = node.meta.get("val")
        wanted = (
            node in constants
            and node.op != "get_attr"
            and isinstance(value, torch.Tensor)
            and value.numel() * value.element_size() <= _LARGEST_CONSTANT
            and (all_of_them or "rewritten" in node.meta)
            and any(user not in constants for user in node.users)
        )
        if not wanted:
            continue
        name = f"computed_once_{sum(1 for _ in module.buffers())}"
        module.register_buffer(name, _compute(module, node, values).detach().clone().contiguous())
        with module.graph.inserting_before(node):
            attribute = module.graph.get_attr(name)
        attribute.meta = {key: value for key, value in node.meta.items() if key != "rewritten"}
        if "rewritten" not in node.meta:
            applied.append(Applied(CONSTANTS, operator_name(node), module_of(node)[0], place_of(node)))
        node.replace_all_uses_with(attribute, delete_user_cb=lambda user: user not in constants)
    return applied


def _merge_repeats(module: GraphModule) -> list[Applied]:
    """Let the first of equal calls stand for all of them. Where a call writes in place, equal calls need not
    give the same."""
    if any(map(writes, module.graph.nodes)):
        return []
    first: dict[str, Node] = {}
    applied: list[Applied] = []
    for node in list(module.graph.nodes):
        if node.op == "get_attr":
            key = str(node.target)
        elif not _is_pure(node):
            continue
        else:
            key = repr((node.op, operator_name(node), node.args, sorted(node.kwargs.items())))
        earlier = first.setdefault(key, node)
        if earlier is node:
            continue
        if node.op != "get_attr" and "rewritten" not in node.meta:
            applied.append(Applied(REPEATS, operator_name(node), module_of(node)[0], place_of(node)))
        node.replace_all_uses_with(earlier)
        module.graph.erase_node(node)
    return applied


def _compute(module: GraphModule, node: Node, values: dict[Node, Any]) -> Any:
    if node in values:
        return values[node]
    if node.op == "get_attr":
        values[node] = operator.attrgetter(str(node.target))(module)
        return values[node]
    if _fills(node):
        blank = torch.empty(node.meta["val"].shape, dtype=node.args[0].meta["val"].dtype)
        args, kwargs = map_arg((node.args, node.kwargs), lambda _: blank)
    else:
        args, kwargs = map_arg((node.args, node.kwargs), lambda source: _compute(module, source, values))
    with torch.no_grad():
        if node.op == "call_method":
            values[node] = getattr(args[0], str(node.target))(*args[1:], **kwargs)
        else:
            values[node] = node.target(*args, **kwargs)
    return values[node]
