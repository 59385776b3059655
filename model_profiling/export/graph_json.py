"""The exported graph as plain JSON: every operator with shapes, dtypes, module path and source line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from model_profiling.export.nodes import module_of, operator_name, quoted_line

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

SCHEMA_VERSION = 1


def graph_json(model: str, program: ExportedProgram) -> dict[str, object]:
    """One entry a node, in execution order."""
    return {
        "schema_version": SCHEMA_VERSION,
        "model": model,
        "nodes": [_node(node) for node in program.graph.nodes if node.op != "output"],
        "outputs": [str(spec.arg.name) for spec in program.graph_signature.output_specs],
    }


def _node(node: torch.fx.Node) -> dict[str, object]:
    module_path, module_class = module_of(node)
    return {
        "name": node.name,
        "operator": operator_name(node) if node.op == "call_function" else node.op,
        "inputs": [source.name for source in node.all_input_nodes],
        "outputs": _tensors(node.meta.get("val")),
        "module_path": module_path,
        "module_class": module_class,
        "source": quoted_line(node),
        "debug_handle": node.meta.get("debug_handle"),
    }


def _tensors(value: object) -> list[dict[str, object]]:
    if isinstance(value, (tuple, list)):
        return [entry for part in value for entry in _tensors(part)]
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return []
    shape = [int(size) if isinstance(size, int) else str(size) for size in value.shape]
    return [{"shape": shape, "dtype": str(value.dtype).removeprefix("torch.")}]
