"""manifest.json as a typed record: the one reader for analysis, reports, comparisons and checks.

It is read without pydantic, because `sme2prof analyze` is to start at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from model_profiling.workflow.typed_json import WORDS, read_typed

MANIFEST = "manifest.json"
_CURE = "run the pipeline again: without it nothing says what the run's times are worth"


@dataclass(frozen=True, slots=True)
class TargetEntry:
    name: str = ""
    platform: str = ""
    timings_are_latency: bool = True


@dataclass(frozen=True, slots=True)
class OutputEntry:
    file: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    dim_order: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ResultEntry:
    """One experiment at one number of threads; paths are relative to the run directory."""

    experiment: str = ""
    threads: int | None = None
    mode: str = "timing"
    sme2: bool | None = field(default=None, metadata={WORDS: {"on": True, "off": False}})
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
    def sme2_left_on(self) -> bool | None:
        """Whether the runner could use SME2, by its switch or what was disabled; None where nothing says."""
        if self.sme2 is not None or not self.disable:
            return self.sme2
        return "sme2" not in self.disable

    @property
    def counted_kernels(self) -> bool:
        """Whether an evidence process listed every KleidiAI call; only the kit's own runner can."""
        return self.runner_path == "builtin" and self.kernels_note is None and bool(self.outputs)


@dataclass(frozen=True, slots=True)
class FactsEntry:
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
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MachineEntry:
    before: FactsEntry | None = None
    after: FactsEntry | None = None


@dataclass(frozen=True, slots=True)
class SessionEntry:
    number: int = 1
    command_line: tuple[str, ...] = ()
    started: str = ""
    ended: str | None = None


@dataclass(frozen=True, slots=True)
class ExecuTorchEntry:
    version: str | None = None
    sha: str | None = None


@dataclass(frozen=True, slots=True)
class RunnerEntry:
    build_id: str | None = None
    compiler: str | None = None


@dataclass(frozen=True, slots=True)
class ScheduleEntry:
    seed: int | None = None
    rounds: int = 0
    rounds_done: int = 0
    stopped_early: bool = False


@dataclass(frozen=True, slots=True)
class EvidencePlace:
    """Where kernel evidence was gathered, when not in the run itself; relative to the run directory."""

    run_dir: str


@dataclass(frozen=True, slots=True)
class Manifest:
    schema_version: Literal[1]
    results: tuple[ResultEntry, ...]
    kit_version: str = ""
    model: str = ""
    model_sha256: str = ""
    etrecord: str | None = None
    config: dict[str, object] = field(default_factory=dict)
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

    @property
    def cpu(self) -> str:
        return self.machine.before.cpu if self.machine.before else ""

    @property
    def times_are_latencies(self) -> bool:
        return self.target.timings_are_latency and self.target.platform != "emulated"

    def result_of(self, path: Path, run_dir: Path) -> ResultEntry | None:
        """The result a file of the run belongs to: a dump, or what was made of one."""
        for result in self.results:
            if result.latency and (run_dir / result.latency).resolve() == path.resolve():
                return result
            for dump in (run_dir / name for name in result.dumps):
                stem = dump.name.removesuffix(".etdump")
                after = path.name.removeprefix(stem)
                if path.name.startswith(stem) and after.startswith((".etdump", "_exec_", "_timeline")):
                    return result
        return None


def read_manifest_file(run_dir: Path) -> Manifest | None:
    """The manifest of a run directory, or None where there is none."""
    path = run_dir / MANIFEST
    return read_typed(Manifest, path, _CURE) if path.is_file() else None


def run_around(path: Path) -> Path | None:
    """The run directory a file lies in, at most two folders down."""
    return next((one for one in list(path.resolve().parents)[:3] if (one / MANIFEST).is_file()), None)
