"""Sampling held against counting: two ways to know which KleidiAI kernels ran, which must not disagree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from model_profiling.analysis.kernel_work import multiply_adds
from model_profiling.analysis.kernels import KernelUse
from model_profiling.wording import percent, plural

MUST_BE_SEEN = 0.05
"""A kernel that takes more than this share of the time must have been seen."""
_SURE = 10
"""So many samples expected of a kernel, chance does not leave it out."""
_RULE_OF_THREE = 3.0
"""What was seen in none of n samples has, with 95% confidence, less than 3 / n of the time."""


def disagreements(seen: Mapping[str, int], counted: Sequence[KernelUse]) -> Iterator[str]:
    """Where the two ways do not fit: `seen` holds the samples of each KleidiAI entry."""
    ran = _kleidiai(counted)
    for name in seen:
        if name not in ran:
            yield f"{name} was seen running, but no call of it was counted"
    work = {name: multiply_adds(use.worked_on) for name, use in ran.items() if use.kernel.role == "matmul"}
    total = sum(made or 0 for made in work.values())
    for name, made in work.items():
        # Among kernels that all multiply, a share of the arithmetic is about that share of the time.
        share = (made or 0) / total if total else 0.0
        if name not in seen and share > MUST_BE_SEEN and share * sum(seen.values()) >= _SURE:
            yield f"{name} made {percent(share)} of the counted arithmetic, but was never seen"


def agreement(seen: Mapping[str, int], samples: int, counted: Sequence[KernelUse]) -> str:
    """What holds where there is no disagreement."""
    ran = _kleidiai(counted)
    if not ran:
        return f"no KleidiAI kernel was seen in {plural(samples, 'sample')}, and none was counted"
    kernels = "kernel was" if len(seen) == 1 else "kernels were"
    said = f"{len(seen)} KleidiAI {kernels} seen in {plural(samples, 'sample')}, and counted"
    unseen = sum(name not in seen for name in ran)
    bound = percent(min(1.0, _RULE_OF_THREE / samples)) if samples else "100%"
    return (
        f"{said}; {unseen} more counted and never seen, each below {bound} of the samples" if unseen else said
    )


def _kleidiai(counted: Sequence[KernelUse]) -> dict[str, KernelUse]:
    called = (use for use in counted if use.kernel.library == "kleidiai" and use.evidence == "executed")
    return {use.kernel.name: use for use in called}
