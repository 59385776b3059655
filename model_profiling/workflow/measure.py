"""From a config to a reported run directory: measure, gather the evidence, analyse, sum up, tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling import files
from model_profiling.analysis.run import RunAnalysis
from model_profiling.config.reading import ProfileConfig, load_config
from model_profiling.errors import InputError
from model_profiling.pipeline.locking import locked
from model_profiling.pipeline.run_directory import Json
from model_profiling.pipeline.session import Measured, conclude, measure, reopen
from model_profiling.pipeline.summary import KernelAnswer, write_summary
from model_profiling.progress import Progress, Silent
from model_profiling.report.markdown import render_markdown
from model_profiling.report.verdict import verdict
from model_profiling.targets import Target, open_target
from model_profiling.workflow.analyse import analyse, write_analysis
from model_profiling.workflow.kernel_evidence import write_kernel_evidence
from model_profiling.workflow.report import REPORT_FILE, gather_report


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A finished run directory: its files' content, and the analysis of its dumps where there are any."""

    run_dir: Path
    measured: Measured
    kernels: tuple[KernelAnswer, ...]
    summary: Json
    analysis: RunAnalysis | None
    report: Path
    verdict: tuple[str, ...]
    """The report's opening sentences."""

    @property
    def failed(self) -> tuple[Json, ...]:
        """The experiments that did not work, with `problem` and `fix`."""
        return tuple(result for result in self.measured.results if result["state"] == "failed")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run deals with what is there already, and which part of it is done."""

    only: frozenset[str] = frozenset()
    resume: bool = False
    force: bool = False
    analysis_only: bool = False
    command_line: Sequence[str] = ()


def run_file(
    path: Path,
    options: RunOptions | None = None,
    *,
    precision: float | None = None,
    progress: Progress | None = None,
) -> RunOutcome:
    """Run the config in `path`; `precision` replaces the config's."""
    # Results outlive what made them: analysing again needs neither the model nor the runners.
    config = load_config(path, files=options is None or not options.analysis_only)
    if precision is not None:
        if not 0 < precision < 1:
            raise InputError(f"a precision of {precision:g} cannot be reached", "give a share such as 0.01")
        schedule = config.schedule.model_copy(update={"precision": precision})
        config = config.model_copy(update={"schedule": schedule})
    return run_config(config, options, config_file=path.resolve(), progress=progress)


def run_config(
    config: ProfileConfig,
    options: RunOptions | None = None,
    *,
    target: Target | None = None,
    config_file: Path | None = None,
    progress: Progress | None = None,
) -> RunOutcome:
    """Measure what `config` asks for into its output_root and analyse it; see `RunOptions`."""
    options, progress = options or RunOptions(), progress or Silent()
    with locked(config.output_root):
        if options.analysis_only:
            measured = reopen(config)
        else:
            measured = measure(
                config,
                target or open_target(config.target.choice),
                only=options.only,
                resume=options.resume,
                force=options.force,
                config_file=config_file,
                command_line=options.command_line,
                progress=progress,
            )
        return _analysed(measured, progress)


def _analysed(measured: Measured, progress: Progress) -> RunOutcome:
    progress.stage("analysing")
    answers = write_kernel_evidence(measured)
    analysis = None
    if any(result["etdump"] for result in measured.results):
        analysis = analyse(measured.directory.path, progress=progress)
        write_analysis(analysis)
    return told(conclude(measured), answers, analysis)


def told(measured: Measured, answers: tuple[KernelAnswer, ...], analysis: RunAnalysis | None) -> RunOutcome:
    """Write the summary and the report of a run that is measured and analysed."""
    run_dir = measured.directory.path
    summary = write_summary(measured, answers)
    data = gather_report(run_dir, analysis=analysis)
    files.write_text(run_dir / REPORT_FILE, render_markdown(data))
    return RunOutcome(run_dir, measured, answers, summary, analysis, run_dir / REPORT_FILE, verdict(data))
