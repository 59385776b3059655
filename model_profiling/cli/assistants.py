"""`sme2prof skills install` and `mcp`: the kit for coding assistants."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from model_profiling.cli import frame
from model_profiling.core.errors import InputError, SetupError
from model_profiling.core.formatting import plural
from model_profiling.core.hints import install_extra
from model_profiling.workflow.skills import ASSISTANTS, STANDARD, install_skills


@frame.command(
    "install",
    example="""sme2prof skills install --for claude
    sme2prof skills install --dir ~/.claude/skills""",
    facts=True,
)
@click.option(
    "--for",
    "assistant",
    type=click.Choice(tuple(ASSISTANTS)),
    show_default=f"{STANDARD}, which several assistants read",
    help="Assistant to install for, in this project.",
)
@click.option("--dir", "folder", type=frame.FOLDER, help="Another folder, such as the one in your home.")
@click.option("--force", is_flag=True, help="Replace files with another content.")
def install(assistant: str | None, folder: Path | None, force: bool, as_json: bool) -> None:
    """Write the kit's skills to the folder where a coding assistant looks.

    Each skill gets a folder in the Agent Skills format. If a file is there with another content (edited, or
    of another version), nothing is written unless you give --force.
    """
    if assistant and folder:
        raise click.UsageError("--for and --dir both say where to write; give one")
    usual = Path(ASSISTANTS.get(assistant or "", STANDARD))
    if folder is None and not usual.resolve().is_relative_to(Path.cwd().resolve()):
        raise InputError(f"{usual} leads out of this folder through a link", "name the folder with --dir")
    done = install_skills(folder or usual, force=force)
    if as_json:
        frame.facts({"schema_version": 1, **asdict(done)})
        return
    for name in done.skills:
        frame.say(f"{done.folder / name}")
    frame.say(
        f"{plural(len(done.skills), 'skill')}: {plural(len(done.written), 'file')} written, "
        f"{len(done.unchanged)} already as they should be"
    )


skills_command = frame.group(
    "skills",
    "Install the kit's skills for a coding assistant.",
    [install],
    example="sme2prof skills install --for claude",
)


@frame.command(
    "mcp",
    example="""sme2prof mcp --root ~/models
    sme2prof mcp --root . --read-only
    sme2prof mcp --root . --ssh board""",
)
@click.option(
    "--root",
    required=True,
    type=frame.PATH,
    help="The only folder that it may read and write: models, programs, runs.",
)
@click.option("--read-only", is_flag=True, help="Leave out the tools that export, measure or write.")
@click.option(
    "--ssh", "ssh_hosts", multiple=True, metavar="HOST", help="Allow measuring on HOST (repeatable)."
)
def mcp_command(root: Path, read_only: bool, ssh_hosts: tuple[str, ...]) -> None:
    """Serve the kit to a coding assistant (Model Context Protocol on stdin and stdout).

    The assistant starts this command itself; docs/how-to/mcp.md shows what to write in its settings.
    """
    from model_profiling.mcp_server.commands import Root

    confined = Root.at(root, ssh_hosts)
    try:
        from model_profiling.mcp_server.server import serve
    except ImportError as problem:
        if (problem.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio", "jsonschema"):
            raise
        lacking = "`sme2prof mcp` needs the Python package mcp, which is missing or too old"
        raise SetupError(lacking, install_extra("mcp")) from problem
    if sys.stdin.isatty():
        frame.say(f"serving {confined.folder}; an assistant should start this; Ctrl-D ends it", err=True)
    serve(confined, click.get_current_context().find_root().command, read_only=read_only)
