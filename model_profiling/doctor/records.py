"""What an examination of the machine found."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from model_profiling.check import Check, all_pass, check_lines, failed_names


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
        return all_pass(self.checks)

    def as_dict(self) -> dict[str, object]:
        return {"schema_version": 1, "ok": self.ok, **asdict(self)}

    def as_text(self) -> str:
        """The checks, then features, targets and the verdict."""
        lines = check_lines(self.checks)
        if self.cpu_features:
            have = [name for name, there in self.cpu_features.items() if there]
            lack = [name for name, there in self.cpu_features.items() if not there]
            lines += [
                "",
                f"CPU features: {' '.join(have) or 'none'}; not here: {' '.join(lack) or 'nothing'}",
            ]
        for target in self.targets:
            available = "yes" if target.available else "no "
            lines.append(f"target {target.name.ljust(8)}  {available}  {target.detail}")
        failed = failed_names(self.checks)
        return "\n".join([*lines, "", f"not ready: {failed}" if failed else "ready"])
