"""The JSON files of a run directory as typed records: metrics.json, _robust_stats.json and the manifest.

Only what reports, comparisons and checks need is read; what a file does not say is empty. A file that is
damaged is an error that names the file and the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from model_profiling.statistics.latency import LatencySummary
from model_profiling.statistics.parity import OutputParity, Parity
from model_profiling.statistics.speedup import Speedup
from model_profiling.errors import FormatError
from model_profiling.workflow import typed_json
from model_profiling.workflow.manifest_file import FactsEntry, Manifest, ResultEntry, read_manifest_file

__all__ = [
    "ComparisonEntry",
    "FactsEntry",
    "LatencyEntry",
    "Manifest",
    "Metrics",
    "ParityEntry",
    "ResultEntry",
    "RobustStats",
    "SeriesEntry",
    "StabilityEntry",
    "read_json_object",
    "read_manifest_file",
    "read_metrics_file",
    "read_record",
]

Record = TypeVar("Record", bound="_Record")
_CURE = "run the pipeline again, or `sme2prof run --analysis-only`"


class _Record(BaseModel):
    """A part of a file; further keys are allowed, so that newer files stay readable."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class SeriesEntry(_Record):
    experiment: str
    threads: int | None = None


class CostEntry(_Record):
    share: float
    low: float | None = None
    high: float | None = None


class LatencyEntry(SeriesEntry):
    rounds: int = 0
    end_to_end_ms: LatencySummary | None = None
    traced_ms: LatencySummary | None = None
    tracer_cost: CostEntry | None = None
    load_ms: float | None = None
    first_inference_ms: float | None = None
    peak_memory_bytes: int | None = None


class RobustStats(LatencyEntry):
    """Every latency by round; an empty round failed."""

    schema_version: Literal[1]
    model: str = ""
    end_to_end_rounds_ms: tuple[tuple[float, ...], ...]
    traced_rounds_ms: tuple[tuple[float, ...], ...] = ()


class ComparisonEntry(_Record):
    label: str = ""
    baseline: SeriesEntry
    candidate: SeriesEntry
    speedup: Speedup


class ParityEntry(_Record):
    label: str = ""
    baseline: SeriesEntry
    candidate: SeriesEntry
    verdict: str = "unknown"
    reason: str = ""
    outputs: tuple[OutputParity, ...] = ()

    @property
    def parity(self) -> Parity | None:
        """The comparison as it was made; None where there was nothing to compare."""
        if self.verdict not in ("identical", "within tolerance", "mismatch"):
            return None
        return Parity(self.outputs, self.verdict)  # type: ignore[arg-type]  # one of the three, checked above


class StabilityEntry(_Record):
    """A reason to trust a measurement less; about one series, or about the machine."""

    experiment: str | None = None
    threads: int | None = None
    seen: str
    advice: str = ""

    def __str__(self) -> str:
        threads = f", {self.threads} thread{'' if self.threads == 1 else 's'}" if self.threads else ""
        about = f"{self.experiment}{threads}: " if self.experiment else ""
        return f"{about}{self.seen}; {self.advice}" if self.advice else f"{about}{self.seen}"


class Metrics(_Record):
    schema_version: Literal[1]
    model: str = ""
    timings_are_latency: bool = True
    latencies: tuple[LatencyEntry, ...] = ()
    comparisons: tuple[ComparisonEntry, ...] = ()
    parity: tuple[ParityEntry, ...] = ()
    stability: tuple[StabilityEntry, ...] = ()


def read_metrics_file(path: Path) -> Metrics | None:
    """metrics.json, or None where there is none."""
    if not path.is_file():
        return None
    content = read_json_object(path)
    comparisons = content.get("comparisons")
    if isinstance(comparisons, list):
        # In the file a comparison's figures stand beside its names.
        content = {**content, "comparisons": [_with_speedup(path, one) for one in comparisons]}
    return _parsed(Metrics, path, content)


def read_record(kind: type[Record], path: Path) -> Record:
    return _parsed(kind, path, read_json_object(path))


def read_json_object(path: Path) -> dict[str, object]:
    return typed_json.read_json_object(path, _CURE)


def _with_speedup(path: Path, entry: object) -> object:
    if not isinstance(entry, Mapping) or "speedup" in entry:
        return entry
    try:
        return {**entry, "speedup": TypeAdapter(Speedup).validate_python(dict(entry))}
    except ValidationError as problem:
        raise _damaged(path, problem, "comparisons") from problem


def _parsed(kind: type[Record], path: Path, content: Mapping[str, object]) -> Record:
    try:
        return kind.model_validate(content)
    except ValidationError as problem:
        raise _damaged(path, problem) from problem


def _damaged(path: Path, problem: ValidationError, under: str = "") -> FormatError:
    first = problem.errors()[0]
    place = ".".join(str(part) for part in (under, *first["loc"]) if part != "")
    return FormatError(f"{path}: {place}: {first['msg'].lower()}", _CURE)
