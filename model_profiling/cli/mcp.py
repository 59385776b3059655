"""`sme2prof mcp`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from model_profiling.cli import frame
from model_profiling.core.errors import SetupError
from model_profiling.core.hints import install_extra
from model_profiling.mcp_server.confinement import Root


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
def command(root: Path, read_only: bool, ssh_hosts: tuple[str, ...]) -> None:
    """Serve the kit to a coding assistant, as tools of the Model Context Protocol on stdin and stdout.

    A client starts it and talks to it. What to write into its settings: docs/mcp.md in the kit's repository.
    """
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
