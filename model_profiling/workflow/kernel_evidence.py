"""Kernel evidence of a run directory: `_kernels.csv` per series, one view, and evidence from another run."""

from __future__ import annotations

import re
from pathlib import Path

from model_profiling.analysis.evidence import evidence_record, kernels_of_process, own_kernels
from model_profiling.analysis.kernels import read_kernels_csv, write_kernels_csv
from model_profiling.core import files
from model_profiling.core.errors import InputError, SetupError
from model_profiling.core.records import write_record
from model_profiling.pipeline.measured import Measured
from model_profiling.report.text import render_markdown
from model_profiling.report.tool_files import KernelSection, evidence_of_file, kernel_document
from model_profiling.run import Evidence, Manifest, Run, Times, names
from model_profiling.run.evidence import proving_run
from model_profiling.run.folders import refuse_links_out
from model_profiling.run.manifest import read_manifest
from model_profiling.run.series import Switch, natural_pairs, switch_in_name


def write_kernel_lists(measured: Measured) -> None:
    """Write `_kernels.csv` for every series that has evidence."""
    run_dir = measured.place.path
    for result in measured.manifest.results:
        entry = measured.journal.evidence(result.series)
        dump = run_dir / result.dumps[0] if result.dumps else None
        if entry is not None or dump is not None:
            uses = kernels_of_process(entry, dump, run_dir)
            path = measured.place.of_series(result.series, names.KERNELS_CSV)
            write_kernels_csv(measured.place.to_write(path), measured.manifest.model_stem, uses)


def keep_evidence(run_dir: Path, manifest: Manifest, problem: SetupError | None = None) -> None:
    """Copy evidence from an emulated run of the same program into a run on a CPU without SME2. If there is no
    such run, store the `problem` of the emulation."""
    if not manifest.target.times.are_latencies or manifest.has_sme2 is not False:
        return
    prover = proving_run(run_dir, manifest.model_sha256)
    if prover is not None:
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
    if sections := _sections(run):
        title = f"Kernels: {sections[0].label if len(sections) == 1 else run.model_name}"
        document = kernel_document(sections, title=title)
        files.write_text(run.path / names.KERNEL_VIEW, render_markdown(document))


def kernel_sections(run_dir: Path) -> tuple[KernelSection, ...]:
    """Return the pairs of a run directory that have kernel evidence, from its `_kernels.csv` files. These are
    the run's pairs; without a manifest, names tell which side is SME2 on and which off."""
    if not run_dir.is_dir():
        raise InputError(f"there is no run directory {run_dir}", "name a folder a pipeline wrote into")
    refuse_links_out(run_dir)
    manifest = read_manifest(run_dir)
    known = manifest is not None and not manifest.version_0
    sections = _sections(Run.open(run_dir)) if known else _sections_by_name(run_dir)
    if not sections:
        raise InputError(
            f"{run_dir} has no pair of *{names.KERNELS_CSV} from experiments that are compared",
            "run such a pair, or name the files with --sme2-on and --sme2-off",
        )
    return sections


def _sections(run: Run) -> tuple[KernelSection, ...]:
    sides = {found.series: found for found in own_kernels(run, ()) if found.uses or found.counted}
    return tuple(
        KernelSection(pair.label, sides[pair.candidate], sides[pair.baseline])
        for pair in run.pairs
        if pair.baseline in sides and pair.candidate in sides
    )


def _sections_by_name(folder: Path) -> tuple[KernelSection, ...]:
    sides = {}
    ending = names.KERNELS_CSV
    for path in sorted((*folder.glob(f"*{ending}"), *folder.glob(f"*/*{ending}"))):
        dump = path.with_name(f"{path.name.removesuffix(ending)}{names.DUMP}")
        series, _ = names.series_of_dump(dump, folder)
        sides[series] = evidence_of_file(series, read_kernels_csv(path))
    pairs = natural_pairs((series, _switch(series.experiment)) for series in sides)
    return tuple(KernelSection(pair.label, sides[pair.candidate], sides[pair.baseline]) for pair in pairs)


def _switch(experiment: str) -> Switch | None:
    """Folders of other kits may say only `on` or `off`."""
    words = set(re.split(r"[_\-.]", experiment.lower()))
    return switch_in_name(experiment) or ("on" if "on" in words else "off" if "off" in words else None)
