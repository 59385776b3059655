"""`sme2prof models`."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby

from model_profiling.cli import frame
from model_profiling.models import list_models
from model_profiling.models.options import MARK
from model_profiling.models.registry import ModelEntry, skipped_folders


@frame.command("models", example="sme2prof models\nsme2prof models --json", facts=True)
def command(as_json: bool) -> None:
    """List the models that can be named: the kit's own, and ExecuTorch's examples.

    A model with options is named with them: NAME@size=512. Any other PyTorch model is named by its factory:
    file.py:factory or package.module:factory. Folders of models of your own are found when SME2PROF_MODELS
    names the folder they lie in.
    """
    entries = list_models()
    frame.warn_of_skipped_models()
    if as_json:
        skipped = [asdict(folder) for folder in skipped_folders()]
        frame.facts({"schema_version": 1, "models": [asdict(entry) for entry in entries], "skipped": skipped})
        return
    rows = [
        (each.name, each.source, _inputs(each), " ".join(each.dtypes), _options(each), _said_of(each))
        for each in entries
    ]
    frame.table(("NAME", "SOURCE", "INPUTS", "DTYPES", "OPTIONS", ""), rows)


def _inputs(entry: ModelEntry) -> str:
    """Each shape once, with how many follow each other: a cache is one of many alike."""
    if not entry.inputs:
        return "known once loaded"
    alike = [(shape, len(list(those))) for shape, those in groupby(entry.inputs)]
    return "; ".join(
        f"{count} of {shape}" if count > 2 else "; ".join([shape] * count) for shape, count in alike
    )


def _options(entry: ModelEntry) -> str:
    """As they are written after the name, with their defaults."""
    shown = ",".join(option.shown for option in entry.options)
    return f"{MARK}{shown}" if shown else ""


def _said_of(entry: ModelEntry) -> str:
    if entry.missing:
        return f"needs {', '.join(entry.missing)} (not installed)"
    refused = "; ".join(f"no {dtype}: {reason}" for dtype, reason in entry.not_supported.items())
    return f"{entry.description} ({refused})" if refused else entry.description
