"""Results of checks: of a machine, of a run, of a setup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

Status = Literal["pass", "fail", "optional", "skipped"]
"""`optional`: something is missing that only some work needs. `skipped`: not checkable, or not needed."""


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    status: Status
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class CheckList:
    checks: tuple[Check, ...]

    @property
    def failed(self) -> str:
        return ", ".join(dict.fromkeys(check.name for check in self.checks if check.status == "fail"))

    @property
    def ok(self) -> bool:
        return not self.failed

    def as_dict(self) -> dict[str, object]:
        return {"schema_version": 1, "ok": self.ok, **asdict(self)}


def check_unless(wrong: Sequence[str], name: str, found: str, fix: str) -> Check:
    """Return a passed check if `wrong` is empty, else a failed one with the first problem and its fix."""
    if not wrong:
        return Check(name, "pass", found)
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return Check(name, "fail", f"{wrong[0]}{more}", fix)


def check_lines(checks: Sequence[Check]) -> list[str]:
    """Return one line per check, with the fix below each one that failed or is missing."""
    words = {"pass": "pass", "fail": "FAIL", "optional": "----", "skipped": "----"}
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{words[check.status]}  {check.name.ljust(width)}  {check.found}")
        if check.fix and check.status in ("fail", "optional"):
            lines.append(f"      {' ' * width}  fix: {check.fix}")
    return lines
