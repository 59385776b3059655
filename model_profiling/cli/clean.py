"""`sme2prof clean`."""

from __future__ import annotations

from dataclasses import asdict, replace

import click

from model_profiling.cli import frame
from model_profiling.core.formatting import plural, size
from model_profiling.runner.cache import cache_root, remove_cache
from model_profiling.runner.machine import parse_target
from model_profiling.targets import open_target
from model_profiling.targets.machine_lock import may_wait, measuring_alone
from model_profiling.targets.remote.folder import Removed


@frame.command(
    "clean",
    example="""sme2prof clean --dry-run
    sme2prof clean
    sme2prof clean --target android:R5CT1234ABC
    sme2prof clean --target ssh:board""",
    facts=True,
)
@click.option("--dry-run", is_flag=True, help="Only show how large the cache is.")
@click.option(
    "--target",
    metavar="android[:SERIAL]|ssh:HOST",
    help="Remove everything that the kit put on this phone or machine instead.",
)
@click.option("--device-path", help="With --target: the config's device_path, if it has one.")
def clean_command(*, dry_run: bool, target: str | None, device_path: str | None, as_json: bool) -> None:
    """Remove the cache of what the kit built and fetched, which it fills again when needed.

    Runs and reports are not in the cache: remove those folders yourself.
    """
    if target is None and device_path is not None:
        raise click.UsageError("--device-path goes with --target")
    if target is not None and dry_run:
        raise click.UsageError("--dry-run is about the cache; leave --target out")
    if target is not None:
        device = open_target(replace(parse_target(target), device_path=device_path))
        try:
            removed = device.clean()
            _show_removed(replace(removed, notes=device.take_notes()), as_json)
        finally:
            device.close()
        return
    with may_wait(False), measuring_alone("removes the cache"):
        count = remove_cache(dry_run=dry_run)
    if as_json:
        frame.facts({"schema_version": 1, "cache": cache_root(), "bytes": count, "removed": not dry_run})
    else:
        frame.say(f"{'holds' if dry_run else 'removed'} {size(count)}: {cache_root()}")


def _show_removed(removed: Removed, as_json: bool) -> None:
    if as_json:
        frame.facts({"schema_version": 1, **asdict(removed), "bytes": removed.bytes})
        return
    for note in removed.notes:
        frame.say(note)
    for name, count in removed.files:
        frame.say(f"{count:>12,}  {name}")
    if removed.files:
        frame.say(f"removed {removed.folder}: {plural(len(removed.files), 'file')}, {removed.bytes:,} bytes")
    else:
        frame.say(f"there is no {removed.folder}: nothing to remove")
