"""The documented scripts: each is a command of `sme2prof` whose argument has an option's name there."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from model_profiling.cli.frame import fail
from model_profiling.cli.main import main as sme2prof
from model_profiling.errors import ProfilingError

_SYSTEMS = {"darwin": ("a Mac", "mac_pipeline.py"), "linux": ("Linux", "linux_pipeline.py")}


def tool_parser(description: str | None) -> argparse.ArgumentParser:
    """Its examples name the tool as it was started: a file of the repository, or an installed command."""
    name = Path(sys.argv[0]).name
    if name.startswith("sme2prof-"):
        description = re.sub(r"python model_profiling/tools/\w+\.py", name, description or "")
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def run_tool(work: Callable[[argparse.Namespace], int | None], options: argparse.Namespace) -> int:
    """Do the work of a tool; a failure is one line and exit code 2, as everywhere."""
    try:
        return work(options) or 0
    except ProfilingError as problem:
        fail(str(problem))
        return 2


def run_script(
    command: str,
    option: str,
    description: str | None,
    *,
    several: bool = False,
    system: str = "",
    defaults: Sequence[str] = (),
    argv: Sequence[str] | None = None,
) -> int:
    """Run `command` on what `option` names; every other option is the command's own.

    `several` takes more than one; `system` is the only one the script's name promises to run on; `defaults`
    are given where the user does not. Names of `option` are parted by `|`.
    """
    parser = tool_parser(description)
    parser.epilog = f"Further options are those of `sme2prof {command}`; see `sme2prof {command} --help`."
    parser.allow_abbrev = False
    parser.add_argument(*option.split("|"), dest="named", required=True, nargs="+" if several else 1)
    options, rest = parser.parse_known_args(argv)
    if system and sys.platform != system:
        here, script = _SYSTEMS.get(sys.platform, (sys.platform, "sme2prof run"))
        fail(f"this is {here}, not {_SYSTEMS[system][0]}; use {script}")
        return 2
    if defaults and defaults[0] not in rest:
        rest = [*rest, *defaults]
    return sme2prof([command, *options.named, *rest])
