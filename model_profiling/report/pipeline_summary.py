"""The pipeline summary: a run's answer on one page, as JSON and as a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from model_profiling.json_record import record_json
from model_profiling.report.data import PairReport, ReportData
from model_profiling.report.document import Block, Heading, Paragraph, Table, make_list, make_table
from model_profiling.report.run_report import tracer_cost
from model_profiling.run import Latency
from model_profiling.run.metrics import PairParity
from model_profiling.wording import MISSING, milliseconds, percent, plural

Json = dict[str, object]


def summary_facts(data: ReportData) -> Json:
    """The content of the JSON form."""
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
        "rounds": max(part.schedule.rounds_done for part in manifest.parts),
        "stopped_early": any(part.schedule.stopped_early for part in manifest.parts),
        "experiments": [
            {
                key: getattr(result, key)
                for key in ("experiment", "threads", "mode", "sme2", "disable", "state", "problem")
            }
            for result in manifest.results
        ],
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
        "warnings": warnings(data),
    }
    if data.timed:
        content["latencies"] = facts["latencies"]
    return content


def warnings(data: ReportData) -> list[str]:
    """What a person must know before trusting the answer: differing outputs first."""
    mismatches = [
        f"outputs differ beyond rounding, {_parity_text(found)}; understand that before trusting the speed"
        for found in (data.run.metrics.parity if data.run.metrics else ())
        if found.verdict == "mismatch"
    ]
    noticed = data.run.manifest.all_warnings if data.run.manifest else ()
    stability = data.run.metrics.stability if data.run.metrics and data.timed else ()
    return [*mismatches, *noticed, *map(str, stability)]


def summary_document(data: ReportData) -> list[Block]:
    manifest = data.run.manifest
    assert manifest is not None
    blocks: list[Block] = [Heading(data.title, 1)]
    blocks += make_list(_lines(data)) or [Paragraph("Nothing was compared.")]
    if data.timed:
        latencies = [found.latency for found in data.experiments if found.latency]
        blocks += [Heading("End-to-end latency"), _latency_table(latencies)]
    else:
        blocks.append(Paragraph("Times on this target are not latencies; none are shown."))
    early = " (stopped early: precise enough)" if manifest.schedule.stopped_early else ""
    blocks += [
        Heading("Circumstances"),
        *make_list(
            (
                f"CPU: {data.cpu}",
                f"ExecuTorch: {manifest.executorch.version}",
                f"state: {manifest.unfinished or 'finished'}",
                f"rounds: {manifest.schedule.rounds_done}{early}",
            )
        ),
    ]
    if noticed := warnings(data):
        blocks += [Heading("Warnings"), *make_list(noticed)]
    return blocks


def _lines(data: ReportData) -> Iterator[str]:
    """What a person wants to know first: the speedup, the kernels, and whether the outputs agree."""
    for pair in data.pairs:
        yield _comparison_text(pair)
    for experiment in data.experiments:
        if experiment.latency and experiment.latency.end_to_end_ms:
            found, rounds = experiment.latency.end_to_end_ms, plural(experiment.latency.rounds, "round")
            yield (
                f"latency, {experiment.series}: median {found.median:.3f} ms"
                f" (nine in ten between {found.p5:.3f} and {found.p95:.3f}; {rounds})"
            )
    for place in data.evidence:
        for kernels in place.kernels:
            if kernels.uses or kernels.counted:
                yield f"kernels, {kernels.series} ({place.source}): {kernels.sme.text}"
    for parity in data.run.metrics.parity if data.run.metrics else ():
        yield f"outputs, {_parity_text(parity)}"
    for experiment in data.experiments:
        if experiment.problem:
            yield f"failed, {experiment.series}: {experiment.problem}"


def _comparison_text(pair: PairReport) -> str:
    found = pair.speedup
    line = f"{pair.label}: {found.verdict.value}; {found.reason}"
    if found.low is None:
        return line
    medians = f"{milliseconds(found.baseline_median)} ms to {milliseconds(found.candidate_median)} ms"
    return f"{line} ({medians}, {plural(found.rounds, 'round')})"


def _parity_text(found: PairParity) -> str:
    line = f"{found.label}: {found.verdict}"
    if found.reason:
        return f"{line} ({found.reason})"
    worst = max((output.max_abs for output in found.parity.outputs), default=0.0) if found.parity else 0.0
    return line if found.verdict == "identical" else f"{line} (largest difference {worst:.3g})"


def _latency_table(latencies: list[Latency]) -> Table:
    rows = []
    for found in latencies:
        plain = found.end_to_end_ms
        if plain is not None:
            rows.append(
                (
                    found.experiment,
                    str(found.threads),
                    str(found.rounds),
                    milliseconds(plain.median),
                    milliseconds(plain.p90),
                    percent(plain.cv),
                    milliseconds(found.traced_ms.median if found.traced_ms else None),
                    tracer_cost(found),
                )
            )
    headers = (
        "experiment", "threads", "rounds", "median ms", "p90 ms", "CV", "traced median ms", "tracer cost",
    )  # fmt: skip
    return make_table(headers, rows, numbers=range(1, 8))


def ladder_table(data: ReportData) -> Table:
    """The ablation ladder: what is left at each rung, and what the feature on top of it buys."""
    ran: Mapping[object, str] = {
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
