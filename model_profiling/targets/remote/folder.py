"""The kit's folder on another machine, in which jobs run. Files are stored by content, so none is sent twice;
every transfer is checked by size and SHA-256."""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError, ProfilingError, SetupError
from model_profiling.core.formatting import plural, size
from model_profiling.core.process import Completed
from model_profiling.targets.collect import MOST_BYTES, MOST_FILE_BYTES, MOST_FILES, is_left_by_job
from model_profiling.targets.execution import Transport, pinned
from model_profiling.targets.remote import scripts
from model_profiling.targets.remote.shell import LinkLost, Shell, last_line, meaning_of

HOME = "sme2prof-device"
"""Unlike any folder of the kit or its cache on this machine: both machines may be the same."""
LOADER = "ld-linux-aarch64.so.1"
_LOOK_S = 600.0
_SLOWEST_LINK = 50_000
"""Bytes per second."""
# The other machine stops a job itself when time is up; if it is silent this much longer, it is gone.
_SLACK_S = 20.0
_TIME_LIMIT = 124


@dataclass(frozen=True, slots=True)
class Elf:
    """What a program needs from its machine: `aarch64`, a loader (empty if none) and libraries."""

    machine: str
    interpreter: str
    needed: tuple[str, ...]


def read_elf(path: Path) -> Elf | None:
    """Return the facts of a 64-bit ELF file; None if `path` is something else."""
    import lief  # 10 MB, which most commands do without

    lief.logging.disable()
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    program = lief.ELF.parse(data)
    ends = [part.file_offset + part.physical_size for part in program.segments] if program else []
    if program is None or not ends or max(ends) > len(data):
        raise FormatError(f"{path} is a damaged program", "build or install it again")
    machine = program.header.machine_type.name.lower()
    return Elf(machine, program.interpreter or "", tuple(map(str, program.libraries)))


@dataclass(frozen=True, slots=True)
class Content:
    size: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.size} {self.sha256}"


@dataclass(slots=True)
class RemoteFolder(Transport):
    """The kit's own folder in `base` on the machine behind `shell`; the transport of its jobs. `loader`
    starts a program there that is linked to the kit's C library; `cores` is the number of CPUs, if known."""

    shell: Shell
    base: str
    loader: tuple[str, ...] = ()
    cores: int | None = None
    sent: list[str] = field(default_factory=list)
    """Every file that had to be sent, in order."""
    _contents: dict[tuple[Path, int, int], Content] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _seen_at: int = 0
    _left_behind: set[str] = field(default_factory=set)

    @property
    def path(self) -> str:
        return f"{self.base.rstrip('/')}/{HOME}"

    def open(self) -> None:
        """Make the folder, or raise an error that says why not."""
        self._done(scripts.make_home(self.path))

    def _done(self, script: str, timeout: float = 60.0) -> Completed:
        """Return the answer of a script that must succeed."""
        answer = self.shell.script(script, timeout=timeout)
        if not answer.ok:
            raise self._refusal(answer)
        return answer

    def _look_again(self) -> None:
        """Start over if the machine was away: it may have restarted and lost everything."""
        if self._seen_at != self.shell.times_lost:
            self._seen, self._seen_at = set(), self.shell.times_lost
            self.open()

    def put(self, file: Path, *, executable: bool = False) -> str:
        """Send `file`, if needed, to a folder named after its content; return its path there."""
        return self._put({f"files/{self._content(file).sha256[:32]}/{file.name}": file}, executable)[0]

    def put_together(self, named: Mapping[str, Path]) -> str:
        """Return the folder there that holds exactly these programs and libraries, under these names."""
        digest = hashlib.sha256()
        for name, file in sorted(named.items()):
            digest.update(f"{name}\0{self._content(file)}\0".encode())
        folder = f"programs/{digest.hexdigest()[:32]}"
        self._put({f"{folder}/{name}": file for name, file in named.items()}, True)
        return f"{self.path}/{folder}"

    def _put(self, wanted: Mapping[str, Path], executable: bool) -> list[str]:
        self._look_again()
        paths = {f"{self.path}/{name}": file for name, file in wanted.items()}
        unknown = [path for path in paths if path not in self._seen]
        if unknown:
            answer = self._done(scripts.state_of(unknown), _LOOK_S)
            states = list(filter(None, answer.stdout.split("\n")))
            if len(states) != len(unknown):
                raise self._refusal(answer)
            for path, state in zip(unknown, states, strict=True):
                if state != str(self._content(paths[path])):
                    self._send(paths[path], path, executable)
            self._seen |= set(unknown)
        return list(paths)

    def put_runner(self, file: Path) -> tuple[str, ...]:
        """Return what starts a user's own runner; one built for Linux goes through the kit's loader."""
        facts = read_elf(file)
        if facts is not None and facts.machine != "aarch64":
            raise InputError(f"{file} is not a program for aarch64", "name a runner built for the device")
        linux = facts is not None and facts.interpreter.endswith(f"/{LOADER}")
        return (*(self.loader if linux else ()), self.put(file, executable=True))

    def _send(self, file: Path, path: str, executable: bool) -> None:
        content, part = self._content(file), f"{path.rpartition('/')[0]}/.{secrets.token_hex(6)}.part"
        script = scripts.receive(path, part, content.size, content.sha256, executable=executable)
        answer = self.shell.script(script, timeout=_LOOK_S + content.size / _SLOWEST_LINK, stdin=file)
        if answer.stdout.startswith(scripts.DAMAGED):
            raise LinkLost(f"{file.name} arrived damaged on {self.shell.title}", "check the connection")
        if not answer.ok:
            raise self._refusal(answer)
        self.sent.append(path)

    def make_folder(self, into: Path | None = None) -> str:
        """Make an empty folder for the files of one job; raise LinkLost if the kit's folder is gone."""
        del into
        self._look_again()
        for left in list(self._left_behind):
            self.remove(left)
        folder = f"{self.path}/jobs/{secrets.token_hex(8)}"
        answer = self.shell.script(f"umask 077; mkdir {scripts.quoted(folder)}")
        if "No such file" in answer.stderr:
            raise LinkLost(f"{self.path} on {self.shell.title} is gone", "make sure that nobody removes it")
        if not answer.ok:
            raise self._refusal(answer)
        return folder

    def run(self, argv: Sequence[str], *, folder: str, timeout: float, cores: Sequence[int]) -> Completed:
        words = (*pinned(cores, self.cores, self.shell.title), *argv)
        script = scripts.watched(words, folder, timeout)
        answer = self.shell.script(script, timeout=timeout + _SLACK_S, stdin="open")
        self._check_room(answer)
        if answer.returncode in _NOT_STARTED:
            # The kit's file that was to be started, whatever precedes it.
            sent = tuple(f"{self.path}/{name}/" for name in ("programs", "files"))
            program = next((word for word in argv if word.startswith(sent)), argv[0])
            raise not_started(self.shell.title, program, f"{answer.stdout}\n{answer.stderr}")
        typed = (*self.shell.link.shown, *words)
        return replace(answer, argv=typed, timed_out=answer.returncode == _TIME_LIMIT)

    def fetch(self, folder: str, to: Path) -> None:
        """Bring the job's files, each whole or not at all."""
        listed = self.shell.script(scripts.list_files(folder, to.name), timeout=_LOOK_S)
        if not listed.ok:
            raise LinkLost(f"what the job left on {self.shell.title} is gone", "run it again")
        offered = [self._offered(line, to.name) for line in filter(None, listed.stdout.split("\n"))]
        names = {name for name, _ in offered}
        whole = sum(content.size for _, content in offered)
        if len(names) < len(offered) or len(names) > MOST_FILES or whole > MOST_BYTES:
            raise self._no_job_leaves(f"{plural(len(offered), 'file')}, {size(whole)} together")
        for name, content in offered:
            self._fetch_one(f"{folder}/{name}", to.parent / name, content)

    def _offered(self, line: str, stem: str) -> tuple[str, Content]:
        match = re.fullmatch(r"([0-9]{1,16}) ([0-9a-f]{64}) ([^/]{1,255})", line)
        if match is None or int(match[1]) > MOST_FILE_BYTES or not is_left_by_job(match[3], stem):
            raise self._no_job_leaves(line.removeprefix(f"{scripts.ODD} ")[:80])
        return match[3], Content(int(match[1]), match[2])

    def _no_job_leaves(self, what: str) -> SetupError:
        return SetupError(
            f"{self.shell.title} holds unexpected files: {what}",
            f"check who else writes to {self.path} there",
        )

    def _fetch_one(self, path: str, to: Path, content: Content) -> None:
        with files.replacing(to) as part:
            with part.open("wb") as stream:
                script = f"cat {scripts.quoted(path)}"
                limit_s = _LOOK_S + content.size / _SLOWEST_LINK
                answer = self.shell.script(script, timeout=limit_s, into=stream, most=content.size)
            if not answer.ok:
                raise self._refusal(answer)
            if Content(part.stat().st_size, files.sha256(part)) != content:
                raise LinkLost(f"{to.name} arrived damaged from {self.shell.title}", "check the connection")

    def remove(self, folder: str) -> None:
        """End what is left of a job and remove its folder; if the machine is away, the next job does it."""
        self._left_behind.add(folder)
        with contextlib.suppress(ProfilingError):
            self.shell.script(scripts.remove_job(folder), timeout=30)
            self._left_behind.discard(folder)

    def clean(self) -> bool:
        """Remove the folder; return whether it was there."""
        return bool(self._done(scripts.remove_home(self.path), _LOOK_S).stdout.strip())

    def _content(self, file: Path) -> Content:
        try:
            facts = file.stat()
        except OSError as problem:
            raise InputError(f"cannot read {file}: {problem.strerror}", "correct the path") from problem
        key = (file, facts.st_size, facts.st_mtime_ns)
        if key not in self._contents:
            self._contents[key] = Content(facts.st_size, files.sha256(file))
        return self._contents[key]

    def _check_room(self, answer: Completed) -> None:
        """Raise an error if a job ended because the folder could not be written."""
        not_begun = answer.returncode == scripts.NOT_BEGUN and scripts.NO_ROOM in answer.stderr
        if not_begun or (not answer.ok and re.search(_FULL, answer.stderr, re.IGNORECASE)):
            plain = replace(answer, stderr=answer.stderr.replace(scripts.NO_ROOM, "").strip())
            refusal = self._refusal(plain)
            raise type(refusal)(refusal.problem, f"{refusal.fix}, then run it again")

    def _refusal(self, answer: Completed) -> ProfilingError:
        there = f"{self.path} on {self.shell.title}"
        if answer.returncode == scripts.NOT_OURS:
            return InputError(f"{there} was not made by the kit", f"move it away, or {_ELSEWHERE}")
        text = f"{answer.stdout}\n{answer.stderr}"
        if meaning := meaning_of(text, _REFUSALS):
            return InputError(f"{there} cannot be used: {meaning[0]}", meaning[1])
        if missing := re.search(r"(\w+): (?:inaccessible or )?(?:command )?not found", text, re.IGNORECASE):
            lacks = f"{self.shell.title} has no {missing[1]}, which the kit needs there"
            return SetupError(lacks, "install it, or use another machine")
        return SetupError(f"{there} cannot be used: {last_line(answer) or 'it does not say why'}", _ELSEWHERE)


_ELSEWHERE = "name another folder there as device_path of the config's target"
_FULL = "no space left|disk quota exceeded"
_REFUSALS = (
    (_FULL, "there is no space left", f"free some space there, or {_ELSEWHERE}"),
    ("read-only file system", "the file system is read-only", _ELSEWHERE),
    ("permission denied|operation not permitted", "it may not be written to", _ELSEWHERE),
    ("not a directory|file exists", "a part of the path is a file", _ELSEWHERE),
)

_NOT_STARTED = (126, 127)
"""A shell's exit codes for a program that it could not run, or did not find."""
# How dash, mksh, bash, busybox, toybox and the loaders of glibc and Android report a failed start.
_REASONS = (
    (
        r"\btaskset: (?:command |inaccessible or )?not found|\btaskset[\"':]* no such file",
        "there is no taskset, which cpu_affinity needs",
        "install util-linux there, or leave cpu_affinity out",
    ),
    (
        r"exec format error|not executable: .*elf|cannot execute binary|cannot open elf|wrong elf class"
        r"|is for em_|unexpected e_machine",
        "its CPU is {cpu}, and the program is for aarch64",
        "name an Arm machine, or a runner that is built for this one",
    ),
    (
        r"error while loading shared libraries: ([^\s:]+):|library \"([^\"\n]+)\" not found",
        "it needs the library {found}, which is not there",
        'link the runner statically, or use runner_path "builtin"',
    ),
    (
        r"permission denied|operation not permitted|can't execute",
        "no program may be run from that folder (its file system is mounted noexec, or a policy such as "
        "SELinux's forbids it)",
        _ELSEWHERE,
    ),
    (
        r"no such file|not found|inaccessible",
        "it is not there, or the loader that it names is not",
        "run it again, which sends it once more; build your own runner for that machine (a phone: with the "
        "Android NDK)",
    ),
)


def not_started(title: str, program: str, text: str, cpu: str = "of another kind") -> SetupError:
    """Return the error for `program` on the machine `title`, whose output is `text`."""
    why, fix = meaning_of(text, _REASONS, cpu=cpu) or (
        last_line(text) or "it does not say why",
        "start it there by hand; if nothing helps, name an executor_runner built for it in a config "
        "(runner_path)",
    )
    return SetupError(f"{title} cannot run {program}: {why}", fix)
