"""Kernel evidence of a run directory, from what its processes left: `kernels.csv` per series and one view."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from model_profiling import files
from model_profiling.analysis.kernels import (
    KernelUse,
    configured_kernels,
    executed_kernels,
    operator_kernels,
    sme_verdict,
)
from model_profiling.analysis.xnntrace import parse_xnntrace
from model_profiling.errors import InputError
from model_profiling.etdump import read_etdump
from model_profiling.pipeline.journal import Entry
from model_profiling.pipeline.metrics import evidence_of
from model_profiling.pipeline.schedule import Series, compared, experiment_of, series_of
from model_profiling.pipeline.session import Measured
from model_profiling.pipeline.summary import KernelAnswer
from model_profiling.report.kernel_view import (
    KernelSection,
    KernelSide,
    kernel_side,
    kernel_view,
    read_kernels_csv,
    write_kernels_csv,
)
from model_profiling.workflow.run_files import Manifest, read_manifest_file, read_metrics_file

KERNEL_VIEW = "kernel_view.md"


def write_kernel_evidence(measured: Measured) -> tuple[KernelAnswer, ...]:
    """Write `_kernels.csv` for every series that has evidence, `kernel_view.md`, and say what they prove."""
    config, directory = measured.config, measured.directory
    sides: dict[Series, KernelSide] = {}
    answers = []
    for series in (one for experiment in config.experiments for one in series_of(experiment)):
        evidence, dump = evidence_of(measured.journal, series), _dump(measured, series)
        if evidence is None and dump is None:
            continue
        uses = _uses(measured, evidence, dump)
        write_kernels_csv(directory.file(series, "_kernels.csv"), config.model.stem, uses)
        counted = evidence is not None and evidence.kernels_note is None
        traced = counted and experiment_of(config, series).runner is None
        sides[series] = KernelSide(str(series), uses, traced)
        verdict = sme_verdict(uses, traced=traced)
        answers.append(
            KernelAnswer(
                series.experiment,
                series.threads,
                verdict.answer,
                verdict.text,
                _instruction_sets(uses),
            )
        )
    _write_view(measured, sides)
    return tuple(answers)


def _instruction_sets(uses: tuple[KernelUse, ...]) -> dict[str, int]:
    return dict(
        Counter(
            use.kernel.isa
            for use in uses
            if use.evidence == "executed"
            and use.kernel.library != "operator"
            and use.kernel.role != "packing"
        )
    )


def _dump(measured: Measured, series: Series) -> Path | None:
    for result in measured.results:
        if (result["experiment"], result["threads"]) == (series.experiment, series.threads):
            return measured.directory.path / str(result["etdump"]) if result["etdump"] else None
    return None


def _uses(measured: Measured, evidence: Entry | None, dump: Path | None) -> tuple[KernelUse, ...]:
    """Executed kernels first, then the operators of the dump, then what a log only configured."""
    called = executed_kernels(evidence.kernels) if evidence else ()
    # Operators are counted over the executions the kernels were counted in: all of the evidence process's
    # own dump, one of a dump made for timing.
    runs = None if evidence is not None and evidence.etdump else 1
    operators = operator_kernels(_delegated_names(dump, runs)) if dump else ()
    configured: tuple[KernelUse, ...] = ()
    if evidence is not None and evidence.log and evidence.log.endswith("_xnntrace.log"):
        log = (measured.directory.path / evidence.log).read_text(encoding="utf-8", errors="replace")
        configured = configured_kernels(kernel.name for kernel in parse_xnntrace(log).configured)
    return (*called, *operators, *configured)


def _delegated_names(dump: Path, runs: int | None) -> list[str]:
    """Names of the delegates' operators, in the last `runs` runs of the dump or in all."""
    table = read_etdump(dump)
    chosen = table.is_delegated
    if runs is not None and chosen.any():
        last = int(table.run_index[chosen].max())
        chosen &= table.run_index > last - runs
    return [str(name) for name in table.text(table.name[chosen])]


def _write_view(measured: Measured, sides: Mapping[Series, KernelSide]) -> None:
    sections = [
        KernelSection(pair.label, sides[pair.candidate], sides[pair.baseline])
        for pair in compared(measured.config)
        if pair.baseline in sides and pair.candidate in sides
    ]
    if sections:
        title = f"Kernels: {sections[0].label if len(sections) == 1 else measured.config.model.stem}"
        files.write_text(measured.directory.path / KERNEL_VIEW, kernel_view(sections, title=title))


def kernel_sections(run_dir: Path) -> tuple[KernelSection, ...]:
    """The pairs of a run directory that have kernel evidence, from its `_kernels.csv` files.

    Pairs are those the run compared; without any, SME2 on and off at each number of threads. The manifest
    says which is which; without one the words `on` and `off` in the experiments' names do.
    """
    manifest = read_manifest_file(run_dir)
    results = _listed(run_dir, manifest) if manifest else _named(run_dir)
    metrics = read_metrics_file(run_dir / "metrics.json")
    asked = [
        (
            one.label,
            one.candidate.experiment,
            one.candidate.threads,
            one.baseline.experiment,
            one.baseline.threads,
        )
        for one in (metrics.comparisons if metrics else ())
    ]
    sections = [
        KernelSection(label, on.side, off.side)
        for label, *names in asked
        for on in results
        for off in results
        if [on.experiment, on.threads, off.experiment, off.threads] == names
    ] or [
        KernelSection(f"{off.experiment} vs {on.experiment}", on.side, off.side)
        for on in results
        for off in results
        if on.sme2 and off.sme2 is False and on.threads == off.threads
    ]
    if not sections:
        raise InputError(
            f"{run_dir} has no pair of *_kernels.csv from experiments that are compared",
            "run such a pair, or name the files with --sme2-on and --sme2-off",
        )
    return tuple(sections)


@dataclass(frozen=True, slots=True)
class _Evidence:
    """One `_kernels.csv` and the series it belongs to."""

    experiment: str
    threads: int | None
    sme2: bool | None
    side: KernelSide


def _listed(run_dir: Path, manifest: Manifest) -> list[_Evidence]:
    found = []
    for result in manifest.results:
        if result.kernels and (run_dir / result.kernels).is_file():
            name = f"{result.experiment} t{result.threads}" if result.threads else result.experiment
            side = KernelSide(name, read_kernels_csv(run_dir / result.kernels), result.counted_kernels)
            found.append(_Evidence(result.experiment, result.threads, result.sme2_left_on, side))
    return found


def _named(run_dir: Path) -> list[_Evidence]:
    found = []
    for path in sorted(run_dir.glob("*/*_kernels.csv")):
        experiment = path.parent.name
        words = set(re.split(r"[_\-.]", experiment.lower()))
        threads = re.search(r"_t(\d+)_kernels\.csv$", path.name)
        name = f"{experiment} t{threads[1]}" if threads else experiment
        sme2 = True if "on" in words else False if "off" in words else None
        side = kernel_side(name, read_kernels_csv(path))
        found.append(_Evidence(experiment, int(threads[1]) if threads else None, sme2, side))
    return sorted(found, key=lambda one: (one.experiment, one.threads or 0))
