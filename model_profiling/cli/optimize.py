"""`sme2prof optimize`."""

from __future__ import annotations

from typing import Any

import click

from model_profiling.cli import frame
from model_profiling.cli.frame import print_warnings
from model_profiling.config import names
from model_profiling.core.number_formats import FORMATS_HELP
from model_profiling.core.records import record_json
from model_profiling.export.catalogue import CHANNELS_LAST, IMAGES_CHANGED
from model_profiling.export.records import BACKENDS
from model_profiling.report.document import render_terminal
from model_profiling.report.optimization import rewrites_table, sides_table
from model_profiling.runner.machine import parse_target, target_kinds
from model_profiling.workflow.measure import RunOptions
from model_profiling.workflow.optimize import OptimizeOutcome, optimize_model
from model_profiling.workflow.profile import ProfileOptions


@frame.command(
    "optimize",
    example="""sme2prof optimize my_model.py:make
    sme2prof optimize my_model.py:make --dtype fp16 --budget 120
    sme2prof optimize my_model.py:make --only attention,constants""",
    facts=True,
)
@click.argument("model")
@click.option("--dtype", default="fp32", show_default=True, help=f"Number format: {FORMATS_HELP}.")
@frame.keep_option
@frame.calibrate_option
@click.option("--backend", type=click.Choice(BACKENDS), show_default="xnnpack", help="What runs it.")
@click.option("--target", default="auto", show_default=True, help=f"Where: {', '.join(target_kinds())}.")
@frame.threads_option
@frame.budget_of("60", "(one half chooses, the other confirms; each makes at least six launches)")
@click.option("--only", default="", metavar="NAME,...", help="Try only these rewrites.")
@frame.case_options()
@frame.outdir_option
@frame.no_wait_option
@click.option("--quiet", is_flag=True, help="Print only what it brought.")
def optimize_command(
    *,
    model: str,
    target: str,
    only: str,
    no_wait: bool,
    quiet: bool,
    as_json: bool,
    **settings: Any,  # fields of ProfileOptions, typed by click
) -> int:
    """Make MODEL's program faster, and show that it is.

    MODEL is what `sme2prof export` takes. Calls that cost more than they need to in ExecuTorch are replaced
    in the exported graph by others that compute the same; your code is not changed. Outputs are compared with
    PyTorch, each kind of rewrite is left out once and measured in turns with the others, those that do not
    help are dropped, and the rest is measured again. The faster program lies beside the original, its name
    ends in -optimized.

    Exits with 1 if nothing helps. Without an Arm CPU nothing is timed: rewrites are chosen by structure, and
    it exits with 0.
    """
    with frame.measuring(quiet=quiet, no_wait=no_wait):
        outcome = optimize_model(
            model,
            ProfileOptions(target=parse_target(target), **settings),
            RunOptions(command_line=frame.command_line()),
            only=tuple(name.strip() for name in only.split(",") if name.strip()),
        )
    failed = print_warnings(outcome.warnings, quiet=quiet or as_json)
    if as_json:
        frame.facts(
            {
                **record_json(outcome.optimization),
                "verdict": outcome.optimization.verdict,
                "program": str(outcome.program) if outcome.program else None,
                "report": str(outcome.report.with_suffix(names.HTML)),
            }
        )
    else:
        _print(outcome, quiet=quiet)
    return failed or (0 if outcome.optimization.helped or outcome.optimization.not_timed else 1)


def _print(outcome: OptimizeOutcome, *, quiet: bool) -> None:
    optimization = outcome.optimization
    if not quiet:
        tables = [rewrites_table(optimization)] if optimization.rewrites else []
        frame.say(render_terminal([*tables, sides_table(optimization)]))
        if CHANNELS_LAST in optimization.kept:
            frame.warn(IMAGES_CHANGED)
        if optimization.not_timed:
            frame.say(f"No time was measured: {optimization.not_timed}.")
        for text in optimization.left if not optimization.helped else ():
            frame.say(f"Stays outside: {text}")
        frame.say_wrote(outcome.report.with_suffix(names.HTML))
        if outcome.program:
            frame.say_wrote(outcome.program)
    frame.say(optimization.verdict)
