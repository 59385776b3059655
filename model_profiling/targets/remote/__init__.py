"""Machines that are reached through a shell, a phone over adb or an Arm Linux box over ssh, as targets: the
runner is sent once with all it needs, jobs run there, and a job that loses the machine is repeated."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from model_profiling.core.errors import SetupError
from model_profiling.core.files import LockFile
from model_profiling.runner.build import RunnerBuild, build_runner
from model_profiling.runner.features import AARCH64_LINUX, this_platform
from model_profiling.runner.machine import (
    FILES,
    MachineAnswers,
    MachineFacts,
    PlatformName,
    TargetChoice,
    place_of,
)
from model_profiling.runner.result import RunnerReport, read_report
from model_profiling.targets.emulated import build_cross_runner, library_folders
from model_profiling.targets.execution import Route, Target
from model_profiling.targets.job import Job, LockstepJob, LockstepOutcome, Outcome
from model_profiling.targets.machine_lock import lock_of
from model_profiling.targets.remote import scripts
from model_profiling.targets.remote.folder import LOADER, RemoteFolder, not_started, read_elf
from model_profiling.targets.remote.shell import MachineLink, Shell

_RUNNER_S = 120.0
COMMANDS = {
    "machine": "uname -m",
    "system": "uname -sr",
    "home": 'echo "${XDG_CACHE_HOME:-$HOME/.cache}"',
    "emulator": 'echo "$QEMU_CPU$QEMU_LD_PREFIX$(getprop ro.boot.qemu)$(getprop ro.kernel.qemu)"',
    "product": "getprop ro.product.manufacturer; getprop ro.product.model; getprop ro.build.version.release",
    "tools": "for t in setsid sha256sum; do command -v $t >/dev/null || echo $t; done",
}


# What a runner brings to a machine that may have no C library, or an older one: the dynamic loader, the C and
# C++ libraries and ExecuTorch's, from this machine or the emulated one. Started through that loader it uses
# only the other machine's kernel, so a phone needs no NDK.

_RUNNER = "sme2prof-runner"
# The runner opens the library itself, after it has switched features off.
_OPENED = (LOADER, "libexecutorch_backend_xnnpack.so")


@dataclass(frozen=True, slots=True)
class Bundle:
    """A built runner and every file it needs, by its name there."""

    build: RunnerBuild
    files: dict[str, Path]

    def loader(self, folder: str) -> tuple[str, ...]:
        """Return what starts a program linked to the C library in `folder`."""
        return (f"{folder}/{LOADER}", "--library-path", folder)

    def runner(self, folder: str) -> tuple[str, ...]:
        return (*self.loader(folder), f"{folder}/{_RUNNER}")


def make_bundle() -> Bundle:
    if this_platform() == AARCH64_LINUX:
        build, root = build_runner(), Path("/")
    else:
        build, root = build_cross_runner()
    return Bundle(build, gather(build.path, [build.library_path, *library_folders(root)]))


def gather(program: Path, folders: Sequence[Path]) -> dict[str, Path]:
    """Find `program`, all libraries it needs and those it opens in `folders`."""
    files = {_RUNNER: program}
    waiting = [*_OPENED, *_needs(program)]
    while waiting:
        name = waiting.pop()
        if name in files:
            continue
        places = [folder / name for folder in folders if (folder / name).is_file()]
        elves = ((path, read_elf(path)) for path in places)
        place = next((path for path, elf in elves if elf and elf.machine == "aarch64"), None)
        if place is None:
            raise SetupError(
                f"the runner needs {name} for aarch64, which is in none of {', '.join(map(str, folders))}",
                "install it, or name a folder with an aarch64 C and C++ library in SME2PROF_SYSROOT",
            )
        files[name] = place.resolve()
        waiting += _needs(place)
    return files


def _needs(path: Path) -> tuple[str, ...]:
    facts = read_elf(path)
    return facts.needed if facts else ()


class RemoteTarget(Target):
    """The base of targets behind a shell. The machine is contacted only when needed."""

    is_here = False
    platform: PlatformName = "linux"
    own_commands: Mapping[str, str] = {}
    """What a machine of this kind is asked besides `COMMANDS`."""

    def __init__(self, choice: TargetChoice, link: MachineLink) -> None:
        self.shell = Shell(link)
        self._choice = choice
        self._alone = False
        self._machine: MachineAnswers | None = None
        self._bundle: Bundle | None = None
        self._report: RunnerReport | None = None

    @property
    def name(self) -> str:
        return self.shell.title

    @property
    def choice(self) -> TargetChoice:
        return self._choice

    @property
    def place(self) -> str:
        return place_of(self.name)

    @property
    def timings_are_latency(self) -> bool:
        """Whether the machine itself runs the runner; asks the machine."""
        self.prepare()
        return self.why_emulated is None

    @property
    def why_emulated(self) -> str | None:
        seen = frozenset(self._report.features) if self._report else None
        return self._machine.why_emulated(seen) if self._machine else None

    def connect(self) -> MachineAnswers:
        """Return the machine, contacted once; raise an error if it lacks something."""
        if self._machine is None:
            self.shell.link.connect()
            machine = self._ask()
            if missing := machine.text("tools").split():
                raise SetupError(
                    f"{self.name} has no {missing[0]}, which the kit needs there", "install it there"
                )
            self._machine = machine
        return self._machine

    def _ask(self) -> MachineAnswers:
        """Ask everything at once."""
        answer = self.shell.script(scripts.machine_facts(FILES, {**COMMANDS, **self.own_commands}))
        texts: dict[str, dict[str, str]] = {}
        parts = re.split(r"(?m)^@@ (\w+) (\S+)\n?", answer.stdout)
        for name, path, content in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
            texts.setdefault(name, {})[path] = content
        return MachineAnswers(texts)

    @cached_property
    def folder(self) -> RemoteFolder:
        """The kit's folder there, which may not exist yet."""
        return RemoteFolder(self.shell, self._choice.device_path or self._base(self.connect()))

    def _base(self, machine: MachineAnswers) -> str:
        raise NotImplementedError

    @property
    def _lock(self) -> LockFile:
        return lock_of(self.name, self._own_name(self.connect()))

    def _own_name(self, machine: MachineAnswers) -> str:
        """Return a name that identifies the machine however it is reached."""
        boot = machine.text("boot")
        return boot if re.fullmatch(r"[0-9a-f-]{36}", boot) else self.place

    @contextmanager
    def held_ready(self) -> Iterator[None]:
        with self._lock.held():
            self._alone = True
            try:
                yield
            finally:
                self._alone = False

    def prepare(self) -> None:
        if self.build is not None or self._why_no_runner is not None:
            return
        self.connect()
        if not self._alone:
            self._lock.check_free()  # sending the runner would disturb a measurement there
        try:
            bundle = make_bundle()
        except SetupError as problem:
            if this_platform().system == "linux":
                raise
            # A user's own runner can do without the kit's.
            self._why_no_runner = problem
            self.folder.open()
            return
        self._report = self.shell.repeat(lambda: self._install(bundle))
        self._bundle, self.build = bundle, bundle.build

    def _install(self, bundle: Bundle) -> RunnerReport:
        """Send the runner; return what it says there, or raise an error if it does not start."""
        self.folder.open()
        runner = bundle.runner(self.folder.put_together(bundle.files))
        answer = self.shell.script(shlex.join([*runner, "--features-only"]), timeout=_RUNNER_S)
        if answer.ok:
            return read_report(answer.stdout)
        # Some shells take a program for another CPU for a script, and end with that script's status.
        raise not_started(self.name, runner[0], answer.stderr, self.connect().name)

    def execute(self, job: Job, into: Path, stem: str) -> Outcome:
        return self.shell.repeat(lambda: Target.execute(self, job, into, stem))

    def execute_lockstep(self, job: LockstepJob, into: Path, stem: str) -> LockstepOutcome:
        return self.shell.repeat(lambda: Target.execute_lockstep(self, job, into, stem))

    def operators(self) -> frozenset[str] | None:
        return self._report.operators if self._report else None

    def facts(self) -> MachineFacts:
        self.connect()
        self._machine = self.shell.repeat(self._ask)
        facts = self._machine.facts(self.build.versions if self.build else {})
        if self._report is not None:
            seen = tuple(sorted(self._report.features))
            facts = replace(facts, machine="aarch64", features=seen)
            if self.why_emulated:
                facts = replace(facts, cpu=f"emulated ({self.why_emulated}), on {facts.cpu}")
        return facts

    def clean(self) -> bool:
        with self._lock.held():
            return self.folder.clean()

    def close(self) -> None:
        self.shell.link.close()

    def _route(self) -> Route:
        """Send the runner again if the machine was away: it may be gone."""
        self.folder.cores = self._machine.cores if self._machine else None
        if self._bundle is None:
            return Route((), self.folder)
        there = self.folder.put_together(self._bundle.files)
        self.folder.loader = self._bundle.loader(there)
        code = dict.fromkeys(path.parent for path in self._bundle.files.values())
        return Route(self._bundle.runner(there), self.folder, tuple(code))
