"""The output of the tools under `tools/`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.analysis.evidence import SeriesEvidence
from model_profiling.analysis.findings import where
from model_profiling.analysis.kernel_names import UNKNOWN
from model_profiling.analysis.kernels import (
    KernelPair,
    KernelUse,
    compare_kernels,
    matrix_share,
    sme_verdict,
    unknown_kernels,
)
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import CategoryPair, OperatorPair, Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config.series import Series
from model_profiling.core.formatting import MISSING, percent, plural
from model_profiling.facts import OPERATOR_FACTS, row_cells
from model_profiling.program.category import Category
from model_profiling.report.breakdown import break_down, series_table
from model_profiling.report.csv_files import operator_rows, write_rows
from model_profiling.report.document import Block, Code, Heading, Paragraph, make_list, make_table

# The CSV files of `analyze_etdump_csv.py`.
# Scripts written for the earlier kit read them, so its columns come first with the same names and meaning:
# one row per category or operator, no totals. Where this kit differs, the column has another name.

CATEGORY_COLUMNS = ("category", "total_ms", "avg_ms", "pct_of_e2e", "operator_count")
OPERATOR_COLUMNS = ("operator", "category", "total_ms", "avg_ms", "pct_of_e2e", "event_count")
LATENCY_COLUMNS = ("model_name", "num_runs", "total_ms", "avg_ms", "min_ms", "max_ms")
_MOST_OTHERS = 2


def write_bottlenecks(series: SeriesAnalysis, folder: Path, stem: str) -> list[Path]:
    """Write categories, operators, the longest operators of category Other, and end-to-end times, all of one
    dump and over all its runs."""
    longest = sorted(operator_rows(series), key=lambda row: -row.ms)
    rows = [_operator(series, row.operator) for row in longest]
    more = [fact for fact in OPERATOR_FACTS if fact.name not in OPERATOR_COLUMNS]
    others = [
        line for line, row in zip(rows, longest, strict=True) if row.operator.category is Category.OTHER
    ][:_MOST_OTHERS]  # fmt: skip
    latency = series.latency
    e2e = (latency.mean * latency.count, latency.mean, latency.minimum, latency.maximum)
    tables: dict[str, tuple[Sequence[str], Sequence[Sequence[object]]]] = {
        "category_summary": (CATEGORY_COLUMNS, _categories(series)),
        "operator_details": (
            (*OPERATOR_COLUMNS, *(fact.name for fact in more)),
            [(*line, *row_cells(more, row)) for line, row in zip(rows, longest, strict=True)],
        ),
        "e2e_latency": (LATENCY_COLUMNS, [(stem, latency.count, *(f"{ms:.6g}" for ms in e2e))]),
        **({"other_top_ops": (OPERATOR_COLUMNS, others)} if others else {}),
    }
    written = []
    for name, (header, content) in tables.items():
        path = folder / f"{stem}_{name}.csv"
        write_rows(path, header, content)
        written.append(path)
    return written


def write_comparison(pairing: Pairing, folder: Path, stem: str, names: tuple[str, str]) -> list[Path]:
    """Write both sides by category, end to end and by operator; `names` are used in column names.
    By category, `speedup` is the earlier kit's: how many times faster the first side is. This kit's is
    `speedup_of_<second>`: how many times faster the second side is."""
    first, second = names
    sides, ours = (f"{first}_ms", f"{second}_ms"), f"speedup_of_{second}"
    every = (*pairing.baseline.operators, *pairing.candidate.operators)
    present = {operator.category.value for operator in every}
    shown = [pair for pair in pairing.categories if pair.name in present]
    of_all = pairing.baseline.e2e_ms, pairing.candidate.e2e_ms
    paths = [folder / f"{stem}_{name}comparison.csv" for name in ("", "e2e_", "operator_")]
    categories, end_to_end, operators = paths
    write_rows(
        categories,
        ("category", *sides, "speedup", f"{first}_pct", f"{second}_pct", ours),
        map(_category_pair, shown),
    )
    write_rows(end_to_end, (*sides, ours), [(*map(_ms, of_all), _ratio(pairing.traced_ratio))])
    write_rows(
        operators,
        ("call", "position", "category", "kind", "change", f"{first}_operator", f"{second}_operator",
         f"{first}_kernel", f"{second}_kernel", *sides, ours, "delta_ms", "place"),
        map(_operator_pair, pairing.operators),
    )  # fmt: skip
    return paths


def _categories(series: SeriesAnalysis) -> list[tuple[object, ...]]:
    categories = series.breakdown.categories
    rows: list[tuple[object, ...]] = []
    for category, part in sorted(categories.items(), key=lambda item: -int(item[1].sum())):
        count = sum(operator.category is category for operator in series.operators)
        if count:
            rows.append((category.value, *_over_all_runs(series, series.by_round(part)), count))
    return rows


def _operator(series: SeriesAnalysis, operator: Operator) -> tuple[object, ...]:
    total = _over_all_runs(series, series.by_round([operator]))
    return operator.name, operator.category.value, *total, operator.times.runs


def _over_all_runs(series: SeriesAnalysis, rounds: Sequence[Sequence[float]]) -> tuple[str, str, str]:
    """Total, mean, and percent of end-to-end time."""
    total, whole = sum(map(sum, rounds)), sum(map(sum, series.by_round(series.breakdown.e2e)))
    return _ms(total), _ms(total / series.runs), f"{100 * total / (whole or 1.0):.6g}"


def _category_pair(pair: CategoryPair) -> tuple[object, ...]:
    shares = (f"{100 * pair.baseline_share:.4f}", f"{100 * pair.candidate_share:.4f}")
    theirs = _ratio(1 / pair.ratio if pair.ratio else None)
    return pair.name, _ms(pair.baseline_ms), _ms(pair.candidate_ms), theirs, *shares, _ratio(pair.ratio)


def _operator_pair(pair: OperatorPair) -> tuple[object, ...]:
    operator = pair.main
    return (
        operator.call, operator.position, pair.category.value, operator.kind, pair.change,
        " + ".join(side.name for side in pair.baseline), " + ".join(side.name for side in pair.candidate),
        *pair.families, _ms(pair.baseline_ms), _ms(pair.candidate_ms), _ratio(pair.ratio),
        _ms(pair.delta_ms), operator.place,
    )  # fmt: skip


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.6f}"


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.4f}"


# One series in short, for a terminal.


def series_blocks(series: SeriesAnalysis, most: int = 5) -> Iterator[Block]:
    yield Heading(f"{series.name}: {plural(series.runs, 'run')} with the tracer on")
    longest = sorted(series.operators, key=lambda operator: -operator.typical_ms)[:most]
    if series.times.are_shown:
        yield Paragraph(f"times are the {series.taken_from}")
        yield series_table(series)
        shown = break_down(series)
        rows = [
            (operator.name, *shown.of([operator]).cells, where(operator) or operator.place)
            for operator in longest
        ]
        yield make_table(("operator", "ms", "share", "where"), rows, numbers=(1, 2))
    else:
        yield Paragraph(f"from {series.times.origin}: its times are not valid latencies and are not shown")
        counts = [
            (category.value, str(sum(operator.category is category for operator in series.operators)))
            for category in series.breakdown.categories
        ]
        yield make_table(("category", "operators"), counts, numbers=(1,))
    portable = [operator for operator in series.operators if not operator.delegated]
    if portable and series.times.are_shown:
        share = percent(series.spent_by(portable).share)
        yield Paragraph(f"portable: {len(portable)} of {plural(len(series.operators), 'operator')}, {share}")
    if names := sorted({operator.type for operator in series.operators if not operator.known}):
        yield Paragraph(f"unknown operators, counted as Other: {', '.join(names)}")


# The kernel view: which kernels ran in two runs side by side, and which were only configured.


@dataclass(frozen=True, slots=True)
class KernelSection:
    """Two runs side by side; `on` has more CPU features switched on."""

    label: str
    on: SeriesEvidence
    off: SeriesEvidence


def evidence_of_file(series: Series, uses: Sequence[KernelUse]) -> SeriesEvidence:
    """Return the evidence of one file. An empty one may mean no trace, so only executed kernels prove one."""
    traced = any(use.evidence == "executed" and use.kernel.library != "operator" for use in uses)
    return SeriesEvidence(series, None, tuple(uses), sme_verdict(uses, traced=traced), traced)


def kernel_document(
    sections: Sequence[KernelSection], *, title: str = "Kernel view", filter_op: str = ""
) -> list[Block]:
    blocks: list[Block] = [Heading(title, 1)]
    several = len(sections) > 1
    for section in sections:
        blocks += [Heading(section.label)] if several else []
        blocks += _section(section, filter_op, level=3 if several else 2)
    return blocks


def _section(section: KernelSection, filter_op: str, level: int) -> list[Block]:
    on, off = section.on.uses, section.off.uses
    names = (str(section.on.series), str(section.off.series))
    pairs = [
        pair
        for pair in compare_kernels(on, off)
        if filter_op.lower() in f"{pair.kernel.name} {pair.kernel.role} {pair.kernel.operation}".lower()
    ]
    ran = [pair for pair in pairs if _evidence(pair) == "executed"]
    blocks = make_list(_verdict(side) for side in (section.on, section.off))
    if ran:
        blocks += [Heading("Executed", level), _table(ran, names)]
    configured = [pair for pair in pairs if _evidence(pair) == "configured"]
    if configured:
        blocks += [
            Heading("Configured only", level),
            Paragraph("XNNPACK put these into its tables: candidates, not proof that they ran."),
            _table(configured, names),
        ]
    if not pairs:
        blocks.append(Paragraph(("No kernel matches ", Code(filter_op), ".") if filter_op else "No kernels."))
    if unknown := unknown_kernels((*on, *off)):
        blocks += [Heading("Names the kit cannot read", level), *make_list(map(Code, dict.fromkeys(unknown)))]
    return blocks


def _verdict(side: SeriesEvidence) -> str:
    sme, total = matrix_share(side.uses)
    took = f"; {sme} of {total} operators that run as matrix products took an SME path" if sme else ""
    return f"{side.series}: {side.sme.text}{took}"


def _table(pairs: Iterable[KernelPair], names: tuple[str, str]) -> Block:
    rows = []
    for pair in pairs:
        kernel = pair.kernel
        # A dash: this operator's label proves nothing about the instruction set.
        isa = MISSING if kernel.library == "operator" and kernel.isa == UNKNOWN else kernel.isa
        rows.append((Code(kernel.name), _cell(pair.on), _cell(pair.off), isa, kernel.role, kernel.dtype))
    return make_table(("kernel", *names, "instruction set", "role", "dtype"), rows)


def _cell(use: KernelUse | None) -> str:
    if use is None:
        return MISSING
    if use.evidence == "configured":
        return "configured"
    return "ran" if use.calls is None else plural(use.calls, "call")


def _evidence(pair: KernelPair) -> str:
    found = {use.evidence for use in (pair.on, pair.off) if use is not None}
    return "executed" if "executed" in found else "configured"
