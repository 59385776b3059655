"""`sme2prof compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import click

from model_profiling.analysis.structure import Aspect
from model_profiling.cli import for_tools, frame
from model_profiling.cli.progress import measuring
from model_profiling.config import names
from model_profiling.core import files
from model_profiling.core.errors import InputError, ProfilingError
from model_profiling.core.records import record_json
from model_profiling.report.comparison import Comparison, comparison_facts, headline
from model_profiling.report.comparison_document import comparison_document, comparison_junit, comparison_page
from model_profiling.report.document import Folded
from model_profiling.report.text import render_markdown, render_terminal
from model_profiling.report.tools import file_word
from model_profiling.runner.machine import parse_target, target_kinds
from model_profiling.runs import Times
from model_profiling.workflow.compare import are_programs, compare
from model_profiling.workflow.compare_language import compare_language, language_folders
from model_profiling.workflow.report import tell_of_comparison, write_page

if TYPE_CHECKING:
    from model_profiling.workflow.baselines import KeptVerdict


@frame.command(
    "compare",
    example="""sme2prof compare before/runs/xnnpack_fp16/linux after/runs/xnnpack_fp16/linux
    sme2prof compare main.json pr.json --fail-on-regression 5 --markdown summary.md --junit compare.xml
    sme2prof compare before.pte after.pte --budget 60
    sme2prof compare before.pte after.pte --target android:SERIAL
    sme2prof compare out_toy_cnn/runs/xnnpack_fp16/linux --against store:last-good --fail-on-regression 5""",
    facts=True,
)
@click.argument("a", type=frame.PATH)
@click.argument("b", type=frame.PATH, required=False)
@click.option(
    "--against",
    metavar="store:BASELINE",
    help="Compare A with a run of a store: its id, name or tag, or last-good.",
)
@frame.store_option
@click.option("--device", metavar="NAME", help="With --against: this machine's name in the store.")
@click.option("--add", is_flag=True, help="With --against: add the run to the store, tagged good or bad.")
@click.option(
    "--first-is-good",
    is_flag=True,
    help="With --add: pass if the store has no run of this model on this device yet.",
)
@click.option(
    "--fail-on-regression",
    "limit",
    type=frame.FloatRange(min=0, max=1000),
    metavar="PCT",
    help="Exit with 1 if an experiment of B is significantly slower, by more than PCT percent.",
)
@click.option(
    "--fail-on-kernel-change",
    is_flag=True,
    help="Exit with 1 if other kernels ran, or an operator uses another one. Works with emulated runs.",
)
@click.option(
    "--fail-on-structure-change",
    is_flag=True,
    help="Exit with 1 if operators, shapes, types or delegation changed. Works with emulated runs.",
)
@click.option(
    "--out",
    type=frame.FILE,
    show_default="out_compare/A_vs_B/comparison.html; none with --quiet or --json",
    help="Page to write: .html, or .md with an .html beside it.",
)
@click.option("--markdown", type=frame.FILE, help="Write a summary for a pull request to this file.")
@click.option("--junit", type=frame.FILE, help="Write JUnit XML for a CI system to this file.")
@click.option("--across-machines", is_flag=True, help="Compare even if the CPUs differ.")
@click.option("--quiet", is_flag=True, help="Print only the verdict.")
@frame.times_option
@click.option("--target", show_default="auto", help=f"Programs: where: {', '.join(target_kinds())}.")
@frame.case_options(about="Programs: ")
@click.option("--threads", type=frame.Counts(), show_default="1", help="Programs: counts, such as 1,2,4.")
@frame.budget_option
@click.option(
    "--outdir", type=frame.FOLDER, show_default="out_compare/A_vs_B", help="Programs: folder for their runs."
)
@frame.resume_options(
    "Programs: continue an unfinished measurement.",
    "Programs: replace an unfinished measurement.",
)
@frame.no_wait_option
def compare_command(
    *,
    a: Path,
    b: Path | None,
    against: str | None,
    limit: float | None,
    fail_on_kernel_change: bool,
    fail_on_structure_change: bool,
    out: Path | None,
    markdown: Path | None,
    junit: Path | None,
    across_machines: bool,
    times: Times | None,
    quiet: bool,
    as_json: bool,
    **asked: Any,  # options for a store or for programs, typed by click
) -> int:
    """Say which of A and B is faster, how sure that is, and what else differs.

    A and B are run directories or folders with one run, .etdump files, metrics.json or _robust_stats.json, or
    two folders of `sme2prof llm`, whose cases are compared one by one. Two programs (.pte) are measured
    first, taking turns, which finds the smallest differences. If a --fail-on-... gate cannot be answered, it
    exits with 2 and says why. For runs side by side without a verdict, use `sme2prof report`.
    """
    aspects: dict[Aspect, bool] = {"structure": fail_on_structure_change, "kernels": fail_on_kernel_change}
    gates: Gates = {
        "limit": None if limit is None else limit / 100,
        "fail_on": tuple(aspect for aspect, wanted in aspects.items() if wanted),
    }
    stored = {name: asked.pop(name) for name in ("store", "device", "add", "first_is_good")}
    given = [_OPTIONS.get(name, name) for name, value in asked.items() if value]
    kept: KeptVerdict | None = None
    unkept: ProfilingError | None = None
    failed, folder = 0, _own_folder(a, b or Path((against or "").removeprefix("store:")))
    if against is not None:
        if b is not None:
            raise click.UsageError("--against compares one run with a stored one: name one run")
        if given or times is not None:
            raise click.UsageError(f"--{[*given, 'times'][0]} has no effect with --against: leave it out")
        comparison, kept, unkept = _judged(a, against, gates, across_machines=across_machines, **stored)
    elif b is None:
        raise click.UsageError("Missing argument 'B'; or name a baseline: --against store:last-good")
    elif about_store := [name for name, value in stored.items() if value]:
        option = about_store[0].replace("_", "-")
        raise click.UsageError(f"--{option} needs a store's baseline: name one with --against")
    elif are_programs(a, b):
        if across_machines or times is not None:
            raise click.UsageError(
                "--across-machines and --times are for measurements, not for programs (.pte)"
            )
        comparison, failed, folder = _measured(a, b, gates, quiet=quiet, as_json=as_json, **asked)
    elif given:
        raise click.UsageError(f"--{given[0]} is for programs (.pte): A and B are measurements")
    elif times is None and (homes := language_folders(a, b)) is not None:
        comparison = compare_language(*homes, **gates, across_machines=across_machines)
    else:
        comparison = compare(a, b, **gates, across_machines=across_machines, times=times)
    _write_summaries(comparison, markdown, junit)
    wanted = out or (None if quiet or as_json else folder / names.COMPARISON)
    page = _written(comparison, wanted, asked=out is not None) if wanted else None
    if as_json:
        about = {"report": str(page) if page else None, "kept": record_json(kept) if kept else None}
        frame.facts({**comparison_facts(comparison), **about})
    else:
        _print(comparison, kept, page, quiet=quiet)
    return _exit_code(comparison, unkept) or failed


def _own_folder(a: Path, b: Path) -> Path:
    """The folder of the page: `out_compare/A_vs_B`, by the last parts of the two paths that differ."""
    sides = reversed(a.resolve().parts), reversed(b.resolve().parts)
    different = next(
        ((one, other) for one, other in zip(*sides, strict=False) if one != other), (a.name, b.name)
    )
    return Path("out_compare") / "_vs_".join(file_word(Path(name).stem) for name in different)


def _write_summaries(comparison: Comparison, markdown: Path | None, junit: Path | None) -> None:
    blocks = comparison_document(comparison)
    if problem := tell_of_comparison(blocks):
        frame.warn(problem)
    if markdown is not None:
        files.write_out(markdown, render_markdown(blocks))
    if junit is not None:
        files.write_out(junit, comparison_junit(comparison))


_OPTIONS = {"budget_s": "budget", "lengths": "length", "values": "input", "no_wait": "no-wait"}
"""Options whose value has another name."""


class Gates(TypedDict):
    """The conditions under which a comparison fails."""

    limit: float | None
    fail_on: tuple[Aspect, ...]


def _judged(
    run_dir: Path,
    against: str,
    gates: Gates,
    *,
    across_machines: bool,
    store: str | None,
    device: str | None,
    add: bool,
    first_is_good: bool,
) -> tuple[Comparison, KeptVerdict | None, ProfilingError | None]:
    """Compare a run with one from a store; with `add`, keep the verdict there. A failure to keep it is
    returned, not raised, so that the verdict is printed first."""
    from model_profiling.store.store import Store
    from model_profiling.workflow.baselines import (
        LAST_GOOD,
        baseline_word,
        compare_with_baseline,
        keep_verdict,
    )

    word = baseline_word(against)
    if add and gates["limit"] is None and not gates["fail_on"]:
        raise click.UsageError("--add keeps a verdict: give a --fail-on-... gate, too")
    if first_is_good and not add:
        raise click.UsageError("--first-is-good needs --add: if nothing is kept, every run passes")
    if first_is_good and word != LAST_GOOD:
        raise click.UsageError(f"--first-is-good is about store:{LAST_GOOD}")
    comparison = compare_with_baseline(
        run_dir,
        word,
        **gates,
        store=Store.open(store, make=first_is_good),
        across_machines=across_machines,
        device=device,
        first_is_good=first_is_good,
    )
    if not add:
        return comparison, None, None
    try:
        return comparison, keep_verdict(Store.open(store), run_dir, comparison, device=device), None
    except ProfilingError as problem:
        return comparison, None, problem


def _measured(
    a: Path,
    b: Path,
    gates: Gates,
    *,
    quiet: bool,
    as_json: bool,
    target: str | None,
    threads: tuple[int, ...] | None,
    resume: bool,
    force: bool,
    no_wait: bool,
    **asked: Any,
) -> tuple[Comparison, int, Path]:
    """Return the comparison, exit code 2 if a program failed, and the folder of the runs."""
    from model_profiling.workflow.measure import RunOptions
    from model_profiling.workflow.profile import compare_programs

    with measuring(frame.KEPT, quiet=quiet, no_wait=no_wait) as progress:
        found = compare_programs(
            a,
            b,
            **gates,
            **asked,
            target=parse_target(target or "auto"),
            threads=threads or (1,),
            run=RunOptions(resume=resume, force=force, command_line=frame.command_line()),
            progress=progress,
        )
    if not quiet and not as_json:
        frame.say(f"A's run: {found.a}\nB's run: {found.b}\n")
    failed = for_tools.print_warnings(found.warnings, quiet=quiet or as_json)
    return found.comparison, failed, found.home


def _written(comparison: Comparison, page: Path, *, asked: bool) -> Path | None:
    """Write the page and return its path; a page that was not asked for fails no comparison."""
    title, blocks = comparison_page(comparison)
    try:
        return write_page(blocks, page, title)
    except InputError as problem:
        if asked:
            raise
        frame.warn(f"no page was written: {problem}")
        return None


def _print(comparison: Comparison, kept: KeptVerdict | None, page: Path | None, *, quiet: bool) -> None:
    """Print the headline last: on a terminal that is what people read first."""
    if not quiet:
        shown = [block for block in comparison_document(comparison)[1:] if not isinstance(block, Folded)]
        frame.say(render_terminal(shown).strip())
        if kept is not None:
            noisy = "without the tag good, because noise could hide a slowdown above the limit"
            frame.say(f"Kept in {kept.store} {f'as {kept.tag}' if kept.tag else noisy}: {kept.run_id}.")
        for written in for_tools.pages(page) if page else ():
            frame.say_wrote(written)
    frame.say(headline(comparison))


def _exit_code(comparison: Comparison, unkept: ProfilingError | None) -> int:
    """A failed gate takes precedence over a failure to keep the run."""
    if comparison.answer == "failed":
        if unkept is not None:
            frame.warn(f"the run is not kept in the store: {unkept}")
        return 1
    if comparison.answer == "no answer":
        what, why = comparison.unanswered[0]
        raise InputError(f"{what} cannot be compared: {why}", "a gate without an answer does not pass")
    if unkept is not None:
        raise unkept
    return 0
