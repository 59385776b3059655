"""What a run leaves open about SME2, why, and the command that would answer it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.analysis.evidence import PlaceEvidence
from model_profiling.run import Run, Times
from model_profiling.statistics.speedup import Verdict

_ON_SME2 = "on a machine that has SME2 (`sme2prof doctor --devices` lists some)"


@dataclass(frozen=True, slots=True)
class NotTested:
    """A question without an answer here; each part is a clause."""

    what: str
    because: str
    next: str

    def __str__(self) -> str:
        return f"{self.what}: not tested, because {self.because}; next: {self.next}"


def not_tested(run: Run, evidence: Sequence[PlaceEvidence]) -> tuple[NotTested, ...]:
    """Kernels first, then what SME2 changes in latency."""
    kernels = kernels_not_tested(run, evidence)
    return (*((kernels,) if kernels else ()), *_latency(run))


def kernels_not_tested(run: Run, evidence: Sequence[PlaceEvidence]) -> NotTested | None:
    """Why nothing shows whether SME2 kernels run; None where something does."""
    answers = {kernels.sme.answer for place in evidence for kernels in place.kernels}
    if answers & {"sme2", "sme", "sme-or-sme2", "none"}:
        return None
    what, manifest = "SME2 kernels", run.manifest
    kept = run.evidence
    if kept is not None and kept.problem:
        return NotTested(what, kept.problem, f"{kept.fix}; then {profile_command(run, emulated=True)}")
    if manifest is None:
        return NotTested(what, "these dumps came without a list of kernels", profile_command(run))
    if manifest.has_sme2 is False:
        cpu = "this CPU is not an Arm CPU" if manifest.is_arm is False else "this CPU has no SME2"
        because = f"{cpu}, and no emulated run of this program was made"
        return NotTested(what, because, profile_command(run, emulated=True))
    notes = [kernels.note for place in evidence for kernels in place.kernels if kernels.note]
    return NotTested(what, notes[0] if notes else "no process listed its kernels", profile_command(run))


def _latency(run: Run) -> Iterator[NotTested]:
    what, manifest = "What SME2 changes in latency", run.manifest
    if manifest is None:
        return
    there = f"{profile_command(run)} {_ON_SME2}"
    if run.times is Times.EMULATED:
        yield NotTested(what, "emulated times are not latencies", there)
    elif run.times is not Times.HARDWARE:
        return
    elif manifest.is_arm is False:
        yield NotTested(what, f"this CPU ({manifest.cpu}) is not an Arm CPU", there)
    elif manifest.has_sme2 is False:
        yield NotTested(what, f"this CPU ({manifest.cpu}) has no SME2", there)
    elif manifest.has_sme2 and (because := _not_compared(run)):
        yield NotTested(what, because, profile_command(run))


def _not_compared(run: Run) -> str:
    """Why no pair of SME2 on and off has an answer; empty where one has."""
    reasons = []
    for pair in (pair for pair in run.pairs if run.switches_sme2(pair)):
        found = run.comparison(pair)
        if found is not None and found.speedup.verdict is not Verdict.NOT_COMPARABLE:
            return ""
        reasons.append(pair.not_comparable or (found.speedup.reason if found else ""))
    return next(filter(None, reasons), "no pair of SME2 on and off was compared")


def profile_command(run: Run, *, emulated: bool = False) -> str:
    """What makes the answer; emulation runs here, where the program is."""
    model = run.manifest.model if run.manifest and run.manifest.model else "MODEL.pte"
    shown = shlex.quote(model if emulated else Path(model).name)
    return f"sme2prof profile {shown}" + (" --target emulated" if emulated else "")
