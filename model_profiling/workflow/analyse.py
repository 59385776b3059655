"""From dumps to facts and files: read, attribute, pair, advise, write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from model_profiling.analysis.advice import advise
from model_profiling.analysis.pairing import Pairing, pair_series
from model_profiling.analysis.roofline import Roofline
from model_profiling.analysis.run import RunAnalysis
from model_profiling.analysis.series import SeriesAnalysis, series_of
from model_profiling.analysis.sources import ProgramView
from model_profiling.analysis.summary import DumpAnalysis, DumpContext, analyse_dump
from model_profiling.errors import FormatError
from model_profiling.etdump import read_etdump
from model_profiling.program import EtRecord, Program, read_etrecord, read_program
from model_profiling.progress import Progress, Silent
from model_profiling.report.analysis_json import SUMMARY_FILE, WrittenDump, write_analysis_summary
from model_profiling.report.csv_files import write_csv_files
from model_profiling.workflow.dumps import FoundDumps, find_dumps

_Read = TypeVar("_Read")

_UNUSUAL = 0.2
"""How far the first dump's mean may lie from the median of all rounds before that is said."""


def analyse(
    source: str | Path | Sequence[str | Path],
    *,
    model: str | Path | None = None,
    etrecord: str | Path | None = None,
    roofline: Roofline | None = None,
    progress: Progress | None = None,
) -> RunAnalysis:
    """Analyse a run directory, a folder with dumps, one dump or several; nothing is written.

    `model` and `etrecord` override what the directory says. Without a program, operators have no shapes,
    cost or source; without a record, no source.
    """
    found = find_dumps(
        Path(source) if isinstance(source, str | Path) else [Path(path) for path in source],
        model=Path(model) if model is not None else None,
        etrecord=Path(etrecord) if etrecord is not None else None,
    )
    programs = Programs(strict=model is not None or etrecord is not None)
    shown = progress or Silent()
    shown.stage("analysing dumps")
    analysed: list[DumpAnalysis] = []
    damaged: list[FormatError] = []
    for done, context in enumerate(found.dumps):
        shown.advance(done, len(found.dumps), context.etdump.name)
        try:
            analysed.append(programs.analysed(context))
        except FormatError as problem:
            damaged.append(problem)
    # In a folder the others still count; a dump that was named, or the only one, must be readable.
    if damaged and (not analysed or _named(source)):
        raise damaged[0]
    series = tuple(_series(analysed))
    dumps = tuple(one.first for one in series)
    pairings = tuple(_pairings(found, series))
    first = dumps[0]
    return RunAnalysis(
        run_dir=found.run_dir,
        model=first.model,
        etrecord=first.etrecord,
        dumps=dumps,
        series=series,
        pairings=pairings,
        findings=advise(series, pairings, roofline),
        warnings=(
            *found.warnings,
            *programs.warnings,
            *(f"{problem.problem}; the other dumps are analysed without it" for problem in damaged),
        ),
    )


def _named(source: str | Path | Sequence[str | Path]) -> bool:
    """Whether files were named, rather than a folder that holds them."""
    return not (isinstance(source, str | Path) and Path(source).is_dir())


def write_analysis(analysis: RunAnalysis, out: Path | None = None) -> tuple[Path, ...]:
    """Write the CSV files of every dump and `analysis_summary.json`; returns every file written.

    Files go beside each dump and the summary into the run directory, or all into `out`.
    """
    named = Counter(dump.stem for dump in analysis.dumps)
    written = []
    for dump in analysis.dumps:
        folder = out
        if out is not None and named[dump.stem] > 1:
            # Dumps of one name lie in different folders; so do their files.
            folder = out / dump.etdump.parent.resolve().relative_to(analysis.run_dir.resolve())
        written.append(WrittenDump(dump, write_csv_files(dump, folder)))
    summary = (out or analysis.run_dir) / SUMMARY_FILE
    write_analysis_summary(summary, analysis, written)
    return (*(path for one in written for path in one.files.every), summary)


class Programs:
    """Programs and records, each read once; a damaged one that was not asked for is only a warning."""

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self._programs: dict[Path, Program | None] = {}
        self._records: dict[Path, EtRecord | None] = {}
        self.warnings: list[str] = []

    def analysed(self, context: DumpContext) -> DumpAnalysis:
        program = self._program(context.model)
        record = self._record(context.etrecord) if program else None
        return analyse_dump(read_etdump(context.etdump), context, ProgramView(program, record))

    def _program(self, path: Path | None) -> Program | None:
        if path is not None and path not in self._programs:
            self._programs[path] = self._tried(read_program, path)
        return self._programs[path] if path is not None else None

    def _record(self, path: Path | None) -> EtRecord | None:
        if path is not None and path not in self._records:
            self._records[path] = self._tried(read_etrecord, path)
        return self._records[path] if path is not None else None

    def _tried(self, read: Callable[[Path], _Read], path: Path) -> _Read | None:
        try:
            return read(path)
        except FormatError as problem:
            if self._strict:
                raise
            self.warnings.append(f"{problem.problem}; the analysis goes on without it")
            return None


def _series(analysed: Sequence[DumpAnalysis]) -> Iterator[SeriesAnalysis]:
    """The dumps of each experiment and thread count, one after another by round."""
    series: dict[tuple[str, int | None], list[DumpAnalysis]] = {}
    alone: list[list[DumpAnalysis]] = []
    for dump in analysed:
        members = series.setdefault((dump.experiment, dump.threads), [])
        if any(other.round == dump.round for other in members):
            # Two dumps that only share a name are not rounds of one experiment.
            alone.append([dump])
        else:
            members.append(dump)
    for members in (*series.values(), *alone):
        yield _warned(series_of(sorted(members, key=lambda dump: dump.round)))


def _warned(series: SeriesAnalysis) -> SeriesAnalysis:
    """Files hold the first round's means; where they are not what is typical, the dump says so."""
    first, typical = series.first, series.latency.median
    if not series.timings_are_latency or abs(first.e2e_ms - typical) <= _UNUSUAL * typical:
        return series
    said = (
        f"its mean of {first.e2e_ms:.3f} ms is far from the median of all rounds, {typical:.3f} ms: slow "
        "runs weigh on its CSV files and on per_etdump; reports show medians"
    )
    first = replace(first, warnings=(*first.warnings, said))
    return replace(series, rounds=(first, *series.rounds[1:]))


def _pairings(found: FoundDumps, series: Sequence[SeriesAnalysis]) -> Iterator[Pairing]:
    """The pairs the run's config asks for; without any, SME2 off against on at each thread count."""
    for label, ours, theirs in _wanted(found, series) or _on_and_off(series):
        common = {dump.round for dump in ours.rounds} & {dump.round for dump in theirs.rounds}
        if common:
            yield pair_series(_only(ours, common), _only(theirs, common), label=label)


def _only(series: SeriesAnalysis, rounds: set[int]) -> SeriesAnalysis:
    chosen = [dump for dump in series.rounds if dump.round in rounds]
    return series if len(chosen) == len(series.rounds) else series_of(chosen)


_Chosen = tuple[str, SeriesAnalysis, SeriesAnalysis]


def _wanted(found: FoundDumps, series: Sequence[SeriesAnalysis]) -> list[_Chosen]:
    return [
        (pair.label, ours, theirs)
        for pair in found.wanted_pairs
        for ours in series
        for theirs in series
        if pair.fits(ours.experiment, ours.threads, theirs.experiment, theirs.threads)
    ]


def _on_and_off(series: Sequence[SeriesAnalysis]) -> list[_Chosen]:
    return [
        (f"{ours.experiment} vs {theirs.experiment}", ours, theirs)
        for ours in series
        for theirs in series
        if ours.sme2 is False and theirs.sme2 and ours.threads == theirs.threads
    ]
