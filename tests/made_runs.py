"""Made-up runs for stores: a recorded run's own files with another start, other times, and as many operators
as asked for. No dump is in them; what an analysis wrote is.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from recorded_runs import X86_64

from model_profiling.config import names

Json = dict[str, Any]
BEGINNING = datetime(2026, 1, 1, tzinfo=timezone.utc)
_SPREAD = ("mean", "minimum", "maximum", "p5", "p10", "p90", "p95", "p99", "mad", "std")
_FIGURES = ("median", *_SPREAD)


@dataclass(frozen=True, slots=True)
class MadeRun:
    """One run to make: which it is (`number` seconds after the beginning, or `started`), how slow it is
    against the recorded one, of which model, with how many operators, and how many rounds of it are done."""

    number: int
    slower: float = 1.0
    model: str = "small_cnn"
    cpu: str = "made x86_64 CPU"
    operators: int | None = None
    rounds: int = 6
    state: str = "finished"
    started: datetime | None = None


def recorded(home: Path = X86_64) -> Json:
    """The files that runs are made of, read once for many."""
    return {
        name: json.loads((home / name).read_text())
        for name in (names.MANIFEST, names.METRICS, names.ANALYSIS)
    } | {names.JOURNAL: [json.loads(line) for line in (home / names.JOURNAL).read_text().splitlines()]}


def make_run(run_dir: Path, made: MadeRun, source: Json | None = None) -> Path:
    """Write the run into `run_dir`, which is returned."""
    told = source or recorded()
    run_dir.mkdir(parents=True)
    moment = made.started or BEGINNING + timedelta(seconds=made.number)
    started = moment.strftime("%Y-%m-%dT%H:%M:%S%z")
    contents = {
        names.MANIFEST: _manifest(told[names.MANIFEST], made, started),
        names.METRICS: _metrics(told[names.METRICS], made),
        names.ANALYSIS: _analysis(told[names.ANALYSIS], made),
    }
    for name, content in contents.items():
        (run_dir / name).write_text(json.dumps(content))
    entries = [_entry(entry, made, started) for entry in told[names.JOURNAL] if entry["round"] < made.rounds]
    (run_dir / names.JOURNAL).write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return run_dir


def _manifest(told: Json, made: MadeRun, started: str) -> Json:
    content = copy.deepcopy(told)
    content["model"] = f"/home/user/{made.model}_xnnpack_fp16.pte"
    content["state"] = made.state
    content["sessions"][0]["started"] = started
    content["machine"]["before"]["cpu"] = content["machine"]["after"]["cpu"] = made.cpu
    content["schedule"]["seed"] = made.number
    return content


def _metrics(told: Json, made: MadeRun) -> Json:
    content = copy.deepcopy(told)
    for latency in content["latencies"]:
        latency["rounds"] = made.rounds
        for part in ("end_to_end_ms", "traced_ms"):
            latency[part] = {
                name: value * made.slower if name in _FIGURES else value
                for name, value in latency[part].items()
            }
    return content


def _analysis(told: Json, made: MadeRun) -> Json:
    content = {**told, "run_dir": f"/home/user/{made.number}"}
    content["series"] = [_series(series, made) for series in told["series"]]
    return content


def _series(told: Json, made: MadeRun) -> Json:
    own = told["operators"]
    count = len(own) if made.operators is None else made.operators
    operators = []
    for position in range(count):
        operator = dict(own[position % len(own)])
        operator["name"] = f"{operator['name'].partition(' #')[0]} #{position + 1}"
        operator["position"] = position
        for figure in ("ms", "median_ms", "p10_ms", "p90_ms"):
            operator[figure] *= made.slower
        operators.append(operator)
    ms = {name: value * made.slower for name, value in told["ms"].items()}
    return {**told, "operators": operators, "ms": ms}


def _entry(told: Json, made: MadeRun, started: str) -> Json:
    entry = {**told, "started": started}
    entry["iterations_ns"] = [round(ns * made.slower) for ns in told["iterations_ns"]]
    for name in ("turns_ns", "turns_cpu_ns"):
        entry[name] = [[round(ns * made.slower) for ns in turn] for turn in told[name]]
    if told["launch"]:
        entry["launch"] = f"{made.number:08x}{told['launch'][:8]}"
    return entry
