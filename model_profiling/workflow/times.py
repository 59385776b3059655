"""What the times in a file are worth: whether a dump, or a file made of one, may speak of latency at all.

The manifest around the file says so. Where it is gone, what earlier analyses wrote and the names of emulated
runs still do: losing a file must not turn emulated times into latencies.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from model_profiling.errors import InputError
from model_profiling.workflow.manifest_file import Manifest, ResultEntry, read_manifest_file, run_around

EMULATED = "an emulated run"
TRACED_KERNELS = "a run that traces kernels"
_NO_LATENCY_MODES = ("xnntrace", "trace")
_ENDINGS = (".etdump", "_robust_stats.json", "_timeline.csv", "_all_runs")
_ROUND = re.compile(r"_r\d+$")
_EMULATED_NAME = re.compile(r"(^|_)emulated_")


@dataclass(frozen=True, slots=True)
class Times:
    """Where the times of a file come from."""

    run_dir: Path | None
    result: ResultEntry | None
    no_latency: str
    """The kind of run, where its times are no latencies; else empty."""
    said_by: str
    """What `no_latency` rests on."""


def times_of(path: Path) -> Times:
    """Ask the manifest around `path`, or what else tells."""
    run_dir = run_around(path)
    manifest = read_manifest_file(run_dir) if run_dir else None
    return judged(path, run_dir, manifest)


def judged(path: Path, run_dir: Path | None, manifest: Manifest | None) -> Times:
    """The same, of a run that was read already."""
    result = manifest.result_of(path, run_dir) if manifest and run_dir else None
    if manifest and not manifest.times_are_latencies:
        return Times(run_dir, result, EMULATED, "manifest.json")
    if result is not None:
        kind = TRACED_KERNELS if result.mode in _NO_LATENCY_MODES else ""
        return Times(run_dir, result, kind, "manifest.json" if kind else "")
    kind, said_by = next(_marks(path), ("", ""))
    return Times(run_dir, None, kind, said_by)


def latency_source(path: Path) -> Times:
    """Where the latencies in `path` come from; a file whose times are none is refused."""
    if not path.is_file():
        raise InputError(f"there is no file {path}", "correct the path")
    times = times_of(path)
    if times.no_latency:
        raise InputError(
            f"{path.name} is from {times.no_latency} ({times.said_by} says so): its times are not latencies",
            "name a file of a timing run; `sme2prof report` shows this run's operators and kernels",
        )
    return times


def _marks(path: Path) -> Iterator[tuple[str, str]]:
    """Signs that the times of `path` are no latencies, the surest first: kind of run, what says it."""
    folders = list(path.resolve().parents)[:3]
    stem = _dump_stem(path.name)
    for folder in folders:
        if _object(folder / "metrics.json").get("timings_are_latency") is False:
            yield EMULATED, "metrics.json"
        entries = _object(folder / "analysis_summary.json").get("per_etdump")
        for entry in entries if isinstance(entries, list) else ():
            if _disclaims(entry, stem):
                yield "an emulated or traced run", "analysis_summary.json"
    for folder in folders[:2]:
        written = folder / f"{stem}_exec_e2e.csv"
        if written.is_file() and _row(written).get("timings_are_latency") == "False":
            yield "an emulated or traced run", written.name
    for name in (folder.name for folder in folders):
        if name == "emulated" or name.startswith("emulated_"):
            yield EMULATED, f"the folder's name {name}"
    if _EMULATED_NAME.search(stem):
        yield EMULATED, "its name"


def _dump_stem(name: str) -> str:
    """The name of the first round's dump that a file was made of, without its ending."""
    before, made, _ = name.rpartition("_exec_")
    stem = before if made else name
    for ending in _ENDINGS:
        stem = stem.removesuffix(ending)
    return _ROUND.sub("", stem)


def _disclaims(entry: object, stem: str) -> bool:
    if not isinstance(entry, dict) or entry.get("timings_are_latency") is not False:
        return False
    return Path(str(entry.get("etdump"))).name.removesuffix(".etdump") == stem


def _object(path: Path) -> dict[str, object]:
    """A record of an earlier analysis; one that cannot be read says nothing."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _row(path: Path) -> dict[str, str]:
    with path.open(encoding="utf-8", errors="replace", newline="") as stream:
        return next(csv.DictReader(stream), {})
