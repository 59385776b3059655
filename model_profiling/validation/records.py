"""What a validation of a run directory found."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from model_profiling.check import Check, all_pass, check_lines, failed_names


@dataclass(frozen=True, slots=True)
class Validation:
    """Everything that was checked in one run directory."""

    run_dir: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return all_pass(self.checks)

    def as_dict(self) -> dict[str, object]:
        return {"schema_version": 1, "ok": self.ok, **asdict(self)}

    def as_text(self) -> str:
        """The checks, the verdict last."""
        failed = failed_names(self.checks)
        return "\n".join([*check_lines(self.checks), "", f"not valid: {failed}" if failed else "valid"])
