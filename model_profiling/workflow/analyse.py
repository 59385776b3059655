"""From dumps to facts and files: read, attribute, pair, advise, write."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from os import PathLike
from pathlib import Path

from model_profiling.analysis.evidence import evidence_record, kernels_of_process, own_kernels
from model_profiling.analysis.kernels import write_kernels_csv
from model_profiling.analysis.run import RunAnalysis, analyse_run
from model_profiling.config import names
from model_profiling.core import files
from model_profiling.core.errors import InputError, SetupError
from model_profiling.core.files import StrPath, as_path
from model_profiling.core.records import write_record
from model_profiling.report.analysis_json import analysis_summary
from model_profiling.report.csv_files import write_csv_files
from model_profiling.report.data import ReportData, report_data
from model_profiling.report.document import render_markdown
from model_profiling.report.run_report import KernelSection, kernel_document
from model_profiling.report.tables import AnalysedRun
from model_profiling.runs import Evidence, Manifest, Run, Times
from model_profiling.runs.journal import Journal
from model_profiling.runs.records import proving_run


def analyse(
    source: StrPath | Sequence[StrPath] | Run,
    *,
    model: StrPath | None = None,
    etrecord: StrPath | None = None,
    times: Times | None = None,
) -> AnalysedRun:
    """Analyse a run directory, a folder with dumps, one dump or several; nothing is written.

    `model` (.pte) and `etrecord` override what the run holds. Without a program, operators have no shapes,
    cost or source; without a record, no source. `times` is your word on dumps that nothing else speaks for.

        run = analyse("out_toy_cnn/runs/xnnpack_fp16/linux")
        run.operators.to_pandas()

    What cannot be used is an `InputError`, a damaged file a `FormatError`; in a folder, damaged dumps are
    left out and named in `run.warnings`.
    """
    if isinstance(source, Run):
        run = source
    elif isinstance(source, Sequence) and not isinstance(source, str):
        run = Run.of_files([as_path(path) for path in source], times=times)
    else:
        path = as_path(source)
        run = Run.open(path, times=times) if path.is_dir() else Run.of_files([path], times=times)
    if not run.dumps:
        raise InputError(f"{run.path} contains no .etdump file", "give a folder with dumps")
    named = (None if path is None else as_path(path) for path in (model, etrecord))
    # In a folder, other dumps still count; a dump that the user named must be readable.
    folder = isinstance(source, Run) or (isinstance(source, str | PathLike) and Path(source).is_dir())
    facts = analyse_run(run, run.programs(*named), tolerant=folder)
    return AnalysedRun(**{field.name: getattr(facts, field.name) for field in fields(facts)})


def write_analysis(analysis: RunAnalysis, out: StrPath | None = None) -> tuple[Path, ...]:
    """Write the CSV files of every series and `analysis_summary.json`; returns every file written.

    Files go beside the first dump of each and the summary into the run directory, or all into `out`.
    """
    return write_summary(report_data(analysis.run, analysis), analysis, out)[0]


def write_summary(
    data: ReportData, analysis: RunAnalysis, out: StrPath | None = None
) -> tuple[tuple[Path, ...], dict[str, object]]:
    """Write the files of `write_analysis`; return them, and the content of the summary."""
    out = None if out is None else as_path(out)
    home = analysis.run.path
    stems = Counter(series.first.stem for series in analysis.series)
    written = []
    for series in analysis.series:
        folder, dump = out, series.first
        if out is not None and stems[dump.stem] > 1:
            # Dumps with the same name lie in different folders, so their files do too.
            folder = out / dump.path.parent.resolve().relative_to(home.resolve())
        written.append(write_csv_files(series, data.sme2_of(series), folder))
    path, summary = (out or home) / names.ANALYSIS, analysis_summary(data, analysis, written)
    files.write_json(path, summary)
    return (*itertools.chain(*written), path), summary


# Kernel evidence of a run directory: `_kernels.csv` per series, one view, and evidence from another run.


def write_kernel_lists(place: names.RunFiles, manifest: Manifest, journal: Journal) -> None:
    """Write `_kernels.csv` for every series that has evidence."""
    for result in manifest.results:
        entry = journal.evidence(result.series)
        dump = place.path / result.dumps[0] if result.dumps else None
        if entry is not None or dump is not None:
            uses = kernels_of_process(entry, dump, place.path)
            path = place.of_series(result.series, names.KERNELS_CSV)
            write_kernels_csv(path, manifest.model_stem, uses)


def evidence_of(given: Sequence[Path], sha256: str, method: str | None) -> Evidence:
    """Return what the first fitting run in `given` proved about a method of the program with this SHA-256;
    raise an error that says why none fits."""
    problems = []
    for path in given:
        try:
            return _evidence_in(path, sha256, method)
        except InputError as problem:
            problems.append(problem)
    raise problems[-1]


def _evidence_in(path: Path, sha256: str, method: str | None) -> Evidence:
    run = Run.open(path)
    manifest = run.manifest
    if manifest is None or not manifest.model_sha256:
        raise InputError(f"{path} does not say which program it ran", "name a run directory of this kit")
    name = Path(manifest.model).name
    if manifest.model_sha256 != sha256:
        other = f"{name}, SHA-256 {manifest.model_sha256[:12]}, not {sha256[:12]}"
        raise InputError(
            f"{path} is a run of another program ({other})",
            "profile a copy of this .pte file there: two exports of one model are two programs",
        )
    if method and manifest.method not in ("", method):
        raise InputError(f"{path} ran the method {manifest.method}, not {method}", "name a run of that")
    if run.evidence is not None and not run.evidence.problem:
        return run.evidence
    if run.times is not Times.EMULATED or not manifest.has_ended:
        raise InputError(
            f"{path} is not a finished emulated run: it does not show what runs on SME2",
            f"on a Linux machine run `sme2prof profile {name} --target emulated`, and name its run directory",
        )
    return evidence_record(run)


def lacks_sme2(manifest: Manifest) -> bool:
    """Whether it has latencies of a CPU without SME2, so that another run has to show what SME2 runs."""
    return manifest.target.times.are_latencies and manifest.has_sme2 is False


def keep_evidence(
    run_dir: Path, manifest: Manifest, problem: SetupError | None = None, *, given: Evidence | None = None
) -> None:
    """Copy evidence from an emulated run of the same program into a run on a CPU without SME2: what is
    `given`, else that of a run beside it. If there is no such run, store the `problem` of the emulation."""
    if not lacks_sme2(manifest):
        return
    prover = proving_run(run_dir, manifest)
    if given is not None:
        write_record(run_dir / names.EVIDENCE, given)
    elif prover is not None:
        write_record(run_dir / names.EVIDENCE, evidence_record(Run.open(prover)))
    elif problem is not None:
        missing = Evidence(
            model_sha256=manifest.model_sha256,
            place="emulated",
            cpu="",
            times=Times.EMULATED,
            problem=problem.problem,
            fix=problem.fix,
        )
        write_record(run_dir / names.EVIDENCE, missing)


def write_kernel_view(run: Run) -> None:
    """Write `kernel_view.md` if any pair has evidence on both sides."""
    sides = {one.series: one for one in own_kernels(run, ()) if one.uses or one.counted}
    sections = tuple(
        KernelSection(pair.label, sides[pair.candidate], sides[pair.baseline])
        for pair in run.pairs
        if pair.baseline in sides and pair.candidate in sides
    )
    if sections:
        title = f"Kernels: {sections[0].label if len(sections) == 1 else run.model_name}"
        document = kernel_document(sections, title=title)
        files.write_text(run.path / names.KERNEL_VIEW, render_markdown(document))
