"""One model in several number formats, side by side: the records behind `dtypes.json` and `dtypes.md`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from model_profiling.analysis.coverage import LOW_SHARE
from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core.errors import ProfilingError
from model_profiling.core.formatting import listing, milliseconds, percent, plural, size
from model_profiling.core.records import parse_record, read_json_object
from model_profiling.export.records import EXAMPLE_INPUTS
from model_profiling.program.graph_file import OutsideGroup
from model_profiling.report.cells import speedup_text
from model_profiling.statistics.speedup import Speedup, Verdict

Machine = Literal["sme2", "arm", "other", "emulated", "unknown"]
"""Where latencies come from: a CPU with SME2, an Arm CPU without it, or another CPU; else there are none."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Output errors on the example inputs against eager PyTorch, as shares of the output range."""

    error: float
    """Against float32: the cost of the dtype."""
    limit: float
    lowering_error: float
    """Against PyTorch in the same dtype: the change made by lowering and the backend."""
    lowering_limit: float
    calibration: str = ""
    """The data that int8 was calibrated on."""
    against: str = "eager PyTorch in float32, on the example inputs, as a share of the output range"
    real_inputs: int = 0
    """How many calibration inputs `error` was computed on; 0 for the example inputs."""
    top1: str = ""
    """How often the highest score is the same as in float32: `31 of 32`; empty if outputs are no scores."""
    wrong: str = ""
    """What the outputs differ from, and by how much, if that is too much."""

    @property
    def ok(self) -> bool:
        return not self.wrong and self.error <= self.limit and self.lowering_error <= self.lowering_limit


@dataclass(frozen=True, slots=True)
class Latency:
    """The latency of the headline series: SME2 on if the CPU has it, fewest threads."""

    series: Series
    median_ms: float
    p5_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class Projected:
    """The latency that SME2 could give; never a measurement."""

    low_ms: float
    """With the highest factors."""
    high_ms: float
    factors: str
    kind: Literal["projection"] = "projection"


@dataclass(frozen=True, slots=True)
class MissesSme2:
    """A reason why matrix operators ran on no SME or SME2 kernel."""

    reason: str
    operators: int
    arithmetic_share: float
    """Of all matrix arithmetic; operators of unknown cost count as 0."""


@dataclass(frozen=True, slots=True)
class OnSme2:
    """What was proven to run on SME or SME2 kernels; figures are None if not tested."""

    evidence: Literal["executed", "not tested"]
    reason: str
    operators: int | None = None
    operators_total: int | None = None
    arithmetic_share: float | None = None
    """Of all matrix arithmetic of the program."""
    missing: tuple[MissesSme2, ...] = ()
    """Those with the most arithmetic first."""


def read_on_sme2(run_dir: Path) -> OnSme2 | None:
    """What a run's analysis says, without the reasons; None if not tested or the file cannot be read."""
    path = run_dir / names.ANALYSIS
    try:
        told = read_json_object(path, "").get("sme2_coverage")
        told = {**told, "missing": []} if isinstance(told, dict) else None
        found = parse_record(OnSme2, told, str(path), "")
    except ProfilingError:
        return None
    return found if found.evidence == "executed" else None


@dataclass(frozen=True, slots=True)
class Work:
    flops: int
    bytes_moved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DtypeSide:
    """One number format; unknown values are None, and `problem` says why if it failed."""

    dtype: str
    keep: tuple[str, ...] = ()
    """The modules that stayed in float32."""
    program: str = ""
    """Relative to the folder of this record, as are `runs`."""
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
    """Two formats' latencies on one CPU; the speedup is of `dtype` over `against`."""

    dtype: str
    against: str
    speedup: Speedup


@dataclass(frozen=True, slots=True, kw_only=True)
class Dtypes:
    schema_version: Literal[1] = 1
    model: str
    cpu: str = ""
    machine: Machine = "unknown"
    sides: tuple[DtypeSide, ...]
    pairs: tuple[DtypePair, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Formats that do not suit the model, with the reason."""
    ship: str | None = None
    """The format to ship; None if the evidence does not decide."""
    verdict: str = ""

    @property
    def worked(self) -> tuple[DtypeSide, ...]:
        return tuple(side for side in self.sides if not side.problem)

    @property
    def failed(self) -> tuple[DtypeSide, ...]:
        return tuple(side for side in self.sides if side.problem)

    @property
    def judged_by_time(self) -> bool:
        """Whether the latencies are from an Arm CPU: only those may decide."""
        return self.machine in ("sme2", "arm")

    def pair(self, dtype: str, against: str) -> DtypePair | None:
        return next((each for each in self.pairs if (each.dtype, each.against) == (dtype, against)), None)


# Which number format to ship, and why.
# Latencies from an Arm CPU decide; a difference within noise does not count. Without them nothing is
# recommended. A format whose outputs are too far off is not shipped.


def decide(found: Dtypes) -> tuple[str | None, str]:
    fit = [side for side in found.worked if side.accuracy is None or side.accuracy.ok]
    why_not = [*_excluded(found)]
    if not fit:
        return None, " ".join(("Ship none of them yet:", "; ".join(why_not) + "."))
    timed = [side for side in fit if side.latency is not None]
    excluded = [f"{each}." for each in (*why_not, *_left_out(found))]
    if not (found.judged_by_time and timed):
        facts = (f"{side.dtype}: {_work_facts(side, found)}." for side in fit)
        return None, " ".join(("No recommendation: no Arm latency.", *facts, *excluded))
    chosen, sentences = _by_latency(found, timed)
    return chosen.dtype, " ".join([*sentences, *_reach(chosen, fit), *excluded, *_caution(chosen)])


def _by_latency(found: Dtypes, timed: Sequence[DtypeSide]) -> tuple[DtypeSide, list[str]]:
    fastest = min(timed, key=lambda side: _latency(side).median_ms)
    judged: dict[str, Verdict] = {}
    for side in timed:
        if side is not fastest:
            pair = found.pair(fastest.dtype, side.dtype)
            judged[side.dtype] = pair.speedup.verdict if pair else Verdict.NOT_COMPARABLE
    alike = [side for side in timed if judged.get(side.dtype, Verdict.NO_CHANGE) is Verdict.NO_CHANGE]
    # The lowest median may be chance: a format that is significantly faster goes before it.
    ahead = [side for side in timed if judged.get(side.dtype) is Verdict.SLOWER]
    # If times do not separate them, the output error decides.
    chosen = min(ahead or alike, key=lambda side: side.accuracy.error if side.accuracy else math.inf)
    kind = "with SME2" if found.machine == "sme2" else "which has no SME2, so this is a baseline"
    where = f"{milliseconds(_latency(chosen).median_ms)} ms on {found.cpu or 'this CPU'}, {kind}"
    kept = f" with {listing(chosen.keep)} in fp32" if chosen.keep else ""
    parts = [f"Ship {chosen.dtype}{kept}: {where}"]
    slower = [dtype for dtype, verdict in judged.items() if verdict is Verdict.FASTER]
    if slower and (pair := found.pair(fastest.dtype, slower[0])):
        also = f", and faster than {listing(slower[1:])}" if slower[1:] else ""
        ratio = f"{speedup_text(pair.speedup)} as fast as {slower[0]}{also}"
        parts.append(f"{'' if chosen is fastest else f'{fastest.dtype} is '}{ratio}")
    if ahead:
        parts.append(f"{fastest.dtype} has the lower median, but {chosen.dtype} is faster beyond noise")
    elif len(alike) > 1:
        others = listing(side.dtype for side in alike if side is not chosen)
        nearer = "nearer" if len(alike) == 2 else "nearest"
        nearness = f"{chosen.dtype} is {nearer} to PyTorch in float32"
        parts.append(f"{others} may be as fast (a longer --budget may tell), and {nearness}")
    for dtype, verdict in judged.items():
        if verdict is Verdict.NOT_COMPARABLE:
            pair = found.pair(fastest.dtype, dtype)
            reason = pair.speedup.reason if pair else "they were not compared"
            parts.append(f"{fastest.dtype} could not be compared with {dtype}: {reason}")
    return chosen, [f"{'; '.join(parts)}.", *(_projection(timed, chosen) if found.machine == "arm" else ())]


def _projection(timed: Sequence[DtypeSide], chosen: DtypeSide) -> Iterator[str]:
    """Say how a CPU with SME2 might change the choice; overlapping ranges decide nothing."""
    known = {side.dtype: side.projected for side in timed if side.projected is not None}
    own = known.pop(chosen.dtype, None)
    if own is None:
        yield f"What SME2 would bring to {chosen.dtype} is not known."
        return
    said = f"With SME2, {chosen.dtype} would take {_range(own)}: a projection, not a measurement"
    ahead = [dtype for dtype, other in known.items() if other.high_ms < own.low_ms]
    behind = [dtype for dtype, other in known.items() if other.low_ms > own.high_ms]
    rest = [dtype for dtype in known if dtype not in (*ahead, *behind)]
    ranges = {dtype: f"{dtype} ({_range(other)})" for dtype, other in known.items()}
    if ahead:
        faster = listing(ranges[dtype] for dtype in ahead)
        said += f"; {faster} would be faster: measure on a CPU with SME2 before you decide"
    if rest:
        said += f"; {listing(ranges[dtype] for dtype in rest)} may be as fast"
    if behind:
        said += f"; {listing(ranges[dtype] for dtype in behind)} would be slower"
    yield f"{said}."


def _work_facts(side: DtypeSide, found: Dtypes) -> str:
    share, outside = _share(side), plural(side.operators_outside, "operator")
    facts = [] if share is None else [f"{percent(share)} of the matrix arithmetic runs on SME2"]
    facts.append(f"{outside} outside the delegates")
    if side.size_bytes is not None:
        facts.append(f"{size(side.size_bytes)}{_smaller(side, found)}")
    return ", ".join(facts)


def _smaller(side: DtypeSide, found: Dtypes) -> str:
    whole = next((each.size_bytes for each in found.worked if each.dtype == "fp32"), None)
    ratio = whole / side.size_bytes if whole and side.size_bytes else 1.0
    return f" ({ratio:.1f}x smaller than fp32)" if ratio >= 1.05 else ""


def _reach(chosen: DtypeSide, fit: Sequence[DtypeSide]) -> Iterator[str]:
    """Say if next to nothing of the chosen format runs on SME2, and which format does."""
    share = _share(chosen)
    if share is None or share >= LOW_SHARE:
        return
    better = [
        f"{side.dtype} with {side.sme2.operators} of {side.sme2.operators_total} matrix operators"
        for side in fit
        if side.sme2 and (side.sme2.arithmetic_share or 0.0) >= LOW_SHARE
    ]
    little = (
        "none of it reaches SME2" if not share else f"only {percent(share)} of its arithmetic reaches SME2"
    )
    yield f"But {little}" + (f"; {listing(better)} does." if better else ".")


def _left_out(found: Dtypes) -> Iterator[str]:
    for dtype, reason in found.left_out.items():
        yield f"{dtype} was left out: {reason}"


def _excluded(found: Dtypes) -> Iterator[str]:
    for side in found.failed:
        yield f"{side.dtype} failed: {side.problem}"
    for side in found.worked:
        accuracy = side.accuracy
        if accuracy is None or accuracy.ok:
            continue
        if accuracy.lowering_error > accuracy.lowering_limit:
            off, limit, what = accuracy.lowering_error, accuracy.lowering_limit, f"PyTorch in {side.dtype}"
        else:
            off, limit, what = accuracy.error, accuracy.limit, "PyTorch in float32"
        fix = "; calibrate it on real inputs" if accuracy.calibration == EXAMPLE_INPUTS else ""
        far = accuracy.wrong or f"{what} by {off:.2g} of the output range (limit {limit:g})"
        yield f"{side.dtype} is not accurate enough: it differs from {far}{fix}"


def _caution(chosen: DtypeSide) -> Iterator[str]:
    accuracy = chosen.accuracy
    if accuracy is None:
        return
    same = f" (same top-1: {accuracy.top1})" if accuracy.top1 else ""
    said = f"Its outputs differ from PyTorch in float32 by {accuracy.error:.2g} of their range{same}"
    if accuracy.real_inputs:
        yield f"{said}, on {plural(accuracy.real_inputs, 'calibration input')}."
        return
    checks = "accuracy and int8 calibration" if accuracy.calibration == EXAMPLE_INPUTS else "accuracy"
    yield f"{said}; {checks} used only the example inputs."


def _latency(side: DtypeSide) -> Latency:
    assert side.latency is not None
    return side.latency


def _share(side: DtypeSide) -> float | None:
    return side.sme2.arithmetic_share if side.sme2 else None


def _range(found: Projected) -> str:
    return f"{milliseconds(found.low_ms)} to {milliseconds(found.high_ms)} ms"
