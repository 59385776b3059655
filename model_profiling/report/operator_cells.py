"""What the report's tables of operators say about one: its work, its kernel, its place in the model."""

from __future__ import annotations

from collections.abc import Sequence

from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import OperatorPair
from model_profiling.report.document import Code
from model_profiling.wording import MISSING, size


def work_cells(operators: Sequence[Operator]) -> tuple[str, str]:
    known = [operator.source for operator in operators if operator.source.flops is not None]
    if operators and not known:
        return MISSING, MISSING
    flops = sum(source.flops or 0 for source in known)
    return f"{flops / 1e6:.1f}", size(float(sum(source.bytes_moved or 0 for source in known)))


def became(pair: OperatorPair) -> str:
    before, after = pair.families
    if pair.change == "same":
        return after or MISSING
    if pair.change in ("appeared", "vanished"):
        return f"{pair.change} ({after or before})"
    return f"{before} → {after}"


def precision_cell(operator: Operator) -> str:
    return operator.precision or MISSING


def module_cell(operator: Operator) -> str | Code:
    if operator.origin == "lowering":
        return operator.place
    return Code(operator.source.module_path) if operator.source.module_path else MISSING


def line_cell(operator: Operator) -> str:
    place = operator.source.place
    if not place.file:
        return MISSING
    return f"{place.file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{place.line}"
