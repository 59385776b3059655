"""`sme2prof profile` and `run`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import click

from model_profiling.cli import for_tools, frame
from model_profiling.cli.for_tools import page_facts, pages, print_answers
from model_profiling.cli.progress import measuring
from model_profiling.core.errors import InputError
from model_profiling.core.number_formats import FORMATS, FORMATS_HELP, parse_format
from model_profiling.core.records import record_json
from model_profiling.export.records import BACKENDS
from model_profiling.report.document import Block, Heading, Paragraph
from model_profiling.report.dtypes import Dtypes
from model_profiling.report.dtypes_document import dtypes_table
from model_profiling.report.run_report import ladder_table
from model_profiling.report.text import render_terminal
from model_profiling.runner.machine import PowerMode, parse_target, target_kinds
from model_profiling.runs.evidence import Factors
from model_profiling.workflow.dtypes import DtypesOutcome, profile_dtypes
from model_profiling.workflow.measure import RunOptions, RunOutcome, run_file
from model_profiling.workflow.profile import (
    CasesOutcome,
    ProfileOptions,
    ProfileOutcome,
    profile_cases,
)


@frame.command(
    "run",
    example="""sme2prof run my_config.json
    sme2prof run my_config.json --resume
    sme2prof run my_config.json --precision 0.01""",
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
@frame.resume_options("Continue an unfinished run.", "Replace an unfinished run.")
@frame.no_wait_option
@frame.quiet_option
@click.option(
    "--precision",
    type=frame.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    show_default="0.005",
    help="Stop once every speedup is known to plus or minus this share.",
)
@frame.budget_option
@frame.sample_option
@frame.factor_option
@frame.evidence_option
def run_command(
    *,
    config: Path,
    target: str | None,
    only: tuple[str, ...],
    analysis_only: bool,
    resume: bool,
    force: bool,
    factors: Factors | None,
    evidence: tuple[Path, ...],
    no_wait: bool,
    quiet: bool,
    as_json: bool,
    **asked: Any,  # parameters of run_file, typed by click
) -> int:
    """Measure the experiments of CONFIG, analyse them and write the report.

    To measure one model, use `sme2prof profile`: it makes such a config and runs it in the same way.

    Results go to the config's output_root. A finished run in it is kept under its date and time; if CONFIG
    only adds experiments, they join that run. --resume continues an unfinished run, --force replaces it.

    --precision and --budget replace the config's own. Latencies are measured until one of them is reached,
    but for at least six launches; the config's `rounds` is the most launches, its `runs` how much is traced.
    """
    options = RunOptions(
        only=frozenset(only),
        resume=resume,
        force=force,
        analysis_only=analysis_only,
        command_line=frame.command_line(),
        factors=factors,
        evidence=evidence,
    )
    kept = f"everything measured so far is kept; continue with: sme2prof run {config} --resume"
    with measuring(kept, quiet=quiet, no_wait=no_wait) as progress:
        where = parse_target(target) if target else None
        outcome = run_file(config, options, target=where, **asked, progress=progress)
    if factors is not None:
        frame.warn_without_projection([outcome.data.outlook])
    frame.warn_of_unused_evidence(evidence, [outcome.run])
    if analysis_only or not outcome.run.times.are_latencies:
        why = "nothing is measured" if analysis_only else "no latency is measured"
        for name in ("precision", "budget_s"):
            if asked[name] is not None:
                frame.warn(f"--{name.removesuffix('_s')} has no effect: {why}")
    for_tools.tell_github([(outcome.data, outcome.report)])
    # The answers come last: on a terminal that is what people read first.
    code = for_tools.print_warnings(outcome.warnings, quiet=quiet or as_json)
    if as_json:
        frame.facts(outcome_facts(outcome))
    else:
        print_outcome(outcome, quiet=quiet)
    return code


def outcome_facts(outcome: RunOutcome) -> dict[str, object]:
    return {**outcome.summary, "run_dir": str(outcome.run_dir), **page_facts(outcome.report)}


def print_outcome(outcome: RunOutcome, *, quiet: bool) -> None:
    print_answers(outcome.answers, quiet=quiet)
    print_place(outcome, quiet=quiet)


def print_place(outcome: RunOutcome, what: str = "Report", *, quiet: bool) -> None:
    if outcome.moved is not None and not quiet:
        frame.say(f"The earlier run is kept in {outcome.moved}")
    first, *others = pages(outcome.report)
    frame.say(f"{what}: {first}")
    if what == "Report":
        for path in others:
            frame.say(f"{what}: {path}")


def _dtypes(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    if text == "all":
        return FORMATS
    try:
        words = tuple(parse_format(word.strip()).text for word in text.split(","))
    except InputError as problem:
        raise click.BadParameter(
            f"{problem.problem}; {problem.fix}, several with commas, or all"
        ) from problem
    if len(set(words)) != len(words):
        raise click.BadParameter(
            f"{text} names a format twice; choose from {FORMATS_HELP}, each once, or all"
        )
    return words


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
@click.option("--backend", type=click.Choice(BACKENDS), show_default="xnnpack", help="Backend to export for.")
@frame.case_options(several=True)
@click.option(
    "--runs",
    type=frame.IntRange(1),
    show_default="10",
    help="Traced turns.",
)
@click.option("--warmup", type=frame.IntRange(0), show_default="3", help="Untimed inferences at the start.")
@frame.threads_option
@frame.budget_option
@click.option(
    "--precision",
    type=frame.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    show_default="0.005",
    help="Stop once every speedup is known to plus or minus this share.",
)
@frame.rounds_option
@click.option(
    "--power-mode",
    type=click.Choice(get_args(PowerMode)),
    default="leave",
    show_default=True,
    help="Settings of a phone while it measures: boost (fastest), app (as people use it), or leave them. "
    "They are restored afterwards.",
)
@click.option(
    "--quick",
    is_flag=True,
    help="First look in about 20 s, with wider intervals: --rounds 6 --budget 6 --runs 5 --warmup 1 (a value "
    "you give wins; not with --precision). Under emulation: SME2 on alone.",
)
@frame.sample_option
@click.option("--ladder", is_flag=True, help="Switch CPU features off one by one, to see what each brings.")
@click.option("--outdir", type=frame.FOLDER, show_default="out_MODEL", help="Folder for programs and runs.")
@frame.resume_options("Continue an unfinished run.", "Replace an unfinished run.")
@frame.no_wait_option
@frame.factor_option
@frame.evidence_option
@frame.quiet_option
def profile_command(
    *,
    model: str,
    target: str,
    power_mode: PowerMode,
    dtypes: tuple[str, ...],
    resume: bool,
    force: bool,
    factors: Factors | None,
    evidence: tuple[Path, ...],
    no_wait: bool,
    quiet: bool,
    as_json: bool,
    **asked: Any,  # fields of ProfileOptions, typed by click
) -> int:
    """Profile MODEL: export it if needed, measure, analyse, and print the answers.

    MODEL is a .pte file, a name from `sme2prof models`, or file.py:factory for any nn.Module. With --target
    auto, a CPU with SME2 is measured with SME2 on and off. An Arm CPU without SME2 is measured once, and
    emulation shows what would run on SME2; on any other CPU there is only emulation.

    Latencies are measured until --precision is reached or --budget is used up, but for at least six launches
    and at most --rounds of them. --runs does not change how long that takes: it is how much is traced.
    """
    choice = replace(parse_target(target), power_mode=power_mode)
    if power_mode != "leave" and choice.kind != "android":
        raise click.UsageError(f"--power-mode {power_mode} is for a phone: give --target android")
    options = ProfileOptions(target=choice, **asked)
    run = RunOptions(
        resume=resume, force=force, command_line=frame.command_line(), factors=factors, evidence=evidence
    )
    frame.warn_of_limits(options.rounds, options.precision)
    if not model.endswith(".pte"):
        frame.warn_of_skipped_models(model)
    with measuring(frame.KEPT, quiet=quiet, no_wait=no_wait) as progress:
        if len(dtypes) > 1:
            several = profile_dtypes(model, dtypes, options, run, progress=progress)
            profiled = tuple(several.outcomes.values())
        else:
            one = options.model_copy(update={"dtype": dtypes[0] if dtypes else None})
            several, methods = None, profile_cases(model, one, run, progress=progress)
            profiled = methods.outcomes
    if factors is not None:
        frame.warn_without_projection(
            found.data.outlook for outcome in profiled for found in outcome.outcomes
        )
    frame.warn_of_unused_evidence(evidence, [outcome.main.run for outcome in profiled])
    # The main run's answer includes what the evidence run proved.
    mains = [(outcome.main.data, outcome.main.report) for outcome in profiled]
    for_tools.tell_github(mains, _side_by_side(several.found) if several else ())
    if several is not None:
        return _print_dtypes(several, ladder=options.ladder, quiet=quiet, as_json=as_json)
    return _print_methods(methods, ladder=options.ladder, quiet=quiet, as_json=as_json)


def _print_methods(found: CasesOutcome, *, ladder: bool, quiet: bool, as_json: bool) -> int:
    first, *others = found.outcomes
    if not quiet and not as_json:
        frame.say(f"{first.program}: {first.plan.reason}\n")
    codes = []
    for outcome in found.outcomes:
        if others and not as_json:
            frame.say(f"{outcome.case.name}:")
        # The answers come last: on a terminal that is what people read first.
        codes.append(for_tools.print_warnings(outcome.warnings, quiet=quiet or as_json))
        if not as_json:
            _print(outcome, ladder=ladder, quiet=quiet)
    if as_json:
        cases = {outcome.case.name: _facts(outcome) for outcome in found.outcomes}
        frame.facts({"schema_version": 1, "methods": cases} if others else _facts(first))
    elif found.page is not None:
        for path in pages(found.page):
            frame.say(f"Side by side: {path}")
    return max(codes)


def _side_by_side(found: Dtypes) -> list[Block]:
    return [Heading("Number formats side by side", 3), Paragraph(found.verdict), dtypes_table(found)]


def _print_dtypes(several: DtypesOutcome, *, ladder: bool, quiet: bool, as_json: bool) -> int:
    found = several.found
    # The verdict comes last: on a terminal that is what people read first.
    code = for_tools.print_warnings(several.warnings, quiet=quiet or as_json)
    for side in found.failed:
        if side.dtype not in several.outcomes:
            frame.fail(f"{side.dtype}: {side.problem}; {side.fix}")
    if as_json:
        profiles = {dtype: _facts(outcome) for dtype, outcome in several.outcomes.items()}
        frame.facts({"schema_version": 1, "side_by_side": record_json(found), "profiles": profiles})
    else:
        if not quiet:
            for dtype, outcome in several.outcomes.items():
                if ladder:
                    frame.say(render_terminal([ladder_table(outcome.main.data)]))
                print_place(outcome.main, dtype, quiet=quiet)
            frame.say()
            frame.say(render_terminal([dtypes_table(found)]))
            frame.say()
        frame.say(found.verdict)
        for path in pages(several.page):
            frame.say(f"Side by side: {path}")
    return 2 if found.failed else code


def _facts(outcome: ProfileOutcome) -> dict[str, object]:
    return {
        "schema_version": 1,
        "program": str(outcome.program),
        "targets": outcome.plan.reason,
        "runs": [outcome_facts(found) for found in outcome.outcomes],
        "warnings": [line.text for line in outcome.warnings],
    }


def _print(outcome: ProfileOutcome, *, ladder: bool, quiet: bool) -> None:
    if ladder:
        for found in outcome.outcomes:
            frame.say(render_terminal([ladder_table(found.data)]) + "\n")
    print_outcome(outcome.main, quiet=quiet)
    if outcome.evidence is not None and outcome.evidence is not outcome.main and not quiet:
        print_place(outcome.evidence, "Report of the emulated run", quiet=quiet)
