"""`sme2prof compare`."""

from __future__ import annotations

from pathlib import Path

import click

from model_profiling import files
from model_profiling.cli import frame
from model_profiling.errors import InputError
from model_profiling.report.comparison_document import (
    comparison_document,
    comparison_facts,
    comparison_junit,
    headline,
)
from model_profiling.report.document import Folded
from model_profiling.report.markdown import render_markdown
from model_profiling.report.terminal import render_terminal
from model_profiling.run import Times
from model_profiling.workflow.compare import compare


@frame.command(
    "compare",
    example="""sme2prof compare before/runs/xnnpack_fp16/linux after/runs/xnnpack_fp16/linux
    sme2prof compare main.json pr.json --fail-on-regression 5 --markdown summary.md --junit compare.xml""",
    facts=True,
)
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option(
    "--fail-on-regression",
    "limit",
    type=click.FloatRange(min=0, max=1000),
    metavar="PCT",
    help="Exit with 1 when an experiment of B is slower beyond chance and by more than PCT percent.",
)
@click.option("--markdown", type=click.Path(path_type=Path), help="Write a summary for a pull request.")
@click.option("--junit", type=click.Path(path_type=Path), help="Write JUnit XML for a CI system.")
@click.option("--across-machines", is_flag=True, help="Compare although the CPUs differ.")
@click.option("--quiet", is_flag=True, help="Print only the verdict.")
@frame.times_option
def command(  # noqa: PLR0917  click passes every option by name
    a: Path,
    b: Path,
    limit: float | None,
    markdown: Path | None,
    junit: Path | None,
    across_machines: bool,
    quiet: bool,
    times: Times | None,
    as_json: bool,
) -> int:
    """Say what changed from A to B, and how sure that is.

    A and B are run directories, .etdump files, metrics.json or _robust_stats.json. With
    --fail-on-regression, what cannot be compared exits with 2 and says why; it never passes silently.
    """
    share = None if limit is None else limit / 100
    comparison = compare(a, b, limit=share, across_machines=across_machines, times=times)
    if markdown is not None:
        files.write_text(markdown, render_markdown(comparison_document(comparison)))
    if junit is not None:
        files.write_text(junit, comparison_junit(comparison))
    if as_json:
        frame.facts(comparison_facts(comparison))
    else:
        # The headline stands last, where a terminal's reader looks first.
        if not quiet:
            shown = [found for found in comparison_document(comparison)[1:] if not isinstance(found, Folded)]
            frame.say(render_terminal(shown).strip())
        frame.say(headline(comparison))
    if comparison.regressions:
        return 1
    if comparison.limit is not None and comparison.not_comparable:
        first = comparison.not_comparable[0]
        raise InputError(
            f"{first.name} cannot be compared: {first.end_to_end.reason}",
            "a gate without an answer does not pass",
        )
    return 0
