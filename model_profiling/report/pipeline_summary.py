"""The pipeline summary: a run's answer on one page, as JSON and as a document."""

from __future__ import annotations

from dataclasses import asdict

from model_profiling.core.formatting import MISSING, milliseconds
from model_profiling.core.records import record_json
from model_profiling.report.data import ReportData
from model_profiling.report.document import Block, Heading, Table, make_list, make_table
from model_profiling.report.headroom import outlook_facts
from model_profiling.report.run_report import latency, truncate_for_page
from model_profiling.report.sections import how_measured
from model_profiling.report.verdict import answers

Json = dict[str, object]


def summary_facts(data: ReportData) -> Json:
    manifest, metrics = data.run.manifest, data.run.metrics
    assert manifest is not None and metrics is not None
    facts = record_json(metrics)
    content: Json = {
        "schema_version": 1,
        "model": metrics.model,
        "state": manifest.unfinished or "finished",
        "target": record_json(manifest.target),
        "cpu": data.cpu,
        "executorch": record_json(manifest.executorch),
        "measured": [
            {
                "experiments": list(part.experiments),
                **{
                    key: getattr(part.schedule, key)
                    for key in ("mode", "ended", "budget_s", "measured_s", "precision", "rounds_done")
                },
            }
            for part in manifest.parts
            if part.schedule.rounds_done
        ],
        "rounds": max(part.schedule.rounds_done for part in manifest.parts),
        "stopped_early": any(part.schedule.stopped_early for part in manifest.parts),
        "experiments": [
            {
                key: getattr(result, key)
                for key in ("experiment", "threads", "mode", "sme2", "disable", "state", "problem")
            }
            for result in manifest.results
        ],
        "measured_once": [asdict(found) for part in manifest.parts for found in part.stands_for],
        **answers(data).facts(),
        "comparisons": facts["comparisons"],
        "kernels": [
            {
                **asdict(found.series),
                "answer": found.sme.answer,
                "text": found.sme.text,
                "ran": dict(found.instruction_sets),
            }
            for found in data.evidence[0].kernels
            if found.uses or found.counted
        ],
        "parity": facts["parity"],
        "evidence": record_json(data.run.evidence) if data.run.evidence else None,
        "not_tested": [asdict(found) for found in data.not_tested],
        **outlook_facts(data.outlook),
        "warnings": [line.text for line in data.warnings],
        "warnings_by_kind": [
            {"kind": line.kind, "series": [asdict(series) for series in line.series], "text": line.text}
            for line in data.warnings
        ],
    }
    if data.timed:
        content["latencies"] = facts["latencies"]
    return content


def summary_document(data: ReportData) -> list[Block]:
    manifest = data.run.manifest
    assert manifest is not None
    latencies = data.run.metrics.latencies if data.run.metrics else ()
    measured = [text for part in manifest.parts if (text := how_measured(part, latencies))]
    circumstances = (
        f"CPU: {data.cpu}",
        f"ExecuTorch: {manifest.executorch.version}",
        f"state: {manifest.unfinished or 'finished'}",
        *measured,
    )
    noticed = make_list(line.text for line in data.warnings)
    short, left_out = truncate_for_page(data)
    return [
        Heading(data.title, 1),
        *answers(data).opening(),
        *left_out,
        Heading("Latency"),
        *latency(short),
        Heading("Circumstances"),
        *make_list(circumstances),
        *([Heading("Warnings"), *noticed] if noticed else []),
    ]


def ladder_table(data: ReportData) -> Table:
    """The ablation ladder: the kernels that ran at each rung, and the speedup from its best feature."""
    ran = {
        found.series: ", ".join(f"{count} {isa}" for isa, count in found.instruction_sets.items())
        for found in data.evidence[0].kernels
    }
    gains = {pair.pair.candidate: pair.speedup for pair in data.pairs}
    headers: tuple[str, ...] = ("experiment", "threads", "kernels that ran")
    if data.timed:
        headers += ("median ms", "buys", "verdict")
    rows = []
    for found in data.experiments:
        kernels = (
            f"failed: {found.problem}" if found.problem else ran.get(found.series) or "no KleidiAI kernel"
        )
        row: tuple[str, ...] = (found.series.experiment, str(found.series.threads), kernels)
        if data.timed:
            gain = gains.get(found.series)
            buys = MISSING if gain is None or gain.ratio is None else f"{gain.ratio:.2f}x"
            if gain is not None and gain.low is not None and gain.high is not None:
                buys += f" [{gain.low:.2f}, {gain.high:.2f}]"
            median = found.summary.median if found.summary else None
            row += (milliseconds(median), buys, gain.verdict.value if gain else "")
        rows.append(row)
    return make_table(headers, rows)
