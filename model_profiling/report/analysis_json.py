"""`analysis_summary.json`: the facts found by analysing a run directory, for machines and for the report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from model_profiling.analysis.coverage import Outlook, Projection, Sme2Coverage
from model_profiling.analysis.kernels import operator_kernels
from model_profiling.analysis.matching import NOT_KNOWN, InsideSeries
from model_profiling.analysis.pairing import Pairing
from model_profiling.analysis.run import RunAnalysis
from model_profiling.analysis.series import FRAMEWORK, UNATTRIBUTED, SeriesAnalysis
from model_profiling.config.series import warning_lines
from model_profiling.core.records import record_json
from model_profiling.facts import CATEGORY_CHANGE_FACTS, OPERATOR_CHANGE_FACTS, Change, json_facts, row_json
from model_profiling.program.category import Category
from model_profiling.report.costs import cost_facts
from model_profiling.report.csv_files import CsvFiles, operator_rows
from model_profiling.report.data import PairReport, ReportData
from model_profiling.report.verdict import answers
from model_profiling.runs.records import MatrixOperator


def inside_facts(found: InsideSeries) -> dict[str, object]:
    """Return the facts of one series; shares are shares of time only if `shares_are_of_time` is true."""
    same = ("hz", "executions", "threads", "samples")
    return {
        **asdict(found.series),
        **{name: getattr(found, name) for name in same},
        "outside_operators": found.outside,
        "shares_are_of_time": found.shown,
        "notes": list(found.notes),
        "operators": [
            {
                "name": each.name,
                "call": each.operator.call if each.operator else None,
                "position": each.position,
                "delegate_call": each.call,
                "samples": each.samples,
                "enough": each.enough,
                "parts": {part.value: share for part, share in each.parts.items()},
                "functions": {kernel.name: kernel.samples for kernel in each.kernels},
            }
            for each in found.operators
        ],
    }


def analysis_summary(
    data: ReportData, analysis: RunAnalysis, written: Sequence[CsvFiles]
) -> dict[str, object]:
    """`written` are the CSV files of each series. Paths inside the run directory are relative to it."""
    home = analysis.run.path
    remarks = dict.fromkeys((*data.remarks, *analysis.warnings))
    operators = (operator.name for series in analysis.series for operator in series.operators)
    return {
        "schema_version": 1,
        "run_dir": analysis.run.called,
        "model": analysis.model,
        "etrecord": analysis.etrecord,
        "times": analysis.run.times.value,
        "etdump_count": len(analysis.series),
        "category_totals_ms": {
            category.value: sum(
                series.spent(series.breakdown.categories[category]).ms for series in analysis.series
            )
            for category in Category
        },
        # By kernel family: packed (KleidiAI) or XNNPACK's own. Which kernel ran, only a trace shows.
        "kernel_hints": {use.kernel.name: use.calls or 0 for use in operator_kernels(operators)},
        "per_etdump": [
            _dump(series, paths, home) for series, paths in zip(analysis.series, written, strict=True)
        ],
        "series": [_series(series, data) for series in analysis.series],
        "pairs": [_pair(pair) for pair in data.pairs],
        **answers(data).facts(),
        **cost_facts(data),
        "inside_operators": [inside_facts(found) for found in data.inside],
        "not_tested": [asdict(found) for found in data.not_tested],
        **outlook_facts(data.outlook),
        "findings": [finding.as_dict() for finding in analysis.findings],
        "warnings": [line.text for line in warning_lines(remarks, analysis.run.series)],
        "csv_files": [_inside(path, home) for paths in written for path in paths],
    }


def _dump(series: SeriesAnalysis, paths: CsvFiles, home: Path) -> dict[str, object]:
    """The first dump of a series, with the figures of all its launches."""
    breakdown = series.breakdown
    parts = {name: series.spent(part).ms for name, part in series.parts.items()}
    return {
        "etdump": _inside(series.first.path, home),
        **asdict(series.series),
        "categories_ms": {category.value: parts[category.value] for category in breakdown.categories},
        "framework_overhead_ms": parts[FRAMEWORK],
        "delegate_overhead_ms": series.spent(breakdown.delegate_overhead).ms,
        "unattributed_ms": parts[UNATTRIBUTED],
        "e2e_ms": series.e2e_ms,
        "runs": series.runs,
        "rows": series.first.attribution.event_count,
        "csv_timeline": _inside(paths.timeline, home),
        "csv_stats": _inside(paths.stats, home),
    }


def _series(series: SeriesAnalysis, data: ReportData) -> dict[str, object]:
    """Return all rounds together: means over the typical runs, as in every report; they add up."""
    spent = {name: series.spent(part) for name, part in series.parts.items()}
    return {
        **asdict(series.series),
        "rounds": len(series.rounds),
        "runs": series.runs,
        "typical_runs": len(series.typical),
        "taken_from": series.taken_from,
        "times": series.times.value,
        "operator_times": series.clock,
        "tracing_ms": series.spent(series.breakdown.tracing).ms,
        "untraced_ms": series.untraced_ms,
        "tracer_cost": series.tracer_cost,
        "tracing_distorts": series.distorted,
        "e2e_ms": series.e2e_ms,
        "ms": {name: found.ms for name, found in spent.items()},
        "share": {name: found.share for name, found in spent.items()},
        "operators": [
            json_facts(row, timed=series.times.are_shown)
            for row in operator_rows(series, data.sme2_of(series))
        ],
    }


def _pair(found: PairReport) -> dict[str, object]:
    return {
        **record_json(found.pair),
        "e2e": found.speedup.as_dict(),
        "with_tracer": found.with_tracer,
        **(pairing_facts(found.pairing) if found.pairing else {}),
    }


def pairing_facts(pairing: Pairing) -> dict[str, object]:
    """Return categories and operators of two series side by side; without times if they mean nothing."""
    return {
        "matched_by": pairing.matched_by,
        "categories": [row_json(CATEGORY_CHANGE_FACTS, Change(part, pairing)) for part in pairing.categories],
        "operators": [row_json(OPERATOR_CHANGE_FACTS, Change(pair, pairing)) for pair in pairing.operators],
    }


def _inside(path: Path, home: Path) -> str:
    try:
        return path.relative_to(home).as_posix()
    except ValueError:
        return str(path)


def summary_facts(data: ReportData) -> dict[str, object]:
    manifest, metrics = data.run.manifest, data.run.metrics
    assert manifest is not None and metrics is not None
    facts = record_json(metrics)
    content: dict[str, object] = {
        "schema_version": 1,
        "model": metrics.model,
        "state": manifest.unfinished or "finished",
        "cpu": data.cpu,
        "experiments": [
            {
                key: getattr(result, key)
                for key in ("experiment", "threads", "mode", "sme2", "disable", "state", "problem")
            }
            for result in manifest.results
        ],
        "measured_once": [asdict(merged) for merged in manifest.stands_for],
        **answers(data).facts(),
        **cost_facts(data),
        "comparisons": facts["comparisons"],
        "not_tested": [asdict(found) for found in data.not_tested],
        **outlook_facts(data.outlook),
        "warnings_by_kind": [
            {"kind": line.kind, "series": [asdict(series) for series in line.series], "text": line.text}
            for line in data.warnings
        ],
    }
    if data.timed:
        content["latencies"] = facts["latencies"]
    return content


# What runs on SME2 and what it could bring: the same in every file and command.

Json = dict[str, object]


def outlook_facts(outlook: Outlook) -> Json:
    projections = [_projection(found) for found in outlook.projections]
    headroom: Json | None = None
    if projections:
        headroom = {"kind": "projection", **projections[0], "per_series": projections}
    return {
        "sme2_coverage": _coverage(outlook.coverage),
        "sme2_headroom": headroom,
        "headroom_reason": outlook.reason or None,
    }


def _coverage(found: Sme2Coverage) -> Json:
    tested = found.tested
    return {
        "evidence": found.evidence,
        "reason": found.reason,
        "next": found.next_command or None,
        "instruction_set": found.isa or None,
        "emulated": found.emulated if tested else None,
        "operators": len(found.proven) if tested else None,
        "operators_total": len(found.operators) if tested or found.work else None,
        "flops": found.flops if tested else None,
        "flops_total": found.flops_total if tested or found.work else None,
        "arithmetic_share": found.arithmetic_share,
        "operators_uncounted": found.uncounted if tested or found.work else None,
        "delegates_unseen": list(found.unseen),
        "missing": [_missing_operator(found, each) for each in found.missing],
    }


_OF_OPERATOR = (
    "name", "method", "chain_index", "instruction_id", "kind", "module_path", "source", "flops", "precision",
)  # fmt: skip


def _missing_operator(coverage: Sme2Coverage, operator: MatrixOperator) -> Json:
    return {
        **{key: getattr(operator, key) for key in _OF_OPERATOR},
        "node": operator.node if operator.node >= 0 else None,
        "category": operator.category.value,
        "delegate_backend": operator.backend,
        "share": coverage.share_of(operator),
        "cause": operator.cause or NOT_KNOWN,
        "reason": operator.why_not,
    }


def _projection(found: Projection) -> Json:
    return {
        **asdict(found.series),
        "low": found.low,
        "high": found.high,
        "ceiling": found.ceiling if math.isfinite(found.ceiling) else None,  # JSON has no infinity
        "factors": [asdict(group) for group in found.groups],
        "time_share": found.time_share,
        "bottleneck_before": found.before._asdict(),
        "bottleneck_after": {"low": found.after_low._asdict(), "high": found.after_high._asdict()},
        "latency_ms": found.latency_ms,
        "projected_ms": {
            name: found.ms(speedup)
            for name, speedup in (("low", found.low), ("high", found.high), ("ceiling", found.ceiling))
        },
    }
