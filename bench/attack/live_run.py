"""A real run of a small program in a process of its own, and what must be true of it after an accident."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from attack.readers import DATA, ROOT
from model_profiling.core.errors import ProfilingError
from model_profiling.run.journal import Journal
from model_profiling.validation.validate import validate

MARK = "SME2PROF_ATTACK"
"""Set for every process of a run: whoever has it when the run is over is an orphan."""
PROGRAM = DATA / "runs" / "programs" / "small_cnn_xnnpack_int8.pte"
Mode = Literal["lockstep", "rounds"]
LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def is_clear(self) -> bool:
        """Whether it says what is wrong in the kit's own way, if anything is."""
        return self.code in (0, 1, 2, 130) and self.is_calm

    @property
    def is_calm(self) -> bool:
        """Whether nothing surprised it."""
        return "Traceback" not in self.err and "unexpected" not in self.err

    def tail(self) -> str:
        return f"exit {self.code}: {self.err[-600:] or self.out[-300:]}"


class LiveRun:
    """A folder with a config; `output` is where its run directory goes, beside it unless told otherwise."""

    def __init__(
        self, folder: Path, *, mode: Mode = "rounds", target: str = "host", rounds: int = 2,
        output: Path | None = None, environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.run_dir = folder, output or folder / "run"
        self.mark = f"{os.getpid()}-{uuid.uuid4().hex}"
        self._environment = {**(environment or {}), MARK: self.mark, "PYTHONPATH": str(ROOT)}
        emulated = target == "emulated"
        names = ("emulated_sme2_on", "emulated_sme2_off") if emulated else ("one", "two")
        experiments = [{"name": name, "runs": 1 if emulated else 2, "warmup": 0} for name in names]
        if emulated:
            for experiment in experiments:
                experiment["sme2"] = str(experiment["name"]).rpartition("_")[2]
        schedule: dict[str, object] = (
            {} if emulated else {"mode": mode, "rounds": rounds, "seed": 1, "budget_s": 2}
        )
        config = {
            "model": str(PROGRAM),
            "output_root": str(self.run_dir),
            "target": {"name": target},
            "experiments": experiments,
            "schedule": schedule,
            "analysis": {"compare_pairs": [{"baseline": names[1], "candidate": names[0]}]},
        }
        (folder / "c.json").write_text(json.dumps(config))

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        return self.start_command("run", "c.json", *words)

    def start_command(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "model_profiling", *words],
            cwd=self.folder,
            env={**os.environ, **self._environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def finish(self, child: subprocess.Popen[bytes], limit: float = LIMIT_S) -> Ended | None:
        """How it ended; None where it had to be killed because it did not."""
        try:
            out, err = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            return None
        return Ended(child.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))

    def call(self, *words: str) -> Ended | None:
        return self.finish(self.start_command(*words))

    def processes(self) -> Iterator[tuple[int, str]]:
        """Every process of this run that is alive, with its command line."""
        wanted = f"{MARK}={self.mark}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if wanted not in (entry / "environ").read_bytes().split(b"\0"):
                        continue
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                except OSError:
                    continue
                if state != "Z":
                    yield int(entry.name), words.decode("utf-8", "replace")

    def end_orphans(self, patience: float = 10.0) -> list[str]:
        """What still lives some time after the run is over; it is killed then."""
        until = time.monotonic() + patience
        while (left := list(self.processes())) and time.monotonic() < until:
            time.sleep(0.1)
        for pid, _ in left:
            os.kill(pid, signal.SIGKILL)
        return [words for _, words in left]

    def steps_done(self) -> list[str]:
        """The lines of the journal that count."""
        try:
            return sorted(
                entry.step.key for entry in Journal(self.run_dir).entries() if entry.state == "done"
            )
        except ProfilingError:
            return []

    def journal_lines(self) -> int:
        try:
            return (self.run_dir / "journal.jsonl").read_bytes().count(b"\n")
        except OSError:
            return 0

    def files(self) -> set[str]:
        """All but what a process that was killed had said, which is kept for whoever wants to look."""
        names = sorted(
            path.relative_to(self.run_dir).as_posix()
            for path in self.run_dir.rglob("*")
            if not path.name.endswith(("_failed.log", "failed_launch.log"))
        )
        # Launches have names that are drawn anew each time.
        launches = [name for name in names if name.startswith("launches/")]
        return {*(set(names) - set(launches)), f"{len(launches)} launches"}

    def wrong(self, planned: Sequence[str], files: set[str] | None = None) -> Iterator[str]:
        """What is not as it must be of a run that is complete."""
        done = self.steps_done()
        if done != sorted(planned):
            lost, more = set(planned) - set(done), set(done) - set(planned)
            yield f"rounds lost: {sorted(lost)}; more than planned: {sorted(more)}"
        found = validate(self.run_dir)
        if not found.ok:
            yield f"not valid: {found.as_text()[-500:]}"
        if files is not None and self.files() != files:
            yield f"other files than in a run that nothing happened to: {sorted(self.files() ^ files)}"
        yield from self.untidy()

    def untidy(self) -> Iterator[str]:
        """Locks that are held and files that were left half written."""
        for lock in self.run_dir.rglob(".*lock"):
            with lock.open() as stream:
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    yield f"{lock.name} is still held"
        for path in self.run_dir.rglob("*"):
            if path.name == ".work" or path.name.endswith((".tmp", ".part", "~")):
                yield f"{path.name} is left over"


@dataclass(frozen=True, slots=True)
class Whole:
    """A run to which nothing happens."""

    planned: tuple[str, ...]
    files: frozenset[str]
    lines: int


def undisturbed(folder: Path, mode: Mode, target: str = "host") -> Whole:
    run = LiveRun(folder, mode=mode, target=target)
    ended = run.call("run", "c.json")
    assert ended is not None and ended.code == 0, ended and ended.tail()
    return Whole(tuple(run.steps_done()), frozenset(run.files()), run.journal_lines())
