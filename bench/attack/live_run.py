"""Commands of the kit in processes of their own, and what must be true of their folder after an accident."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from attack.reader import DATA, ROOT
from model_profiling.core.errors import ProfilingError
from model_profiling.runs.journal import Journal
from model_profiling.validation.validate import validate

MARK = "SME2PROF_ATTACK"
"""Set for every process of a run: whoever has it when the run is over is an orphan."""
PROGRAM = DATA / "runs" / "programs" / "small_cnn_xnnpack_int8.pte"
LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def is_clear(self) -> bool:
        """Whether it says what is wrong in the kit's own way, if anything is."""
        errors = sum(line.startswith("error: ") for line in self.err.splitlines())
        # Ctrl-C may come before Python has read a file of the kit, which then says nothing.
        told = {0: (0,), 1: (0,), 2: (1,), 130: (0, 1)}.get(self.code, ())
        return self.is_calm and errors in told

    @property
    def is_calm(self) -> bool:
        """Whether nothing surprised it. What ends Python before it has read a file of the kit does not."""
        surprised = "Traceback" in self.err and re.search('File ".*model_profiling', self.err)
        return not surprised and "unexpected" not in self.err

    def tail(self) -> str:
        return f"exit {self.code}: {self.err[-600:] or self.out[-300:]}"


class Live:
    """Commands in `folder`; whatever they start carries a mark."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.mark = f"{os.getpid()}-{uuid.uuid4().hex}"
        # Locks of its own: what else is measured on this machine neither waits for it nor makes it wait.
        own = {"XDG_STATE_HOME": str(folder), MARK: self.mark, "PYTHONPATH": str(ROOT)}
        self._environment = {**own, **(environment or {})}

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        return self.python("-m", "model_profiling", *words)

    def python(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, *words],
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
        return self.finish(self.start(*words))

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
        """What still lives some time after the command is over; it is killed then."""
        until = time.monotonic() + patience
        while (left := list(self.processes())) and time.monotonic() < until:
            time.sleep(0.1)
        for pid, _ in left:
            os.kill(pid, signal.SIGKILL)
        return [words for _, words in left]

    def steps_done(self) -> list[str]:
        """The lines of all journals that count; a sweep's run counts once it has come home."""
        done = []
        for path in self.folder.rglob("journal.jsonl"):
            if {"lab", ".work"} & set(path.relative_to(self.folder).parts):
                continue
            with contextlib.suppress(ProfilingError):
                run = path.parent.relative_to(self.folder).as_posix()
                entries = Journal(path.parent).entries()
                done += [f"{run}: {entry.step.key}" for entry in entries if entry.state == "done"]
        return sorted(done)

    def files(self) -> dict[str, int]:
        """Kinds of files, and how many of each: names of launches are drawn anew each time. Not what a
        process that was killed had said, a run kept under its date, what a worker has, notes of working
        compilers (another is tried if one is killed)."""
        paths = (path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*"))
        ends = ("_failed.log", "failed_launch.log", ".pyc", "__pycache__")
        others = re.compile(r"^lab\b|^cache/probes/|-\d{8}-\d{6}(/|$)")
        kept = (path for path in paths if not path.endswith(ends) and not others.search(path))
        return dict(Counter(re.sub("[0-9a-f]{16,}", "*", path) for path in kept))

    def wrong(self, whole: Whole, *, exactly: bool = True, files: bool = True) -> Iterator[str]:
        """What is not as it was after the same command to which nothing happened. Without `exactly`, it may
        have measured more or fewer rounds."""
        done = self.steps_done()
        if exactly and done != list(whole.planned):
            lost, more = set(whole.planned) - set(done), set(done) - set(whole.planned)
            yield f"rounds lost: {sorted(lost)}; more than planned: {sorted(more)}"
        for manifest in self.folder.rglob("manifest.json"):
            if not (found := validate(manifest.parent)).ok:
                yield f"not valid: {found.as_text()[-500:]}"
        mine, theirs = self.files(), whole.files
        if not exactly:
            mine, theirs = ({re.sub(r"_r\d+", "", name): 1 for name in each} for each in (mine, theirs))
        if files and mine != theirs:
            yield f"other files than if nothing had happened: {sorted(mine.items() ^ theirs.items())[:12]}"
        yield from self.untidy()

    def is_finished(self, again: Ended | None, whole: Whole) -> bool:
        """Whether a second try did the work, or refused it because all of it had been done."""
        return again is not None and (again.code == whole.code or self.files() == whole.files)

    def untidy(self) -> Iterator[str]:
        """Locks that are held and files that were left half written."""
        for path in self.folder.rglob("*"):
            if {"lab", ".work"} & set(path.relative_to(self.folder).parts):
                continue  # of a worker that is at work
            if path.name.startswith(".") and path.name.endswith("lock"):
                with path.open() as stream:
                    try:
                        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        yield f"{path.name} is still held"
            elif path.name == ".work" or path.name.endswith((".tmp", ".part", "~")):
                yield f"{path.name} is left over"


class LiveRun(Live):
    """A folder with a config of a small program."""

    def __init__(
        self, folder: Path, *, target: str = "host", environment: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(folder, environment)
        self.run_dir = folder / "run"
        write_config(folder, target)

    def journal_lines(self) -> int:
        try:
            return (self.run_dir / "journal.jsonl").read_bytes().count(b"\n")
        except OSError:
            return 0


def write_config(folder: Path, target: str = "host") -> None:
    emulated = target == "emulated"
    names = ("emulated_sme2_on", "emulated_sme2_off") if emulated else ("one", "two")
    experiments = [{"name": name, "runs": 1 if emulated else 2, "warmup": 0} for name in names]
    if emulated:
        for experiment in experiments:
            experiment["sme2"] = str(experiment["name"]).rpartition("_")[2]
    config = {
        "model": str(PROGRAM),
        "output_root": "run",
        "target": {"name": target},
        "experiments": experiments,
        "schedule": {} if emulated else {"rounds": 2, "seed": 1, "budget_s": 2},
        "analysis": {"compare_pairs": [{"baseline": names[1], "candidate": names[0]}]},
    }
    (folder / "c.json").write_text(json.dumps(config))


@dataclass(frozen=True, slots=True)
class Whole:
    """What is there after a command to which nothing happens."""

    planned: tuple[str, ...]
    files: Mapping[str, int]
    code: int = 0
    seconds: float = 0.0
    lines: int = 0
    kibibytes: int = 0
    """What it wrote."""


def undisturbed(live: Live, *words: str) -> Whole:
    before, began = used(live.folder), time.monotonic()
    ended = live.call(*words)
    # Exit 2 is an error: to kill a command that refuses its input would show nothing.
    assert ended is not None and ended.code in (0, 1), ended and ended.tail()
    lines = live.journal_lines() if isinstance(live, LiveRun) else 0
    seconds, kibibytes = time.monotonic() - began, used(live.folder) - before
    return Whole(tuple(live.steps_done()), live.files(), ended.code, seconds, lines, kibibytes)


def used(folder: Path) -> int:
    """In KiB, as a disk counts it."""
    return sum(path.lstat().st_blocks for path in folder.rglob("*")) // 2
