"""The way to a machine behind a shell, as jobs use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling import process
from model_profiling.errors import InputError
from model_profiling.runner.elf import AARCH64, read_elf
from model_profiling.targets.left_files import LeftFile
from model_profiling.targets.remote import scripts
from model_profiling.targets.remote.bundle import LOADER
from model_profiling.targets.remote.folder import RemoteFolder
from model_profiling.targets.remote.not_started import STATUSES, not_started
from model_profiling.targets.remote.shell import Shell

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
