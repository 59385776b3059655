"""A run's records of results: metrics.json and _robust_stats.json, the figures it measured (empty if its
times are not latencies), and evidence.json, what another run proved."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from model_profiling.config import names
from model_profiling.config.series import Diagnostic, Pair, Series
from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.records import JsonObject, read_record
from model_profiling.core.safe_read import is_there
from model_profiling.program.category import Category
from model_profiling.program.records import OperatorKey
from model_profiling.runner.samples import Samples
from model_profiling.runs.costs import Loading, Memory
from model_profiling.runs.manifest import Manifest, Result, read_manifest
from model_profiling.runs.times import Times
from model_profiling.statistics.measure import LatencySummary, Measure
from model_profiling.statistics.parity import Parity
from model_profiling.statistics.speedup import Speedup, Unit

COMPUTE_AGAIN = "compute it again: sme2prof run CONFIG --analysis-only"


@dataclass(frozen=True, slots=True)
class TracerCost:
    """How much longer an inference takes with the tracer on, as a share: 0.02 is 2% longer."""

    share: float
    low: float | None = None
    high: float | None = None
    rounds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The latencies of one series, in milliseconds."""

    experiment: str
    threads: int | None = None
    rounds: int = 0
    """Launches in lockstep."""
    measured: Measure = "wall time, unchecked"
    way: Literal["lockstep", "rounds"] = "rounds"
    end_to_end_ms: LatencySummary | None = None
    """Without the tracer: what a user of the model waits."""
    traced_ms: LatencySummary | None = None
    tracer_cost: TracerCost | None = None
    load_ms: float | None = None
    first_inference_ms: float | None = None
    peak_memory_bytes: int | None = None
    memory: Memory | None = None
    """None if the runner or the system does not say, as for `loading`."""
    loading: Loading | None = None

    @property
    def series(self) -> Series:
        return Series(self.experiment, self.threads)

    @property
    def counted_in(self) -> Unit:
        return "launch" if self.way == "lockstep" else "round"


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustStats(Latency):
    """A series' statistics and every latency by round; an empty round failed."""

    schema_version: Literal[1] = 1
    model: str = ""
    runs: int | None = None
    warmup: int | None = None
    unit: str = "ms"
    times: Times = Times.HARDWARE
    """The kit writes this file only if times are latencies."""
    end_to_end_rounds_ms: tuple[tuple[float, ...], ...]
    traced_rounds_ms: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class PairSpeedup:
    """A pair and its speedup, the one that every file and command shows."""

    label: str
    baseline: Series
    candidate: Series
    speedup: Speedup
    with_tracer: bool = False
    """Whether a side lacks latencies without the tracer."""

    @property
    def pair(self) -> Pair:
        return Pair(self.label, self.baseline, self.candidate)


@dataclass(frozen=True, slots=True)
class PairParity:
    """Whether two series computed the same; `parity` is None if unknown, and `reason` says why."""

    label: str
    baseline: Series
    candidate: Series
    parity: Parity | None = None
    reason: str = ""

    @property
    def verdict(self) -> str:
        return self.parity.verdict if self.parity else "unknown"

    @property
    def text(self) -> str:
        if self.parity is None:
            return f"not compared, {self.reason}"
        return f"{self.parity.text}{f', {self.reason}' if self.reason else ''}"


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """The content of metrics.json. No slots, because the cached property needs a `__dict__`."""

    schema_version: Literal[2] = 2
    model: str = ""
    times: Times = Times.UNKNOWN
    latencies: tuple[Latency, ...] = ()
    stability: tuple[Diagnostic, ...] = ()
    comparisons: tuple[PairSpeedup, ...] = ()
    parity: tuple[PairParity, ...] = ()

    def latency(self, series: Series) -> Latency | None:
        return self._by_series.get(series)

    @cached_property
    def _by_series(self) -> dict[Series, Latency]:
        return {latency.series: latency for latency in reversed(self.latencies)}


def read_metrics(path: Path) -> Metrics | None:
    if not is_there(path):
        return None
    # The earlier kit kept traced times of an unknown machine, so none is a latency.
    earlier: JsonObject = {"schema_version": Metrics.schema_version}
    metrics = read_record(
        Metrics, path, COMPUTE_AGAIN, lambda content: content if "schema_version" in content else earlier
    )
    for latency in metrics.latencies:
        _check_times(path, latency)
    for pair in metrics.comparisons:
        numbers = pair.speedup.ratio, pair.speedup.low, pair.speedup.high
        if any(number is not None and not number > 0 for number in numbers):
            raise FormatError(f"{path}: the speedup of {pair.label!r} is not above 0", COMPUTE_AGAIN)
    return metrics


def read_robust_stats(path: Path) -> RobustStats:
    stats = read_record(RobustStats, path, COMPUTE_AGAIN)
    _check_times(path, stats)
    return stats


def _check_times(path: Path, latency: Latency) -> None:
    """Refuse latencies that no clock can give; computing with them would divide by 0 or give nonsense."""
    for summary in filter(None, (latency.end_to_end_ms, latency.traced_ms)):
        if not (summary.mean > 0 and 0 < summary.minimum <= summary.median <= summary.maximum):
            raise FormatError(f"{path}: {latency.series} has impossible latencies", COMPUTE_AGAIN)


# evidence.json: kernels and outputs proven by another run of the same program, copied into a run. A CPU
# without SME2 gives latencies; an emulated run of the same program (same SHA-256) shows what SME2 runs.


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One kernel of a process: executed (with the number of calls if counted) or only configured."""

    name: str
    evidence: Literal["executed", "configured"]
    calls: int | None = None


@dataclass(frozen=True, slots=True)
class KernelList:
    series: Series
    sme2: bool | None
    kernels: tuple[KernelCall, ...]
    counted: bool
    """Whether every KleidiAI call was listed; only then does absence prove anything."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixOperator:
    """An operator that multiplies matrices, as it ran with SME2 on. It is identified by its place in the
    program, because its name changes with its kernel."""

    method: str
    chain_index: int
    instruction_id: int
    occurrence: int
    node: int
    """Position in the delegate's graph; -1 outside delegates and without a program."""
    name: str
    category: Category
    kind: str
    backend: str
    flops: int | None
    rows: int | None
    """Rows of the result as one matrix (the M of a GEMM); None without a program."""
    on_sme: bool
    why_not: str = ""
    """Why it runs on no SME or SME2 kernel, if known."""
    module_path: str = ""
    source: str = ""
    """For example `model.py:22`."""
    cause: str = ""
    """`why_not` in a word or two, such as `dtype`; empty if unknown and in older files."""
    precision: str = ""
    """The type it computed in; empty if unknown and in older files."""

    @property
    def key(self) -> OperatorKey:
        return OperatorKey(self.method, self.chain_index, self.instruction_id, self.occurrence, self.node)


@dataclass(frozen=True, slots=True)
class OperatorProof:
    """Which operators of a program ran on SME or SME2 kernels, in one series with SME2 on."""

    series: Series
    operators: tuple[MatrixOperator, ...] = ()
    isa: str = ""
    """The strongest that ran, SME2 or SME; empty if neither did."""
    not_tested: str = ""
    """Why the series proves nothing; empty if it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one run proved (`place`: where, `made`: when), or `problem` and `fix` if nothing is proven."""

    schema_version: Literal[1] = 1
    model_sha256: str
    place: str
    cpu: str
    times: Times
    made: str = ""
    fed: str = ""
    """Sizes and values of inputs that were asked for: `tokens_32_input_pos_0`."""
    executorch: str = ""
    kernels: tuple[KernelList, ...] = ()
    parity: tuple[PairParity, ...] = ()
    operators: OperatorProof | None = None
    """None in files of earlier versions."""
    problem: str = ""
    fix: str = ""


def read_evidence(run_dir: Path) -> Evidence | None:
    path = run_dir / names.EVIDENCE
    return read_record(Evidence, path, "profile again, or remove the file") if is_there(path) else None


def proving_run(run_dir: Path, manifest: Manifest) -> Path | None:
    """Return the newest finished emulated run of the same program, method (if known) and inputs beside
    `run_dir`, other than itself."""
    here = run_dir.resolve()
    runs: list[tuple[str, Path]] = []
    for path in sorted(here.parent.glob(f"*/{names.MANIFEST}")) if manifest.model_sha256 else ():
        other = None
        with contextlib.suppress(FormatError, InputError):  # a damaged neighbour proves nothing
            other = read_manifest(path.parent)
        if other is None or path.parent == here:
            continue
        same = other.model_sha256 == manifest.model_sha256 and other.fed == manifest.fed
        same = same and manifest.method in ("", other.method)
        if same and other.target.times is Times.EMULATED and other.has_ended:
            runs.append((other.started, path.parent))
    return max(runs)[1] if runs else None


def read_samples(run_dir: Path, result: Result | None) -> Samples | None:
    """Return the stack samples of a result, from the file beside its dumps."""
    path = run_dir / result.samples if result and result.samples else None
    if path is None or not is_there(path):
        return None
    fix = f"sample it again, or remove the file *{names.SAMPLES}"
    samples = read_record(Samples, path, fix)
    functions, held = len(samples.functions), len(samples.files)
    if not (
        all(
            call >= -1 and operator >= -1 and thread >= 0 and 0 <= function < functions and count > 0
            for call, operator, thread, function, count in samples.seen
        )
        and all(-1 <= function.file < held for function in samples.functions)
    ):
        raise FormatError(f"{path}: its samples do not match the functions and files that it lists", fix)
    return samples
