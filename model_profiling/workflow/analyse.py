"""From dumps to facts and files: read, attribute, pair, advise, write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path

from model_profiling.analysis.run import RunAnalysis, analyse_run
from model_profiling.analysis.sampling import gather_inside
from model_profiling.analysis.series_views import Roofline
from model_profiling.core import files
from model_profiling.core.errors import InputError
from model_profiling.core.files import StrPath, as_path
from model_profiling.core.progress import Progress
from model_profiling.report.analysed import AnalysedRun, analysed
from model_profiling.report.analysis_json import WrittenDump, write_analysis_summary, write_inside_csv
from model_profiling.report.csv_files import write_csv_files
from model_profiling.run import Run, Times, names


def analyse(
    source: StrPath | Sequence[StrPath] | Run,
    *,
    model: StrPath | None = None,
    etrecord: StrPath | None = None,
    times: Times | None = None,
    roofline: Roofline | None = None,
    progress: Progress | None = None,
) -> AnalysedRun:
    """Analyse a run directory, a folder with dumps, one dump or several; nothing is written.

    `model` (.pte) and `etrecord` override what the run holds. Without a program, operators have no shapes,
    cost or source; without a record, no source. `times` is your word on dumps that nothing else speaks for,
    `roofline` a peak to hold operators against, `progress` is told how far the work is.

        run = analyse("out_toy_cnn/runs/xnnpack_fp16/linux")
        run.operators.to_pandas()

    What cannot be used is an `InputError`, a damaged file a `FormatError`; in a folder, damaged dumps are
    left out and named in `run.warnings`.
    """
    run = source if isinstance(source, Run) else open_source(source, times)
    if not run.dumps:
        raise InputError(f"{run.path} holds no .etdump file", "name a folder that dumps were written into")
    named = (None if path is None else as_path(path) for path in (model, etrecord))
    # In a folder, other dumps still count; a dump that the user named must be readable.
    folder = isinstance(source, Run) or (isinstance(source, str | PathLike) and Path(source).is_dir())
    facts = analyse_run(run, run.programs(*named), tolerant=folder, roofline=roofline, progress=progress)
    return analysed(facts)


def open_source(source: StrPath | Sequence[StrPath], times: Times | None = None) -> Run:
    """Open a run directory, or files and the run that contains them."""
    if isinstance(source, Sequence) and not isinstance(source, str):
        return Run.of_files([as_path(path) for path in source], times=times)
    path = as_path(source)
    return Run.open(path, times=times) if path.is_dir() else Run.of_files([path], times=times)


def write_analysis(analysis: RunAnalysis, out: StrPath | None = None) -> tuple[Path, ...]:
    """Write the CSV files of every dump and `analysis_summary.json`; returns every file written.

    Files go beside each dump and the summary into the run directory, or all into the folder `out`.
    """
    out = None if out is None else as_path(out)
    home = analysis.run.path
    stems = Counter(dump.stem for dump in analysis.dumps)
    written = []
    for dump in analysis.dumps:
        folder = out
        if out is None and dump.path.is_relative_to(home):
            files.real_folder(home, dump.path.parent)
        if out is not None and stems[dump.stem] > 1:
            # Dumps with the same name lie in different folders, so their files do too.
            folder = out / dump.path.parent.resolve().relative_to(home.resolve())
        written.append(WrittenDump(dump, write_csv_files(dump, folder)))
    summary = (out or home) / names.ANALYSIS
    write_analysis_summary(summary, analysis, written)
    inside = tuple(_write_inside(analysis, out or home))
    return (*(path for dump in written for path in dump.files.every), *inside, summary)


def _write_inside(analysis: RunAnalysis, home: Path) -> Iterator[Path]:
    """Write the kernels in which operators were sampled, for each sampled series."""
    for found in gather_inside(analysis.run, analysis.series):
        place = names.RunFiles(home, analysis.run.model_name)
        path = place.to_write(place.of_series(found.series, names.INSIDE_CSV))
        write_inside_csv(path, found)
        yield path
