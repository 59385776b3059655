"""Differences between two runs, emulated ones too, other than latency: operators, delegation, kernels, SME2,
memory and loading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from model_profiling.analysis.evidence import SeriesEvidence
from model_profiling.analysis.kernels import KernelUse, compare_kernels
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import Pairs
from model_profiling.core.formatting import milliseconds, plural, size

Aspect = Literal["structure", "kernels", "memory", "load"]
CHANGES: tuple[Aspect, ...] = ("structure", "kernels")
"""Any difference in these fails; the others have a limit."""
_TESTED = ("sme2", "sme", "sme-or-sme2", "none")
_SME_WORDS = {"sme2": "SME2 ran", "sme": "SME ran", "sme-or-sme2": "SME or SME2 ran", "none": "neither ran"}


@dataclass(frozen=True, slots=True)
class StructureChange:
    of: Aspect
    what: str
    """In two or three words: `left the delegate`."""
    subject: str
    before: str
    after: str
    where: str = ""

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"{self.subject}{place}: {self.what}, {self.before} before, {self.after} now"


@dataclass(frozen=True, slots=True)
class Differences:
    """What one series, or the proof for one, did differently on the other side."""

    name: str
    changes: tuple[StructureChange, ...] = ()
    unknown: Mapping[Aspect, str] = field(default_factory=dict)
    """Why something cannot be compared; empty or absent if it was."""
    notes: tuple[str, ...] = ()
    only_kernels: bool = False
    """Without operators of its own: only what emulation proved about the kernels."""

    def of(self, aspect: Aspect) -> tuple[StructureChange, ...]:
        return tuple(change for change in self.changes if change.of == aspect)


def operator_changes(pairs: Pairs) -> Iterator[StructureChange]:
    for ours, theirs in pairs:
        if len(ours) == len(theirs):
            for before, after in zip(ours, theirs, strict=True):
                yield from _between(before, after)
            continue
        what = "became several operators" if len(theirs) > len(ours) else "became fewer operators"
        if not ours or not theirs:
            what = "vanished" if ours else "appeared"
        yield _structure(what, _types(ours), _types(theirs), (theirs or ours)[0])
    # Each call of a delegate costs copies at its edges.
    before_and_after = (
        len({(each.method, each.call) for pair in pairs for each in pair[side] if each.delegated})
        for side in (0, 1)
    )
    if len(set(calls := [str(count) for count in before_and_after])) > 1:
        yield StructureChange("structure", "changed in number", "delegate calls", *calls)


def cost_changes(
    before: Mapping[Aspect, float], after: Mapping[Aspect, float], limits: Mapping[Aspect, float]
) -> Iterator[StructureChange]:
    """Yield what grew by more than its limit, a share; both sides have all costs that have one."""
    for aspect, limit in limits.items():
        ours, theirs = before[aspect], after[aspect]
        if theirs > ours * (1 + limit):
            what, before_and_after = "peak memory", (size(ours), size(theirs))
            if aspect == "load":
                what, before_and_after = "loading", (f"{milliseconds(ours)} ms", f"{milliseconds(theirs)} ms")
            yield StructureChange(aspect, f"grew by {theirs / ours - 1:.1%}", what, *before_and_after)


def _between(before: Operator, after: Operator) -> Iterator[StructureChange]:
    if before.kind != after.kind:
        yield _structure("became another kind", _types((before,)), _types((after,)), after)
        return
    moved = "left the delegate" if before.delegated else "entered a delegate"
    if before.delegated == after.delegated:
        moved = "moved to another backend"
    # Only a program could name the delegate, and there may be none.
    ran_by = ("" if each.backend == "delegate" else each.backend for each in (before, after))
    facts = (
        (moved, *ran_by),
        ("computes in another precision", before.precision, after.precision),
        ("has other shapes", _shapes(before), _shapes(after)),
    )
    for what, ours, theirs in facts:
        if ours and theirs and ours != theirs:
            yield _structure(what, ours, theirs, after)
    if before.type != after.type and before.delegated == after.delegated:
        yield StructureChange(
            "kernels", "changed its kernel", after.name, before.type, after.type, after.place
        )


def _structure(what: str, before: str, after: str, operator: Operator) -> StructureChange:
    return StructureChange("structure", what, operator.name, before, after, operator.place)


def _types(operators: Sequence[Operator]) -> str:
    return " + ".join(operator.type for operator in operators) or "none"


def _shapes(operator: Operator) -> str:
    source = operator.source
    if not source.output_shape:
        return ""
    taken = ", ".join("x".join(map(str, shape)) for shape in source.input_shapes)
    return f"{taken} to {'x'.join(map(str, source.output_shape))}"


def kernel_changes(
    before: SeriesEvidence, after: SeriesEvidence, *, labels: bool = True
) -> Iterator[StructureChange]:
    """Changes of kernels and of SME2; operators only with `labels`."""
    answers = before.sme.answer, after.sme.answer
    if answers[0] != answers[1] and all(answer in _TESTED for answer in answers):
        yield StructureChange("kernels", "changed", "SME2", *(_SME_WORDS[answer] for answer in answers))
    ours, theirs = (
        [
            use
            for use in side.uses
            if use.evidence == "executed" and (labels or use.kernel.library != "operator")
        ]
        for side in (before, after)
    )
    for pair in compare_kernels(theirs, ours):
        if pair.on is None or pair.off is None:
            what = "no longer runs" if pair.on is None else "runs now"
            yield StructureChange("kernels", what, pair.kernel.name, _calls(pair.off), _calls(pair.on))


def why_kernels_unknown(before: SeriesEvidence | None, after: SeriesEvidence | None) -> str:
    """Why the kernels of two series cannot be compared; empty if they can."""
    for name, side in (("A", before), ("B", after)):
        if side is None:
            return f"{name} has no list of the kernels that ran"
        if not side.counted:
            return f"the kernels of {name} were not counted{f': {side.note}' if side.note else ''}"
    assert before is not None and after is not None
    if before.sme2 is not False and before.sme.answer in _TESTED and after.sme.answer not in _TESTED:
        return f"A says whether SME2 ran, B does not: {after.sme.text}"
    return ""


def _calls(use: KernelUse | None) -> str:
    if use is None:
        return "not called"
    return plural(use.calls, "call") if use.calls is not None else "called"
