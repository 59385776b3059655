"""Everything that a report shows about a run, from the run and its analysis; every section takes this."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from model_profiling.analysis.coverage import Outlook, outlook_of, sme2_by_operator
from model_profiling.analysis.evidence import NotTested, PlaceEvidence, not_tested
from model_profiling.analysis.findings import Finding
from model_profiling.analysis.matching import InsideSeries
from model_profiling.analysis.pairing import Pairing
from model_profiling.analysis.run import RunAnalysis, gather_inside, pair_answer, proven_of
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config import names
from model_profiling.config.series import Diagnostic, Pair, Series, WarningLine, warning_lines
from model_profiling.core.errors import FormatError
from model_profiling.core.formatting import capitalized, counts, listing
from model_profiling.facts import MeasuredSeries
from model_profiling.runs import Manifest, Run, Times
from model_profiling.runs.records import PairParity
from model_profiling.statistics.measure import LatencySummary
from model_profiling.statistics.speedup import Speedup, Verdict

PARITY = "outputs"
"""The kind of a remark on experiments whose outputs differ."""


@dataclass(frozen=True, slots=True)
class ExperimentReport(MeasuredSeries):
    dumps: SeriesAnalysis | None

    @property
    def summary(self) -> LatencySummary | None:
        """The latency without the tracer or, if unknown, with it."""
        if not self.times.are_latencies:
            return None
        known = (self.latency.end_to_end_ms or self.latency.traced_ms) if self.latency else None
        return known or (self.dumps.latency if self.dumps else None)

    @property
    def problem(self) -> str:
        """Why it did not finish; empty if it did."""
        failed = self.result is not None and self.result.state == "failed"
        return (self.result.problem or "it failed") if failed and self.result else ""


@dataclass(frozen=True, slots=True)
class PairReport:
    """A comparison of two series, with the one answer that every file of the run repeats."""

    pair: Pair
    speedup: Speedup
    with_tracer: bool
    pairing: Pairing | None
    """Operators and categories side by side; None if a side has no dumps."""

    @property
    def label(self) -> str:
        return self.pair.label

    @property
    def comparable(self) -> bool:
        return self.speedup.verdict is not Verdict.NOT_COMPARABLE

    @property
    def side_by_side(self) -> Pairing | None:
        """The pairing, if the two sides may be compared or at least have a ratio."""
        if self.pairing is None or self.pair.not_comparable:
            return None
        return self.pairing if self.comparable or self.speedup.ratio is not None else None


@dataclass(frozen=True, repr=False)
class ReportData:
    """Everything that a report says about a run. No slots, because its properties are cached."""

    title: str
    run: Run
    analysis: RunAnalysis | None
    experiments: tuple[ExperimentReport, ...]
    pairs: tuple[PairReport, ...]
    evidence: tuple[PlaceEvidence, ...]
    inside: tuple[InsideSeries, ...] = ()
    """Sampling results, for each series that was sampled."""

    @property
    def times(self) -> Times:
        return self.run.times

    @property
    def timed(self) -> bool:
        return self.times.are_latencies

    @property
    def model(self) -> str:
        named = self.analysis.model if self.analysis else None
        return self.run.model_name or (Path(named).stem if named else "")

    @property
    def cpu(self) -> str:
        return self.run.manifest.cpu if self.run.manifest else ""

    @property
    def device(self) -> str:
        """A phone's model and chip, or the CPU."""
        before = self.run.manifest.machine.before if self.run.manifest else None
        phone = before.device if before else None
        told = [text for text in (phone.model, phone.soc) if text] if phone else []
        return ", ".join(told) or self.cpu

    @property
    def date(self) -> str:
        return self.run.manifest.started[:16].replace("T", " ") if self.run.manifest else ""

    @property
    def has_sme2(self) -> bool | None:
        """Whether the CPU that the times come from has SME2; None if unknown."""
        return self.run.manifest.has_sme2 if self.run.manifest else None

    @property
    def is_arm(self) -> bool | None:
        """Whether the CPU that ran the program, real or emulated, is Arm; None if unknown."""
        return self.run.manifest.is_arm if self.run.manifest else None

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.analysis.findings if self.analysis else ()

    @cached_property
    def headline(self) -> ExperimentReport | None:
        """The experiment to report if there is no pair: SME2 on if possible, fewest threads."""
        known = [found for found in self.experiments if found.summary or found.dumps]
        return min(
            known,
            key=lambda found: (found.summary is None, *self.run.spoken_order(found.series)),
            default=None,
        )

    @cached_property
    def not_tested(self) -> tuple[NotTested, ...]:
        return not_tested(self.run, self.evidence)

    @cached_property
    def merged(self) -> tuple[str, ...]:
        """Which experiments of a user's config were measured as one, and why."""
        manifest = self.run.manifest
        return tuple(
            f"{listing(merged.names)} {'was' if len(merged.names) == 1 else 'were'} measured once, as "
            f"{merged.experiment}: this CPU ({self.cpu}) has nothing that they switch"
            for merged in (manifest.stands_for if manifest and manifest.config_file else ())
        )

    @cached_property
    def outlook(self) -> Outlook:
        """What runs on SME2, and what SME2 could gain."""
        return outlook_of(self.run, self.analysis, self.evidence)

    def sme2_of(self, series: SeriesAnalysis) -> Mapping[int, str]:
        """For each operator, by its place in `series`: yes, no and why, or not tested."""
        if series.series not in self._sme2:
            switch = self.has_sme2 is not False
            self._sme2[series.series] = sme2_by_operator(series, self.outlook.coverage, can_switch=switch)
        return self._sme2[series.series]

    @cached_property
    def _sme2(self) -> dict[Series, Mapping[int, str]]:
        return {}

    @cached_property
    def remarks(self) -> tuple[Diagnostic, ...]:
        """What a reader should know before trusting the answer."""
        return tuple(_remarks(self))

    @cached_property
    def warnings(self) -> tuple[WarningLine, ...]:
        """The remarks as shown in terminal, report and summary: one line per kind."""
        return warning_lines(self.remarks, self.run.series)

    @property
    def gaps(self) -> tuple[str, ...]:
        """What the report could not show, and why."""
        return tuple(line.text for line in warning_lines(_gaps(self), self.run.series))

    @property
    def facts(self) -> list[tuple[str, str]]:
        manifest = self.run.manifest
        return [fact for fact in _facts(manifest) if fact[1]] if manifest else []

    @property
    def reproduce(self) -> tuple[str, ...]:
        manifest = self.run.manifest
        made = {shlex.join(each.command_line): None for each in (manifest.sessions if manifest else ())}
        if manifest and manifest.config_file and not any(made):
            made = {shlex.join(("sme2prof", "run", manifest.config_file)): None}
        return (*filter(None, made), shlex.join(("sme2prof", "report", self.run.called)))


def report_data(run: Run, analysis: RunAnalysis | None, title: str | None = None) -> ReportData:
    """Gather everything known about `run`; `analysis` is None if it has no dumps."""
    proven = (analysis.proven if analysis else None) or proven_of(run, ())
    if proven.damaged:
        raise proven.damaged
    return ReportData(
        title=title or (run.in_short if run.model_name else capitalized(run.in_short)),
        run=run,
        analysis=analysis,
        experiments=tuple(
            ExperimentReport.of(run, series, dumps=analysis.of(series) if analysis else None)
            for series in run.series
        ),
        pairs=tuple(
            PairReport(pair, answer.speedup, answer.with_tracer, pairing)
            for pair in run.pairs
            for pairing in (analysis.pairing(pair) if analysis else None,)
            for answer in (pair_answer(run, pair, pairing),)
        ),
        evidence=proven.evidence,
        inside=gather_inside(run, analysis.series if analysis else ()),
    )


def _remarks(data: ReportData) -> Iterator[Diagnostic]:
    manifest, metrics = data.run.manifest, data.run.metrics
    for parity in metrics.parity if metrics else ():
        if parity.verdict == "mismatch":
            why = (parity.parity.remarks if parity.parity else "") or parity.reason or "see the report"
            seen = f"{parity.label}: outputs differ beyond rounding ({why})"
            yield Diagnostic(None, PARITY, seen, "find out why before you trust the speed")
    for experiment in data.experiments:
        if experiment.problem:
            fix = experiment.result.fix if experiment.result else None
            yield Diagnostic(experiment.series, "failed", experiment.problem, fix or "")
    if manifest is not None:
        yield from manifest.warnings
        if manifest.unfinished not in (None, "failed"):
            stopped, seen = manifest.why_unfinished, f"the run is {manifest.unfinished}, not finished"
            seen += f": {stopped.problem}" if stopped else ""
            yield Diagnostic(
                None, "unfinished", seen, (stopped and stopped.fix) or "run it again to continue"
            )
    try:
        _ = data.run.journal
    except FormatError as problem:  # the report works without it, but its latencies can no longer be checked
        yield Diagnostic(None, "damaged_journal", problem.problem, problem.fix)
    yield from metrics.stability if metrics and data.timed else ()
    for experiment in data.experiments:
        yield from experiment.dumps.warnings if experiment.dumps else ()


def _gaps(data: ReportData) -> Iterator[Diagnostic]:
    run, analysis = data.run, data.analysis
    if run.manifest is None:
        seen = f"there is no {names.MANIFEST}: machine, versions and settings are unknown"
        yield Diagnostic(None, "no_manifest", seen)
    if run.metrics is None and data.timed:
        seen = f"there is no {names.METRICS}: times come from the dumps, with the event tracer on"
        yield Diagnostic(None, "no_metrics", seen)
    if analysis is None:
        yield Diagnostic(None, "no_dumps", "there are no dumps: operators and categories cannot be shown")
    if not any(place.kernels for place in data.evidence):
        seen = "nothing here shows which kernels ran, so nothing is claimed about SME2"
        yield Diagnostic(None, "no_kernels", seen)
    yield from analysis.warnings if analysis else run.warnings


def _facts(manifest: Manifest) -> Iterator[tuple[str, str]]:
    yield "Program", manifest.model
    yield "Rewritten by --optimize", counts(manifest.rewrites)
    yield "SHA-256", manifest.model_sha256
    if before := manifest.machine.before:
        yield "CPU", f"{before.cpu} ({before.cores} cores, {before.machine})"
        yield "CPU features", " ".join(before.features)
        yield "System", before.os
        yield "Memory", f"{before.memory_bytes / 2**30:.1f} GiB" if before.memory_bytes else ""
        if phone := before.device:
            yield "Phone", ", ".join(filter(None, (phone.model, phone.soc)))
    yield "ExecuTorch", manifest.executorch.version or ""
    yield "ExecuTorch commit", manifest.executorch.sha or ""
    yield "Runner build", manifest.runner.build_id or ""
    yield "Compiler", manifest.runner.compiler or ""
    yield "Kit", manifest.kit_version
    yield "Measured", manifest.started
    yield "Seed of the order", str(manifest.schedule.seed)


# What a report speaks of: which pair and series stand for the run, and whether outputs differ.


def sme2_pair(data: ReportData) -> PairReport | None:
    return next((pair for pair in sme2_pairs(data) if pair.comparable), None)


def headline_pair(data: ReportData) -> PairReport | None:
    """Return the headline comparison: the SME2 one, or else the first."""
    if not data.timed:
        return None
    return sme2_pair(data) or next((pair for pair in data.pairs if pair.comparable), None)


def spoken_of(data: ReportData) -> ExperimentReport | None:
    """The experiment of the first answer: the candidate of the SME2 pair, or else the headline."""
    pair = sme2_pair(data) if data.timed else None
    after = [one for one in data.experiments if pair and one.series == pair.pair.candidate]
    return after[0] if after and after[0].summary else data.headline


def sme2_pairs(data: ReportData) -> list[PairReport]:
    """Return the pairs that differ only in SME2, the headline first."""
    run = data.run
    pairs = [pair for pair in data.pairs if run.switches_sme2(pair.pair)]
    return sorted(pairs, key=lambda pair: (not pair.comparable, run.spoken_order(pair.pair.candidate)))


def headline_series(data: ReportData) -> SeriesAnalysis | None:
    """Return the one series to show: the headline experiment's, or else preferably one with SME2 on."""
    analysed = [found for found in data.experiments if found.dumps]
    first = min(analysed, key=lambda found: (found is not data.headline, found.sme2 is False), default=None)
    return first.dumps if first else None


def mismatched(data: ReportData) -> Iterator[tuple[str, PairParity]]:
    for place in data.evidence:
        for found in place.parity:
            if found.verdict == "mismatch":
                yield place.source, found


def outputs_differ(data: ReportData, pair: PairReport) -> bool:
    """Whether outputs differ by more than rounding; a speedup then means nothing."""
    sides = {pair.pair.baseline, pair.pair.candidate}
    return any({found.baseline, found.candidate} == sides for _, found in mismatched(data))
