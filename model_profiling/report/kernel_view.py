"""Kernel evidence as files: `kernels.csv`, one row per kernel, and `kernel_view.md`, SME2 on beside off."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from model_profiling import files
from model_profiling.analysis.kernel_names import UNKNOWN
from model_profiling.analysis.kernels import (
    Kernel,
    KernelPair,
    KernelUse,
    SmeVerdict,
    classify,
    classify_operator,
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


def find_kernel_files(run_dir: Path) -> tuple[Path, Path]:
    """The kernels.csv of an experiment with SME2 on and of one with it off, on the same number of threads.

    The manifest says which is which; without one the words `on` and `off` in the experiments' names do.
    """
    found: dict[str, dict[int, Path]] = {"on": {}, "off": {}}
    for state, threads, path in _listed_kernels(run_dir) or _named_kernels(run_dir):
        found[state].setdefault(threads, path)
    shared = sorted(found["on"].keys() & found["off"].keys())
    if not shared:
        raise InputError(
            f"{run_dir} has no pair of *_kernels.csv from an experiment with SME2 on and one with it off",
            "run such a pair, or name the files with --sme2-on and --sme2-off",
        )
    return found["on"][shared[0]], found["off"][shared[0]]


def _listed_kernels(run_dir: Path) -> list[tuple[str, int, Path]]:
    """What the manifest lists as kernel evidence: SME2 `on` or `off`, threads, file."""
    path = run_dir / "manifest.json"
    if not path.is_file():
        return []
    try:
        results = json.loads(path.read_text(encoding="utf-8"))["results"]
        listed = [(str(one["sme2"]), int(one["threads"]), one["kernels"]) for one in results]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise FormatError(f"{path} is damaged: {problem!r}", "analyse the run again") from problem
    return [
        (state, threads, run_dir / name) for state, threads, name in listed if name and state in ("on", "off")
    ]


def _named_kernels(run_dir: Path) -> list[tuple[str, int, Path]]:
    listed = []
    for path in sorted(run_dir.glob("*/*_kernels.csv")):
        words = set(re.split(r"[_\-.]", path.parent.name.lower()))
        threads = re.search(r"_t(\d+)_kernels\.csv$", path.name)
        listed += [
            (state, int(threads[1]) if threads else 0, path) for state in ("on", "off") if state in words
        ]
    return listed


def kernel_view(
    on: Sequence[KernelUse],
    off: Sequence[KernelUse],
    *,
    title: str = "Kernel view",
    filter_op: str = "",
    names: tuple[str, str] = ("SME2 on", "SME2 off"),
) -> str:
    """Markdown: what ran with SME2 on and off, then what was only configured, then what nobody could read."""
    pairs = [pair for pair in compare_kernels(on, off) if filter_op.lower() in _searchable(pair.kernel)]
    ran = [pair for pair in pairs if _evidence(pair) == "executed"]
    parts = [f"# {title}", _verdicts(on, off, names)]
    if ran:
        parts += ["## Executed", _table(ran, names)]
    configured = [pair for pair in pairs if _evidence(pair) == "configured"]
    if configured:
        parts += [
            "## Configured only",
            "XNNPACK put these into its tables: candidates, not proof that they ran.",
            _table(configured, names),
        ]
    if not pairs:
        parts.append(f"No kernel matches `{filter_op}`." if filter_op else "No kernels.")
    if unknown := unknown_kernels((*on, *off)):
        listed = "\n".join(f"- `{name}`" for name in dict.fromkeys(unknown))
        parts += ["## Names the kit cannot read", listed]
    return "\n\n".join(parts) + "\n"


def _verdicts(on: Sequence[KernelUse], off: Sequence[KernelUse], names: tuple[str, str]) -> str:
    lines = []
    for name, uses in zip(names, (on, off), strict=True):
        share = matrix_share(uses)
        took = (
            f"; {share.sme} of {share.total} matrix operators took an SME path" if share and share.sme else ""
        )
        lines.append(f"- {name}: {_verdict(uses).text}{took}")
    return "\n".join(lines)


def _verdict(uses: Sequence[KernelUse]) -> SmeVerdict:
    """A file cannot tell an empty trace from no trace, so it proves absence only if something ran in it."""
    traced = any(use.evidence == "executed" and use.kernel.library != "operator" for use in uses)
    return sme_verdict(uses, traced=traced)


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
