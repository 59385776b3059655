"""How people wrote configs for the earlier kit, and the mistakes they make in JSON by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

_NUMBERS = ("runs", "num_runs", "warmup", "threads", "num_threads")
_INTEGER = re.compile(r"[ \t]*[0-9]{1,9}[ \t]*")


def json_cure(error: json.JSONDecodeError) -> str:
    """What to do about text that is not JSON; Python's own message says only what it expected."""
    before, after = error.doc[: error.pos].rstrip(), error.doc[error.pos :]
    cures = (
        (not error.doc.strip(), "make one with `sme2prof config new`"),
        (before.endswith(",") and after.lstrip().startswith(("}", "]")), "remove the comma before it"),
        (after.startswith((",}", ",]")) or "trailing comma" in error.msg, "remove the comma"),
        (after.startswith("'"), 'use double quotes (")'),
        (after.startswith(("//", "/*", "#")), 'JSON has no comments; use the setting "notes"'),
        (error.msg.startswith("Extra data"), "keep one JSON object in the file"),
        (not after.strip(), "close every bracket and quote"),
        ("delimiter" in error.msg, "add what is missing just before it"),
    )
    return next((cure for fits, cure in cures if fits), "correct the text there")


def translate(raw: Mapping[str, object]) -> tuple[dict[str, object], list[tuple[str, str, str]]]:
    """Translate a config to this kit's spelling. Also return what was read differently: a kind of remark,
    what is written there, and what to write. Wrong shapes are left to the checks."""
    remarks: list[tuple[str, str, str]] = []
    changed = {key: _unquoted(value, key, remarks) for key, value in raw.items() if key != "$schema"}
    experiments = changed.get("experiments")
    for place, experiment in enumerate(experiments if isinstance(experiments, list) else ()):
        if not isinstance(experiment, dict):
            continue
        if "quiet_runner" in experiment:
            runner = experiment.pop("quiet_runner")
            used = experiment["runner_path"] = experiment.get("runner_path") or runner
            why = "is read as runner_path" if used == runner else "is ignored: runner_path is given"
            remarks.append(("quiet_runner", f"experiments[{place}].quiet_runner {why}", "write runner_path"))
        if experiment.get("runner_path", "") is None:
            del experiment["runner_path"]
    return changed, remarks


def _unquoted(value: object, where: str, remarks: list[tuple[str, str, str]], key: str = "") -> object:
    """A copy of `value` with quoted numbers as numbers."""
    if isinstance(value, Mapping):
        return {name: _unquoted(inner, f"{where}.{name}", remarks, name) for name, inner in value.items()}
    if isinstance(value, list) and key not in _NUMBERS:
        return [_unquoted(inner, f"{where}[{place}]", remarks) for place, inner in enumerate(value)]
    if key not in _NUMBERS:
        return value
    listed = value if isinstance(value, list) else [value]
    numbers = [int(item) if isinstance(item, str) and _INTEGER.fullmatch(item) else item for item in listed]
    if numbers != listed:
        text = f"{where} is in quotes and read as {', '.join(map(str, numbers))}"
        remarks.append(("quoted_number", text, "write numbers without quotes"))
    return numbers if isinstance(value, list) else numbers[0]
