"""The entry point of `sme2prof`: loads only the command that is used, and turns failures into one line."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Sequence

import click

from model_profiling._version import __version__
from model_profiling.cli.frame import debug_option, debugging, fail, remember, say, warn
from model_profiling.core.errors import ProfilingError, RunError, refused_by_system
from model_profiling.core.formatting import did_you_mean
from model_profiling.core.stdio import checked_output, end_like_ctrl_c, lost_output

GROUPS = {
    "Measure": {
        "profile": "Export, measure with SME2 on and off, analyse, report: all in one.",
        "llm": "Profile a language model: prompt and answer apart, in tokens/s.",
        "export": "Export a PyTorch model to a .pte program and check its outputs.",
        "run": "Measure what a config file lists; `profile` needs no config.",
        "compare": "Say what changed between two runs or programs; can gate CI.",
        "optimize": "Make a model faster: rewrite its graph, keep what helps.",
    },
    "Read and share": {
        "view": "Open a run, a folder of runs or a store in the browser.",
        "report": "Write a run's report as HTML and Markdown; --share to send it.",
        "analyze": "Write where the time went as CSV and JSON, from any ETDump.",
        "validate": "Check that a run is complete and that its figures add up.",
    },
    "Many runs": {
        "sweep": "Measure many models, number formats and threads on many devices.",
        "worker": "Offer this machine and its devices to sweeps.",
        "store": "Keep many runs in one place; list, tag and check them.",
        "history": "Show a model's latency over time, and where it changed.",
        "query": "Ask a store in SQL; print the rows, or write CSV or JSON.",
    },
    "Set up and automate": {
        "doctor": "Check this machine, and say how to fix what is missing.",
        "models": "List the models that you can name.",
        "config": "Make, check or describe a config or a sweep file.",
        "onboard": "Add your own model: make its folder, check that it runs.",
        "skills": "Install the kit's skills for a coding assistant.",
        "mcp": "Serve the kit to a coding assistant (Model Context Protocol).",
        "clean": "Free disk space here, or remove the kit's files from a device.",
    },
}
"""Each command's one-line summary, in README's groups and order: the daily ones first."""
COMMANDS = [name for group in GROUPS.values() for name in group]
_FILES = {
    "analyze": "report",
    "clean": "checks",
    "doctor": "checks",
    "export": "models",
    "history": "store",
    "mcp": "assistants",
    "onboard": "models",
    "query": "store",
    "run": "profile",
    "skills": "assistants",
    "validate": "checks",
    "view": "report",
    "worker": "sweep",
}
"""The file of each command that has no file of its own name."""

_NO_COMMAND = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""Raised since click 8.2 for a group without a command; its message is the whole help text."""


class LazyGroup(click.Group):
    """Imports a command's file only when it is used, which keeps --help fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return COMMANDS

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            hint = did_you_mean(cmd_name, COMMANDS)
            raise click.UsageError(f"there is no command '{cmd_name}'{f'; {hint}' if hint else ''}")
        module = importlib.import_module(f"model_profiling.cli.{_FILES.get(cmd_name, cmd_name)}")
        loaded = getattr(module, f"{cmd_name}_command")
        assert isinstance(loaded, click.Command)
        return loaded

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in commands.items()])


_EPILOG = """\b
Example:
  sme2prof profile toy_cnn

`sme2prof help COMMAND` shows a command's options with examples. The five commands sme2prof-* are tools of the
earlier kit, for its users; new work does not need them."""


def program() -> click.Group:
    group = LazyGroup(
        "sme2prof",
        help="Where the time goes in ExecuTorch models on Arm CPUs, what SME2 changes, what to do next.",
        epilog=_EPILOG,
        context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
        params=[debug_option()],
    )
    return click.version_option(__version__, prog_name="sme2prof")(group)


@checked_output
def main(argv: Sequence[str] | None = None) -> int:
    """Run `sme2prof` and return its exit code: 0 done, 1 the answer is no, 2 bad input or environment."""
    words = list(argv if argv is not None else sys.argv[1:]) or ["--help"]
    remember(words)
    if words[0] == "help":
        words = [*words[1:], "--help"]
    for word in words:
        # No file name and no page holds NUL, or the surrogates of bytes that are not UTF-8.
        if re.search("[\0\ud800-\udfff]", word):
            fail(f"the argument {word!r} contains NUL, or bytes that are not UTF-8; rename the file")
            return 2

    def invoke() -> object:
        # Not click's own main(): it prints an empty line on Ctrl-C.
        with program().make_context("sme2prof", words) as context:
            outcome: object = context.command.invoke(context)
            return outcome

    return run_reporting_failures(invoke)


def run_reporting_failures(work: Callable[[], object]) -> int:
    """Do the work of a command or a tool; print a failure as one line, return the exit code for its kind."""
    end_like_ctrl_c()
    try:
        outcome = work()
    except BaseException as ended:  # noqa: BLE001 (the rest is raised again)
        return _exit_code(ended)
    return outcome if isinstance(outcome, int) else 0


def _exit_code(ended: BaseException) -> int:
    """Print what ended a command as one line; return the exit code for its kind."""
    code = 2
    if isinstance(ended, click.exceptions.Exit):
        code = ended.exit_code
    elif isinstance(ended, KeyboardInterrupt | click.Abort):
        # The code that was interrupted says in the exception what is left to do.
        _warn_of(ended)
        fail(f"interrupted; {str(ended) or 'nothing was left half written'}")
        code = 130
    elif isinstance(ended, _NO_COMMAND):
        say(ended.format_message())
        code = 0
    elif isinstance(ended, click.ClickException):
        where = getattr(getattr(ended, "ctx", None), "command_path", "sme2prof")
        fail(f"{ended.format_message().rstrip('.')}; see `{where} --help`")
    elif isinstance(ended, ProfilingError):
        if isinstance(ended, RunError) and ended.log_tail and debugging():
            say(ended.log_tail, err=True)
        _warn_of(ended)
        _report(ended, str(ended))
    elif isinstance(ended, OSError) and lost_output():
        code = 0  # there is no answer; what watches the output says so
    elif isinstance(ended, Exception):  # last resort: even a defect of the kit is one line to the user
        _report(ended, _unexpected(ended))
    else:
        raise ended
    return code


def _unexpected(problem: Exception) -> str:
    """Describe a refusal by the system, or a defect: of the kit, or of the file that registers models."""
    if isinstance(problem, OSError) and problem.errno is not None:
        return refused_by_system(problem)
    import traceback

    place = traceback.extract_tb(problem.__traceback__)[-1]
    where = f"{place.filename}, line {place.lineno}"
    return f"unexpected {type(problem).__name__}: {problem} ({where}); run it with --debug and report it"


def _report(problem: Exception, text: str) -> None:
    if debugging():
        import traceback

        say("".join(traceback.format_exception(problem)), err=True)
    fail(text)


def _warn_of(problem: BaseException) -> None:
    """Print the notes that travel with an exception, as about a phone's settings that were restored."""
    for note in getattr(problem, "__notes__", ()):
        warn(note)
