"""`sme2prof llm`."""

from __future__ import annotations

from typing import Any

import click

from model_profiling.cli import frame
from model_profiling.cli.frame import page_facts, pages, print_warnings
from model_profiling.core.number_formats import FORMATS_HELP
from model_profiling.report import document as doc
from model_profiling.report.document import render_terminal
from model_profiling.report.language import language_table
from model_profiling.runner.machine import parse_target, target_kinds
from model_profiling.workflow.language import BUDGET_S, POSITIONS, PROMPTS, profile_language
from model_profiling.workflow.measure import RunOptions
from model_profiling.workflow.profile import ProfileOptions


@frame.command(
    "llm",
    example="""sme2prof llm tiny_llama
    sme2prof llm tiny_llama --quick
    sme2prof llm my_model.pte --prompt 64,256 --context 0,512
    sme2prof llm my_model.pte --threads 2 --budget 30""",
    facts=True,
)
@click.argument("model")
@click.option(
    "--prompt",
    "prompts",
    show_default=",".join(map(str, PROMPTS)),
    type=frame.Counts(2),
    metavar="N,...",
    help="Lengths of the prompt, in tokens.",
)
@click.option(
    "--context",
    "positions",
    show_default=",".join(map(str, POSITIONS)),
    type=frame.Counts(0),
    metavar="N,...",
    help="Tokens in the cache when a token of the answer is made.",
)
@click.option("--target", default="auto", show_default=True, help=f"Where: {', '.join(target_kinds())}.")
@click.option("--dtype", show_default="fp32", metavar="DTYPE", help=f"Number format: {FORMATS_HELP}.")
@frame.optimize_option
@frame.threads_option
@frame.budget_of(f"{BUDGET_S:g}", "for each prompt and each position (at least six launches)")
@click.option(
    "--quick",
    is_flag=True,
    help="First look: the shortest prompt and the first token of the answer, 6 s for each phase, with wider "
    "intervals (a value you give wins).",
)
@frame.outdir_option
@frame.force_option
@frame.no_wait_option
@frame.quiet_option
def llm_command(
    *,
    model: str,
    prompts: tuple[int, ...] | None,
    positions: tuple[int, ...] | None,
    target: str,
    force: bool,
    no_wait: bool,
    quiet: bool,
    as_json: bool,
    **settings: Any,  # fields of ProfileOptions, typed by click
) -> int:
    """Profile the language model MODEL: its prompt and its answer apart.

    MODEL is a .pte file or a name from `sme2prof models`. Each prompt and each position in the cache is
    measured as by `sme2prof profile`, with SME2 on and off in turns. The answers: time to the first token,
    tokens per second, and where the time of each phase goes.
    """
    options = ProfileOptions(target=parse_target(target), **settings)
    run = RunOptions(force=force, command_line=frame.command_line())
    with frame.measuring(frame.KEPT, quiet=quiet, no_wait=no_wait):
        outcome = profile_language(model, options, run, prompts=prompts, positions=positions)
    code = print_warnings(outcome.warnings, quiet=quiet or as_json)
    language = outcome.language
    if as_json:
        frame.facts({**language.facts(), **page_facts(outcome.report)})
        return code
    if not quiet:
        frame.say(render_terminal([language_table(language)]) + "\n")
        for why in language.left_out:
            frame.say(f"Left out: {why}.")
    frame.say(render_terminal([doc.Answers(language.answers)]))
    frame.say(f"Report: {pages(outcome.report)[0]}")
    return code
