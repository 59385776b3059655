"""A job on a machine that is not this one: another transport is all it takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from model_profiling.core.errors import RunError
from model_profiling.runner.result import OutputFacts, RunnerResult
from model_profiling.targets import Job
from model_profiling.targets.collect import beside
from model_profiling.targets.command import Places, build_command


@pytest.mark.parametrize("named", ["/there/..", "/there/passwd", "/there/other_output0.bin"])
def test_a_result_that_names_somebody_elses_file_is_refused(named: str, tmp_path: Path) -> None:
    output = OutputFacts(Path(named))
    result = RunnerResult(iterations_ns=(1,), threads=1, warmup=0, outputs=(output,))
    with pytest.raises(RunError, match=re.escape(Path(named).name)):
        beside(result, tmp_path / "job")


def test_a_command_names_only_what_is_there() -> None:
    """A phone's paths, which no file system here has."""
    loader = ("/data/local/tmp/k/ld-linux-aarch64.so.1", "/data/local/tmp/k/runner")
    places = Places("/data/local/tmp/k/m.pte", ("/data/local/tmp/k/i.bin",), "/data/local/tmp/k/7/p")
    job = Job(Path("m.pte"), inputs=(Path("i.bin"),), disable=("sme2",), etdump=True, extra_args=("--x",))
    command = build_command(job, loader, places)
    assert command[:4] == (*loader, "--model", "/data/local/tmp/k/m.pte") and command[-1] == "--x"
    assert all(word in command for word in ("/data/local/tmp/k/i.bin", "/data/local/tmp/k/7/p.etdump"))
    own = build_command(
        Job(Path("m.pte"), runner_path=Path("r"), warmup=2, runs=3, etdump=True), loader, places
    )
    assert own[:3] == (*loader, "--model_path=/data/local/tmp/k/m.pte")
    assert {"--num_executions=5", "--etdump_path=/data/local/tmp/k/7/p.etdump"} <= set(own)
