"""What configs of the kit before this one say in their own ways: read as meant there, with a word about it.

Every other key that is not known here stays an error: a setting that is ignored is a wrong measurement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from model_profiling.run.remarks import Remark

_RUNNER = "quiet_runner"
_NUMBERS = ("runs", "num_runs", "warmup", "threads", "num_threads")


def translate(raw: Mapping[str, object]) -> tuple[dict[str, object], tuple[Remark, ...]]:
    """`raw` as this kit writes it, and what was changed; wrong shapes are left to the checks."""
    changed, remarks = dict(raw), list[Remark]()
    experiments = raw.get("experiments")
    if isinstance(experiments, list):
        changed["experiments"] = [
            _experiment(entry, f"experiments[{place}]", remarks) for place, entry in enumerate(experiments)
        ]
    analysis = raw.get("analysis")
    pairs = analysis.get("compare_pairs") if isinstance(analysis, Mapping) else None
    if isinstance(analysis, Mapping) and isinstance(pairs, list):
        where = "analysis.compare_pairs"
        translated = [_pair(entry, f"{where}[{place}]", remarks) for place, entry in enumerate(pairs)]
        changed["analysis"] = {**analysis, "compare_pairs": translated}
    return changed, tuple(remarks)


def _experiment(entry: object, where: str, remarks: list[Remark]) -> object:
    if not isinstance(entry, Mapping):
        return entry
    found = {key: _number(entry, key, where, remarks) for key in entry}
    if _RUNNER in found:
        runner = found.pop(_RUNNER)
        used = found.get("runner_path") or runner
        if used:
            found["runner_path"] = used
        why = "is taken for runner_path" if used == runner else "is left aside: runner_path is given"
        remarks.append(Remark(None, "quiet_runner", f"{where}.{_RUNNER} {why}", "write runner_path"))
    if found.get("runner_path") is None:
        found.pop("runner_path", None)
    return found


def _pair(entry: object, where: str, remarks: list[Remark]) -> object:
    if not isinstance(entry, Mapping):
        return entry
    found = dict(entry)
    for name in ("baseline", "candidate"):
        side = entry.get(name)
        if isinstance(side, Mapping):
            found[name] = {key: _number(side, key, f"{where}.{name}", remarks) for key in side}
    if found.get("label") == "":
        del found["label"]
    return found


def _number(entry: Mapping[str, object], key: str, where: str, remarks: list[Remark]) -> object:
    """A number, or numbers, written in quotes."""
    value = entry[key]
    if key not in _NUMBERS:
        return value
    listed = value if isinstance(value, list) else [value]
    numbers = [int(each) if isinstance(each, str) and _is_number(each) else each for each in listed]
    if numbers == listed:
        return value
    said = f"{where}.{key} is in quotes and read as {', '.join(map(str, numbers))}"
    remarks.append(Remark(None, "quoted_number", said, "write numbers without quotes"))
    return numbers if isinstance(value, list) else numbers[0]


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\s*[0-9]{1,9}\s*", text) is not None
