"""`sme2prof skills install|list` and `mcp`: the kit for coding assistants."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from model_profiling.cli import frame
from model_profiling.core.errors import SetupError
from model_profiling.core.formatting import plural
from model_profiling.core.hints import install_extra
from model_profiling.workflow.skills import ASSISTANTS, STANDARD, install_skills, list_skills


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
    help=f"Whose folder of this project to write to [default: {STANDARD}, the open standard's].",
)
@click.option("--dir", "folder", type=frame.FOLDER, help="Any other folder, such as a person's own.")
@click.option("--force", is_flag=True, help="Replace files that were changed since.")
def install(assistant: str | None, folder: Path | None, force: bool, as_json: bool) -> None:
    """Write the kit's skills where a coding assistant finds them, below this folder.

    One folder for each skill, in the Agent Skills format. Safe to repeat: files of an older kit are replaced,
    but a file that somebody changed stops it, and nothing is written.
    """
    if assistant and folder:
        raise click.UsageError("--for and --dir both say where to write; give one")
    done = install_skills(folder or Path(ASSISTANTS.get(assistant or "", STANDARD)), force=force)
    if as_json:
        frame.facts({"schema_version": 1, **asdict(done)})
        return
    for name in done.skills:
        frame.say(f"{done.folder / name}")
    removed = f", {plural(len(done.removed), 'old one')} removed" if done.removed else ""
    frame.say(
        f"{plural(len(done.skills), 'skill')}: {plural(len(done.written), 'file')} written, "
        f"{len(done.unchanged)} already as they should be{removed}"
    )


@frame.command("list", example="sme2prof skills list\nsme2prof skills list --json", facts=True)
def list_(as_json: bool) -> None:
    """List the kit's skills in the order of the workflow, each with what it is for."""
    skills = list_skills()
    if as_json:
        listed = [
            {"name": skill.name, "description": skill.description, "files": list(skill.files)}
            for skill in skills
        ]
        frame.facts({"schema_version": 1, "skills": listed})
        return
    frame.table(("NAME", "DOES"), [(skill.name, skill.description.partition(". ")[0]) for skill in skills])


skills_command = frame.group(
    "skills",
    "Give the kit's skills to a coding assistant.",
    [install, list_],
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
    help="The folder it may read and write: models, programs, runs.",
)
@click.option("--read-only", is_flag=True, help="Offer no tool that exports or measures.")
@click.option(
    "--ssh", "ssh_hosts", multiple=True, metavar="HOST", help="Allow measuring on HOST (repeatable)."
)
def mcp_command(root: Path, read_only: bool, ssh_hosts: tuple[str, ...]) -> None:
    """Serve the kit to a coding assistant, as tools of the Model Context Protocol on stdin and stdout.

    A client starts it and talks to it. What to write into its settings: docs/how-to/mcp.md in the repository.
    """
    from model_profiling.mcp_server.confinement import Root

    confined = Root.at(root)
    try:
        from model_profiling.mcp_server.server import serve
    except ImportError as problem:
        if (problem.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        lacking = "`sme2prof mcp` needs the Python package mcp, which is missing or too old"
        raise SetupError(lacking, install_extra("mcp")) from problem
    if sys.stdin.isatty():
        frame.say(f"serving {confined.folder}; a client is to start this, Ctrl-D ends it", err=True)
    serve(confined, read_only=read_only, ssh_hosts=ssh_hosts)
