"""One model in several number formats, side by side: the records behind `dtypes.json`, which format to ship,
and the page `dtypes.md` with its table in the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from model_profiling.analysis.coverage import LOW_SHARE
from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core.formatting import MISSING, listing, milliseconds, percent, plural, size
from model_profiling.export.records import EXAMPLE_INPUTS
from model_profiling.report import document as doc
from model_profiling.report.breakdown import number_cell, ratio_text
from model_profiling.statistics.speedup import Speedup, Verdict

Machine = Literal["sme2", "arm", "other", "emulated", "unknown"]
"""Where latencies come from: a CPU with SME2, an Arm CPU without it, or another CPU; else there are none."""


@dataclass(frozen=True, slots=True)
class DtypeAccuracy:
    """The output error against eager PyTorch in float32, as a share of the output range."""

    error: float
    calibration: str = ""
    """The data that int8 was calibrated on."""
    real_inputs: int = 0
    """How many calibration inputs `error` was computed on; 0 for the example inputs."""
    top1: str = ""
    """How often the highest score is the same as in float32: `31 of 32`; empty if outputs are no scores."""
    wrong: str = ""
    """What the outputs differ from, and by how much, if that is too much."""


@dataclass(frozen=True, slots=True)
class DtypeLatency:
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

    def __str__(self) -> str:
        return _range(self.low_ms, self.high_ms)


@dataclass(frozen=True, slots=True)
class OnSme2:
    """What was proven to run on SME or SME2 kernels; figures are None if not tested."""

    evidence: Literal["executed", "not tested"]
    reason: str
    operators: int | None = None
    operators_total: int | None = None
    arithmetic_share: float | None = None
    """Of all matrix arithmetic of the program."""
    flops: int | None = None
    """The arithmetic that ran there."""


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
    latency: DtypeLatency | None = None
    projected: Projected | None = None
    sme2: OnSme2 | None = None
    delegates: int | None = None
    operators_inside: int | None = None
    operators_outside: int | None = None
    outside_time_share: float | None = None
    accuracy: DtypeAccuracy | None = None
    problem: str = ""
    fix: str = ""


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
    """The fastest, and each of the others."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Formats that do not suit the model, with the reason."""
    ship: str | None = None
    """The format to ship on this CPU; None if the evidence does not decide."""
    on_this_cpu: str = ""
    with_sme2: str = ""
    """Empty if this CPU has SME2: then the first answer is it."""
    notes: tuple[str, ...] = ()
    """What to know before trusting the answers."""

    @property
    def worked(self) -> tuple[DtypeSide, ...]:
        return tuple(side for side in self.sides if not side.problem)

    @property
    def failed(self) -> tuple[DtypeSide, ...]:
        return tuple(side for side in self.sides if side.problem)

    @property
    def answers(self) -> tuple[tuple[str, str], ...]:
        named = (("On this CPU", self.on_this_cpu), ("With SME2", self.with_sme2))
        return tuple((where, answer) for where, answer in named if answer)

    @property
    def sentences(self) -> tuple[str, ...]:
        return (*(f"{where}: {answer}" for where, answer in self.answers), *self.notes)

    def pair(self, dtype: str, against: str) -> Speedup | None:
        found = (each.speedup for each in self.pairs if (each.dtype, each.against) == (dtype, against))
        return next(found, None)


# Which number format to ship. Latencies from an Arm CPU decide; a difference within noise does not count.
# A format whose outputs are too far off is not shipped.


def decide(found: Dtypes) -> Dtypes:
    """Fill in what follows from the figures: the format to ship, the answers and the notes."""
    fit = [side for side in found.worked if not (side.accuracy and side.accuracy.wrong)]
    notes = [*_excluded(found), *(f"{dtype} was left out: {why}." for dtype, why in found.left_out.items())]
    if not fit:
        return replace(found, on_this_cpu="none of them yet.", notes=tuple(notes))
    timed = [side for side in fit if side.latency is not None]
    if found.machine not in ("sme2", "arm") or not timed:
        none = "no recommendation: no Arm latency."
        return replace(found, on_this_cpu=none, with_sme2=_by_coverage(fit), notes=tuple(notes))
    chosen, answer, doubts = _by_latency(found, timed)
    with_sme2 = _by_projection(timed) if found.machine == "arm" else ""
    notes = [*doubts, *_reach(chosen, fit), *notes, *_caution(chosen)]
    return replace(found, ship=chosen.dtype, on_this_cpu=answer, with_sme2=with_sme2, notes=tuple(notes))


def _by_latency(found: Dtypes, timed: Sequence[DtypeSide]) -> tuple[DtypeSide, str, list[str]]:
    """Return the format to ship, the answer, and what speaks against it."""
    fastest = min(timed, key=lambda side: _latency(side).median_ms)
    others = {side.dtype: found.pair(fastest.dtype, side.dtype) for side in timed if side is not fastest}
    judged = {dtype: each.verdict if each else Verdict.NOT_COMPARABLE for dtype, each in others.items()}
    alike = [side for side in timed if judged.get(side.dtype, Verdict.NO_CHANGE) is Verdict.NO_CHANGE]
    # The lowest median may be chance: a format that is significantly faster goes before it.
    ahead = [side for side in timed if judged.get(side.dtype) is Verdict.SLOWER]
    # If times do not separate them, the output error decides.
    chosen = min(ahead or alike, key=lambda side: side.accuracy.error if side.accuracy else math.inf)
    kept = f" with {listing(chosen.keep)} in fp32" if chosen.keep else ""
    slower = [dtype for dtype, verdict in judged.items() if verdict is Verdict.FASTER]
    against = "fp32" if "fp32" in slower else next(iter(slower), "")
    gain = f", {ratio_text(others[against], 2)} as fast as {against}" if against and chosen is fastest else ""
    sme2 = "with SME2" if found.machine == "sme2" else "no SME2"
    took = f"{milliseconds(_latency(chosen).median_ms)} ms on {found.cpu or 'this CPU'}, {sme2}"
    doubts = []
    if ahead:
        doubts.append(f"{fastest.dtype} has the lower median, but {chosen.dtype} is faster beyond noise.")
    elif len(alike) > 1:
        rest = listing(side.dtype for side in alike if side is not chosen)
        doubts.append(
            f"{rest} may be as fast (a longer --budget may tell); {chosen.dtype} is nearer to PyTorch."
        )
    for dtype, verdict in judged.items():
        if verdict is Verdict.NOT_COMPARABLE:
            speedup = others[dtype]
            why = speedup.reason if speedup else "they were not compared"
            doubts.append(f"{fastest.dtype} could not be compared with {dtype}: {why}.")
    return chosen, f"{chosen.dtype}{kept}{gain} ({took}).", doubts


def _by_projection(timed: Sequence[DtypeSide]) -> str:
    """The format with the lowest projected time; overlapping ranges decide nothing."""
    known = sorted(
        ((side.dtype, side.projected) for side in timed if side.projected), key=lambda each: each[1].high_ms
    )
    if not known:
        return "not known: nothing was projected."
    (first, best), *others = known
    ranges = listing(f"{dtype} {projected} ms" for dtype, projected in known)
    near = [dtype for dtype, other in others if other.low_ms <= best.high_ms]
    if near:
        return f"{listing((first, *near))} may be equally fast: projected, not measured, {ranges}."
    alone = ", the only one that is projected" if not others else ""
    return f"probably {first}{alone}, because it is projected, not measured, to take least: {ranges}."


def _by_coverage(fit: Sequence[DtypeSide]) -> str:
    shares = [(side.dtype, side.sme2.arithmetic_share) for side in fit if side.sme2]
    shown = [f"{dtype} {percent(share)}" for dtype, share in shares if share is not None]
    reach = f" Of the matrix arithmetic, SME2 kernels run: {listing(shown)}." if shown else ""
    return f"not known: a projection needs Arm latencies.{reach}"


def _reach(chosen: DtypeSide, fit: Sequence[DtypeSide]) -> Iterator[str]:
    """Say if next to nothing of the chosen format runs on SME2, and which format does."""
    share = chosen.sme2.arithmetic_share if chosen.sme2 else None
    if share is None or share >= LOW_SHARE:
        return
    better = [side.dtype for side in fit if side.sme2 and (side.sme2.arithmetic_share or 0.0) >= LOW_SHARE]
    yield f"{percent(share)} of the matrix arithmetic of {chosen.dtype} reaches SME2" + (
        f"; {listing(better)} does better." if better else "."
    )


def _excluded(found: Dtypes) -> Iterator[str]:
    for side in found.failed:
        yield f"{side.dtype} failed: {side.problem}; {side.fix}."
    for side in found.worked:
        if side.accuracy and side.accuracy.wrong:
            fix = "; calibrate it on real inputs" if side.accuracy.calibration == EXAMPLE_INPUTS else ""
            yield f"{side.dtype} is not accurate enough: it differs from {side.accuracy.wrong}{fix}."


def _caution(chosen: DtypeSide) -> Iterator[str]:
    accuracy = chosen.accuracy
    if accuracy is not None and not accuracy.real_inputs:
        checks = "accuracy and int8 calibration" if accuracy.calibration == EXAMPLE_INPUTS else "accuracy"
        yield f"{chosen.dtype}: {checks} used only the example inputs."


def _latency(side: DtypeSide) -> DtypeLatency:
    assert side.latency is not None
    return side.latency


def _range(low: float, high: float) -> str:
    return f"{milliseconds(low)} to {milliseconds(high)}"


# The page and its table.


def dtypes_document(found: Dtypes) -> list[doc.Block]:
    return [
        doc.Heading(f"Which number format for {found.model}?", 1),
        doc.Answers(found.answers),
        dtypes_table(found),
        *doc.make_list(found.notes),
        *doc.make_list(_meaning(found)),
        doc.Heading("Reports: what stays outside the delegates, what misses SME2, and why"),
        *doc.make_list(
            (f"{side.dtype}: ", doc.PageLink(run, f"{run}/{names.REPORT_PAGE}"))
            for side in found.worked
            for run in side.runs
        ),
    ]


def dtypes_table(found: Dtypes) -> doc.Block:
    """Formats are columns, so that the table fits a terminal; what is known of none of them has no row."""
    headers = ("number format", *(side.dtype for side in found.sides))
    rows = [
        (name, *(MISSING if side.problem and not side.program else cell(side) for side in found.sides))
        for name, cell in _rows(found)
    ]
    return doc.make_table(headers, [row for row in rows if {*row[1:]} != {MISSING}], range(1, len(headers)))


def _rows(found: Dtypes) -> Iterator[tuple[str, Callable[[DtypeSide], str]]]:
    yield "latency, median ms", lambda side: milliseconds(side.latency.median_ms if side.latency else None)
    yield (
        "latency, 5% to 95% ms",
        lambda side: _range(side.latency.p5_ms, side.latency.p95_ms) if side.latency else MISSING,
    )
    if found.pairs:
        fastest = found.pairs[0].dtype
        yield f"{fastest} compared with it", lambda side: ratio_text(found.pair(fastest, side.dtype), 2)
    yield "with SME2, projected ms", lambda side: str(side.projected or MISSING)
    yield "program size", lambda side: size(side.size_bytes)
    yield (
        "matrix operators on SME2",
        lambda side: tested_cell(side.sme2, lambda on: f"{on.operators} of {on.operators_total}"),
    )
    yield (
        "matrix arithmetic on SME2",
        lambda side: tested_cell(side.sme2, lambda on: percent(on.arithmetic_share)),
    )
    yield "operators in delegates", lambda side: number_cell(side.operators_inside)
    yield "delegates", lambda side: number_cell(side.delegates)
    yield "operators outside", lambda side: number_cell(side.operators_outside)
    yield "time outside", lambda side: percent(side.outside_time_share)
    yield (
        "error against float32",
        lambda side: (
            f"{side.accuracy.error:.2g}{' (too large)' if side.accuracy.wrong else ''}"
            if side.accuracy
            else MISSING
        ),
    )
    yield "same top-1 as float32", lambda side: (side.accuracy and side.accuracy.top1) or MISSING


def tested_cell(found: OnSme2 | None, cell: Callable[[OnSme2], str]) -> str:
    return cell(found) if found and found.evidence != "not tested" else "not tested"


def _meaning(found: Dtypes) -> Iterator[str]:
    if found.machine == "other":
        yield f"Latencies were measured on {found.cpu}. It is not an Arm CPU: they say nothing about Arm."
    real = max((side.accuracy.real_inputs for side in found.sides if side.accuracy), default=0)
    inputs = plural(real, "calibration input") if real else "the example inputs"
    yield f"The error is the largest difference from float32, as a share of the output range, on {inputs}."
    for side in found.sides:
        if side.keep:
            yield f"{side.dtype}: {', '.join(side.keep)} in fp32."
        if side.accuracy and side.accuracy.calibration:
            yield f"{side.dtype}: ranges come from {side.accuracy.calibration}."
