"""A job on a machine that is not this one: another transport is all it takes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from model_profiling.core import process
from model_profiling.core.errors import InputError, RunError
from model_profiling.runner.result import OutputFacts, RunnerResult
from model_profiling.targets import Job
from model_profiling.targets.collect import LeftFile, beside
from model_profiling.targets.command import Places, build_command
from model_profiling.targets.execution import execute
from model_profiling.targets.host import HostTarget


class Elsewhere:
    """A machine with folders of its own, reached by copying; its processes are real ones of this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.jobs = 0
        self.commands: list[tuple[str, ...]] = []

    def make_folder(self, into: Path) -> str:
        self.jobs += 1
        folder = self.root / f"{into.name}{self.jobs}"
        folder.mkdir(parents=True)
        return str(folder)

    def put(self, file: Path) -> str:
        there = self.root / "files" / file.name
        there.parent.mkdir(parents=True, exist_ok=True)
        return str(shutil.copy(file, there))

    def put_runner(self, file: Path) -> tuple[str, ...]:
        return (self.put(file),)

    def run(
        self, argv: Sequence[str], *, folder: str, timeout: float, cores: Sequence[int]
    ) -> process.Completed:
        assert Path(folder).is_dir() and not cores, "it pins nothing"
        self.commands.append(tuple(argv))
        return process.run(argv, timeout=timeout, cwd=self.root)

    def fetch(self, folder: str, wanted: Sequence[LeftFile], into: Path) -> None:
        for path in Path(folder).iterdir():
            assert any(file.is_called(path.name) for file in wanted), path
            shutil.copy(path, into)

    def remove(self, folder: str) -> None:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def host() -> HostTarget:
    target = HostTarget()
    target.prepare()
    return target


@pytest.fixture
def there(host: HostTarget, tmp_path: Path) -> tuple[Elsewhere, tuple[str, ...]]:
    """The machine, with the kit's runner on it."""
    assert host.build is not None
    machine = Elsewhere(tmp_path / "there")
    return machine, (machine.put(host.build.path),)


def test_everything_comes_back_and_nothing_stays(there, exported, tmp_path: Path) -> None:
    machine, runner = there
    data = tmp_path / "input.bin"
    data.write_bytes(bytes(4 * 3 * 224 * 224))
    job = Job(exported("toy_cnn", "fp32").pte, runs=2, inputs=(data,), etdump=True, save_outputs=True)
    into = tmp_path / "here"
    outcome = execute(job, into, "job", runner=runner, transport=machine)
    assert len(outcome.result.iterations_ns) == 2
    assert outcome.etdump is not None and outcome.etdump.parent == into and outcome.etdump.stat().st_size
    # The runner named its output as it was called there.
    assert outcome.outputs == (into / "job_output0.bin",) and outcome.outputs[0].stat().st_size == 4000
    assert str(machine.root) in (into / "job_runner.json").read_text()
    assert outcome.log.read_text().startswith(f"$ {runner[0]} --model {machine.root}")
    (command,) = machine.commands
    assert not [word for word in command if str(into) in word or str(job.model) in word or str(data) in word]
    assert [path.name for path in machine.root.iterdir()] == ["files"], "the job's folder is gone"


@pytest.mark.parametrize("named", ["/there/..", "/there/passwd", "/there/other_output0.bin"])
def test_a_result_that_names_somebody_elses_file_is_refused(named: str, tmp_path: Path) -> None:
    output = OutputFacts(Path(named))
    result = RunnerResult(iterations_ns=(1,), threads=1, warmup=0, outputs=(output,))
    with pytest.raises(RunError, match=re.escape(Path(named).name)):
        beside(result, tmp_path / "job")


def test_a_runner_of_the_users_own_goes_along(there, exported, tmp_path: Path) -> None:
    machine, _ = there
    own = tmp_path / "executor_runner"
    own.write_text('#!/bin/sh\necho "Iteration 1 of 2: 5 ms"; echo "Iteration 2 of 2: 3 ms"\n')
    own.chmod(0o755)
    job = Job(exported("toy_cnn", "fp32").pte, runner_path=own)
    outcome = execute(job, tmp_path / "here", "job", runner=(), transport=machine)
    assert outcome.result.iterations_ns == (3_000_000,)
    assert machine.commands[0][0] == str(machine.root / "files" / "executor_runner")


def test_a_failure_there_is_explained_and_leaves_only_its_log(there, exported, tmp_path: Path) -> None:
    machine, runner = there
    into = tmp_path / "here"
    good = Job(exported("toy_cnn", "fp32").pte, etdump=True, save_outputs=True)
    execute(good, into, "job", runner=runner, transport=machine)
    with pytest.raises(InputError, match="'backward'"):
        execute(Job(good.model, method="backward"), into, "job", runner=runner, transport=machine)
    assert [path.name for path in into.iterdir()] == ["job.log"], "nothing of the earlier run passes for this"
    with pytest.raises(RunError, match=r"\b1 s\b"):
        execute(Job(good.model, runs=10**9, timeout_s=1), into, "job", runner=runner, transport=machine)
    assert [path.name for path in machine.root.iterdir()] == ["files"]


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
