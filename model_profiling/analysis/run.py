"""Analysis of a whole run: its series, the pairs compared in it, and its findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from model_profiling.analysis.causes import avoidable, matrix, sme2
from model_profiling.analysis.causes.outside import outside
from model_profiling.analysis.coverage import Sme2Coverage, coverage_of
from model_profiling.analysis.evidence import PlaceEvidence, gather_evidence
from model_profiling.analysis.findings import Finding, Free, SeriesCase, identities
from model_profiling.analysis.matching import InsideSeries, inside_series
from model_profiling.analysis.operators import DumpAnalysis, analyse_dump
from model_profiling.analysis.pairing import Pairing, pair_series
from model_profiling.analysis.series import SeriesAnalysis, series_of
from model_profiling.config.series import Diagnostic, Pair, Series
from model_profiling.core.errors import FormatError
from model_profiling.core.formatting import plural
from model_profiling.core.stdio import current_progress
from model_profiling.etdump.reader import read_timed
from model_profiling.runner.samples import Samples
from model_profiling.runs.folders import Programs
from model_profiling.runs.journal import Entry
from model_profiling.runs.records import PairSpeedup, read_samples
from model_profiling.runs.run import Run
from model_profiling.statistics.speedup import Speedup, no_answer

_IN_SHORT = 2


@dataclass(frozen=True, slots=True)
class Proven:
    """Evidence about a run, gathered once for its findings, report and JSON."""

    evidence: tuple[PlaceEvidence, ...]
    damaged: FormatError | None
    """Why there is no evidence: one of its files cannot be read."""
    coverage: Sme2Coverage


@dataclass(frozen=True)
class RunAnalysis:
    """The facts of a run: what its dumps say, series by series and pair by pair."""

    run: Run
    series: tuple[SeriesAnalysis, ...]
    """Each with all its rounds together; answers come from these."""
    pairings: tuple[Pairing, ...]
    findings: tuple[Finding, ...]
    damaged: tuple[FormatError, ...]
    """Errors of dumps that cannot be read, where others can."""
    warnings: tuple[Diagnostic, ...]
    """About the run as a whole; each dump has its own."""
    proven: Proven | None = field(default=None, repr=False)
    """What the run's evidence says; None if it was not gathered."""

    @property
    def model(self) -> str | None:
        """The program that explained the operators; None if there is none."""
        graph = next((series.graph for series in self.series if series.graph), None)
        return graph.program.source if graph else None

    @property
    def etrecord(self) -> str | None:
        record = next((series.graph.record for series in self.series if series.graph), None)
        return record.source if record else None

    def __repr__(self) -> str:
        operators = max((len(series.operators) for series in self.series), default=0)
        known = f"{'; '.join(series.name for series in self.series)}: {plural(operators, 'operator')}"
        answers = (pair_answer(self.run, pair, self.pairing(pair)) for pair in self.run.pairs)
        short = answers_in_short((answer.label, answer.speedup) for answer in answers)
        return f"<{type(self).__name__} {self.run.in_short}: {short or known}>"

    def pairing(self, pair: Pair) -> Pairing | None:
        return self._by_sides.get((pair.baseline, pair.candidate))

    def of(self, series: Series) -> SeriesAnalysis | None:
        return self._by_series.get(series)

    @cached_property
    def _by_sides(self) -> dict[tuple[Series, Series], Pairing]:
        return {(pairing.baseline.series, pairing.candidate.series): pairing for pairing in self.pairings}

    @cached_property
    def _by_series(self) -> dict[Series, SeriesAnalysis]:
        return {analysed.series: analysed for analysed in self.series}


def answers_in_short(answers: Iterable[tuple[str, Speedup]]) -> str:
    """The first answers in one line; empty if there are none."""
    every = [f"{label}: {speedup.in_short}" for label, speedup in answers]
    more = f"; and {len(every) - _IN_SHORT} more" if len(every) > _IN_SHORT else ""
    return f"{'; '.join(every[:_IN_SHORT])}{more}"


def pair_answer(run: Run, pair: Pair, pairing: Pairing | None) -> PairSpeedup:
    """The answer for `pair`: the run's own, else the one from its dumps, else why there is none."""
    if stored := run.comparison(pair):
        return stored
    found = pairing.e2e if pairing else no_answer(pair.not_comparable or "")
    return PairSpeedup(pair.label, pair.baseline, pair.candidate, found, with_tracer=pairing is not None)


def analyse_run(run: Run, programs: Programs, *, tolerant: bool = True) -> RunAnalysis:
    """Read and analyse every dump of `run`. Leave out damaged ones if `tolerant` and others can be read."""
    current_progress().stage("analysing dumps")
    analysed: list[DumpAnalysis] = []
    damaged: list[FormatError] = []
    journaled = _traced_entries(run)
    for done, dump in enumerate(run.dumps):
        current_progress().advance(done, len(run.dumps), dump.path.name)
        try:
            graph = programs.explaining(dump.path)
            table = read_timed(dump.path)
            found = analyse_dump(table, dump, graph, proven=programs.ran(graph))
            analysed.append(_with_interruptions(found, journaled.get(dump.path)))
        except FormatError as problem:
            damaged.append(problem)
    if damaged and not (analysed and tolerant):
        raise damaged[0]
    series = tuple(_series(run, analysed))
    pairings = tuple(_pairings(run, series))
    proven = proven_of(run, series)
    return RunAnalysis(
        run=run,
        series=series,
        pairings=pairings,
        findings=findings_of(run, series, pairings, proven.coverage),
        proven=proven,
        damaged=tuple(damaged),
        warnings=(
            *run.warnings,
            *programs.warnings,
            *_unexplained(series),
            *(
                Diagnostic(None, "damaged_dump", problem.problem, f"{problem.fix}; the others are analysed")
                for problem in damaged
            ),
        ),
    )


def proven_of(run: Run, series: Sequence[SeriesAnalysis]) -> Proven:
    whole, damaged = run.whole, None
    evidence: tuple[PlaceEvidence, ...] = ()
    try:
        evidence = gather_evidence(whole, series)
    except FormatError as problem:
        damaged = problem  # reports name the damaged file; the dumps can be analysed without it
    return Proven(evidence, damaged, coverage_of(whole, evidence, series))


def _unexplained(series: Sequence[SeriesAnalysis]) -> Iterator[Diagnostic]:
    graphs = [found.graph for found in series if found.graph]
    if not graphs:
        seen = "the program (.pte) was not found, so shapes, cost and place in the model are not known"
        yield Diagnostic(None, "no_program", seen)
    elif not any(graph.record for graph in graphs):
        seen = "the record (.etrecord) was not found, so modules and source lines are not known"
        yield Diagnostic(None, "no_record", seen)


def _traced_entries(run: Run) -> dict[Path, Entry]:
    """The journal's entry of each dump; none if the journal is missing or damaged, which is reported
    elsewhere."""
    try:
        entries = run.whole.journal.entries() if run.whole.journal else ()
    except FormatError:
        return {}
    return {run.whole.path / entry.etdump: entry for entry in entries if entry.etdump and entry.launch}


def _with_interruptions(found: DumpAnalysis, entry: Entry | None) -> DumpAnalysis:
    """Add which runs other programs disturbed, and what CPU time they took."""
    inferences = entry.inferences if entry else None
    numbers = found.attribution.numbers - found.dump.warmup_runs
    if inferences is None or not inferences.cpu or sum(map(len, inferences.cpu)) <= numbers.max(initial=-1):
        return found
    cpu = np.concatenate([np.asarray(turn, np.int64) for turn in inferences.cpu])[numbers]
    quiet = np.concatenate([inferences.quiet(turn) for turn in range(len(inferences.cpu))])[numbers]
    return replace(found, cpu_ns=cpu if found.series.threads == 1 else None, quiet=quiet)


def _series(run: Run, analysed: Sequence[DumpAnalysis]) -> Iterator[SeriesAnalysis]:
    members: dict[Series, list[DumpAnalysis]] = {}
    for dump in analysed:
        members.setdefault(dump.series, []).append(dump)
    for series, rounds in members.items():
        latency = run.metrics.latency(series) if run.metrics and rounds[0].times.are_latencies else None
        in_order = sorted(rounds, key=lambda dump: dump.dump.round)
        yield series_of(in_order, latency, series.among(run.series))


def _pairings(run: Run, series: Sequence[SeriesAnalysis]) -> Iterator[Pairing]:
    """The run's pairs that have dumps of the same rounds, or launches, on both sides."""
    known = {found.series: found for found in series}
    for pair in run.pairs:
        baseline, candidate = known.get(pair.baseline), known.get(pair.candidate)
        if baseline is None or candidate is None:
            continue
        ours, theirs = ({dump.dump.round for dump in side.rounds} for side in (baseline, candidate))
        if common := ours & theirs:
            sides = _only(baseline, common), _only(candidate, common)
            answer = run.comparison(pair)
            yield pair_series(*sides, label=pair.label, not_comparable=pair.not_comparable, answer=answer)


def _only(series: SeriesAnalysis, rounds: set[int]) -> SeriesAnalysis:
    chosen = [dump for dump in series.rounds if dump.dump.round in rounds]
    return series if len(chosen) == len(series.rounds) else series_of(chosen, series.measured)


def findings_of(
    run: Run, series: Sequence[SeriesAnalysis], pairings: Sequence[Pairing], coverage: Sme2Coverage
) -> tuple[Finding, ...]:
    manifest = run.whole.manifest
    found = advise(
        series,
        pairings,
        about_time=manifest is None or manifest.is_arm is not False,
        coverage=coverage,
        executorch=(manifest.executorch.version or "") if manifest else "",
    )
    return tuple(_once(run, found, pairings))


def advise(
    series: Sequence[SeriesAnalysis], pairings: Sequence[Pairing] = (), **known: Any
) -> tuple[Finding, ...]:
    """All findings of series and pairs, first what could bring most; `known` are fields of `SeriesCase`.

    The gain is Amdahl's bound on measured time. Where times are not latencies, or not of a CPU the advice is
    for, findings describe structure and have no gain: they are ordered by the work they are about.
    """
    every = {each.series: each for each in series}
    switched: dict[Series, list[Pairing]] = {}
    for pairing in pairings:
        if pairing.compares_sme2:
            switched.setdefault(pairing.candidate.series, []).append(pairing)
    found = [finding for each in series for finding in _in_case(SeriesCase(each, every, switched, **known))]
    return tuple(sorted(found, key=lambda finding: finding.order))


def _in_case(case: SeriesCase) -> Iterator[Finding]:
    """Each cause gets the operators that earlier ones left, so that bounds do not overlap."""
    free: Free = case.series.operators
    for cause in CAUSES:
        if finding := cause(case, free):
            yield finding
            taken = identities(finding.operators)
            free = [operator for operator in free if operator.identity not in taken]
    for observe in OBSERVATIONS:
        if finding := observe(case, free):
            yield finding


def _once(run: Run, findings: Sequence[Finding], pairings: Sequence[Pairing]) -> Iterator[Finding]:
    """Each cause once, in the series mentioned first; what only a baseline shows is already solved."""
    solved = {pairing.baseline.series for pairing in pairings if pairing.comparable}
    solved -= {pairing.candidate.series for pairing in pairings}
    alike: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.found_in.series not in solved:
            alike.setdefault(finding.id, []).append(finding)

    def order(finding: Finding) -> tuple[object, ...]:
        return finding.max_gain_pct is None, *run.spoken_order(finding.found_in.series)

    chosen = [min(members, key=order) for members in alike.values()]
    yield from sorted(chosen, key=lambda finding: finding.order)


Cause = Callable[[SeriesCase, Free], Finding | None]

CAUSES: tuple[Cause, ...] = (
    sme2.sme2_slower,
    sme2.sme2_no_faster,
    avoidable.same_each_time,
    avoidable.cancelling_transposes,
    matrix.cache_copies,
    matrix.unused_scores,
    outside,
    avoidable.layout_changes,
    avoidable.conversions,
    matrix.depthwise_as_igemm,
    avoidable.copies,
    matrix.matrix_bound,
)
"""Causes of lost time. An earlier cause takes its operators from later ones."""

OBSERVATIONS: tuple[Cause, ...] = (matrix.precision_not_as_asked, sme2.wrong_layer_norms, sme2.misses_sme2)
"""What takes no operators from others: nothing bounds it, or it is about the whole."""


def gather_inside(run: Run, analysed: Sequence[SeriesAnalysis]) -> tuple[InsideSeries, ...]:
    """Sampling results of each sampled series; a file that cannot be read affects only its series."""
    known = {found.series: found for found in analysed}
    found = []
    for series in run.series:
        try:
            samples = read_samples(run.path, run.result(series))
        except FormatError as damaged:
            nothing = Samples(hz=1, executions=0, threads=0, taken=0, unavailable=damaged.problem)
            found.append(inside_series(series, nothing, None))
            continue
        if samples is not None:
            found.append(inside_series(series, samples, known.get(series)))
    return tuple(found)
