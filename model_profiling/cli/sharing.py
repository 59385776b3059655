"""What `report --share` and `bundle` have in common: options, and how they tell what was taken out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from model_profiling.cli import frame

if TYPE_CHECKING:
    from model_profiling.report.scrubbing import Replaced


def scrub_options(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """`--rename` and `--keep`."""
    rename = click.option(
        "--rename", metavar="NAME", help="Call the model NAME in the copy [default: its name stays]."
    )
    keep = click.option(
        "--keep", multiple=True, metavar="WORD", help="Not private, though it looks so; repeatable."
    )
    return rename(keep(function))


def say_replaced(replaced: Sequence[Replaced]) -> None:
    """What was taken out, with the originals: the person at this terminal is the one to check it."""
    from model_profiling.report.share import left_out_lines

    rows = [(found.placeholder, found.kind, found.original) for found in replaced if found.placeholder]
    if rows:
        frame.table(("placeholder", "kind", "replaced"), rows)
    for line in left_out_lines(replaced):
        frame.say(f"left out: {line}")
    if not replaced:
        frame.say("nothing had to be replaced")


def replaced_facts(replaced: Sequence[Replaced]) -> list[dict[str, object]]:
    return [asdict(found) for found in replaced]
