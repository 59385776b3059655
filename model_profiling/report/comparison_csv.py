"""Two dumps side by side as CSV: by category and by operator."""

from __future__ import annotations

from pathlib import Path

from model_profiling.analysis.pairing import CategoryPair, OperatorPair, Pairing
from model_profiling.report.csv_files import write_rows


def write_comparison(pairing: Pairing, folder: Path, stem: str, names: tuple[str, str]) -> list[Path]:
    """Write `<stem>_comparison.csv` and `<stem>_operator_comparison.csv`; `names` head the columns."""
    first, second = names
    categories = folder / f"{stem}_comparison.csv"
    operators = folder / f"{stem}_operator_comparison.csv"
    head = (f"{first}_ms", f"{second}_ms", "speedup")
    write_rows(
        categories,
        ("category", *head, f"{first}_pct", f"{second}_pct"),
        [*map(_category, pairing.categories), _end_to_end(pairing)],
    )
    write_rows(
        operators,
        ("call", "position", "category", "kind", "change", f"{first}_operator", f"{second}_operator",
         f"{first}_kernel", f"{second}_kernel", *head, "delta_ms", "place"),
        map(_operator, pairing.operators),
    )  # fmt: skip
    return [categories, operators]


def _category(pair: CategoryPair) -> tuple[object, ...]:
    shares = (f"{100 * pair.baseline_share:.4f}", f"{100 * pair.candidate_share:.4f}")
    return pair.name, f"{pair.baseline_ms:.6f}", f"{pair.candidate_ms:.6f}", _ratio(pair.ratio), *shares


def _end_to_end(pairing: Pairing) -> tuple[object, ...]:
    before, after = pairing.baseline.e2e_ms, pairing.candidate.e2e_ms
    return "End-to-end", f"{before:.6f}", f"{after:.6f}", _ratio(pairing.traced_ratio), "100.0000", "100.0000"


def _operator(pair: OperatorPair) -> tuple[object, ...]:
    operator = pair.main
    return (
        operator.call, operator.position, pair.category.value, operator.kind, pair.change,
        " + ".join(side.name for side in pair.baseline), " + ".join(side.name for side in pair.candidate),
        *pair.families, f"{pair.baseline_ms:.6f}", f"{pair.candidate_ms:.6f}", _ratio(pair.ratio),
        f"{pair.delta_ms:.6f}", operator.place,
    )  # fmt: skip


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.4f}"
