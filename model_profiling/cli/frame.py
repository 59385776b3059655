"""What all commands share: options, printing of text and facts, and the decorator that makes a command.

A command's function calls the library, prints with `say`, `facts` or `table`, and returns the exit code: None
or 0 for done, 1 if the answer is no. Library errors pass through to `main`.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from model_profiling.core.errors import InputError
from model_profiling.core.formatting import in_short, no_command, printable
from model_profiling.core.number_formats import parse_keep
from model_profiling.core.stdio import say_aside, shown_progress

if TYPE_CHECKING:
    from model_profiling.config.series import WarningLine
    from model_profiling.report.verdict import RunAnswers
    from model_profiling.runs import Run

T = TypeVar("T")
Function = Callable[..., int | None]
Decorator = Callable[[Function], Function]


def command(name: str, *, example: str, facts: bool = False) -> Callable[[Function], click.Command]:
    """Make a click command of a function; its docstring is the help text, with `example` shown below it.
    `facts` adds `--json`, passed on as `as_json`. Every command takes `--debug`, which `main` reads."""

    def make(function: Function) -> click.Command:
        made = click.command(name, epilog=_epilog(example))(function)
        if facts:
            made.params.append(
                click.Option(["--json", "as_json"], is_flag=True, help="Print the facts as JSON.")
            )
        made.params.append(debug_option())
        return made

    return make


def group(name: str, help: str, commands: Sequence[click.Command], *, example: str) -> click.Group:
    return click.Group(name, commands=commands, help=help, epilog=_epilog(example), params=[debug_option()])


def _epilog(example: str) -> str:
    lines = (f"  {line.strip()}" for line in example.strip().splitlines())
    return "\b\nExample:\n" + "\n".join(lines)


def debug_option() -> click.Option:
    return click.Option(
        ["--debug"],
        is_flag=True,
        expose_value=False,
        help="Show the traceback and the libraries' own output.",
    )


class FloatRange(click.FloatRange):
    """A finite number in a range: click accepts `nan` in any range, because no comparison with it is true."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a number.", param, ctx)
        return number


class Counts(click.ParamType):  # type: ignore[type-arg]  # generic in newer clicks only
    """Different whole numbers, separated by commas; each at least `least`, and of at most nine digits.
    With `auto`, that word is none at all."""

    name = "text"

    def __init__(self, least: int = 1, *, auto: bool = False) -> None:
        self._least, self._auto = least, auto

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):  # a second call must change nothing
            return value
        if self._auto and value == "auto":
            return ()
        words = [word.strip() for word in value.split(",")]
        if not all(re.fullmatch("[0-9]{1,9}", word) for word in words) or len(set(words)) < len(words):
            self.fail(f"{value!r} is not a list of different whole numbers such as 1,2,4", param, ctx)
        if min(map(int, words)) < self._least:
            self.fail(f"{min(map(int, words))} is too small: at least {self._least}", param, ctx)
        return tuple(map(int, words))


# `sme2prof --help` loads this module: what only commands need is imported in the functions that use it.


def input_path(named: str) -> Path:
    from model_profiling.core import files

    return files.as_path(named)


def output_file(named: str) -> Path:
    if named == "-":
        raise InputError("- is not a file", "name a file; --json prints facts")
    return input_path(named)


def output_folder(named: str) -> Path:
    path = input_path(named)
    if named == "-" or path.is_file():
        raise InputError(f"{named} is not a folder", "name a folder: several files are written")
    return path


class _NamedPath(click.ParamType):  # type: ignore[type-arg]  # generic in newer clicks only
    """A path that the system can accept; others are refused now, and errors name the option."""

    name = "path"

    def __init__(self, convert: Callable[[str], Path]) -> None:
        self._convert = convert

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        try:
            return value if isinstance(value, Path) else self._convert(str(value))
        except InputError as problem:
            self.fail(str(problem), param, ctx)


PATH = _NamedPath(input_path)
FILE = _NamedPath(output_file)
FOLDER = _NamedPath(output_folder)


def _as_times(_context: click.Context, _option: click.Parameter, word: str | None) -> object:
    from model_profiling.runs.times import Times

    return Times(word) if word else None


def _as_choice(_context: click.Context, _option: click.Parameter, word: str | None) -> bool | Path:
    """Whether to rewrite, or the saved choice; refused now, because click takes a model behind it for it."""
    from model_profiling.export.rewrites import choice_file

    return choice_file(word) if word else word is not None


times_option = click.option(
    "--times",
    type=click.Choice(["hardware", "emulated"]),
    callback=_as_times,
    help="Say where dumps without a manifest.json were measured; otherwise their times are not latencies.",
)
evidence_option = click.option(
    "--evidence",
    multiple=True,
    type=PATH,
    metavar="RUN_DIR|ssh:HOST",
    help="For a CPU without SME2: an emulated run of the same .pte file that shows what runs on SME2, or a "
    "Linux machine with the kit to make one. It is kept in the run. May be given several times.",
)
force_option = click.option(
    "--force", is_flag=True, help="Replace an unfinished run; without this it is continued."
)
no_wait_option = click.option(
    "--no-wait", is_flag=True, help="If others use this machine for measuring, exit with 2 and do not wait."
)
quiet_option = click.option("--quiet", is_flag=True, help="Print only the answers and where the report is.")


def budget_of(usual: str, more: str = "(at least six launches are made)") -> Decorator:
    return click.option(
        "--budget",
        "budget_s",
        type=FloatRange(0, 86_400, min_open=True),
        metavar="SECONDS",
        show_default=usual,
        help=f"Time limit for measuring, in seconds {more}.",
    )


budget_option = budget_of("30")
threads_option = click.option(
    "--threads", type=Counts(), default="1", show_default=True, help="Thread counts, such as 1,2,4."
)
calibrate_option = click.option(
    "--calibrate",
    "calibration",
    metavar="FILE.py:FUNCTION|FILE.npz",
    show_default="the example inputs",
    help="Real inputs: int8 takes its ranges from them, and outputs are compared with PyTorch on them.",
)
keep_option = click.option(
    "--keep",
    multiple=True,
    callback=lambda _context, _option, pairs: parse_keep(pairs),
    metavar="MODULE=fp32",
    help="Keep a layer, or all layers of a class, in fp32; may be given several times.",
)
optimize_option = click.option(
    "--optimize",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    callback=_as_choice,
    help="Rewrite the graph first: as FILE (optimization.json) says, or as `sme2prof optimize` chose for "
    "this model, or else by structure.",
)
outdir_option = click.option(
    "--outdir", type=FOLDER, show_default="out_MODEL", help="Folder for artifacts/ and runs/."
)
store_option = click.option(
    "--store",
    metavar="FILE",
    show_default="$SME2PROF_STORE, else sme2prof.db in this folder",
    help="The store: a file, or a server (postgresql://...).",
)


KEPT = "everything measured so far is kept; the same command continues"


def _by_input(read: Callable[[str], T]) -> Callable[..., dict[str, T]]:
    """Read `tokens=32` as the input's name and what it is given."""

    def convert(_context: click.Context, option: click.Parameter, words: Sequence[str]) -> dict[str, T]:
        try:
            return {name: read(given) for name, _, given in (word.partition("=") for word in words)}
        except ValueError as problem:
            raise click.BadParameter(f"{problem}; write {option.metavar}") from problem

    return convert


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in text.split("x"))
    if min(sizes) < 1:
        raise ValueError("a length is at least 1")
    return sizes


def _finite(text: str) -> tuple[float, ...]:
    numbers = tuple(map(float, text.split(",")))
    if not all(map(math.isfinite, numbers)):
        raise ValueError("values must be finite numbers")
    return numbers


def case_options(about: str = "") -> Decorator:
    """Add `--method`, `--length` and `--input`, which choose what of a program runs. Their help begins with
    `about`."""
    method = click.option("--method", metavar="NAME", help=f"{about}Method of a .pte file that has several.")
    lengths = click.option(
        "--length",
        "lengths",
        multiple=True,
        callback=_by_input(_sizes),
        metavar="INPUT=N",
        help=f"{about}Length (32) or all sizes (1x32) of an input that may vary.",
    )
    values = click.option(
        "--input",
        "values",
        multiple=True,
        callback=_by_input(_finite),
        metavar="INPUT=V,...",
        help=f"{about}Values of an input, by name or number; one value fills all of it.",
    )
    return lambda function: method(lengths(values(function)))


def warn_of_unused_evidence(evidence: Sequence[Path], mains: Iterable[Run]) -> None:
    if evidence and any(main.evidence is None for main in mains):
        warn("--evidence has no effect: it is for latencies of a CPU without SME2")


_words: list[str] = []


def remember(words: Sequence[str]) -> None:
    """Keep the command's words as a person or a documented script gave them."""
    _words[:] = words


def command_line() -> tuple[str, ...]:
    """The command that repeats this run."""
    return ("sme2prof", *_words)


def debugging() -> bool:
    return "--debug" in _words


def say(text: str = "", *, err: bool = False) -> None:
    """Print text, made safe: names in it may hold terminal escapes or commands to a CI service."""
    safe = no_command(printable(text))
    if err:
        say_aside(safe)
    else:
        click.echo(safe)


def say_wrote(path: Path, more: str = "") -> None:
    say(f"wrote {path}{more}")


def warn(text: str) -> None:
    say(f"warning: {in_short(text)}", err=True)


def fail(text: str) -> None:
    say(f"error: {in_short(text)}", err=True)


def facts(content: Mapping[str, object]) -> None:
    """Print JSON."""
    import json

    say(json.dumps(content, indent=2, ensure_ascii=False, default=str))


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns without decoration."""
    from model_profiling.report.document import make_table, render_terminal

    say(render_terminal([make_table(headers, rows)]))


# The end of a command's output: answers, warnings and pages.


def print_answers(run_answers: RunAnswers, *, quiet: bool = False) -> None:
    """Print the notes (unless `quiet`), then the three answers."""
    from model_profiling.report.document import make_list, render_terminal

    if run_answers.notes and not quiet:
        say(render_terminal(make_list(run_answers.notes)) + "\n")
    say(render_terminal([run_answers.block]))


def pages(report: Path) -> list[Path]:
    """The report's files, the one to open first at the front."""
    return list(dict.fromkeys((report.with_suffix(".html"), report)))


def page_facts(report: Path) -> dict[str, object]:
    return {"report": str(report), "report_html": str(pages(report)[0])}


def print_warnings(lines: Sequence[WarningLine], *, quiet: bool) -> int:
    """Print warnings; return exit code 2 if an experiment failed, which is printed even if `quiet`."""
    from model_profiling.config.series import Weight

    failed = False
    for line in lines:
        if line.kind == "failed":
            failed = True
            fail(line.text)
        elif not quiet or line.weight is Weight.FAILED:
            warn(line.text)
    return 2 if failed else 0


@contextlib.contextmanager
def measuring(kept: str = "", *, quiet: bool, no_wait: bool = False) -> Iterator[None]:
    """Show progress of a measurement; Ctrl-C says what is `kept`. With `no_wait`, refuse if somebody else
    measures on this machine."""
    from model_profiling.targets.machine_lock import may_wait

    try:
        with may_wait(not no_wait), shown_progress(lines=True, quiet=quiet):
            yield
    except KeyboardInterrupt as ended:
        ended.args = ended.args or ((kept,) if kept else ())
        raise
