"""`sme2prof profile` and `run`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from model_profiling.cli import frame
from model_profiling.cli.frame import page_facts, pages, print_answers, print_warnings
from model_profiling.core.errors import InputError
from model_profiling.core.number_formats import FORMATS, FORMATS_HELP, parse_format
from model_profiling.core.records import record_json
from model_profiling.report.document import render_terminal
from model_profiling.report.dtypes import dtypes_table
from model_profiling.report.run_report import ladder_table
from model_profiling.runner.machine import parse_target, target_kinds
from model_profiling.workflow.dtypes import DtypesOutcome, profile_dtypes
from model_profiling.workflow.measure import RunOptions, RunOutcome, run_file
from model_profiling.workflow.profile import ProfileOptions, ProfileOutcome, profile_one


@frame.command(
    "run",
    example="""sme2prof run my_config.json
    sme2prof run my_config.json --resume""",
    facts=True,
)
@click.argument("config", type=frame.PATH)
@click.option(
    "--target", help=f"Where to measure if the config does not say: {', '.join(target_kinds()[1:])}."
)
@click.option("--only", multiple=True, metavar="EXPERIMENT", help="Run only this experiment (repeatable).")
@click.option("--builtin-runner", is_flag=True, help="Use the kit's own runner in place of the config's.")
@click.option(
    "--analysis-only", is_flag=True, help="Measure nothing; analyse and report the run of CONFIG again."
)
@click.option(
    "--resume", is_flag=True, help="Continue the run that is there, even a finished one, or refuse."
)
@frame.force_option
@frame.no_wait_option
@frame.quiet_option
@frame.budget_option
@frame.evidence_option
def run_command(
    *,
    config: Path,
    target: str | None,
    only: tuple[str, ...],
    builtin_runner: bool,
    analysis_only: bool,
    resume: bool,
    force: bool,
    budget_s: float | None,
    evidence: tuple[Path, ...],
    no_wait: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Measure the experiments of CONFIG, analyse them and write the report.

    To measure one model, use `sme2prof profile`: it makes such a config and runs it in the same way.

    Results go to the config's output_root. An unfinished run of the same config in it is continued; any other
    is kept under its date and time. If CONFIG adds experiments of another mode, they join that run.

    --budget replaces the config's own. Latencies are measured until it is used up or the config's `precision`
    is reached, but for at least six launches; `rounds` is the most launches, `runs` how much is traced.
    """
    if resume and force:
        raise click.UsageError("--resume continues, --force begins again: give one of them")
    if analysis_only and budget_s is not None:
        raise click.UsageError("--budget is for measuring: leave it or --analysis-only out")
    options = RunOptions(
        only=frozenset(only),
        resume=resume,
        force=force,
        analysis_only=analysis_only,
        command_line=frame.command_line(),
        evidence=evidence,
    )
    with frame.measuring(frame.KEPT, quiet=quiet, no_wait=no_wait):
        outcome = run_file(
            config,
            options,
            target=parse_target(target) if target else None,
            builtin_runner=builtin_runner,
            budget_s=budget_s,
        )
    frame.warn_of_unused_evidence(evidence, [outcome.run])
    if budget_s is not None and not outcome.run.times.are_latencies:
        frame.warn("--budget has no effect: no latency is measured")
    # The answers come last: on a terminal that is what people read first.
    code = print_warnings(outcome.warnings, quiet=quiet or as_json)
    if as_json:
        frame.facts(outcome_facts(outcome))
    else:
        print_outcome(outcome, quiet=quiet)
    return code


def outcome_facts(outcome: RunOutcome) -> dict[str, object]:
    return {**outcome.summary, "run_dir": str(outcome.run_dir), **page_facts(outcome.report)}


def print_outcome(outcome: RunOutcome, *, quiet: bool) -> None:
    print_answers(outcome.answers, quiet=quiet)
    if not quiet:
        print_earlier(outcome)
    frame.say(f"Report: {pages(outcome.report)[0]}")


def print_earlier(outcome: RunOutcome) -> None:
    if outcome.moved is not None:
        frame.say(f"The earlier run is kept in {outcome.moved}")


def _dtypes(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[str, ...]:
    if text is None or text == "all":
        return FORMATS if text else ()
    try:
        formats = tuple(parse_format(word.strip()).text for word in text.split(","))
    except InputError as problem:
        raise click.BadParameter(f"{problem}, several with commas, or all") from problem
    if len(set(formats)) != len(formats):
        raise click.BadParameter(f"{text} names a format twice; give each once, or all")
    return formats


@frame.command(
    "profile",
    example="""sme2prof profile toy_cnn --dtype fp16
    sme2prof profile toy_cnn --quick
    sme2prof profile toy_cnn --dtype all
    sme2prof profile my_model.pte --threads 1,2 --budget 60
    sme2prof profile toy_cnn --target emulated --ladder""",
    facts=True,
)
@click.argument("model")
@click.option("--target", default="auto", show_default=True, help=f"Where: {', '.join(target_kinds())}.")
@click.option(
    "--dtype",
    "dtypes",
    callback=_dtypes,
    show_default="fp32",
    metavar="DTYPE,...",
    help=f"Number format: {FORMATS_HELP}; several with commas, or all that suit the model, to compare them.",
)
@frame.keep_option
@frame.calibrate_option
@frame.optimize_option
@frame.case_options()
@click.option(
    "--threads",
    type=frame.Counts(auto=True),
    default="1",
    show_default=True,
    help="Thread counts, such as 1,2,4; auto: 1, 2, 4 and so on, up to the fast cores.",
)
@frame.budget_option
@click.option(
    "--quick",
    is_flag=True,
    help="First look in about 20 s, with wider intervals (a --budget you give wins). Under emulation: SME2 "
    "on alone.",
)
@click.option(
    "--sample", is_flag=True, help="Also show which kernels run inside each operator; this takes extra runs."
)
@click.option("--ladder", is_flag=True, help="Switch CPU features off one by one, to see what each brings.")
@frame.outdir_option
@frame.force_option
@frame.no_wait_option
@frame.evidence_option
@frame.quiet_option
def profile_command(
    *,
    model: str,
    target: str,
    dtypes: tuple[str, ...],
    force: bool,
    evidence: tuple[Path, ...],
    no_wait: bool,
    quiet: bool,
    as_json: bool,
    **settings: Any,  # fields of ProfileOptions, typed by click
) -> int:
    """Profile MODEL: export it if needed, measure, analyse, and print the answers.

    MODEL is a .pte file, a name from `sme2prof models`, or file.py:factory for any nn.Module. With --target
    auto, a CPU with SME2 is measured with SME2 on and off. An Arm CPU without SME2 is measured once, and
    emulation shows what would run on SME2; on any other CPU there is only emulation.

    Latencies are measured until every speedup is known to half a percent or --budget is used up, but for at
    least six launches. Rarer settings, such as a phone's power mode, are those of a config: `sme2prof run`.
    """
    options = ProfileOptions(target=parse_target(target), **settings)
    run = RunOptions(force=force, command_line=frame.command_line(), evidence=evidence)
    with frame.measuring(frame.KEPT, quiet=quiet, no_wait=no_wait):
        if len(dtypes) > 1:
            several = profile_dtypes(model, dtypes, options, run)
            outcomes = tuple(several.outcomes.values())
        else:
            one = options.model_copy(update={"dtype": dtypes[0] if dtypes else None})
            several, outcomes = None, (profile_one(model, one, run),)
    frame.warn_of_unused_evidence(evidence, [outcome.main.run for outcome in outcomes])
    if several is not None:
        return _print_dtypes(several, ladder=options.ladder, quiet=quiet, as_json=as_json)
    return _print_one(outcomes[0], ladder=options.ladder, quiet=quiet, as_json=as_json)


def _print_one(outcome: ProfileOutcome, *, ladder: bool, quiet: bool, as_json: bool) -> int:
    if not quiet and not as_json:
        frame.say(f"{outcome.program}: {outcome.plan.reason}\n")
    # The answers come last: on a terminal that is what people read first.
    code = print_warnings(outcome.warnings, quiet=quiet or as_json)
    if as_json:
        frame.facts(_facts(outcome))
        return code
    for run in outcome.runs if ladder else ():
        frame.say(render_terminal([ladder_table(run)]) + "\n")
    print_outcome(outcome.main, quiet=quiet)
    if len(outcome.runs) > 1 and not quiet:
        frame.say(f"Kernels proven in: {outcome.runs[1].run.path}")
    return code


def _print_dtypes(several: DtypesOutcome, *, ladder: bool, quiet: bool, as_json: bool) -> int:
    dtypes = several.comparison
    # The verdict comes last: on a terminal that is what people read first.
    code = print_warnings(several.warnings, quiet=quiet or as_json)
    for side in dtypes.failed:
        if side.dtype not in several.outcomes:
            frame.fail(f"{side.dtype}: {side.problem}; {side.fix}")
    if as_json:
        profiles = {dtype: _facts(outcome) for dtype, outcome in several.outcomes.items()}
        frame.facts({"schema_version": 1, "side_by_side": record_json(dtypes), "profiles": profiles})
        return 2 if dtypes.failed else code
    if not quiet:
        for dtype, outcome in several.outcomes.items():
            if ladder:
                frame.say(render_terminal([ladder_table(outcome.main.data)]))
            print_earlier(outcome.main)
            frame.say(f"{dtype}: {pages(outcome.main.report)[0]}")
        frame.say(f"\n{render_terminal([dtypes_table(dtypes)])}\n")
    frame.say("\n".join((*dtypes.sentences, f"Side by side: {pages(several.report)[0]}")))
    return 2 if dtypes.failed else code


def _facts(outcome: ProfileOutcome) -> dict[str, object]:
    return {
        "schema_version": 1,
        "program": str(outcome.program),
        "targets": outcome.plan.reason,
        "runs": [outcome_facts(outcome.main)],
        "evidence": str(outcome.evidence.run.path) if outcome.evidence else None,
        "warnings": [line.text for line in outcome.warnings],
    }
