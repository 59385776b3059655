"""What is known of a machine behind a shell, and the shell text that runs there, without a connection."""

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from said import refused, says
from stand_ins import command, long_sleep, wait_until

from model_profiling.core.errors import FormatError, InputError, SetupError
from model_profiling.runner.machine import MachineAnswers
from model_profiling.targets.collect import MOST_FILE_BYTES
from model_profiling.targets.remote import gather, make_bundle, scripts
from model_profiling.targets.remote.folder import RemoteFolder, not_started, read_elf
from model_profiling.targets.remote.shell import LinkLost, Shell
from model_profiling.targets.remote.ssh import SshLink
from model_profiling.workflow import measure

ARM = "Features\t: fp asimd asimdhp asimddp\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"
SHELLS = [name for name in ("dash", "bash", "mksh", "busybox") if shutil.which(name)]


class Local:
    """This machine, reached through a shell of its own."""

    title, shown = "local", ("sh", "-c")

    def __init__(self, shell: str = "sh") -> None:
        self.shell = ("busybox", "sh") if shell == "busybox" else (shell,)
        self.prefix = ""

    def connect(self) -> None: ...
    def close(self) -> None: ...
    def complaint(self, said: str) -> SetupError | None:
        return SetupError("it is on fire", "put it out") if "smoke" in said else None

    def command(self, script: str) -> Sequence[str]:
        return (*self.shell, "-c", f"{self.prefix}{script}")


def machine(**texts: str) -> MachineAnswers:
    return MachineAnswers({name: {"-": text} for name, text in texts.items()})


def test_little_cores_are_no_fast_ones() -> None:
    speeds = dict(enumerate(("325", "325", "325", "325", "840", "840", "840", "1024")))
    phone = {"capacities": {f"cpu{number}": f"{speed}\n" for number, speed in speeds.items()}}
    assert MachineAnswers(phone).facts({}).fast_cores == 4
    assert machine(cpuinfo=ARM).facts({}).fast_cores is None


@pytest.mark.parametrize(
    ("found", "runner", "why"),
    [
        (machine(machine="aarch64", cpuinfo=ARM), {"fp16", "dotprod"}, None),
        (machine(machine="aarch64", cpuinfo=ARM, arch="aarch64"), None, None),
        (machine(machine="x86_64", cpuinfo="vendor_id\t: GenuineIntel\n"), {"sme2"}, "x86_64"),
        (machine(machine="aarch64", cpuinfo=ARM, arch="x86_64"), None, "x86_64"),
        (machine(machine="aarch64", modalias="cpu:type:x86,ven0000"), None, "x86_64"),
        (machine(machine="aarch64", cpuinfo="flags\t: sse2 avx\n"), None, "not an Arm CPU"),
        (machine(machine="aarch64", cpuinfo=ARM.replace("0x41", "0x00")), None, "QEMU"),
        (machine(machine="aarch64", cpuinfo=ARM, emulator="1"), None, "emulator"),
        (machine(machine="aarch64", cpuinfo=ARM), {"fp16", "sme2"}, "sme2"),
        (machine(machine="aarch64", cpuinfo=ARM, emulator="00"), None, None),
        (machine(machine="armv8l", cpuinfo=ARM), None, None),
        (machine(machine="aarch64"), {"fp16", "sme2"}, "nothing"),
        (machine(machine="aarch64", cpuinfo=ARM.replace(" asimddp", "")), {"fp16", "dotprod"}, None),
    ],
)
def test_an_emulated_cpu_gives_itself_away(found, runner, why):
    said = found.why_emulated(frozenset(runner) if runner is not None else None)
    assert (said is None) == (why is None)
    says(said or "", why or "")


@pytest.mark.parametrize(("memory", "online"), [("many", "0-"), ("9" * 5000, "0-" + "9" * 5000)])
def test_hostile_facts_are_only_text(memory: str, online: str) -> None:
    told = {"meminfo": f"MemTotal: {memory} kB", "online": online}
    facts = machine(machine="aarch64", cpuinfo="", **told).facts({})
    assert {facts.memory_bytes, facts.cores} == {None}


@pytest.mark.parametrize("status", ["9" * 5000, "-1", "\u0663", "1e3", ""])
def test_a_status_that_no_shell_ends_with_is_none(status: str) -> None:
    """A hostile machine sees the mark in what it is to run."""
    link = Local()
    link.prefix = f"printf() {{ command printf '%s\\n' \"$2<\" '' \"$2>{status}\"; }}; "
    with pytest.raises(LinkLost, match="local was lost"):
        Shell(link).script("true")


def process_list() -> str:
    return subprocess.run(["ps", "-axww", "-o", "args="], capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(sys.platform != "linux", reason="setsid is Linux's")
@pytest.mark.parametrize("name", SHELLS)
def test_a_job_ends_with_its_status_its_time_or_its_connection(name: str, tmp_path: Path) -> None:
    shell, folder = Shell(Local(name)), str(tmp_path / "it's a job")
    Path(folder).mkdir()

    def run(*argv: str, limit: float = 20) -> tuple[int, str]:
        answer = shell.script(scripts.watched(argv, folder, limit), stdin="open")
        return answer.returncode, answer.stdout

    assert run("sh", "-c", "pwd; exit 7") == (7, f"{folder}\n")
    assert run("sh", "-c", "kill -SEGV $$")[0] == 128 + signal.SIGSEGV
    assert run("/nowhere/at all")[0] == 127
    sleeps = [long_sleep() for _ in range(4)]
    assert run("sh", "-c", f"{sleeps[0]} & {sleeps[1]}", limit=1)[0] == 124
    Path(f"{folder}.late").unlink()
    # The pipe that it reads ends with the client: what hangs on it is killed with all it started.
    script = scripts.watched(("sh", "-c", f"{sleeps[2]} & {sleeps[3]}"), folder, 600)
    held = subprocess.Popen(Local(name).command(script), stdin=subprocess.PIPE)
    wait_until(lambda: Path(f"{folder}.pid").read_text().strip(), "it begins", 60)
    time.sleep(0.3)
    held.stdin.close()
    # Long before its own time is up, however busy the machine is.
    assert held.wait(timeout=60) != 0
    listed = process_list()
    assert not [words for words in sleeps if words in listed]


@pytest.mark.skipif(sys.platform != "linux", reason="setsid is Linux's")
@pytest.mark.parametrize("name", SHELLS)
def test_a_hang_up_at_any_moment_leaves_nothing_running(name: str, tmp_path: Path) -> None:
    """adbd sends HUP to the shell of a connection that has gone: also before the shell has tied the program
    to that connection."""
    folder, sleep = str(tmp_path / "job"), long_sleep()
    Path(folder).mkdir()
    script = scripts.watched(("sh", "-c", sleep), folder, 600)
    for milliseconds in range(0, 20, 2):
        with subprocess.Popen(Local(name).command(script), stdin=subprocess.PIPE) as held:
            time.sleep(milliseconds / 1000)
            held.send_signal(signal.SIGHUP)
            held.stdin.close()
            assert held.wait(timeout=60) in (128 + signal.SIGKILL, -signal.SIGHUP)
    wait_until(lambda: sleep not in process_list(), "the program goes on, with nobody to end it", 60)
    # From its first command on it is not ended by a hang-up at all, but by the end of its input.
    with subprocess.Popen(Local(name).command(script), stdin=subprocess.PIPE) as held:
        wait_until(lambda: sleep in process_list(), "it begins", 60)
        time.sleep(0.1)
        held.send_signal(signal.SIGHUP)
        time.sleep(0.1)
        assert held.poll() is None


@pytest.mark.parametrize("name", SHELLS)
def test_files_arrive_whole_or_not_at_all(name: str, tmp_path: Path) -> None:
    shell = Shell(Local(name), patience_s=1, attempts=2)
    there, file = RemoteFolder(shell, str(tmp_path / "a 'b'")), tmp_path / 'x$(id)"y.bin'
    file.write_bytes(bytes(range(256)) * 1000)
    there.open()
    put = Path(there.put(file))
    assert put.read_bytes() == file.read_bytes() and put.name == file.name and len(there.sent) == 1
    put.write_bytes(b"spoilt")
    again = RemoteFolder(shell, there.base)
    again.open()
    assert Path(again.put(file)).read_bytes() == file.read_bytes() and len(again.sent) == 1
    job = there.make_folder()
    (Path(job) / "left.etdump").write_bytes(file.read_bytes())
    there.fetch(job, tmp_path / "here" / "left")
    assert (tmp_path / "here/left.etdump").read_bytes() == file.read_bytes()
    there.remove(job)
    assert not Path(job).exists()
    shell.link.prefix = "cat() { head -c 10; }; "  # type: ignore[attr-defined]
    other = tmp_path / "other.bin"
    other.write_bytes(bytes(5000))
    with refused(LinkLost, "other.bin", "damaged"):
        there.put(other)
    assert not list(Path(there.path).rglob("*other.bin")) and not list(Path(there.path).rglob("*.part"))


@pytest.fixture(params=SHELLS)
def job_there(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[RemoteFolder, Path]:
    """A job's folder behind a shell, in which somebody writes what he likes."""
    there = RemoteFolder(Shell(Local(request.param), patience_s=1, attempts=1), str(tmp_path / "there"))
    there.open()
    return there, Path(there.make_folder())


def test_only_what_a_job_leaves_is_brought_back(job_there: tuple[RemoteFolder, Path], tmp_path: Path) -> None:
    there, job = job_there
    own = {f"a $b;*{ending}" for ending in (".etdump", "_output0.bin", "_child1_output12.bin")}
    others = ("evil.sh", ".hidden", "-rf", "a $b;*_output.bin", "a $b;*.etdump2", "a xb;y.etdump", "x\ny")
    for name in (*own, *others):
        (job / name).write_text(name)
    (job.parent / "x").touch()
    (job / "a folder").mkdir()
    there.fetch(str(job), tmp_path / "here" / "a $b;*")
    assert {path.name for path in (tmp_path / "here").iterdir()} == own


@pytest.mark.parametrize("hostile", ["link", "dangling", "huge", "folder", "pipe", "number"])
def test_what_has_a_files_name_and_is_none_is_refused(job_there, hostile, tmp_path):
    there, job = job_there
    path = job / ("a $b;*_output0x.bin" if hostile == "number" else "a $b;*.etdump")
    match hostile:
        case "link" | "dangling":
            path.symlink_to("/etc/passwd" if hostile == "link" else "/nowhere")
        case "huge" | "number":
            with path.open("wb") as stream:
                stream.truncate(1 << 42 if hostile == "huge" else 0)  # holes: no space, and for ever to read
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
    (job / "a $b;*_runner.json").touch()
    with refused(SetupError, "local", "a $b;*", fix=there.path):
        there.fetch(str(job), tmp_path / "here" / "a $b;*")
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize(
    "lines",
    [
        f"5 {'0' * 64} ../x",
        f"5 {'0' * 64} /etc/x",
        f"5 {'0' * 64} evil",
        f"{MOST_FILE_BYTES + 1} {'0' * 64} a $b;*.etdump",
        f"5 {'0' * 64} a $b;*.etdump\n5 {'0' * 64} a $b;*.etdump",
        "\x1b[2J",
        "\n".join(f"5 {'0' * 64} a $b;*_output{number}.bin" for number in range(1001)),
    ],
)
def test_a_machine_that_lies_about_its_files_is_not_believed(lines: str, tmp_path: Path) -> None:
    there = RemoteFolder(Shell(Local(), attempts=1), str(tmp_path / "there"))
    there.open()
    job = there.make_folder()
    (tmp_path / "lines").write_text(f"{lines}\n")
    there.shell.link.prefix = f"cd() {{ cat {tmp_path}/lines; exit 0; }}; "  # type: ignore[attr-defined]
    with refused(SetupError, "local", fix=there.path) as caught:
        there.fetch(job, tmp_path / "here" / "a $b;*")
    assert str(caught.value).isprintable() and not (tmp_path / "here").exists()


@pytest.mark.parametrize("name", SHELLS)
def test_a_folder_that_others_planted_is_neither_used_nor_removed(name: str, tmp_path: Path) -> None:
    shell, theirs = Shell(Local(name)), tmp_path / "theirs"
    theirs.mkdir()
    there = RemoteFolder(shell, str(tmp_path / "base"))
    home = Path(there.path)
    home.parent.mkdir()
    (theirs / scripts.MARKER).write_text("theirs")

    def refuses() -> None:
        for use in (there.open, there.clean):
            with refused(InputError, home):
                use()

    home.symlink_to(theirs)
    refuses()
    home.unlink()
    home.mkdir()
    (home / scripts.MARKER).symlink_to(theirs / "new")
    refuses()
    assert [path.name for path in theirs.iterdir()] == [scripts.MARKER]
    assert (theirs / scripts.MARKER).read_text() == "theirs"


@pytest.mark.parametrize("name", SHELLS)
def test_a_folder_is_removed_marker_last_whatever_is_in_it(name: str, tmp_path: Path) -> None:
    shell = Shell(Local(name))
    there = RemoteFolder(shell, str(tmp_path))
    there.open()
    home = Path(there.path)
    (home / "a\nb c").touch()
    (home / ".hidden").mkdir()
    shell.link.prefix = "rm() { false; }; find() { false; }; "  # type: ignore[attr-defined]
    assert not shell.script(scripts.remove_home(there.path)).ok and (home / scripts.MARKER).is_file()
    shell.link.prefix = ""  # type: ignore[attr-defined]
    assert there.clean() and not home.exists() and not there.clean()
    assert shell.script(scripts.remove_home(there.path)).ok, "an answer that was lost is asked for again"
    home.mkdir()
    assert shell.script(scripts.remove_home(there.path)).ok and not home.exists()


@pytest.mark.parametrize("name", SHELLS)
def test_a_line_without_an_end_is_read(name: str) -> None:
    shell = Shell(Local(name))
    shell.link.prefix = "read() { l=7; return 1; }; "  # type: ignore[attr-defined]
    said = shell.script(scripts.machine_facts({"here": "/sys/kernel"}, {"after": ":"})).stdout
    assert said.splitlines() == ["@@ here /sys/kernel", "7", "@@ after -"]


seen = st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp")))


@settings(max_examples=40, deadline=None)
@given(st.lists(seen, min_size=1, max_size=4))
def test_every_word_arrives_as_it_is(words: list[str]) -> None:
    said = Shell(Local()).run([sys.executable, "-c", "import sys; print(sys.argv[1:])", *words])
    assert said.ok and said.stdout == f"{words}\n"


def test_a_status_without_a_mark_is_a_machine_that_was_lost_and_ssh_has_its_usual_name(tmp_path, monkeypatch):
    link = Local()
    shell = Shell(link, patience_s=0.5, attempts=1)
    assert shell.run(["printf", "%s", "a'b"]).stdout == "a'b"
    link.prefix = "exit 0; "
    with pytest.raises(LinkLost, match="local"):
        shell.script("true")
    link.prefix = "echo smoke >&2; exit 0; "
    with pytest.raises(SetupError, match="it is on fire"):
        shell.script("true")
    with pytest.raises(SetupError, match="local"):
        shell.repeat(lambda: shell.script("true"))
    monkeypatch.setenv("SME2PROF_SSH", " ")
    assert SshLink("board").shown == ("ssh", "board")
    loud = command(tmp_path, "loud", "printf 'no \\033[31m\\n' >&2; exit 255")
    with refused(SetupError, "board", "no \\u001b[31m"):
        SshLink("board", str(loud)).connect()
    refusing = command(tmp_path, "refusing", "echo 'Permission denied (publickey).' >&2; exit 255")
    with refused(SetupError, "does not let you in"):
        SshLink("board", ssh=str(refusing)).connect()


@pytest.mark.skipif(sys.platform != "linux", reason="reads ELF programs")
def test_what_a_program_asks_of_its_machine(tmp_path: Path) -> None:
    facts = read_elf(Path(sys.executable).resolve())
    assert facts is not None and facts.interpreter and "libc.so.6" in facts.needed
    assert read_elf(Path(__file__)) is None
    cut = tmp_path / "cut"
    for length in (6, 40, 64, 200, 3000):
        cut.write_bytes(Path(sys.executable).resolve().read_bytes()[:length])
        with refused(FormatError, cut):
            read_elf(cut)
    with refused(SetupError, "aarch64", tmp_path):
        gather(Path(sys.executable).resolve(), [tmp_path])


def test_a_runner_of_the_users_own_is_started_as_it_must_be(arm: object, tmp_path: Path) -> None:
    del arm
    there = RemoteFolder(Shell(Local()), str(tmp_path / "there"))
    there.open()
    there.loader, there.cores = ("/k/ld.so", "--library-path", "/k"), 2
    for_linux = make_bundle().build.path
    *loader, put = there.put_runner(for_linux)
    assert loader == ["/k/ld.so", "--library-path", "/k"] and os.access(put, os.X_OK)
    script = command(tmp_path, "runner", "echo hi")
    assert len(there.put_runner(script)) == 1
    other = tmp_path / "other"
    other.write_bytes(for_linux.read_bytes()[:18] + b"\x3e\0" + for_linux.read_bytes()[20:])
    with refused(InputError, other, "aarch64"):
        there.put_runner(other)
    folder = there.make_folder()
    done = there.run([str(script), "a b"], folder=folder, timeout=5, cores=())
    assert (done.stdout, done.argv) == ("hi\n", ("sh", "-c", str(script), "a b"))
    with refused(SetupError, "local", "/nowhere/x", "not there"):
        there.run(["/nowhere/x"], folder=folder, timeout=5, cores=())
    sent = there.put_runner(command(tmp_path, "own", "exit 0"))
    Path(sent[0]).chmod(0o600)
    with refused(SetupError, "local", sent[0], "noexec"):
        there.run(["sh", "-c", 'exec "$@"', "sh", *sent], folder=folder, timeout=5, cores=())
    with refused(InputError, "local", "CPU 2", fix="0 to 1"):
        there.run(["true"], folder=folder, timeout=5, cores=(0, 2))


@pytest.mark.parametrize(
    ("said", "reason", "cure"),
    [
        ("sh: 1: /k/r: Permission denied", "noexec", "device_path"),
        ("/system/bin/sh: /k/r: can't execute: Permission denied", "noexec", "device_path"),
        ("taskset: exec /k/r: Permission denied", "noexec", "device_path"),
        ("/system/bin/sh: /k/r: inaccessible or not found", "not there", "Android NDK"),
        ("sh: 1: exec: /k/r: not found", "not there", ""),
        ("taskset: failed to execute /k/r: No such file or directory", "not there", ""),
        ("sh: 3: taskset: not found", "taskset", "cpu_affinity"),
        ("/system/bin/sh: taskset: inaccessible or not found", "taskset", "util-linux"),
        ("sh: 1: /k/r: Exec format error", "x86_64", "Arm"),
        ("/system/bin/sh: /k/r: not executable: 64-bit ELF file", "x86_64", ""),
        ("/k/r: error while loading shared libraries: libfoo.so.1: No such file", "libfoo.so.1", "static"),
        ('CANNOT LINK EXECUTABLE "r": library "libc++_shared.so" not found: needed', "libc++_shared", ""),
    ],
)
def test_why_a_program_does_not_start_there(said: str, reason: str, cure: str) -> None:
    known = not_started("android:R5CT", "/k/r", f"earlier\n{said}\n", "x86_64")
    assert reason in known.problem and cure in known.fix
    says(known.problem, "android:R5CT", "/k/r")
    says(not_started("android:R5CT", "/k/r", "").problem, "android:R5CT", "/k/r", "not say why")


def packed(name: str, content: bytes = b"{}", mode: str = "w", **header: str) -> bytes:
    made = io.BytesIO()
    member = tarfile.TarInfo(name)
    member.size, member.pax_headers = len(content), header
    with tarfile.open(fileobj=made, mode=mode, format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


SPARSE = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "dump"}
NAMED = packed("a", path="b")


@pytest.mark.parametrize(
    "sent",
    {
        "nothing": b"",
        "nonsense": b"Welcome to this machine\n" * 1000,
        "cut short": packed("dump", bytes(4096))[:2048],
        "compressed": packed("dump", bytes(1 << 20), mode="w:gz"),
        "sparse": packed("dump", b"0\n".ljust(512, b"\0"), **SPARSE, **{"GNU.sparse.realsize": str(1 << 40)}),
        "not a number": packed("dump", b"x\n".ljust(512, b"\0"), **SPARSE, **{"GNU.sparse.realsize": "1"}),
        "headers of headers": NAMED[:1024] * 2000 + NAMED,
        "outside": packed("../outside"),
        "elsewhere": packed("/tmp/elsewhere"),
        "no name": packed("a", path="a\0b"),
    }.items(),
    ids=lambda sent: sent[0],
)
def test_a_run_from_another_machine_is_whole_and_stays_in_its_folder(sent, tmp_path: Path):
    into = tmp_path / "runs" / "emulated-board"
    with pytest.raises((SetupError, FormatError), match="ssh:board") as refusal:
        measure._unpacked(io.BytesIO(sent[1]), into, "ssh:board")
    assert "\n" not in str(refusal.value)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"]
    measure._unpacked(io.BytesIO(packed("./manifest.json")), into, "ssh:board")
    assert [path.name for path in into.rglob("*")] == ["manifest.json"]
