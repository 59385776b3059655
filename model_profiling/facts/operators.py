"""The facts of an operator; to add one, add a line to `OPERATOR_FACTS`.

From there it reaches `_exec_ops_stats.csv`, `analysis_summary.json`, Python tables, stores, the page's table
of operators and traces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from model_profiling.core.formatting import size
from model_profiling.facts import Fact

if TYPE_CHECKING:
    from model_profiling.analysis.operators import Operator  # needs numpy; querying a store does not


@dataclass(frozen=True, slots=True)
class OperatorRow:
    operator: Operator
    ms: float
    share: float
    sme2: str = ""


OPERATOR_FACTS: tuple[Fact[OperatorRow], ...] = (
    Fact("name", "text", "its name, as ExecuTorch's Inspector shows it", lambda row: row.operator.name),
    Fact("type", "text", "its name without its number", lambda row: row.operator.type),
    Fact("category", "text", "Convolution, GEMM, Data Movement, Elementwise or Other",
         lambda row: row.operator.category.value),
    Fact("ms", "number", "its time in a typical inference; adds up to its category", lambda row: row.ms),
    Fact("share", "number", "of the time with the tracer on", lambda row: row.share,
         shown=lambda share: f"{100 * share:.1f}%"),
    Fact("sme2", "text", "whether SME2 kernels run it: yes, no and why, or not tested",
         lambda row: row.sme2, label="SME2"),
    Fact("kind", "text", "what it does", lambda row: row.operator.kind),
    Fact("family", "text", "the kernel family in its name", lambda row: row.operator.family, label="variant"),
    Fact("packed", "flag", "whether its kernel packs its operands", lambda row: row.operator.packed),
    Fact("precision", "text", "what it computed in", lambda row: row.operator.precision),
    Fact("runs", "whole", "how many inferences were traced", lambda row: row.operator.times.runs),
    Fact("median_ms", "number", "median", lambda row: row.operator.times.median_ns / 1e6),
    Fact("p10_ms", "number", "10% were faster", lambda row: row.operator.times.p10_ns / 1e6),
    Fact("p90_ms", "number", "10% were slower", lambda row: row.operator.times.p90_ns / 1e6),
    Fact("delegate_backend", "text", "what ran it", lambda row: row.operator.backend, label="backend"),
    Fact("delegated", "flag", "whether a delegate did", lambda row: row.operator.delegated),
    Fact("origin", "text", "model, or lowering where lowering put it in", lambda row: row.operator.origin),
    Fact("dtype", "text", "of its tensors", lambda row: row.operator.source.dtype, label="data type"),
    Fact("input_shapes", "shapes", "1x3x224x224 and so on", lambda row: row.operator.source.input_shapes,
         label="inputs"),
    Fact("output_shape", "shape", "of its result", lambda row: row.operator.source.output_shape,
         label="output"),
    Fact("kernel_size", "shape", "of a convolution", lambda row: row.operator.source.kernel_size or ()),
    Fact("groups", "whole", "of a convolution", lambda row: row.operator.source.groups or None),
    Fact("flops", "whole", "floating-point operations of one inference",
         lambda row: row.operator.source.flops, label="million operations",
         shown=lambda flops: f"{flops / 1e6:.3f}"),
    Fact("bytes_moved", "whole", "bytes read and written", lambda row: row.operator.source.bytes_moved,
         label="data", shown=size),
    Fact("gflops_per_s", "number", "how fast it computed", lambda row: row.operator.gflops,
         label="billion operations/s"),
    Fact("gbytes_per_s", "number", "how fast it moved bytes", lambda row: row.operator.gbytes_per_s,
         label="GB/s"),
    Fact("fused", "text", "what was fused into it", lambda row: " ".join(row.operator.source.fused),
         label="fused with", shown=lambda names: ", ".join(names.split())),
    Fact("graph_node", "text", "its node in the delegate's graph", lambda row: row.operator.source.node_kind),
    Fact("debug_handle", "whole", "ExecuTorch's handle",
         lambda row: None if row.operator.source.debug_handle < 0 else row.operator.source.debug_handle),
    Fact("method", "text", "the program's method", lambda row: row.operator.method),
    Fact("call", "whole", "which call of a delegate it belongs to", lambda row: row.operator.call),
    Fact("position", "whole", "its place in there", lambda row: row.operator.position),
    Fact("module_path", "text", "the module of the model",
         lambda row: row.operator.source.place.module_path, label="module"),
    Fact("module_class", "text", "its class", lambda row: row.operator.source.place.module_class),
    Fact("source", "text", "line of the model that makes it; empty where unknown",
         lambda row: row.operator.source.place.source_line),
    Fact("source_file", "text", "where the model's code says it", lambda row: row.operator.source.place.file),
    Fact("source_line", "whole", "the line", lambda row: row.operator.source.place.line or None),
    Fact("source_code", "text", "the code", lambda row: row.operator.source.place.code),
)  # fmt: skip


def cells(row: OperatorRow, *, timed: bool = True) -> tuple[Any, ...]:
    """Return a cell for each fact; numbers are None unless `timed`."""
    return tuple(None if fact.kind == "number" and not timed else fact.cell(row) for fact in OPERATOR_FACTS)


def json_facts(row: OperatorRow, *, timed: bool = True) -> dict[str, Any]:
    """Return every fact; those derived from times are left out unless `timed`."""
    return {fact.name: fact.of(row) for fact in OPERATOR_FACTS if timed or not fact.timed}
