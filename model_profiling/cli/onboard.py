"""`sme2prof onboard`."""

from __future__ import annotations

from pathlib import Path

import click

from model_profiling.cli import frame
from model_profiling.cli.progress import shown_progress


@frame.command(
    "onboard",
    example="""sme2prof onboard my_model
    sme2prof onboard my_model --check
    sme2prof onboard my_model --dir ~/models""",
    facts=True,
)
@click.argument("name")
@click.option(
    "--dir",
    "place",
    type=frame.FOLDER,
    help="Folder to make it in, or to find it in [default: the kit's models in a clone, else this folder].",
)
@click.option("--check", is_flag=True, help="Export and run the model, and say what is left to do.")
def command(name: str, place: Path | None, check: bool, as_json: bool) -> int:
    """Make a folder for a new model NAME: a working example to replace part by part, registered and tested.

    Nothing is overwritten. With --check the model is exported in every dtype it is registered for, held
    against PyTorch, and run on this machine for some seconds; NAME may then be anything `sme2prof export`
    takes. Exits with 1 when it does not export, compute what PyTorch computes, or run.
    """
    return _check(name, place, as_json=as_json) if check else _make(name, place, as_json=as_json)


def _make(name: str, place: Path | None, *, as_json: bool) -> int:
    from model_profiling.workflow.onboard import make_model_folder

    made = make_model_folder(name, place)
    frame.warn_of_skipped_models(name)
    if as_json:
        frame.facts(made.as_dict())
        return 0
    frame.say(f"made {made.shown}")
    width = max(map(len, made.files))
    for file, what in made.files.items():
        frame.say(f"  {file.ljust(width)}  {what}")
    frame.say("next:")
    width = max(len(command) for command, _ in made.next)
    for command, what in made.next:
        frame.say(f"  {command.ljust(width)}  # {what}")
    return 0


def _check(name: str, place: Path | None, *, as_json: bool) -> int:
    from model_profiling.workflow.onboard import check_is_found, check_model, find_model_folder

    if place is not None:
        find_model_folder(name, place)
    frame.warn_of_skipped_models(name)
    check_is_found(name)
    with shown_progress(lines=True, quiet=as_json) as progress:
        checked = check_model(name, progress=progress)
    if as_json:
        frame.facts(checked.as_dict())
        return 0 if checked.ok else 1
    frame.say(checked.as_text())
    for each in checked.dtypes:
        if each.report:
            frame.say(f"Report, {each.dtype}: {each.report}")
    return 0 if checked.ok else 1
