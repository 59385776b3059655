"""`sme2prof try`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from model_profiling.cli import frame
from model_profiling.cli.answers import print_warnings
from model_profiling.cli.progress import measuring
from model_profiling.core.records import record_json
from model_profiling.report.comparison import comparison_facts, headline
from model_profiling.runner.machine import parse_target, target_kinds
from model_profiling.workflow.measure import RunOptions
from model_profiling.workflow.try_change import (
    DIFF,
    PATCHED,
    Advice,
    Tried,
    find_advice,
    in_words,
    try_change,
)


@frame.command(
    "try",
    example="""sme2prof try out_my_model/runs/xnnpack_fp16/linux outside-delegates
    sme2prof try out_my_model/runs/xnnpack_fp16/linux outside-delegates --budget 60""",
    facts=True,
)
@click.argument("run_dir", type=frame.PATH)
@click.argument("finding", default="")
@click.option("--target", default="auto", show_default=True, help=f"Where: {', '.join(target_kinds())}.")
@frame.threads_option
@frame.budget_option
@click.option(
    "--outdir",
    type=frame.FOLDER,
    show_default="out_try/MODEL_FINDING",
    help="Folder for the patched copy, both programs and their runs.",
)
@frame.force_option
@frame.no_wait_option
@click.option("--quiet", is_flag=True, help="Print only what the change brought.")
def try_command(
    *,
    run_dir: Path,
    finding: str,
    target: str,
    force: bool,
    no_wait: bool,
    quiet: bool,
    as_json: bool,
    **settings: Any,  # parameters of try_change, typed by click
) -> int:
    """Apply the advice of FINDING to a copy of your model, and say what it brings.

    FINDING is an id of the report's findings, or its beginning. Calls that the kit can rewrite are changed in
    a copy of your file, shown as a diff; your files stay as they are. Both versions are exported, measured
    in turns and compared: latency, delegate calls, outputs. If a person has to make the change, the advice
    is printed with the command that measures it. Exits with 1 if outputs differ or nothing was tried.

    This loads and runs the model's Python file, as `sme2prof export` does: use it on your own runs.
    """
    advice = find_advice(run_dir, finding)
    if advice.why_not:
        return _print_advice(advice, as_json=as_json)
    with measuring(f"your files are as they were; {frame.KEPT}", quiet=quiet, no_wait=no_wait) as progress:
        tried = try_change(
            advice,
            **settings,
            target=parse_target(target),
            run=RunOptions(force=force, command_line=frame.command_line()),
            progress=progress,
        )
    warnings = tried.measured.warnings if tried.measured else ()
    failed = print_warnings(warnings, quiet=quiet or as_json)
    if as_json:
        frame.facts(_facts(tried))
    else:
        _print(tried, quiet=quiet)
    return failed or (0 if tried.agrees else 1)


def _print_advice(advice: Advice, *, as_json: bool) -> int:
    finding = advice.finding
    if as_json:
        facts = {"finding": finding.id, "advice": finding.action, "compare": advice.by_hand}
        frame.facts({"schema_version": 1, "tried": False, "why_not": advice.why_not, **facts})
    else:
        frame.say(f"{finding.title}: {finding.action}\n")
        frame.say(f"Not tried: {advice.why_not}. Change the model, export it, then: {advice.by_hand}")
    return 1


def _print(tried: Tried, *, quiet: bool) -> None:
    if not quiet:
        frame.say(tried.diff)
        frame.say_wrote(tried.home / DIFF)
        frame.say_wrote(tried.home / PATCHED)
        if tried.measured:
            frame.say(f"Before: {tried.measured.a}\nAfter: {tried.measured.b}\n")
    for sentence in in_words(tried):
        frame.say(sentence)
    if tried.measured:
        frame.say(f"{headline(tried.measured.comparison)} A: before the change, B: after it.")
    else:
        frame.say(tried.why_not_measured)


def _facts(tried: Tried) -> dict[str, object]:
    sides = {"before": tried.before, "after": tried.after}
    return {
        "schema_version": 1,
        "tried": True,
        "finding": tried.advice.finding.id,
        "diff": tried.diff,
        "outdir": str(tried.home),
        **{
            side: {
                "program": str(made.pte),
                "delegate_calls": made.coverage.partitions,
                "operators_outside": len(made.coverage.undelegated),
                "delegated_share": made.coverage.share,
            }
            for side, made in sides.items()
        },
        "outputs": {**record_json(tried.outputs), "agree": tried.agrees},
        "comparison": comparison_facts(tried.measured.comparison) if tried.measured else None,
        "why_not_measured": tried.why_not_measured or None,
    }
