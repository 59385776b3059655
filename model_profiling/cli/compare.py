"""`sme2prof compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from model_profiling.analysis.structure import Aspect
from model_profiling.cli import frame
from model_profiling.cli.frame import print_warnings
from model_profiling.config import names
from model_profiling.core import files
from model_profiling.core.errors import InputError
from model_profiling.report.comparison import Comparison, headline
from model_profiling.report.comparison_document import (
    comparison_document,
    comparison_facts,
    comparison_junit,
    comparison_page,
)
from model_profiling.report.document import Folded, render_markdown, render_terminal
from model_profiling.report.tools import file_word
from model_profiling.runner.machine import parse_target, target_kinds
from model_profiling.workflow.compare import are_programs, compare
from model_profiling.workflow.report import write_page


def _limit_option(flag: str, name: str, worse: str) -> frame.Decorator:
    return click.option(
        flag,
        name,
        type=frame.FloatRange(min=0, max=1000),
        metavar="PCT",
        help=f"Exit with 1 if {worse} by more than PCT percent.",
    )


@frame.command(
    "compare",
    example="""sme2prof compare before/runs/xnnpack_fp16/linux after/runs/xnnpack_fp16/linux
    sme2prof compare main/runs pr/runs --fail-on-regression 5 --out summary.md --out compare.xml
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
@_limit_option("--fail-on-regression", "limit", "an experiment of B is significantly slower,")
@_limit_option("--fail-on-memory", "memory_limit", "B's peak memory is larger")
@_limit_option("--fail-on-load", "load_limit", "B takes longer to load")
@click.option(
    "--fail-on-change",
    "fail_on",
    multiple=True,
    type=click.Choice(["kernels", "structure"]),
    help="Exit with 1 if other kernels ran, or if operators, shapes, types or delegation changed. Works with "
    "emulated runs; may be given twice.",
)
@click.option(
    "--out",
    multiple=True,
    type=frame.FILE,
    show_default="out_compare/A_vs_B/comparison.html; none with --quiet or --json",
    help="File to write: .html is a page, .md a summary for a pull request, .xml JUnit for a CI system; may "
    "be given several times.",
)
@click.option("--across-machines", is_flag=True, help="Compare even if the CPUs differ.")
@click.option("--quiet", is_flag=True, help="Print only the verdict.")
@frame.times_option
@click.option("--target", show_default="auto", help=f"Programs: where: {', '.join(target_kinds())}.")
@frame.case_options("Programs: ")
@click.option("--threads", type=frame.Counts(), show_default="1", help="Programs: counts, such as 1,2,4.")
@frame.budget_option
@click.option(
    "--outdir", type=frame.FOLDER, show_default="out_compare/A_vs_B", help="Programs: folder for their runs."
)
@frame.no_wait_option
def compare_command(
    *,
    a: Path,
    b: Path | None,
    against: str | None,
    limit: float | None,
    memory_limit: float | None,
    load_limit: float | None,
    fail_on: tuple[Aspect, ...],
    out: tuple[Path, ...],
    quiet: bool,
    as_json: bool,
    **given: Any,  # options for a baseline, for measurements or for programs, typed by click
) -> int:
    """Say which of A and B is faster, how sure that is, and what else differs.

    A and B are run directories, folders with one run, or .etdump files. Two programs (.pte) are measured
    first, taking turns, which finds the smallest differences. If a --fail-on-... gate cannot be answered, it
    exits with 2 and says why. For runs side by side without a verdict, use `sme2prof report`.
    """
    if (against is None) == (b is None):
        raise click.UsageError(
            "name two runs A and B, or one run and its baseline: --against store:last-good"
        )
    programs = b is not None and are_programs(a, b)
    compared = "a baseline" if against else "programs" if programs else "measurements"
    for name, value in given.items():
        if value and name not in _USED_BY[compared]:
            users = " or ".join(what for what, used in _USED_BY.items() if name in used)
            option = _SPELLED.get(name, name).replace("_", "-")
            raise click.UsageError(f"--{option} is for {users}, not for {compared}: leave it out")
    shares = {"limit": limit, "memory_limit": memory_limit, "load_limit": load_limit}
    gates: dict[str, Any] = {name: pct if pct is None else pct / 100 for name, pct in shares.items()}
    if against and (fail_on or memory_limit is not None or load_limit is not None):
        raise click.UsageError(
            "with --against only --fail-on-regression: for others name two run directories"
        )
    for path in out:
        if path.suffix not in (names.HTML, ".md", ".xml"):
            raise click.UsageError(f"--out {path} does not say what to write: end it in .html, .md or .xml")
    gates["fail_on"] = fail_on
    times, across_machines = given.pop("times"), given.pop("across_machines")
    store, device = given.pop("store"), given.pop("device")
    failed, folder = 0, _own_folder(a, b or Path((against or "").removeprefix("store:")))
    if b is None:
        from model_profiling.store.store import Store
        from model_profiling.workflow.stored_runs import baseline_word, compare_with_baseline

        word = baseline_word(str(against))
        comparison = compare_with_baseline(
            a,
            word,
            store=Store.open(store),
            limit=gates["limit"],
            device=device,
            across_machines=across_machines,
        )
    elif programs:
        comparison, failed, folder = _measure(a, b, gates, given, quiet=quiet, as_json=as_json)
    else:
        comparison = compare(a, b, **gates, across_machines=across_machines, times=times)
    page = _write(comparison, out, None if quiet or as_json else folder / names.COMPARISON)
    if as_json:
        frame.facts({**comparison_facts(comparison), "report": str(page) if page else None})
    else:
        _print(comparison, page, quiet=quiet)
    return _exit_code(comparison) or failed


_USED_BY: dict[str, set[str]] = {
    "a baseline": {"store", "device", "across_machines"},
    "measurements": {"times", "across_machines"},
    "programs": {
        *("target", "method", "lengths", "values", "threads"),
        *("budget_s", "outdir", "no_wait"),
    },
}
_SPELLED = {"budget_s": "budget", "lengths": "length", "values": "input"}
"""Options whose value has another name."""


def _own_folder(a: Path, b: Path) -> Path:
    """The folder of the page: `out_compare/A_vs_B`, by the last parts of the two paths that differ."""
    sides = zip(reversed(a.resolve().parts), reversed(b.resolve().parts), strict=False)
    different = next(((one, other) for one, other in sides if one != other), (a.name, b.name))
    return Path("out_compare") / "_vs_".join(file_word(Path(name).stem) for name in different)


def _measure(
    a: Path, b: Path, gates: dict[str, Any], given: dict[str, Any], *, quiet: bool, as_json: bool
) -> tuple[Comparison, int, Path]:
    """Return the comparison, exit code 2 if a program failed, and the folder of the runs."""
    from model_profiling.workflow.compare_programs import compare_programs
    from model_profiling.workflow.measure import RunOptions
    from model_profiling.workflow.profile import ProfileOptions

    target, no_wait = parse_target(given.pop("target") or "auto"), given.pop("no_wait")
    options, run = ProfileOptions(target=target, **given), RunOptions(command_line=frame.command_line())
    with frame.measuring(frame.KEPT, quiet=quiet, no_wait=no_wait):
        compared = compare_programs(a, b, options, run, **gates)
    if not quiet and not as_json:
        frame.say(f"A's run: {compared.a}\nB's run: {compared.b}\n")
    failed = print_warnings(compared.warnings, quiet=quiet or as_json)
    return compared.comparison, failed, compared.home


def _write(comparison: Comparison, out: tuple[Path, ...], usual: Path | None) -> Path | None:
    """Write the files in `out`, and return the page's path. Without a page among them, `usual` is one; that
    it cannot be written fails no comparison."""
    blocks, (title, page_blocks) = comparison_document(comparison), comparison_page(comparison)
    page = None
    for path in out:
        if path.suffix == names.HTML:
            page = write_page(page_blocks, path, title)
        elif path.suffix == ".xml":
            files.write_text(path, comparison_junit(comparison))
        else:
            files.write_text(path, render_markdown(blocks))
    if page is None and usual is not None:
        try:
            page = write_page(page_blocks, usual, title)
        except InputError as problem:
            frame.warn(f"no page was written: {problem}")
    return page


def _print(comparison: Comparison, page: Path | None, *, quiet: bool) -> None:
    """Print the headline last: on a terminal that is what people read first."""
    if not quiet:
        blocks = comparison_document(comparison)[1:]
        frame.say(render_terminal([block for block in blocks if not isinstance(block, Folded)]).strip())
        if page:
            frame.say_wrote(page)
    frame.say(headline(comparison))


def _exit_code(comparison: Comparison) -> int:
    if comparison.answer == "failed":
        return 1
    if comparison.answer == "no answer":
        what, why = comparison.unanswered[0]
        raise InputError(f"{what} cannot be compared: {why}", "a gate without an answer does not pass")
    return 0
