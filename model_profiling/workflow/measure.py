"""From a config to a reported run directory: measure, collect evidence, analyse, summarise, report."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from model_profiling.analysis.run import answers_in_short
from model_profiling.config import names
from model_profiling.config.reading import load_config, on_target
from model_profiling.config.series import WarningLine
from model_profiling.config.settings import (
    AnalysisSettings,
    ComparePair,
    Experiment,
    Inputs,
    ProfileConfig,
    Schedule,
    Side,
)
from model_profiling.config.sweep import LADDER, OFF, ON
from model_profiling.core import files
from model_profiling.core.errors import InputError, SetupError
from model_profiling.core.formatting import milliseconds, plural
from model_profiling.core.records import write_record
from model_profiling.core.safe_read import stays_inside
from model_profiling.core.stdio import current_progress
from model_profiling.report.analysis_json import summary_facts
from model_profiling.report.data import ReportData, report_data
from model_profiling.report.document import render_markdown
from model_profiling.report.run_report import run_document, summary_document
from model_profiling.report.tables import AnalysedRun
from model_profiling.report.verdict import RunAnswers, answers
from model_profiling.runner.features import closure
from model_profiling.runner.features import ladder as features_ladder
from model_profiling.runs import Evidence, Result, Run
from model_profiling.runs.begin import Start, reopen
from model_profiling.runs.figures import Measured, concluded
from model_profiling.runs.folders import locked
from model_profiling.runs.measure import measure_runs
from model_profiling.targets import Target, TargetChoice, open_target
from model_profiling.targets.remote.shell import Shell, last_line
from model_profiling.targets.remote.ssh import SshLink
from model_profiling.workflow.analyse import (
    analyse,
    evidence_of,
    keep_evidence,
    lacks_sme2,
    write_kernel_lists,
    write_kernel_view,
    write_summary,
)
from model_profiling.workflow.report import write_page

if TYPE_CHECKING:
    from model_profiling.config.settings import Feature


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

    def _repr_markdown_(self) -> str:
        return render_markdown(summary_document(self.data))

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
        return self.data.analysis if isinstance(self.data.analysis, AnalysedRun) else None

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
    """How a run deals with what is there already, and which part of it is done: an unfinished run of the same
    is continued unless `force` is given, `only` names the experiments to measure, `analysis_only` measures
    nothing."""

    analysis_only: bool = False
    evidence: tuple[Path, ...] = ()
    """Runs of the same program that show what runs on SME2, for a CPU without it; `ssh:HOST` is a machine to
    make one."""


def run_file(
    path: Path,
    options: RunOptions,
    *,
    target: TargetChoice | None = None,
    builtin_runner: bool = False,
    budget_s: float | None = None,
) -> RunOutcome:
    """Run the config in `path`; `target` and `budget_s` override its own, `builtin_runner` its runners."""
    # Analysing again needs neither the model nor the runners, which may be gone.
    config = load_config(path, files=not options.analysis_only, builtin=builtin_runner)
    if target is not None:
        config = on_target(config, target)
    if budget_s is not None:
        schedule = config.schedule.model_copy(update={"budget_s": budget_s})
        config = config.model_copy(update={"schedule": schedule})
    return run_config(config, replace(options, config_file=path.resolve()))


USUAL = RunOptions()


def run_config(
    config: ProfileConfig, options: RunOptions = USUAL, *, target: Target | None = None
) -> RunOutcome:
    if options.analysis_only:
        with locked(config.output_root):
            return publish(reopen(config), options)
    target = target or open_target(config.target)
    (outcome,) = run_together([config], target, options)
    return outcome


def run_together(
    configs: Sequence[ProfileConfig], target: Target, options: RunOptions
) -> tuple[RunOutcome, ...]:
    """Measure several configs into their output_roots, with all programs taking turns, and analyse each."""
    options = with_evidence(options, configs, target)
    with contextlib.ExitStack() as held:
        measured = measure_runs(configs, target, options, held)
        return tuple(publish(run, options) for run in measured)


def with_evidence(options: RunOptions, configs: Sequence[ProfileConfig], target: Target) -> RunOptions:
    """Return `options` with run directories as evidence, also where machines named `ssh:HOST` have to make
    them first; refuse those of other programs before anything is measured."""
    if not options.evidence or not target.timings_are_latency:  # else its own kernels are shown
        return replace(options, evidence=())
    runs: list[Path] = []
    for path in options.evidence:
        kind, _, host = str(path).partition(":")
        runs += (emulate_on(host, config) for config in configs) if kind == "ssh" and host else [path]
    for config in configs:
        evidence_of(runs, files.sha256(config.model), config.method)
    return replace(options, evidence=tuple(runs))


# Kernel evidence from another Linux machine with the kit: it emulates a program, and the run comes here.

_LIMIT_S = 6 * 3600.0
_MOST_BYTES = 2 << 30
_MOST_FILES = 10_000
_NO_KIT = 119
# What is sent is the program, what comes back is the run directory; nothing stays there.
_SCRIPT = """\
PATH=$PATH:$HOME/.local/bin
command -v sme2prof >/dev/null || exit {no_kit}
folder=$(mktemp -d) || exit
trap 'rm -rf "$folder"' EXIT
cd "$folder" && cat > {name} || exit
sme2prof profile {name} {words} --target emulated --outdir out --quiet >&2 || exit
tar -C "$(dirname "$(find out -name manifest.json)")" -cf - ."""


def emulate_on(host: str, config: ProfileConfig) -> Path:
    """Emulate the program of `config` on `host`; return the run directory, beside that of `config`."""
    name = shlex.quote(config.model.name)
    words = names.case_words(config.method, config.inputs.sizes, config.inputs.values)
    script = _SCRIPT.format(no_kit=_NO_KIT, name=name, words=shlex.join(words))
    shell = Shell(SshLink(host))
    current_progress().stage(f"emulating {config.model.stem} on {shell.title}")
    with tempfile.TemporaryFile() as archive:
        try:
            shell.link.connect()
            done = shell.script(script, timeout=_LIMIT_S, stdin=config.model, into=archive, most=_MOST_BYTES)
        finally:
            shell.link.close()
        if done.returncode == _NO_KIT:
            cure = (
                f"install the kit there (so that `ssh {host} sme2prof --version` answers), or emulate by hand"
            )
            raise SetupError(
                f"{shell.title} has no sme2prof in its PATH", f"{cure} and name the run directory"
            )
        if not done.ok:
            complaint = last_line(done).removeprefix("error: ")
            raise SetupError(
                f"{shell.title} could not emulate {config.model.name}: {complaint}", "mend it there"
            )
        archive.seek(0)
        return _unpacked(archive, config.output_root.with_name(f"emulated-{host}"), shell.title)


def _unpacked(archive: IO[bytes], into: Path, title: str) -> Path:
    """Write the regular files of an archive from a machine that is not trusted into an empty folder. It is
    read as it is, not unpacked from gzip, and sparse files count in full: little may claim to be much."""
    with locked(into):
        if into.exists():
            shutil.rmtree(into)
        members: dict[str, tarfile.TarInfo] = {}
        left = _MOST_BYTES
        try:
            with tarfile.open(fileobj=archive, mode="r:") as packed:
                for number, member in enumerate(packed):
                    left -= member.size
                    if member.size < 0 or left < 0 or number == _MOST_FILES:
                        raise ValueError("larger than any run")
                    if member.isreg():
                        members[stays_inside(member.name, title)] = member
                for name, member in members.items():
                    source = packed.extractfile(member)
                    assert source is not None
                    with files.replacing(into / name) as part, part.open("wb") as stream:
                        shutil.copyfileobj(source, stream)
        except (tarfile.TarError, ValueError, ArithmeticError, RecursionError) as problem:
            raise SetupError(f"what {title} sent is not a whole run", "look at that machine") from problem
    return into


def publish(
    measured: Measured,
    options: RunOptions,
    *,
    missing: SetupError | None = None,
    proof: Evidence | None = None,
) -> RunOutcome:
    """Analyse the measurements and write every output file; then the run counts as ended. `proof` shows what
    runs on SME2, for a CPU without it; `missing` says why nothing does. The caller has locked the run."""
    place, manifest = measured.place, measured.manifest
    if proof is None and options.evidence and lacks_sme2(manifest):
        proof = evidence_of(options.evidence, manifest.model_sha256, manifest.method)
    current_progress().stage(f"analysing {place.model_stem}")
    if manifest.config_file is None:
        files.write_json(place.path / names.CONFIG, manifest.settings)
    write_kernel_lists(place, manifest, measured.journal)
    keep_evidence(place.path, manifest, missing, given=proof)
    ended = concluded(measured)
    run = Run.open(place.path, manifest=ended)
    analysis = analyse(run) if run.dumps else None
    data = report_data(run, analysis)
    if analysis is not None:
        write_summary(data, analysis)
    report = write_page(run_document(data), run.path / names.REPORT, data.title)
    summary = summary_facts(data)
    files.write_json(run.files.summary("json"), summary)
    files.write_text(run.files.summary("md"), render_markdown(summary_document(data)))
    write_kernel_view(run)
    write_record(place.manifest, ended)
    return RunOutcome(data, report, summary, measured.moved)


def publish_proof(measured: Measured) -> ReportData:
    """End an emulated run that only shows what runs on SME2, for a run on another CPU: that one has the
    report. `sme2prof report` makes one for this run, too. The caller has locked the run."""
    write_kernel_lists(measured.place, measured.manifest, measured.journal)
    ended = concluded(measured)
    write_record(measured.place.manifest, ended)
    return report_data(Run.open(measured.place.path, manifest=ended), None)


# Configs of `sme2prof profile` and of a sweep's jobs. Which experiments the target's CPU can tell apart is
# found out when measuring.

_UP_TO = "upto_"
_EMULATED_TIMEOUT_S = 3600.0


def make_rung_config(
    target: Target,
    program: Path,
    root: Path,
    rungs: Mapping[str, Sequence[str]],
    schedule: Schedule,
    *,
    threads: tuple[int, ...],
    runs: int,
    warmup: int,
    method: str | None = None,
    inputs: Inputs | None = None,
) -> ProfileConfig:
    """Return the config for one target: one experiment per rung (`on`, `off` or one of the user's, with the
    features it disables), each compared with `on`, or a `ladder`. Without latencies, one run is enough and
    settings about measuring do not apply."""
    if not target.timings_are_latency:
        runs, warmup = 1, 0
        timeout_s = schedule.timeout_s if "timeout_s" in schedule.model_fields_set else _EMULATED_TIMEOUT_S
        unused = dict.fromkeys(("rounds", "precision", "budget_s"))
        schedule = schedule.model_copy(update={**unused, "timeout_s": timeout_s})
    against = [
        (rung, ON, "SME2 on vs off" if rung == OFF else f"everything vs {rung}")
        for rung in rungs
        if ON in rungs and rung != ON
    ]
    if LADDER in rungs:
        rungs, against = _ladder(target)
    kind = target.platform
    experiments = tuple(
        Experiment(
            name=experiment_of_rung(kind, rung),
            sme2="off" if rung == OFF or {"sme2", "sme"} & set(closure(disable)) else "on",
            disable=cast("tuple[Feature, ...]", tuple(disable)),
            runs=runs,
            warmup=warmup,
            threads=threads,
        )
        for rung, disable in rungs.items()
    )
    pairs = tuple(
        ComparePair(
            baseline=Side(experiment=experiment_of_rung(kind, rung), threads=count),
            candidate=Side(experiment=experiment_of_rung(kind, better), threads=count),
            label=f"{label}, {plural(count, 'thread')}",
        )
        for rung, better, label in against
        for count in threads
    )
    return ProfileConfig(
        model=program.resolve(),
        output_root=root.resolve(),
        target=target.choice,
        experiments=experiments,
        schedule=schedule,
        analysis=AnalysisSettings(compare_pairs=pairs),
        method=method,
        inputs=inputs or Inputs(),
    )


def experiment_of_rung(platform: str, rung: str) -> str:
    """Return the name of a rung's experiment, or the prefix of all experiments of a ladder."""
    own = {ON: "sme2_on", OFF: "sme2_off", LADDER: _UP_TO}
    return f"{platform}_{own.get(rung, rung)}"


def _ladder(target: Target) -> tuple[dict[str, Sequence[str]], list[tuple[str, str, str]]]:
    """Return the rungs of a ladder, each named by the best feature it still has, and the neighbours to
    compare."""
    target.prepare()
    steps = features_ladder(target.facts().features)
    if len(steps) < 2:
        raise InputError("this CPU has no features that --ladder can switch off", "leave --ladder out")
    best = [step.left[0] if step.left else "neon" for step in steps]
    rungs = [f"{_UP_TO}{feature}" for feature in best]
    return {rung: step.disable for rung, step in zip(rungs, steps, strict=True)}, [
        (worse, better, f"what {feature} buys")
        for better, worse, feature in zip(rungs, rungs[1:], best, strict=False)
    ]
