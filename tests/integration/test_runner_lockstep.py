"""Programs that take turns: real launches on this machine and under QEMU, and each way one can break."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import psutil
import pytest
from conftest import ROOT
from said import says
from stand_ins import wait_until
from turn_order import shuffles

from model_profiling.core import process
from model_profiling.core.errors import InputError, RunError
from model_profiling.etdump import read_etdump
from model_profiling.runner.compilers import find_compiler
from model_profiling.runner.result import read_lockstep_result
from model_profiling.targets import Job, LockstepJob, LockstepOutcome
from model_profiling.targets.emulated import EmulatedTarget
from model_profiling.targets.host import HostTarget

TYPED, STATEFUL, *LAYERS = (
    f"{ROOT}/tests/models/unseen.py:{factory}"
    for factory in ("typed", "counter", "six_layers", "seven_layers")
)
LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="it looks into Linux's /proc")
ENDLESS = ("--cycles", "4000000000", "--turn-length", "1")

Launch = Callable[..., LockstepOutcome]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def toy(exported) -> Path:
    pte: Path = exported("toy_cnn", "fp32").pte
    return pte


@pytest.fixture
def launch(host: HostTarget, tmp_path: Path) -> Launch:
    def execute(*jobs: Job, **options: object) -> LockstepOutcome:
        return host.execute_lockstep(LockstepJob(jobs, **options), tmp_path, "launch")

    return execute


@pytest.fixture
def start(host: HostTarget) -> Iterator[Start]:
    """A launch that goes on while the test does something to it."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: object) -> subprocess.Popen[str]:
        assert host.build is not None
        argv = [str(host.build.path), "--lockstep", *map(str, words)]
        started.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield begin
    for parent in started:
        parent.kill()
        parent.communicate()


def children_of(parent: subprocess.Popen[str], count: int = 2) -> list[int]:
    """In the order they were forked in; waits until all are there."""
    above = psutil.Process(parent.pid)
    wait_until(lambda: len(above.children()) == count, f"{count} children", 20)
    return sorted(child.pid for child in above.children())


def is_gone(pid: int) -> bool:
    """Not there any more, or dead and waiting to be reaped by whoever adopted it."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def assert_all_go(pids: list[int]) -> None:
    wait_until(lambda: all(map(is_gone, pids)), "all are gone", 20)


def check_turns(made: LockstepOutcome, job_count: int, cycles: int, length: int) -> None:
    """Everybody had one turn in each cycle, in the seed's order, and none began before the last was over."""
    turns = made.turns
    assert len(turns.child) == cycles * job_count == len(turns.started_ns)
    _, *orders = islice(shuffles(made.launch.order_seed, job_count), cycles + 1)
    assert turns.child == tuple(child for order in orders for child in order)
    assert all(len(times) == length and min(times) > 0 for times in turns.iterations_ns)
    for wall, cpu, preempted in zip(turns.iterations_ns, turns.cpu_ns, turns.preemptions, strict=True):
        assert len(cpu) == len(preempted) == length and min(cpu) > 0 and min(preempted) >= 0
        assert all(used < 1.05 * took + 20_000 for used, took in zip(cpu, wall, strict=True))
    ends = [
        begun + sum(times) + wait
        for begun, times, wait in zip(turns.started_ns, turns.iterations_ns, turns.idle_wait_ns, strict=True)
    ]
    assert all(end <= begun for end, begun in zip(ends, turns.started_ns[1:], strict=False))


def test_a_program_against_itself(launch: Launch, toy: Path, host: HostTarget) -> None:
    made = launch(Job(toy, warmup=2), Job(toy, warmup=2), cycles=5, turn_length=3, order_seed=11)
    check_turns(made, 2, cycles=5, length=3)
    assert made.launch.cycles == 5
    for number, outcome in enumerate(made.outcomes):
        turns = zip(made.turns.child, made.turns.iterations_ns, strict=True)
        own = [took for at, times in turns if at == number for took in times]
        result = outcome.result
        assert result.iterations_ns == tuple(own) and len(own) == 15
        assert result.loop_ns is not None and result.loop_ns >= sum(own)
        assert (result.threads, result.warmup, result.traced) == (1, 2, False)
        assert host.build is not None and result.build_id == host.build.build_id
        assert outcome.etdump is None
    first, second = made.results
    assert first.outputs == second.outputs and first.outputs[0].shape == (1, 1000)
    for used in made.machine.children:
        assert used.cpu_ns > 0
    if sys.platform == "linux":
        before, after = made.machine.before, made.machine.after
        assert before.total_ticks is not None and after.total_ticks is not None
        assert after.total_ticks >= before.total_ticks and after.steal_ticks is not None
        cpus = range(os.cpu_count() or 1)
        assert all(cpu in cpus for cpu in made.turns.cpu)
    assert "--lockstep" in made.outcomes[0].log.read_text()


def test_three_children_of_two_programs_on_one_and_two_threads(launch: Launch, exported, toy: Path) -> None:
    jobs = (
        Job(toy, threads=2, save_outputs=True),
        Job(exported("toy_cnn", "int8").pte, save_outputs=True, etdump=True),
        Job(toy, save_outputs=True, seed=4, etdump=True, warmup=0),
    )
    made = launch(*jobs, cycles=4, turn_length=2, order_seed=3)
    check_turns(made, 3, cycles=4, length=2)
    assert [result.threads for result in made.results] == [2, 1, 1]
    assert made.launch.start_order == next(shuffles(3, 3))
    files = [output.file for result in made.results for output in result.outputs]
    assert [file.name for file in files] == [f"launch_child{number}_output0.bin" for number in range(3)]
    assert len({file.read_bytes() for file in files}) == 3, "two programs, and another seed"
    traced = [outcome.etdump for outcome in made.outcomes]
    assert traced[0] is None and [result.traced for result in made.results] == [False, True, True]
    for number in (1, 2):
        dump = traced[number]
        assert dump is not None and dump.name == f"launch_child{number}.etdump"
        events = read_etdump(dump).to_pandas()
        executes = events[events["name"] == "Method::execute"]
        # The tracer saw the executions of the turns alone, in their order.
        pairs = zip(executes["duration_ns"], made.results[number].iterations_ns, strict=True)
        assert len(executes) == 8 and all(inside <= outside for inside, outside in pairs)


def test_a_child_is_idle_while_another_has_its_turn(launch: Launch, toy: Path) -> None:
    """Workers spin for milliseconds after work; the turn is over only when they do not."""
    made = launch(Job(toy, threads=2), Job(toy, threads=2), Job(toy), cycles=10, turn_length=2)
    check_turns(made, 3, cycles=10, length=2)
    assert made.launch.idle_wait_exceeded == 0
    for number in (0, 1):
        waits = [w for at, w in zip(made.turns.child, made.turns.idle_wait_ns, strict=True) if at == number]
        assert sum(waits) > 100_000, "the workers were waited for"
    for used in made.machine.children:
        assert used.idle_cpu_ns < 10 * 500_000, "a wait for a message, no more"


@pytest.fixture
def two_cores() -> Iterator[set[int]]:
    """All that this thread may use until the test is over, and what it starts."""
    if sys.platform != "linux" or len(before := os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores to choose from")
    os.sched_setaffinity(0, sorted(before)[:2])
    yield os.sched_getaffinity(0)
    os.sched_setaffinity(0, before)


def test_as_many_threads_as_cores_have_one_each(start: Start, toy: Path, two_cores: set[int]) -> None:
    parent = start(*ENDLESS, "--child", "--model", toy, "--threads", 2)
    (child,) = children_of(parent, 1)

    def allowed() -> set[tuple[int, ...]]:
        tasks = list(Path(f"/proc/{child}/task").iterdir())
        return {tuple(os.sched_getaffinity(int(task.name))) for task in tasks}

    wait_until(lambda: allowed() == {(core,) for core in two_cores}, "a core for each thread", 20)


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root may run before ordinary programs"
)
def test_one_thread_runs_before_ordinary_programs_and_several_beside_them(start: Start, toy: Path) -> None:
    """Several that wait for each other by spinning could keep each other from running."""
    words = [word for threads in (1, 2) for word in ("--child", "--model", toy, "--threads", threads)]
    one, two = children_of(start(*ENDLESS, *words), 2)
    wait_until(lambda: os.sched_getscheduler(one) == os.SCHED_FIFO, "it runs before others", 20)
    assert os.sched_getscheduler(two) == os.SCHED_OTHER


@pytest.mark.usefixtures("two_cores")
def test_threads_that_share_their_cores_are_told_so_after_two_launches(sme2prof, exported, tmp_path) -> None:
    programs = [exported(layers).pte for layers in LAYERS]
    words = ("--threads", 2, "--target", "host", "--outdir", tmp_path / "both", "--json")
    # Sessions of their own: Linux shares a core among sessions, not processes, where there are terminals.
    endless = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(endless, start_new_session=True) for _ in range(4)]
    try:
        told = sme2prof("compare", *programs, *words)
    finally:
        for each in busy:
            each.kill()
            each.wait()
    says(json.loads(told.stdout)["headline"], "Not comparable: other programs interrupted", "with 1 thread")
    for side in ("a", "b"):
        (run_dir,) = (tmp_path / "both").glob(f"{side}/*/")
        schedule = json.loads((run_dir / "manifest.json").read_text())["schedule"]
        assert (schedule["ended"], schedule["rounds_done"]) == ("busy", 2)


def test_turns_under_an_emulator(emulated: EmulatedTarget, toy: Path, tmp_path: Path) -> None:
    """Forked, because a guest's exec would reach the host; each child has its own kernels."""
    jobs = (Job(toy, warmup=0), Job(toy, warmup=0, disable=("sme2",), threads=2))
    job = LockstepJob(jobs, cycles=1, turn_length=1)
    made = emulated.execute_lockstep(job, tmp_path, "launch")
    check_turns(made, 2, cycles=1, length=1)
    on, off = made.results
    assert "sme2" in on.features_present and on.features_masked == () and "sme2" in off.features_masked
    assert on.outputs[0].shape == off.outputs[0].shape


@pytest.mark.parametrize("victim", [0, 1])
def test_a_child_that_is_killed_is_a_crash_that_is_named(start: Start, toy: Path, victim: int) -> None:
    parent = start(*ENDLESS, "--child", "--model", toy, "--child", "--model", toy, "--threads", 2)
    pids = children_of(parent)
    time.sleep(0.1)
    os.kill(pids[victim], signal.SIGKILL)
    _, said = parent.communicate(timeout=20)
    assert parent.returncode == 11
    assert said.splitlines()[-1] == f"sme2prof-runner: child {victim} ({toy.name}): crashed with SIGKILL"
    assert_all_go(pids)


def test_a_child_that_hangs_is_stopped_at_the_limit(start: Start, toy: Path) -> None:
    child = ("--child", "--model", toy)
    parent = start("--time-limit", 5, *ENDLESS, *child, *child)
    pids = children_of(parent)
    time.sleep(0.1)
    os.kill(pids[1], signal.SIGSTOP)
    _, said = parent.communicate(timeout=20)
    assert parent.returncode == 124
    says(said, f"child 1 ({toy.name})", "time limit")
    assert_all_go(pids)


@pytest.mark.parametrize("how", ["by the kernel", "by the end of the socket"])
def test_a_parent_that_is_killed_leaves_no_child(start, toy, how, tmp_path, monkeypatch) -> None:
    if how == "by the end of the socket" and sys.platform == "linux":
        source, library = tmp_path / "shim.c", tmp_path / "shim.so"
        source.write_text("int prctl(int option, ...) { (void)option; return 0; }\n")
        words = [*find_compiler().command, "-x", "c", "-shared", "-fPIC", source, "-o", library]
        assert process.run(words, timeout=60).ok
        monkeypatch.setenv("LD_PRELOAD", str(library))
    child = ("--child", "--model", toy)
    parent = start(*ENDLESS, *child, *child, *child, "--threads", 2)
    pids = children_of(parent, 3)
    time.sleep(0.1)
    parent.kill()
    parent.wait()
    assert_all_go(pids)


def damaged(source: Path, into: Path) -> Path:
    copy = into / f"damaged_{source.name}"
    copy.write_bytes(source.read_bytes().replace(b"XH00", b"XH99"))
    return copy


def test_a_damaged_program_is_named_among_the_others(launch: Launch, toy: Path, tmp_path: Path) -> None:
    broken = damaged(toy, tmp_path)
    with pytest.raises(RunError) as caught:
        launch(Job(toy), Job(broken, threads=2), cycles=1)
    says(caught.value.problem, f"program 2 of 2 ({broken.name}, 2 threads)", "'forward'")
    assert not list(tmp_path.glob("*.json"))


def test_a_file_that_cannot_be_written_names_its_child(start: Start, toy: Path, tmp_path: Path) -> None:
    child = ("--child", "--model", toy)
    parent = start("--cycles", 1, *child, *child, "--output-prefix", tmp_path / "gone" / "x")
    _, said = parent.communicate(timeout=20)
    assert parent.returncode == 8
    says(said, f"child 1 ({toy.name})", f"{tmp_path}/gone/x0.bin: no such file")


def test_a_program_whose_outputs_change_cannot_take_turns(launch: Launch, exported) -> None:
    pte = exported(STATEFUL, "fp32", "portable").pte
    with pytest.raises(RunError, match=r"\boutput 0\b.*; .*\bone by one\b"):
        launch(Job(pte), Job(pte), cycles=1)


@LINUX_ONLY
def test_children_of_one_program_that_put_out_different_shapes(start, exported, toy, tmp_path) -> None:
    """The file is exchanged when one child has it open and the other has not begun."""
    pte, other = tmp_path / "m.pte", tmp_path / "other.pte"
    pte.write_bytes(toy.read_bytes())
    other.write_bytes(exported(TYPED, "fp16", "portable").pte.read_bytes())
    first, second = next(shuffles(0, 2))
    assert (first, second) == (0, 1)
    slow, quick = ("--child", "--model", pte, "--warmup", 60), ("--child", "--model", pte)
    parent = start("--cycles", 1, *slow, *quick)
    loading = Path(f"/proc/{children_of(parent)[0]}/maps")
    wait_until(lambda: str(pte) in loading.read_text(), "it is open", 60)
    other.replace(pte)
    _, said = parent.communicate(timeout=60)
    assert parent.returncode == 13, said
    shapes = r"float16\[4, 5\], int8\[4, 5\].*child 0 \(m\.pte\).*float32\[1, 1000\]"
    assert re.search(rf"child 1 \(m\.pte\).*{shapes}", said)


def test_what_no_launch_can_do_is_refused_before_it_starts(launch, host, toy, tmp_path) -> None:
    with pytest.raises(InputError, match="kernels"):
        launch(Job(toy), Job(toy, kernels=True), cycles=1)
    with pytest.raises(InputError, match=r"gone\.pte; export"):
        launch(Job(toy), Job(tmp_path / "gone.pte"), cycles=1)
    with pytest.raises(RunError, match="not prepared"):
        HostTarget().execute_lockstep(LockstepJob((Job(toy),), cycles=1), tmp_path, "x")
    own = Path(sys.executable)
    assert "executor_runner" in (host.why_not_lockstep([Job(toy), Job(toy, runner_path=own)]) or "")
    assert "different CPUs" in (host.why_not_lockstep([Job(toy, cpu_affinity=(0,)), Job(toy)]) or "")
    assert host.why_not_lockstep([Job(toy), Job(toy)]) is None


def test_a_result_that_contradicts_itself_is_refused(launch: Launch, toy: Path, tmp_path: Path) -> None:
    launch(Job(toy), Job(toy), cycles=2, turn_length=1, order_seed=5)
    file = tmp_path / "launch_runner.json"
    whole = json.loads(file.read_text())
    turns = whole["turns"]
    for key, changed, said in (
        ("started_ns", turns["started_ns"][1:], r"2 cycles.*2 children.*\[3, 4\]"),
        ("iterations_ns", [[1, 2], *turns["iterations_ns"][1:]], r"\b2 executions.*\b1\b"),
    ):
        file.write_text(json.dumps({**whole, "turns": {**turns, key: changed}}))
        with pytest.raises(RunError, match=said):
            read_lockstep_result(file)
    file.write_text(json.dumps(whole))
    assert read_lockstep_result(file).launch.cycles == 2
