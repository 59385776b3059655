"""Writes a run's files for other tools into its folder `for_tools`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.errors import InputError
from model_profiling.report.data import ReportData
from model_profiling.report.tools import TOOLS, NothingToShow
from model_profiling.run import names
from model_profiling.wording import did_you_mean

ALL = "all"


@dataclass(frozen=True, slots=True)
class ToolFiles:
    """What was written for one tool, and how to open it; `left_out` says why nothing was."""

    tool: str
    files: tuple[Path, ...]
    opens: str
    left_out: str = ""


def parse_tools(text: str) -> tuple[str, ...]:
    """Names with commas between them, or `all`; each once."""
    words = tuple(dict.fromkeys(word.strip().lower() for word in text.split(",") if word.strip()))
    if not words:
        raise InputError("no tool is named", f"give {ALL} or some of {', '.join(TOOLS)}")
    for word in words:
        if word not in TOOLS and word != ALL:
            hint = did_you_mean(word, (*TOOLS, ALL)) or f"give {ALL} or some of {', '.join(TOOLS)}"
            raise InputError(f"there is no tool {word}", hint)
    return words


def write_for_tools(data: ReportData, wanted: Sequence[str]) -> tuple[ToolFiles, ...]:
    """Write what `wanted` names; a tool that was named must get its files, of all some may have none."""
    folder = data.run.path / names.FOR_TOOLS
    made = []
    for name in TOOLS if ALL in wanted else wanted:
        tool = TOOLS[name]
        try:
            made.append(ToolFiles(name, tool.write(data, folder), tool.opens))
        except NothingToShow as nothing:
            if name in wanted:
                raise InputError(nothing.problem, nothing.fix) from nothing
            made.append(ToolFiles(name, (), tool.opens, nothing.problem))
    return tuple(made)
