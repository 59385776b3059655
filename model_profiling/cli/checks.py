"""`sme2prof doctor`, `validate` and `clean`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from model_profiling.cli import frame
from model_profiling.core.formatting import size
from model_profiling.core.stdio import shown_progress
from model_profiling.doctor import examine
from model_profiling.runner.cache import cache_root, remove_cache
from model_profiling.runner.machine import parse_target
from model_profiling.targets import open_target
from model_profiling.targets.emulated import EmulatedTarget
from model_profiling.targets.machine_lock import may_wait, measuring_alone


@frame.command(
    "doctor",
    example="""sme2prof doctor
    sme2prof doctor --fetch""",
    facts=True,
)
@click.option("--fetch", is_flag=True, help="First download what SME2 emulation needs; root is not needed.")
def doctor_command(fetch: bool, as_json: bool) -> int:
    """Check this machine: what works, how to fix what is missing, where models can run.

    It checks the machine; `sme2prof validate` checks a run, `sme2prof config check` a config. Exits with 1 if
    the kit's own runner cannot be built and run here.
    """
    if fetch:
        with shown_progress(lines=True) as progress:
            progress.stage("getting what emulation needs")
            EmulatedTarget().prepare()
    diagnosis = examine()
    if as_json:
        frame.facts(diagnosis.as_dict())
    else:
        frame.say(diagnosis.as_text())
    return 0 if diagnosis.ok else 1


@frame.command("validate", example="sme2prof validate out_toy_cnn/runs/xnnpack_fp16/linux", facts=True)
@click.argument("run_dir", type=frame.PATH)
def validate_command(run_dir: Path, as_json: bool) -> int:
    """Check that the run in RUN_DIR is complete and that its figures add up; each problem has its fix.

    All dumps are read and added up, comparisons are computed again, outputs must agree, and no dump may be of
    another program. Exits with 1 if a check fails. To check this machine, use `sme2prof doctor`.
    """
    # Imported here: doctor must work without the packages that reading a run needs.
    from model_profiling.validation.validate import validate

    with shown_progress():
        validation = validate(run_dir)
    if as_json:
        frame.facts(validation.as_dict())
    else:
        frame.say(validation.as_text())
    return 0 if validation.ok else 1


@frame.command(
    "clean",
    example="""sme2prof clean
    sme2prof clean --target android:R5CT1234ABC
    sme2prof clean --target ssh:board""",
    facts=True,
)
@click.option(
    "--target",
    metavar="android[:SERIAL]|ssh:HOST",
    help="Remove everything that the kit put on this phone or machine instead.",
)
@click.option("--device-path", help="With --target: the config's device_path, if it has one.")
def clean_command(*, target: str | None, device_path: str | None, as_json: bool) -> None:
    """Remove the cache of what the kit built and fetched, which it fills again when needed.

    Runs and reports are not in the cache: remove those folders yourself.
    """
    if target is None and device_path is not None:
        raise click.UsageError("--device-path goes with --target")
    if target is not None:
        device = open_target(replace(parse_target(target), device_path=device_path))
        try:
            removed, notes = device.clean(), device.take_notes()
        finally:
            device.close()
        if as_json:
            frame.facts({"schema_version": 1, "target": device.name, "removed": removed, "notes": notes})
        else:
            outcome = "removed the kit's folder from" if removed else "nothing of the kit is on"
            frame.say("\n".join((*notes, f"{outcome} {device.name}")))
        return
    with may_wait(False), measuring_alone("removes the cache"):
        count = remove_cache()
    if as_json:
        frame.facts({"schema_version": 1, "cache": cache_root(), "bytes": count, "removed": True})
    else:
        frame.say(f"removed {size(count)}: {cache_root()}")
