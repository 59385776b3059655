"""The log of a runner that is not the kit's own may say anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from said import refused

from model_profiling.core.errors import RunError
from model_profiling.targets.command import read_own_times
from model_profiling.targets.protocol import Job

JOB = Job(Path("x.pte"), runs=2, warmup=0)
ODD = (
    "1.2.3", "0.0", "0", "9" * 400, "9" * 5000, "-1.5", "nan", "inf", "1e400", "1e3", "\u0663", "0x10", "1_0",
    "1,5", "\x1b[2J", "",
)  # fmt: skip


@pytest.mark.parametrize("told", ODD)
def test_a_time_that_is_none_is_an_error_that_shows_it(told: str) -> None:
    good = "Iteration 1 of 2: 1.5 ms\n"
    assert (
        read_own_times(JOB, f"Model loaded in {told} ms\n{good * 2}", None).iterations_ns == (1_500_000,) * 2
    )
    for log in (f"{good}Iteration 2 of 2: {told} ms\n", f"executed successfully 1 time(s) in {told} ms\n"):
        if told or "Iteration" not in log:
            with refused(RunError) as said:
                read_own_times(JOB, log, None)
            assert len(str(said.value)) < 400 and "\x1b" not in str(said.value)


def test_a_count_that_is_none_tells_no_time() -> None:
    for count in ("9" * 5000, "\u0661", "0"):
        with refused(RunError, "all executions"):
            read_own_times(JOB, f"executed successfully {count} time(s) in 5 ms\n", None)
