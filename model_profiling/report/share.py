"""A page fit to send: its blocks without what names people, machines and places, and what was taken out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from dataclasses import replace as with_fields
from typing import TypeVar

from model_profiling.report.document import Block, Heading, Paragraph, make_table
from model_profiling.report.scrubbing import Kind, Replaced, Scrubber
from model_profiling.wording import plural

Shown = TypeVar("Shown")
_MEANING: dict[Kind, str] = {
    "folder": "a folder",
    "user": "a user's name",
    "host": "a machine's name",
    "device": "a device's serial",
    "boot": "the mark of one start of a device",
    "address": "an address",
    "kernel build": "the name of a kernel's build",
    "model name": "the model's name",
}


def scrubbed(block: Shown, scrubber: Scrubber) -> Shown:
    """A block, or anything in one, with placeholders in every text."""
    return _walk(block, scrubber)  # type: ignore[return-value]


def _walk(part: object, scrubber: Scrubber) -> object:
    if isinstance(part, str):
        return scrubber.text(part)
    if isinstance(part, tuple):
        return tuple(_walk(entry, scrubber) for entry in part)
    if isinstance(part, list):
        return [_walk(entry, scrubber) for entry in part]
    if isinstance(part, Mapping):
        return {key: _walk(value, scrubber) for key, value in part.items()}
    if is_dataclass(part) and not isinstance(part, type):
        changed = {each.name: _walk(getattr(part, each.name), scrubber) for each in fields(part)}
        return with_fields(part, **changed)
    return part


def replacement_rows(replaced: Sequence[Replaced]) -> list[tuple[str, str, str]]:
    """Placeholder, what it stands for, how often it was put; the originals are not among them."""
    counts: Counter[tuple[str, Kind]] = Counter()
    for found in replaced:
        if found.placeholder:
            counts[found.placeholder, found.kind] += found.times
    return [(name, _MEANING[kind], str(times)) for (name, kind), times in counts.items()]


def left_out_lines(replaced: Sequence[Replaced]) -> list[str]:
    """What has no placeholder because nothing of it is left."""
    lines = sum(found.times for found in replaced if found.kind == "source text")
    notes = any(found.kind == "notes" for found in replaced)
    return [
        *([f"{plural(lines, 'line')} of source text"] if lines else []),
        *(["the config's notes"] if notes else []),
    ]


def replacement_section(replaced: Sequence[Replaced]) -> list[Block]:
    """What a reader of a shared page is told."""
    rows = replacement_rows(replaced)
    lines = left_out_lines(replaced)
    blocks: list[Block] = [
        Heading("What was replaced in this copy"),
        Paragraph(
            "This copy was made to be sent. Folders, names of people and machines, serials and source text "
            "were taken out; the same thing has the same placeholder everywhere. Figures are unchanged."
        ),
    ]
    if rows:
        blocks.append(make_table(("placeholder", "stands for", "times"), rows, numbers=(2,)))
    blocks += [Paragraph(f"Left out: {line}.") for line in lines]
    if not rows and not lines:
        blocks.append(Paragraph("Nothing had to be replaced."))
    return blocks
