"""`sme2prof doctor`."""

from __future__ import annotations

from model_profiling.cli import frame
from model_profiling.doctor import examine


@frame.command("doctor", example="sme2prof doctor\nsme2prof doctor --json", facts=True)
def command(as_json: bool) -> int:
    """Check everything profiling needs, say how to fix what is missing, and show where models can run.

    Exits with 0 only when the kit's own runner can be built and run here.
    """
    diagnosis = examine()
    if as_json:
        frame.facts(diagnosis.as_dict())
    else:
        frame.say(diagnosis.as_text())
    return 0 if diagnosis.ok else 1
