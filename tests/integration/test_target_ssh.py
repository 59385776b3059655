"""`ssh:HOST` on a real sshd: what a job leaves, what a fault costs, and that nothing remains there."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import ON_ARM, ROOT
from recorded_runs import ARM, replay
from ssh_server import SshServer, sshd
from stand_ins import command, long_sleep, started, wait_until

from model_profiling.core import process
from model_profiling.core.errors import InputError, ProfilingError, RunError, SetupError
from model_profiling.runs import Run, Times
from model_profiling.runs.manifest import read_manifest
from model_profiling.targets import Job, LockstepJob, TargetChoice, open_target, parse_target
from model_profiling.targets.remote.folder import RemoteFolder
from model_profiling.targets.remote.shell import LinkLost
from model_profiling.targets.remote.ssh import SshTarget
from model_profiling.workflow.measure import RunOptions

SMALL = f"{ROOT / 'tests/models/unseen.py'}:unet"  # where it is emulated, larger ones take their time
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kit's runner goes along from Linux only")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[SshServer]:
    """A machine that runs aarch64 programs: on this CPU or, where it is of another kind, on QEMU's."""
    qemu = None if ON_ARM else request.getfixturevalue("emulated").qemu.path
    server = sshd(tmp_path_factory.mktemp("sshd"), qemu)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder on the other machine in which the kit makes its own. At a `;` the loader there would end the
    name of a folder, as at a colon."""
    return tmp_path_factory.mktemp("there") / "it's & a $(folder)"


@pytest.fixture
def connect(server: SshServer, there: Path, monkeypatch) -> Iterator[Callable[..., SshTarget]]:
    """`connect("board")`: a target behind the server, not prepared yet."""
    monkeypatch.setenv("SME2PROF_SSH", server.ssh)
    opened: list[SshTarget] = []

    def connect(host: str = "board") -> SshTarget:
        target = open_target(TargetChoice("ssh", host=host, device_path=str(there)))
        assert isinstance(target, SshTarget)
        target.shell.patience_s = 20
        opened.append(target)
        return target

    yield connect
    for target in opened:
        target.close()


@pytest.fixture
def toy(exported: Callable[..., object], tmp_path: Path) -> Path:
    """A program whose name is just a name."""
    named = tmp_path / "a b;touch owned;'.pte"
    named.write_bytes(exported(SMALL).pte.read_bytes())
    return named


def processes(words: str) -> list[str]:
    listed = process.run(["ps", "-axww", "-o", "args="], timeout=20).stdout
    return [line for line in listed.splitlines() if words in line]


@pytest.mark.quick
def test_everything_comes_back_and_a_second_run_sends_nothing(connect, arm, toy, there, tmp_path) -> None:
    target = connect()
    target.prepare()
    assert target.timings_are_latency is ON_ARM and target.platform == "linux"
    here, facts = arm.facts(), target.facts()
    assert (facts.machine, facts.cores, target.place) == ("aarch64", here.cores, "ssh-board")
    emulated = facts.cpu.startswith("emulated (the kernel is one for x86_64), on ")
    assert facts.cpu == here.cpu if ON_ARM else emulated
    assert set(facts.features) == set(here.features)
    assert target.operators() == arm.operators()
    data = tmp_path / "input.bin"
    data.write_bytes(bytes(4 * 3 * 32 * 32))
    into = tmp_path / "here"
    job = Job(toy, runs=2, inputs=(data,), etdump=True, save_outputs=True, kernels=True)
    outcome = target.execute(job, into, "job")
    assert len(outcome.result.iterations_ns) == 2 and outcome.result.kernels_note is None
    assert any("sme2" in name for name in outcome.result.kernels) is ("sme2" in facts.features)
    assert outcome.etdump is not None and outcome.etdump.stat().st_size
    (output,) = outcome.result.outputs
    assert output.file == into / "job_output0.bin"
    assert output.file.stat().st_size == 4 * 2 * 32 * 32
    assert outcome.log.read_text().startswith("$ ssh ")
    turns = LockstepJob((Job(toy), Job(toy, warmup=2)), cycles=2, turn_length=1)
    launch = target.execute_lockstep(turns, into, "turns")
    assert launch.launch.cycles == 2 and len(launch.outcomes) == 2
    assert target.why_not_lockstep([Job(toy)] * 2) is None
    assert not list(Path.cwd().glob("owned")) and not list(there.rglob("owned"))
    assert not list((there / "sme2prof-device/jobs").iterdir()), "a job's folder is gone with it"
    again = connect()
    again.prepare()
    again.execute(Job(toy, inputs=(data,), cpu_affinity=(0,)), into, "again")
    assert len(target.folder.sent) > 10 and not again.folder.sent
    with pytest.raises(InputError, match=r"ssh:board has no CPU 1000; choose from 0 to"):
        again.execute(Job(toy, cpu_affinity=(1000,)), into, "again")


def test_a_config_runs_there_and_leaves_a_run_like_any_other(connect, sme2prof, exported, tmp_path) -> None:
    connect()
    config, root = tmp_path / "config.json", tmp_path / "run"
    words = ("--target", "ssh:board", "--output", config)
    made = sme2prof("config", "new", "--model", exported(SMALL).pte, *words)
    assert made.ok, made.stderr
    raw = json.loads(config.read_text())
    raw["target"]["device_path"] = str(tmp_path / "there")
    raw |= {"output_root": str(root), "schedule": {"budget_s": 1, "rounds": 2}}
    config.write_text(json.dumps(raw))
    done = sme2prof("run", config)
    assert done.ok, done.stderr
    manifest = read_manifest(root)
    assert manifest is not None and (manifest.state, manifest.target.name) == ("finished", "ssh:board")
    assert manifest.target.times is (Times.HARDWARE if ON_ARM else Times.EMULATED)
    assert manifest.runner.build_id
    checked = sme2prof("validate", root)
    assert checked.ok, checked.stdout
    assert sme2prof("run", config, "--resume").ok
    clean = ("clean", "--target", "ssh:board", "--device-path", tmp_path / "there")
    assert sme2prof(*clean).stdout == "removed the kit's folder from ssh:board\n"
    assert not list((tmp_path / "there").iterdir())
    assert sme2prof(*clean).stdout == "nothing of the kit is on ssh:board\n"


def test_a_failure_there_is_explained_as_here(connect, toy, tmp_path) -> None:
    target = connect()
    target.prepare()
    with pytest.raises(InputError, match="the program has no method 'backward'"):
        target.execute(Job(toy, method="backward"), tmp_path / "here", "job")
    with pytest.raises(RunError, match="did not finish within 1 s"):
        target.execute(Job(toy, runs=10**9, timeout_s=1), tmp_path / "here", "job")
    one, other = long_sleep(), long_sleep()
    hangs = command(tmp_path, "hangs", f"{one} & {other}")
    with pytest.raises(RunError, match="did not finish within 1 s"):
        target.execute(Job(toy, runner_path=hangs, timeout_s=1), tmp_path / "here", "job")
    crashes = command(tmp_path, "crashes", "printf 'red \\033[31m\\n' >&2; kill -SEGV $$")
    with pytest.raises(RunError, match="crashed with SIGSEGV"):
        target.execute(Job(toy, runner_path=crashes), tmp_path / "here", "job")
    assert "red \\u001b[31m" in (tmp_path / "here/job.log").read_text()
    assert not processes(one) and not processes(other)


def test_a_lost_connection_ends_the_job_and_it_is_begun_again(connect, server, toy, tmp_path) -> None:
    target = connect()
    target.prepare()
    began = tmp_path / "began"
    first, forever = f"[ $(wc -l <{began}) -gt 1 ]", long_sleep()
    again = f"echo $$ >>{began}; {first} || {forever}; echo 'Iteration 1 of 1: 5 ms'"
    slow = command(tmp_path, "slow", again)

    def cut() -> None:
        wait_until(began.exists, "it begins", 60)
        server.cut()

    fault = threading.Thread(target=cut)
    fault.start()
    outcome = target.execute(Job(toy, runner_path=slow, warmup=0), tmp_path / "here", "job")
    fault.join()
    assert outcome.result.iterations_ns == (5_000_000,) and len(began.read_text().split()) == 2
    assert target.shell.times_lost == 1 and not processes(forever)


def test_a_machine_that_stays_away_is_an_error_that_says_what_to_do(connect, server) -> None:
    target = connect()
    target.connect()
    target.shell.patience_s = 1
    server.stop()
    try:
        lost = r"^ssh:board was lost and did not come back within 1 s: .*run it again$"
        with pytest.raises(SetupError, match=lost):
            target.facts()
    finally:
        server.start()
    target.shell.patience_s = 20
    assert target.facts().cores, "and when it is back, all is well"


@pytest.mark.usefixtures("connect")
def test_nothing_runs_on_when_the_kit_is_killed(server, toy, there, tmp_path) -> None:
    forever = long_sleep()
    hangs = command(tmp_path, "hangs", forever)
    script = (
        "import sys; from pathlib import Path; from model_profiling.targets import *; "
        "there, toy, runner, here = sys.argv[1:]; "
        "t = open_target(TargetChoice('ssh', host='board', device_path=there)); t.prepare(); "
        "t.execute(Job(Path(toy), runner_path=Path(runner)), Path(here), 'job')"
    )
    kit = started("-c", script, there, toy, hangs, tmp_path / "here")
    wait_until(lambda: processes(forever), "its program runs", 60)
    kit.send_signal(signal.SIGKILL)
    kit.wait()
    wait_until(lambda: not processes(forever) and not processes(f"-F {server.folder}"), "both ended", 60)


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("stranger", r"^the host key of stranger is not known; connect once by hand and check it: ssh "),
        ("changed", r"^the host key of changed has changed; "),
        ("keyless", r"^keyless does not let you in without a password; give it your key"),
        ("nowhere", r"^there is no host nowhere; "),
        ("closed", r"^closed refuses connections; "),
    ],
)
def test_what_ssh_complains_of_is_one_line_with_a_cure(connect, host: str, says: str) -> None:
    with pytest.raises(SetupError, match=says):
        connect(host).prepare()


@pytest.mark.skipif(ON_ARM, reason="says what happens on a machine that is not Arm; this one is")
def test_a_machine_that_is_not_arm_is_told(tmp_path, monkeypatch) -> None:
    server = sshd(tmp_path / "sshd")
    monkeypatch.setenv("SME2PROF_SSH", server.ssh)
    target = open_target(TargetChoice("ssh", host="board", device_path=str(tmp_path)))
    told = r"ssh:board cannot run .*: its CPU is x86_64, and the program is for aarch64; name"
    try:
        with pytest.raises(SetupError, match=told):
            target.prepare()
    finally:
        target.close()
        server.stop()


@pytest.fixture
def small(tiny_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small disk, behind a server that sees it."""
    server = sshd(tmp_path / "sshd")
    monkeypatch.setenv("SME2PROF_SSH", server.ssh)
    yield tiny_disk
    server.stop()


def test_a_folder_that_cannot_be_used_is_one_line_with_a_cure(small, toy, tmp_path) -> None:
    def opened(path: Path) -> SshTarget:
        target = open_target(TargetChoice("ssh", host="board", device_path=str(path)))
        assert isinstance(target, SshTarget)
        target.folder.open()
        return target

    full = opened(small)
    large = tmp_path / "large.bin"
    large.write_bytes(os.urandom(1 << 20))
    with pytest.raises(InputError, match="no space left; free some space there, or name another folder"):
        full.folder.put(large)
    little = tmp_path / "little.bin"
    little.write_bytes(bytes(1000))
    assert full.folder.put(little).endswith("/little.bin"), "nothing half sent is in its way"
    process.run(["mount", "-o", "remount,ro", small], timeout=20)
    with pytest.raises(InputError, match="the file system is read-only; name another folder"):
        full.folder.make_folder()
    mine = tmp_path / "sme2prof-device/mine"
    mine.parent.mkdir()
    mine.touch()
    for work in (lambda: opened(tmp_path), RemoteFolder(full.shell, str(tmp_path)).clean):
        with pytest.raises(InputError, match="was not made by the kit"):
            work()
    assert mine.exists()
    with pytest.raises(InputError, match="a part of the path is a file"):
        opened(toy)
    full.close()


def test_what_another_machine_says_is_bounded_and_harmless(connect) -> None:
    target = connect()
    target.connect()
    shell = target.shell
    said = shell.script("head -c 40000000 /dev/zero | tr '\\0' x; echo end; echo 'sme2prof-0>' >&2; exit 9")
    assert said.returncode == 9 and len(said.stdout) < 17 << 20
    assert said.stdout.endswith("xend\n") and "bytes left out]" in said.stdout
    assert said.stderr == "sme2prof-0>\n"
    for bad in ("kill -9 $PPID", "kill -9 $$"):
        with pytest.raises(LinkLost, match="ssh:board was lost"):
            shell.script(f"echo done; {bad}; sleep 1")
    assert shell.script("echo x").stdout == "x\n"


def test_a_machine_with_the_kit_gives_the_evidence_for_another(tmp_path, monkeypatch) -> None:
    """The times are of a CPU without SME2, as recorded; the other machine emulates the same program."""
    run_dir, commands = tmp_path / "runs" / "mac", tmp_path / "commands"
    (tmp_path / "sshd").mkdir()
    commands.mkdir()
    server = SshServer(tmp_path / "sshd", commands=commands)
    monkeypatch.setenv("SME2PROF_SSH", server.ssh)
    evidence = RunOptions(evidence=(Path("ssh:board"),))
    try:
        server.start()
        with pytest.raises(SetupError, match=r"ssh:board has no sme2prof .*; install the kit there"):
            replay(ARM, run_dir, options=evidence)
        command(commands, "sme2prof", f'PYTHONPATH="{ROOT}" exec "{sys.executable}" -m model_profiling "$@"')
        made = replay(ARM, run_dir, options=evidence)
    finally:
        server.stop()
    assert made.data.outlook.projections and made.run.evidence is not None
    assert made.run.evidence.place == "emulated-board" and Run.open(tmp_path / "runs/emulated-board").dumps
    assert not list(Path("/tmp").glob("tmp.*/small_cnn_xnnpack_fp16.pte")), "nothing stays there"


def test_how_hosts_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_target("ssh:me@board.local") == TargetChoice("ssh", host="me@board.local")
    assert TargetChoice(host="board").name == "ssh", "a host that is named is meant"
    for wrong in ("ssh:", "ssh", "ssh:-oProxyCommand=x", "ssh:a b"):
        with pytest.raises(ProfilingError, match="ssh:HOST"):
            open_target(parse_target(wrong))
    monkeypatch.setenv("SME2PROF_SSH", "/nowhere/ssh")
    gone = "cannot start /nowhere/ssh: no such file or directory; install OpenSSH"
    with pytest.raises(SetupError, match=gone):
        open_target(parse_target("ssh:board")).prepare()
