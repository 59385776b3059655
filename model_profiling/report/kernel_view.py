"""Kernel evidence as files: `kernels.csv`, one row per kernel; `kernel_view.md`, runs side by side."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling import files
from model_profiling.analysis.kernel_names import UNKNOWN, Kernel, classify, classify_operator
from model_profiling.analysis.kernels import (
    KernelPair,
    KernelUse,
    compare_kernels,
    matrix_share,
    sme_verdict,
    unknown_kernels,
)
from model_profiling.errors import FormatError, InputError

COLUMNS = (
    "model_id",
    "kernel_name",
    "category",
    "count",
    "dtype",
    "xnn_op",
    "variant",
    "ukernel_shape",
    "arch_chain",
    "has_sme",
    "has_sme2",
    "evidence",
)
_REQUIRED = ("kernel_name",)


def write_kernels_csv(path: Path, model_id: str, uses: Iterable[KernelUse]) -> None:
    """Write one row per use. An empty `count` means not counted: configured kernels never have one."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows(_row(model_id, use) for use in uses)
    files.write_text(path, text.getvalue())


def read_kernels_csv(path: Path) -> tuple[KernelUse, ...]:
    """Read a kernels.csv back; rows of kits that had no `evidence` column are taken as configured."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise InputError(f"cannot read {path}: {reason}", "give a kernels.csv") from problem
    rows = csv.DictReader(io.StringIO(text))
    missing = [column for column in _REQUIRED if column not in (rows.fieldnames or ())]
    if missing:
        raise FormatError(f"{path} has no column {missing[0]}", "give a kernels.csv")
    return tuple(_use(path, rows.line_num, row) for row in rows)


@dataclass(frozen=True, slots=True)
class KernelSide:
    """One run's evidence. `traced` says that it listed every KleidiAI call; only then is none a proof."""

    name: str
    uses: tuple[KernelUse, ...]
    traced: bool


@dataclass(frozen=True, slots=True)
class KernelSection:
    """Two runs laid side by side: the one with more of the CPU switched on first."""

    label: str
    on: KernelSide
    off: KernelSide


def kernel_side(name: str, uses: Sequence[KernelUse]) -> KernelSide:
    """A side known by its file alone, which cannot tell an empty trace from none: something must have run."""
    traced = any(use.evidence == "executed" and use.kernel.library != "operator" for use in uses)
    return KernelSide(name, tuple(uses), traced)


def kernel_view(sections: Sequence[KernelSection], *, title: str = "Kernel view", filter_op: str = "") -> str:
    """Markdown: for each pair what ran, then what was only configured, then what nobody could read."""
    parts = [f"# {title}"]
    for section in sections:
        # One pair needs no heading but the title.
        if len(sections) > 1:
            parts.append(f"## {section.label}")
        parts += _section(section, filter_op, heading="###" if len(sections) > 1 else "##")
    return "\n\n".join(parts) + "\n"


def _section(section: KernelSection, filter_op: str, heading: str) -> list[str]:
    on, off = section.on.uses, section.off.uses
    names = (section.on.name, section.off.name)
    pairs = [pair for pair in compare_kernels(on, off) if filter_op.lower() in _searchable(pair.kernel)]
    ran = [pair for pair in pairs if _evidence(pair) == "executed"]
    parts = ["\n".join(_verdict(side) for side in (section.on, section.off))]
    if ran:
        parts += [f"{heading} Executed", _table(ran, names)]
    configured = [pair for pair in pairs if _evidence(pair) == "configured"]
    if configured:
        parts += [
            f"{heading} Configured only",
            "XNNPACK put these into its tables: candidates, not proof that they ran.",
            _table(configured, names),
        ]
    if not pairs:
        parts.append(f"No kernel matches `{filter_op}`." if filter_op else "No kernels.")
    if unknown := unknown_kernels((*on, *off)):
        listed = "\n".join(f"- `{name}`" for name in dict.fromkeys(unknown))
        parts += [f"{heading} Names the kit cannot read", listed]
    return parts


def _verdict(side: KernelSide) -> str:
    share = matrix_share(side.uses)
    took = f"; {share.sme} of {share.total} matrix operators took an SME path" if share and share.sme else ""
    return f"- {side.name}: {sme_verdict(side.uses, traced=side.traced).text}{took}"


def _table(pairs: Iterable[KernelPair], names: tuple[str, str]) -> str:
    lines = [
        f"| kernel | {names[0]} | {names[1]} | instruction set | role | dtype |",
        "|---|---|---|---|---|---|",
    ]
    for pair in pairs:
        kernel = pair.kernel
        # An operator's label that proves nothing about the instruction set says so by a dash.
        isa = "-" if kernel.library == "operator" and kernel.isa == UNKNOWN else kernel.isa
        cells = (f"`{kernel.name}`", _cell(pair.on), _cell(pair.off), isa, kernel.role, kernel.dtype)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _cell(use: KernelUse | None) -> str:
    if use is None:
        return "-"
    if use.evidence == "configured":
        return "configured"
    return "ran" if use.calls is None else f"{use.calls} call{'' if use.calls == 1 else 's'}"


def _evidence(pair: KernelPair) -> str:
    found = {use.evidence for use in (pair.on, pair.off) if use is not None}
    return "executed" if "executed" in found else "configured"


def _searchable(kernel: Kernel) -> str:
    return f"{kernel.name} {kernel.role} {kernel.operation}".lower()


def _row(model_id: str, use: KernelUse) -> tuple[str, ...]:
    kernel = use.kernel
    return (
        model_id,
        kernel.name,
        kernel.role,
        "" if use.calls is None else str(use.calls),
        kernel.dtype,
        kernel.operation,
        kernel.variant,
        kernel.shape,
        kernel.arch_chain,
        _flag(kernel.has_sme),
        _flag(kernel.has_sme2),
        use.evidence,
    )


def _flag(value: bool | None) -> str:
    return "" if value is None else str(int(value))


def _use(path: Path, line: int, row: dict[str, str | None]) -> KernelUse:
    name = (row["kernel_name"] or "").strip()
    evidence = (row.get("evidence") or "configured").strip()
    count = (row.get("count") or "").strip()
    kernel = classify_operator(name) or classify(name)
    if evidence == "configured":
        return KernelUse(kernel, "configured", None)
    if evidence != "executed" or not (count == "" or count.isdecimal()):
        raise FormatError(
            f"{path}, line {line}: evidence {evidence!r} with count {count!r}",
            "evidence is executed or configured, count a whole number",
        )
    return KernelUse(kernel, "executed", int(count) if count else None)
