"""What a validation of a run directory found, line by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

Status = Literal["pass", "fail", "skipped"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the answer; `skipped` is something the directory does not promise or cannot show."""

    name: str
    status: Status
    found: str
    cure: str = ""


@dataclass(frozen=True, slots=True)
class Validation:
    """Everything that was checked in one run directory."""

    run_dir: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return all(check.status != "fail" for check in self.checks)

    def as_dict(self) -> dict[str, object]:
        return {"schema_version": 1, "ok": self.ok, **asdict(self)}

    def as_text(self) -> str:
        """One line a check, the cure under what failed, the verdict last."""
        words = {"pass": "pass", "fail": "FAIL", "skipped": "----"}
        width = max(len(check.name) for check in self.checks)
        lines = []
        for check in self.checks:
            lines.append(f"{words[check.status]}  {check.name.ljust(width)}  {check.found}")
            if check.status == "fail" and check.cure:
                lines.append(f"      {' ' * width}  cure: {check.cure}")
        failed = [check.name for check in self.checks if check.status == "fail"]
        lines += ["", f"not valid: {', '.join(dict.fromkeys(failed))}" if failed else "valid"]
        return "\n".join(lines)


def judged(name: str, wrong: Sequence[str], found: str, cure: str) -> Check:
    """Pass with what was found, or fail with the first thing wrong and its cure."""
    if not wrong:
        return Check(name, "pass", found)
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return Check(name, "fail", f"{wrong[0]}{more}", cure)
