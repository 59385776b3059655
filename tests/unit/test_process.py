"""Subprocesses end at their limit with everything they started, what they said is kept in bounds, and they
end with whoever started them, however that one ends."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from stand_ins import command, started, wait_until

from model_profiling.core import process
from model_profiling.core.errors import SetupError

ROOT = Path(__file__).resolve().parents[2]
ENDING = [signal.SIGINT, signal.SIGKILL, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE]
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="setsid is a command of Linux")


def python(code: str, timeout: float = 20) -> process.Completed:
    """Code of the kit, run by a Python of its own."""
    return process.run([sys.executable, "-c", code], timeout=timeout, env={"PYTHONPATH": str(ROOT)})


# A process of its own session, whose parent has ended, that holds on to whatever it inherited.
DAEMON = (
    "import os, sys, time\n"
    "reading, writing = os.pipe()\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    "        os.write(writing, str(os.getpid()).encode())\n"
    "        time.sleep(60)\n"
    "    os._exit(0)\n"
    "os.wait()\n"
    "print(os.read(reading, 99).decode(), flush=True)\n"
)


def test_output_and_exit_code_are_values() -> None:
    done = process.run([sys.executable, "-c", "import sys; print('out'); sys.exit('err')"], timeout=20)
    assert (done.returncode, done.stdout, done.stderr.strip(), done.ok) == (1, "out\n", "err", False)
    killed = process.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"], timeout=20)
    assert killed.signal_name == "SIGSEGV"
    assert process.run(["sh", "-c", "exit 132"], timeout=20).signal_name == "SIGILL"
    assert process.run(["sh", "-c", "exit 1"], timeout=20).signal_name is None
    with pytest.raises(SetupError, match=r"cannot start no-such-program: no such file"):
        process.run(["no-such-program"], timeout=5)


@LINUX
def test_a_hang_is_killed_with_all_it_started() -> None:
    begun = {
        "in its group": "sleep 60 & echo $!",
        "in a session of its own": "setsid -f sh -c 'echo $$; exec sleep 60'",
        "without its environment": "env -i setsid sh -c 'echo $$; exec sleep 60' & sleep 0.2",
        "a daemon": f'"{sys.executable}" -c "$DAEMON"',
    }
    script = "\n".join([*begun.values(), "sleep 60"])
    done = process.run(["sh", "-c", script], timeout=1.5, env={"DAEMON": DAEMON})
    assert done.timed_out and done.seconds < 10
    pids = map(int, done.stdout.split())
    assert [how for how, pid in zip(begun, pids, strict=True) if not _ends(pid)] == []


@LINUX
def test_a_process_that_the_caller_started_before_is_not_taken_for_an_orphan() -> None:
    """As a script that uses the kit has a server of its own."""
    own = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        time.sleep(0.1)
        assert process.run(["true"], timeout=30, leaves_nothing=True).ok
        assert own.poll() is None
    finally:
        own.kill()
        own.wait()


def test_what_is_left_running_or_nested_ends_with_it(tmp_path: Path) -> None:
    words = [sys.executable, "-c", DAEMON]
    alone = process.run(words, timeout=30, leaves_nothing=True)
    assert alone.ok and alone.seconds < 10
    assert _ends(int(alone.stdout))
    # A client of a daemon, as adb is, leaves it to others, and is not waited for until that one ends.
    client = process.run(words, timeout=30)
    assert client.ok and client.seconds < 10
    assert _lives(int(client.stdout))
    os.kill(int(client.stdout), signal.SIGKILL)
    told = tmp_path / "pid"
    inner = (
        "from model_profiling.core import process\n"
        f"process.run(['sh', '-c', 'echo $$ >{told}; exec sleep 60'], timeout=60)"
    )
    outer = python(inner, timeout=1.5)
    assert outer.timed_out and _ends(int(told.read_text()))


@LINUX
@pytest.mark.parametrize("number", ENDING)
def test_a_parent_that_is_killed_takes_all_along(tmp_path: Path, number: signal.Signals) -> None:
    with _parent(tmp_path, number) as (parent, pid):
        parent.send_signal(number)
        assert parent.wait(timeout=10) == -number
        assert _ends(pid)


@LINUX
def test_the_keeper_ends_all_although_its_parents_streams_are_closed(tmp_path: Path) -> None:
    with _parent(tmp_path, signal.SIGKILL, "os.close(0); os.close(1)") as (parent, pid):
        parent.kill()
        assert _ends(pid, within_s=2.5)


def test_the_beginning_and_the_end_of_an_endless_output_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MOST_OUTPUT", 1 << 16)
    monkeypatch.setattr(process, "_END", 1 << 15)
    code = "print('first'); print('x' * (1 << 20)); print('last')"
    done = process.run([sys.executable, "-c", code], timeout=30)
    assert done.stdout.startswith("first\nxxx") and done.stdout.endswith("xxx\nlast\n")
    whole = len("first\n") + (1 << 20) + 1 + len("last\n")
    assert f"\n[{whole - (1 << 16)} bytes left out]\n" in done.stdout
    assert len(done.tail(2).splitlines()[0]) < 1100


@LINUX
def test_a_gigabyte_of_output_takes_no_gigabyte_of_memory() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (400 << 20,) * 2)\n"
        "from model_profiling.core import process\n"
        "done = process.run(['sh', '-c', 'head -c 1200000000 /dev/zero; echo end'], timeout=60)\n"
        "assert done.ok and done.stdout.endswith('end\\n') and len(done.stdout) < 17 << 20\n"
        "print(len(done.stdout))"
    )
    done = python(code, timeout=60)
    assert done.ok, done.tail()


@LINUX
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_what_cannot_be_ended_is_said_and_not_waited_for_without_end() -> None:
    code = (
        "import os\nimport psutil\nfrom model_profiling.core import process\n"
        "from model_profiling.core.errors import SetupError\n"
        "process._TO_END_S = 0.3\n"
        "child = process.start(['sleep', '60'])\n"
        "os.setresuid(65534, 65534, 0)\n"  # as with a runner behind sudo
        "try:\n    process.end(child)\n"
        "except SetupError as problem:\n    print(problem)\n"
        "os.setresuid(0, 0, 0)\nchild.kill(); child.wait()"
    )
    done = python(code)
    assert done.ok, done.tail()
    assert "cannot end sleep (process " in done.stdout and "end it by hand" in done.stdout


@LINUX
def test_the_keeper_goes_before_the_command_and_holds_nothing_open() -> None:
    """A lock or a pipe that the command inherited is free when it has ended; nobody is left to wait for."""
    code = (
        "import os, time\nfrom model_profiling.core import process\nprocess.run(['true'], timeout=9)\n"
        "keeper = process._keeper._process.pid\n"
        "until = time.monotonic() + 5\n"
        "while len(os.listdir(f'/proc/{keeper}/fd')) > 3 and time.monotonic() < until: time.sleep(0.01)\n"
        "print(keeper, sorted(map(int, os.listdir(f'/proc/{keeper}/fd'))))\n"
    )
    reading, writing = os.pipe()
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    said, _ = started("-c", code, pass_fds=[writing], **streams).communicate(timeout=60)
    os.close(writing)
    os.set_blocking(reading, False)
    assert os.read(reading, 1) == b"", "somebody still holds it"
    os.close(reading)
    keeper, _, files = said.strip().partition(" ")
    assert files == "[0, 1, 2]" and not Path(f"/proc/{keeper}").exists()


def test_without_a_file_left_there_is_no_keeper_and_one_line_says_so() -> None:
    code = (
        "import os, resource\nfrom model_profiling.core import process\n"
        "from model_profiling.core.errors import SetupError\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))\n"
        "taken = []\n"
        "try:\n    while True: taken.append(os.open('/', os.O_RDONLY))\nexcept OSError: pass\n"
        "try:\n    process.run(['true'], timeout=9)\n"
        "except SetupError as problem:\n    print(problem)\n"
        "[os.close(file) for file in taken]\n"
        "print(process.run(['true'], timeout=9).ok, process._keeper._process.pid > 0)"
    )
    done = python(code)
    assert done.stdout.splitlines() == [
        "cannot start true: too many open files; install it or correct its path",
        "True True",
    ], done.stderr


@LINUX
@pytest.mark.parametrize("lacking", ["/proc", "psutil"])
def test_where_no_process_can_be_seen_the_group_ends_all_the_same(tmp_path, monkeypatch, lacking):
    """A container without /proc; set-up, which begins without any package."""
    if lacking == "/proc":
        monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    else:
        monkeypatch.setitem(sys.modules, "psutil", None)
    script = "sleep 60 >&- 2>&- & echo $!"
    alone = process.run(["sh", "-c", script], timeout=20, leaves_nothing=True)
    late = process.run(["sh", "-c", f"{script}; sleep 60"], timeout=0.5)
    assert alone.ok and late.timed_out and late.seconds < 5
    assert _ends(int(alone.stdout)) and _ends(int(late.stdout))


def test_a_compiler_in_another_thread_ends_with_an_interrupt(tmp_path: Path) -> None:
    """Ctrl-C reaches the main thread alone, and waited there for compilers to end by themselves."""
    command(tmp_path, "c++", "touch began; exec sleep 60")
    (tmp_path / "one.cpp").touch()
    code = (
        "from pathlib import Path\nfrom model_profiling.runner import build\n"
        "try: build._compile([str(Path('c++').resolve())], [[Path('one.cpp')]], Path.cwd())\n"
        "except KeyboardInterrupt: print('interrupted')\n"
    )
    # A process of its own: here a library's callback could get the exception and swallow it.
    with started("-c", code, cwd=tmp_path, stdout=subprocess.PIPE) as child:
        wait_until((tmp_path / "began").exists, "it compiles", 60)
        child.send_signal(signal.SIGINT)
        said, _ = child.communicate(timeout=30)  # half of what the compiler would take
    assert said == b"interrupted\n"


@contextlib.contextmanager
def _parent(folder, number, closing=""):
    """A program that runs another, which has gone into a session of its own, and that one's process id."""
    told = folder / "pid"
    code = "import os, resource, signal, time\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
    if number not in (signal.SIGKILL, signal.SIGINT):
        code += f"signal.signal({int(number)}, signal.SIG_DFL)\n"
    code += (
        "from model_profiling.core import process\n"
        f"{closing}\nprocess.run(['true'], timeout=9)\n"
        f"process.run(['setsid', '-w', 'sh', '-c', 'echo $$ >{told}.part; mv {told}.part {told}; sleep 60'],"
        " timeout=60)\n"
    )
    parent = started("-c", code, stderr=subprocess.DEVNULL)
    try:
        wait_until(told.exists, "its program begins", 20)
        yield parent, int(told.read_text())
    finally:
        parent.kill()
        parent.wait()


def _ends(pid: int, within_s: float = 5.0) -> bool:
    until = time.monotonic() + within_s
    while _lives(pid):
        if time.monotonic() > until:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return False
        time.sleep(0.02)
    return True


def _lives(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, check=False).stdout
    return bool(state.strip()) and not state.startswith(b"Z")
