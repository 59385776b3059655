"""From dumps to facts and files: read, attribute, pair, advise, write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from model_profiling.analysis.roofline import Roofline
from model_profiling.analysis.run import RunAnalysis, analyse_run
from model_profiling.errors import InputError
from model_profiling.progress import Progress
from model_profiling.report.analysis_json import WrittenDump, write_analysis_summary
from model_profiling.report.csv_files import write_csv_files
from model_profiling.run import Run, Times, names


def analyse(
    source: str | Path | Sequence[str | Path] | Run,
    *,
    model: str | Path | None = None,
    etrecord: str | Path | None = None,
    times: Times | None = None,
    roofline: Roofline | None = None,
    progress: Progress | None = None,
) -> RunAnalysis:
    """Analyse a run directory, a folder with dumps, one dump or several; nothing is written.

    `model` and `etrecord` override what the run holds. Without a program, operators have no shapes, cost or
    source; without a record, no source. `times` is your word on dumps that nothing else speaks for.
    """
    run = source if isinstance(source, Run) else open_source(source, times)
    if not run.dumps:
        raise InputError(f"{run.path} holds no .etdump file", "name a folder that dumps were written into")
    programs = run.programs(Path(model) if model else None, Path(etrecord) if etrecord else None)
    # In a folder the others still count; a dump that was named must be readable.
    folder = isinstance(source, Run) or (isinstance(source, str | Path) and Path(source).is_dir())
    return analyse_run(run, programs, tolerant=folder, roofline=roofline, progress=progress)


def open_source(source: str | Path | Sequence[str | Path], times: Times | None = None) -> Run:
    """The run that a folder or files are, or lie in."""
    if isinstance(source, str | Path):
        path = Path(source)
        return Run.open(path, times=times) if path.is_dir() else Run.of_files([path], times=times)
    return Run.of_files([Path(path) for path in source], times=times)


def write_analysis(analysis: RunAnalysis, out: Path | None = None) -> tuple[Path, ...]:
    """Write the CSV files of every dump and `analysis_summary.json`; returns every file written.

    Files go beside each dump and the summary into the run directory, or all into `out`.
    """
    home = analysis.run.path
    stems = Counter(dump.stem for dump in analysis.dumps)
    written = []
    for dump in analysis.dumps:
        folder = out
        if out is not None and stems[dump.stem] > 1:
            # Dumps of one name lie in different folders; so do their files.
            folder = out / dump.path.parent.resolve().relative_to(home.resolve())
        written.append(WrittenDump(dump, write_csv_files(dump, folder)))
    summary = (out or home) / names.ANALYSIS
    write_analysis_summary(summary, analysis, written)
    return (*(path for dump in written for path in dump.files.every), summary)
