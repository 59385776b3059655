"""The pipeline summary: a run's answer on one page, as JSON and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from model_profiling import files
from model_profiling.pipeline.run_directory import Json
from model_profiling.pipeline.session import Measured
from model_profiling.wording import plural


@dataclass(frozen=True, slots=True)
class KernelAnswer:
    """What one series' kernels say about SME2: `answer` is sme2, sme, sme-or-sme2, none or unknown."""

    experiment: str
    threads: int
    answer: str
    text: str
    ran: Mapping[str, int]
    """How many different kernels of each instruction set were called, packing left out."""


def write_summary(measured: Measured, kernels: Sequence[KernelAnswer]) -> Json:
    """Write both forms of the summary and return the JSON one."""
    content = summary(measured, kernels)
    files.write_json(measured.directory.summary("json"), content)
    files.write_text(measured.directory.summary("md"), markdown(content))
    return content


def summary(measured: Measured, kernels: Sequence[KernelAnswer]) -> Json:
    manifest, figures = measured.manifest, measured.metrics
    machine = cast("Json", cast("Json", manifest["machine"])["before"])
    schedule = cast("Json", manifest["schedule"])
    content: Json = {
        "schema_version": 1,
        "model": measured.config.model.name,
        "state": manifest["state"],
        "target": manifest["target"],
        "cpu": machine["cpu"],
        "executorch": manifest["executorch"],
        "rounds": schedule["rounds_done"],
        "stopped_early": schedule["stopped_early"],
        "experiments": [
            {
                key: result[key]
                for key in ("experiment", "threads", "mode", "sme2", "disable", "state", "problem")
            }
            for result in measured.results
        ],
        "comparisons": figures["comparisons"],
        "kernels": [asdict(answer) for answer in kernels],
        "parity": figures["parity"],
        "evidence": manifest.get("evidence"),
        "warnings": [*_mismatches(figures), *cast("list[str]", manifest["warnings"]), *_stability(figures)],
    }
    if measured.timings_are_latency:
        content["latencies"] = figures["latencies"]
    return content


def _mismatches(figures: Json) -> list[str]:
    return [
        f"outputs differ beyond rounding, {parity_line(one)}; understand that before trusting the speed"
        for one in _objects(figures["parity"])
        if one["verdict"] == "mismatch"
    ]


def _stability(figures: Json) -> list[str]:
    return [
        f"{one['experiment']} t{one['threads']}: {one['seen']}; {one['advice']}"
        if one["experiment"]
        else f"{one['seen']}; {one['advice']}"
        for one in _objects(figures.get("stability"))
    ]


def verdict_lines(content: Json) -> list[str]:
    """What a person wants to know first: the speedup, the kernels, and whether the outputs agree."""
    lines = [comparison_line(one) for one in _objects(content["comparisons"])]
    lines += [latency_line(one) for one in _objects(content.get("latencies"))]
    lines += [
        f"kernels, {one['experiment']} t{one['threads']}: {one['text']}"
        for one in _objects(content["kernels"])
    ]
    lines += [f"outputs, {parity_line(one)}" for one in _objects(content["parity"])]
    lines += [
        f"failed, {one['experiment']} t{one['threads']}: {one['problem']}"
        for one in _objects(content["experiments"])
        if one["state"] == "failed"
    ]
    return lines


def ladder_rows(content: Json) -> tuple[list[str], list[list[str]]]:
    """The ablation ladder as a table: what is left at each rung, and what the feature on top of it buys."""
    kernels = {_series(one): one for one in _objects(content["kernels"])}
    latencies = {_series(one): one for one in _objects(content.get("latencies"))}
    gains = {_series(cast("Json", one["candidate"])): one for one in _objects(content["comparisons"])}
    headers = ["EXPERIMENT", "THREADS", "KERNELS THAT RAN"]
    if "latencies" in content:
        headers += ["MEDIAN MS", "BUYS", "VERDICT"]
    rows = []
    for one in _objects(content["experiments"]):
        series = _series(one)
        row = [series[0], str(series[1]), _ran(kernels.get(series), one)]
        if "latencies" in content:
            latency, gain = latencies.get(series), gains.get(series)
            median = cast("Json", latency["end_to_end_ms"])["median"] if latency else None
            row += [
                f"{median:.3f}" if median is not None else "-",
                _ratio(gain),
                str(gain["verdict"]) if gain else "",
            ]
        rows.append(row)
    return headers, rows


def _series(one: Json) -> tuple[str, int]:
    return str(one["experiment"]), cast("int", one["threads"])


def _ran(answer: Json | None, experiment: Json) -> str:
    if experiment["state"] == "failed":
        return f"failed: {experiment['problem']}"
    ran = cast("Mapping[str, int]", answer["ran"]) if answer else {}
    return ", ".join(f"{count} {isa}" for isa, count in ran.items()) or "no KleidiAI kernel"


def _ratio(gain: Json | None) -> str:
    if gain is None or gain["ratio"] is None:
        return ""
    if gain["low"] is None:
        return f"{gain['ratio']:.2f}x"
    return f"{gain['ratio']:.2f}x [{gain['low']:.2f}, {gain['high']:.2f}]"


def comparison_line(comparison: Json) -> str:
    verdict, reason = str(comparison["verdict"]), str(comparison["reason"])
    line = f"{comparison['label']}: {verdict}; {reason}"
    if comparison["low"] is None:
        return line
    medians = cast("float", comparison["baseline_median"]), cast("float", comparison["candidate_median"])
    return f"{line} ({medians[0]:.3f} ms to {medians[1]:.3f} ms, {plural(comparison['rounds'], 'round')})"


def latency_line(latency: Json) -> str:
    found = cast("Json", latency["end_to_end_ms"])
    rounds = plural(latency["rounds"], "round")
    return (
        f"latency, {latency['experiment']} t{latency['threads']}: median {found['median']:.3f} ms"
        f" (nine in ten between {found['p5']:.3f} and {found['p95']:.3f}; {rounds})"
    )


def parity_line(parity: Json) -> str:
    line = f"{parity['label']}: {parity['verdict']}"
    if "reason" in parity:
        return f"{line} ({parity['reason']})"
    outputs = _objects(parity["outputs"])
    worst = max((float(cast("float", one["max_abs"])) for one in outputs), default=0.0)
    return line if parity["verdict"] == "identical" else f"{line} (largest difference {worst:.3g})"


def markdown(content: Json) -> str:
    target = cast("Json", content["target"])
    parts = [
        f"# {Path(str(content['model'])).stem} on {target['platform']}",
        "\n".join(f"- {line}" for line in verdict_lines(content)) or "Nothing was compared.",
    ]
    if "latencies" in content:
        parts += ["## End-to-end latency", _latency_table(_objects(content["latencies"]))]
    else:
        parts.append("Times on this target are not latencies; none are shown.")
    executorch = cast("Json", content["executorch"])
    parts += [
        "## Circumstances",
        f"- CPU: {content['cpu']}\n- ExecuTorch: {executorch['version']}\n- state: {content['state']}\n"
        f"- rounds: {content['rounds']}"
        + (" (stopped early: precise enough)" if content["stopped_early"] else ""),
    ]
    warnings = cast("list[str]", content["warnings"])
    if warnings:
        parts += ["## Warnings", "\n".join(f"- {text}" for text in warnings)]
    return "\n\n".join(parts) + "\n"


def _latency_table(rows: list[Json]) -> str:
    lines = [
        "| experiment | threads | rounds | median ms | p90 ms | CV | traced median ms | tracer cost |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        plain, traced = cast("Json", row["end_to_end_ms"]), cast("Json | None", row["traced_ms"])
        cells = [
            str(row["experiment"]),
            str(row["threads"]),
            str(row["rounds"]),
            f"{plain['median']:.3f}",
            f"{plain['p90']:.3f}",
            f"{plain['cv']:.1%}",
            f"{traced['median']:.3f}" if traced else "-",
            _cost(cast("Json | None", row["tracer_cost"])),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cost(cost: Json | None) -> str:
    if cost is None:
        return "-"
    if cost["low"] is None:
        return f"{cost['share']:+.1%}"
    return f"{cost['share']:+.1%} [{cost['low']:+.1%}, {cost['high']:+.1%}]"


def _objects(value: object) -> list[Json]:
    return cast("list[Json]", value or [])
