"""Everything a report shows, gathered in one frozen record; every renderer takes this and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from model_profiling.analysis.advice import Finding
from model_profiling.analysis.kernels import KernelUse, SmeVerdict
from model_profiling.statistics.latency import LatencySummary
from model_profiling.analysis.pairing import Pairing
from model_profiling.statistics.parity import Parity
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.statistics.speedup import Speedup, Verdict


@dataclass(frozen=True, slots=True)
class Series:
    """One experiment at one number of threads; None where bare files do not tell."""

    experiment: str
    threads: int | None

    def __str__(self) -> str:
        if self.threads is None:
            return self.experiment
        return f"{self.experiment}, {self.threads} thread{'' if self.threads == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class TracerCost:
    """How much longer an inference takes with the tracer on, as a share: 0.02 is 2% longer."""

    share: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class ExperimentReport:
    """What is known about one series. Latencies are milliseconds, and None where times are no latencies."""

    series: Series
    sme2: bool | None
    disabled: tuple[str, ...]
    runner: str
    """`builtin`, or the path of a runner of the user's own; empty where nothing says."""
    rounds: int
    end_to_end: LatencySummary | None
    """Without the tracer: what a user of the model would wait."""
    traced: LatencySummary | None
    """With the tracer, whose operator times belong to it."""
    tracer_cost: TracerCost | None
    load_ms: float | None
    first_inference_ms: float | None
    peak_memory_bytes: int | None
    dumps: SeriesAnalysis | None
    problem: str
    """Why it did not finish; empty when it did."""


@dataclass(frozen=True, slots=True)
class ParityReport:
    """Whether two series computed the same; `parity` is None where outputs were not kept (`reason`)."""

    baseline: Series
    candidate: Series
    parity: Parity | None
    reason: str


@dataclass(frozen=True, slots=True)
class PairReport:
    """Two series compared; the speedup is baseline over candidate."""

    label: str
    baseline: Series
    candidate: Series
    speedup: Speedup
    """End to end, without the tracer unless `with_tracer`."""
    with_tracer: bool
    pairing: Pairing | None
    """Operators and categories side by side, from the dumps; None where one is missing."""

    @property
    def comparable(self) -> bool:
        return self.speedup.verdict is not Verdict.NOT_COMPARABLE


@dataclass(frozen=True, slots=True)
class KernelReport:
    """The kernels of one series: `sme` is what they prove."""

    series: Series
    sme2: bool | None
    uses: tuple[KernelUse, ...]
    sme: SmeVerdict
    note: str
    """Why kernels could not be counted; empty where they were."""


@dataclass(frozen=True, slots=True)
class EvidenceReport:
    """Kernels and numerics from one place; a sibling emulated run is a second one."""

    source: str
    """Where it was gathered, in words: `this run`, `the emulated run in ../emulated`."""
    emulated: bool
    kernels: tuple[KernelReport, ...]
    parity: tuple[ParityReport, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """One line about the machine or the software."""

    label: str
    value: str


@dataclass(frozen=True, slots=True)
class ReportData:
    """A run directory as a report tells it."""

    title: str
    run_dir: str
    model: str
    """The program's file name; empty where nothing names it."""
    platform: str
    cpu: str
    has_sme2: bool | None
    """Of the CPU the times come from; None where nothing says."""
    timings_are_latency: bool
    experiments: tuple[ExperimentReport, ...]
    pairs: tuple[PairReport, ...]
    evidence: tuple[EvidenceReport, ...]
    findings: tuple[Finding, ...]
    quality: tuple[str, ...]
    """Warnings about the measurement that a person can act on."""
    remarks: tuple[str, ...]
    """What the report could not show, and why."""
    facts: tuple[Fact, ...]
    reproduce: tuple[str, ...]
    """Commands, in order."""

    def experiment(self, series: Series) -> ExperimentReport | None:
        return next((one for one in self.experiments if one.series == series), None)

    @property
    def emulated(self) -> bool:
        return self.platform == "emulated"
