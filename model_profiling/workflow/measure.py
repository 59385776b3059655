"""From a config to a reported run directory: measure, collect evidence, analyse, summarise, report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.analysis.run import RunAnalysis, answers_in_short, with_more_evidence
from model_profiling.config import names
from model_profiling.config.new_config import NewConfig, new_config, new_experiments
from model_profiling.config.reading import ProfileConfig, checked_config, load_config, on_target
from model_profiling.config.remarks import WarningLine
from model_profiling.config.settings import Schedule, target_settings
from model_profiling.core import files
from model_profiling.core.errors import InputError
from model_profiling.core.formatting import milliseconds, plural
from model_profiling.core.progress import Progress, Silent
from model_profiling.report.analysis_json import summary_facts
from model_profiling.report.data import ReportData, report_data
from model_profiling.report.html import render_fragment
from model_profiling.report.run_report import run_cell, summary_document
from model_profiling.report.tables import AnalysedRun, analysed
from model_profiling.report.text import render_markdown
from model_profiling.report.verdict import RunAnswers, answers
from model_profiling.runner.features import closure
from model_profiling.runner.features import ladder as features_ladder
from model_profiling.runs import Result, Run
from model_profiling.runs.begin import Start
from model_profiling.runs.evidence import Factors, keep_factors
from model_profiling.runs.figures import Measured, conclude, refresh, reopen
from model_profiling.runs.folders import locked
from model_profiling.runs.open_run import OpenRun
from model_profiling.targets import Target, TargetChoice, open_target
from model_profiling.workflow.analyse import (
    analyse,
    evidence_of,
    keep_evidence,
    lacks_sme2,
    write_analysis,
    write_kernel_lists,
    write_kernel_view,
)
from model_profiling.workflow.report import write_run_report


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A finished run directory and what its report says. In a notebook it shows itself as a short report."""

    data: ReportData
    report: Path
    summary: dict[str, object]
    """The content of the pipeline summary."""
    moved: Path | None = None
    """Where an earlier, finished run was moved to."""

    def __repr__(self) -> str:
        return f"<RunOutcome {self.in_short}>"

    def _repr_html_(self) -> str:
        return render_fragment(run_cell(self.data, self.report))

    @property
    def in_short(self) -> str:
        """Model, place, folder and results."""
        answers = answers_in_short((pair.label, pair.speedup) for pair in self.data.pairs)
        headline = self.data.headline
        if not answers and headline and headline.summary:
            answers = f"{headline.series}: {milliseconds(headline.summary.median)} ms"
        failed = f"; {len(self.failed)} failed" if self.failed else ""
        return f"{self.run.in_short} ({self.run_dir}): {answers or 'no latency'}{failed}"

    @property
    def run(self) -> Run:
        return self.data.run

    @property
    def run_dir(self) -> Path:
        return self.data.run.path

    @property
    def analysis(self) -> AnalysedRun | None:
        """Tables and facts of its dumps; None if it made none."""
        return analysed(self.data.analysis) if self.data.analysis else None

    @property
    def answers(self) -> RunAnswers:
        """What the report begins with."""
        return answers(self.data)

    @property
    def verdict(self) -> tuple[str, ...]:
        """The answers as sentences."""
        return self.answers.sentences

    @property
    def warnings(self) -> tuple[WarningLine, ...]:
        """One line for each kind, the most important first."""
        return self.data.warnings

    @property
    def failed(self) -> tuple[Result, ...]:
        """The experiments that failed, with `problem` and `fix`."""
        return tuple(result for result in self.run.results if result.state == "failed")


@dataclass(frozen=True, slots=True)
class RunOptions(Start):
    """How a run deals with what is there already, and which part of it is done: `resume` continues an
    unfinished one, `force` discards it, `only` names the experiments to measure, `analysis_only` measures
    nothing."""

    analysis_only: bool = False
    factors: Factors | None = None
    """How much SME2 is assumed to speed up operators, kept in the run; None keeps the stored factors."""
    evidence: tuple[Path, ...] = ()
    """Runs of the same program that show what runs on SME2, for a CPU without it; `ssh:HOST` is a machine to
    make one."""


def run_file(
    path: Path,
    options: RunOptions,
    *,
    target: TargetChoice | None = None,
    builtin_runner: bool = False,
    progress: Progress | None = None,
    **asked: float | None,
) -> RunOutcome:
    """Run the config in `path`; `target` and the settings of a schedule in `asked` override its own unless
    they are None or False, and `builtin_runner` replaces its runners."""
    # Analysing again needs neither the model nor the runners, which may be gone.
    config = load_config(path, files=not options.analysis_only, builtin=builtin_runner)
    if target is not None:
        config = on_target(config, target)
    given = {name: value for name, value in asked.items() if value not in (None, False)}
    config = config.model_copy(update={"schedule": config.schedule.model_copy(update=given)})
    return run_config(config, replace(options, config_file=path.resolve()), progress=progress)


def run_config(
    config: ProfileConfig,
    options: RunOptions | None = None,
    *,
    target: Target | None = None,
    progress: Progress | None = None,
) -> RunOutcome:
    options, progress = options or RunOptions(), progress or Silent()
    if options.analysis_only:
        with locked(config.output_root):
            return _publish(reopen(config), options, progress)
    target = target or open_target(config.target.choice)
    (outcome,) = run_together([config], target, options, progress=progress)
    return outcome


def run_together(
    configs: Sequence[ProfileConfig],
    target: Target,
    options: RunOptions,
    *,
    progress: Progress | None = None,
) -> tuple[RunOutcome, ...]:
    """Measure several configs into their output_roots, with all programs taking turns, and analyse each."""
    progress = progress or Silent()
    wanted = options.evidence if target.timings_are_latency else ()  # else its own kernels are shown
    options = replace(options, evidence=_brought_here(wanted, configs, progress))
    for config in configs if options.evidence else ():  # refused before anything is measured
        evidence_of(options.evidence, files.sha256(config.model), config.method)
    with OpenRun([(config, options) for config in configs], target, progress) as runs:
        return tuple(_publish(each, options, progress) for each in runs.measure())


def _brought_here(
    evidence: Sequence[Path], configs: Sequence[ProfileConfig], progress: Progress
) -> tuple[Path, ...]:
    """Return run directories, with those that machines named `ssh:HOST` make of the programs of `configs`."""
    found: list[Path] = []
    for path in evidence:
        if not str(path).startswith("ssh:"):
            found.append(path)
            continue
        from model_profiling.workflow.elsewhere import emulate_on

        found += (emulate_on(str(path).removeprefix("ssh:"), config, progress) for config in configs)
    return tuple(found)


def _publish(measured: Measured, options: RunOptions, progress: Progress) -> RunOutcome:
    """Analyse the measurements and write every output file; then the run counts as ended."""
    manifest, proof = measured.manifest, None
    if options.evidence and lacks_sme2(manifest):
        proof = evidence_of(options.evidence, manifest.model_sha256, manifest.method_run)
    if options.factors is not None:
        keep_factors(measured.place.path, options.factors)
    progress.stage(f"analysing {measured.place.model_stem}")
    if measured.manifest.config_file is None:
        files.write_json(measured.place.path / names.CONFIG, measured.manifest.settings)
    write_kernel_lists(measured.place, measured.manifest, measured.journal)
    measured = refresh(measured, again=False)
    keep_evidence(measured.place.path, measured.manifest, given=proof)
    run = Run.open(measured.place.path)
    analysis = analyse(run, progress=progress) if run.dumps else None
    if analysis is not None:
        write_analysis(analysis)
    conclude(measured)
    return _reported(analysis, measured.place.path, measured.moved)


def republish(run_dir: Path, moved: Path | None = None, analysis: RunAnalysis | None = None) -> RunOutcome:
    """Write every output file of a run again, after something was added to it."""
    run = Run.open(run_dir)
    if analysis is not None:
        analysis = with_more_evidence(analysis, run)
    elif run.dumps:
        analysis = analyse(run)
    if analysis is not None:
        write_analysis(analysis)
    return _reported(analysis, run_dir, moved)


def use_factors(run_dir: Path, factors: Factors) -> None:
    """Store `factors` in a run and rewrite every file that depends on them. A folder of bare dumps stores
    none: without a manifest nothing is projected."""
    run = Run.open(run_dir)
    if run.manifest is None:
        return
    with locked(run_dir):
        keep_factors(run_dir, factors)
        if run.metrics is not None and (run_dir / names.REPORT).is_file():
            republish(run_dir)
        elif (run_dir / names.ANALYSIS).is_file():
            write_analysis(analyse(Run.open(run_dir)))


def _reported(analysis: RunAnalysis | None, run_dir: Path, moved: Path | None) -> RunOutcome:
    data = report_data(Run.open(run_dir), analysis)
    report = write_run_report(data, run_dir / names.REPORT)
    summary = summary_facts(data)
    place = data.run.files
    files.write_json(place.summary("json"), summary)
    files.write_text(place.summary("md"), render_markdown(summary_document(data)))
    write_kernel_view(data.run)
    return RunOutcome(data, report, summary, moved)


# Configs made by `sme2prof profile` and by a sweep's jobs. Both start like `sme2prof config new`; which
# experiments the target's CPU can tell apart is found out when measuring.

ABOUT_LATENCY = ("runs", "warmup", "mode", "rounds", "precision", "budget_s")
"""Options that matter only if latencies are measured."""
LADDER = "ladder"
_UP_TO = "upto_"
_EMULATED_TIMEOUT_S = 3600.0


def make_pair_config(
    target: Target, wanted: NewConfig, root: Path, *, ladder: bool, only_on: bool = False
) -> ProfileConfig:
    """Return the config for one target: SME2 on and off, on alone, or one experiment per rung."""
    raw, wanted = _raw_config(target, wanted, root)
    if not target.timings_are_latency:
        raw["schedule"] = {"timeout_s": _EMULATED_TIMEOUT_S, "sample": bool(wanted.sample)}
    if ladder:
        raw |= _ladder_parts(target, wanted, root)
    elif only_on:
        raw |= {"experiments": new_experiments(wanted, root)[:1], "analysis": {}}
    return checked_config(raw, folder=root)


@dataclass(frozen=True, slots=True)
class RungAsked:
    """One rung of a sweep: `on`, `off`, `ladder`, or a name with the features it disables."""

    name: str
    disable: tuple[str, ...]
    threads: tuple[int, ...]


def make_rung_config(
    target: Target,
    program: Path,
    root: Path,
    rungs: Sequence[RungAsked],
    schedule: Schedule,
    *,
    runs: int,
    warmup: int,
) -> ProfileConfig:
    """Return the config for one target: one experiment per rung, each compared with `on`, or a ladder."""
    threads = tuple(dict.fromkeys(count for rung in rungs for count in rung.threads))
    wanted = NewConfig(model=program, kind=target.platform, output_root=root, threads=threads)
    raw, wanted = _raw_config(target, replace(wanted, runs=runs, warmup=warmup), root)
    raw["schedule"] = schedule.model_dump(mode="json", exclude_unset=True)
    if not target.timings_are_latency:
        given = "timeout_s" in schedule.model_fields_set
        timeout_s = schedule.timeout_s if given else _EMULATED_TIMEOUT_S
        raw["schedule"] = {"timeout_s": timeout_s, "sample": schedule.sample}
    if any(rung.name == LADDER for rung in rungs):
        raw |= _ladder_parts(target, wanted, root)
    else:
        raw |= _rung_parts(new_experiments(wanted, root)[0], wanted.kind, rungs)
    return checked_config(raw, folder=root)


def experiment_of_rung(platform: str, rung: str) -> str:
    """Return the name of a rung's experiment, or the prefix of all experiments of a ladder."""
    own = {"on": "sme2_on", "off": "sme2_off", LADDER: _UP_TO}
    return f"{platform}_{own.get(rung, rung)}"


def _raw_config(target: Target, wanted: NewConfig, root: Path) -> tuple[dict[str, object], NewConfig]:
    """Return what `config new` would write, and the adjusted wishes: without latencies, one run is enough and
    the options about measuring do not apply."""
    if not target.timings_are_latency:
        wanted = replace(wanted, runs=1, warmup=0, mode=None, rounds=None, precision=None, budget_s=None)
    raw = new_config(wanted, root)
    raw |= {"model": str(wanted.model.resolve()), "output_root": str(root.resolve())}
    return raw | {"target": target_settings(target.choice)}, wanted


def _ladder_parts(target: Target, wanted: NewConfig, root: Path) -> dict[str, object]:
    target.prepare()
    rungs = features_ladder(target.facts().features)
    if len(rungs) < 2:
        raise InputError("this CPU has no features that --ladder can switch off", "leave --ladder out")
    pattern = new_experiments(wanted, root)[0]
    # Name each rung by the best feature it still has.
    first = experiment_of_rung(wanted.kind, LADDER)
    rung_names = [f"{first}{rung.left[0] if rung.left else 'neon'}" for rung in rungs]
    experiments = [
        {**pattern, **_switched(name, rung.disable)} for name, rung in zip(rung_names, rungs, strict=True)
    ]
    pairs = [
        _pair(rung_names[place + 1], rung_names[place], threads, f"what {rungs[place].left[0]} buys")
        for place in range(len(rungs) - 1)
        for threads in wanted.threads
    ]
    return {"experiments": experiments, "analysis": {"compare_pairs": pairs}}


def _rung_parts(pattern: dict[str, object], kind: str, rungs: Sequence[RungAsked]) -> dict[str, object]:
    """Return one experiment per rung, and a pair with `on` for each thread count both have."""
    named = {rung.name: experiment_of_rung(kind, rung.name) for rung in rungs}
    experiments = [
        {
            **pattern,
            **_switched(named[rung.name], () if rung.name == "off" else rung.disable),
            **({"sme2": "off"} if rung.name == "off" else {}),
            "threads": list(rung.threads),
        }
        for rung in rungs
    ]
    on = next((rung for rung in rungs if rung.name == "on"), None)
    pairs = [
        _pair(
            named[rung.name],
            named[on.name],
            threads,
            "SME2 on vs off" if rung.name == "off" else f"everything vs {rung.name}",
        )
        for rung in rungs
        if on is not None and rung is not on
        for threads in on.threads
        if threads in rung.threads
    ]
    return {"experiments": experiments, "analysis": {"compare_pairs": pairs}}


def _pair(baseline: str, candidate: str, threads: int, label: str) -> dict[str, object]:
    sides = {"baseline": baseline, "candidate": candidate}
    made = {side: {"experiment": name, "threads": threads} for side, name in sides.items()}
    return {**made, "label": f"{label}, {plural(threads, 'thread')}"}


def _switched(name: str, disable: Sequence[str]) -> dict[str, object]:
    off = bool({"sme2", "sme"} & set(closure(disable)))
    return {"name": name, "sme2": "off" if off else "on", "disable": list(disable)}
