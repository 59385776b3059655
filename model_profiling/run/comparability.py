"""Whether the times of two series say anything about each other: the one place that decides, and why."""

from __future__ import annotations

from dataclasses import dataclass

from model_profiling.run.times import Times
from model_profiling.runner.features import SME2_ONLY


@dataclass(frozen=True, slots=True)
class Origin:
    """What one side's times come from; empty and None where nothing says."""

    name: str
    times: Times
    threads: int | None = None
    cpu: str = ""
    program: str = ""
    """SHA-256 of what was run."""
    features: frozenset[str] | None = None
    """Of the CPU."""
    disabled: tuple[str, ...] = ()
    sme2: bool | None = None
    own_runner: bool = False

    @property
    def switched_off(self) -> set[str]:
        return {"sme2" if name == SME2_ONLY else name for name in self.disabled}


def why_not_comparable(baseline: Origin, candidate: Origin, *, across_machines: bool = False) -> str | None:
    """The reason, or None where the two may be compared. Different CPUs may be, if they are the question."""
    for side in (baseline, candidate):
        if side.times is Times.UNKNOWN:
            return f"nothing says on what machine the times of {side.name} were measured"
        if not side.times.are_latencies:
            return f"the times of {side.name} come from {side.times.origin}: they are not latencies"
    cpus = baseline.cpu, candidate.cpu
    if not all(cpus) or cpus[0] == cpus[1]:
        return _same_code(baseline, candidate)
    if across_machines:
        return None
    names = " and ".join(cpus)
    return f"they were measured on different CPUs ({names}); --across-machines compares the machines"


def _same_code(baseline: Origin, candidate: Origin) -> str | None:
    """Why the two sides differ in nothing that their CPU could show."""
    if baseline.program != candidate.program or baseline.threads != candidate.threads:
        return None
    if baseline.own_runner or candidate.own_runner:
        differing = {"sme2"} if baseline.sme2 != candidate.sme2 else set()
    else:
        differing = baseline.switched_off ^ candidate.switched_off
    features = baseline.features
    if not differing or features is None or differing & features:
        return None
    what = "SME2" if baseline.sme2 != candidate.sme2 else " or ".join(sorted(differing))
    return f"this CPU ({baseline.cpu or 'not named'}) has no {what}, so both sides run the same code"


def differ_in_sme2_alone(baseline: Origin, candidate: Origin) -> bool:
    """Whether SME2, off in `baseline` and on in `candidate`, is all that their difference can come from."""
    others = [side.switched_off - {"sme", "sme2"} for side in (baseline, candidate)]
    return (
        baseline.sme2 is False
        and candidate.sme2 is True
        and baseline.threads == candidate.threads
        and baseline.program == candidate.program
        and (others[0] == others[1] or baseline.own_runner or candidate.own_runner)
    )
