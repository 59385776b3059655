"""`sme2prof doctor` and `validate`."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from pathlib import Path

import click

from model_profiling.cli import frame
from model_profiling.cli.progress import shown_progress
from model_profiling.doctor import examine, fetch_emulation
from model_profiling.doctor.checks import ASK_THE_DEVICE, DEVICES, NO_SERVER, device_lines, phone_report


@frame.command(
    "doctor",
    example="""sme2prof doctor
    sme2prof doctor --verbose
    sme2prof doctor --fetch
    sme2prof doctor --phone
    sme2prof doctor --devices""",
    facts=True,
)
@click.option("--fetch", is_flag=True, help="First get what SME2 emulation lacks, without root.")
@click.option("--verbose", is_flag=True, help="Also say of each optional thing what it is for and its fix.")
@click.option("--devices", is_flag=True, help="Only list hardware known to have SME2, and who says so.")
@click.option(
    "--phone",
    is_flag=False,
    flag_value="",
    metavar="[SERIAL]",
    help="Also show what adb and a phone tell of themselves; gets an adb first where there is none.",
)
def doctor_command(fetch: bool, verbose: bool, devices: bool, phone: str | None, as_json: bool) -> int:
    """Check everything profiling needs, say how to fix what is missing, and show where models can run.

    Exits with 0 only when the kit's own runner can be built and run here; with --phone, when the phone
    answers, too.
    """
    if devices:
        if as_json:
            listed = [asdict(device) for device in DEVICES]
            frame.facts({"schema_version": 1, "devices": listed, "notes": [NO_SERVER, ASK_THE_DEVICE]})
        else:
            frame.say("\n".join(device_lines()))
        return 0
    if fetch:
        with shown_progress(lines=True) as progress:
            progress.stage("getting what emulation needs")
            fetch_emulation()
    with shown_progress(lines=True):
        told = phone_report(phone.removeprefix("android:") or None) if phone is not None else {}
    diagnosis = examine()
    if as_json:
        frame.facts(diagnosis.as_dict() | ({"phone": told} if told else {}))
    else:
        for title, said in told.items():
            frame.say(f"{title}\n{textwrap.indent(said, '  ')}\n")
        frame.say(diagnosis.as_text(verbose=verbose))
        if problem := told.get("problem"):
            frame.say(f"\nthe phone: {problem}")
    return 0 if diagnosis.ok and "problem" not in told else 1


@frame.command("validate", example="sme2prof validate out_toy_cnn/runs/xnnpack_fp16/linux", facts=True)
@click.argument("run_dir", type=frame.PATH)
def validate_command(run_dir: Path, as_json: bool) -> int:
    """Check that RUN_DIR holds what it promises and that it makes sense, each line with its cure.

    Dumps are read, added up and counted, statistics computed again, experiments checked to be of one
    program, outputs compared. Exits with 1 when something does not hold.
    """
    # Imported here: doctor must work without the packages that reading a run needs.
    from model_profiling.validation.validate import validate

    with shown_progress() as progress:
        validation = validate(run_dir, progress=progress)
    if as_json:
        frame.facts(validation.as_dict())
    else:
        frame.say(validation.as_text())
    return 0 if validation.ok else 1
