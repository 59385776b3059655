"""A machine behind a shell as a target: the kit's runner goes there once with all it needs, every job runs
there, and a job that loses the machine is begun again when it is back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.core import process
from model_profiling.core.errors import InputError, RunError, SetupError
from model_profiling.runner.build import RunnerBuild
from model_profiling.runner.elf import AARCH64, read_elf
from model_profiling.runner.features import this_platform
from model_profiling.runner.machine import MachineFacts, PlatformName, TargetChoice, place_of
from model_profiling.runner.result import read_features
from model_profiling.targets.collect import LeftFile
from model_profiling.targets.device.power_mode import MachineLock
from model_profiling.targets.execution import execute, execute_lockstep, too_large_together, unfit_for_turns
from model_profiling.targets.protocol import Job, LockstepJob, LockstepOutcome, Outcome
from model_profiling.targets.remote import scripts
from model_profiling.targets.remote.facts import LOADER, Bundle, Machine, ask_machine, make_bundle
from model_profiling.targets.remote.folder import RemoteFolder, Removed
from model_profiling.targets.remote.shell import Link, Shell

# Why a program could not be started on another machine, from what its shell, loader or `taskset` said.

STATUSES = (126, 127)
"""With which a shell ends that found a program and could not run it, or did not find it."""

_ELSEWHERE = "name another folder there as device_path of the config's target"
# What dash, mksh, bash, busybox, toybox, glibc's loader and Android's say; the first that fits is meant.
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
        r"error while loading shared libraries: ([^\s:]+):|library \"([^\"]+)\" not found",
        "it needs the library {library}, which is not there",
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
        "it is not there, or what its first bytes name as its loader is not",
        "run it again, which sends it anew; build a runner of your own for that machine (a phone: with the "
        "Android NDK)",
    ),
)


def known_reason(title: str, program: str, said: str, cpu: str = "") -> SetupError | None:
    """The error for `program` on the machine `title`, where what it `said` has a meaning that is known."""
    for pattern, reason, fix in _REASONS:
        if found := re.search(pattern, said, re.IGNORECASE):
            library = next(filter(None, found.groups()), "")
            why = reason.format(library=library, cpu=cpu or "of another kind")
            return SetupError(f"{title} cannot run {program}: {why}", fix)
    return None


def not_started(title: str, program: str, said: str) -> SetupError:
    """The error for `program` that the machine `title` did not start, whatever it `said`."""
    if known := known_reason(title, program, said):
        return known
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    why = lines[-1] if lines else "it does not say why"
    return SetupError(
        f"{title} cannot run {program}: {why}",
        "start it there by hand; if nothing helps, name an executor_runner built for it as runner_path",
    )


# The way to a machine behind a shell, as jobs use it.

# A machine ends a job itself when time is up; one that is still silent this much later has gone.
_SLACK_S = 20.0
_TIME_LIMIT = 124


@dataclass(frozen=True, slots=True)
class RemoteTransport:
    """`loader` starts a program there that is linked to the C library the kit brought; `cores` is how many
    CPUs there are, where that is known."""

    shell: Shell
    folder: RemoteFolder
    loader: tuple[str, ...] = ()
    cores: int | None = None

    def make_folder(self, into: Path) -> str:
        del into
        return self.folder.new_job()

    def put(self, file: Path) -> str:
        return self.folder.put(file)

    def put_runner(self, file: Path) -> tuple[str, ...]:
        """One for Linux goes through the kit's loader: the machine's own C library is another one, or
        none."""
        facts = read_elf(file)
        if facts is not None and facts.machine != AARCH64:
            raise InputError(f"{file} is not a program for aarch64", "name a runner built for the device")
        linux = (
            facts is not None and facts.interpreter is not None and facts.interpreter.endswith(f"/{LOADER}")
        )
        return (*(self.loader if linux else ()), self.folder.put(file, executable=True))

    def run(
        self, argv: Sequence[str], *, folder: str, timeout: float, cores: Sequence[int]
    ) -> process.Completed:
        words = (*self._pinning(cores), *argv)
        answer = self.shell.script(
            scripts.watched(words, folder, timeout), timeout=timeout + _SLACK_S, stdin="open"
        )
        if full := self.folder.full_disk(answer):
            raise full
        if answer.status in STATUSES:
            raise not_started(self.shell.title, self._program(argv), f"{answer.stdout}\n{answer.stderr}")
        return process.Completed(
            argv=(*self.shell.link.shown, *words),
            returncode=answer.status,
            stdout=answer.stdout,
            stderr=answer.stderr,
            seconds=answer.seconds,
            timed_out=answer.status == _TIME_LIMIT,
        )

    def fetch(self, folder: str, wanted: Sequence[LeftFile], into: Path) -> None:
        self.folder.fetch(folder, wanted, into)

    def remove(self, folder: str) -> None:
        self.folder.remove_job(folder)

    def _program(self, argv: Sequence[str]) -> str:
        """Which of the kit's files `argv` starts, whatever stands in front of it."""
        sent = tuple(f"{self.folder.path}/{name}/" for name in ("programs", "files"))
        return next((word for word in argv if word.startswith(sent)), argv[0])

    def _pinning(self, cores: Sequence[int]) -> tuple[str, ...]:
        if not cores:
            return ()
        beyond = [core for core in cores if core < 0 or (self.cores is not None and core >= self.cores)]
        if beyond:
            last = f"choose from 0 to {self.cores - 1}" if self.cores else "name CPUs that it has"
            raise InputError(f"{self.shell.title} has no CPU {beyond[0]}", last)
        # Android's taskset knows masks only; everyone else's knows them too.
        return ("taskset", f"{sum(1 << core for core in set(cores)):x}")


_RUNNER_S = 120.0


class RemoteTarget:
    """What targets behind a shell have in common. Nothing is asked of the machine before it must be."""

    platform: PlatformName = "linux"

    def __init__(self, choice: TargetChoice, link: Link) -> None:
        self.shell = Shell(link)
        self.build: RunnerBuild | None = None
        self._choice = choice
        self._alone = False
        self._machine: Machine | None = None
        self._folder: RemoteFolder | None = None
        self._bundle: Bundle | None = None
        self._seen_by_runner: frozenset[str] | None = None
        self._why_no_runner: SetupError | None = None

    @property
    def name(self) -> str:
        return self.shell.title

    @property
    def choice(self) -> TargetChoice:
        """What opens this very machine again."""
        return self._choice

    @property
    def place(self) -> str:
        return place_of(self.name)

    @property
    def timings_are_latency(self) -> bool:
        """Whether the machine runs the runner itself; only the machine can say, so it is asked."""
        self.prepare()
        return self.why_emulated is None

    @property
    def why_emulated(self) -> str | None:
        return self._machine.why_emulated(self._seen_by_runner) if self._machine else None

    def connect(self) -> Machine:
        """The machine, reached and asked once; what it lacks is an error."""
        if self._machine is None:
            self.shell.link.connect()
            machine = self._ask()
            if missing := [tool for tool in machine.missing_tools if tool != "taskset"]:
                raise SetupError(
                    f"{self.name} has no {missing[0]}, which the kit needs there", "install it there"
                )
            self._machine = machine
        return self._machine

    def _ask(self) -> Machine:
        """The machine, now."""
        return ask_machine(self.shell)

    @property
    def folder(self) -> RemoteFolder:
        """The kit's folder there, which need not exist yet."""
        if self._folder is None:
            self._folder = RemoteFolder(self.shell, self._choice.device_path or self._base(self.connect()))
        return self._folder

    def _base(self, machine: Machine) -> str:
        """Where the kit's folder is made unless the user says otherwise."""
        raise NotImplementedError

    @property
    def _lock(self) -> MachineLock:
        return MachineLock(self.name, self._own_names(self.connect()))

    def _own_names(self, machine: Machine) -> tuple[str, ...]:
        """By which the machine is known however it is reached."""
        boot = machine.boot_id if re.fullmatch(r"[0-9a-f-]{36}", machine.boot_id) else ""
        # A machine that is restarted meanwhile is still the one of this name.
        return (boot, self.place)

    @contextmanager
    def held_ready(self) -> Iterator[None]:
        """Have the machine alone."""
        with self._lock.held():
            self._alone = True
            try:
                yield
            finally:
                self._alone = False

    def take_notes(self) -> tuple[str, ...]:
        """Nothing is set on it that would have to be put back."""
        return ()

    def prepare(self) -> None:
        if self.build is not None or self._why_no_runner is not None:
            return
        self.connect()
        if not self._alone:
            self._lock.check_free()  # sending the runner would disturb who measures there
        try:
            bundle = self._make_bundle()
        except SetupError as problem:
            if this_platform().system == "linux":
                raise
            # A runner of the user's own can do without; the kit's cannot.
            self._why_no_runner = problem
            self.folder.open()
            return
        self.folder.open()
        self._seen_by_runner = self._ask_runner(bundle.runner(self.folder.put_together(bundle.files)))
        self._bundle, self.build = bundle, bundle.build

    def _make_bundle(self) -> Bundle:
        """The runner and what it needs there."""
        return make_bundle()

    def _ask_runner(self, runner: tuple[str, ...]) -> frozenset[str]:
        """The CPU features that the runner sees; a machine that cannot run it is told by that."""
        answer = self.shell.repeat(lambda: self.shell.script(scripts.features(runner), timeout=_RUNNER_S))
        if answer.ok:
            return frozenset(read_features(answer.stdout))
        # Some shells take a program of another CPU for a script, and end with that script's status.
        if known := known_reason(self.name, runner[0], answer.stderr, self.connect().name):
            raise known
        why = answer.last_line or f"exit status {answer.status}"
        raise SetupError(
            f"the kit's runner does not start on {self.name}: {why}",
            "name an executor_runner built for it as runner_path",
        )

    def execute(self, job: Job, into: Path, stem: str) -> Outcome:
        def begin() -> Outcome:
            runner, transport = self._ready(needed=job.runner_path is None)
            latency = self.why_emulated is None
            sent = self._bundle.files.values() if self._bundle else ()
            return execute(
                job,
                into,
                stem,
                runner=runner,
                transport=transport,
                timings_are_latency=latency,
                code=tuple(dict.fromkeys(path.parent for path in sent)),
            )

        return self.shell.repeat(begin)

    def execute_lockstep(self, job: LockstepJob, into: Path, stem: str) -> LockstepOutcome:
        def begin() -> LockstepOutcome:
            runner, transport = self._ready(needed=True)
            latency = self.why_emulated is None
            return execute_lockstep(
                job, into, stem, runner=runner, transport=transport, timings_are_latency=latency
            )

        return self.shell.repeat(begin)

    def why_not_lockstep(self, jobs: Sequence[Job], peaks: Mapping[Path, int]) -> str | None:
        free = self._machine.available_bytes if self._machine else None
        return unfit_for_turns(jobs) or too_large_together(jobs, peaks, free)

    def facts(self) -> MachineFacts:
        """The machine, now."""
        self.connect()
        self._machine = self._ask()
        built = (
            {"executorch": self.build.executorch_version, "compiler": self.build.compiler}
            if self.build
            else {}
        )
        facts = self._machine.facts(built)
        if self._seen_by_runner is not None:
            seen = tuple(sorted(self._seen_by_runner))
            source = f"the runner on {self.name}"
            facts = replace(facts, machine="aarch64", features=seen, features_source=source)
            if self.why_emulated:
                facts = replace(facts, cpu=f"emulated ({self.why_emulated}), on {facts.cpu}")
        return facts

    def clean(self) -> Removed:
        """Remove everything the kit has put on the machine, unless a run is using it."""
        with self._lock.held():
            return self.folder.clean()

    def close(self) -> None:
        self.shell.link.close()

    def _ready(self, *, needed: bool) -> tuple[tuple[str, ...], RemoteTransport]:
        """What starts the kit's runner, if it is `needed`, and the way there. A machine that was away may
        have forgotten the runner, so it is looked for each time that happened."""
        if needed and self._why_no_runner is not None:
            raise self._why_no_runner
        if needed and self._bundle is None:
            raise RunError("the target was not prepared", "call prepare() first")
        cores = self._machine.cores if self._machine else None
        if self._bundle is None:
            return (), RemoteTransport(self.shell, self.folder, (), cores)
        there = self.folder.put_together(self._bundle.files)
        transport = RemoteTransport(self.shell, self.folder, self._bundle.loader(there), cores)
        return self._bundle.runner(there), transport
