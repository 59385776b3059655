"""The JSON files of a run directory as typed records: manifest.json, metrics.json, _robust_stats.json.

Only what reports, comparisons and checks need is read; what a file does not say is empty. A file that is
damaged is an error that names the file and the field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from model_profiling.analysis.latency import LatencySummary
from model_profiling.analysis.parity import OutputParity, Parity
from model_profiling.analysis.speedup import Speedup
from model_profiling.errors import FormatError, InputError

Record = TypeVar("Record", bound="_Record")
_CURE = "run the pipeline again, or `sme2prof run --analysis-only`"


def _switch(value: object) -> object:
    return {"on": True, "off": False}.get(value, value) if isinstance(value, str) else value


class _Record(BaseModel):
    """A part of a file; further keys are allowed, so that newer files stay readable."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class TargetEntry(_Record):
    name: str = ""
    platform: str = ""
    timings_are_latency: bool = True


class OutputEntry(_Record):
    file: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    dim_order: tuple[int, ...] = ()


class ResultEntry(_Record):
    """One experiment at one number of threads; paths are relative to the run directory."""

    experiment: str = ""
    threads: int | None = None
    mode: str = "timing"
    sme2: Annotated[bool | None, BeforeValidator(_switch)] = None
    disable: tuple[str, ...] = ()
    runner_path: str = ""
    runs: int | None = None
    warmup: int | None = None
    state: str = "done"
    problem: str | None = None
    fix: str | None = None
    rounds: int = 0
    etdump: str | None = None
    etdump_warmup_runs: int = 0
    etdump_rounds: tuple[str, ...] = ()
    log: str | None = None
    latency: str | None = None
    kernels: str | None = None
    kernels_note: str | None = None
    xnntrace_log: str | None = None
    outputs: tuple[OutputEntry, ...] = ()
    features_present: tuple[str, ...] = ()
    features_masked: tuple[str, ...] = ()

    @property
    def dumps(self) -> tuple[str, ...]:
        """Every dump of the series, the first round's first."""
        return self.etdump_rounds or ((self.etdump,) if self.etdump else ())

    @property
    def counted_kernels(self) -> bool:
        """Whether an evidence process listed every KleidiAI call; only the kit's own runner can."""
        return self.runner_path == "builtin" and self.kernels_note is None and bool(self.outputs)


class FactsEntry(_Record):
    """The machine at one moment."""

    cpu: str = ""
    machine: str = ""
    features: tuple[str, ...] = ()
    cores: int | None = None
    os: str = ""
    governor: str | None = None
    load_average: float | None = None
    memory_bytes: int | None = None
    temperature_c: float | None = None
    versions: dict[str, str] = Field(default_factory=dict)


class MachineEntry(_Record):
    before: FactsEntry | None = None
    after: FactsEntry | None = None


class SessionEntry(_Record):
    number: int = 1
    command_line: tuple[str, ...] = ()
    started: str = ""
    ended: str | None = None


class ExecuTorchEntry(_Record):
    version: str | None = None
    sha: str | None = None


class RunnerEntry(_Record):
    build_id: str | None = None
    compiler: str | None = None


class ScheduleEntry(_Record):
    seed: int | None = None
    rounds: int = 0
    rounds_done: int = 0
    stopped_early: bool = False


class EvidencePlace(_Record):
    """Where kernel evidence was gathered, when not in the run itself; relative to the run directory."""

    run_dir: str


class Manifest(_Record):
    schema_version: Literal[1]
    kit_version: str = ""
    model: str = ""
    model_sha256: str = ""
    etrecord: str | None = None
    config: dict[str, object] = Field(default_factory=dict)
    config_file: str | None = None
    target: TargetEntry = TargetEntry()
    executorch: ExecuTorchEntry = ExecuTorchEntry()
    runner: RunnerEntry = RunnerEntry()
    machine: MachineEntry = MachineEntry()
    state: str = ""
    command_line: tuple[str, ...] = ()
    sessions: tuple[SessionEntry, ...] = ()
    schedule: ScheduleEntry = ScheduleEntry()
    warnings: tuple[str, ...] = ()
    evidence: EvidencePlace | None = None
    results: tuple[ResultEntry, ...]

    @property
    def cpu(self) -> str:
        return self.machine.before.cpu if self.machine.before else ""


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


def read_manifest_file(run_dir: Path) -> Manifest | None:
    """The manifest of a run directory, or None where there is none."""
    path = run_dir / "manifest.json"
    return read_record(Manifest, path) if path.is_file() else None


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
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise InputError(f"cannot read {path}: {reason}", "correct the path") from problem
    except ValueError as problem:
        raise FormatError(f"{path} is not JSON: {problem}", _CURE) from problem
    if not isinstance(content, dict):
        raise FormatError(f"{path} is not a JSON object", _CURE)
    return content


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
