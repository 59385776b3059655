"""What all commands share: options, printing of text and facts, and the decorator that makes a command.

A command's function calls the library, prints with `say`, `facts` or `table`, and returns the exit code: None
or 0 for done, 1 if the answer is no. Library errors pass through to `main`.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from model_profiling.core import files
from model_profiling.core.errors import InputError
from model_profiling.core.formatting import in_short, no_command, printable
from model_profiling.core.number_formats import parse_keep
from model_profiling.core.stdio import say_aside

if TYPE_CHECKING:
    from model_profiling.analysis.headroom import Outlook
    from model_profiling.runs import Run

_MOST = 10**9
T = TypeVar("T")

Function = Callable[..., int | None]
Decorator = Callable[[Function], Function]


def command(name: str, *, example: str, facts: bool = False) -> Callable[[Function], click.Command]:
    """Make a click command of a function; its docstring is the help text, with `example` shown below it.
    `facts` adds `--json`, passed on as `as_json`. Every command takes `--debug`, which `main` reads."""

    def make(function: Function) -> click.Command:
        @functools.wraps(function)
        def call(**given: object) -> int | None:
            if _files_on_stdout and given.get("as_json"):
                raise click.UsageError("--json goes to standard output already: name a file in place of -")
            return function(**given)

        made = click.command(name, _Command, epilog=_epilog(example))(call)
        if facts:
            made.params.append(
                click.Option(["--json", "as_json"], is_flag=True, help="Print the facts as JSON.")
            )
        made.params.append(debug_option())
        return made

    return make


class _Command(click.Command):
    """Shows defaults in one style, and of an option only its first name: others are earlier spellings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        records = [record for option in options if (record := option.get_help_record(ctx))]
        with formatter.section("Options"):
            formatter.write_dl([(_FIRST.sub(r"\1", names), _in_one_style(text)) for names, text in records])


_FIRST = re.compile(r"(--[\w-]+), --[\w-]+")
_LIMITS = re.compile(r"(; |  \[)[^;\[\]\n]*\bx\b[^;\[\]\n]*\]$")


def _in_one_style(text: str) -> str:
    """`[default: 5]`: without click's parentheses, and without the limits, which its errors state."""
    text = _LIMITS.sub(lambda found: "]" if found[1] == "; " else "", text)
    return re.sub(r"\[default: \((.*)\)\]$", r"[default: \1]", text)


def group(name: str, help: str, commands: Sequence[click.Command], *, example: str) -> click.Group:
    return click.Group(name, commands=commands, help=help, epilog=_epilog(example), params=[debug_option()])


def _epilog(example: str) -> str:
    lines = (f"  {line.strip()}" for line in example.strip().splitlines())
    return "\b\nExample:\n" + "\n".join(lines)


class _NamedPath(click.Path):
    """A path that the system can accept: others are refused now, not in the middle of the work."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        named = files.as_path(value)
        super().convert(named, param, ctx)
        return named


class IntRange(click.IntRange):
    """An integer of limited size: click itself accepts numbers of 4,300 digits."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = int(super().convert(value, param, ctx))
        if abs(number) > _MOST:
            self.fail(f"{value} is more than {_MOST}.", param, ctx)
        return number


class FloatRange(click.FloatRange):
    """A finite number in a range: click accepts `nan` in any range, because no comparison with it is true."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a number.", param, ctx)
        return number


def debug_option() -> click.Option:
    return click.Option(
        ["--debug"],
        is_flag=True,
        expose_value=False,
        help="Show the traceback and the libraries' own output.",
    )


class Counts(click.ParamType):  # type: ignore[type-arg]  # generic in newer clicks only
    """Different whole numbers, separated by commas; each at least `least`, and of at most nine digits."""

    name = "text"

    def __init__(self, least: int = 1, like: str = "1,2,4") -> None:
        self._least, self._like = least, like

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):  # a second call must change nothing
            return value
        words = [word.strip() for word in value.split(",")]
        if not all(re.fullmatch("[0-9]{1,9}", word) for word in words):
            self.fail(f"{value!r} is not a list of whole numbers such as {self._like}", param, ctx)
        found = tuple(map(int, words))
        if min(found) < self._least:
            self.fail(f"{min(found)} is too small: at least {self._least}", param, ctx)
        if len(set(found)) < len(found):
            self.fail(f"{value!r} names a number twice", param, ctx)
        return found


def _as_times(_context: click.Context, _option: click.Parameter, word: str | None) -> object:
    from model_profiling.runs.times import Times

    return Times(word) if word else None


def _as_factors(_context: click.Context, _option: click.Parameter, text: str | None) -> object:
    if text is None:
        return None
    from model_profiling.runs.evidence import parse_factors

    return parse_factors(text)


PATH = _NamedPath(readable=False, path_type=Path)


def _as_keep(_context: click.Context, _option: click.Parameter, pairs: tuple[str, ...]) -> tuple[str, ...]:
    return parse_keep(pairs)


times_option = click.option(
    "--times",
    type=click.Choice(["hardware", "emulated"]),
    callback=_as_times,
    help="Say where dumps without a manifest.json were measured; otherwise their times are not latencies.",
)
factor_option = click.option(
    "--sme2-factor",
    "factors",
    metavar="LOW:HIGH|FILE",
    callback=_as_factors,
    show_default="3:15",
    help="Assumed speedup of convolutions and GEMM with SME2, for the projection: a range, or a JSON file "
    "with a range for each. It is kept in the run.",
)
evidence_option = click.option(
    "--evidence",
    multiple=True,
    type=PATH,
    metavar="RUN_DIR|ssh:HOST",
    help="For a CPU without SME2: an emulated run of the same .pte file that shows what runs on SME2, or a "
    "Linux machine with the kit to make one. It is kept in the run. May be given several times.",
)
no_wait_option = click.option(
    "--no-wait", is_flag=True, help="If others use this machine for measuring, exit with 2 and do not wait."
)
quiet_option = click.option("--quiet", is_flag=True, help="Print only the answers and where the report is.")
budget_option = click.option(
    "--budget",
    "budget_s",
    type=FloatRange(0, 86_400, min_open=True),
    metavar="SECONDS",
    show_default="30",
    help="Time limit for measuring, in seconds (at least six launches are made).",
)
threads_option = click.option(
    "--threads",
    type=Counts(),
    default="1",
    show_default=True,
    help="Thread counts, such as 1,2,4.",
)
rounds_option = click.option(
    "--rounds",
    type=IntRange(1),
    show_default="no limit",
    help="The most launches.",
)
calibrate_option = click.option(
    "--calibrate",
    "--calibration",
    "calibration",
    metavar="FILE.py:FUNCTION|FILE.npz",
    show_default="the example inputs",
    help="Real inputs: int8 takes its ranges from them, and outputs are compared with PyTorch on them.",
)
keep_option = click.option(
    "--keep",
    multiple=True,
    callback=_as_keep,
    metavar="MODULE=fp32",
    help="Keep a layer, or all layers of a class, in fp32; may be given several times.",
)
sample_option = click.option(
    "--sample",
    is_flag=True,
    help="Also show which kernels run inside each operator; this takes extra runs.",
)
store_option = click.option(
    "--store",
    metavar="FILE",
    show_default="$SME2PROF_STORE, else sme2prof.db in this folder",
    help="The store: a file, or a server (postgresql://...).",
)


KEPT = "everything measured so far is kept; continue with the same command and --resume"


def resume_options(resume: str, force: str, again: str = "--force") -> Decorator:
    """Add `--resume` and `--force`, which exclude each other; `again` is the name shown for the second."""

    def add(function: Function) -> Function:
        @functools.wraps(function)
        def call(**given: Any) -> int | None:
            if given["resume"] and given["force"]:
                raise click.UsageError(f"--resume continues, {again} starts again: give one of them")
            return function(**given)

        spelled = dict.fromkeys((again, "--force"))
        with_force = click.option(*spelled, "force", is_flag=True, help=force)(call)
        return click.option("--resume", is_flag=True, help=resume)(with_force)

    return add


def _by_input(
    option: click.Parameter, words: Sequence[str], read: Callable[[str], T]
) -> dict[str, tuple[T, ...]]:
    """`tokens=32,128` as the input's name and what it is given."""
    found = {}
    for word in words:
        name, _, given = word.partition("=")
        try:
            found[name] = tuple(read(each) for each in given.split(","))
        except ValueError as problem:
            raise click.BadParameter(f"{word!r} is not {option.metavar}") from problem
    return found


def _lengths(
    _context: click.Context, option: click.Parameter, words: Sequence[str]
) -> dict[str, tuple[tuple[int, ...], ...]]:
    found = _by_input(option, words, lambda text: tuple(int(size) for size in text.split("x")))
    if any(size < 1 for lengths in found.values() for length in lengths for size in length):
        raise click.BadParameter("a length is at least 1")
    return found


def _values(
    _context: click.Context, option: click.Parameter, words: Sequence[str]
) -> dict[str, tuple[float, ...]]:
    found = _by_input(option, words, float)
    if not all(math.isfinite(value) for values in found.values() for value in values):
        raise click.BadParameter("values must be finite numbers")
    return found


def case_options(*, several: bool = False, about: str = "") -> Decorator:
    """Add `--method`, `--length` and `--input`, which choose what of a program runs: `several` methods and
    lengths, or one. Their help begins with `about`."""
    method = click.option(
        "--method",
        metavar="NAME",
        show_default="all" if several else None,
        help=f"{about}Method of a .pte file that has several.",
    )
    lengths = click.option(
        "--length",
        "lengths",
        multiple=True,
        callback=_lengths,
        metavar="INPUT=N,..." if several else "INPUT=N",
        help=f"{about}Length (32) or all sizes (1x32) of an input that may vary"
        f"{'; several are profiled one by one' if several else ''}.",
    )
    values = click.option(
        "--input",
        "values",
        multiple=True,
        callback=_values,
        metavar="INPUT=V,...",
        help=f"{about}Values of an input, by name or number; one value fills all of it.",
    )
    return lambda function: method(lengths(values(function)))


def warn_without_projection(outlooks: Iterable[Outlook]) -> None:
    known = list(outlooks)
    if not any(outlook.projections for outlook in known):
        warn(f"--sme2-factor has no effect: {known[0].reason}")


def warn_of_unused_evidence(evidence: Sequence[Path], mains: Iterable[Run]) -> None:
    if evidence and any(main.evidence is None for main in mains):
        warn("--evidence has no effect: it is for latencies of a CPU without SME2")


def warn_of_limits(rounds: int | None, precision: float | None) -> None:
    """Warn of a precision that cannot end measuring, because --rounds ends it before it may."""
    from model_profiling.config.settings import Schedule

    if precision is not None and rounds is not None and rounds <= Schedule().min_rounds:
        warn(f"--precision has no effect: --rounds {rounds} ends measuring before --precision may")


def warn_of_skipped_models(asked: str = "") -> None:
    """Warn of each model folder that cannot be imported, but not of `asked`, which raises its own error."""
    from model_profiling.models.registry import discover, skipped_folders

    discover()
    for skipped in skipped_folders():
        if asked not in skipped.names:
            warn(skipped.text)


_words: list[str] = []
_files_on_stdout: list[Path] = []
"""Outputs the user sends to standard output; all other text then goes to standard error."""


def remember(words: Sequence[str]) -> None:
    """Keep the command's words as a person or a documented script gave them."""
    _words[:] = words
    _files_on_stdout.clear()


def output_file(named: str) -> Path:
    """The path of an output; `-` is standard output, which can take only one."""
    path = files.STDOUT if named == "-" else files.as_path(named)
    if files.is_stdout(path):
        if _files_on_stdout:
            raise InputError("two outputs go to standard output", "name a file for one of them")
        _files_on_stdout.append(path)
    return path


def output_folder(named: str) -> Path:
    path = files.as_path(named)
    if named == "-" or files.is_stream(path):
        raise InputError(f"{named} is not a folder", "name a folder: several files are written")
    if path.is_file():
        raise InputError(f"{named} is a file, not a folder", "name another folder")
    return path


class _Output(click.ParamType):  # type: ignore[type-arg]  # generic in newer clicks only
    """A path to write to; errors name the option."""

    name = "path"

    def __init__(self, convert: Callable[[str], Path]) -> None:
        self._convert = convert

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        try:
            return value if isinstance(value, Path) else self._convert(str(value))
        except InputError as problem:
            self.fail(str(problem), param, ctx)


FILE = _Output(output_file)
FOLDER = _Output(output_folder)


def command_line() -> tuple[str, ...]:
    """The command that repeats this run."""
    return ("sme2prof", *_words)


def debugging() -> bool:
    return "--debug" in _words


def say(text: str = "", *, err: bool = False) -> None:
    """Print text, made safe: names in it may hold terminal escapes or commands to a CI service."""
    shown = no_command(printable(text))
    if err or _files_on_stdout:
        say_aside(shown)
    else:
        click.echo(shown)


def say_wrote(path: Path, more: str = "") -> None:
    say(f"wrote {'to ' if files.is_stdout(path) else ''}{files.display_name(path)}{more}")


def warn(text: str) -> None:
    say(f"warning: {in_short(text)}", err=True)


def fail(text: str) -> None:
    say(f"error: {in_short(text)}", err=True)


def facts(content: Mapping[str, object]) -> None:
    """Print JSON."""
    say(json.dumps(content, indent=2, ensure_ascii=False, default=str))


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns without decoration."""
    from model_profiling.report.document import make_table
    from model_profiling.report.text import render_terminal

    say(render_terminal([make_table(headers, rows)]))
