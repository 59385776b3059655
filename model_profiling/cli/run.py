"""`sme2prof run`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from model_profiling.cli import for_tools, frame
from model_profiling.cli.for_tools import page_facts, pages, print_answers
from model_profiling.cli.progress import measuring
from model_profiling.run.evidence import Factors
from model_profiling.runner.machine import parse_target, target_kinds
from model_profiling.workflow.measure import RunOptions, RunOutcome, run_file


@frame.command(
    "run",
    example="""sme2prof run my_config.json
    sme2prof run my_config.json --resume
    sme2prof run my_config.json --precision 0.01""",
    facts=True,
)
@click.argument("config", type=frame.PATH)
@click.option("--target", help=f"Where, if the config does not say: {', '.join(target_kinds()[1:])}.")
@click.option("--only", multiple=True, metavar="EXPERIMENT", help="Run only this experiment (repeatable).")
@click.option("--builtin-runner", is_flag=True, help="Use the kit's own runner in place of the config's.")
@click.option("--analysis-only", is_flag=True, help="Measure nothing; analyse again what is there.")
@frame.resume_options("Continue a run that was cut short.", "Discard an unfinished run that is in the way.")
@frame.quiet_option
@click.option(
    "--precision",
    type=frame.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    help="Stop once every speedup is known to plus or minus this share, such as 0.01.",
)
@frame.budget_option
@frame.sample_option
@frame.factor_option
def run_command(
    *,
    config: Path,
    target: str | None,
    only: tuple[str, ...],
    analysis_only: bool,
    resume: bool,
    force: bool,
    factors: Factors | None,
    quiet: bool,
    as_json: bool,
    **asked: Any,  # parameters of run_file, typed by click
) -> int:
    """Run the experiments of CONFIG and analyse them.

    Results go to the config's output_root. A finished run that is there already is kept under its
    date and time, or joined where CONFIG only adds experiments to it; an unfinished one is
    continued with --resume or discarded with --force.
    """
    options = RunOptions(
        only=frozenset(only),
        resume=resume,
        force=force,
        analysis_only=analysis_only,
        command_line=frame.command_line(),
        factors=factors,
    )
    kept = f"everything measured so far is kept; continue with: sme2prof run {config} --resume"
    with measuring(kept, quiet=quiet) as progress:
        where = parse_target(target) if target else None
        outcome = run_file(config, options, target=where, **asked, progress=progress)
    if factors is not None:
        frame.warn_without_projection([outcome.data.outlook])
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
