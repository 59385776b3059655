"""`kernels.csv`: one row per kernel, written and read back."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from model_profiling import files
from model_profiling.analysis.kernel_names import classify, classify_operator
from model_profiling.analysis.kernel_work import read_work_cell, work_cell
from model_profiling.analysis.kernels import KernelUse
from model_profiling.csv_cells import csv_text, read_table
from model_profiling.errors import FormatError
from model_profiling.reading import MIB, read_text
from model_profiling.run.evidence import KernelWork

COLUMNS = (
    "model_id", "kernel_name", "category", "count", "dtype", "xnn_op", "variant", "ukernel_shape",
    "arch_chain", "has_sme", "has_sme2", "evidence", "worked_on",
)  # fmt: skip
_NAME = "kernel_name"
_MOST_BYTES = 4 * MIB
"""A row has some hundred, and a model some hundred kernels."""


def write_kernels_csv(path: Path, model_id: str, uses: Iterable[KernelUse]) -> None:
    files.write_text(path, kernels_csv(model_id, uses))


def kernels_csv(model_id: str, uses: Iterable[KernelUse]) -> str:
    """One row per use. An empty `count` means not counted: configured kernels never have one."""
    return csv_text((COLUMNS, *(_row(model_id, use) for use in uses)))


def read_kernels_csv(path: Path, *, follow: bool = False) -> tuple[KernelUse, ...]:
    """Read a kernels.csv back; rows of kits that had no `evidence` column are taken as configured. `follow`
    links where the user named it."""
    columns, rows = read_table(read_text(path, _MOST_BYTES, follow=follow), path, "give a kernels.csv")
    if _NAME not in columns:
        raise FormatError(f"{path} has no column {_NAME}", "give a kernels.csv")
    return tuple(_use(f"{path}, row {number}", row) for number, row in enumerate(rows, start=1))


def kernel_named(
    name: str, evidence: str, calls: int | None, worked_on: tuple[KernelWork, ...] = ()
) -> KernelUse:
    """The use of a kernel or an operator family, by its name."""
    kernel = classify_operator(name) or classify(name)
    if evidence == "configured":
        return KernelUse(kernel, "configured", None)
    return KernelUse(kernel, "executed", calls, worked_on)


def _row(model_id: str, use: KernelUse) -> tuple[str, ...]:
    kernel = use.kernel
    return (
        model_id, kernel.name, kernel.role, "" if use.calls is None else str(use.calls), kernel.dtype,
        kernel.operation, kernel.variant, kernel.shape, kernel.arch_chain, _flag(kernel.has_sme),
        _flag(kernel.has_sme2), use.evidence, work_cell(use.worked_on),
    )  # fmt: skip


def _flag(value: bool | None) -> str:
    return "" if value is None else str(int(value))


def _use(where: str, row: dict[str, str]) -> KernelUse:
    evidence = (row.get("evidence") or "configured").strip()
    count = row.get("count", "").strip()
    if evidence not in ("executed", "configured") or (
        evidence == "executed" and not re.fullmatch("[0-9]{0,19}", count)
    ):
        raise FormatError(
            f"{where}: evidence {evidence[:40]!r} with count {count[:40]!r}",
            "evidence is executed or configured, count a whole number",
        )
    counted = int(count) if count and evidence == "executed" else None
    worked_on = read_work_cell(row.get("worked_on", ""))
    return kernel_named(row[_NAME].strip(), evidence, counted, worked_on)
