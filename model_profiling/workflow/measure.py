"""From a config to a reported run directory: measure, gather the evidence, analyse, sum up, report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling import files
from model_profiling.analysis.run import RunAnalysis
from model_profiling.config.reading import ProfileConfig, load_config
from model_profiling.errors import InputError
from model_profiling.pipeline.locking import locked
from model_profiling.pipeline.session import Measured, conclude, measure, refresh, reopen
from model_profiling.progress import Progress, Silent
from model_profiling.report.data import ReportData
from model_profiling.report.markdown import render_markdown
from model_profiling.report.pipeline_summary import summary_document, summary_facts
from model_profiling.report.verdict import verdict
from model_profiling.run import Result, Run
from model_profiling.run.remarks import WarningLine
from model_profiling.targets import Target, open_target
from model_profiling.workflow.analyse import analyse, write_analysis
from model_profiling.workflow.kernel_evidence import keep_evidence, write_kernel_lists, write_kernel_view
from model_profiling.workflow.report import write_report


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A finished run directory and what its report says."""

    data: ReportData
    report: Path
    summary: dict[str, object]
    """What the pipeline summary holds."""
    moved: Path | None = None
    """Where an earlier, finished run is kept now."""

    @property
    def run(self) -> Run:
        return self.data.run

    @property
    def run_dir(self) -> Path:
        return self.data.run.path

    @property
    def analysis(self) -> RunAnalysis | None:
        return self.data.analysis

    @property
    def verdict(self) -> tuple[str, ...]:
        """The report's opening sentences."""
        return verdict(self.data)

    @property
    def warnings(self) -> tuple[WarningLine, ...]:
        """One for each kind, the most important first."""
        return self.data.warnings

    @property
    def failed(self) -> tuple[Result, ...]:
        """The experiments that did not work, with `problem` and `fix`."""
        return tuple(result for result in self.run.results if result.state == "failed")


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
        return _publish(measured, progress)


def _publish(measured: Measured, progress: Progress) -> RunOutcome:
    """Analyse what was measured and write everything that is read of it; then it counts as ended."""
    progress.stage("analysing")
    write_kernel_lists(measured)
    measured = refresh(measured)
    keep_evidence(measured.place.path, measured.manifest)
    run = Run.open(measured.place.path)
    if run.dumps:
        write_analysis(analyse(run, progress=progress))
    conclude(measured)
    return publish_run(measured.place.path, measured.moved)


def publish_run(run_dir: Path, moved: Path | None = None) -> RunOutcome:
    """Write summary, kernel view and report of a run that is measured and analysed."""
    report, data = write_report(run_dir)
    summary = summary_facts(data)
    place = data.run.files
    files.write_json(place.summary("json"), summary)
    files.write_text(place.summary("md"), render_markdown(summary_document(data)))
    write_kernel_view(data.run)
    return RunOutcome(data, report, summary, moved)
