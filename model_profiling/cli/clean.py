"""`sme2prof clean`."""

from __future__ import annotations

from dataclasses import asdict, replace

import click

from model_profiling.cli import frame
from model_profiling.targets import parse_target
from model_profiling.wording import plural
from model_profiling.workflow.clean import clean


@frame.command(
    "clean",
    example="""sme2prof clean --device R5CT1234ABC
    sme2prof clean --host board""",
    facts=True,
)
@click.option("--device", metavar="SERIAL", help="A phone: its serial, or HOST:PORT of one on the network.")
@click.option("--host", help="A machine that ssh reaches.")
@click.option("--device-path", help="The folder there that a config named as device_path.")
def command(device: str | None, host: str | None, device_path: str | None, as_json: bool) -> None:
    """Remove what the kit has put on a phone or another machine, and show what that was."""
    if (device is None) == (host is None):
        raise click.UsageError("give --device SERIAL or --host HOST")
    choice = parse_target(
        f"android:{device.removeprefix('android:')}" if device is not None else f"ssh:{host}"
    )
    removed = clean(replace(choice, device_path=device_path))
    if as_json:
        frame.facts({"schema_version": 1, **asdict(removed), "bytes": removed.bytes})
        return
    for note in removed.notes:
        frame.say(note)
    for name, size in removed.files:
        frame.say(f"{size:>12,}  {name}")
    if removed.files:
        frame.say(f"removed {removed.folder}: {plural(len(removed.files), 'file')}, {removed.bytes:,} bytes")
    else:
        frame.say(f"there is no {removed.folder}: nothing to remove")
