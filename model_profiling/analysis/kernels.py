"""Kernel evidence: which kernels ran, which were only configured, and what that says about SME2.

Executed evidence is a call that happened (a kernel's call count, or an operator in a dump). Configured
evidence is a table entry XNNPACK announced in its log: a candidate, never a run, so it is never counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from model_profiling.analysis.kernel_names import (
    ISAS,
    OTHER_ISAS,
    SME_OR_SME2,
    UNKNOWN,
    Kernel,
    classify,
    classify_operator,
)
from model_profiling.analysis.kernel_work import work_of
from model_profiling.program.category import operator_type
from model_profiling.run.evidence import KernelWork
from model_profiling.wording import plural

Evidence = Literal["executed", "configured"]


@dataclass(frozen=True, slots=True)
class KernelUse:
    """One kernel and how we know of it; `calls` is None where nothing was counted."""

    kernel: Kernel
    evidence: Evidence
    calls: int | None
    worked_on: tuple[KernelWork, ...] = ()
    """The sizes it was called with; empty where they were not kept."""

    def __post_init__(self) -> None:
        if self.evidence == "configured" and self.calls is not None:
            raise ValueError(f"{self.kernel.name} was configured, not called: it has no count")


@dataclass(frozen=True, slots=True)
class KernelPair:
    """One kernel in a run with SME2 on and in a run with it off; None where it does not appear."""

    kernel: Kernel
    on: KernelUse | None
    off: KernelUse | None


@dataclass(frozen=True, slots=True)
class SmeVerdict:
    """Whether SME2 or SME kernels ran; `unknown` where there is no executed evidence, `untested` where the
    CPU could not have run any."""

    answer: Literal["sme2", "sme", "sme-or-sme2", "none", "unknown", "untested"]
    text: str

    @property
    def proves_sme(self) -> bool:
        return self.answer in ("sme2", "sme", "sme-or-sme2")


@dataclass(frozen=True, slots=True)
class MatrixShare:
    """Of the matrix operators a run executed, how many took an SME or SME2 path."""

    sme: int
    total: int


def executed_kernels(
    calls: Mapping[str, int | None], sizes: Mapping[str, Sequence[Sequence[int]]] | None = None
) -> tuple[KernelUse, ...]:
    """Uses from a trace run's list of called symbols; a count of zero is a kernel that did not run. `sizes`
    holds what they were called with."""
    ran = ((symbol, count) for symbol, count in calls.items() if count != 0)
    return _ordered(
        KernelUse(classify(symbol), "executed", count, work_of(symbol, (sizes or {}).get(symbol, ())))
        for symbol, count in ran
    )


def operator_kernels(event_names: Iterable[str]) -> tuple[KernelUse, ...]:
    """Uses from the names of a dump's events: its matrix operators by family, with how often each ran."""
    families = Counter(operator_type(name.strip()) for name in event_names)
    described = ((classify_operator(family), count) for family, count in families.items())
    return _ordered(KernelUse(kernel, "executed", count) for kernel, count in described if kernel is not None)


def configured_kernels(names: Iterable[str]) -> tuple[KernelUse, ...]:
    """Uses from names XNNPACK's log announced, each once however often it was announced."""
    return _ordered(KernelUse(classify(name), "configured", None) for name in dict.fromkeys(names))


def unknown_kernels(uses: Iterable[KernelUse]) -> tuple[str, ...]:
    """Kernels whose name the classifier cannot read; shown to people, so that no name is lost quietly.

    An operator's label often does not tell the instruction set: that is no gap in the classifier.
    """
    return tuple(use.kernel.name for use in uses if use.kernel.library != "operator" and not use.kernel.known)


def compare_kernels(on: Iterable[KernelUse], off: Iterable[KernelUse]) -> tuple[KernelPair, ...]:
    """Lay two runs side by side, kernel by kernel; executed evidence goes before configured."""
    left, right = _strongest(on), _strongest(off)
    kernels = {name: use.kernel for name, use in {**right, **left}.items()}
    pairs = [KernelPair(kernel, left.get(name), right.get(name)) for name, kernel in kernels.items()]

    def order(pair: KernelPair) -> tuple[bool, bool, int, int, str]:
        evidence = {use.evidence for use in (pair.on, pair.off) if use is not None}
        return ("executed" not in evidence, *_order(pair.kernel))

    return tuple(sorted(pairs, key=order))


def sme_verdict(uses: Iterable[KernelUse], *, traced: bool) -> SmeVerdict:
    """What the evidence says about SME2; `traced` tells that the run listed every KleidiAI call it made."""
    known = tuple(uses)
    executed = [use for use in known if use.evidence == "executed" and use.kernel.role != "packing"]
    for isa, answer in (("SME2", "sme2"), ("SME", "sme"), (SME_OR_SME2, "sme-or-sme2")):
        found = [use for use in executed if use.kernel.isa == isa]
        if found:
            return SmeVerdict(answer, f"{isa} ran: {_count(found)}")  # type: ignore[arg-type]
    if traced:
        return SmeVerdict("none", "no SME or SME2 kernel ran")
    operators = [use.kernel for use in executed if _multiplies(use.kernel)]
    if operators and all(kernel.has_sme is False for kernel in operators):
        return SmeVerdict("none", "no operator of the dump took an SME or SME2 path")
    if any(use.kernel.has_sme for use in known):
        return SmeVerdict("unknown", "SME kernels were configured, but nothing shows that they ran")
    return SmeVerdict("unknown", "no kernel evidence")


def matrix_share(uses: Iterable[KernelUse]) -> MatrixShare | None:
    """How much of the matrix work went to SME, by operators; None where no dump or log names any.

    A model may run one operator on SME2 and forty beside it: that SME2 ran does not say how much of it did.
    """
    counted = [use for use in uses if _multiplies(use.kernel)]
    sme = sum(use.calls or 0 for use in counted if use.kernel.has_sme)
    return MatrixShare(sme, total=sum(use.calls or 0 for use in counted)) if counted else None


def _multiplies(kernel: Kernel) -> bool:
    return kernel.library == "operator" and kernel.role == "matmul"


def _count(uses: list[KernelUse]) -> str:
    kind = "operator" if uses[0].kernel.library == "operator" else "kernel"
    if any(use.calls is None for use in uses):
        return plural(len(uses), kind)
    return f"{plural(len(uses), kind)}, {plural(sum(use.calls or 0 for use in uses), 'call')}"


def _strongest(uses: Iterable[KernelUse]) -> dict[str, KernelUse]:
    """One use per kernel: that it was called outweighs that it was configured."""
    best: dict[str, KernelUse] = {}
    for use in uses:
        if use.kernel.name not in best or use.evidence == "executed":
            best[use.kernel.name] = use
    return best


_ISA_ORDER = {isa: rank for rank, isa in enumerate((SME_OR_SME2, *ISAS, *OTHER_ISAS, UNKNOWN))}
_ROLE_ORDER = {role: rank for rank, role in enumerate(("matmul", "depthwise", "convolution", "packing"))}


def _order(kernel: Kernel) -> tuple[bool, int, int, str]:
    role = _ROLE_ORDER.get(kernel.role, len(_ROLE_ORDER))
    return kernel.library == "operator", _ISA_ORDER[kernel.isa], role, kernel.name


def _ordered(uses: Iterable[KernelUse]) -> tuple[KernelUse, ...]:
    return tuple(sorted(uses, key=lambda use: _order(use.kernel)))
