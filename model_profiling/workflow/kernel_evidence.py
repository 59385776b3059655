"""Kernel evidence of a run directory, from what its processes left: `kernels.csv` per series and one view."""

from __future__ import annotations

from collections import Counter
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
from model_profiling.etdump import read_etdump
from model_profiling.pipeline.journal import Entry
from model_profiling.pipeline.metrics import evidence_of
from model_profiling.pipeline.schedule import Series, compared, experiment_of, series_of
from model_profiling.pipeline.session import Measured
from model_profiling.pipeline.summary import KernelAnswer
from model_profiling.report.kernel_view import kernel_view, write_kernels_csv

KERNEL_VIEW = "kernel_view.md"


def write_kernel_evidence(measured: Measured) -> tuple[KernelAnswer, ...]:
    """Write `_kernels.csv` for every series that has evidence, `kernel_view.md`, and say what they prove."""
    config, directory = measured.config, measured.directory
    uses: dict[Series, tuple[KernelUse, ...]] = {}
    answers = []
    for series in (one for experiment in config.experiments for one in series_of(experiment)):
        evidence, dump = evidence_of(measured.journal, series), _dump(measured, series)
        if evidence is None and dump is None:
            continue
        uses[series] = _uses(measured, evidence, dump)
        write_kernels_csv(directory.file(series, "_kernels.csv"), config.model.stem, uses[series])
        counted = evidence is not None and evidence.kernels_note is None
        traced = counted and experiment_of(config, series).runner is None
        verdict = sme_verdict(uses[series], traced=traced)
        answers.append(
            KernelAnswer(
                series.experiment,
                series.threads,
                verdict.answer,
                verdict.text,
                _instruction_sets(uses[series]),
            )
        )
    _write_view(measured, uses)
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


def _write_view(measured: Measured, uses: dict[Series, tuple[KernelUse, ...]]) -> None:
    for pair in compared(measured.config):
        if pair.baseline in uses and pair.candidate in uses:
            view = kernel_view(
                uses[pair.candidate],
                uses[pair.baseline],
                title=f"Kernels: {pair.label}",
                names=(str(pair.candidate), str(pair.baseline)),
            )
            files.write_text(measured.directory.path / KERNEL_VIEW, view)
            return
