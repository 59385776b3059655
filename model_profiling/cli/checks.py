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
@click.option("--fetch", is_flag=True, help="First download what SME2 emulation needs; root is not needed.")
@click.option("--verbose", is_flag=True, help="Also list what is optional: what it is for, and its fix.")
@click.option("--devices", is_flag=True, help="Only list hardware known to have SME2, with sources.")
@click.option(
    "--phone",
    is_flag=False,
    flag_value="",
    metavar="[SERIAL]",
    help="Also show what adb and the phone report; downloads adb if it is missing.",
)
def doctor_command(fetch: bool, verbose: bool, devices: bool, phone: str | None, as_json: bool) -> int:
    """Check this machine: what works, how to fix what is missing, where models can run.

    It checks the machine; `sme2prof validate` checks a run, `sme2prof config check` a config. Exits with 1 if
    the kit's own runner cannot be built and run here, or if the phone of --phone does not answer.
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
        report = phone_report(phone.removeprefix("android:") or None) if phone is not None else {}
    diagnosis = examine()
    if as_json:
        frame.facts(diagnosis.as_dict() | ({"phone": report} if report else {}))
    else:
        for title, text in report.items():
            frame.say(f"{title}\n{textwrap.indent(text, '  ')}\n")
        frame.say(diagnosis.as_text(verbose=verbose))
        if problem := report.get("problem"):
            frame.say(f"\nthe phone: {problem}")
    return 0 if diagnosis.ok and "problem" not in report else 1


@frame.command("validate", example="sme2prof validate out_toy_cnn/runs/xnnpack_fp16/linux", facts=True)
@click.argument("run_dir", type=frame.PATH)
def validate_command(run_dir: Path, as_json: bool) -> int:
    """Check that the run in RUN_DIR is complete and that its figures add up; each problem has its fix.

    All dumps are read and added up, statistics are computed again, outputs are compared, and all experiments
    must be of one program. Exits with 1 if a check fails. To check this machine, use `sme2prof doctor`.
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
