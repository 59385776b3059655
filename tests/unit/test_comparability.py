"""Whether two series may be compared: the one table of cases."""

from __future__ import annotations

from dataclasses import replace

import pytest
from said import says

from model_profiling.run import Times, why_not_comparable
from model_profiling.run.comparability import Origin
from model_profiling.runner.features import SME2_ONLY

OFF = Origin(
    "off",
    Times.HARDWARE,
    threads=1,
    cpu="M4",
    program="aa",
    features=frozenset({"sme2", "sme", "fp16"}),
    disabled=("sme2", "sme"),
    sme2=False,
)
ON = replace(OFF, name="on", disabled=(), sme2=True)
NO_SME2 = frozenset({"fp16"})


def both(**changes: object) -> tuple[Origin, Origin]:
    return replace(OFF, **changes), replace(ON, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        (OFF, ON),
        (OFF, OFF),
        # Where the same code would run, something else differs: the program, or the threads.
        (replace(OFF, features=NO_SME2, program="bb"), replace(ON, features=NO_SME2)),
        (replace(OFF, features=NO_SME2), replace(ON, features=NO_SME2, threads=4)),
        # Nothing is known of the CPU's features, or of the CPU itself.
        both(features=None),
        (replace(OFF, cpu=""), ON),
        # The switch takes more away than SME2, and the CPU has some of that.
        (replace(OFF, features=NO_SME2, disabled=("sme2", "fp16")), replace(ON, features=NO_SME2)),
        # The user's own runners differ in who knows what, on a CPU that has SME2.
        both(own_runner=True, disabled=()),
    ],
)
def test_may_be_compared(baseline: Origin, candidate: Origin) -> None:
    assert why_not_comparable(baseline, candidate) is None


@pytest.mark.parametrize(
    ("baseline", "candidate", "why"),
    [
        (*both(times=Times.EMULATED), ("emulated",)),
        (OFF, replace(ON, times=Times.TRACED), ("on", "traces kernels")),
        (replace(OFF, times=Times.UNKNOWN), ON, ("off", "machine")),
        (OFF, replace(ON, cpu="N1"), ("M4", "N1", "--across-machines")),
        (*both(features=NO_SME2, cpu="N1"), ("N1", "no SME2")),
        (replace(OFF, features=NO_SME2, disabled=(SME2_ONLY,)), replace(ON, features=NO_SME2), ("no SME2",)),
        (replace(ON, features=NO_SME2, disabled=("i8mm",)), replace(ON, features=NO_SME2), ("no i8mm",)),
        (*both(own_runner=True, disabled=(), features=NO_SME2), ("no SME2",)),
        (*both(features=NO_SME2, cpu=""), ("not named", "no SME2")),
    ],
)
def test_may_not_be_compared_and_why(baseline: Origin, candidate: Origin, why: tuple[str, ...]) -> None:
    says(why_not_comparable(baseline, candidate) or "", *why)


def test_machines_may_be_compared_when_they_are_the_question() -> None:
    other = replace(ON, cpu="N1")
    assert why_not_comparable(OFF, other, across_machines=True) is None
    lesser = replace(OFF, cpu="N1", features=NO_SME2)
    assert why_not_comparable(lesser, ON, across_machines=True) is None, "one CPU has SME2, the other not"
    emulated = replace(other, times=Times.EMULATED)
    assert why_not_comparable(OFF, emulated, across_machines=True) is not None
