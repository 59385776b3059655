"""How much of a program's matrix arithmetic was proven to run on SME2, which operators miss it, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from model_profiling.analysis.evidence import PlaceEvidence
from model_profiling.analysis.not_tested import kernels_not_tested, profile_command
from model_profiling.analysis.operator_proof import REASON_NOT_KNOWN
from model_profiling.run import Run
from model_profiling.run.evidence import MatrixOperator, OperatorProof


@dataclass(frozen=True, slots=True)
class MissingOperator:
    """A matrix operator that runs on no SME or SME2 kernel."""

    operator: MatrixOperator
    share: float | None
    """Of all matrix arithmetic, from 0 to 1; None where no program tells what it computes."""

    @property
    def reason(self) -> str:
        return self.operator.why_not or REASON_NOT_KNOWN


@dataclass(frozen=True, slots=True)
class Coverage:
    """What ran on SME2, by executed kernels; or why that was not tested."""

    evidence: Literal["executed", "not tested"]
    reason: str
    """What the answer rests on, or why there is none."""
    next_command: str = ""
    """What would test it; empty where it is tested."""
    isa: str = ""
    """The strongest instruction set that ran: SME2, SME, or empty for neither."""
    operators: tuple[MatrixOperator, ...] = ()
    """Every operator of the program that multiplies matrices."""
    emulated: bool = False
    """It was proven under emulation."""
    unseen: tuple[str, ...] = ()
    """Delegates whose operators, and so whose arithmetic, are not known."""

    @property
    def tested(self) -> bool:
        return self.evidence == "executed"

    @property
    def proven(self) -> tuple[MatrixOperator, ...]:
        return tuple(operator for operator in self.operators if operator.on_sme)

    @property
    def uncounted(self) -> int:
        """Operators whose arithmetic is not known, and so in no share."""
        return sum(operator.flops is None for operator in self.operators)

    @property
    def flops(self) -> int:
        return sum(operator.flops or 0 for operator in self.proven)

    @property
    def flops_total(self) -> int:
        return sum(operator.flops or 0 for operator in self.operators)

    @property
    def arithmetic_share(self) -> float | None:
        """Of all matrix arithmetic that is known, from 0 to 1; None where none is."""
        return self.flops / self.flops_total if self.tested and self.flops_total else None

    @property
    def missing(self) -> tuple[MissingOperator, ...]:
        """The largest first."""
        if not self.tested:
            return ()
        whole = self.flops_total
        found = [
            MissingOperator(
                operator, operator.flops / whole if operator.flops is not None and whole else None
            )
            for operator in self.operators
            if not operator.on_sme
        ]
        return tuple(sorted(found, key=lambda each: -(each.share or 0)))


def coverage_of(run: Run, evidence: Sequence[PlaceEvidence]) -> Coverage:
    """What the places that prove anything about `run` prove about its operators; its own word goes first."""
    proofs = [(place, place.operators) for place in evidence if place.operators is not None]
    for place, proof in proofs:
        if not proof.not_tested:
            return _tested(proof, place)
    if not proofs and (question := kernels_not_tested(run, evidence)):
        return Coverage("not tested", question.because, question.next)
    return Coverage("not tested", _why_not_tested(run, [proof for _, proof in proofs]), profile_command(run))


def _tested(proof: OperatorProof, place: PlaceEvidence) -> Coverage:
    source = place.source
    if not proof.operators:
        reason = f"no operator multiplies matrices ({proof.series}, {source})"
    elif proof.isa:
        reason = f"{proof.isa} kernels were called, and operators took their paths ({proof.series}, {source})"
    else:
        reason = f"no SME or SME2 kernel ran although SME2 was on ({proof.series}, {source})"
    return Coverage("executed", reason, "", proof.isa, proof.operators, place.emulated, proof.unseen)


def _why_not_tested(run: Run, proofs: Sequence[OperatorProof]) -> str:
    """Why kernels were tested, and operators were not."""
    if proofs:
        return proofs[0].not_tested
    has_sme2 = run.manifest.has_sme2 if run.manifest else None
    if has_sme2 is None:
        return "nothing says whether the CPU that made these dumps has SME2"
    if has_sme2:
        return "no dump of an experiment with SME2 on can be read"
    return "the evidence kept in this run does not say which operators ran on SME2"
