"""One model in several number formats, side by side: the records behind `dtypes.json` and `dtypes.md`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from model_profiling.json_record import read_record
from model_profiling.program.undelegated import OutsideGroup
from model_profiling.run import Series
from model_profiling.statistics.speedup import Speedup

_AGAIN = "make it again: sme2prof profile MODEL --dtype all"


Machine = Literal["sme2", "arm", "other", "emulated", "unknown"]
"""What latencies come from: a CPU with SME2, an Arm CPU without, another CPU; or there are none."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The program's outputs on the example inputs, against eager PyTorch; errors are of the output range."""

    error: float
    """Against float32: what the dtype costs."""
    limit: float
    lowering_error: float
    """Against PyTorch in the same dtype: what lowering and the backend changed."""
    lowering_limit: float
    cosine: float
    calibration: str = ""
    """What int8's ranges were observed on."""
    against: str = "eager PyTorch in float32, on the example inputs, as a share of the output range"

    @property
    def ok(self) -> bool:
        return self.error <= self.limit and self.lowering_error <= self.lowering_limit


@dataclass(frozen=True, slots=True)
class Latency:
    """Of the series that speaks first: SME2 on where the CPU has it, on the fewest threads."""

    series: Series
    median_ms: float
    p5_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class Projected:
    """What SME2 could make of the latency; never a measurement."""

    low_ms: float
    """With the highest factors."""
    high_ms: float
    factors: str
    kind: Literal["projection"] = "projection"


@dataclass(frozen=True, slots=True)
class MissesSme2:
    """Why matrix operators ran on no SME or SME2 kernel."""

    reason: str
    operators: int
    arithmetic_share: float
    """Of all matrix arithmetic; what is not known counts none."""


@dataclass(frozen=True, slots=True)
class OnSme2:
    """What was proven to run on SME or SME2 kernels; None where it was not tested."""

    evidence: Literal["executed", "not tested"]
    reason: str
    operators: int | None = None
    operators_total: int | None = None
    arithmetic_share: float | None = None
    """Of all matrix arithmetic of the program."""
    missing: tuple[MissesSme2, ...] = ()
    """Most arithmetic first."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one inference does, as the program says."""

    flops: int
    bytes_moved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DtypeSide:
    """One number format; what could not be had is None, and `problem` says why where it failed."""

    dtype: str
    program: str = ""
    """Relative to the folder of this record, as `runs` are."""
    sha256: str = ""
    size_bytes: int | None = None
    runs: tuple[str, ...] = ()
    latency: Latency | None = None
    projected: Projected | None = None
    sme2: OnSme2 | None = None
    work: Work | None = None
    delegates: int | None = None
    operators_inside: int | None = None
    outside: tuple[OutsideGroup, ...] = ()
    outside_time_share: float | None = None
    accuracy: Accuracy | None = None
    problem: str = ""
    fix: str = ""

    @property
    def operators_outside(self) -> int:
        return sum(group.count for group in self.outside)


@dataclass(frozen=True, slots=True)
class DtypePair:
    """Two formats' latencies on one CPU; the speedup is that of `dtype` over `against`."""

    dtype: str
    against: str
    speedup: Speedup


@dataclass(frozen=True, slots=True, kw_only=True)
class Dtypes:
    """Everything known of a model's formats, and which to ship."""

    schema_version: Literal[1] = 1
    model: str
    cpu: str = ""
    """That was measured or emulated."""
    machine: Machine = "unknown"
    sides: tuple[DtypeSide, ...]
    pairs: tuple[DtypePair, ...] = ()
    ship: str | None = None
    """The format to ship; None where nothing speaks for one."""
    verdict: str = ""

    @property
    def worked(self) -> tuple[DtypeSide, ...]:
        return tuple(side for side in self.sides if not side.problem)

    @property
    def failed(self) -> tuple[DtypeSide, ...]:
        return tuple(side for side in self.sides if side.problem)

    @property
    def judged_by_time(self) -> bool:
        """Whether latencies say anything about the CPUs that the kit is about."""
        return self.machine in ("sme2", "arm")

    def pair(self, dtype: str, against: str) -> DtypePair | None:
        return next((each for each in self.pairs if (each.dtype, each.against) == (dtype, against)), None)


def read_dtypes(path: Path) -> Dtypes:
    return read_record(Dtypes, path, _AGAIN)
