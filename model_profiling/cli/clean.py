"""`sme2prof clean`."""

from __future__ import annotations

import re
import time
from dataclasses import asdict, replace
from pathlib import Path

import click

from model_profiling.cli import frame
from model_profiling.core.formatting import plural, size
from model_profiling.runner.cache import cache_root
from model_profiling.runner.machine import parse_target
from model_profiling.targets.remote.folder import Removed
from model_profiling.workflow.clean import Limits, Trimmed, clean, trim_cache, trim_runs

_BYTES = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_LATEST = 253_000_000_000.0
"""The latest time shown: the year 9987."""
_SECONDS = {"h": 3600, "d": 86_400, "w": 7 * 86_400}


def _as_bytes(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?) ?([kmgt]?b|)", text.strip().lower())
    if found is None:
        raise click.BadParameter(f"{text} is not a size; write 500MB, 2GB or 0")
    return round(float(found[1]) * _BYTES["" if found[2] == "b" else found[2]])


def _as_seconds(_context: click.Context, _option: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,6}) ?([hdw])", text.strip().lower())
    if found is None:
        raise click.BadParameter(f"{text} is not an age; write 12h, 30d or 8w")
    return float(found[1]) * _SECONDS[found[2]]


@frame.command(
    "clean",
    example="""sme2prof clean
    sme2prof clean --keep 1GB
    sme2prof clean out_toy_cnn/runs --older-than 30d --dry-run
    sme2prof clean --target android:R5CT1234ABC
    sme2prof clean --target ssh:board""",
    facts=True,
)
@click.argument("folders", nargs=-1, type=frame.PATH)
@click.option(
    "--keep",
    metavar="SIZE",
    callback=_as_bytes,
    help="Remove the longest unused until at most this much is left, such as 500MB; 0 removes everything.",
)
@click.option(
    "--older-than",
    metavar="AGE",
    callback=_as_seconds,
    help="Remove what was not used for this long: 12h, 30d, 8w.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option(
    "--target",
    metavar="android[:SERIAL]|ssh:HOST",
    help="Remove everything that the kit put on this phone or machine.",
)
@click.option("--device", hidden=True)  # the earlier spelling of --target android:SERIAL
@click.option("--host", hidden=True)  # and of --target ssh:HOST
@click.option("--device-path", help="With --target: the config's device_path, if it has one.")
def clean_command(
    *,
    folders: tuple[Path, ...],
    keep: int | None,
    older_than: float | None,
    dry_run: bool,
    target: str | None,
    device: str | None,
    host: str | None,
    device_path: str | None,
    as_json: bool,
) -> None:
    """Show how much disk space the kit uses, and free some with --keep or --older-than.

    Without FOLDERS this is about the cache, which the kit fills again when needed; with FOLDERS, about the
    runs in them. It never removes what is in use or what the kit did not make, and follows no links.
    """
    limits = Limits(keep, older_than)
    places = [target] if target is not None else []
    places += [f"android:{device.removeprefix('android:')}"] if device is not None else []
    places += [f"ssh:{host}"] if host is not None else []
    if places[1:]:
        raise click.UsageError(f"{' and '.join(places)} are two targets; give one --target")
    if not places and device_path is not None:
        raise click.UsageError("--device-path goes with --target")
    if places and (folders or dry_run or limits != Limits()):
        raise click.UsageError("--target removes everything there; leave folders and other options out")
    if dry_run and limits == Limits():
        raise click.UsageError("--dry-run shows what would be removed; give --keep or --older-than too")
    if places:
        _show_removed(clean(replace(parse_target(places[0]), device_path=device_path)), as_json)
    elif folders:
        _show(trim_runs(folders, limits, dry_run=dry_run), None, limits, dry_run, as_json)
    else:
        _show(trim_cache(limits, dry_run=dry_run), cache_root(), limits, dry_run, as_json)


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


def _show(found: Trimmed, cache: Path | None, limits: Limits, dry_run: bool, as_json: bool) -> None:
    if as_json:
        listed = [
            {
                **asdict(entry),
                "used": time.strftime("%Y-%m-%dT%H:%M:%S%z", _moment(entry.used)),
                "chosen": entry in found.removed,
            }
            for entry in found.kept
        ]
        sizes = {"bytes": found.bytes, "chosen_bytes": found.removed_bytes, "removed": not dry_run}
        frame.facts({"schema_version": 1, "cache": cache, **sizes, "kept": listed})
        return
    if cache is not None:
        frame.say(str(cache))
    gone = "would be removed" if dry_run else "removed"
    for entry in found.kept:
        note = gone if entry in found.removed else entry.stays
        name = entry.name if cache is None else f"{entry.kind}/{entry.name}"
        used = time.strftime("%Y-%m-%d", _moment(entry.used))
        frame.say(f"{size(entry.bytes):>10}  {used}  {name}{f'  ({note})' if note else ''}")
    what = plural(len(found.kept), "run") if cache is None else f"{len(found.kept)} in the cache"
    frame.say(f"{what}, {size(found.bytes)}")
    if limits == Limits():
        return
    left = found.bytes - found.removed_bytes
    more = limits.keep is not None and left > limits.keep
    why = "; what is in use or not the kit's stays" if more else ""
    frame.say(f"{gone}: {len(found.removed)}, {size(found.removed_bytes)}; left: {size(left)}{why}")


def _moment(stamp: float) -> time.struct_time:
    """Clamp `stamp`: other people's files may carry times that no calendar has."""
    return time.localtime(min(max(stamp, 0.0), _LATEST))
