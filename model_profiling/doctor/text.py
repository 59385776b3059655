"""The doctor's answer for people."""

from __future__ import annotations

from model_profiling.doctor.records import Diagnosis

_WORD = {"pass": "pass", "optional": "----", "fail": "FAIL"}


def as_text(diagnosis: Diagnosis) -> str:
    """One line a check, the fix under what is missing, then features, targets and the verdict."""
    width = max(len(check.name) for check in diagnosis.checks)
    lines = []
    for check in diagnosis.checks:
        lines.append(f"{_WORD[check.status]}  {check.name.ljust(width)}  {check.found}")
        if check.status != "pass" and check.fix:
            lines.append(f"      {' ' * width}  fix: {check.fix}")
    if diagnosis.cpu_features:
        have = [name for name, there in diagnosis.cpu_features.items() if there]
        lack = [name for name, there in diagnosis.cpu_features.items() if not there]
        lines += ["", f"CPU features: {' '.join(have) or 'none'}; not here: {' '.join(lack) or 'nothing'}"]
    for target in diagnosis.targets:
        lines.append(
            f"target {target.name.ljust(8)}  {'yes' if target.available else 'no '}  {target.detail}"
        )
    failed = [check.name for check in diagnosis.checks if check.status == "fail"]
    lines += ["", f"not ready: {', '.join(failed)}" if failed else "ready"]
    return "\n".join(lines)
