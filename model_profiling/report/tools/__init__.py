"""Files for other tools: one module for each, and a table of them. Each takes what a report takes."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from model_profiling.core import files
from model_profiling.core.errors import InputError
from model_profiling.report.data import ReportData


class NothingToShow(InputError):
    """A run has nothing for a tool; says what is missing, and what to do."""


def no_dumps(data: ReportData) -> NothingToShow:
    return NothingToShow(f"{data.run.path} holds no dumps", "measure with the event tracer on")


TOOLS = {
    "perfetto": "drop it on ui.perfetto.dev: it is read in the browser and sent nowhere",
    "speedscope": "drop it on speedscope.app, which sends it nowhere, or npx speedscope",
    "model-explorer": (
        "model-explorer PROGRAM.pte --extensions=pte_adapter_model_explorer --node_data_paths=FILE,FILE"
    ),
}
"""Each tool, which the module of its name writes for, and how to open its files."""


def write_for(tool: str, data: ReportData, folder: Path) -> tuple[Path, ...]:
    """Write a tool's files into `folder`; raises NothingToShow if the run has nothing for it."""
    module = importlib.import_module(f"{__name__}.{tool.replace('-', '_')}")
    writer = cast("Callable[[ReportData, Path], tuple[Path, ...]]", module.write)
    return writer(data, folder)


def write_json(path: Path, content: Mapping[str, object], indent: int | None = 1) -> None:
    """Write plain ASCII, so that any reader can read any name."""
    files.write_text(path, json.dumps(content, indent=indent, allow_nan=False) + "\n")


def file_word(text: str) -> str:
    return re.sub(r"[^\w.-]+", "_", text, flags=re.ASCII).strip("._")[:100] or "unnamed"
