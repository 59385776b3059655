"""The facts of an operator; to add one, add a line to `OPERATOR_FACTS`.

From there it reaches `_exec_ops_stats.csv`, `analysis_summary.json`, Python tables, stores,
assistants' answers, the report's explorer, Perfetto traces and the tables in documents.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from model_profiling.core.formatting import size
from model_profiling.facts import Fact, Reader, choose_facts

if TYPE_CHECKING:
    from model_profiling.analysis.operators import Operator  # needs numpy; querying a store does not

FILES: tuple[Reader, ...] = "csv", "json"


@dataclass(frozen=True, slots=True)
class OperatorRow:
    operator: Operator
    ms: float
    share: float
    sme2: str = ""


OPERATOR_FACTS: tuple[Fact[OperatorRow], ...] = (
    Fact("method", "text", "the program's method", lambda row: row.operator.method, FILES),
    Fact("call", "whole", "which call of a delegate it belongs to", lambda row: row.operator.call, FILES),
    Fact("position", "whole", "its place in there", lambda row: row.operator.position, FILES),
    Fact("name", "text", "its name, as ExecuTorch's Inspector shows it",
         lambda row: row.operator.name, ("csv", "json", "assistant")),
    Fact("type", "text", "its name without its number", lambda row: row.operator.type, ("csv", "trace")),
    Fact("category", "text", "Convolution, GEMM, Data Movement, Elementwise or Other",
         lambda row: row.operator.category.value, ("csv", "json", "assistant", "trace")),
    Fact("kind", "text", "what it does", lambda row: row.operator.kind,
         ("csv", "json", "assistant", "trace")),
    Fact("family", "text", "the kernel family in its name", lambda row: row.operator.family,
         ("csv", "json", "trace")),
    Fact("packed", "flag", "whether its kernel packs its operands", lambda row: row.operator.packed,
         ("csv",)),
    Fact("delegate_backend", "text", "what ran it", lambda row: row.operator.backend, label="backend"),
    Fact("delegated", "flag", "whether a delegate did", lambda row: row.operator.delegated, ("csv",)),
    Fact("origin", "text", "model, or lowering where lowering put it in",
         lambda row: row.operator.origin, ("csv", "json", "assistant", "trace")),
    Fact("runs", "whole", "how many inferences were traced", lambda row: row.operator.times.runs, FILES),
    Fact("median_ms", "number", "median", lambda row: row.operator.times.median_ns / 1e6, FILES),
    Fact("p10_ms", "number", "10% were faster", lambda row: row.operator.times.p10_ns / 1e6, FILES),
    Fact("p90_ms", "number", "10% were slower", lambda row: row.operator.times.p90_ns / 1e6, FILES),
    Fact("dtype", "text", "of its tensors", lambda row: row.operator.source.dtype,
         ("csv", "json", "page", "trace"), "data type"),
    Fact("input_shapes", "shapes", "1x3x224x224 and so on",
         lambda row: row.operator.source.input_shapes, label="inputs"),
    Fact("output_shape", "shape", "of its result", lambda row: row.operator.source.output_shape,
         label="output"),
    Fact("kernel_size", "shape", "of a convolution",
         lambda row: row.operator.source.kernel_size or (), ("csv",)),
    Fact("groups", "whole", "of a convolution", lambda row: row.operator.source.groups or None, ("csv",)),
    Fact("flops", "whole", "floating-point operations of one inference",
         lambda row: row.operator.source.flops, label="million operations",
         shown=lambda flops: f"{flops / 1e6:.3f}"),
    Fact("bytes_moved", "whole", "bytes read and written", lambda row: row.operator.source.bytes_moved,
         ("csv", "json", "page", "trace"), "data", size),
    Fact("gflops_per_s", "number", "how fast it computed", lambda row: row.operator.gflops,
         ("csv", "json", "assistant", "page"), "billion operations/s"),
    Fact("gbytes_per_s", "number", "how fast it moved bytes", lambda row: row.operator.gbytes_per_s,
         ("csv", "json", "assistant", "page"), "GB/s"),
    Fact("graph_node", "text", "its node in the delegate's graph",
         lambda row: row.operator.source.node_kind, ("csv", "trace")),
    Fact("fused", "text", "what was fused into it", lambda row: " ".join(row.operator.source.fused),
         ("csv", "page", "trace"), "fused with", lambda names: ", ".join(names.split())),
    Fact("debug_handle", "whole", "ExecuTorch's handle",
         lambda row: None if row.operator.source.debug_handle < 0 else row.operator.source.debug_handle,
         ("csv",)),
    Fact("module_path", "text", "the module of the model",
         lambda row: row.operator.source.place.module_path, ("csv", "json", "assistant", "trace")),
    Fact("module_class", "text", "its class", lambda row: row.operator.source.place.module_class,
         ("csv", "page", "trace"), "module class"),
    Fact("source_file", "text", "where the model's code says it",
         lambda row: row.operator.source.place.file, ("csv",)),
    Fact("source_line", "whole", "the line", lambda row: row.operator.source.place.line or None, ("csv",)),
    Fact("source_code", "text", "the code", lambda row: row.operator.source.place.code, ("csv", "trace")),
    Fact("precision", "text", "what it computed in", lambda row: row.operator.precision,
         label="precision"),
    Fact("source", "text", "line of the model that makes it; empty where unknown",
         lambda row: row.operator.source.place.source_line, ("json", "assistant", "trace")),
    Fact("ms", "number", "its time in a typical inference; adds up to its category",
         lambda row: row.ms, ("csv", "json", "assistant")),
    Fact("share", "number", "of end-to-end time, with the tracer on", lambda row: row.share,
         ("csv", "json", "assistant")),
    Fact("sme2", "text", "whether SME2 kernels run it: yes, no and why, or not tested",
         lambda row: row.sme2, ("csv", "json", "assistant", "page"), "SME2"),
)  # fmt: skip


@functools.cache
def facts_for(reader: Reader) -> tuple[Fact[OperatorRow], ...]:
    return choose_facts(OPERATOR_FACTS, reader)


def cells(row: OperatorRow, *, timed: bool = True) -> tuple[Any, ...]:
    """Return a cell for each `csv` fact; numbers are None unless `timed`."""
    return tuple(None if fact.kind == "number" and not timed else fact.cell(row) for fact in facts_for("csv"))


def json_facts(row: OperatorRow, *, timed: bool = True) -> dict[str, Any]:
    """Return the `json` facts; those derived from times are left out unless `timed`."""
    return {fact.name: fact.of(row) for fact in facts_for("json") if timed or not fact.timed}
