"""What a check of the machine found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Status = Literal["pass", "optional", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's answer; `optional` is something missing that only some work needs."""

    name: str
    status: Status
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class TargetState:
    """Where models can run from here, and what the result is good for."""

    name: str
    available: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything the doctor looked at."""

    checks: tuple[Check, ...]
    cpu_features: dict[str, bool]
    targets: tuple[TargetState, ...]

    @property
    def ok(self) -> bool:
        """Whether the kit's own runner can be built and run here."""
        return all(check.status != "fail" for check in self.checks)

    def as_dict(self) -> dict[str, object]:
        return {"schema_version": 1, "ok": self.ok, **asdict(self)}
