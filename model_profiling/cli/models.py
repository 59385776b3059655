"""`sme2prof models`."""

from __future__ import annotations

from dataclasses import asdict

from model_profiling.cli import frame
from model_profiling.models import list_models


@frame.command("models", example="sme2prof models\nsme2prof models --json", facts=True)
def command(as_json: bool) -> None:
    """List the models that can be named: the kit's own, and ExecuTorch's examples.

    Any other PyTorch model is named by its factory: file.py:factory or package.module:factory.
    """
    entries = list_models()
    if as_json:
        frame.facts({"schema_version": 1, "models": [asdict(entry) for entry in entries]})
        return
    rows = [
        (
            entry.name,
            entry.source,
            "; ".join(entry.inputs) if entry.inputs else "known once loaded",
            " ".join(entry.dtypes),
            f"needs {', '.join(entry.missing)} (not installed)" if entry.missing else entry.description,
        )
        for entry in entries
    ]
    frame.table(("NAME", "SOURCE", "INPUTS", "DTYPES", ""), rows)
